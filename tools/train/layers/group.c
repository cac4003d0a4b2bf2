/* Layers that contain layers. */
#include "layer.h"

/* A value is dropped once the next layer has it: without a tape two of them live at a time. */
kn_tensor *kn__layer_run(kn_layer *first, const kn_layer *end, kn_tensor *x) {
    kn_tensor *at = x;
    for (kn_layer *child = first, *next; child != end; child = next) {
        bool folds = child->next != end && kn__layer_folds(child);
        next = folds ? child->next->next : child->next;
        kn_tensor *y = folds ? kn__layer_folded(child, at) : kn_layer_forward(child, at);
        if (!y) return NULL;
        if (y != at && at != x) kn_drop(at);
        at = y;
    }
    return at;
}

static kn_tensor *run_from(kn_layer *first, kn_tensor *x) { return kn__layer_run(first, NULL, x); }

/* --- sequences --- */

kn_tensor *kn__layer_sequence(kn_layer *group, kn_tensor *x) {
    return group->n_micro > 1 ? group->micro_fn(group, x) : run_from(group->first, x);
}

const kn__layer_kind kn__layer_sequential_kind = {"kn_layer_sequential", sizeof(kn_layer),
                                                  kn__layer_sequence, .is_group = true};
kn_layer *kn_layer_sequential(kn_layer *parent, const char *name) {
    return kn__layer_add(parent, name, &kn__layer_sequential_kind);
}

/* --- x beside body(x) --- */

typedef struct residual {
    kn_layer base;
    kn_layer *shortcut; /* the first layer in it; NULL: x itself */
} residual;

/* The convolution at the body's end that takes the sum along; NULL: none, or not frozen. */
static kn_layer *last_of(const residual *l, const kn_layer *body) {
    kn_layer *norm = l->base.last, *at = (kn_layer *)(uintptr_t)body;
    while (at && at->next != norm) at = at->next;
    bool fits = at && at->inside == norm && at->kind->sum && kn__layer_folds(at);
    return fits && !kn__layer_norm_act(norm) ? at : NULL; /* which comes before the sum */
}

/* act(x + body(x)) */
static kn_tensor *residual_run(kn_layer *layer, kn_tensor *x, kn_layer_act_fn act) {
    const residual *l = (residual *)layer;
    kn_layer *body = l->shortcut ? l->shortcut->next : layer->first, *last = last_of(l, body);
    kn_layer *end = last; /* which takes the sum along, if any */
    if (!last && body && layer->last->kind->plus) end = layer->last;
    kn_tensor *y = kn__layer_run(body, end, x);
    kn_tensor *around = l->shortcut && y ? kn_layer_forward(l->shortcut, x) : x;
    if (!y || !around) return NULL;
    if (last) return kn__layer_sum(last, y, around, act);
    return kn__layer_activated(act, end ? kn__layer_plus(end, y, around) : kn_add(y, around));
}
static kn_tensor *residual_forward(kn_layer *layer, kn_tensor *x) {
    return residual_run(layer, x, NULL);
}
static kn_tensor *residual_folded(kn_layer *layer, kn_tensor *x) {
    return residual_run(layer, x, kn__layer_act_of(layer->inside));
}
const kn__layer_kind kn__layer_residual_kind = {"kn_layer_residual", sizeof(residual),
                                                residual_forward, .is_group = true,
                                                .folded = residual_folded};
kn_layer *kn_layer_residual(kn_layer *parent, const char *name) {
    return kn__layer_add(parent, name, &kn__layer_residual_kind);
}

kn_layer *kn_layer_shortcut(kn_layer *layer) {
    static const kn__layer_kind kind = {"kn_layer_shortcut", sizeof(kn_layer), kn__layer_sequence,
                                        .is_group = true};
    if (kn_pending()) return NULL;
    if (!layer || layer->kind != &kn__layer_residual_kind || layer->first)
        return kn__layer_fail(&kind, layer ? layer->path : NULL, KN_ERR_INVALID,
                              "a shortcut is made in a residual layer, before its other layers");
    kn_layer *shortcut = kn__layer_add(layer, "shortcut", &kind);
    ((residual *)layer)->shortcut = shortcut;
    return shortcut;
}

static kn_tensor *dense_forward(kn_layer *layer, kn_tensor *x) {
    kn_tensor *y = run_from(layer->first, x);
    return y ? kn_concat((kn_tensor *const[]){x, y}, 2, 1) : NULL;
}
static const kn__layer_kind dense_kind = {"kn_layer_dense", sizeof(kn_layer), dense_forward,
                                          .is_group = true};
kn_layer *kn_layer_dense(kn_layer *parent, const char *name) {
    return kn__layer_add(parent, name, &dense_kind);
}

/* --- the user's own --- */

typedef struct function {
    kn_layer base;
    kn_layer_fn fn;
    void *ctx;
} function;

static kn_tensor *function_forward(kn_layer *layer, kn_tensor *x) {
    const function *l = (function *)layer;
    kn_tensor *y = l->fn(l->ctx, layer, x);
    return y ? y : KN_FAIL_NULL(KN_ERR_INVALID, "its function gave no result");
}
static const kn__layer_kind function_kind = {"kn_layer_function", sizeof(function),
                                             function_forward, .is_group = true};
kn_layer *kn_layer_function(kn_layer *parent, const char *name, kn_layer_fn fn, void *ctx) {
    if (kn_pending()) return NULL;
    if (!fn) return kn__layer_fail(&function_kind, name, KN_ERR_INVALID, "fn is NULL");
    function *l = kn__layer_add(parent, name, &function_kind);
    if (!l) return NULL;
    l->fn = fn;
    l->ctx = ctx;
    return &l->base;
}
