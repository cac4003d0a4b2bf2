/* The time of an all-reduce: the steps of collect.c, on a clock of their own. All ranks do the same
 * at the same time, so that rank 0 receives each message while it sends its own. Rank 0 has a
 * whole shard, the last ones may have less. */
#include "cost.h"

#include "now.h"
#include "ranks.h"

typedef struct course {
    const kn_forecast_link *link;
    double now, link_free;
    uint64_t n_sent;
} course;

/* Begins messages, of `bytes` together; returns when the last one arrives. */
static double messages(course *c, int n_in, int n_out, size_t bytes) {
    if (!n_in && !n_out) return c->now;
    double begin = c->link_free > c->now ? c->link_free : c->now;
    double seconds = c->link->bandwidth > 0 ? (double)bytes / c->link->bandwidth : 0;
    c->now += c->link->overhead_seconds * (n_in + n_out);
    c->link_free = begin + seconds > c->now ? begin + seconds : c->now;
    c->n_sent += (uint64_t)n_out;
    return c->link_free + c->link->latency_seconds;
}

static void wait_until(course *c, double at) {
    if (c->now < at) c->now = at;
}

static void add(course *c, int size, size_t bytes) {
    c->now += (double)size * (double)bytes / c->link->add_bandwidth;
}

typedef struct shards {
    int64_t n;
    kn_dtype dtype;
    int size;
    size_t item, chunk;
} shards;

/* The bytes of a chunk of a rank's shard. */
static size_t chunk_of(const shards *s, int rank, size_t k) {
    int64_t begin = kn__shard_begin(s->n, s->dtype, s->size, rank);
    int64_t end = kn__shard_begin(s->n, s->dtype, s->size, rank + 1);
    size_t bytes = (size_t)(end - begin) * s->item, at = s->chunk * k;
    if (at >= bytes) return 0;
    return bytes - at < s->chunk ? bytes - at : s->chunk;
}

/* Rank 0's inputs of a chunk, both ways. */
static double inputs(course *c, const shards *s, size_t k) {
    size_t bytes = 0;
    int n_out = 0;
    for (int r = 1; r < s->size; r++) {
        size_t one = chunk_of(s, r, k);
        bytes += one;
        n_out += one > 0;
    }
    return messages(c, chunk_of(s, 0, k) ? s->size - 1 : 0, n_out, bytes);
}

static double results(course *c, const shards *s, size_t k) {
    int n_in = 0, others = s->size - 1;
    size_t mine = chunk_of(s, 0, k);
    for (int r = 1; r < s->size; r++) n_in += chunk_of(s, r, k) > 0;
    return messages(c, n_in, mine ? others : 0, mine * (size_t)others);
}

static void pipeline(course *c, const shards *s) {
    size_t each = (size_t)kn__shard_begin(s->n, s->dtype, s->size, 1) * s->item;
    size_t n_chunks = (each + s->chunk - 1) / s->chunk;
    double arrive[KN__WINDOW] = {0}, next = inputs(c, s, 0);
    for (size_t k = 0; k < n_chunks; k++) {
        double here = next;
        if (k + 1 < n_chunks) next = inputs(c, s, k + 1);
        wait_until(c, here);
        add(c, s->size, chunk_of(s, 0, k));
        wait_until(c, arrive[k % KN__WINDOW]);
        arrive[k % KN__WINDOW] = results(c, s, k);
    }
    for (int k = 0; k < KN__WINDOW; k++) wait_until(c, arrive[k]);
}

void kn__cost_all_reduce(double *seconds, uint64_t *n_messages, int64_t n, kn_dtype dtype, int size,
                         const kn_forecast_link *link) {
    course c = {.link = link};
    size_t item = kn_dtype_bytes(dtype), bytes = (size_t)n * item;
    if (!n || size == 1) return;
    if (bytes <= KN__SMALL_BYTES) {
        wait_until(&c, messages(&c, size - 1, size - 1, bytes * (size_t)(size - 1)));
        add(&c, size, bytes);
    } else {
        size_t each = (size_t)kn__shard_begin(n, dtype, size, 1) * item;
        pipeline(&c, &(shards){n, dtype, size, item, kn__chunk_bytes(each, size)});
    }
    *seconds += c.now;
    *n_messages += c.n_sent;
}

double kn__cost_add_bandwidth(void) {
    enum { SOURCES = 4, ELEMENTS = 16 << 10, TIME_NS = 10 * 1000 * 1000 };
    static float data[SOURCES][ELEMENTS];
    const void *src[SOURCES] = {data[0], data[1], data[2], data[3]};
    float out[ELEMENTS];
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC), least = UINT64_MAX, now = begin;
    while (now - begin < TIME_NS) {
        uint64_t before = kn__now_ns(CLOCK_MONOTONIC);
        kn__reduce(out, src, SOURCES, ELEMENTS, KN_F32, KN_COMM_MEAN);
        now = kn__now_ns(CLOCK_MONOTONIC);
        if (now - before < least) least = now - before;
    }
    return 1e9 * (double)sizeof data / (double)(least ? least : 1);
}
