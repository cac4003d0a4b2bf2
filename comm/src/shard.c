/* An optimiser whose state is cut into one part a rank. */
#include "gpu.h"
#include "parallel.h"

enum { PART_BYTES = 64 }; /* parts begin at multiples of it */

typedef struct range {
    int64_t begin, end;
} range;

/* Parts of equal size, as collectives want them; the last rank has the rest as well. */
static range range_of(const kn_parallel *p, int64_t numel, int rank) {
    int64_t grain = PART_BYTES / (int64_t)p->item, size = p->comm->size;
    int64_t each = numel / size / grain * grain;
    return (range){each * rank, rank == size - 1 ? numel : each * (rank + 1)};
}

static kn_status copy(const kn_parallel *p, void *to, const void *from, size_t bytes) {
    kn_device *device = kn_params_device(p->params);
    kn_stream stream = NULL;
    if (p->gpu) KN_TRY(kn__gpu_stream(&stream, device));
    return kn_device_copy(device, to, device, from, bytes, stream);
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
        KN_TRY(to_params ? copy(p, value, place, bytes) : copy(p, place, value, bytes));
    }
    return KN_OK;
}

/* Every rank gets the parts of all others; its own one is in place. */
static kn_status parts_gather(kn_parallel *p, kn_tensor *flat) {
    int size = p->comm->size, rank = p->comm->rank;
    int64_t n = kn_tensor_numel(flat), each = range_of(p, n, 0).end, rest = n - each * size;
    if (each > 0) {
        kn_tensor *all = kn_tensor_view(flat, KN_SHAPE(size, each), 0);
        kn_tensor *own = kn_tensor_view(flat, KN_SHAPE(each), each * rank);
        KN_TRY(all && own ? kn_comm_all_gather(p->comm, all, own) : kn_check());
    }
    if (!rest) return KN_OK;
    kn_tensor *tail = kn_tensor_view(flat, KN_SHAPE(rest), each * size);
    return tail ? kn_comm_broadcast(p->comm, tail, size - 1) : kn_check();
}

/* The gradients are used up: their arena carries the new values. */
static kn_status values_gather(void *of) {
    kn_parallel *p = of;
    KN_FRAME(.device = kn_params_device(p->params), .record = KN_OFF);
    kn_tensor *flat = kn_params_grad(p->params);
    if (!flat) return kn_check();
    int64_t n = kn_tensor_numel(flat);
    range mine = range_of(p, n, p->comm->rank);
    p->arena = kn_data_mut(flat);
    if (!p->arena) return kn_check();
    KN_TRY(values_move(p, mine.begin, mine.end, false));
    KN_TRY(parts_gather(p, flat));
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
    parallel->optim = optim;
    return KN_OK;
}

/* One array of the state: rank 0 gets the others' parts. */
static kn_status state_join(kn_parallel *p, kn_tensor *own, int i) {
    KN_FRAME(.device = kn_params_device(p->params), .record = KN_OFF);
    if (p->comm->rank > 0) return kn_tensor_numel(own) ? kn_comm_send(p->comm, own, 0) : KN_OK;
    kn_tensor *whole = kn_optim_shard_whole(p->optim, i);
    char *data = whole ? kn_data_mut(whole) : NULL;
    const char *from = data ? kn_data(own) : NULL;
    if (!from) return kn_check();
    int64_t n = kn_tensor_numel(whole);
    KN_TRY(copy(p, data, from, (size_t)kn_tensor_numel(own) * p->item));
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
