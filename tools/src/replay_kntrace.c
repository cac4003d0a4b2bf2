/* Our own binary traces. Threads' events come in batches, so they are put in order of time; of
 * several pools the one with the most events is played. */
#include <inttypes.h>
#include <knet/trace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay_input.h"

enum { POOLS_MAX = 4096, KIND_LAST = KN_TRACE_END };

typedef struct reader {
    kn__builder *b;
    kn__input *in;
    kn_trace_event *events;
    size_t n, room;
    bool ended;
    uint64_t n_lost;
    uint32_t n_of_pool[POOLS_MAX];
    char name_of_pool[POOLS_MAX][25];
} reader;

static unsigned kind_of(const kn_trace_event *e) { return e->pool_kind & 0xff; }
static uint32_t pool_of(const kn_trace_event *e) { return e->pool_kind >> 8; }

static kn_status read_header(reader *r) {
    kn_trace_header h;
    KN_TRY(kn__input_read(r->in, &h, sizeof h));
    r->b->at = offsetof(kn_trace_header, byte_order);
    if (h.byte_order != 0x01020304) {
        return kn__build_fail(r->b, "byte order 0x%08" PRIx32 " is another machine's",
                              h.byte_order);
    }
    r->b->at = offsetof(kn_trace_header, version);
    if (h.version != KN_TRACE_VERSION || h.event_bytes != sizeof(kn_trace_event)) {
        return kn__build_fail(r->b,
                              "version %" PRIu32 " with events of %" PRIu32
                              " bytes; this command reads version %d with events of %zu",
                              h.version, h.event_bytes, KN_TRACE_VERSION, sizeof(kn_trace_event));
    }
    return KN_OK;
}

static kn_status check_end(reader *r, const kn_trace_event *e, uint64_t n_before) {
    if (e->ptr != n_before) {
        return kn__build_fail(r->b, "%" PRIu64 " events are here, %" PRIu64 " were written",
                              n_before, e->ptr);
    }
    r->ended = true;
    r->n_lost = e->size;
    return KN_OK;
}

static kn_status keep(reader *r, const kn_trace_event *e, uint64_t n_before) {
    if (r->n == KN__STEPS_MAX) {
        return kn__build_fail(r->b, "more than %d events; cut the trace", KN__STEPS_MAX);
    }
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 4096;
        kn_trace_event *grown = realloc(r->events, room * sizeof *grown);
        if (!grown) return KN_FAIL(KN_ERR_OOM, "%s: no memory for its events", r->b->path);
        r->events = grown;
        r->room = room;
    }
    r->events[r->n] = *e;
    r->events[r->n++].thread = (uint32_t)n_before; /* its place in the file, for errors */
    return KN_OK;
}

static kn_status take(reader *r, const kn_trace_event *e, uint64_t n_before) {
    unsigned kind = kind_of(e);
    uint32_t pool = pool_of(e);
    if (kind == 0 || kind > KIND_LAST) {
        return kn__build_fail(r->b, "%u is no kind of event (1 to %d are)", kind, KIND_LAST);
    }
    if (pool >= POOLS_MAX) {
        return kn__build_fail(r->b, "pool %" PRIu32 " is beyond %d", pool, POOLS_MAX);
    }
    if (kind == KN_TRACE_END) return check_end(r, e, n_before);
    if (kind == KN_TRACE_CLOCK) return KN_OK;
    if (kind == KN_TRACE_POOL) memcpy(r->name_of_pool[pool], &e->ptr, 24);
    if (kind == KN_TRACE_OOM) r->b->trace.n_ooms++;
    if (kind > KN_TRACE_USE) return KN_OK;
    r->n_of_pool[pool]++;
    return keep(r, e, n_before);
}

/* At the file's end there are fewer bytes than an event's. */
static kn_status check_whole(reader *r, size_t odd_bytes) {
    if (r->b->lenient) return KN_OK;
    if (odd_bytes) {
        return kn__build_fail(r->b,
                              "the file ends %zu bytes into an event; --partial plays the "
                              "rest",
                              odd_bytes);
    }
    if (!r->ended) {
        return kn__build_fail(r->b,
                              "the file ends without an end event: its program or its disk "
                              "did not get so far; --partial plays what is there");
    }
    if (r->n_lost) {
        return kn__build_fail(r->b,
                              "%" PRIu64
                              " events were lost when it was written; --partial "
                              "plays the others",
                              r->n_lost);
    }
    return KN_OK;
}

static kn_status read_events(reader *r) {
    for (uint64_t n_before = 0;; n_before++) {
        const unsigned char *bytes;
        size_t got;
        kn_trace_event e;
        r->b->at = r->in->offset;
        KN_TRY(kn__input_peek(&bytes, &got, r->in, sizeof e));
        if (got < sizeof e) return check_whole(r, got);
        if (r->ended) return kn__build_fail(r->b, "there are events behind the end event");
        KN_TRY(kn__input_read(r->in, &e, sizeof e));
        KN_TRY(take(r, &e, n_before));
    }
}

/* A stable sort: events of one time stay as they stood, as those of one thread must. */
static bool merge_sort(kn_trace_event *events, size_t n) {
    kn_trace_event *other = malloc(n * sizeof *other), *from = events, *to = other;
    if (!other) return false;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * run) {
            size_t mid = lo + run < n ? lo + run : n, hi = lo + 2 * run < n ? lo + 2 * run : n;
            size_t a = lo, b = mid;
            for (size_t i = lo; i < hi; i++) {
                bool left = a < mid && (b >= hi || from[a].time_ticks <= from[b].time_ticks);
                to[i] = left ? from[a++] : from[b++];
            }
        }
        kn_trace_event *swap = from;
        from = to;
        to = swap;
    }
    if (from != events) memcpy(events, from, n * sizeof *events);
    free(other);
    return true;
}

static kn_status sort_by_time(reader *r) {
    bool sorted = true;
    for (size_t i = 1; i < r->n && sorted; i++) {
        sorted = r->events[i - 1].time_ticks <= r->events[i].time_ticks;
    }
    if (sorted || merge_sort(r->events, r->n)) return KN_OK;
    return KN_FAIL(KN_ERR_OOM, "%s: no memory to sort its events", r->b->path);
}

static uint32_t choose_pool(reader *r) {
    uint32_t best = 0, n_pools = 0;
    for (uint32_t i = 0; i < POOLS_MAX; i++) {
        n_pools += r->n_of_pool[i] > 0;
        if (r->n_of_pool[i] > r->n_of_pool[best]) best = i;
    }
    if (n_pools > 1) {
        snprintf(r->b->trace.about, sizeof r->b->trace.about,
                 "pool \"%s\", the busiest of %" PRIu32, r->name_of_pool[best], n_pools);
    }
    return best;
}

static kn_status build(kn__builder *b, const kn_trace_event *e) {
    switch (kind_of(e)) {
        case KN_TRACE_ALLOC:
            return kn__build_alloc(b, e->ptr, e->size, e->stream);
        case KN_TRACE_FREE:
            return kn__build_free(b, e->ptr, e->size);
        default:
            return kn__build_use(b, e->ptr, e->stream);
    }
}

static kn_status build_all(reader *r) {
    KN_TRY(sort_by_time(r));
    uint32_t pool = choose_pool(r);
    r->b->late_start = true;
    for (size_t i = 0; i < r->n; i++) {
        r->b->at = sizeof(kn_trace_header) + r->events[i].thread * sizeof *r->events;
        if (pool_of(&r->events[i]) == pool) KN_TRY(build(r->b, &r->events[i]));
    }
    return KN_OK;
}

kn_status kn__read_kntrace(kn__builder *b, kn__input *in) {
    reader *r = calloc(1, sizeof *r);
    if (!r) return KN_FAIL(KN_ERR_OOM, "%s: no memory to read it", b->path);
    r->b = b;
    r->in = in;
    b->trace.format = "Knet.c trace";
    kn_status status = read_header(r);
    if (status == KN_OK) status = read_events(r);
    if (status == KN_OK) status = build_all(r);
    free(r->events);
    free(r);
    return status;
}
