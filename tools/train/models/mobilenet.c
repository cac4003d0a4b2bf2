/* MobileNet v2: Sandler et al. 2018. Layers have the names of torchvision's. */
#include <stdio.h>

#include "model.h"

/* Layers "0", convolution, and "1", normalization, in `unit`. */
static void unit_add(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out, int64_t side,
                     int64_t stride, int64_t groups) {
    const kn_layer_conv_options options = {
        .conv = {.stride = {stride, stride}, .padding = {side / 2, side / 2}, .groups = groups},
        .weight = kn_init_he_normal(),
        .no_bias = 1};
    kn_layer *unit = kn_layer_sequential(parent, name);
    kn_layer_conv(unit, "0", n_in, n_out, KN_SHAPE(side, side), &options);
    kn_layer_batchnorm(unit, "1", n_out, &(kn_layer_norm_options){.act = kn_relu6});
}

/* Wider by `expand`, filtered channel by channel, narrow again; x is added where sizes allow. */
static void inverted_add(kn_layer *features, const char *name, int64_t n_in, int64_t n_out,
                         int64_t stride, int64_t expand) {
    bool adds = stride == 1 && n_in == n_out;
    kn_layer *block =
        adds ? kn_layer_residual(features, name) : kn_layer_sequential(features, name);
    kn_layer *body = kn_layer_sequential(block, "conv");
    int64_t wide = n_in * expand;
    int at = 0;
    char part[16];
    if (expand != 1) unit_add(body, "0", n_in, wide, 1, 1, 1), at++;
    snprintf(part, sizeof part, "%d", at++);
    unit_add(body, part, wide, wide, 3, stride, wide);
    snprintf(part, sizeof part, "%d", at++);
    kn_layer_conv(body, part, wide, n_out, KN_SHAPE(1, 1),
                  &(kn_layer_conv_options){.weight = kn_init_he_normal(), .no_bias = 1});
    snprintf(part, sizeof part, "%d", at);
    kn_layer_batchnorm(body, part, n_out, NULL);
}

static kn_status init(void *model, kn_layer *net) { /* x [B,3,224,224] */
    const kn__mobilenet_sizes *s = model;
    static const int stage[7][4] = {/* expand, channels, blocks, stride */
                                    {1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    kn_layer *f = kn_layer_sequential(net, "features");
    int64_t from = 32 / s->divisor;
    int at = 0;
    char name[32];
    unit_add(f, "0", 3, from, 3, 2, 1);
    for (int i = 0; i < 7; i++) {
        for (int j = 0; j < stage[i][2]; j++, from = stage[i][1] / s->divisor) {
            snprintf(name, sizeof name, "%d", ++at);
            inverted_add(f, name, from, stage[i][1] / s->divisor, j ? 1 : stage[i][3], stage[i][0]);
        }
    }
    unit_add(f, "18", from, s->last, 1, 1, 1);
    kn_layer_global_avgpool(net, "pool"); /* [B,1280] */
    kn_layer *classifier = kn_layer_sequential(net, "classifier");
    kn_layer_dropout(classifier, "0", 0.2);
    kn_layer_linear(classifier, "1", s->last, s->classes, NULL);
    return kn_check();
}

static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    (void)model;
    return kn_layer_forward(net, kn__images_fit(batch->x, 3, 0));
}

const kn_model_kind kn__mobilenet_v2 = {
    .name = "mobilenet_v2",
    .summary = "inverted residual blocks of convolutions channel by channel",
    .size_bytes = sizeof(kn__mobilenet_sizes),
    .sizes = &(const kn__mobilenet_sizes){.classes = 1000, .last = 1280, .divisor = 1},
    .init = init,
    .is_pure = true,
    .recomputes = true,
    .predict = predict,
    .facts = &(const kn_model_facts){.n_params = 3504872,
                                     .data = "ImageNet, 224x224 pixels",
                                     .source = KN__FROM_IMAGENET,
                                     .x = {{3, 224, 224}, 3},
                                     .n_classes = 1000,
                                     .batch = 8,
                                     .n_made = 40,
                                     .optimizer = "momentum",
                                     .lr = 0.05,
                                     .optim = kn__optim_momentum,
                                     .path = ""}};
