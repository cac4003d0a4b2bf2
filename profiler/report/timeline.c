#include "timeline.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "counters.h"

enum { ROOM_MIN = 256, DEPTH_MAX = 200, BINS_PER_OCTAVE = 16 };
/* Clocks that were rounded may let a span end a little after the one around it. */
enum { SLACK_NS = 1000 };

typedef struct name_slot {
    uint64_t key;
    kn__trace_name *name;
} name_slot;

typedef struct counter_slot {
    uint64_t key;
    const kn__trace_counters *counter;
} counter_slot;

static kn_status no_memory(void) { return KN_FAIL(KN_ERR_OOM, "no memory for the trace"); }

void kn__timeline_init(kn__timeline *out, kn__report *report) {
    *out = (kn__timeline){.report = report, .from_ns = UINT64_MAX};
}

kn__timeline *kn__timeline_make(kn__report *report) {
    KN_ASSERT(!report->timeline);
    report->timeline = malloc(sizeof *report->timeline);
    report->timeline_release = kn__timeline_release;
    if (report->timeline) kn__timeline_init(report->timeline, report);
    return report->timeline;
}

void kn__timeline_drop(kn__report *report) {
    if (report->timeline) report->timeline_release(report->timeline);
    free(report->timeline);
    report->timeline = NULL;
}

void kn__timeline_release(kn__timeline *line) {
    kn__hash_release(&line->threads);
    kn__hash_release(&line->names);
    kn__hash_release(&line->counters);
    free(line->spans.at);
    free(line->launches.at);
    free(line->works.at);
    free(line->levels.at);
    free(line->samples.at);
    free(line->changes.at);
    *line = (kn__timeline){.report = line->report, .from_ns = UINT64_MAX};
}

/* --- adding --- */

/* Room for one more item, or NULL. */
static void *add_item(kn__items *items, size_t item_bytes) {
    if (items->n == items->room) {
        size_t room = items->room ? 2 * items->room : ROOM_MIN;
        void *at = realloc(items->at, room * item_bytes);
        if (!at) return NULL;
        items->at = at;
        items->room = room;
    }
    return (char *)items->at + items->n++ * item_bytes;
}

static void extend(kn__timeline *line, uint64_t start_ns, uint64_t end_ns) {
    if (start_ns < line->from_ns) line->from_ns = start_ns;
    if (end_ns > line->until_ns) line->until_ns = end_ns;
}

uint32_t kn__timeline_thread_of(kn__timeline *line, int64_t pid, int64_t tid) {
    kn__hash *all = &line->threads;
    if (kn__hash_is_full(all) && !kn__hash_grow(all, sizeof(kn__timeline_thread), 16))
        return KN__NO_THREAD;
    uint64_t key = kn__hash_pair((uint64_t)pid, (uint64_t)tid);
    kn__timeline_thread *t = kn__hash_find(all, sizeof *t, key);
    while (t->key && (t->pid != pid || t->tid != tid)) t = kn__hash_after(all, sizeof *t, t);
    if (t->key) return t->number;
    uint32_t number = (uint32_t)all->n_used;
    kn__hash_use(all, t, key);
    *t = (kn__timeline_thread){key, pid, tid, NULL, number};
    return number;
}

static kn__timeline_thread *thread_at(const kn__timeline *line, uint32_t number) {
    for (size_t i = 0; i < line->threads.n_slots; i++) {
        kn__timeline_thread *t = kn__hash_at(&line->threads, sizeof *t, i);
        if (t->key && t->number == number) return t;
    }
    return NULL;
}

kn_status kn__timeline_name_thread(kn__timeline *line, uint32_t thread, const char *name) {
    kn__timeline_thread *t = thread_at(line, thread);
    const char *kept = t ? kn__report_keep(line->report, name) : NULL;
    if (!kept) return no_memory();
    t->name = kept;
    return KN_OK;
}

static bool is_same(const kn__trace_name *name, const char *label, const char *where) {
    return strcmp(name->label, label) == 0 && strcmp(name->where ? name->where : "", where) == 0;
}

/* One name for all spans of a label. */
static const kn__trace_name *name_of(kn__timeline *line, const char *label, const char *where) {
    kn__hash *all = &line->names;
    if (!where) where = "";
    if (kn__hash_is_full(all) && !kn__hash_grow(all, sizeof(name_slot), 64)) return NULL;
    uint64_t key = kn__hash_text(kn__hash_text(0, where), label);
    name_slot *slot = kn__hash_find(all, sizeof *slot, key);
    while (slot->key && !is_same(slot->name, label, where)) {
        slot = kn__hash_after(all, sizeof *slot, slot);
    }
    if (slot->key) return slot->name;
    kn__trace_name *name = kn__report_bytes(line->report, sizeof *name);
    if (!name) return NULL;
    name->label = kn__report_keep(line->report, label);
    name->where = where[0] ? kn__report_keep(line->report, where) : NULL;
    if (!name->label || (where[0] && !name->where)) return NULL;
    kn__hash_use(all, slot, key);
    return slot->name = name;
}

kn_status kn__timeline_span(kn__timeline *line, uint32_t thread, const char *label,
                            const char *where, uint64_t start_ns, uint64_t end_ns) {
    const kn__trace_name *name = name_of(line, label, where);
    kn__span *span = name && thread != KN__NO_THREAD ? add_item(&line->spans, sizeof *span) : NULL;
    if (!span) return no_memory();
    *span = (kn__span){thread, name, start_ns, end_ns < start_ns ? start_ns : end_ns, NULL};
    extend(line, start_ns, span->end_ns);
    return KN_OK;
}

kn_status kn__timeline_launch(kn__timeline *line, uint32_t thread, uint64_t id, uint64_t at_ns) {
    kn__work_launch *l =
        thread != KN__NO_THREAD ? add_item(&line->launches, sizeof(kn__work_launch)) : NULL;
    if (!l) return no_memory();
    *l = (kn__work_launch){thread, id, at_ns, NULL};
    extend(line, at_ns, at_ns);
    return KN_OK;
}

kn_status kn__timeline_work(kn__timeline *line, const kn__record *record, uint64_t launch) {
    const kn__trace_name *name = name_of(line, record->name ? record->name : "(unnamed)", NULL);
    kn__work_record *work = name ? add_item(&line->works, sizeof *work) : NULL;
    if (!work) return no_memory();
    *work = (kn__work_record){*record, launch};
    work->record.name = name->label;
    if (record->end_ns < record->start_ns) work->record.end_ns = record->start_ns;
    extend(line, record->start_ns, work->record.end_ns);
    return KN_OK;
}

kn_status kn__timeline_level(kn__timeline *line, uint64_t at_ns, uint64_t bytes) {
    kn__level *level = add_item(&line->levels, sizeof *level);
    if (!level) return no_memory();
    *level = (kn__level){at_ns, bytes};
    extend(line, at_ns, at_ns);
    return KN_OK;
}

/* NULL with *is_full: there are too many. */
static const kn__trace_counters *counter_of(kn__timeline *line, const char *name, const char *unit,
                                            bool *is_full) {
    kn__hash *all = &line->counters;
    if (kn__hash_is_full(all) && !kn__hash_grow(all, sizeof(counter_slot), 16)) return NULL;
    uint64_t key = kn__hash_text(0, name);
    counter_slot *slot = kn__hash_find(all, sizeof *slot, key);
    while (slot->key && strcmp(slot->counter->whole.name.label, name) != 0) {
        slot = kn__hash_after(all, sizeof *slot, slot);
    }
    if (slot->key) return slot->counter;
    *is_full = all->n_used == KN__TRACE_COUNTERS_MAX;
    if (*is_full) return NULL;
    kn__trace_counters *made = kn__report_bytes(line->report, sizeof *made);
    const char *kept = kn__report_keep(line->report, name);
    const char *kept_unit = kn__report_keep(line->report, unit);
    if (!made || !kept || !kept_unit) return NULL;
    kn__trace_counter_init(made, kept, kept_unit, (uint32_t)all->n_used);
    kn__hash_use(all, slot, key);
    return slot->counter = made;
}

kn_status kn__timeline_sample(kn__timeline *line, const char *name, const char *unit,
                              uint64_t at_ns, long double value) {
    bool is_full = false;
    const kn__trace_counters *counter = counter_of(line, name, unit, &is_full);
    line->n_refused += is_full;
    if (is_full) return KN_OK;
    kn__timeline_point *sample = counter ? add_item(&line->samples, sizeof *sample) : NULL;
    if (!sample) return no_memory();
    *sample = (kn__timeline_point){kn__trace_sample(counter, at_ns, value), line->samples.n};
    extend(line, at_ns, at_ns);
    return KN_OK;
}

kn_status kn__timeline_change(kn__timeline *line, const kn__block_change *change) {
    kn__block_change *c =
        change->at.thread != KN__NO_THREAD ? add_item(&line->changes, sizeof *c) : NULL;
    if (!c) return no_memory();
    *c = *change;
    c->number = line->changes.n;
    extend(line, c->at.at_ns, c->at.at_ns);
    return KN_OK;
}

/* --- order --- */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* By thread and start; of those that start together the longest comes first. */
static int compare_spans(const void *a_of, const void *b_of) {
    const kn__span *a = a_of, *b = b_of;
    if (a->thread != b->thread) return ORDER(a->thread, b->thread);
    if (a->start_ns != b->start_ns) return ORDER(a->start_ns, b->start_ns);
    return -ORDER(a->end_ns, b->end_ns);
}

static int compare_launches(const void *a_of, const void *b_of) {
    const kn__work_launch *a = a_of, *b = b_of;
    if (a->thread != b->thread) return ORDER(a->thread, b->thread);
    return ORDER(a->at_ns, b->at_ns);
}

static int compare_threads(const void *a_of, const void *b_of) {
    const kn__block_change *a = a_of, *b = b_of;
    int order = compare_launches(&a->at, &b->at);
    return order ? order : ORDER(a->number, b->number);
}

static int compare_works(const void *a_of, const void *b_of) {
    const kn__record *a = &((const kn__work_record *)a_of)->record,
                     *b = &((const kn__work_record *)b_of)->record;
    if (a->start_ns != b->start_ns) return ORDER(a->start_ns, b->start_ns);
    return ORDER(a->end_ns, b->end_ns);
}

static int compare_levels(const void *a_of, const void *b_of) {
    return ORDER(((const kn__level *)a_of)->at_ns, ((const kn__level *)b_of)->at_ns);
}

static int compare_samples(const void *a_of, const void *b_of) {
    const kn__timeline_point *a = a_of, *b = b_of;
    if (a->event.start != b->event.start) return ORDER(a->event.start, b->event.start);
    return ORDER(a->number, b->number);
}

static void sort(kn__items *items, size_t item_bytes, int (*order)(const void *, const void *)) {
    if (items->n > 1) qsort(items->at, items->n, item_bytes, order);
}

/* --- rows --- */

/* The spans that are open at a moment of a thread, the outermost first. */
typedef struct stack {
    const kn__span *open[DEPTH_MAX];
    int n;
} stack;

/* Where times were rounded to a moment, it is inside a span that ends then, but for another moment.
 */
static bool is_over(const kn__span *open, const kn__span *span) {
    if (open->end_ns != span->start_ns) return open->end_ns < span->start_ns;
    return span->end_ns > span->start_ns || open->start_ns == open->end_ns;
}

/* The innermost open span that has this one in it; ranges of other tools may overlap. */
static kn__row *row_around(const kn__timeline *line, const stack *s, const kn__span *span) {
    for (int i = s->n - 1; i >= 0; i--) {
        if (s->open[i]->end_ns + SLACK_NS >= span->end_ns) return s->open[i]->row;
    }
    return &line->report->root;
}

static void count_call(kn__row *row, const kn__span *span, uint64_t from_ns) {
    uint64_t spent = span->end_ns - span->start_ns, since = span->start_ns - from_ns;
    row->n_calls++;
    row->n_ended++;
    row->time_ns += spent;
    row->ended_ns += (double)spent;
    row->squares_ns2 += (double)spent * (double)spent;
    if (spent < row->min_ns) row->min_ns = spent;
    if (spent > row->max_ns) row->max_ns = spent;
    if (since < row->first_start) {
        row->first_start = since;
        row->first_ns = spent;
    }
}

static kn_status place_span(kn__timeline *line, stack *s, kn__span *span) {
    while (s->n && is_over(s->open[s->n - 1], span)) s->n--;
    kn__row *parent = row_around(line, s, span);
    if (s->n == DEPTH_MAX) {
        line->report->n_unrecorded++;
        return KN_OK;
    }
    span->row = kn__report_row(line->report, parent, span->name->label);
    if (!span->row) return no_memory();
    if (!span->row->where) span->row->where = span->name->where;
    count_call(span->row, span, line->from_ns);
    s->open[s->n++] = span;
    return KN_OK;
}

/* Launches, or changes of memory, of a thread come in order, as its spans do: each belongs to the
 * span that was open.
 */
typedef struct queue {
    const kn__items *items;
    size_t item_bytes, next;
} queue;

static void place_until(queue *q, const stack *s, uint32_t thread, uint64_t before_ns) {
    for (; q->next < q->items->n; q->next++) {
        kn__work_launch *l = (void *)((char *)q->items->at + q->next * q->item_bytes);
        if (l->thread > thread || (l->thread == thread && l->at_ns >= before_ns)) break;
        if (l->thread < thread) continue;
        int i = s->n;
        while (i > 0 && s->open[i - 1]->end_ns < l->at_ns) i--;
        l->row = i > 0 ? s->open[i - 1]->row : NULL;
    }
}

static kn_status place_spans(kn__timeline *line) {
    kn__span *all = line->spans.at;
    stack s = {.n = 0};
    queue launches = {&line->launches, sizeof(kn__work_launch), 0};
    queue changes = {&line->changes, sizeof(kn__block_change), 0};
    for (size_t i = 0; i <= line->spans.n && line->spans.n; i++) {
        bool is_last = i == line->spans.n;
        if (i && (is_last || all[i].thread != all[i - 1].thread)) {
            place_until(&launches, &s, all[i - 1].thread, UINT64_MAX);
            place_until(&changes, &s, all[i - 1].thread, UINT64_MAX);
            s.n = 0;
            line->report->n_threads++;
        }
        if (is_last) break;
        place_until(&launches, &s, all[i].thread, all[i].start_ns);
        place_until(&changes, &s, all[i].thread, all[i].start_ns);
        KN_TRY(place_span(line, &s, &all[i]));
    }
    return KN_OK;
}

/* --- how calls are spread --- */

static int compare_calls(const void *a_of, const void *b_of) {
    const kn__span *a = *(const kn__span *const *)a_of, *b = *(const kn__span *const *)b_of;
    if (a->row != b->row) return ORDER((uintptr_t)a->row, (uintptr_t)b->row);
    return ORDER(a->end_ns - a->start_ns, b->end_ns - b->start_ns);
}

/* Times of one row, shortest first. */
static kn_status add_times(kn__report *report, const kn__span *const *calls, size_t n) {
    kn__time_bin bins[KN__TIME_BINS_MAX];
    int n_bins = 0;
    double top = -1;
    for (size_t i = 0; i < n; i++) {
        double ns = (double)(calls[i]->end_ns - calls[i]->start_ns);
        if (ns > top && n_bins < KN__TIME_BINS_MAX) {
            bins[n_bins++] = (kn__time_bin){ns, 0};
            top = ns * (1 + 1.0 / BINS_PER_OCTAVE);
        }
        bins[n_bins - 1].n++;
    }
    return kn__report_add_times(report, calls[0]->row, bins, n_bins);
}

static kn_status add_all_times(kn__timeline *line) {
    size_t n = line->spans.n;
    const kn__span *all = line->spans.at;
    if (!n) return KN_OK;
    const kn__span **calls = malloc(n * sizeof *calls);
    if (!calls) return no_memory();
    for (size_t i = 0; i < n; i++) calls[i] = &all[i];
    qsort(calls, n, sizeof *calls, compare_calls);
    kn_status status = KN_OK;
    for (size_t from = 0, to = 0; from < n && status >= 0; from = to) {
        while (to < n && calls[to]->row == calls[from]->row) to++;
        if (calls[from]->row) status = add_times(line->report, calls + from, to - from);
    }
    free(calls);
    return status;
}

/* --- GPU work --- */

typedef struct launch_slot {
    uint64_t key, id;
    kn__row *row;
} launch_slot;

/* The rows of launches by their ids. */
static kn_status index_launches(kn__hash *out, const kn__timeline *line) {
    const kn__work_launch *all = line->launches.at;
    for (size_t i = 0; i < line->launches.n; i++) {
        if (kn__hash_is_full(out) && !kn__hash_grow(out, sizeof(launch_slot), 64))
            return no_memory();
        launch_slot *slot = kn__hash_put(out, sizeof *slot, kn__hash_pair(1, all[i].id));
        slot->id = all[i].id;
        slot->row = all[i].row;
    }
    return KN_OK;
}

static kn_status extra_row(kn__row **out, kn__report *report) {
    *out = kn__report_row(report, &report->root, "~unattributed~");
    if (!*out) return no_memory();
    (*out)->is_extra = true;
    return KN_OK;
}

static kn_status place_work(kn__timeline *line, const kn__hash *launches,
                            const kn__work_record *work) {
    kn__report *report = line->report;
    kn__balance *b = &report->balance;
    const kn__record *r = &work->record;
    const launch_slot *slot =
        work->launch ? kn__hash_get(launches, sizeof *slot, kn__hash_pair(1, work->launch)) : NULL;
    kn__row *row = slot ? slot->row : NULL;
    if (!row) {
        KN_TRY(extra_row(&row, report));
        b->unattributed_ns += r->end_ns - r->start_ns;
        b->n_unattributed++;
    }
    kn__row *leaf = kn__report_row(report, row, r->name);
    if (!leaf) return no_memory();
    leaf->is_kernel = leaf->n_calls == 0;
    leaf->gpu_ns += r->end_ns - r->start_ns;
    leaf->gpu_bytes += r->bytes;
    leaf->n_gpu++;
    b->launched++;
    b->timed++;
    return KN_OK;
}

static kn__gpu_device *device_of(kn__gpu_use *gpu, uint64_t device) {
    for (int i = 0; i < gpu->n; i++) {
        if (gpu->devices[i].device == device) return &gpu->devices[i];
    }
    if (gpu->n == KN__GPUS_MAX) return NULL;
    gpu->devices[gpu->n] = (kn__gpu_device){.device = device, .first_ns = UINT64_MAX};
    return &gpu->devices[gpu->n++];
}

static kn__gpu_stream *stream_of(kn__gpu_device *d, uint64_t stream) {
    for (int i = 0; i < d->n_streams; i++) {
        if (d->streams[i].stream == stream) return &d->streams[i];
    }
    if (d->n_streams == KN__STREAMS_MAX) return &d->streams[KN__STREAMS_MAX - 1];
    d->streams[d->n_streams] = (kn__gpu_stream){.stream = stream};
    return &d->streams[d->n_streams++];
}

/* In order of starts: busy is the union over the streams. */
static void count_use(kn__gpu_use *gpu, const kn__record *r) {
    kn__gpu_device *d = device_of(gpu, r->device);
    if (!d) return;
    kn__gpu_stream *s = stream_of(d, r->stream);
    s->n++;
    s->busy_ns += r->end_ns - r->start_ns;
    if (d->first_ns == UINT64_MAX) d->first_ns = d->last_ns = r->start_ns;
    uint64_t from = r->start_ns > d->last_ns ? r->start_ns : d->last_ns;
    if (from > d->last_ns) d->idle_ns += from - d->last_ns;
    if (r->end_ns > from) d->busy_ns += r->end_ns - from;
    if (r->end_ns > d->last_ns) d->last_ns = r->end_ns;
}

static kn_status place_works(kn__timeline *line) {
    kn__hash launches = {0};
    kn_status status = index_launches(&launches, line);
    const kn__work_record *all = line->works.at;
    for (size_t i = 0; i < line->works.n && status >= 0; i++) {
        status = place_work(line, &launches, &all[i]);
        count_use(&line->report->gpu, &all[i].record);
    }
    kn__hash_release(&launches);
    return status;
}

/* --- memory --- */

/* The levels in at most as many bins as a report has. */
static void fill_live(kn__timeline *line) {
    kn__report *report = line->report;
    kn__series *live = &report->live;
    const kn__level *all = line->levels.at;
    size_t n = line->levels.n, each = n / KN__SERIES_BINS + 1;
    for (size_t i = 0; i < n; i++) {
        int64_t bytes = all[i].bytes < INT64_MAX ? (int64_t)all[i].bytes : INT64_MAX;
        if (i % each == 0) live->bins[live->n++] = (kn__series_bin){.max = bytes};
        kn__series_bin *bin = &live->bins[live->n - 1];
        bin->end = all[i].at_ns - line->from_ns;
        bin->last = bytes;
        bin->max = kn__max_i64(bin->max, bytes);
        if (bytes > report->memory.live_max) {
            report->memory.live_max = bytes;
            live->max_at = bin->end;
        }
        report->memory.live = bytes;
    }
}

/* --- counters --- */

static kn_status count_samples(kn__timeline *line) {
    kn__report *report = line->report;
    kn__counter *counters[KN__TRACE_COUNTERS_MAX] = {NULL};
    const kn__timeline_point *all = line->samples.at;
    report->counters.n_lost += line->n_refused;
    for (size_t i = 0; i < line->samples.n; i++) {
        const kn__trace_counter *of = kn__trace_counter_of(&all[i].event);
        kn__counter **c = &counters[of->number];
        if (!*c) {
            *c = kn__counters_get(report, of->name.label);
            if (!*c) return no_memory();
            kn__counter_text((*c)->unit, sizeof(*c)->unit, of->unit);
        }
        kn__counter_add(*c, kn__trace_value(&all[i].event));
    }
    return KN_OK;
}

void kn__timeline_sort(kn__timeline *line) {
    sort(&line->spans, sizeof(kn__span), compare_spans);
    sort(&line->launches, sizeof(kn__work_launch), compare_launches);
    sort(&line->works, sizeof(kn__work_record), compare_works);
    sort(&line->levels, sizeof(kn__level), compare_levels);
    sort(&line->samples, sizeof(kn__timeline_point), compare_samples);
    sort(&line->changes, sizeof(kn__block_change), compare_threads);
}

kn_status kn__timeline_report(kn__timeline *line) {
    kn__report *report = line->report;
    kn__timeline_sort(line);
    if (line->until_ns > line->from_ns) report->wall_ns = line->until_ns - line->from_ns;
    if (line->works.n) report->balance.source = line->source ? line->source : "trace";
    KN_TRY(place_spans(line));
    KN_TRY(add_all_times(line));
    KN_TRY(place_works(line));
    fill_live(line);
    KN_TRY(kn__timeline_add_memory(line));
    KN_TRY(count_samples(line));
    kn__report_finish(report);
    return KN_OK;
}
