/* An optimiser that updates a part of the parameters, and has state for it alone. */
#include <inttypes.h>
#include <stdlib.h>

#include "optim.h"

/* Elements [first, last) of a parameter, at `at` of the ranges; its w is a view that the optimiser
 * owns. */
static kn_status part_cut(kn_optim_part *out, const kn_optim *optim, const kn__param *p,
                          int64_t first, int64_t last, int64_t at) {
    kn_tensor *w = kn_tensor_view(p->w, KN_SHAPE(last - first), first - p->offset);
    if (!w) return kn_check();
    *out = (kn_optim_part){.w = kn_tensor_detach_frame(w), .offset = at, .n = last - first};
    kn__part_scale(out, optim, p);
    return KN_OK;
}

/* Adds what the range, at `at` of all, has of the parameters. */
static kn_status range_cut(kn_optim_part *parts, int *n, const kn_optim *optim,
                           const kn_optim_range *range, int64_t at) {
    const kn_params *set = optim->set;
    for (int i = 0; i < set->n; i++) {
        const kn__param *p = set->param[i];
        int64_t first = p->offset, last = p->offset + p->w->n;
        if (first < range->begin) first = range->begin;
        if (last > range->end) last = range->end;
        if (first >= last) continue;
        KN_TRY(part_cut(&parts[*n], optim, p, first, last, at + first - range->begin));
        ++*n;
    }
    return KN_OK;
}

static void parts_release(kn_optim_part *parts, int n) {
    for (int i = 0; parts && i < n; i++) kn_tensor_release(parts[i].w);
    free(parts);
}

static kn_status parts_cut(kn_optim_part **out, int *n, const kn_optim *optim) {
    size_t most = (size_t)optim->set->n + (size_t)optim->n_ranges + 1;
    kn_optim_part *parts = calloc(2 * most, sizeof *parts);
    if (!parts) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", optim->set->n);
    kn_status status = KN_OK;
    int64_t at = 0;
    *n = 0;
    for (int i = 0; status == KN_OK && i < optim->n_ranges; i++) {
        status = range_cut(parts, n, optim, &optim->range[i], at);
        at += optim->range[i].end - optim->range[i].begin;
    }
    if (status == KN_OK)
        *out = parts;
    else
        parts_release(parts, *n);
    return status;
}

const kn__param *kn__part_param(const kn_optim *optim, int i) {
    const kn_tensor *w = optim->parts[i].w;
    if (!optim->part_grad) return kn__edge_param(w->grad);
    int k = 0;
    while (optim->set->param[k]->w->storage != w->storage) k++;
    return optim->set->param[k];
}

/* Copies the ranges of an array like the arena to t, one after the other. */
static kn_status ranges_copy(kn_tensor *t, kn_tensor *whole, const kn_optim *optim) {
    kn_device *device = optim->set->device;
    size_t item = kn_dtype_bytes(optim->set->dtype), at = 0;
    char *to = kn_data_mut(t);
    const char *from = kn_data(whole);
    KN_TRY(kn_check());
    for (int i = 0; i < optim->n_ranges; i++) {
        size_t bytes = (size_t)(optim->range[i].end - optim->range[i].begin) * item;
        KN_TRY(kn_device_copy(device, to + at, device, from + (size_t)optim->range[i].begin * item,
                              bytes, kn_frame_stream()));
        at += bytes;
    }
    return KN_OK;
}

/* The state of the ranges, out of that of all; zeros before there was any. */
static kn_status state_cut(kn_tensor **out, kn_tensor *whole, kn_tensor *grad,
                           const kn_optim *optim) {
    kn_tensor *t = kn_filled_like(grad, 0);
    if (!t) return kn_check();
    if (whole != KN_NONE) KN_TRY(ranges_copy(t, whole, optim));
    *out = kn_tensor_detach_frame(t);
    return KN_OK;
}

kn_status kn__shard_grad_copy(kn_optim *optim) {
    if (!optim->part_grad || optim->is_given) return KN_OK;
    return ranges_copy(optim->part_grad, optim->set->flat, optim);
}

static kn_status cut(kn_optim *optim) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    kn_optim_part *parts = NULL;
    kn_tensor *m = KN_NONE, *v = KN_NONE;
    int n = 0;
    int64_t numel = 0;
    for (int i = 0; i < optim->n_ranges; i++) numel += optim->range[i].end - optim->range[i].begin;
    kn_tensor *grad = kn_filled_like(kn_tensor_view(optim->set->flat, KN_SHAPE(numel), 0), 0);
    kn_status status = grad ? parts_cut(&parts, &n, optim) : kn_check();
    if (status == KN_OK && optim->has_m) status = state_cut(&m, optim->m, grad, optim);
    if (status == KN_OK && optim->has_v) status = state_cut(&v, optim->v, grad, optim);
    if (status < 0) {
        kn_tensor_release(m);
        kn_tensor_release(v);
        parts_release(parts, n);
        return status;
    }
    kn_tensor_release(optim->m);
    kn_tensor_release(optim->v);
    free(optim->parts);
    optim->m = m;
    optim->v = v;
    optim->part_grad = kn_tensor_detach_frame(grad);
    optim->parts = parts;
    optim->moving = parts + n;
    optim->n_dense = n;
    optim->is_ready = true;
    return KN_OK;
}

static kn_status ranges_check(const kn_optim *optim, const kn_optim_range range[], int n) {
    for (int i = 0; i < n; i++)
        if (range[i].begin < 0 || range[i].end < range[i].begin ||
            range[i].end > optim->set->flat->n)
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_optim_shard: elements %" PRId64 " to %" PRId64 " of %" PRId64,
                           range[i].begin, range[i].end, optim->set->flat->n);
    return KN_OK;
}

static kn_status shard_check(const kn_optim *optim, const kn_optim_range range[], int n) {
    if (!optim || !range || n < 1)
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_shard: %s",
                       optim ? "there is no range" : "optim is NULL");
    KN_TRY(kn__params_together("kn_optim_shard", optim->set->head));
    if (optim->part_grad)
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_shard: the optimiser has a part already");
    if (kn__is_lamb(optim) || optim->turn)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_optim_shard: %s moves whole parameters",
                       kn__is_lamb(optim) ? "LAMB" : "an optimiser with turns");
    for (int i = 0; i < optim->set->n; i++)
        if (optim->set->param[i]->is_sparse)
            return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_optim_shard: the gradient of %s is row-sparse",
                           optim->set->param[i]->name);
    KN_TRY(kn__params_fix(optim->set));
    return ranges_check(optim, range, n);
}

kn_status kn_optim_shard(kn_optim *optim, const kn_optim_range range[], int n,
                         kn_optim_stepped_fn fn, void *ctx) {
    KN_SCOPE("optimizer state");
    KN_TRY(kn_check());
    KN_TRY(shard_check(optim, range, n));
    optim->range = malloc((size_t)n * sizeof *range);
    if (!optim->range) return KN_FAIL(KN_ERR_OOM, "kn_optim_shard: no host memory");
    memcpy(optim->range, range, (size_t)n * sizeof *range);
    optim->n_ranges = n;
    kn_status status = cut(optim);
    if (status < 0) {
        free(optim->range);
        optim->range = NULL;
        return status;
    }
    optim->on_step = fn;
    optim->on_step_ctx = ctx;
    return KN_OK;
}

kn_tensor *kn_optim_shard_grad(kn_optim *optim) {
    if (!optim->part_grad || optim->clip_norm > 0 || optim->clip_each > 0 || optim->set->is_scaled)
        return NULL;
    optim->is_given = true;
    return optim->part_grad;
}

kn_tensor *kn_optim_shard_state(kn_optim *optim, int i) {
    if (!optim->part_grad || i < 0 || i >= optim->has_m + optim->has_v) return NULL;
    return optim->has_m && i == 0 ? optim->m : optim->v;
}

kn_tensor *kn_optim_shard_whole(kn_optim *optim, int i) {
    if (kn_pending() || !kn_optim_shard_state(optim, i)) return NULL;
    if (optim->whole[i]) return optim->whole[i];
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    kn_tensor *t = kn_filled_like(optim->set->flat, 0);
    if (t) optim->whole[i] = kn_tensor_detach_frame(t);
    return optim->whole[i];
}

void kn__shard_whole_release(kn_optim *optim) {
    for (int i = 0; i < 2; i++) {
        if (optim->whole[i]) kn_tensor_release(optim->whole[i]);
        optim->whole[i] = NULL;
    }
}

void kn__shard_release(kn_optim *optim) {
    if (!optim->part_grad) return;
    kn__shard_whole_release(optim);
    for (int i = 0; i < optim->n_dense; i++) kn_tensor_release(optim->parts[i].w);
    kn_tensor_release(optim->part_grad);
    free(optim->range);
}
