/* Networks in the style of VGG: Simonyan and Zisserman 2014, and its small relative for CIFAR-10
 * of ilkarman/DeepLearningFrameworks. */
#include <stdio.h>

#include "dataset.h"
#include "model.h"

static void conv3(kn_layer *net, const char *name, int64_t n_in, int64_t n_out, kn_init weight,
                  kn_layer_act_fn act) {
    const kn_layer_conv_options options = {
        .conv = {.padding = {1, 1}}, .weight = weight, .act = act};
    kn_layer_conv(net, name, n_in, n_out, KN_SHAPE(3, 3), &options);
}

static void fc(kn_layer *net, const char *name, int64_t n_in, int64_t n_out, kn_layer_act_fn act) {
    kn_layer_linear(net, name, n_in, n_out, &(kn_layer_linear_options){.act = act});
}

/* --- CIFAR-10: relu after the pool, which has a quarter of the elements --- */

static kn_status cifar_init(void *model, kn_layer *net) { /* x [B,3,S,S] */
    const kn__vgg_sizes *s = model;
    int64_t a = s->channels, b = 2 * a, left = s->side / 4;
    conv3(net, "conv1", 3, a, kn_init_xavier(), kn_relu);
    conv3(net, "conv2", a, a, kn_init_xavier(), NULL);
    kn_layer_maxpool(net, "pool1", KN_SHAPE(2, 2), NULL); /* [B,50,16,16] */
    kn_layer_act(net, "relu1", kn_relu);
    kn_layer_dropout(net, "drop1", 0.25);
    conv3(net, "conv3", a, b, kn_init_xavier(), kn_relu);
    conv3(net, "conv4", b, b, kn_init_xavier(), NULL);
    kn_layer_maxpool(net, "pool2", KN_SHAPE(2, 2), NULL); /* [B,100,8,8] */
    kn_layer_act(net, "relu2", kn_relu);
    kn_layer_dropout(net, "drop2", 0.25);
    kn_layer_flatten(net, "flatten");
    fc(net, "fc1", b * left * left, s->hidden, kn_relu);
    kn_layer_dropout(net, "drop3", 0.5);
    fc(net, "fc2", s->hidden, s->classes, NULL);
    return kn_check();
}

static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__vgg_sizes *s = model;
    return kn_layer_forward(net, kn__images_fit(batch->x, 3, s->side));
}

const kn_model_kind kn__vgg_cifar = {
    .name = "vgg_cifar",
    .summary = "four convolutions and two linear layers, with dropout",
    .size_bytes = sizeof(kn__vgg_sizes),
    .sizes = &(const kn__vgg_sizes){.side = 32, .classes = 10, .channels = 50, .hidden = 512},
    .init = cifar_init,
    .is_pure = true,
    .predict = predict,
    .facts = &(const kn_model_facts){
        .n_params = 3441592,
        .data = "CIFAR-10",
        .source = KN__FROM_CIFAR,
        .published = "10 epochs on a K80: MXNet 145 s, Knet 159, Chainer 162, PyTorch 169, "
                     "TensorFlow 173; accuracy 76 to 79 %",
        .x = {{3, 32, 32}, 3},
        .n_classes = 10,
        .batch = 64,
        .n_made = 1280,
        .optimizer = "momentum",
        .lr = 0.01,
        .optim = kn__optim_momentum}};

/* --- VGG-16 --- */

static kn_status vgg16_init(void *model, kn_layer *net) { /* x [B,3,224,224] */
    const kn__vgg_sizes *s = model;
    static const int convs[5] = {2, 2, 3, 3, 3}, widths[5] = {1, 2, 4, 8, 8};
    kn_layer *features = kn_layer_sequential(net, "features");
    int64_t from = 3, left = s->side / 32;
    char name[32];
    for (int stage = 0; stage < 5; stage++) {
        for (int i = 0; i < convs[stage]; i++) {
            snprintf(name, sizeof name, "conv%d_%d", stage + 1, i + 1);
            conv3(features, name, from, s->channels * widths[stage], kn_init_he(), kn_relu);
            from = s->channels * widths[stage];
        }
        snprintf(name, sizeof name, "pool%d", stage + 1);
        kn_layer_maxpool(features, name, KN_SHAPE(2, 2), NULL);
    }
    kn_layer_flatten(net, "flatten");
    fc(net, "fc1", from * left * left, s->hidden, kn_relu);
    kn_layer_dropout(net, "drop1", 0.5);
    fc(net, "fc2", s->hidden, s->hidden, kn_relu);
    kn_layer_dropout(net, "drop2", 0.5);
    fc(net, "fc3", s->hidden, s->classes, NULL);
    return kn_check();
}

const kn_model_kind kn__vgg16 = {
    .name = "vgg16",
    .summary = "thirteen convolutions and three linear layers",
    .size_bytes = sizeof(kn__vgg_sizes),
    .sizes = &(const kn__vgg_sizes){.side = 224, .classes = 1000, .channels = 64, .hidden = 4096},
    .init = vgg16_init,
    .is_pure = true,
    .predict = predict,
    .facts = &(const kn_model_facts){.n_params = 138357544,
                                     .data = "ImageNet, 224x224 pixels",
                                     .source = KN__FROM_IMAGENET,
                                     .x = {{3, 224, 224}, 3},
                                     .n_classes = 1000,
                                     .batch = 4,
                                     .n_made = 20,
                                     .optimizer = "momentum",
                                     .lr = 0.01,
                                     .optim = kn__optim_momentum,
                                     .path = ""}};
