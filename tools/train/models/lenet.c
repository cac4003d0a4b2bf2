#include "model.h"

/* Pooling after relu, as the original; the other order gives the same values. */
static kn_status lenet_init(void *model, kn_layer *net) {
    (void)model;
    kn_layer_conv(net, "conv1", 1, 20, KN_SHAPE(5, 5), &(kn_layer_conv_options){.act = kn_relu});
    kn_layer_maxpool(net, "pool1", KN_SHAPE(2, 2), NULL); /* [B,20,12,12] */
    kn_layer_conv(net, "conv2", 20, 50, KN_SHAPE(5, 5), &(kn_layer_conv_options){.act = kn_relu});
    kn_layer_maxpool(net, "pool2", KN_SHAPE(2, 2), NULL); /* [B,50,4,4] */
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", 800, 500, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(net, "fc2", 500, 10, NULL); /* [B,10] */
    return kn_check();
}

const kn_model_kind kn__lenet = {
    .name = "lenet",
    .summary = "two convolutions and two linear layers",
    .init = lenet_init,
    .is_pure = true,
    .facts = &(const kn_model_facts){
        .n_params = 431080,
        .data = "MNIST, 28x28 pixels",
        .published = "an epoch on a GRID K520: Knet 3.59 s, Theano 3.03, Torch 1.69, "
                     "Caffe 3.54, TensorFlow 8.77",
        .x = {{1, 28, 28}, 3},
        .n_classes = 10,
        .batch = 128,
        .optimizer = "sgd",
        .lr = 0.1,
        .optim = kn__optim_sgd}};
