/* What a program did over time: the spans of its threads and the work of its GPUs, as the traces of
 * several tools tell it. From it come the rows of a report, and traces in our formats.
 *
 *     kn__timeline line;
 *     kn__timeline_init(&line, &report);
 *     uint32_t thread = kn__timeline_thread_of(&line, pid, tid);
 *     KN_TRY_GOTO(status, kn__timeline_span(&line, thread, "forward", NULL, start, end));
 *     KN_TRY_GOTO(status, kn__timeline_report(&line));        // rows of `report`
 *
 * Times are in ns of one clock, any. Texts are copied into the report, which outlives the timeline.
 */
#ifndef KN_REPORT_TIMELINE_H
#define KN_REPORT_TIMELINE_H

#include "record.h"
#include "report.h"
#include "text.h"
#include "trace_format.h"

typedef struct kn__timeline_thread {
    uint64_t key;
    int64_t pid, tid;
    const char *name;
    uint32_t number; /* from 0 */
} kn__timeline_thread;

typedef struct kn__span {
    uint32_t thread;
    const kn__trace_name *name;
    uint64_t start_ns, end_ns;
    kn__row *row; /* kn__timeline_report's */
} kn__span;

typedef struct kn__work_launch {
    uint32_t thread;
    uint64_t id, at_ns;
    kn__row *row;
} kn__work_launch;

typedef struct kn__work_record {
    kn__record record;
    uint64_t launch; /* the id of its launch; 0: not known */
} kn__work_record;

typedef struct kn__level {
    uint64_t at_ns, bytes;
} kn__level;

typedef struct kn__timeline_point {
    kn__trace_event event; /* of a counter; its time is in ns */
    uint64_t number;       /* its place among those added */
} kn__timeline_point;

/* A block was allocated, or freed: `at.id` is its address, `at.row` the row that was open. */
typedef struct kn__block_change {
    kn__work_launch at;
    uint64_t number; /* its place among those added */
    uint64_t device;
    int64_t bytes; /* below 0: freed */
    int64_t total; /* of the device, after it; -1: not known */
    uint64_t live; /* of all devices, after it; kn__timeline_count's */
} kn__block_change;

/* An array that grows. */
typedef struct kn__items {
    void *at;
    size_t n, room;
} kn__items;

typedef struct kn__timeline {
    kn__report *report; /* of the owner */
    kn__hash threads, names, counters;
    kn__items spans, launches, works, levels, samples, changes; /* of kn__span and so on */
    uint64_t from_ns, until_ns;                                 /* first start and last end */
    uint64_t live_before;                                       /* before the first change */
    uint64_t n_before;                                          /* events that were not kept */
    uint64_t n_refused; /* samples of counters beyond KN__TRACE_COUNTERS_MAX */
    const char *source; /* of GPU work, for the report: "kineto" */
} kn__timeline;

#define KN__NO_THREAD UINT32_MAX

void kn__timeline_init(kn__timeline *out, kn__report *report);
/* The report's own, released with it. NULL: no memory. */
kn__timeline *kn__timeline_make(kn__report *report);
/* The report has none from now on. */
void kn__timeline_drop(kn__report *report);
void kn__timeline_release(kn__timeline *line);

/* The number of a thread; made at first sight. KN__NO_THREAD: no memory. */
uint32_t kn__timeline_thread_of(kn__timeline *line, int64_t pid, int64_t tid);
/* Errors of these: OOM. */
KN_MUST_CHECK kn_status kn__timeline_name_thread(kn__timeline *line, uint32_t thread,
                                                 const char *name);
KN_MUST_CHECK kn_status kn__timeline_span(kn__timeline *line, uint32_t thread, const char *label,
                                          const char *where, uint64_t start_ns, uint64_t end_ns);
/* GPU work was launched; its record carries the same id. */
KN_MUST_CHECK kn_status kn__timeline_launch(kn__timeline *line, uint32_t thread, uint64_t id,
                                            uint64_t at_ns);
/* The record's name is copied. */
KN_MUST_CHECK kn_status kn__timeline_work(kn__timeline *line, const kn__record *record,
                                          uint64_t launch);
/* Live bytes of all pools changed. */
KN_MUST_CHECK kn_status kn__timeline_level(kn__timeline *line, uint64_t at_ns, uint64_t bytes);

/* A sample of the counter of this name, made at first sight with this unit. */
KN_MUST_CHECK kn_status kn__timeline_sample(kn__timeline *line, const char *name, const char *unit,
                                            uint64_t at_ns, long double value);

/* A block of a thread; number and live are left 0. */
KN_MUST_CHECK kn_status kn__timeline_change(kn__timeline *line, const kn__block_change *change);
/* After the last change: adds their levels. Errors: OOM. */
KN_MUST_CHECK kn_status kn__timeline_count(kn__timeline *line);

/* Before a trace is written; kn__timeline_report does it too. */
void kn__timeline_sort(kn__timeline *line);
/* Fills the report: a row for each path of spans that lie in each other on a thread, GPU work below
 * the innermost span around its launch. Errors: OOM. */
KN_MUST_CHECK kn_status kn__timeline_report(kn__timeline *line);

/* Parts of kn__timeline_report: the order of time, and the columns of memory. Errors: OOM. */
void kn__timeline_changes_sort(kn__timeline *line);
KN_MUST_CHECK kn_status kn__timeline_add_memory(kn__timeline *line);

/* Adds the trace, of a timeline in order. Errors: OOM. */
KN_MUST_CHECK kn_status kn__timeline_add(kn__text *text, const kn__timeline *line,
                                         const kn__trace_format *format);

#endif
