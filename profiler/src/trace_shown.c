#include "trace_shown.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "trace_kept.h"

enum { THREADS_MIN = 16, SHARE = 8 /* of the timer's memory: one of so many parts */ };

/* A scope, or a sample. */
typedef struct span {
    const kn__trace_name *name;
    uint64_t start, end; /* ticks; of a counter as in kn__trace_event */
    uint32_t thread;     /* its number */
} span;

typedef struct lane {
    long tid;
    char name[KN__TRACE_NAME_BYTES];
} lane;

static span *ring;
static size_t ring_room;
static uint64_t n_spans, n_lost; /* that came; of these without memory */
static kn__kept records;
static uint64_t n_records; /* that came */
static lane *threads;      /* of the numbers from 1 on */
static uint32_t n_threads, threads_room;

static bool make_ring(void) {
    if (ring) return true;
    size_t room = kn__budget_limit() / SHARE / sizeof *ring;
    if (!kn__budget_take(room * sizeof *ring)) return false;
    ring = malloc(room * sizeof *ring); /* pages not yet written take no memory */
    if (!ring) kn__budget_return(room * sizeof *ring);
    ring_room = ring ? room : 0;
    return ring != NULL;
}

/* Numbers come in order. */
static bool see_thread(const kn__trace_thread *t) {
    if (t->number <= n_threads) return true;
    if (n_threads == threads_room) {
        uint32_t room = threads_room ? 2 * threads_room : THREADS_MIN;
        lane *grown = realloc(threads, room * sizeof *threads);
        if (!grown) return false;
        threads = grown;
        threads_room = room;
    }
    threads[n_threads] = (lane){.tid = t->tid};
    memcpy(threads[n_threads++].name, t->name, KN__TRACE_NAME_BYTES);
    return t->number == n_threads;
}

void kn__shown_events(const kn__trace_thread *thread, const kn__trace_event *events, size_t n) {
    bool has_room = make_ring() && see_thread(thread);
    for (size_t i = 0; i < n; i++) {
        const kn__trace_event *e = &events[i];
        if (!e->name || e->name == &kn__trace_launched || kn__trace_is_range(e)) continue;
        if (has_room) {
            ring[n_spans++ % ring_room] = (span){e->name, e->start, e->end, thread->number};
        } else {
            n_lost++;
        }
    }
}

void kn__shown_record(const kn__record *record, uint32_t launch) {
    n_records++;
    (void)kn__kept_add(&records, record, launch); /* no memory: one that came before those shown */
}

/* --- the timeline --- */

static kn_status add_event(kn__timeline *line, const kn__trace_clock *clock, long pid,
                           const span *s) {
    kn__trace_event e = {s->name, s->start, s->end};
    const kn__trace_counter *c = kn__trace_counter_of(&e);
    uint64_t start = kn__trace_since(clock, s->start);
    if (c) return kn__timeline_sample(line, c->name.label, c->unit, start, kn__trace_value(&e));
    uint32_t number = kn__timeline_thread_of(line, pid, threads[s->thread - 1].tid);
    return kn__timeline_span(line, number, s->name->label, s->name->where, start,
                             kn__trace_since(clock, s->end));
}

static kn_status add_spans(kn__timeline *line, const kn__trace_clock *clock, long pid) {
    uint64_t first = n_spans > ring_room ? n_spans - ring_room : 0;
    for (uint32_t i = 0; i < n_threads; i++) {
        uint32_t number = kn__timeline_thread_of(line, pid, threads[i].tid);
        if (number != KN__NO_THREAD)
            KN_TRY(kn__timeline_name_thread(line, number, threads[i].name));
    }
    for (uint64_t i = first; i < n_spans; i++) {
        const span *s = &ring[i % ring_room];
        KN_TRY(add_event(line, clock, pid, s));
    }
    line->n_before += first + n_lost;
    return KN_OK;
}

static kn_status add_records(kn__timeline *line, const kn__trace_clock *clock) {
    kn__record record;
    uint32_t launch;
    for (size_t i = 0; kn__kept_at(&records, i, &record, &launch); i++) {
        uint64_t zero = clock->start_realtime_ns;
        record.start_ns = record.start_ns > zero ? record.start_ns - zero : 0;
        record.end_ns = record.end_ns > zero ? record.end_ns - zero : 0;
        KN_TRY(kn__timeline_work(line, &record, launch));
    }
    line->n_before += n_records - records.n;
    return KN_OK;
}

kn_status kn__shown_add(kn__timeline *line, const kn__trace_clock *clock, long pid) {
    KN_TRY(add_spans(line, clock, pid));
    KN_TRY(add_records(line, clock));
    kn__timeline_sort(line);
    return KN_OK;
}

void kn__shown_release(void) {
    kn__budget_return(ring_room * sizeof *ring);
    free(ring);
    free(threads);
    kn__kept_release(&records);
    ring = NULL;
    threads = NULL;
    n_threads = threads_room = 0;
    n_spans = n_lost = n_records = ring_room = 0;
}
