#include "model.h"

typedef struct mlp {
    kn_model base;
    kn_tensor *fc1_w, *fc1_b, *fc2_w, *fc2_b;
} mlp;

static kn_status mlp_init(kn_model *model, kn_params *p) {
    mlp *m = (mlp *)model;
    m->fc1_w = kn_param(p, KN_SHAPE(64, 784), kn_init_xavier(), "fc1.w");
    m->fc1_b = kn_param(p, KN_SHAPE(64), (kn_init){0}, "fc1.b");
    m->fc2_w = kn_param(p, KN_SHAPE(10, 64), kn_init_xavier(), "fc2.w");
    m->fc2_b = kn_param(p, KN_SHAPE(10), (kn_init){0}, "fc2.b");
    return kn_check();
}

static kn_tensor *hidden_layer(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    KN_SCOPE("fc1");
    KN_FRAME();
    return kn_keep(kn_relu(kn_linear(x, w, b)));
}

static kn_tensor *mlp_logits(const kn_model *model, kn_tensor *x) { /* x [B,784] or [B,1,28,28] */
    const mlp *m = (const mlp *)model;
    x = hidden_layer(kn_flatten(x), m->fc1_w, m->fc1_b); /* [B,64] */
    KN_SCOPE("fc2");
    return kn_linear(x, m->fc2_w, m->fc2_b); /* [B,10] */
}

const kn__model_kind kn__mlp = {"mlp", sizeof(mlp), mlp_init, mlp_logits};
