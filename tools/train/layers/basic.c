/* Layers of one op, with their parameters and an activation. */
#include "layer.h"

static kn_init or_else(kn_init init, kn_init otherwise) { return init.kind ? init : otherwise; }

/* The activation that the op itself can do: *act is then NULL. */
static kn_act act_inside(kn_layer_act_fn *act) {
    static const struct {
        kn_layer_act_fn fn;
        kn_act act;
    } known[] = {{(kn_relu), KN_ACT_RELU},          {(kn_gelu), KN_ACT_GELU},
                 {(kn_silu), KN_ACT_SILU},          {(kn_gelu_tanh), KN_ACT_GELU_TANH},
                 {(kn_sigm), KN_ACT_SIGM},          {(kn_tanh), KN_ACT_TANH},
                 {(kn_hardswish), KN_ACT_HARDSWISH}};
    for (size_t i = 0; *act && i < sizeof known / sizeof *known; i++) {
        if (*act != known[i].fn) continue;
        *act = NULL;
        return known[i].act;
    }
    return KN_ACT_NONE;
}

/* --- linear --- */

typedef struct linear {
    kn_layer base;
    kn_tensor *weight, *bias;
    kn_layer_act_fn act;
    kn_act inside;
} linear;

/* What the folded normalization applies. */
static kn_layer_act_fn act_after(const kn_layer *layer) {
    return kn__layer_norm_act(layer->inside);
}

static kn_tensor *linear_forward(kn_layer *layer, kn_tensor *x) {
    const linear *l = (linear *)layer;
    return kn__layer_activated(l->act, kn_linear_act(x, l->weight, l->bias, l->inside));
}
/* A batch norm is along axis 1, this layer the last. */
static kn_tensor *linear_folded(kn_layer *layer, kn_tensor *x) {
    const linear *l = (linear *)layer;
    if (kn_tensor_shape(x).n_dims != 2)
        return kn__layer_norm_run(layer->inside, kn_linear_act(x, l->weight, l->bias, KN_ACT_NONE));
    kn_layer_act_fn act = act_after(layer);
    kn_act inside = act_inside(&act);
    return kn__layer_activated(act, kn_linear_act(x, layer->frozen[0], layer->frozen[1], inside));
}
/* act(frozen(x) + around): one call where rows are summed, and nothing broadcasts. */
static kn_tensor *linear_sum(kn_layer *layer, kn_tensor *x, kn_tensor *around,
                             kn_layer_act_fn act) {
    kn_shape in = kn_tensor_shape(x), to = kn_tensor_shape(around);
    bool is_like_result = in.n_dims == 2 && to.n_dims == 2 && to.dim[0] == in.dim[0] &&
                          to.dim[1] == kn_tensor_numel(layer->frozen[1]);
    if (!is_like_result) return kn__layer_activated(act, kn_add(linear_folded(layer, x), around));
    kn_act inside = act_inside(&act);
    kn_tensor *y = kn_linear_add(x, layer->frozen[0], layer->frozen[1], around, inside);
    return kn__layer_activated(act, y);
}
static bool linear_takes(const kn_layer *layer, kn_tensor *x, kn_tensor *around) {
    const linear *l = (const linear *)layer;
    kn_shape in = kn_tensor_shape(x), to = kn_tensor_shape(around);
    bool fits = !l->act && !l->inside && in.n_dims == to.n_dims && in.n_dims > 0;
    for (int i = 0; fits && i < in.n_dims - 1; i++) fits = in.dim[i] == to.dim[i];
    return fits && to.dim[in.n_dims - 1] == kn_tensor_shape(l->weight).dim[0];
}
static kn_tensor *linear_plus(kn_layer *layer, kn_tensor *x, const void *around) {
    const linear *l = (const linear *)layer;
    return kn_linear_add(x, l->weight, l->bias, (kn_tensor *)(uintptr_t)around, KN_ACT_NONE);
}
static bool linear_is_bare(const kn_layer *layer) {
    const linear *l = (const linear *)layer;
    return !l->act && !l->inside;
}
static int64_t linear_n_out(const kn_layer *layer) {
    return kn_tensor_shape(((const linear *)layer)->weight).dim[0];
}
static const kn__layer_kind linear_kind = {
    "kn_layer_linear",         sizeof(linear),        linear_forward,          .out_axis = 1,
    .is_bare = linear_is_bare, .n_out = linear_n_out, .folded = linear_folded, .sum = linear_sum,
    .takes = linear_takes,     .plus = linear_plus};

/* "weight" and, unless no_bias, "bias" [n_out]. False: the error is pending. */
static bool weights_add(kn_tensor **weight, kn_tensor **bias, kn_layer *layer, kn_shape shape,
                        int64_t n_out, kn_init weight_init, kn_init bias_init, bool no_bias) {
    *bias = KN_NONE;
    *weight = kn__layer_param_add(layer, "weight", shape, or_else(weight_init, kn_init_xavier()));
    if (!*weight || no_bias) return *weight != NULL;
    *bias = kn__layer_param_add(layer, "bias", KN_SHAPE(n_out), bias_init);
    return *bias != NULL;
}

static bool sizes_fit(const kn__layer_kind *kind, const char *name, int64_t n_in, int64_t n_out) {
    if (n_in > 0 && n_out > 0) return true;
    kn__layer_fail(kind, name, KN_ERR_SHAPE, "%lld to %lld: both must be 1 or more",
                   (long long)n_in, (long long)n_out);
    return false;
}

static bool options_fit(const kn__layer_kind *kind, const char *name,
                        const kn_layer_linear_options *o, uint64_t sparse_max) {
    const uint64_t reserved[4] = {o->reserved[0], o->reserved[1], o->reserved[2]};
    if (!kn__layer_reserved(kind, name, reserved)) return false;
    if (o->sparse <= sparse_max) return true;
    kn__layer_fail(kind, name, KN_ERR_INVALID, "sparse is %llu; the limit is %llu",
                   (unsigned long long)o->sparse, (unsigned long long)sparse_max);
    return false;
}

kn_layer *kn_layer_linear(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out,
                          const kn_layer_linear_options *options) {
    kn_layer_linear_options o = options ? *options : (kn_layer_linear_options){0};
    if (kn_pending() || !options_fit(&linear_kind, name, &o, 0) ||
        !sizes_fit(&linear_kind, name, n_in, n_out))
        return NULL;
    linear *l = kn__layer_add(parent, name, &linear_kind);
    if (!l) return NULL;
    l->act = o.act;
    l->inside = act_inside(&l->act);
    return weights_add(&l->weight, &l->bias, &l->base, KN_SHAPE(n_out, n_in), n_out, o.weight,
                       o.bias, o.no_bias)
               ? &l->base
               : kn__layer_undo(&l->base);
}

/* --- convolution --- */

typedef struct conv {
    kn_layer base;
    kn_tensor *weight, *bias;
    kn_layer_act_fn act;
    kn_conv_options options;
} conv;

/* Whether t is like the result for x: it isn't where the sum broadcasts. */
static bool is_like_result(const conv *l, kn_tensor *x, kn_tensor *t) {
    const kn_conv_options *o = &l->options;
    kn_shape in = kn_tensor_shape(x), w = kn_tensor_shape(l->weight), got = kn_tensor_shape(t);
    if (got.n_dims != in.n_dims || in.n_dims != w.n_dims) return false;
    bool is_like = got.dim[0] == in.dim[0] && got.dim[1] == w.dim[0];
    for (int i = 0; i < in.n_dims - 2; i++) {
        int64_t stride = o->stride[i] ? o->stride[i] : 1;
        int64_t dilation = o->dilation[i] ? o->dilation[i] : 1;
        int64_t room = in.dim[2 + i] + 2 * o->padding[i] + o->padding_extra[i] -
                       dilation * (w.dim[2 + i] - 1) - 1;
        is_like = is_like && got.dim[2 + i] == room / stride + 1;
    }
    return is_like;
}

/* act(frozen(x) + around) */
static kn_tensor *conv_sum(kn_layer *layer, kn_tensor *x, kn_tensor *around, kn_layer_act_fn act) {
    kn_conv_options options = ((const conv *)layer)->options;
    if (around != KN_NONE && !is_like_result((const conv *)layer, x, around)) {
        kn_tensor *y = kn_conv(x, layer->frozen[0], layer->frozen[1], &options);
        return kn__layer_activated(act, kn_add(y, around));
    }
    options.act = act_inside(&act);
    kn_tensor *y = kn_conv_add(x, layer->frozen[0], layer->frozen[1], around, &options);
    return kn__layer_activated(act, y);
}

static kn_tensor *conv_forward(kn_layer *layer, kn_tensor *x) {
    const conv *l = (conv *)layer;
    return kn__layer_activated(l->act, kn_conv(x, l->weight, l->bias, &l->options));
}
static kn_tensor *conv_folded(kn_layer *layer, kn_tensor *x) {
    return conv_sum(layer, x, KN_NONE, act_after(layer));
}
static bool conv_is_bare(const kn_layer *layer) {
    const conv *l = (const conv *)layer;
    return !l->act && !l->options.act;
}
static int64_t conv_n_out(const kn_layer *layer) {
    return kn_tensor_shape(((const conv *)layer)->weight).dim[0];
}
static const kn__layer_kind conv_kind = {
    "kn_layer_conv",         sizeof(conv),        conv_forward,          .out_axis = 1,
    .is_bare = conv_is_bare, .n_out = conv_n_out, .folded = conv_folded, .sum = conv_sum};

static bool window_fits(const kn__layer_kind *kind, const char *name, kn_shape window) {
    bool fits = window.n_dims >= 1 && window.n_dims <= 3;
    for (int i = 0; fits && i < window.n_dims; i++) fits = window.dim[i] >= 1;
    char text[128];
    if (!fits)
        kn__layer_fail(kind, name, KN_ERR_SHAPE,
                       "the window is %s; it has 1 to 3 dimensions, each 1 or more",
                       kn_shape_text(text, sizeof text, window));
    return fits;
}

static kn_tensor *deconv_forward(kn_layer *layer, kn_tensor *x) {
    const conv *l = (conv *)layer;
    return kn__layer_activated(l->act, kn_deconv(x, l->weight, l->bias, &l->options));
}
static kn_tensor *deconv_folded(kn_layer *layer, kn_tensor *x) {
    const conv *l = (conv *)layer;
    return kn__layer_activated(act_after(layer),
                               kn_deconv(x, layer->frozen[0], layer->frozen[1], &l->options));
}
/* In groups the weight's second axis is that of one group: nothing folds. */
static int64_t deconv_n_out(const kn_layer *layer) {
    const conv *l = (const conv *)layer;
    return l->options.groups > 1 ? -1 : kn_tensor_shape(l->weight).dim[1];
}
static const kn__layer_kind deconv_kind = {
    "kn_layer_deconv",       sizeof(conv),          deconv_forward,         .out_axis = 2,
    .is_bare = conv_is_bare, .n_out = deconv_n_out, .folded = deconv_folded};

static kn_layer *conv_add(const kn__layer_kind *kind, kn_layer *parent, const char *name,
                          int64_t n_in, int64_t n_out, kn_shape window,
                          const kn_layer_conv_options *options) {
    kn_layer_conv_options o = options ? *options : (kn_layer_conv_options){0};
    if (kn_pending() || !kn__layer_reserved(kind, name, o.reserved) ||
        !sizes_fit(kind, name, n_in, n_out))
        return NULL;
    int64_t groups = o.conv.groups ? o.conv.groups : 1;
    if (groups < 1 || n_in % groups || n_out % groups)
        return kn__layer_fail(kind, name, KN_ERR_SHAPE,
                              "%lld groups don't divide %lld and %lld channels", (long long)groups,
                              (long long)n_in, (long long)n_out);
    if (!window_fits(kind, name, window)) return NULL;
    bool is_back = kind == &deconv_kind;
    kn_shape shape = is_back ? KN_SHAPE(n_in, n_out / groups) : KN_SHAPE(n_out, n_in / groups);
    for (int i = 0; i < window.n_dims; i++) shape.dim[shape.n_dims++] = window.dim[i];
    conv *l = kn__layer_add(parent, name, kind);
    if (!l) return NULL;
    l->act = o.act;
    l->options = o.conv;
    if (!o.conv.act && !is_back) l->options.act = act_inside(&l->act);
    return weights_add(&l->weight, &l->bias, &l->base, shape, n_out, o.weight, o.bias, o.no_bias)
               ? &l->base
               : kn__layer_undo(&l->base);
}

kn_layer *kn_layer_conv(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out,
                        kn_shape window, const kn_layer_conv_options *options) {
    return conv_add(&conv_kind, parent, name, n_in, n_out, window, options);
}

kn_layer *kn_layer_deconv(kn_layer *parent, const char *name, int64_t n_in, int64_t n_out,
                          kn_shape window, const kn_layer_conv_options *options) {
    return conv_add(&deconv_kind, parent, name, n_in, n_out, window, options);
}

/* --- embedding --- */

typedef struct embedding {
    kn_layer base;
    kn_tensor *weight;
    kn_layer_act_fn act;
} embedding;

static kn_tensor *embedding_forward(kn_layer *layer, kn_tensor *x) {
    const embedding *l = (embedding *)layer;
    return kn__layer_activated(l->act, kn_embedding(l->weight, x));
}
static const kn__layer_kind embedding_kind = {"kn_layer_embedding", sizeof(embedding),
                                              embedding_forward, .is_group = false};

kn_layer *kn_layer_embedding(kn_layer *parent, const char *name, int64_t n, int64_t width,
                             const kn_layer_linear_options *options) {
    kn_layer_linear_options o = options ? *options : (kn_layer_linear_options){0};
    if (kn_pending() || !options_fit(&embedding_kind, name, &o, 1) ||
        !sizes_fit(&embedding_kind, name, n, width))
        return NULL;
    embedding *l = kn__layer_add(parent, name, &embedding_kind);
    if (!l) return NULL;
    l->act = o.act;
    l->weight = kn__layer_param_add(&l->base, "weight", KN_SHAPE(n, width),
                                    or_else(o.weight, kn_init_normal(0, 1)));
    kn_status status = l->weight && o.sparse ? kn_param_sparse(l->weight) : KN_OK;
    if (status < 0) kn_error_defer(status);
    return l->weight && status == KN_OK ? &l->base : kn__layer_undo(&l->base);
}

/* --- activation --- */

typedef struct act {
    kn_layer base;
    kn_layer_act_fn fn;
} act;

static kn_tensor *act_forward(kn_layer *layer, kn_tensor *x) {
    return kn__layer_activated(((act *)layer)->fn, x);
}
kn_layer_act_fn kn__layer_act_of(const kn_layer *layer) { return ((const act *)layer)->fn; }
const kn__layer_kind kn__layer_act_kind = {"kn_layer_act", sizeof(act), act_forward,
                                           .is_group = false};

kn_layer *kn_layer_act(kn_layer *parent, const char *name, kn_layer_act_fn fn) {
    if (kn_pending()) return NULL;
    if (!fn) return kn__layer_fail(&kn__layer_act_kind, name, KN_ERR_INVALID, "act is NULL");
    act *l = kn__layer_add(parent, name, &kn__layer_act_kind);
    if (!l) return NULL;
    l->fn = fn;
    return &l->base;
}

/* --- dropout --- */

typedef struct dropout {
    kn_layer base;
    double p;
    kn_rng *rng;
} dropout;

static kn_tensor *dropout_forward(kn_layer *layer, kn_tensor *x) {
    const dropout *l = (dropout *)layer;
    return kn_layer_is_training(layer) && l->p > 0 ? kn_dropout(x, l->p, l->rng) : x;
}
static const kn__layer_kind dropout_kind = {"kn_layer_dropout", sizeof(dropout), dropout_forward,
                                            .is_group = false};

kn_layer *kn_layer_dropout(kn_layer *parent, const char *name, double p) {
    if (kn_pending()) return NULL;
    if (!(p >= 0 && p < 1))
        return kn__layer_fail(&dropout_kind, name, KN_ERR_INVALID, "p is %g; it must be in [0, 1)",
                              p);
    dropout *l = kn__layer_add(parent, name, &dropout_kind);
    if (!l) return NULL;
    l->p = p;
    l->rng = kn__layer_rng(&l->base);
    return l->rng ? &l->base : kn__layer_undo(&l->base);
}

/* --- pooling, shapes --- */

enum { POOL_MOST = 256 }; /* elements of a window of kn_maxpool */

typedef struct pooling {
    kn_layer base;
    kn_shape window;
    kn_pooling_options options;
} pooling;

static kn_tensor *maxpool_forward(kn_layer *layer, kn_tensor *x) {
    const pooling *l = (pooling *)layer;
    return kn_maxpool(x, l->window, &l->options);
}
static kn_tensor *avgpool_forward(kn_layer *layer, kn_tensor *x) {
    const pooling *l = (pooling *)layer;
    return kn_avgpool(x, l->window, &l->options);
}
static const kn__layer_kind maxpool_kind = {"kn_layer_maxpool", sizeof(pooling), maxpool_forward,
                                            .is_group = false};
static const kn__layer_kind avgpool_kind = {"kn_layer_avgpool", sizeof(pooling), avgpool_forward,
                                            .is_group = false};

/* What the op refuses of any x is refused here, where its layer is made. 0 is a default. */
static bool steps_fit(const kn__layer_kind *kind, const char *name, int n_spatial,
                      const kn_pooling_options *o) {
    const int64_t *value[] = {o->stride, o->padding, o->dilation};
    static const char *const names[] = {"stride", "padding", "dilation"};
    static const int64_t most[] = {INT64_MAX, INT64_MAX, INT32_MAX};
    for (int i = 0; i < 9; i++) {
        int64_t at = value[i / 3][i % 3];
        const char *wanted = at < 0             ? "at least 0"
                             : at > most[i / 3] ? "below 2^31"
                             : at > 0 && i % 3 >= n_spatial
                                 ? "0, as the window has no such dimension"
                                 : NULL;
        if (!wanted) continue;
        kn__layer_fail(kind, name, KN_ERR_INVALID, "%s[%d] is %lld; it must be %s", names[i / 3],
                       i % 3, (long long)at, wanted);
        return false;
    }
    return true;
}

static bool flags_fit(const kn__layer_kind *kind, const char *name, const kn_pooling_options *o) {
    const int flag[] = {o->ceil, o->inside, o->skip_nan};
    static const char *const names[] = {"ceil", "inside", "skip_nan"};
    for (int i = 0; i < 3; i++) {
        if (flag[i] == 0 || flag[i] == 1 || flag[i] == KN_OFF) continue;
        kn__layer_fail(kind, name, KN_ERR_INVALID, "%s is %d; it must be 0, 1 or KN_OFF", names[i],
                       flag[i]);
        return false;
    }
    if (o->unused)
        kn__layer_fail(kind, name, KN_ERR_INVALID, "unused is %u; it must be 0", o->unused);
    return !o->unused;
}

static bool reach_fits(const kn__layer_kind *kind, const char *name, kn_shape window,
                       const kn_pooling_options *o) {
    int64_t elements = 1;
    for (int i = 0; i < window.n_dims; i++) {
        if (window.dim[i] > INT32_MAX) {
            kn__layer_fail(kind, name, KN_ERR_SHAPE, "window[%d] is %lld; it must be below 2^31", i,
                           (long long)window.dim[i]);
            return false;
        }
        int64_t reach = (window.dim[i] - 1) * (o->dilation[i] ? o->dilation[i] : 1) + 1;
        if (o->padding[i] > reach / 2) {
            kn__layer_fail(kind, name, KN_ERR_SHAPE,
                           "padding[%d] is %lld; it must be at most half the window's %lld", i,
                           (long long)o->padding[i], (long long)reach);
            return false;
        }
        if (elements <= POOL_MOST) elements *= window.dim[i];
    }
    if (kind != &maxpool_kind || elements <= POOL_MOST) return true;
    kn__layer_fail(kind, name, KN_ERR_UNSUPPORTED,
                   "windows of more than %d elements are not supported", POOL_MOST);
    return false;
}

static kn_layer *pooling_add(kn_layer *parent, const char *name, const kn__layer_kind *kind,
                             kn_shape window, const kn_pooling_options *options) {
    if (kn_pending()) return NULL;
    const uint64_t *r = options ? options->reserved : (const uint64_t[3]){0};
    if (!kn__layer_reserved(kind, name, (const uint64_t[4]){r[0], r[1], r[2]})) return NULL;
    const kn_pooling_options o = options ? *options : (kn_pooling_options){.ceil = 0};
    if (!window_fits(kind, name, window) || !steps_fit(kind, name, window.n_dims, &o) ||
        !flags_fit(kind, name, &o) || !reach_fits(kind, name, window, &o))
        return NULL;
    pooling *l = kn__layer_add(parent, name, kind);
    if (!l) return NULL;
    l->window = window;
    l->options = o;
    return &l->base;
}

kn_layer *kn_layer_maxpool(kn_layer *parent, const char *name, kn_shape window,
                           const kn_pooling_options *options) {
    return pooling_add(parent, name, &maxpool_kind, window, options);
}
kn_layer *kn_layer_avgpool(kn_layer *parent, const char *name, kn_shape window,
                           const kn_pooling_options *options) {
    return pooling_add(parent, name, &avgpool_kind, window, options);
}

static kn_tensor *global_forward(kn_layer *layer, kn_tensor *x) {
    (void)layer;
    kn_shape axes = {.n_dims = 0};
    for (int i = 2; i < kn_tensor_shape(x).n_dims; i++) axes.dim[axes.n_dims++] = i;
    if (!axes.n_dims)
        return KN_FAIL_NULL(KN_ERR_SHAPE,
                            "global average of x with %d dimensions; it has no "
                            "spatial ones",
                            kn_tensor_shape(x).n_dims);
    return kn_mean(x, axes, false);
}
static const kn__layer_kind global_kind = {"kn_layer_global_avgpool", sizeof(kn_layer),
                                           global_forward, .is_group = false};
kn_layer *kn_layer_global_avgpool(kn_layer *parent, const char *name) {
    return kn__layer_add(parent, name, &global_kind);
}

static kn_tensor *flatten_forward(kn_layer *layer, kn_tensor *x) {
    (void)layer;
    return kn_flatten(x);
}
static const kn__layer_kind flatten_kind = {"kn_layer_flatten", sizeof(kn_layer), flatten_forward,
                                            .is_group = false};
kn_layer *kn_layer_flatten(kn_layer *parent, const char *name) {
    return kn__layer_add(parent, name, &flatten_kind);
}
