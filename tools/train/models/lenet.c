#include "model.h"

typedef struct lenet {
    kn_model base;
    kn_tensor *conv1_w, *conv1_b, *conv2_w, *conv2_b, *fc1_w, *fc1_b, *fc2_w, *fc2_b;
} lenet;

static kn_status lenet_init(kn_model *model, kn_params *p) {
    lenet *m = (lenet *)model;
    m->conv1_w = kn_param(p, KN_SHAPE(20, 1, 5, 5), kn_init_xavier(), "conv1.w");
    m->conv1_b = kn_param(p, KN_SHAPE(20), (kn_init){0}, "conv1.b");
    m->conv2_w = kn_param(p, KN_SHAPE(50, 20, 5, 5), kn_init_xavier(), "conv2.w");
    m->conv2_b = kn_param(p, KN_SHAPE(50), (kn_init){0}, "conv2.b");
    m->fc1_w = kn_param(p, KN_SHAPE(500, 800), kn_init_xavier(), "fc1.w");
    m->fc1_b = kn_param(p, KN_SHAPE(500), (kn_init){0}, "fc1.b");
    m->fc2_w = kn_param(p, KN_SHAPE(10, 500), kn_init_xavier(), "fc2.w");
    m->fc2_b = kn_param(p, KN_SHAPE(10), (kn_init){0}, "fc2.b");
    return kn_check();
}

/* Pooling after relu, as the original; the other order gives the same values. */
static kn_tensor *conv_layer(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    KN_FRAME();
    return kn_keep(kn_maxpool(kn_relu(kn_conv(x, w, b, NULL)), KN_SHAPE(2, 2), NULL));
}

static kn_tensor *fc_layer(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    KN_FRAME();
    return kn_keep(kn_relu(kn_linear(x, w, b)));
}

static kn_tensor *lenet_logits(const kn_model *model, kn_tensor *x) { /* x [B,1,28,28] */
    const lenet *m = (const lenet *)model;
    {
        KN_SCOPE("conv1");
        x = conv_layer(x, m->conv1_w, m->conv1_b); /* [B,20,12,12] */
    }
    {
        KN_SCOPE("conv2");
        x = conv_layer(x, m->conv2_w, m->conv2_b); /* [B,50,4,4] */
    }
    {
        KN_SCOPE("fc1");
        x = fc_layer(kn_flatten(x), m->fc1_w, m->fc1_b); /* [B,500] */
    }
    KN_SCOPE("fc2");
    return kn_linear(x, m->fc2_w, m->fc2_b); /* [B,10] */
}

const kn__model_kind kn__lenet = {"lenet", sizeof(lenet), lenet_init, lenet_logits};
