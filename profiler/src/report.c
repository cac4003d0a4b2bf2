#include "report.h"

#include "activity.h"
#include "kernel.h"

/* ---- reading a tree that its thread goes on writing ---- */

typedef struct reading {
    double tick_ns;
    uint64_t now;
} reading;

/* The ticks of a node, those of an open call included. The writer clears `start` before it adds to
 * `ticks`, so an unchanged `start` says that no call ended between the two readings of it. */
static uint64_t read_ticks(const kn__node *node, uint64_t now, bool *open) {
    for (;;) {
        uint64_t start = KN__LOAD(node->start), ticks = KN__LOAD(node->ticks);
        if (KN__LOAD(node->start) != start) continue;
        *open = start != 0;
        return ticks + (*open && now > start ? now - start : 0);
    }
}

static void add_memory(kn__row *row, const kn__node *node) {
    kn__memory_row memory;
    kn__memory_row_read(&memory, node);
    row->alloc_bytes += memory.alloc_bytes;
    row->n_allocs += memory.n_allocs;
    row->freed_bytes += memory.freed_bytes;
    row->temporary_bytes += memory.temporary_bytes;
    row->n_temporary += memory.n_temporary;
    row->held += memory.held;
    row->held_at_peak += memory.held_at_peak;
    row->peak = kn__max_i64(row->peak, KN__LOAD(node->peak));
    row->rise = kn__max_i64(row->rise, KN__LOAD(node->rise));
    row->peak_inexact |= KN__LOAD(node->is_disturbed) != 0;
}

static void add_times(kn__row *row, const kn__node *node, const reading *r) {
    bool open = false;
    uint64_t ticks = read_ticks(node, r->now, &open), ended = KN__LOAD(node->n_calls);
    row->open |= open;
    row->is_kernel = false;
    row->n_calls += ended + open;
    row->time_ns += kn__clock_ns(ticks, r->tick_ns);
    if (ended) {
        uint64_t min_ns = kn__clock_ns(KN__LOAD(node->ticks_min), r->tick_ns);
        uint64_t max_ns = kn__clock_ns(KN__LOAD(node->ticks_max), r->tick_ns);
        if (min_ns < row->min_ns) row->min_ns = min_ns;
        if (max_ns > row->max_ns) row->max_ns = max_ns;
        double squares = atomic_load_explicit(&node->squares, memory_order_relaxed);
        row->n_ended += ended;
        row->ended_ns += (double)KN__LOAD(node->ticks) * r->tick_ns;
        row->squares_ns2 += squares * r->tick_ns * r->tick_ns;
    }
    if (node->first_start < row->first_start) {
        row->first_start = node->first_start;
        row->first_ns = kn__clock_ns(KN__LOAD(node->ticks_first), r->tick_ns);
    }
}

static kn_status add_kernels(kn__report *report, kn__row *row, const kn__node *node) {
    for (const kn__kernel *k = KN__LOAD(node->kernels); k; k = k->next) {
        kn__row *leaf = kn__report_row(report, row, k->name);
        if (!leaf) return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report");
        leaf->is_kernel = leaf->n_calls == 0;
        leaf->gpu_ns += KN__LOAD(k->gpu_ns);
        leaf->n_gpu += KN__LOAD(k->n);
    }
    return KN_OK;
}

/* Work that was launched with no scope open. */
static void add_unattributed(kn__report *report, const kn__node *root) {
    for (const kn__kernel *k = KN__LOAD(root->kernels); k; k = k->next) {
        report->balance.unattributed_ns += KN__LOAD(k->gpu_ns);
        report->balance.n_unattributed += KN__LOAD(k->n);
    }
}

static kn_status add_children(kn__report *report, kn__row *row, const kn__node *node,
                              const reading *r) {
    const kn__node *child = atomic_load_explicit(&node->first_child, memory_order_acquire);
    for (; child; child = atomic_load_explicit(&child->next, memory_order_acquire)) {
        kn__row *child_row = kn__report_row(report, row, child->label);
        if (!child_row) return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report");
        add_times(child_row, child, r);
        if (report->has_memory) add_memory(child_row, child);
        KN_TRY(add_kernels(report, child_row, child));
        KN_TRY(add_children(report, child_row, child, r));
    }
    return KN_OK;
}

kn_status kn__report_take(kn__report *out, uint64_t now, double tick_ns) {
    kn__report_init(out);
    out->has_memory = atomic_load(&kn__prof_extras) & KN__PROF_MEM;
    out->n_threads = kn__tree_threads();
    kn__activity_drain();
    kn__activity_balance(&out->balance);
    reading r = {tick_ns, now};
    for (const kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        out->n_unrecorded += KN__LOAD(tree->n_unrecorded);
        add_unattributed(out, &tree->root);
        KN_TRY(add_children(out, &out->root, &tree->root, &r));
    }
    if (out->has_memory) {
        add_memory(&out->outside, kn__memory_outside());
        kn__memory_totals_read(&out->memory);
    }
    kn__report_finish(out);
    return KN_OK;
}

kn_status kn__report_take_tree(kn__report *out, const kn__tree *tree, uint64_t now,
                               double tick_ns) {
    kn__report_init(out);
    out->has_memory = atomic_load(&kn__prof_extras) & KN__PROF_MEM;
    out->n_threads = 1;
    out->n_unrecorded = KN__LOAD(tree->n_unrecorded);
    reading r = {tick_ns, now};
    KN_TRY(add_children(out, &out->root, &tree->root, &r));
    kn__report_finish(out);
    return KN_OK;
}
