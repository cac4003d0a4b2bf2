/* Steps of one tensor, without a set of parameters. */
#include <stdio.h>

#include "optim.h"

/* Whether w and g are tensors of one kind, where the optimiser is. */
static kn_status check_kind(const kn_optim *optim, const kn_tensor *w, const kn_tensor *g) {
    const char *of_w = kn_tensor_problem(w), *of_g = kn_tensor_problem(g);
    if (of_w || of_g)
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_update: %s %s", of_w ? "w" : "g",
                       of_w ? of_w : of_g);
    if (w->dtype != g->dtype || (w->dtype != KN_F32 && w->dtype != KN_F64))
        return KN_FAIL(KN_ERR_DTYPE,
                       "kn_optim_update: w is %s, g is %s; both must be f32, or both f64",
                       kn_dtype_name((kn_dtype)w->dtype), kn_dtype_name((kn_dtype)g->dtype));
    kn_device *own = optim->set->device;
    if (w->storage->device != own || g->storage->device != own)
        return KN_FAIL(KN_ERR_DEVICE, "kn_optim_update: w is on %s, g on %s, the optimiser on %s",
                       kn_device_name(w->storage->device), kn_device_name(g->storage->device),
                       kn_device_name(own));
    return KN_OK;
}

/* An optimiser belongs to the first tensor that passes. */
static kn_status check(const kn_optim *optim, const kn_tensor *w, const kn_tensor *g) {
    char wanted[96], found[96];
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_update: optim is NULL");
    KN_TRY(check_kind(optim, w, g));
    if (optim->set->n || optim->turn)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_optim_update: the optimiser has %d parameters; use kn_optim_step",
                       optim->set->n);
    bool same = w->n_dims == g->n_dims;
    for (int d = 0; same && d < w->n_dims; d++) same = w->dim[d] == g->dim[d];
    if (!same)
        return KN_FAIL(KN_ERR_SHAPE, "kn_optim_update: w is %s, g is %s",
                       kn_shape_text(wanted, sizeof wanted, kn_tensor_shape(w)),
                       kn_shape_text(found, sizeof found, kn_tensor_shape(g)));
    if (optim->is_ready && optim->n_updated != w->n)
        return KN_FAIL(KN_ERR_SHAPE,
                       "kn_optim_update: w has %lld elements; the optimiser's tensor has %lld",
                       (long long)w->n, (long long)optim->n_updated);
    return KN_OK;
}

static kn_status prepare(kn_optim *optim, const kn_tensor *w) {
    if (optim->has_m && optim->m == KN_NONE) KN_TRY(kn__optim_state_make(&optim->m, w));
    if (optim->has_v && optim->v == KN_NONE) KN_TRY(kn__optim_state_make(&optim->v, w));
    optim->n_updated = w->n;
    optim->is_ready = true;
    return KN_OK;
}

/* *g: what clip_each leaves of it where both norms clip, as kn_optim_step has it. */
static kn_status clip(kn_optim *optim, kn_tensor **g) {
    double all = optim->clip_norm, each = optim->clip_each;
    if (all > 0 && each > 0) {
        kn_tensor *scale = kn__clip_scale(kn_sum_square(*g, KN_ALL, false), each);
        *g = kn_mul(*g, scale);
    }
    double limit = all > 0 ? all : each;
    return limit > 0 ? kn__clip_to(optim, kn_sum_square(*g, KN_ALL, false), limit) : KN_OK;
}

kn_status kn_optim_update(kn_optim *optim, kn_tensor *w, kn_tensor *g) {
    KN_TRY(kn_check());
    KN_TRY(check(optim, w, g));
    KN_SCOPE("optim_step");
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    KN_TRY(prepare(optim, w));
    KN_TRY(clip(optim, &g));
    kn_optim_part part = {w, 0, w->n, 1, 1};
    kn_attr_optim attr = optim->attr;
    attr.part = &part;
    attr.n_parts = 1;
    return kn_optim_run(optim->op, &attr, g, optim->m, optim->v, optim->hyper);
}

kn_tensor *kn__update_state_at(kn_optim *optim, int i, char *name, size_t name_bytes) {
    if (!optim->is_ready || i > optim->has_m + optim->has_v) return NULL;
    bool is_m = optim->has_m && i == 1;
    kn_tensor *state = is_m ? optim->m : optim->v;
    snprintf(name, name_bytes, "%c", is_m ? 'm' : 'v');
    return kn_tensor_view(state, kn_tensor_shape(state), 0);
}
