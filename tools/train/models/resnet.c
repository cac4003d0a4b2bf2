/* Residual networks: He et al. 2016. Layers have the names of torchvision's, so that its weights
 * load by name. */
#include <stdio.h>

#include "model.h"

static void conv(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out, int64_t side,
                 int64_t stride) {
    const kn_layer_conv_options options = {
        .conv = {.stride = {stride, stride}, .padding = {side / 2, side / 2}},
        .weight = kn_init_he_normal(),
        .no_bias = 1};
    kn_layer_conv(parent, name, n_in, n_out, KN_SHAPE(side, side), &options);
}

static void norm(kn_layer *parent, const char *name, int64_t n, kn_layer_act_fn act) {
    kn_layer_batchnorm(parent, name, n, &(kn_layer_norm_options){.act = act});
}

/* act(norm(conv(x)) + around) */
static kn_tensor *pair(kn_layer *block, const char *conv_name, const char *norm_name, kn_tensor *x,
                       kn_tensor *around, kn_layer_act_fn act) {
    return kn_layer_forward_add(kn_layer_find(block, conv_name), kn_layer_find(block, norm_name), x,
                                around, act);
}

/* relu(body(x) + x), or + the shortcut of x where sizes differ. */
static kn_tensor *block_forward(void *ctx, kn_layer *block, kn_tensor *x) {
    (void)ctx;
    bool is_long = kn_layer_find(block, "conv3") != NULL;
    kn_layer *down = kn_layer_find(block, "downsample");
    kn_tensor *y = pair(block, "conv1", "bn1", x, NULL, NULL);
    if (is_long) y = pair(block, "conv2", "bn2", y, NULL, NULL);
    kn_tensor *around = down ? kn__layer_apply(block, "downsample", x) : x;
    return pair(block, is_long ? "conv3" : "conv2", is_long ? "bn3" : "bn2", y, around, kn_relu);
}

/* from: channels of x. Returns those of the result. */
static int64_t block_add(kn_layer *stage, const char *name, const kn__resnet_sizes *s, int64_t from,
                         int64_t width, int64_t stride) {
    int64_t to = s->bottleneck ? 4 * width : width;
    kn_layer *block = kn_layer_function(stage, name, block_forward, NULL);
    if (s->bottleneck) {
        conv(block, "conv1", from, width, 1, s->is_knet ? stride : 1);
        norm(block, "bn1", width, kn_relu);
        conv(block, "conv2", width, width, 3, s->is_knet ? 1 : stride);
        norm(block, "bn2", width, kn_relu);
        conv(block, "conv3", width, to, 1, 1);
        norm(block, "bn3", to, NULL);
    } else {
        conv(block, "conv1", from, width, 3, stride);
        norm(block, "bn1", width, kn_relu);
        conv(block, "conv2", width, to, 3, 1);
        norm(block, "bn2", to, NULL);
    }
    if (stride != 1 || from != to) {
        kn_layer *shortcut = kn_layer_sequential(block, "downsample");
        conv(shortcut, "0", from, to, 1, stride);
        norm(shortcut, "1", to, NULL);
    }
    return to;
}

static kn_status init(void *model, kn_layer *net) { /* x [B,3,224,224] */
    const kn__resnet_sizes *s = model;
    int64_t from = s->channels;
    char name[32];
    conv(net, "conv1", 3, s->channels, 7, 2); /* [B,64,112,112] */
    norm(net, "bn1", s->channels, kn_relu);
    const int64_t padding = s->is_knet ? 0 : 1; /* [B,64,55,55] or [B,64,56,56] */
    kn_layer_maxpool(net, "maxpool", KN_SHAPE(3, 3),
                     &(kn_pooling_options){.stride = {2, 2}, .padding = {padding, padding}});
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "layer%d", i + 1);
        kn_layer *stage = kn_layer_sequential(net, name);
        for (int64_t j = 0; j < s->blocks[i]; j++) {
            snprintf(name, sizeof name, "%d", (int)j);
            from = block_add(stage, name, s, from, s->channels << i, i && !j ? 2 : 1);
        }
    }
    kn_layer_global_avgpool(net, "avgpool"); /* [B,2048] */
    kn_layer_linear(net, "fc", from, s->classes, NULL);
    return kn_check();
}

static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    return kn_layer_forward(net, kn__images_fit(batch->x, 3, 0));
}

#define RESNET(name_, summary_, n_params_, published_, batch_, ...)                                \
    const kn_model_kind kn__##name_ = {                                                            \
        .name = #name_,                                                                            \
        .summary = summary_,                                                                       \
        .size_bytes = sizeof(kn__resnet_sizes),                                                    \
        .sizes = &(const kn__resnet_sizes){.classes = 1000, .channels = 64, __VA_ARGS__},          \
        .init = init,                                                                              \
        .is_pure = true,                                                                           \
        .recomputes = true,                                                                        \
        .predict = predict,                                                                        \
        .facts = &(const kn_model_facts){.n_params = n_params_,                                    \
                                         .data = "ImageNet, 224x224 pixels",                       \
                                         .source = KN__FROM_IMAGENET,                              \
                                         .published = published_,                                  \
                                         .x = {{3, 224, 224}, 3},                                  \
                                         .n_classes = 1000,                                        \
                                         .batch = batch_,                                          \
                                         .n_made = 40,                                             \
                                         .optimizer = "momentum",                                  \
                                         .lr = 0.1,                                                \
                                         .optim = kn__optim_momentum,                              \
                                         .path = ""}}

RESNET(resnet18, "18 layers of residual blocks", 11689512, NULL, 8, .blocks = {2, 2, 2, 2});
RESNET(resnet34, "34 layers of residual blocks", 21797672, NULL, 8, .blocks = {3, 4, 6, 3});
RESNET(resnet50, "50 layers of bottleneck blocks, as PyTorch's", 25557032,
       "features of 1,000 images on a K80: Knet 6.3 s, TensorFlow 6.5, PyTorch 7.7, MXNet 7.7, "
       "CNTK 8.5, Chainer 9.3",
       8, .blocks = {3, 4, 6, 3}, .bottleneck = true);
RESNET(resnet50_knet,
       "the same with strides in the first convolution of a block, and no padding of the pool, as "
       "Knet's",
       25557032, "as resnet50", 8, .blocks = {3, 4, 6, 3}, .bottleneck = true, .is_knet = true);
RESNET(resnet101, "101 layers of bottleneck blocks", 44549160, NULL, 8, .blocks = {3, 4, 23, 3},
       .bottleneck = true);
RESNET(resnet152, "152 layers of bottleneck blocks", 60192808, NULL, 8, .blocks = {3, 8, 36, 3},
       .bottleneck = true);
