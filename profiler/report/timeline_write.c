#include <stdlib.h>
#include <unistd.h>

#include "timeline.h"

/* Formats show times before the first event. */
enum { FIRST_NS = 1000000000 };

/* A moment of a thread: the end of a span, a launch, a level of memory, or a sample. */
typedef struct moment {
    uint32_t thread;
    uint64_t at_ns, start_ns, number;
    kn__trace_event event;
} moment;

/* Of spans that end together the inner one ends first. */
static int compare(const void *a_of, const void *b_of) {
    const moment *a = a_of, *b = b_of;
    if (a->thread != b->thread) return a->thread < b->thread ? -1 : 1;
    if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
    if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns ? 1 : -1;
    return (a->number > b->number) - (a->number < b->number);
}

static size_t add_moments(moment *out, const kn__timeline *line, uint64_t later) {
    const kn__span *spans = line->spans.at;
    const kn__work_launch *launches = line->launches.at;
    const kn__level *levels = line->levels.at;
    const kn__timeline_point *samples = line->samples.at;
    size_t n = 0;
    for (size_t i = 0; i < line->spans.n; i++) {
        uint64_t start = spans[i].start_ns + later, end = spans[i].end_ns + later;
        out[n++] = (moment){spans[i].thread, end, start, 0, {spans[i].name, start, end}};
    }
    for (size_t i = 0; i < line->launches.n; i++) {
        uint64_t at = launches[i].at_ns + later;
        kn__trace_event event = {&kn__trace_launched, at, launches[i].id};
        out[n++] = (moment){launches[i].thread, at, at, 0, event};
    }
    uint32_t first = line->spans.n ? spans[0].thread : 0; /* the memory's and the counters' */
    for (size_t i = 0; i < line->levels.n; i++) {
        uint64_t at = levels[i].at_ns + later;
        out[n++] = (moment){first, at, at, 0, {NULL, at, levels[i].bytes}};
    }
    for (size_t i = 0; i < line->samples.n; i++) {
        kn__trace_event event = samples[i].event;
        event.start += later;
        out[n++] = (moment){first, event.start, event.start, i + 1, event};
    }
    return n;
}

static const kn__timeline_thread *thread_at(const kn__timeline *line, uint32_t number) {
    for (size_t i = 0; i < line->threads.n_slots; i++) {
        const kn__timeline_thread *t = kn__hash_at(&line->threads, sizeof *t, i);
        if (t->key && t->number == number) return t;
    }
    return NULL;
}

/* The events of one thread; `batch` has room for them. */
static void put_thread(kn__trace_writer *w, const kn__timeline *line, const moment *all, size_t n,
                       kn__trace_event *batch) {
    kn__trace_thread thread;
    const kn__timeline_thread *t = thread_at(line, all[0].thread);
    kn__trace_put_thread(w, &thread, t ? (long)t->tid : 0, t && t->name ? t->name : "");
    for (size_t i = 0; i < n; i++) batch[i] = all[i].event;
    w->format->events(w, &thread, batch, n);
}

static void put_threads(kn__trace_writer *w, const kn__timeline *line, const moment *all, size_t n,
                        kn__trace_event *batch) {
    for (size_t from = 0, to = 0; from < n; from = to) {
        while (to < n && all[to].thread == all[from].thread) to++;
        put_thread(w, line, all + from, to - from, batch);
    }
}

static void put_works(kn__trace_writer *w, const kn__timeline *line, uint64_t later) {
    const kn__work_record *all = line->works.at;
    for (size_t i = 0; i < line->works.n; i++) {
        kn__record record = all[i].record;
        record.start_ns += later;
        record.end_ns += later;
        kn__trace_put_record(w, &record, (uint32_t)all[i].launch);
    }
}

/* All events of a process; those of others in the file are on threads of it too. */
static int64_t pid_of(const kn__timeline *line) {
    const kn__span *spans = line->spans.at;
    const kn__timeline_thread *first = thread_at(line, line->spans.n ? spans[0].thread : 0);
    return first ? first->pid : (int64_t)getpid();
}

kn_status kn__timeline_add(kn__text *text, const kn__timeline *line,
                           const kn__trace_format *format) {
    size_t n = line->spans.n + line->launches.n + line->levels.n + line->samples.n;
    uint64_t from = line->from_ns == UINT64_MAX ? 0 : line->from_ns;
    uint64_t later = from < FIRST_NS ? FIRST_NS : 0;
    moment *all = malloc((n ? n : 1) * sizeof *all);
    kn__trace_event *batch = malloc((n ? n : 1) * sizeof *batch);
    kn__trace_writer *w = calloc(1, sizeof *w);
    if (!all || !batch || !w) {
        free(all);
        free(batch);
        free(w);
        return KN_FAIL(KN_ERR_OOM, "no memory for the trace");
    }
    add_moments(all, line, later);
    qsort(all, n, sizeof *all, compare);
    from += later;
    *w = (kn__trace_writer){.format = format, .clock = {from, from, from, 1}, .out = *text};
    w->pid = (long)pid_of(line);
    format->start(w);
    put_threads(w, line, all, n, batch);
    put_works(w, line, later);
    w->notes = line->report->run.notes;
    kn__trace_end(w, line->report->n_events_skipped);
    *text = w->out;
    free(all);
    free(batch);
    free(w);
    return KN_OK;
}
