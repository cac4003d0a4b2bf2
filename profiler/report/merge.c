#include "merge.h"

#include "counters.h"

static kn_status no_memory(void) { return KN_FAIL(KN_ERR_OOM, "no memory for the report"); }

static void add_run(const kn__report *into, kn__row *to, const kn__row *row) {
    uint64_t ns = row->is_kernel ? row->gpu_ns : row->time_ns;
    if (!to->n_runs || ns < to->run_min_ns) to->run_min_ns = ns;
    if (!to->n_runs || ns > to->run_max_ns) {
        to->run_max_ns = ns;
        to->slowest_run = into->n_runs - 1;
    }
    to->n_runs++;
}

static kn_status merge_rows(kn__report *into, kn__row *parent, const kn__row *row) {
    for (; row; row = row->next) {
        kn__row *to = kn__report_find(into, parent, row->label);
        if (!to) {
            const char *label = kn__report_keep(into, row->label);
            to = label ? kn__report_row(into, parent, label) : NULL;
            if (!to) return no_memory();
            if (row->where) to->where = kn__report_keep(into, row->where);
            to->is_kernel = row->is_kernel;
            to->is_extra = row->is_extra;
        }
        add_run(into, to, row);
        KN_TRY(kn__report_add_row(into, to, row));
        KN_TRY(merge_rows(into, to, row->first));
        if (to->min_ns == UINT64_MAX) to->min_ns = 0;
    }
    return KN_OK;
}

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
    merge_run(into, run);
    if (into->peaks.flops <= 0) into->peaks = run->peaks;
    into->n_runs += run->n_runs ? run->n_runs : 1;
    into->wall_ns += run->wall_ns;
    into->n_threads = kn__max_u64(into->n_threads, run->n_threads);
    into->n_unrecorded += run->n_unrecorded;
    into->n_events_skipped += run->n_events_skipped;
    into->n_events_unbuffered += run->n_events_unbuffered;
    into->buffer_bytes = kn__max_u64(into->buffer_bytes, run->buffer_bytes);
    into->has_memory |= run->has_memory;
    into->buffer_full |= run->buffer_full;
    into->trace_cut |= run->trace_cut;
    into->memory.live_max = kn__max_i64(into->memory.live_max, run->memory.live_max);
    merge_steps(&into->steps, &run->steps);
    add_run(into, &into->root, &run->root);
    KN_TRY(kn__counters_merge(into, &run->counters));
    KN_TRY(merge_rows(into, &into->root, run->root.first));
    kn__row *root = &into->root;
    root->alloc_bytes = root->n_allocs = root->freed_bytes = root->temporary_bytes = 0;
    root->n_temporary = root->gpu_ns = root->n_gpu = root->n_pending = root->gpu_bytes = 0;
    root->held = 0;
    root->flops = root->moved_bytes = 0;
    kn__report_sum(into);
    return KN_OK;
}
