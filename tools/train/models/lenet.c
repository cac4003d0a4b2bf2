#include "dataset.h"
#include "model.h"

/* Pooling after relu, as the original; the other order gives the same values. */
static kn_status lenet_init(void *model, kn_layer *net) {
    const kn__lenet_sizes *s = model;
    const kn_layer_conv_options conv = {.act = kn_relu};
    int64_t side = ((s->side - 4) / 2 - 4) / 2; /* after both */
    kn_layer_conv(net, "conv1", 1, s->channels[0], KN_SHAPE(5, 5), &conv);
    kn_layer_maxpool(net, "pool1", KN_SHAPE(2, 2), NULL); /* [B,20,12,12] */
    kn_layer_conv(net, "conv2", s->channels[0], s->channels[1], KN_SHAPE(5, 5), &conv);
    kn_layer_maxpool(net, "pool2", KN_SHAPE(2, 2), NULL); /* [B,50,4,4] */
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", s->channels[1] * side * side, s->hidden,
                    &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(net, "fc2", s->hidden, s->classes, NULL); /* [B,10] */
    return kn_check();
}

const kn_model_kind kn__lenet = {
    .name = "lenet",
    .summary = "two convolutions and two linear layers",
    .size_bytes = sizeof(kn__lenet_sizes),
    .sizes =
        &(const kn__lenet_sizes){.side = 28, .classes = 10, .channels = {20, 50}, .hidden = 500},
    .init = lenet_init,
    .is_pure = true,
    .facts = &(const kn_model_facts){
        .n_params = 431080,
        .data = "MNIST, 28x28 pixels",
        .source = KN__FROM_EITHER,
        .published = "an epoch on a GRID K520: Knet 3.59 s, Theano 3.03, Torch 1.69, "
                     "Caffe 3.54, TensorFlow 8.77",
        .x = {{1, 28, 28}, 3},
        .n_classes = 10,
        .batch = 128,
        .optimizer = "sgd",
        .lr = 0.1,
        .optim = kn__optim_sgd}};
