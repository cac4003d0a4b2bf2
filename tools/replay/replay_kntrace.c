/* Reads our own binary traces. The events of each thread come in batches, and are sorted by time.
 * Of several pools, the one with the most events is played. */
#include <inttypes.h>
#include <knet/trace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay_formats.h"

enum { POOLS_MAX = 1 << 16, THREADS_MAX = 1 << 20 }; /* created in the life of a process */

typedef struct event {
    kn_trace_event e;
    uint64_t at; /* its offset in the file, for errors */
} event;

typedef struct reader {
    kn__builder *b;
    kn__input *in;
    event *events;
    size_t n, room;
    kn_trace_thread *threads; /* by number */
    size_t n_threads, thread; /* the number in the last THREAD record */
    bool ended;
    uint64_t n_events, n_lost; /* of all kinds and pools */
    uint32_t pool_max;         /* largest number of a pool with events */
    uint32_t n_of_pool[POOLS_MAX];
    char name_of_pool[POOLS_MAX][25];
} reader;

static kn_status read_header(reader *r) {
    kn_trace_header h;
    KN_TRY(kn__input_read(r->in, &h, sizeof h));
    r->b->at = offsetof(kn_trace_header, byte_order);
    if (h.byte_order != 0x01020304) {
        return kn__build_fail(r->b, "byte order 0x%08" PRIx32 " is another machine's",
                              h.byte_order);
    }
    r->b->at = offsetof(kn_trace_header, version);
    if (h.version != KN_TRACE_VERSION || h.record_bytes != sizeof(kn_trace_record)) {
        return kn__build_fail(r->b,
                              "version %" PRIu32 " with records of %" PRIu32
                              " bytes; this command reads version %d with records of %zu",
                              h.version, h.record_bytes, KN_TRACE_VERSION, sizeof(kn_trace_record));
    }
    return KN_OK;
}

static kn_status no_memory(const reader *r) {
    return KN_FAIL(KN_ERR_OOM, "%s: no memory for its events", r->b->path);
}

static kn_status take_end(reader *r, const kn_trace_record *record) {
    if (record->b != r->n_events) {
        return kn__build_fail(r->b, "the file has %" PRIu64 " events, its end says %" PRIu64,
                              r->n_events, record->b);
    }
    r->ended = true;
    r->n_lost = record->a >> 8;
    return KN_OK;
}

static kn_status take_thread(reader *r, const kn_trace_record *record) {
    uint64_t thread = record->a >> 8;
    if (thread >= THREADS_MAX) {
        return kn__build_fail(r->b, "thread number %" PRIu64 "; the limit is %d", thread,
                              THREADS_MAX);
    }
    if (thread >= r->n_threads) {
        size_t n = thread < 2 * r->n_threads ? 2 * r->n_threads : (size_t)thread + 1;
        kn_trace_thread *grown = calloc(n, sizeof *grown);
        if (!grown) return no_memory(r);
        if (r->threads) memcpy(grown, r->threads, r->n_threads * sizeof *grown);
        free(r->threads);
        r->threads = grown;
        r->n_threads = n;
    }
    r->thread = (size_t)thread;
    return KN_OK;
}

static kn_status keep(reader *r, const kn_trace_event *e) {
    if (r->n == KN__STEPS_MAX) {
        return kn__build_fail(r->b, "more than %d events; cut the trace", KN__STEPS_MAX);
    }
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 4096;
        event *grown = realloc(r->events, room * sizeof *grown);
        if (!grown) return no_memory(r);
        r->events = grown;
        r->room = room;
    }
    r->events[r->n++] = (event){*e, r->b->at};
    return KN_OK;
}

static kn_status take_event(reader *r, const kn_trace_thread *thread, const kn_trace_event *e) {
    if (e->pool >= POOLS_MAX) {
        return kn__build_fail(r->b, "pool number %" PRIu32 "; the limit is %d", e->pool, POOLS_MAX);
    }
    r->n_events++;
    if (e->pool == 0) return KN_OK; /* it came too late for the trace before */
    if (e->kind == KN_TRACE_POOL) memcpy(r->name_of_pool[e->pool], thread->name, 24);
    if (e->kind == KN_TRACE_OOM) r->b->trace.n_ooms++;
    if (e->kind > KN_TRACE_USE) return KN_OK;
    r->n_of_pool[e->pool]++;
    if (e->pool > r->pool_max) r->pool_max = e->pool;
    return keep(r, e);
}

static bool kind_known(unsigned kind) {
#define X(name, value, text)                                                                       \
    if (kind == (value)) return true;
    KN_TRACE_KIND_LIST(X)
#undef X
    return false;
}

static kn_status take(reader *r, const kn_trace_record *record) {
    unsigned kind = kn_trace_kind_of(record);
    if (!kind_known(kind)) return kn__build_fail(r->b, "unknown kind of record %u", kind);
    if (kind == KN_TRACE_END) return take_end(r, record);
    if (kind == KN_TRACE_THREAD) return take_thread(r, record);
    if (!r->threads) return kn__build_fail(r->b, "a record before that of its thread");
    kn_trace_event e;
    kn_trace_thread *thread = &r->threads[r->thread];
    return kn_trace_event_read(&e, thread, record) ? take_event(r, thread, &e) : KN_OK;
}

/* At the end of the file, after the last whole record. */
static kn_status check_whole(reader *r, size_t odd_bytes) {
    if (r->b->lenient) return KN_OK;
    if (odd_bytes) {
        return kn__build_fail(r->b,
                              "the file ends %zu bytes into a record; --partial plays the "
                              "events before it",
                              odd_bytes);
    }
    if (!r->ended) {
        return kn__build_fail(
            r->b,
            "the trace has no end: its program was killed or still runs, or a write failed; "
            "--partial plays the events that it has");
    }
    if (r->n_lost) {
        return kn__build_fail(r->b,
                              "%" PRIu64
                              " events were lost when the trace was written; --partial "
                              "plays the others",
                              r->n_lost);
    }
    return KN_OK;
}

static kn_status read_records(reader *r) {
    for (;;) {
        const unsigned char *bytes;
        size_t got;
        kn_trace_record record;
        r->b->at = r->in->offset;
        KN_TRY(kn__input_peek(&bytes, &got, r->in, sizeof record));
        if (got < sizeof record) return check_whole(r, got);
        if (r->ended) return kn__build_fail(r->b, "records after the end");
        KN_TRY(kn__input_read(r->in, &record, sizeof record));
        KN_TRY(take(r, &record));
    }
}

/* Stable: a thread's events with the same time must keep their order. */
static bool merge_sort(event *events, size_t n) {
    event *other = malloc(n * sizeof *other), *from = events, *to = other;
    if (!other) return false;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * run) {
            size_t mid = lo + run < n ? lo + run : n, hi = lo + 2 * run < n ? lo + 2 * run : n;
            size_t a = lo, b = mid;
            for (size_t i = lo; i < hi; i++) {
                bool left = b >= hi || (a < mid && from[a].e.time_ticks <= from[b].e.time_ticks);
                to[i] = left ? from[a++] : from[b++];
            }
        }
        event *swap = from;
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
        sorted = r->events[i - 1].e.time_ticks <= r->events[i].e.time_ticks;
    }
    if (sorted || merge_sort(r->events, r->n)) return KN_OK;
    return KN_FAIL(KN_ERR_OOM, "%s: no memory to sort its events", r->b->path);
}

static uint32_t choose_pool(reader *r) {
    uint32_t best = 0, n_pools = 0;
    for (uint32_t i = 0; i <= r->pool_max; i++) {
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
    switch (e->kind) {
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
        r->b->at = r->events[i].at;
        if (r->events[i].e.pool == pool) KN_TRY(build(r->b, &r->events[i].e));
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
    if (status == KN_OK) status = read_records(r);
    if (status == KN_OK) status = build_all(r);
    free(r->events);
    free(r->threads);
    free(r);
    return status;
}
