/* An optimiser that updates a part of the parameters, and has state for it alone. */
#include <inttypes.h>
#include <stdlib.h>

#include "optim.h"

/* The elements of a parameter that are in the part; its w is a view that the optimiser owns. */
static kn_status part_cut(kn_optim_part *out, const kn_optim *optim, const kn__param *p) {
    int64_t first = p->offset, last = p->offset + p->w->n;
    if (first < optim->begin) first = optim->begin;
    if (last > optim->end) last = optim->end;
    *out = (kn_optim_part){.offset = first - optim->begin, .n = 0};
    if (first >= last) return KN_OK;
    kn_tensor *w = kn_tensor_view(p->w, KN_SHAPE(last - first), first - p->offset);
    if (!w) return kn_check();
    out->w = kn_tensor_detach_frame(w);
    out->n = last - first;
    kn__part_scale(out, optim, p);
    return KN_OK;
}

static void parts_release(kn_optim_part *parts, int n) {
    for (int i = 0; parts && i < n; i++) kn_tensor_release(parts[i].w);
    free(parts);
}

static kn_status parts_cut(kn_optim_part **out, int *n, const kn_optim *optim) {
    const kn_params *set = optim->set;
    kn_optim_part *parts = calloc((size_t)set->n + 1, sizeof *parts);
    if (!parts) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", set->n);
    kn_status status = KN_OK;
    *n = 0;
    for (int i = 0; status == KN_OK && i < set->n; i++) {
        status = part_cut(&parts[*n], optim, set->param[i]);
        *n += status == KN_OK && parts[*n].n > 0;
    }
    if (status == KN_OK)
        *out = parts;
    else
        parts_release(parts, *n);
    return status;
}

const kn__param *kn__part_param(const kn_optim *optim, int i) {
    const kn_tensor *w = optim->parts[i].w;
    int k = 0;
    while (optim->set->param[k]->w->storage != w->storage) k++;
    return optim->set->param[k];
}

/* The state of the part, out of that of all; zeros before there was any. */
static kn_status state_cut(kn_tensor **out, kn_tensor *whole, kn_tensor *grad,
                           const kn_optim *optim) {
    kn_tensor *t =
        whole == KN_NONE
            ? kn_filled_like(grad, 0)
            : kn_affine(kn_tensor_view(whole, KN_SHAPE(optim->end - optim->begin), optim->begin), 1,
                        0);
    if (!t) return kn_check();
    *out = kn_tensor_detach_frame(t);
    return KN_OK;
}

static kn_status cut(kn_optim *optim) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    kn_optim_part *parts = NULL;
    kn_tensor *m = KN_NONE, *v = KN_NONE;
    int n = 0;
    kn_tensor *grad =
        kn_tensor_view(optim->set->flat, KN_SHAPE(optim->end - optim->begin), optim->begin);
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
    optim->attr.part = optim->parts = parts;
    optim->attr.n_parts = optim->n_dense = n;
    optim->is_ready = true;
    return KN_OK;
}

static kn_status shard_check(const kn_optim *optim, int64_t begin, int64_t end) {
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_shard: optim is NULL");
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
    KN_TRY(kn__params_freeze(optim->set));
    if (begin < 0 || end < begin || end > optim->set->flat->n)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_optim_shard: elements %" PRId64 " to %" PRId64 " of %" PRId64, begin,
                       end, optim->set->flat->n);
    return KN_OK;
}

kn_status kn_optim_shard(kn_optim *optim, int64_t begin, int64_t end, kn_optim_stepped_fn fn,
                         void *ctx) {
    KN_SCOPE("optimizer state");
    KN_TRY(kn_check());
    KN_TRY(shard_check(optim, begin, end));
    optim->begin = begin;
    optim->end = end;
    KN_TRY(cut(optim));
    optim->on_step = fn;
    optim->on_step_ctx = ctx;
    return KN_OK;
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
}
