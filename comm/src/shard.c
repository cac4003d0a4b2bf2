/* An optimiser whose state is cut into one part a rank. */
#include <knet/prof_metric.h>
#include <string.h>

#include "parallel.h"

typedef struct range {
    int64_t begin, end;
} range;

static range range_of(const kn_parallel *p, int64_t numel, int rank) {
    return (range){kn__shard_begin(numel, p->dtype, p->comm->size, rank),
                   kn__shard_begin(numel, p->dtype, p->comm->size, rank + 1)};
}

/* Copies the elements [lo, hi) of the arena from the parameters, or to them. */
static kn_status values_move(kn_parallel *p, int64_t lo, int64_t hi, bool to_params) {
    for (int i = 0; i < kn_params_count(p->params); i++) {
        kn_tensor *w = kn_params_at(p->params, i, NULL);
        if (!kn_tensor_numel(w)) continue;
        const char *slice = kn_data(kn_grad(w));
        if (!slice) return kn_check();
        int64_t at = (slice - p->arena) / (int64_t)p->item, end = at + kn_tensor_numel(w);
        int64_t first = at < lo ? lo : at, last = end > hi ? hi : end;
        if (first >= last) continue;
        char *value = kn_data_mut(w), *place = p->arena + (size_t)first * p->item;
        if (!value) return kn_check();
        value += (size_t)(first - at) * p->item;
        size_t bytes = (size_t)(last - first) * p->item;
        memcpy(to_params ? value : place, to_params ? place : value, bytes);
    }
    return KN_OK;
}

/* The gradients are used up: their arena carries the new values. */
static kn_status values_gather(void *of) {
    KN_SCOPE("all_gather");
    kn_parallel *p = of;
    kn_tensor *flat = kn_params_grad(p->params);
    if (!flat) return kn_check();
    int64_t n = kn_tensor_numel(flat);
    range mine = range_of(p, n, p->comm->rank);
    p->arena = kn_data_mut(flat);
    if (!p->arena) return kn_check();
    KN_TRY(values_move(p, mine.begin, mine.end, false));
    KN_TRY(kn__comm_call(p->comm, "all_gather", (uint64_t)n * p->item));
    KN_TRY(kn__all_gather(p->comm, p->arena, n, p->dtype));
    KN_TRY(values_move(p, 0, mine.begin, true));
    return values_move(p, mine.end, n, true);
}

kn_status kn__parallel_cut(kn_parallel *p, kn_tensor *flat) {
    if (!p->optim || p->is_cut) return KN_OK;
    range mine = range_of(p, kn_tensor_numel(flat), p->comm->rank);
    KN_TRY(kn_optim_shard(p->optim, mine.begin, mine.end, values_gather, p));
    p->is_cut = true;
    return KN_OK;
}

kn_status kn_parallel_shard(kn_parallel *parallel, kn_optim *optim) {
    KN_TRY(kn_check());
    if (!parallel || !optim)
        return KN_FAIL(KN_ERR_INVALID, "kn_parallel_shard: %s is NULL",
                       parallel ? "optim" : "parallel");
    if (parallel->optim)
        return KN_FAIL(KN_ERR_INVALID, "kn_parallel_shard: there is an optimiser already");
    if (parallel->gpu)
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_parallel_shard: only on the host; the parameters are on %s",
                       kn_device_name(parallel->gpu));
    parallel->optim = optim;
    return KN_OK;
}

/* One array of the state: rank 0 gets the others' parts. */
static kn_status state_join(kn_parallel *p, kn_tensor *own, int i) {
    if (p->comm->rank > 0) return kn_tensor_numel(own) ? kn_comm_send(p->comm, own, 0) : KN_OK;
    KN_FRAME(.record = KN_OFF);
    kn_tensor *whole = kn_optim_shard_whole(p->optim, i);
    char *data = whole ? kn_data_mut(whole) : NULL;
    const char *from = data ? kn_data(own) : NULL;
    if (!from) return kn_check();
    int64_t n = kn_tensor_numel(whole);
    memcpy(data, from, (size_t)kn_tensor_numel(own) * p->item);
    for (int r = 1; r < p->comm->size; r++) {
        range theirs = range_of(p, n, r);
        if (theirs.begin == theirs.end) continue;
        kn_tensor *part = kn_tensor_view(whole, KN_SHAPE(theirs.end - theirs.begin), theirs.begin);
        KN_TRY(part ? kn_comm_receive(p->comm, part, r) : kn_check());
    }
    return KN_OK;
}

kn_status kn_parallel_state_join(kn_parallel *parallel) {
    KN_SCOPE("optimizer state");
    KN_TRY(kn_check());
    if (!parallel) return KN_FAIL(KN_ERR_INVALID, "kn_parallel_state_join: parallel is NULL");
    for (int i = 0; parallel->is_cut && i < 2; i++) {
        kn_tensor *own = kn_optim_shard_state(parallel->optim, i);
        if (own) KN_TRY(state_join(parallel, own, i));
    }
    return KN_OK;
}
