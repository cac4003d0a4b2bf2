/* Knet.jl's CIFAR-10 network with batch normalization in place of biases. */
#include "dataset.h"
#include "model.h"

static void conv(kn_layer *net, const char *name, int64_t n_in, int64_t n_out) {
    kn_layer_conv(net, name, n_in, n_out, KN_SHAPE(3, 3),
                  &(kn_layer_conv_options){
                      .conv = {.padding = {1, 1}}, .weight = kn_init_he(), .no_bias = 1});
}

static kn_status init(void *model, kn_layer *net) { /* x [B,3,S,S] */
    const kn__cifar_sizes *s = model;
    const kn_layer_norm_options relu = {.act = kn_relu};
    int64_t left = s->side / 4;
    conv(net, "conv1", 3, s->channels[0]);
    kn_layer_batchnorm(net, "bn1", s->channels[0], &relu);
    kn_layer_maxpool(net, "pool1", KN_SHAPE(2, 2), NULL); /* [B,16,16,16] */
    conv(net, "conv2", s->channels[0], s->channels[1]);
    kn_layer_batchnorm(net, "bn2", s->channels[1], &relu);
    kn_layer_maxpool(net, "pool2", KN_SHAPE(2, 2), NULL); /* [B,32,8,8] */
    conv(net, "conv3", s->channels[1], s->channels[2]);
    kn_layer_batchnorm(net, "bn3", s->channels[2], &relu);
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", s->channels[2] * left * left, s->hidden,
                    &(kn_layer_linear_options){.weight = kn_init_he(), .no_bias = 1});
    kn_layer_batchnorm(net, "bn4", s->hidden, &relu);
    kn_layer_linear(net, "fc2", s->hidden, s->classes, NULL);
    return kn_check();
}

static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__cifar_sizes *s = model;
    return kn_layer_forward(net, kn__images_fit(batch->x, 3, s->side));
}

static kn_status optim(kn_optim **out, kn_params *params, double lr) {
    return kn_momentum_create(out, params, lr, 0.95, NULL);
}

const kn_model_kind kn__cifar_bn = {
    .name = "cifar_bn",
    .summary = "three convolutions and two linear layers, with batch normalization",
    .size_bytes = sizeof(kn__cifar_sizes),
    .sizes = &(
        const kn__cifar_sizes){.side = 32, .classes = 10, .channels = {16, 32, 64}, .hidden = 100},
    .init = init,
    .is_pure = true,
    .predict = predict,
    .facts = &(const kn_model_facts){.n_params = 434506,
                                     .data = "CIFAR-10",
                                     .source = KN__FROM_CIFAR,
                                     .x = {{3, 32, 32}, 3},
                                     .n_classes = 10,
                                     .batch = 64,
                                     .n_made = 2560,
                                     .optimizer = "momentum",
                                     .lr = 0.1,
                                     .optim = optim}};
