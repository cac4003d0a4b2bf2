/* The frozen form: layers that do the work of the one after them. */
#include "layer.h"
#include "mix.h"

bool kn__layer_is_frozen(const kn_layer *layer) {
    return layer->root->frozen && layer->root->frozen_as == kn_frame_autocast() &&
           !kn_frame_recording() && !kn_layer_is_training(layer);
}

static kn_tensor *folded(kn_layer *layer, kn_tensor *x, const void *ctx) {
    (void)ctx;
    return layer->kind->folded(layer, x);
}

kn_tensor *kn__layer_folded(kn_layer *layer, kn_tensor *x) {
    KN_ASSERT(kn__layer_folds(layer));
    return kn__layer_forward_by(layer, x, folded, NULL);
}

/* --- folding --- */

static uint64_t with_data(uint64_t key, const kn_tensor *t) {
    key = kn__mix(key ^ (uintptr_t)t->storage);
    key = kn__mix(key ^ (uintptr_t)t->data);
    return kn__mix(key ^ t->storage->version);
}

/* Which data the layer has, and how often it was written. */
static uint64_t with_layer(uint64_t key, const kn_layer *layer) {
    for (int i = 0; i < layer->n_params; i++) key = with_data(key, layer->param[i].w);
    for (int i = 0; i < layer->n_state; i++) key = with_data(key, layer->state[i].w);
    return key;
}

bool kn__layer_is_current(const kn_layer *layer) {
    return !layer->frozen[0] || layer->frozen_of == with_layer(with_layer(0, layer), layer->inside);
}

/* t as the axis of w [O,…], or of a transposed convolution's w [I,O,…]. */
static kn_tensor *along(kn_tensor *t, const kn_layer *layer, const kn_tensor *w) {
    kn_shape shape = {.n_dims = kn_tensor_shape(w).n_dims};
    for (int i = 0; i < shape.n_dims; i++) shape.dim[i] = 1;
    shape.dim[layer->kind->out_axis - 1] = kn_tensor_numel(t);
    return kn_reshape(t, shape);
}

/* norm(layer(x)) as a layer of other weights: w·s and (b - mean)·s + shift with s = weight/√(var +
 * eps), worked out in f64 and rounded once. */
static kn_status fold(kn_layer *layer, kn_layer *norm) {
    KN_FRAME(.device = kn_params_device(layer->root->params), .record = KN_OFF);
    kn_dtype low = kn_frame_autocast(), own = kn_params_dtype(layer->root->params);
    kn_dtype dtype = low && own == KN_F32 ? low : own; /* f64 is left alone, as in all frames */
    kn_tensor *w = kn_layer_param(layer, "weight"), *b = kn_layer_param(layer, "bias");
    kn_tensor *mean = kn_cast(norm->state[0].w, KN_F64), *var = kn_cast(norm->state[1].w, KN_F64);
    kn_tensor *root = kn_sqrt(kn_affine(var, 1, kn__layer_norm_eps(norm)));
    kn_tensor *s = kn_div(kn_cast(kn_layer_param(norm, "weight"), KN_F64), root);
    kn_tensor *from = b ? kn_sub(kn_cast(b, KN_F64), mean) : kn_neg(mean);
    kn_tensor *bias = kn_add(kn_mul(from, s), kn_cast(kn_layer_param(norm, "bias"), KN_F64));
    kn_tensor *weight = kn_mul(kn_cast(w, KN_F64), along(s, layer, w));
    KN_TRY(kn_hold(&layer->frozen[0], kn_cast(weight, dtype)));
    KN_TRY(kn_hold(&layer->frozen[1], kn_cast(bias, dtype)));
    layer->frozen_of = with_layer(with_layer(0, layer), norm);
    layer->inside = norm;
    return KN_OK;
}

/* Whether the next layer normalizes this one's result. */
static bool folds(const kn_layer *layer) {
    const kn_layer *next = layer->next;
    return next && layer->kind->out_axis && layer->kind->is_bare(layer) &&
           next->kind == &kn__layer_batchnorm_kind &&
           kn_tensor_numel(next->param[0].w) == layer->kind->n_out(layer);
}

typedef struct walk {
    kn_status status;
} walk;

static bool freeze(void *ctx, kn_layer *layer) {
    walk *w = ctx;
    if (folds(layer)) w->status = fold(layer, layer->next);
    kn_layer *next = layer->next;
    bool is_sum = layer->kind == &kn__layer_residual_kind;
    if (is_sum && next && next->kind == &kn__layer_act_kind) layer->inside = next;
    return w->status == KN_OK;
}

static bool thaw(void *ctx, kn_layer *layer) {
    (void)ctx;
    kn_unhold(&layer->frozen[0]);
    kn_unhold(&layer->frozen[1]);
    layer->inside = NULL;
    return true;
}

kn_status kn_layer_freeze(kn_layer *root) {
    walk w = {KN_OK};
    KN_TRY(kn_check());
    if (!root || root->parent)
        return KN_FAIL(KN_ERR_INVALID, "kn_layer_freeze: %s",
                       root ? "the layer is not a root" : "root is NULL");
    kn_layer_thaw(root);
    kn_layer_walk(root, freeze, &w);
    if (w.status < 0) kn_layer_thaw(root);
    root->root->frozen = w.status == KN_OK;
    root->root->frozen_as = kn_frame_autocast();
    return w.status;
}

void kn_layer_thaw(kn_layer *root) {
    if (!root) return;
    root->root->frozen = false;
    kn__layer_replays_end(root->root);
    kn_layer_walk(root, thaw, NULL);
}

/* --- sums --- */

kn_tensor *kn__layer_sum(kn_layer *layer, kn_tensor *x, kn_tensor *around, kn_layer_act_fn act) {
    KN_TAPE_SCOPE(layer->name);
    KN_FRAME(.layout = 2);
    kn_tensor *y = layer->kind->sum(layer, x, around, act);
    return y ? kn_keep(y) : kn__layer_failed(layer);
}

/* With .autocast a product is of its 16 bits: another `around` would be rounded to them. */
static bool takes(const kn_layer *layer, kn_tensor *x, kn_tensor *around) {
    kn_dtype low = kn_frame_autocast(), wanted = low ? low : kn_tensor_dtype(x);
    return layer->kind->plus && !layer->recomputes && !layer->device &&
           kn_tensor_dtype(around) == wanted && layer->kind->takes(layer, x, around);
}

kn_tensor *kn__layer_plus(kn_layer *layer, kn_tensor *x, kn_tensor *around) {
    if (takes(layer, x, around)) return kn__layer_forward_by(layer, x, layer->kind->plus, around);
    kn_tensor *y = kn_layer_forward(layer, x);
    return y ? kn_add(y, around) : NULL;
}

kn_tensor *kn_layer_forward_add(kn_layer *layer, kn_layer *norm, kn_tensor *x, kn_tensor *around,
                                kn_layer_act_fn act) {
    if (!layer) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_forward_add: layer is NULL");
    if (kn_pending()) return NULL;
    bool folds = norm && layer->inside == norm && kn__layer_folds(layer);
    if (folds && around && layer->kind->sum && !kn__layer_norm_act(norm)) /* before the sum */
        return kn__layer_sum(layer, x, around, act);
    kn_tensor *y = folds ? kn__layer_folded(layer, x) : kn_layer_forward(layer, x);
    if (norm && y && !folds) y = kn_layer_forward(norm, y);
    if (!y) return NULL;
    y = kn__layer_activated(act, around ? kn_add(y, around) : y);
    return y ? y : kn__layer_failed(layer);
}
