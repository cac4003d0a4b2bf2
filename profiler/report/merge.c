#include "merge.h"

#include <string.h>

#include "counters.h"
#include "fields.h"

static kn_status no_memory(void) { return KN_FAIL(KN_ERR_OOM, "no memory for the report"); }

typedef struct merging {
    kn__report *into;
    uint64_t n_before; /* runs that are in it already */
    bool has_mark;     /* the run holds more than those: it tells the owners of the mark */
} merging;

/* The row may be of merged runs itself. */
static void add_run(const merging *m, kn__row *to, const kn__row *row) {
    uint64_t ns = row->is_kernel ? row->gpu_ns : row->time_ns;
    uint64_t least = row->n_runs ? row->run_min_ns : ns, most = row->n_runs ? row->run_max_ns : ns;
    if (!to->n_runs || least < to->run_min_ns) to->run_min_ns = least;
    if (!to->n_runs || most > to->run_max_ns) {
        to->run_max_ns = most;
        to->slowest_run = m->n_before + row->slowest_run;
    }
    to->n_runs += row->n_runs ? row->n_runs : 1;
}

static kn__row *copy_row(kn__report *into, kn__row *parent, const kn__row *row) {
    const char *label = kn__report_keep(into, row->label);
    kn__row *to = label ? kn__report_row_of(into, parent, label, row->is_range) : NULL;
    if (!to) return NULL;
    if (row->where) to->where = kn__report_keep(into, row->where);
    to->is_kernel = row->is_kernel;
    to->is_extra = row->is_extra;
    return to;
}

static kn_status merge_rows(const merging *m, kn__row *parent, const kn__row *row) {
    kn__report *into = m->into;
    for (; row; row = row->next) {
        kn__row *to = kn__report_same(into, parent, row);
        if (!to) to = copy_row(into, parent, row);
        if (!to) return no_memory();
        int64_t held_at_peak = m->has_mark ? row->held_at_peak : to->held_at_peak;
        add_run(m, to, row);
        KN_TRY(kn__report_add_row(into, to, row));
        to->held_at_peak = held_at_peak;
        KN_TRY(merge_rows(m, to, row->first));
        if (to->min_ns == UINT64_MAX) to->min_ns = 0;
    }
    return KN_OK;
}

static void forget_mark(kn__row *row) {
    for (; row; row = row->next) {
        row->held_at_peak = 0;
        forget_mark(row->first);
    }
}

/* A run without the row spent no time in it. */
static void count_missing(const kn__report *into, kn__row *row) {
    for (; row; row = row->next) {
        if (row->n_runs < into->n_runs) row->run_min_ns = 0;
        count_missing(into, row->first);
    }
}

/* --- memory --- */

static void merge_pool(kn__pool_use *to, const kn__pool_use *run) {
    int64_t live_max = kn__max_i64(to->live_max, run->live_max);
    uint64_t reserved_max = kn__max_u64(to->reserved_max, run->reserved_max);
    if (run->device_total && (!to->device_total || run->reserved_max > to->reserved_max)) {
        to->device_used = run->device_used;
        to->device_total = run->device_total;
    }
    kn__fields_add(to, run, kn__pool_fields);
    to->live_max = live_max;
    to->reserved_max = reserved_max;
}

/* The pool of this name, of several the one that is the same in order; NULL: there is no room. */
static kn__pool_use *pool_like(kn__memory_totals *into, const kn__memory_totals *run, int pool) {
    const char *name = run->pools[pool].name;
    int before = 0, at = 0;
    for (int i = 0; i < pool; i++) before += strcmp(run->pools[i].name, name) == 0;
    for (; at < into->n_pools; at++) {
        if (strcmp(into->pools[at].name, name) == 0 && before-- == 0) return &into->pools[at];
    }
    if (at == KN__POOLS_MAX) return NULL;
    kn__pool_use *made = &into->pools[into->n_pools++];
    *made = (kn__pool_use){0};
    memcpy(made->name, name, sizeof made->name);
    return made;
}

static void merge_memory(const merging *m, const kn__report *run) {
    kn__report *into = m->into;
    kn__memory_totals *memory = &into->memory;
    int64_t held_at_peak = m->has_mark ? run->outside.held_at_peak : into->outside.held_at_peak;
    into->has_memory |= run->has_memory;
    kn__row_add(&into->outside, &run->outside);
    into->outside.held_at_peak = held_at_peak;
    memory->live = (int64_t)((uint64_t)memory->live + (uint64_t)run->memory.live);
    memory->live_max = kn__max_i64(memory->live_max, run->memory.live_max);
    memory->n_pools_left_out += run->memory.n_pools_left_out;
    for (int i = 0; i < run->memory.n_pools; i++) {
        kn__pool_use *to = pool_like(memory, &run->memory, i);
        if (to) {
            merge_pool(to, &run->memory.pools[i]);
        } else {
            memory->n_pools_left_out++;
        }
    }
}

/* --- the rest --- */

static void merge_steps(kn__steps *to, const kn__steps *run) {
    bool first = !to->n_timed;
    to->n += run->n;
    to->n_timed += run->n_timed;
    to->sum_ns += run->sum_ns;
    if (run->n_timed && (first || run->min_ns < to->min_ns)) to->min_ns = run->min_ns;
    to->max_ns = kn__max_u64(to->max_ns, run->max_ns);
}

static const char *copy(kn__report *into, const char *text) {
    return text ? kn__report_keep(into, text) : NULL;
}

static void merge_run(kn__report *into, const kn__report *run) {
    if (into->n_runs) return;
    into->run = (kn__run_info){copy(into, run->run.command), copy(into, run->run.host),
                               copy(into, run->run.version), copy(into, run->run.words),
                               copy(into, run->run.notes)};
}

kn_status kn__report_merge(kn__report *into, const kn__report *run) {
    bool has_mark = !into->n_runs || run->memory.live_max > into->memory.live_max;
    merging m = {into, into->n_runs, has_mark};
    merge_run(into, run);
    if (into->peaks.flops <= 0) into->peaks = run->peaks;
    into->n_runs += run->n_runs ? run->n_runs : 1;
    into->wall_ns += run->wall_ns;
    into->n_threads = kn__max_u64(into->n_threads, run->n_threads);
    into->n_unrecorded += run->n_unrecorded;
    into->n_events_skipped += run->n_events_skipped;
    into->n_events_unbuffered += run->n_events_unbuffered;
    into->buffer_bytes = kn__max_u64(into->buffer_bytes, run->buffer_bytes);
    into->buffer_full |= run->buffer_full;
    into->trace_cut |= run->trace_cut;
    merge_memory(&m, run);
    merge_steps(&into->steps, &run->steps);
    add_run(&m, &into->root, &run->root);
    KN_TRY(kn__counters_merge(into, &run->counters));
    if (has_mark) forget_mark(into->root.first);
    KN_TRY(merge_rows(&m, &into->root, run->root.first));
    count_missing(into, into->root.first);
    kn__row *root = &into->root;
    root->alloc_bytes = root->n_allocs = root->freed_bytes = root->temporary_bytes = 0;
    root->n_temporary = root->gpu_ns = root->n_gpu = root->n_pending = root->gpu_bytes = 0;
    root->held = 0;
    root->flops = root->moved_bytes = 0;
    into->owners_noted = false;
    kn__report_sum(into);
    return KN_OK;
}
