/* Collectives out of messages between two ranks.
 *
 * Large data is cut into one shard a rank. Each rank gets the inputs of its shard from all others
 * (tag INPUT), combines them in the order of the ranks, and sends the result to all others (tag
 * RESULT). Shards move in chunks, so that one is combined while the next is under way. A rank
 * therefore knows who keeps it waiting. Small data goes whole to everyone: one latency. */
#include <string.h>

#include "ranks.h"

/* Of one chunk; of the same chunk from all others. A chunk costs MPI's handshake between processes.
 */
enum {
    CHUNK_BYTES = 2 << 20,
    CHUNKS_BYTES = 4 << 20,
    CHUNK_BYTES_MIN = 16 << 10,
    ALIGN_BYTES = 64
};

static int64_t shard_n(int64_t n, size_t item, int size) {
    int64_t grain = ALIGN_BYTES / (int64_t)item, each = (n + size - 1) / size;
    return (each + grain - 1) / grain * grain;
}

int64_t kn__shard_begin(int64_t n, kn_dtype dtype, int size, int rank) {
    int64_t at = shard_n(n, kn_dtype_bytes(dtype), size) * rank;
    return at < n && rank < size ? at : n;
}

/* --- the pipeline --- */

typedef struct pipeline {
    kn_comm *comm;
    char *data;     /* all shards */
    char *out;      /* the combined shard of this rank; its place in data, or elsewhere */
    size_t n, each; /* bytes: of data, of a shard but the last ones */
    size_t chunk;   /* bytes */
    size_t item;
    kn_dtype dtype;
    kn_comm_op op;
    bool reduces, gathers;
    char *inputs; /* [KN__WINDOW][size - 1][chunk] */
    kn__ask *ask; /* [KN__WINDOW][4][size]: inputs in and out, results in and out */
} pipeline;

typedef struct span {
    size_t at, bytes;
} span;

/* Chunk c of the shard of a rank. */
static span span_of(const pipeline *p, int rank, int64_t c) {
    size_t begin = p->each * (size_t)rank, end = begin + p->each;
    size_t at = begin + p->chunk * (size_t)c;
    KN_ASSERT(rank < p->comm->size && c >= 0);
    if (end > p->n) end = p->n;
    if (at >= end) return (span){0, 0};
    return (span){at, end - at < p->chunk ? end - at : p->chunk};
}

static kn__ask *asks_of(const pipeline *p, int64_t c, int which) {
    int size = p->comm->size;
    KN_ASSERT(which >= 0 && which < 4);
    return p->ask + ((c % KN__WINDOW) * 4 + which) * size;
}

static char *input_of(const pipeline *p, int64_t c, int rank) {
    int place = rank < p->comm->rank ? rank : rank - 1;
    KN_ASSERT(rank != p->comm->rank && p->inputs);
    return p->inputs +
           ((size_t)(c % KN__WINDOW) * (size_t)(p->comm->size - 1) + (size_t)place) * p->chunk;
}

/* For the inputs of a chunk (which: 0) or its results (2), both ways. */
static kn_status wait_for(const pipeline *p, int64_t c, int which, int patience) {
    return kn__comm_wait(p->comm, asks_of(p, c, which), 2 * p->comm->size, patience);
}

/* Ranks send to their right neighbour first, so that not all of them send to one. */
static int nth_peer(const kn_comm *comm, int i) { return (comm->rank + i) % comm->size; }

/* Data goes out before a rank waits for what the others call. */
static kn_status inputs_begin(pipeline *p, int64_t c) {
    kn_comm *comm = p->comm;
    span mine = span_of(p, comm->rank, c);
    for (int i = 1; i < comm->size; i++) {
        int peer = nth_peer(comm, i);
        span theirs = span_of(p, peer, c);
        if (theirs.bytes)
            KN_TRY(kn__comm_send(comm, &asks_of(p, c, 1)[peer], p->data + theirs.at, theirs.bytes,
                                 peer, KN__TAG_INPUT));
    }
    for (int i = 1; i < comm->size && mine.bytes; i++) {
        int peer = nth_peer(comm, i);
        KN_TRY(kn__comm_receive(comm, &asks_of(p, c, 0)[peer], input_of(p, c, peer), mine.bytes,
                                peer, KN__TAG_INPUT));
    }
    return KN_OK;
}

/* The inputs have arrived: combines them. */
static void inputs_combine(const pipeline *p, int64_t c) {
    const kn_comm *comm = p->comm;
    const void **src = comm->sources;
    span mine = span_of(p, comm->rank, c);
    if (!mine.bytes) return;
    for (int r = 0; r < comm->size; r++)
        src[r] = r == comm->rank ? p->data + mine.at : input_of(p, c, r);
    kn__reduce(p->out + (mine.at - p->each * (size_t)comm->rank), src, comm->size,
               (int64_t)(mine.bytes / p->item), p->dtype, p->op);
}

/* The others' chunks of data were sent as inputs before: they may be written now. */
static kn_status results_begin(pipeline *p, int64_t c) {
    kn_comm *comm = p->comm;
    span mine = span_of(p, comm->rank, c);
    for (int i = 1; i < comm->size; i++) {
        int peer = nth_peer(comm, i);
        KN_TRY(kn__comm_send(comm, &asks_of(p, c, 3)[peer], p->data + mine.at, mine.bytes, peer,
                             KN__TAG_RESULT));
    }
    for (int i = 1; i < comm->size; i++) {
        int peer = nth_peer(comm, i);
        span theirs = span_of(p, peer, c);
        KN_TRY(kn__comm_receive(comm, &asks_of(p, c, 2)[peer], p->data + theirs.at, theirs.bytes,
                                peer, KN__TAG_RESULT));
    }
    return KN_OK;
}

static kn_status pipeline_run(pipeline *p) {
    int64_t n_chunks = (int64_t)((p->each + p->chunk - 1) / p->chunk);
    KN_ASSERT(p->each * (size_t)p->comm->size >= p->n && p->chunk % p->item == 0);
    size_t room = (size_t)KN__WINDOW * (size_t)(p->comm->size - 1) * p->chunk;
    void *inputs = NULL;
    KN_TRY(kn__comm_asks(&p->ask, p->comm, KN__WINDOW * 4 * p->comm->size));
    if (p->reduces) KN_TRY(kn__comm_scratch(&inputs, p->comm, room));
    p->inputs = inputs;
    if (p->reduces) KN_TRY(inputs_begin(p, 0));
    for (int64_t c = 0; c < n_chunks; c++) {
        if (p->reduces && c + 1 < n_chunks) KN_TRY(inputs_begin(p, c + 1));
        if (p->reduces) KN_TRY(wait_for(p, c, 0, 4));
        if (p->reduces) inputs_combine(p, c);
        if (p->gathers && c >= KN__WINDOW) KN_TRY(wait_for(p, c - KN__WINDOW, 2, 5));
        if (p->gathers) KN_TRY(results_begin(p, c));
    }
    for (int64_t c = n_chunks > KN__WINDOW ? n_chunks - KN__WINDOW : 0; p->gathers && c < n_chunks;
         c++)
        KN_TRY(wait_for(p, c, 2, 5));
    return KN_OK;
}

size_t kn__chunk_bytes(size_t each, int size) {
    size_t chunk = (size_t)CHUNKS_BYTES / (size_t)(size - 1);
    if (chunk > CHUNK_BYTES) chunk = CHUNK_BYTES;
    if (chunk < CHUNK_BYTES_MIN) chunk = CHUNK_BYTES_MIN;
    return each < chunk ? each : chunk / ALIGN_BYTES * ALIGN_BYTES;
}

/* --- small data --- */

/* Everybody's data, in `inputs` [size - 1][bytes] without the own one. */
static kn_status exchange(char **inputs, kn_comm *comm, const void *data, size_t bytes) {
    int size = comm->size;
    kn__ask *ask = NULL;
    void *room = NULL;
    KN_TRY(kn__comm_asks(&ask, comm, 2 * size));
    KN_TRY(kn__comm_scratch(&room, comm, (size_t)size * bytes));
    *inputs = room;
    for (int i = 1; i < size; i++) {
        int peer = nth_peer(comm, i);
        KN_TRY(kn__comm_send(comm, &ask[size + peer], data, bytes, peer, KN__TAG_INPUT));
    }
    for (int i = 1; i < size; i++) {
        int peer = nth_peer(comm, i);
        size_t place = (size_t)(peer < comm->rank ? peer : peer - 1);
        KN_TRY(kn__comm_receive(comm, &ask[peer], *inputs + place * bytes, bytes, peer,
                                KN__TAG_INPUT));
    }
    return kn__comm_wait(comm, ask, 2 * size, 4);
}

static kn_status all_reduce_small(kn_comm *comm, void *data, int64_t n, kn_dtype dtype,
                                  kn_comm_op op) {
    size_t bytes = (size_t)n * kn_dtype_bytes(dtype);
    char *inputs = NULL;
    KN_TRY(exchange(&inputs, comm, data, bytes));
    const void **src = comm->sources;
    for (int r = 0; r < comm->size; r++)
        src[r] = r == comm->rank ? data : inputs + bytes * (size_t)(r < comm->rank ? r : r - 1);
    kn__reduce(data, src, comm->size, n, dtype, op);
    return KN_OK;
}

kn_status kn__barrier(kn_comm *comm) {
    char *inputs = NULL, token = 0;
    return exchange(&inputs, comm, &token, 1);
}

/* --- the calls --- */

static pipeline pipeline_of(kn_comm *comm, void *data, size_t bytes, size_t each, kn_dtype dtype) {
    return (pipeline){.comm = comm,
                      .data = data,
                      .out = (char *)data + each * (size_t)comm->rank,
                      .n = bytes,
                      .each = each,
                      .chunk = kn__chunk_bytes(each, comm->size),
                      .item = kn_dtype_bytes(dtype),
                      .dtype = dtype};
}

kn_status kn__all_reduce(kn_comm *comm, void *data, int64_t n, kn_dtype dtype, kn_comm_op op) {
    size_t item = kn_dtype_bytes(dtype), bytes = (size_t)n * item;
    if (!n) return KN_OK;
    if (bytes <= KN__SMALL_BYTES) return all_reduce_small(comm, data, n, dtype, op);
    pipeline p = pipeline_of(comm, data, bytes, (size_t)shard_n(n, item, comm->size) * item, dtype);
    p.op = op;
    p.reduces = p.gathers = true;
    return pipeline_run(&p);
}

kn_status kn__reduce_scatter(kn_comm *comm, void *out, void *data, int64_t n, kn_dtype dtype,
                             kn_comm_op op) {
    size_t item = kn_dtype_bytes(dtype);
    if (!n) return KN_OK;
    pipeline p = pipeline_of(comm, data, (size_t)n * item,
                             (size_t)shard_n(n, item, comm->size) * item, dtype);
    p.op = op;
    p.out = out;
    p.reduces = true;
    return pipeline_run(&p);
}

kn_status kn__all_gather_equal(kn_comm *comm, void *data, size_t shard_bytes) {
    if (!shard_bytes) return KN_OK;
    pipeline p = pipeline_of(comm, data, shard_bytes * (size_t)comm->size, shard_bytes, KN_U8);
    p.gathers = true;
    return pipeline_run(&p);
}

kn_status kn__reduce_scatter_equal(kn_comm *comm, void *out, const void *data, int64_t n,
                                   kn_dtype dtype, kn_comm_op op) {
    size_t each = (size_t)n * kn_dtype_bytes(dtype);
    if (!n) return KN_OK;
    pipeline p = pipeline_of(comm, (void *)data, each * (size_t)comm->size, each, dtype);
    p.op = op; /* data is read alone */
    p.out = out;
    p.reduces = true;
    return pipeline_run(&p);
}

/* --- broadcast: down a binomial tree, chunk by chunk --- */

/* As a number from the root: the parent lacks the lowest bit that is set. */
static kn_status broadcast_chunk(kn_comm *comm, kn__ask *ask, char *data, size_t bytes, int root) {
    int size = comm->size, me = (comm->rank - root + size) % size, n = 0;
    int low = me ? me & -me : size;
    KN_ASSERT(root >= 0 && root < size && bytes > 0);
    if (me) {
        int parent = (me - low + root) % size;
        KN_TRY(kn__comm_receive(comm, &ask[0], data, bytes, parent, KN__TAG_RESULT));
        KN_TRY(kn__comm_wait(comm, ask, 1, 4));
    }
    for (int bit = 1; bit < low && me + bit < size; bit *= 2)
        KN_TRY(
            kn__comm_send(comm, &ask[n++], data, bytes, (me + bit + root) % size, KN__TAG_RESULT));
    return kn__comm_wait(comm, ask, n, 4);
}

kn_status kn__broadcast(kn_comm *comm, void *data, size_t bytes, int root) {
    enum { PART_BYTES = 1 << 20 };
    kn__ask *ask = NULL;
    KN_TRY(kn__comm_asks(&ask, comm, 32));
    for (size_t at = 0; at < bytes; at += PART_BYTES) {
        size_t part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        KN_TRY(broadcast_chunk(comm, ask, (char *)data + at, part, root));
    }
    return KN_OK;
}
