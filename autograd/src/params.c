#include "params.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "checked.h"
#include "mix.h"

enum { NAME_MAX_BYTES = 256, SLICE_BYTES = 256 };

/* --- life cycle --- */

kn_status kn_params_create(kn_params **out, const kn_params_options *options) {
    static const kn_params_options defaults = {0};
    if (!options) options = &defaults;
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_params_create: out is NULL");
    for (int i = 0; i < 4; i++) {
        if (options->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "kn_params_create: a reserved option is not zero");
        }
    }
    kn_dtype dtype = options->dtype ? options->dtype : KN_F32;
    if (dtype != KN_F32 && dtype != KN_F64) {
        return KN_FAIL(KN_ERR_DTYPE, "kn_params_create: dtype %s; parameters are f32 or f64",
                       kn_dtype_name(dtype));
    }
    kn_device *device = options->device ? options->device : kn_frame_device();
    kn_pool *pool = device == kn_frame_device() ? kn_frame_pool() : kn_device_pool(device);
    if (!pool) return kn_check();
    kn_params *set = calloc(1, sizeof *set);
    if (!set) return KN_FAIL(KN_ERR_OOM, "kn_params_create: no host memory");
    kn_status status = kn_rng_create(&set->rng, 0);
    if (status < 0) {
        free(set);
        return status;
    }
    atomic_store(&set->refs, 1);
    set->device = device;
    set->pool = pool;
    set->dtype = dtype;
    set->seed = options->seed;
    set->cycle = set->n_begun = 1;
    set->stepped = true; /* so that replays of a first backward that was captured begin one too */
    set->head = set;
    *out = set;
    return KN_OK;
}

kn_params *kn__params_retain(kn_params *set) {
    atomic_fetch_add_explicit(&set->refs, 1, memory_order_relaxed);
    return set;
}

static void param_free(kn__param *p) {
    if (p->grad) kn_tensor_release(p->grad);
    kn__rows_release(&p->rows);
    if (p->w) {
        p->w->grad = 0; /* somebody may still hold the tensor */
        kn_tensor_release(p->w);
    }
    free(p->name);
    free(p);
}

void kn__params_release(kn_params *set) {
    if (atomic_fetch_sub_explicit(&set->refs, 1, memory_order_acq_rel) != 1) return;
    KN_ASSERT(!set->in_pass);
    for (int i = 0; i < set->n; i++) param_free(set->param[i]);
    if (set->flat) kn_tensor_release(set->flat);
    if (set->next) kn__params_release(set->next);
    kn_rng_destroy(set->rng);
    free(set->param);
    free(set);
}

void kn_params_destroy(kn_params *params) {
    if (params) kn__params_release(params);
}

/* --- one parameter --- */

bool kn__params_grow(kn_params *set) {
    if (set->n < set->cap) return true;
    int cap = set->cap ? set->cap * 2 : 16;
    kn__param **param = realloc(set->param, (size_t)cap * sizeof *param);
    if (!param) return false;
    set->param = param;
    set->cap = cap;
    return true;
}

static kn__param *new_param(kn_params *set, const char *name) {
    kn__param *p = kn__params_grow(set) ? calloc(1, sizeof *p) : NULL;
    if (!p || !(p->name = strdup(name))) {
        free(p);
        return KN_FAIL_NULL(KN_ERR_OOM, "kn_param: no host memory");
    }
    p->set = set;
    p->index = set->n;
    p->serial = set->n_made;
    p->order = INT_MAX;
    return p;
}

static bool name_fits(kn_params *set, const char *name, int length) {
    if (length <= 0 || length >= NAME_MAX_BYTES) {
        KN_FAIL_NULL(KN_ERR_INVALID, "kn_param: a name of %d bytes; 1 to %d are possible", length,
                     NAME_MAX_BYTES - 1);
        return false;
    }
    if (kn_params_find(set, name)) {
        KN_FAIL_NULL(KN_ERR_INVALID, "kn_param: the name %s is taken", name);
        return false;
    }
    if (set->flat) {
        KN_FAIL_NULL(KN_ERR_INVALID,
                     "kn_param: %s comes after the set's gradients were laid out; make all "
                     "parameters before the first backward, step or kn_grad",
                     name);
        return false;
    }
    return true;
}

kn_tensor *kn_param(kn_params *params, kn_shape shape, kn_init init, const char *name_fmt, ...) {
    if (kn_pending()) return NULL;
    if (!params || !name_fmt)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_param: %s is NULL", params ? "name_fmt" : "params");
    char name[NAME_MAX_BYTES];
    va_list args;
    va_start(args, name_fmt);
    int length = vsnprintf(name, sizeof name, name_fmt, args);
    va_end(args);
    if (!name_fits(params, name, length)) return NULL;
    kn__param *p = new_param(params, name);
    if (!p) return NULL;
    kn_status status = kn__param_value(&p->w, params, p->serial, shape, init);
    if (status < 0) {
        param_free(p);
        return kn_error_defer(status);
    }
    p->w->grad = kn__edge_to_param(p);
    KN_ASSERT(params->n < params->cap && p->index == params->n && !params->flat);
    params->param[params->n++] = p;
    params->n_made++;
    params->numel += p->w->n;
    return p->w;
}

void kn_params_drop_last(kn_params *params, int n) {
    KN_ASSERT(n >= 0 && n <= params->n && (n == 0 || !params->flat));
    for (; n > 0 && params->n > 0 && !params->flat; n--) {
        kn__param *p = params->param[--params->n];
        if (p->serial == params->n_made - 1) params->n_made--;
        params->numel -= p->w->n;
        param_free(p);
    }
}

uint64_t kn_params_seed(const kn_params *params) { return params->seed; }
kn_device *kn_params_device(const kn_params *params) { return params->device; }
kn_dtype kn_params_dtype(const kn_params *params) { return params->dtype; }

/* --- the arena --- */

static int64_t slice_numel(const kn_params *set, const kn__param *p) {
    if (p->is_sparse) return 0;
    int64_t grain = SLICE_BYTES / (int64_t)kn_dtype_bytes(set->dtype);
    return (p->w->n + grain - 1) / grain * grain;
}

static int64_t arena_numel(const kn_params *set) {
    int64_t n = 0;
    for (int i = 0; i < set->n; i++) n += slice_numel(set, set->param[i]);
    return n;
}

static kn_tensor *new_arena(kn_params *set) {
    KN_SCOPE("gradients");
    kn_tensor *flat = kn_zeros(KN_SHAPE(arena_numel(set)));
    return flat ? kn_tensor_detach_frame(flat) : NULL;
}

/* Views of `flat` in the order given, in `views` by index of parameter. */
static kn_status make_views(kn_tensor *views[], int64_t offsets[], kn_params *set, kn_tensor *flat,
                            kn__param *const order[]) {
    int64_t at = 0;
    for (int i = 0; i < set->n; i++) {
        kn__param *p = order[i];
        kn_shape shape = p->is_sparse ? KN_SHAPE(0) : kn_tensor_shape(p->w);
        kn_tensor *view = kn_tensor_view(flat, shape, at);
        if (!view) return kn_check();
        views[p->index] = kn_tensor_detach_frame(view);
        offsets[p->index] = at;
        at += slice_numel(set, p);
    }
    KN_ASSERT(at == flat->n);
    return KN_OK;
}

void kn__tensor_swap_place(kn_tensor *a, kn_tensor *b) {
    kn_storage *storage = a->storage;
    void *data = a->data;
    a->storage = b->storage;
    a->data = b->data;
    b->storage = storage;
    b->data = data;
}

static kn_status move_values(kn_params *set, kn_device *device) {
    kn_status status = KN_OK;
    kn_tensor **moved = calloc((size_t)set->n + 1, sizeof *moved);
    if (!moved) return KN_FAIL(KN_ERR_OOM, "kn_params_to: no host memory");
    for (int i = 0; i < set->n && status == KN_OK; i++) {
        moved[i] = kn_to(set->param[i]->w, device);
        if (!moved[i]) status = kn_check();
    }
    for (int i = 0; i < set->n && status == KN_OK; i++)
        kn__tensor_swap_place(set->param[i]->w, moved[i]);
    free(moved);
    return status;
}

kn_status kn_params_to(kn_params *params, kn_device *device) {
    KN_TRY(kn_check());
    if (!params || !device)
        return KN_FAIL(KN_ERR_INVALID, "kn_params_to: %s is NULL", params ? "device" : "params");
    if (params->next)
        return KN_FAIL(KN_ERR_INVALID, "kn_params_to: the parameters lie on %s and %s already",
                       kn_device_name(params->device), kn_device_name(params->next->device));
    if (params->device == device) return KN_OK;
    KN_TRY(kn__params_movable("kn_params_to", params));
    kn_pool *pool = device == kn_frame_device() ? kn_frame_pool() : kn_device_pool(device);
    if (!pool) return kn_check();
    KN_FRAME(.device = device, .pool = pool, .record = KN_OFF);
    KN_TRY(kn_check());
    KN_TRY(move_values(params, device));
    params->device = device;
    params->pool = pool;
    return KN_OK;
}

typedef struct layout {
    kn_tensor *flat, **views;
    int64_t *offsets;
    kn__param **order;
} layout;

static void layout_release(layout *l, int n) {
    for (int i = 0; l->views && i < n; i++) {
        if (l->views[i]) kn_tensor_release(l->views[i]);
    }
    if (l->flat) kn_tensor_release(l->flat);
    free(l->views);
    free(l->offsets);
    free(l->order);
}

static kn_status layout_make(layout *l, kn_params *set,
                             int (*compare)(const void *, const void *)) {
    size_t n = (size_t)set->n;
    l->views = calloc(n + 1, sizeof *l->views);
    l->offsets = calloc(n + 1, sizeof *l->offsets);
    l->order = calloc(n + 1, sizeof *l->order);
    if (!l->views || !l->offsets || !l->order) {
        return KN_FAIL(KN_ERR_OOM, "no host memory for the gradients of %d parameters", set->n);
    }
    for (size_t i = 0; i < n; i++) l->order[i] = set->param[i];
    qsort(l->order, n, sizeof *l->order, compare);
    l->flat = new_arena(set);
    if (!l->flat) return kn_check();
    return make_views(l->views, l->offsets, set, l->flat, l->order);
}

static void layout_places(const layout *l, int n) {
    for (int k = 0; k < n; k++) l->order[k]->place = k;
}

static int newest_first(const void *a, const void *b) {
    const kn__param *p = *(kn__param *const *)a, *q = *(kn__param *const *)b;
    return q->index - p->index;
}

static int first_used_first(const void *a, const void *b) {
    const kn__param *p = *(kn__param *const *)a, *q = *(kn__param *const *)b;
    return p->order != q->order ? (p->order < q->order ? -1 : 1) : newest_first(a, b);
}

kn_status kn__params_layout(kn_params *set) {
    if (set->flat) return KN_OK;
    KN_FRAME(.device = set->device, .pool = set->pool, .dtype = set->dtype, .record = KN_OFF);
    KN_TRY(kn_check());
    layout l = {0};
    kn_status status = layout_make(&l, set, first_used_first);
    for (int i = 0; status == KN_OK && i < set->n; i++) {
        kn__param *p = set->param[i];
        KN_ASSERT(!p->grad);
        p->grad = l.views[i];
        p->offset = l.offsets[i];
        p->cycle = set->cycle; /* the new arena is zeros */
        l.views[i] = NULL;
    }
    if (status == KN_OK) {
        layout_places(&l, set->n);
        set->flat = l.flat;
        l.flat = NULL;
    }
    layout_release(&l, set->n);
    return status;
}

kn_status kn__params_fix(kn_params *set) {
    set->ordered = true;
    return kn__params_layout(set);
}

static bool order_is_right(const kn_params *set) {
    for (int i = 1; i < set->n; i++) {
        if (first_used_first(&set->param[i], &set->param[i - 1]) > 0) return false;
    }
    return true;
}

static kn_status move_to(kn_params *set, layout *l) {
    KN_TRY(kn_check());
    KN_TRY(layout_make(l, set, first_used_first));
    for (int i = 0; i < set->n; i++) KN_TRY(kn_add_into(l->views[i], set->param[i]->grad));
    for (int i = 0; i < set->n; i++) {
        kn__tensor_swap_place(set->param[i]->grad, l->views[i]);
        set->param[i]->offset = l->offsets[i];
    }
    layout_places(l, set->n);
    kn__tensor_swap_place(set->flat, l->flat);
    return KN_OK;
}

static kn_status move_slices(kn_params *set) {
    KN_FRAME(.device = set->device, .pool = set->pool, .dtype = set->dtype, .record = KN_OFF);
    layout l = {0};
    kn_status status = move_to(set, &l);
    layout_release(&l, set->n);
    return status;
}

/* Whether others read the gradients' memory by tensors of their own: plans, views, neighbours. */
static bool others_read(const kn_params *set) {
    uint32_t readers = atomic_load(&set->flat->storage->refs) / 2;
    KN_ASSERT(readers > (uint32_t)set->n); /* the arena and a slice for each */
    return readers > (uint32_t)set->n + 1;
}

/* Once, after the first backward: slices in the order in which gradients become ready. Where there
 * is no memory for that, or others read them where they are, the first layout stays. */
static void reorder(kn_params *set) {
    set->ordered = true;
    if (order_is_right(set) || others_read(set)) return;
    if (move_slices(set) < 0)
        kn_log_write(1, "gradients keep their first order: %s", kn_last_error()->message);
}

kn_status kn__params_order_check(const kn_params *set) {
    if (!set->flat || order_is_right(set)) return KN_OK;
    if (!kn_capture_records() && !others_read(set)) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_params_order_set: a view of a gradient is held, or a captured step reads "
                   "it where it is; set the order before");
}

kn_status kn__params_order_fix(kn_params *set) {
    if (!set->flat)
        KN_TRY(kn__params_layout(set));
    else if (!order_is_right(set))
        KN_TRY(move_slices(set));
    set->ordered = true;
    return KN_OK;
}

void kn__params_order_forget(kn_params *set) {
    for (int i = 0; i < set->n; i++) set->param[i]->order = INT_MAX;
    set->n_used = 0;
}

/* --- cycles --- */

void kn__params_cycle_begin(kn_params *set) {
    kn__params_effect_begin(set);
    set->cycle += set->stepped;
    set->n_begun++;
    set->stepped = false;
}

/* On all its devices: a step updates all. */
kn_status kn__param_touch(kn__param *p, kn__pass *pass) {
    if (p->set->in_pass) return KN_OK;
    for (kn_params *set = p->set->head; set; set = set->next) {
        KN_TRY(kn__params_layout(set));
        kn__params_cycle_begin(set);
        KN_ASSERT(set->flat && !set->touched && !set->in_pass);
        set->in_pass = true;
        set->touched = *pass->touched;
        *pass->touched = set;
    }
    return KN_OK;
}

void kn__param_used(kn__param *p) {
    if (p->order == INT_MAX && !p->set->ordered) p->order = p->set->n_used++;
}

kn_tensor *kn__param_sink(kn__param *p, kn__pass *pass, bool *fresh) {
    kn_params *set = p->set;
    kn_status status = kn__param_touch(p, pass);
    if (status < 0) return kn_error_defer(status);
    *fresh = p->cycle != set->cycle;
    p->cycle = set->cycle;
    p->reached = pass->serial;
    kn__param_used(p);
    return p->grad;
}

void kn__param_count(kn__param *p, kn__pass *pass) {
    static _Atomic uint64_t serial;
    if (!p->set->on_grad) return;
    if (!pass->hooked) pass->serial = ++serial;
    pass->hooked = true;
    KN_ASSERT(p->counted <= pass->serial);
    if (p->counted != pass->serial) p->n_users = 0;
    p->counted = pass->serial;
    p->n_users++;
}

void kn__param_done(kn__param *p, const kn__pass *pass) {
    kn_params *set = p->set;
    if (!set->on_grad || p->counted != pass->serial || --p->n_users) return;
    if (p->reached == pass->serial) set->on_grad(set->on_grad_ctx, p->w, kn__param_grad(p));
}

void kn__params_pass_end(kn__pass *pass, bool failed) {
    for (kn_params *set = *pass->touched, *next; set; set = next) {
        next = set->touched;
        KN_ASSERT(set->in_pass);
        set->touched = NULL;
        set->in_pass = false;
        if (failed)
            kn__params_void(set); /* discards partial gradients */
        else if (!set->ordered && set->n_used)
            reorder(set);
        if (failed && !set->ordered) kn__params_order_forget(set); /* the next counts anew */
        if (!failed) kn__params_effect(set);
    }
    *pass->touched = NULL;
}

static kn_status settle(kn__param *p) {
    if (p->is_sparse) return kn__param_rows_settle(p);
    if (p->cycle == p->set->cycle) return KN_OK;
    KN_TRY(kn_fill_into(p->grad, 0));
    p->cycle = p->set->cycle;
    return KN_OK;
}

/* What a plan reads stays where it is. */
static kn_status layout_to_read(kn_params *set) {
    return kn_capture_records() ? kn__params_fix(set) : kn__params_layout(set);
}

kn_status kn__params_settle(kn_params *set) {
    KN_TRY(layout_to_read(set));
    KN_FRAME(.device = set->device, .pool = set->pool, .record = KN_OFF);
    kn__params_effect_read(set);
    for (int i = 0; i < set->n; i++) KN_TRY(settle(set->param[i]));
    kn__params_effect(set);
    return KN_OK;
}

static kn_status settle_one(kn__param *p) {
    KN_TRY(layout_to_read(p->set));
    KN_FRAME(.device = p->set->device, .pool = p->set->pool, .record = KN_OFF);
    kn__params_effect_read(p->set);
    KN_TRY(settle(p));
    kn__params_effect(p->set);
    return KN_OK;
}

kn_tensor *kn_grad(kn_tensor *w) {
    if (kn_pending()) return NULL;
    const char *problem = kn_tensor_problem(w);
    if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_grad: w %s", problem);
    kn__param *p = kn__edge_param(w->grad);
    if (!p) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_grad: w is no parameter; see kn_gradients");
    if (p->is_sparse)
        return KN_FAIL_NULL(KN_ERR_INVALID,
                            "kn_grad: the gradient of %s is row-sparse; see kn_grad_rows", p->name);
    kn_status status = settle_one(p);
    return status == KN_OK ? p->grad : kn_error_defer(status);
}

kn_tensor *kn_params_grad(kn_params *params) {
    if (kn_pending()) return NULL;
    if (!params) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_params_grad: params is NULL");
    if (params->next)
        return KN_FAIL_NULL(KN_ERR_UNSUPPORTED,
                            "kn_params_grad: the parameters lie on %s and %s: their gradients are "
                            "no flat view",
                            kn_device_name(params->device), kn_device_name(params->next->device));
    kn_status status = kn__params_settle(params);
    return status == KN_OK ? params->flat : kn_error_defer(status);
}
