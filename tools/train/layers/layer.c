/* The tree of layers: creation, names, forward, mode, search. */
#include "layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors --- */

void *kn__layer_fail(const kn__layer_kind *kind, const char *name, kn_status status,
                     const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return KN_FAIL_NULL(status, "%s: %s: %s", kind->name, name ? name : "NULL", text);
}

bool kn__layer_reserved(const kn__layer_kind *kind, const char *name, const uint64_t reserved[4]) {
    for (int i = 0; i < 4; i++) {
        if (!reserved[i]) continue;
        kn__layer_fail(kind, name, KN_ERR_INVALID, "a reserved option is not zero");
        return false;
    }
    return true;
}

/* --- life cycle --- */

static void layer_free(kn_layer *layer) {
    for (kn_layer *child = layer->first, *next; child; child = next) {
        next = child->next;
        layer_free(child);
    }
    for (int i = 0; i < layer->n_state; i++) kn_unhold(&layer->state[i].w);
    for (int i = 0; i < 2; i++) kn_unhold(&layer->frozen[i]);
    free(layer->path);
    free(layer);
}

kn_status kn_layer_create(kn_layer **out, kn_params *params, const kn_layer_options *options) {
    static const kn_layer_options defaults = {0};
    if (!options) options = &defaults;
    KN_TRY(kn_check());
    if (!out || !params)
        return KN_FAIL(KN_ERR_INVALID, "kn_layer_create: %s is NULL", out ? "params" : "out");
    for (int i = 0; i < 4; i++)
        if (options->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_layer_create: a reserved option is not zero");
    kn__layer_root *root = calloc(1, sizeof *root);
    char *path = root ? strdup("") : NULL;
    if (!path) {
        free(root);
        return KN_FAIL(KN_ERR_OOM, "kn_layer_create: no host memory");
    }
    root->base.kind = &kn__layer_sequential_kind;
    root->base.root = root;
    root->base.name = root->base.path = path;
    root->params = params;
    root->seed = options->seed;
    *out = &root->base;
    return KN_OK;
}

void kn_layer_destroy(kn_layer *layer) {
    if (!layer) return;
    KN_ASSERT(!layer->parent);
    if (layer->parent) return;          /* its parent owns it */
    kn__layer_replays_end(layer->root); /* they may draw from the generator */
    kn_rng_destroy(layer->root->rng);
    layer_free(layer);
}

static bool name_fits(const kn__layer_kind *kind, kn_layer *parent, const char *name) {
    if (!name || !name[0] || strpbrk(name, "./")) {
        kn__layer_fail(kind, name, KN_ERR_INVALID, "a name is not empty and has no '.' or '/'");
        return false;
    }
    if (!parent->kind->is_group) {
        kn__layer_fail(kind, name, KN_ERR_INVALID, "its parent %s takes no layers", parent->path);
        return false;
    }
    for (const kn_layer *child = parent->first; child; child = child->next) {
        if (strcmp(child->name, name) != 0) continue;
        kn__layer_fail(kind, name, KN_ERR_INVALID, "the name is taken");
        return false;
    }
    return true;
}

static char *path_make(const kn_layer *parent, const char *name) {
    size_t length = strlen(parent->path), bytes = length + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s%s%s", parent->path, length ? "." : "", name);
    return path;
}

void *kn__layer_add(kn_layer *parent, const char *name, const kn__layer_kind *kind) {
    if (kn_pending() || !parent) {
        if (!kn_pending()) kn__layer_fail(kind, name, KN_ERR_INVALID, "parent is NULL");
        return NULL;
    }
    if (!name_fits(kind, parent, name)) return NULL;
    kn_layer *layer = calloc(1, kind->size_bytes);
    char *path = layer ? path_make(parent, name) : NULL;
    if (!path) {
        free(layer);
        return kn__layer_fail(kind, name, KN_ERR_OOM, "no host memory");
    }
    layer->kind = kind;
    layer->root = parent->root;
    layer->parent = parent;
    layer->path = path;
    layer->name = path + strlen(path) - strlen(name);
    layer->mode = parent->mode;
    layer->device = parent->device;
    layer->n_before = kn_params_count(parent->root->params);
    if (parent->last)
        parent->last->next = layer;
    else
        parent->first = layer;
    parent->last = layer;
    return layer;
}

void *kn__layer_undo(kn_layer *layer) {
    kn_layer *parent = layer->parent, **link = &parent->first, *before = NULL;
    KN_ASSERT(layer == parent->last);
    for (; *link != layer; link = &(*link)->next) before = *link;
    *link = NULL;
    parent->last = before;
    kn_params *params = layer->root->params;
    kn_params_drop_last(params, kn_params_count(params) - layer->n_before);
    layer_free(layer);
    return NULL;
}

kn_tensor *kn__layer_param_add(kn_layer *layer, const char *name, kn_shape shape, kn_init init) {
    KN_ASSERT(layer->n_params < KN__LAYER_PARAMS_MAX);
    kn_tensor *w = kn_param(layer->root->params, shape, init, "%s.%s", layer->path, name);
    if (w) layer->param[layer->n_params++] = (kn__layer_param){name, w};
    return w;
}

kn_tensor *kn__layer_state_add(kn_layer *layer, const char *name, kn_shape shape, double value) {
    KN_ASSERT(layer->n_state < KN__LAYER_STATE_MAX);
    const kn_params *params = layer->root->params;
    kn__layer_param *state = &layer->state[layer->n_state];
    *state = (kn__layer_param){name, NULL};
    KN_FRAME(.device = kn_params_device(params), .dtype = kn_params_dtype(params),
             .record = KN_OFF);
    kn_status status = kn_hold(&state->w, kn_full(shape, value));
    if (status < 0) return kn_error_defer(status);
    layer->n_state++;
    return state->w;
}

kn_rng *kn__layer_rng(kn_layer *layer) {
    kn__layer_root *root = layer->root;
    if (root->rng) return root->rng;
    kn_status status = kn_rng_create(&root->rng, root->seed);
    if (status < 0) kn_error_defer(status);
    return root->rng;
}

/* --- forward --- */

/* Whether a layer in it has said already where that was. */
static bool is_inner(const kn_layer *layer, const char *message) {
    size_t length = strlen(layer->path);
    return layer->first && strncmp(message, layer->path, length) == 0 &&
           (!length || message[length] == '.');
}

/* A layer's error is its ops': it only adds where that was. */
kn_tensor *kn__layer_failed(const kn_layer *layer) {
    kn_status status = kn_check();
    if (status == KN_OK) return NULL;
    kn_error why = *kn_last_error();
    if (is_inner(layer, why.message)) return kn_error_defer(status);
    return KN_FAIL_NULL(status, "%s: %s", layer->path, why.message);
}

/* A forward of a layer that recomputes, open on this thread: other threads have theirs. */
typedef struct part {
    const kn__layer_root *root;
    bool again; /* it or one around it is backward's */
    const struct part *outer;
} part;
static _Thread_local const part *innermost;
static _Thread_local const kn_layer *starting; /* whose first forward kn_recompute is to call */

bool kn__layer_again(void) { return innermost && innermost->again; }

static bool is_inside(const kn__layer_root *root) {
    const part *p = innermost;
    while (p && p->root != root) p = p->outer;
    return p != NULL;
}

/* Called first in forward and then in backward. */
static kn_tensor *part_forward(void *ctx, kn_tensor *const x[]) {
    kn_layer *layer = ctx;
    const part here = {layer->root, starting != layer || kn__layer_again(), innermost};
    starting = NULL;
    innermost = &here;
    kn_tensor *y = layer->kind->forward(layer, x[0]);
    innermost = here.outer;
    return y;
}

/* Inside of such a layer another one has nothing to save. */
static kn_tensor *run(kn_layer *layer, kn_tensor *x, const void *ctx) {
    (void)ctx;
    kn__layer_root *root = layer->root;
    if (!layer->recomputes || is_inside(root) || !kn_frame_recording())
        return layer->kind->forward(layer, x);
    starting = layer;
    kn_tensor *y = kn_recompute(part_forward, layer, &x, 1, root->rng);
    starting = NULL;
    return y;
}

static kn_tensor *forward(kn_layer *layer, kn_tensor *x, kn__layer_run_fn run_fn, const void *ctx) {
    bool in_blocks = !kn_frame_recording() && !kn_layer_is_training(layer);
    KN_FRAME(.layout = !in_blocks                   ? KN_OFF
                       : kn__layer_is_frozen(layer) ? 2
                                                    : 1,
             .device = layer->device);
    if (layer->device && kn_tensor_device(x) != layer->device) x = kn_to(x, layer->device);
    kn_tensor *y = x ? run_fn(layer, x, ctx) : NULL;
    if (!y) y = kn__layer_failed(layer);
    if (in_blocks && !layer->parent && y && kn_tensor_compute(y) < 0)
        return kn_error_defer(kn_last_error()->status);
    return kn_keep(y);
}

kn_tensor *kn__layer_forward_by(kn_layer *layer, kn_tensor *x, kn__layer_run_fn run_fn,
                                const void *ctx) {
    if (kn_pending()) return NULL;
    const char *problem = kn_tensor_problem(x);
    if (problem)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_forward: %s: x %s", kn__layer_shown(layer),
                            problem);
    if (!layer->parent) return forward(layer, x, run_fn, ctx); /* the root has no name */
    KN_TAPE_SCOPE(layer->name);
    return forward(layer, x, run_fn, ctx);
}

kn_tensor *kn_layer_forward(kn_layer *layer, kn_tensor *x) {
    if (!layer) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_forward: layer is NULL");
    return kn__layer_forward_by(layer, x, run, NULL);
}

/* --- mode --- */

static bool is_null(const kn_layer *layer, const char *who) {
    if (!layer) (void)KN_FAIL_NULL(KN_ERR_INVALID, "%s: layer is NULL", who);
    return !layer;
}

void kn_layer_mode_set(kn_layer *layer, kn_layer_mode mode) {
    if (is_null(layer, "kn_layer_mode_set")) return;
    if ((int)mode < KN_LAYER_AUTO || mode > KN_LAYER_EVAL) {
        (void)KN_FAIL_NULL(KN_ERR_INVALID,
                           "kn_layer_mode_set: %s: mode %d; it must be from %d to %d",
                           kn__layer_shown(layer), (int)mode, KN_LAYER_AUTO, KN_LAYER_EVAL);
        return;
    }
    layer->mode = mode;
    for (kn_layer *child = layer->first; child; child = child->next) kn_layer_mode_set(child, mode);
}

kn_layer_mode kn_layer_mode_get(const kn_layer *layer) { return layer->mode; }

bool kn_layer_is_training(const kn_layer *layer) {
    return layer->mode == KN_LAYER_AUTO ? kn_frame_recording() : layer->mode == KN_LAYER_TRAIN;
}

void kn_layer_recompute_set(kn_layer *layer, bool on) {
    if (!is_null(layer, "kn_layer_recompute_set")) layer->recomputes = on;
}

/* --- what a layer is made of --- */

const char *kn_layer_name(const kn_layer *layer) { return layer->name; }
const char *kn_layer_path(const kn_layer *layer) { return layer->path; }
const char *kn__layer_shown(const kn_layer *layer) {
    return layer->parent ? layer->path : "the root";
}
kn_rng *kn_layer_rng(kn_layer *layer) { return layer->root->rng; }

kn_layer *kn_layer_find(kn_layer *layer, const char *path) {
    if (!layer || !path)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_find: %s is NULL", layer ? "path" : "layer");
    size_t length = strcspn(path, ".");
    for (kn_layer *child = layer->first; child; child = child->next) {
        if (strlen(child->name) != length || strncmp(child->name, path, length) != 0) continue;
        return path[length] ? kn_layer_find(child, path + length + 1) : child;
    }
    return NULL;
}

kn_tensor *kn_layer_param(kn_layer *layer, const char *name) {
    if (!layer || !name)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_param: %s is NULL", layer ? "name" : "layer");
    for (int i = 0; i < layer->n_params; i++)
        if (strcmp(layer->param[i].name, name) == 0) return layer->param[i].w;
    return NULL;
}

kn_tensor *kn_layer_state_at(kn_layer *layer, int i, const char **name) {
    if (is_null(layer, "kn_layer_state_at") || i < 0 || i >= layer->n_state) return NULL;
    if (name) *name = layer->state[i].name;
    return layer->state[i].w;
}

int64_t kn_layer_numel(const kn_layer *layer) {
    int64_t n = 0;
    if (is_null(layer, "kn_layer_numel")) return 0;
    for (int i = 0; i < layer->n_params; i++) n += kn_tensor_numel(layer->param[i].w);
    for (const kn_layer *child = layer->first; child; child = child->next)
        n += kn_layer_numel(child);
    return n;
}

bool kn_layer_walk(kn_layer *layer, bool (*visit_fn)(void *ctx, kn_layer *layer), void *ctx) {
    if (!visit_fn(ctx, layer)) return false;
    for (kn_layer *child = layer->first; child; child = child->next)
        if (!kn_layer_walk(child, visit_fn, ctx)) return false;
    return true;
}

/* --- devices --- */

static kn_status state_to(kn_layer *layer, kn_device *device) {
    KN_FRAME(.record = KN_OFF);
    for (int i = 0; i < layer->n_state; i++)
        KN_TRY(kn_hold(&layer->state[i].w, kn_to(layer->state[i].w, device)));
    for (kn_layer *child = layer->first; child; child = child->next)
        KN_TRY(state_to(child, device));
    return KN_OK;
}

static kn_status params_to(kn_layer *layer, kn_device *device) {
    for (int i = 0; i < layer->n_params; i++) KN_TRY(kn_param_to(layer->param[i].w, device));
    for (kn_layer *child = layer->first; child; child = child->next)
        KN_TRY(params_to(child, device));
    return KN_OK;
}

static void place(kn_layer *layer, kn_device *device) {
    layer->device = device;
    for (kn_layer *child = layer->first; child; child = child->next) place(child, device);
}

static kn_status root_to(kn_layer *layer, kn_device *device) {
    KN_TRY(kn_params_to(layer->root->params, device));
    KN_TRY(state_to(layer, device));
    if (layer->device) place(layer, device);
    return KN_OK;
}

/* Each layer gets its input on its device, also those that stay; a group is then on several. */
kn_status kn_layer_to(kn_layer *layer, kn_device *device) {
    if (!layer || !device)
        return KN_FAIL(KN_ERR_INVALID, "kn_layer_to: %s is NULL", layer ? "device" : "layer");
    if (!layer->parent) return root_to(layer, device);
    KN_TRY(params_to(layer, device));
    KN_TRY(state_to(layer, device));
    kn__layer_root *root = layer->root;
    if (!root->is_placed) place(&root->base, kn_params_device(root->params));
    root->is_placed = true;
    place(layer, device);
    for (kn_layer *group = layer->parent; group; group = group->parent)
        if (group->device != device) group->device = NULL;
    return KN_OK;
}
