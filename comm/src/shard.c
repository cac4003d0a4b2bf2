/* An optimiser whose state is cut into parts: each rank has one of every bucket, reduces its
 * gradients, and updates it. */
#include <stdlib.h>

#include "gpu.h"
#include "parallel.h"

/* Parts of equal size, as collectives want them: all but the last bucket are cut so that nothing is
 * left over. */
int64_t kn__part_numel(const kn_parallel *p, const kn__bucket *b) {
    int64_t grain = KN__PART_BYTES / (int64_t)p->item;
    return (b->end - b->begin) / p->comm->size / grain * grain;
}

char *kn__part_place(const kn_parallel *p, const kn__bucket *b) {
    KN_ASSERT(p->part_data && b->begin % p->comm->size == 0);
    return p->part_data + (size_t)(b->begin / p->comm->size) * p->item;
}

static kn_optim_range range_of(const kn_parallel *p, const kn__bucket *b, int rank) {
    int64_t each = kn__part_numel(p, b), begin = b->begin + each * rank;
    KN_ASSERT(begin + each <= b->end);
    return (kn_optim_range){begin, rank == p->comm->size - 1 ? b->end : begin + each};
}

/* The elements of all parts of a rank. */
static int64_t parts_numel(const kn_parallel *p, int rank) {
    int64_t n = 0;
    for (int i = 0; i < p->n_buckets; i++) {
        kn_optim_range r = range_of(p, &p->buckets[i], rank);
        n += r.end - r.begin;
    }
    return n;
}

static kn_status copy(const kn_parallel *p, void *to, const void *from, size_t bytes) {
    kn_device *device = kn_params_device(p->params);
    kn_stream stream = NULL;
    if (p->gpu) KN_TRY(kn__gpu_stream(&stream, device));
    return kn_device_copy(device, to, device, from, bytes, stream);
}

/* Copies the parts of a rank from an array like the arena to one that has them one after the other,
 * or back. */
static kn_status parts_copy(kn_parallel *p, char *parts, char *whole, int rank, bool to_whole) {
    for (int i = 0; i < p->n_buckets; i++) {
        kn_optim_range r = range_of(p, &p->buckets[i], rank);
        size_t bytes = (size_t)(r.end - r.begin) * p->item;
        char *there = whole + (size_t)r.begin * p->item;
        if (bytes) KN_TRY(to_whole ? copy(p, there, parts, bytes) : copy(p, parts, there, bytes));
        parts += bytes;
    }
    return KN_OK;
}

/* --- after a step --- */

/* Copies this rank's pieces of the parameters to the arena, or the others' from there. */
static kn_status pieces_move(kn_parallel *p, bool own) {
    for (int i = 0; i < p->n_pieces; i++) {
        const kn__param_piece *q = &p->pieces[i];
        if (q->is_own != own) continue;
        char *value = kn_data_mut(q->w), *place = p->arena + (size_t)q->in_arena * p->item;
        if (!value) return kn_check();
        value += (size_t)q->in_w * p->item;
        size_t bytes = (size_t)q->n * p->item;
        KN_TRY(own ? copy(p, place, value, bytes) : copy(p, value, place, bytes));
    }
    return KN_OK;
}

/* Every rank gets the parts of all others; its own one is in place. */
static kn_status parts_gather(kn_parallel *p, kn_tensor *flat, const kn__bucket *b) {
    int size = p->comm->size, rank = p->comm->rank;
    int64_t each = kn__part_numel(p, b), end = b->begin + each * size, rest = b->end - end;
    if (each > 0) {
        kn_tensor *all = kn_tensor_view(flat, KN_SHAPE(size, each), b->begin);
        kn_tensor *own = kn_tensor_view(flat, KN_SHAPE(each), b->begin + each * rank);
        KN_TRY(all && own ? kn_comm_all_gather(p->comm, all, own) : kn_check());
    }
    if (!rest) return KN_OK;
    kn_tensor *tail = kn_tensor_view(flat, KN_SHAPE(rest), end);
    return tail ? kn_comm_broadcast(p->comm, tail, size - 1) : kn_check();
}

/* The gradients are used up: their arena carries the new values. */
static kn_status values_gather(void *of) {
    kn_parallel *p = of;
    KN_FRAME(.device = kn_params_device(p->params), .record = KN_OFF);
    kn_tensor *flat = kn_params_grad(p->params);
    if (!flat) return kn_check();
    p->arena = kn_data_mut(flat);
    if (!p->arena) return kn_check();
    KN_TRY(pieces_move(p, true));
    for (int i = 0; i < p->n_buckets; i++) KN_TRY(parts_gather(p, flat, &p->buckets[i]));
    return pieces_move(p, false);
}

/* --- the cut --- */

/* Where the parameter at elements [at, end) of the arena meets [lo, hi). */
static void piece_add(kn_parallel *p, kn_tensor *w, int64_t at, int64_t end, int64_t lo, int64_t hi,
                      bool is_own) {
    int64_t first = at > lo ? at : lo, last = end < hi ? end : hi;
    if (first >= last) return;
    KN_ASSERT(p->n_pieces < 3 * (kn_params_count(p->params) + p->n_buckets));
    p->pieces[p->n_pieces++] = (kn__param_piece){w, first - at, first, last - first, is_own};
}

static kn_status pieces_make(kn_parallel *p) {
    int n = kn_params_count(p->params);
    p->pieces = calloc(3 * ((size_t)n + (size_t)p->n_buckets), sizeof *p->pieces);
    if (!p->pieces) return KN_FAIL(KN_ERR_OOM, "kn_parallel_finish: no host memory");
    for (int i = 0; i < n; i++) {
        kn_tensor *w = kn_params_at(p->params, i, NULL);
        if (!kn_tensor_numel(w)) continue;
        const char *slice = kn_data(kn_grad(w));
        if (!slice) return kn_check();
        int64_t at = (slice - p->arena) / (int64_t)p->item, end = at + kn_tensor_numel(w);
        for (int k = 0; k < p->n_buckets; k++) {
            const kn__bucket *b = &p->buckets[k];
            kn_optim_range own = range_of(p, b, p->comm->rank);
            piece_add(p, w, at, end, b->begin, own.begin, false);
            piece_add(p, w, at, end, own.begin, own.end, true);
            piece_add(p, w, at, end, own.end, b->end, false);
        }
    }
    return KN_OK;
}

static kn_status state_cut(kn_parallel *p) {
    kn_optim_range *range = calloc((size_t)p->n_buckets, sizeof *range);
    if (!range) return KN_FAIL(KN_ERR_OOM, "kn_parallel_finish: no host memory");
    for (int i = 0; i < p->n_buckets; i++) range[i] = range_of(p, &p->buckets[i], p->comm->rank);
    kn_status status = kn_optim_shard(p->optim, range, p->n_buckets, values_gather, p);
    free(range);
    return status;
}

/* The gradients of this step are in the arena; those of later ones are reduced to their parts. */
kn_status kn__parallel_cut(kn_parallel *p) {
    if (!p->optim || p->is_cut) return KN_OK;
    if (!p->pieces) KN_TRY(pieces_make(p));
    KN_ASSERT(p->buckets && p->n_posted == 0 && !p->part_data);
    KN_TRY(state_cut(p));
    p->is_cut = true;
    kn_tensor *grad = kn_optim_shard_grad(p->optim);
    if (!grad || !kn_tensor_numel(grad)) return KN_OK;
    p->part_data = kn_data_mut(grad);
    return p->part_data ? parts_copy(p, p->part_data, p->arena, p->comm->rank, false) : kn_check();
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

/* --- checkpoints --- */

/* The parts of a rank, from that rank, into an array like the arena. */
static kn_status parts_receive(kn_parallel *p, char *whole, kn_tensor *like, int rank) {
    int64_t n = parts_numel(p, rank);
    if (!n) return KN_OK;
    KN_FRAME(.device = kn_params_device(p->params), .record = KN_OFF);
    kn_tensor *parts = kn_filled_like(kn_tensor_view(like, KN_SHAPE(n), 0), 0);
    if (!parts) return kn_check();
    KN_TRY(kn_comm_receive(p->comm, parts, rank));
    char *data = kn_data_mut(parts);
    return data ? parts_copy(p, data, whole, rank, true) : kn_check();
}

/* One array of the state: rank 0 gets the others' parts. */
static kn_status state_join(kn_parallel *p, kn_tensor *own, int i) {
    KN_FRAME(.device = kn_params_device(p->params), .record = KN_OFF);
    if (p->comm->rank > 0) return kn_tensor_numel(own) ? kn_comm_send(p->comm, own, 0) : KN_OK;
    kn_tensor *whole = kn_optim_shard_whole(p->optim, i);
    char *data = whole ? kn_data_mut(whole) : NULL;
    char *from = data && kn_tensor_numel(own) ? kn_data_mut(own) : NULL;
    KN_TRY(kn_check());
    if (from) KN_TRY(parts_copy(p, from, data, 0, true));
    for (int r = 1; r < p->comm->size; r++) KN_TRY(parts_receive(p, data, whole, r));
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
