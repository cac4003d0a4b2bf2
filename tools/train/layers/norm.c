/* Layers of normalization. */
#include "layer.h"

typedef struct norm {
    kn_layer base;
    kn_tensor *weight, *bias; /* KN_NONE where it has none */
    kn_layer_norm_options options;
    const kn_batch_ranks *ranks; /* kn_layer_sync */
    int64_t groups;
    int n_axes;
} norm;

/* The layer with its weight and, where it has one, its bias. */
static norm *norm_add(kn_layer *parent, const char *name, const kn__layer_kind *kind,
                      kn_shape shape, bool has_bias, const kn_layer_norm_options *options) {
    kn_layer_norm_options o = options ? *options : (kn_layer_norm_options){0};
    char text[128];
    if (kn_pending() || !kn__layer_reserved(kind, name, o.reserved)) return NULL;
    bool fits = shape.n_dims > 0 && o.eps >= 0 && o.momentum >= 0 && o.momentum <= 1;
    for (int i = 0; i < shape.n_dims; i++) fits = fits && shape.dim[i] > 0;
    if (!fits)
        return kn__layer_fail(kind, name, KN_ERR_INVALID,
                              "shape %s, eps %g, momentum %g: sizes are 1 or more, eps is not "
                              "negative, momentum is in [0, 1]",
                              kn_shape_text(text, sizeof text, shape), o.eps, o.momentum);
    norm *l = kn__layer_add(parent, name, kind);
    if (!l) return NULL;
    l->options = o;
    if (l->options.eps == 0) l->options.eps = 1e-5;
    l->n_axes = shape.n_dims;
    l->bias = KN_NONE;
    l->weight = kn__layer_param_add(&l->base, "weight", shape, (kn_init){KN_INIT_CONSTANT, 1, 0});
    if (has_bias) l->bias = kn__layer_param_add(&l->base, "bias", shape, (kn_init){0});
    return l->weight && l->bias ? l : kn__layer_undo(&l->base);
}

double kn__layer_norm_eps(const kn_layer *layer) { return ((const norm *)layer)->options.eps; }
kn_layer_act_fn kn__layer_norm_act(const kn_layer *layer) {
    return ((const norm *)layer)->options.act;
}

kn_tensor *kn__layer_norm_run(kn_layer *layer, kn_tensor *x) {
    const norm *l = (norm *)layer;
    const kn_batchnorm_options options = {.training = kn_layer_is_training(layer),
                                          .momentum = l->options.momentum,
                                          .eps = l->options.eps,
                                          .ranks = l->ranks};
    bool reads = !options.training || !kn__layer_again();
    kn_tensor *mean = reads ? layer->state[0].w : KN_NONE;
    kn_tensor *var = reads ? layer->state[1].w : KN_NONE;
    return kn__layer_activated(l->options.act,
                               kn_batchnorm(x, mean, var, l->weight, l->bias, &options));
}

const kn__layer_kind kn__layer_batchnorm_kind = {"kn_layer_batchnorm", sizeof(norm),
                                                 kn__layer_norm_run, .is_group = false};
kn_layer *kn_layer_batchnorm(kn_layer *parent, const char *name, int64_t n,
                             const kn_layer_norm_options *options) {
    norm *l = norm_add(parent, name, &kn__layer_batchnorm_kind, KN_SHAPE(n), true, options);
    if (!l) return NULL;
    bool is_whole = kn__layer_state_add(&l->base, "running_mean", KN_SHAPE(n), 0) &&
                    kn__layer_state_add(&l->base, "running_var", KN_SHAPE(n), 1);
    return is_whole ? &l->base : kn__layer_undo(&l->base);
}

typedef struct sync {
    const kn_batch_ranks *ranks;
    int n;
} sync;

static bool norm_sync(void *ctx, kn_layer *layer) {
    sync *s = ctx;
    if (layer->kind != &kn__layer_batchnorm_kind) return true;
    ((norm *)layer)->ranks = s->ranks;
    s->n++;
    return true;
}

int kn_layer_sync(kn_layer *layer, const kn_batch_ranks *ranks) {
    sync s = {ranks, 0};
    if (layer) (void)kn_layer_walk(layer, norm_sync, &s);
    return s.n;
}

bool kn__layer_is_synced(const kn_layer *layer) {
    return layer->kind == &kn__layer_batchnorm_kind && ((const norm *)layer)->ranks;
}

static kn_tensor *layer_forward(kn_layer *layer, kn_tensor *x) {
    const norm *l = (norm *)layer;
    return kn__layer_activated(l->options.act,
                               kn_layernorm(x, l->weight, l->bias, l->n_axes, l->options.eps));
}
static const kn__layer_kind layer_kind = {"kn_layer_layernorm", sizeof(norm), layer_forward,
                                          .is_group = false};
kn_layer *kn_layer_layernorm(kn_layer *parent, const char *name, kn_shape shape,
                             const kn_layer_norm_options *options) {
    norm *l = norm_add(parent, name, &layer_kind, shape, true, options);
    return l ? &l->base : NULL;
}

static kn_tensor *rms_forward(kn_layer *layer, kn_tensor *x) {
    const norm *l = (norm *)layer;
    return kn__layer_activated(l->options.act, kn_rmsnorm(x, l->weight, l->n_axes, l->options.eps));
}
static const kn__layer_kind rms_kind = {"kn_layer_rmsnorm", sizeof(norm), rms_forward,
                                        .is_group = false};
kn_layer *kn_layer_rmsnorm(kn_layer *parent, const char *name, kn_shape shape,
                           const kn_layer_norm_options *options) {
    norm *l = norm_add(parent, name, &rms_kind, shape, false, options);
    return l ? &l->base : NULL;
}

static kn_tensor *group_forward(kn_layer *layer, kn_tensor *x) {
    const norm *l = (norm *)layer;
    return kn__layer_activated(l->options.act,
                               kn_groupnorm(x, l->weight, l->bias, l->groups, l->options.eps));
}
static const kn__layer_kind group_kind = {"kn_layer_groupnorm", sizeof(norm), group_forward,
                                          .is_group = false};
kn_layer *kn_layer_groupnorm(kn_layer *parent, const char *name, int64_t n, int64_t groups,
                             const kn_layer_norm_options *options) {
    if (!kn_pending() && (groups < 1 || n % groups))
        return kn__layer_fail(&group_kind, name, KN_ERR_SHAPE,
                              "%lld groups don't divide %lld channels", (long long)groups,
                              (long long)n);
    norm *l = norm_add(parent, name, &group_kind, KN_SHAPE(n), true, options);
    if (!l) return NULL;
    l->groups = groups;
    return &l->base;
}
