#include "dataset.h"
#include "model.h"

static kn_status mlp_init(void *model, kn_layer *net) { /* x [B,784] or [B,1,28,28] */
    const kn__mlp_sizes *s = model;
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", s->pixels, s->hidden,
                    &(kn_layer_linear_options){.act = kn_relu}); /* [B,64] */
    kn_layer_linear(net, "fc2", s->hidden, s->classes, NULL);    /* [B,10] */
    return kn_check();
}

const kn_model_kind kn__mlp = {
    .name = "mlp",
    .summary = "two linear layers",
    .size_bytes = sizeof(kn__mlp_sizes),
    .sizes = &(const kn__mlp_sizes){.pixels = 784, .hidden = 64, .classes = 10},
    .init = mlp_init,
    .is_pure = true,
    .facts = &(const kn_model_facts){
        .n_params = 50890,
        .data = "MNIST, 28x28 pixels",
        .source = KN__FROM_EITHER,
        .published = "10 epochs on a GRID K520: Knet 3.68 s, Theano 2.31, Torch 4.03, "
                     "Caffe 3.69, TensorFlow 6.94",
        .x = {{1, 28, 28}, 3},
        .n_classes = 10,
        .batch = 100,
        .optimizer = "sgd",
        .lr = 0.15,
        .optim = kn__optim_sgd}};
