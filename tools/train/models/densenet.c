/* DenseNet-121 for chest X-rays: Huang et al. 2017, Rajpurkar et al. 2017. Layers have the names
 * of torchvision's. */
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

static void norm(kn_layer *parent, const char *name, int64_t n) {
    kn_layer_batchnorm(parent, name, n, &(kn_layer_norm_options){.act = kn_relu});
}

/* x [B,C,H,W] → [B,C + n·growth,H,W] */
static int64_t block_add(kn_layer *parent, int index, int64_t from, int64_t n, int64_t growth) {
    char name[32];
    snprintf(name, sizeof name, "denseblock%d", index);
    kn_layer *block = kn_layer_sequential(parent, name);
    for (int64_t i = 0; i < n; i++, from += growth) {
        snprintf(name, sizeof name, "denselayer%d", (int)i + 1);
        kn_layer *layer = kn_layer_dense(block, name);
        norm(layer, "norm1", from);
        conv(layer, "conv1", from, 4 * growth, 1, 1);
        norm(layer, "norm2", 4 * growth);
        conv(layer, "conv2", 4 * growth, growth, 3, 1);
    }
    return from;
}

/* x [B,C,H,W] → [B,C/2,H/2,W/2] */
static int64_t transition_add(kn_layer *parent, int index, int64_t from) {
    char name[32];
    snprintf(name, sizeof name, "transition%d", index);
    kn_layer *t = kn_layer_sequential(parent, name);
    norm(t, "norm", from);
    conv(t, "conv", from, from / 2, 1, 1);
    kn_layer_avgpool(t, "pool", KN_SHAPE(2, 2), NULL);
    return from / 2;
}

static kn_status init(void *model, kn_layer *net) { /* x [B,3,224,224] */
    const kn__densenet_sizes *s = model;
    kn_layer *f = kn_layer_sequential(net, "features");
    conv(f, "conv0", 3, s->channels, 7, 2);
    norm(f, "norm0", s->channels);
    kn_layer_maxpool(f, "pool0", KN_SHAPE(3, 3),
                     &(kn_pooling_options){.stride = {2, 2}, .padding = {1, 1}});
    int64_t n = s->channels;
    for (int i = 0; i < 4; i++) {
        n = block_add(f, i + 1, n, s->blocks[i], s->growth);
        if (i < 3) n = transition_add(f, i + 1, n);
    }
    norm(f, "norm5", n);
    kn_layer_global_avgpool(net, "pool"); /* [B,1024] */
    kn_layer_linear(net, "classifier", n, s->classes, NULL);
    return kn_check();
}

/* The logits of findings that exclude each other in no way. The five halvings leave a pixel of 29.
 */
static kn_tensor *predict(void *model, kn_layer *net, const kn_batch *batch) {
    enum { SIDE_MIN = 29 };
    (void)model;
    const kn_shape s = kn_tensor_shape(batch->x);
    if (s.n_dims == 4 && (s.dim[2] < SIDE_MIN || s.dim[3] < SIDE_MIN))
        return kn__batch_fail("densenet121", "x", batch->x,
                              "[B,C,H,W] with H and W of 29 or more, 224 in the record");
    return kn_layer_forward(net, kn__images_fit(batch->x, 3, 0));
}

static kn_tensor *loss(void *model, kn_layer *net, const kn_batch *batch) {
    if (!kn__batch_fits("densenet121", "y", batch->y, "marks [B,findings]")) return NULL;
    return kn_bce_logits(predict(model, net, batch), batch->y, KN_REDUCE_MEAN);
}

const kn_model_kind kn__densenet121 = {
    .name = "densenet121",
    .summary = "121 layers of dense blocks, fourteen findings that may occur together",
    .size_bytes = sizeof(kn__densenet_sizes),
    .sizes =
        &(const kn__densenet_sizes){
            .classes = 14, .growth = 32, .channels = 64, .blocks = {6, 12, 24, 16}},
    .init = init,
    .is_pure = true,
    .predict = predict,
    .loss = loss,
    .facts = &(const kn_model_facts){
        .n_params = 6968206,
        .data = "ChestX-ray14, 224x224 pixels, 14 findings",
        .published = "5 epochs on a V100: PyTorch 27 min, Gluon 29, Chainer 29, TensorFlow 33, "
                     "Keras 38; on four: 8 to 22",
        .x = {{3, 224, 224}, 3},
        .n_classes = 14,
        .batch = 64,
        .batch_bench = 8, /* 64 take 8 GB */
        .n_made = 128,
        .optimizer = "adam",
        .lr = 1e-4,
        .optim = kn__optim_adam,
        .made = kn__made_marks}};

/* torchvision's, so that its weights load. */
const kn_model_kind kn__densenet121_imagenet = {
    .name = "densenet121_imagenet",
    .summary = "the same for the classes of ImageNet, as torchvision's",
    .size_bytes = sizeof(kn__densenet_sizes),
    .sizes =
        &(const kn__densenet_sizes){
            .classes = 1000, .growth = 32, .channels = 64, .blocks = {6, 12, 24, 16}},
    .init = init,
    .is_pure = true,
    .predict = predict,
    .facts = &(const kn_model_facts){.n_params = 7978856,
                                     .data = "ImageNet, 224x224 pixels",
                                     .source = KN__FROM_IMAGENET,
                                     .x = {{3, 224, 224}, 3},
                                     .n_classes = 1000,
                                     .batch = 8,
                                     .n_made = 40,
                                     .optimizer = "momentum",
                                     .lr = 0.1,
                                     .optim = kn__optim_momentum,
                                     .path = ""}};
