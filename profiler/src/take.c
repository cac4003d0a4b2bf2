#include "take.h"

#include <string.h>

#include "activity.h"
#include "budget.h"
#include "checked.h"
#include "counter.h"
#include "kernel.h"
#include "memory.h"
#include "open_ranges.h"
#include "times.h"

/* --- reading a tree that its thread still writes --- */

typedef struct reading {
    kn__report *report;
    const kn__tree *tree;
    double tick_ns;
    uint64_t now;
} reading;

typedef struct count {
    uint64_t ticks, n_calls; /* those of an open call included */
    uint64_t n_ended;
    bool open;
} count;

/* The writer clears `start`, then adds to `ticks`, then to `n_calls`, so where the first and the
 * last are unchanged no call ended between the two readings of them. */
static count read_count(const kn__tree_node *node, uint64_t now) {
    for (;;) {
        uint64_t start = KN__LOAD(node->start), ticks = KN__LOAD(node->ticks);
        uint64_t n = KN__LOAD(node->n_calls);
        if (KN__LOAD(node->start) != start || KN__LOAD(node->n_calls) != n) continue;
        ticks += start && now > start ? now - start : 0;
        return (count){ticks, n + (start != 0), n, start != 0};
    }
}

/* A thread that is preempted after it read the clock at a call's end, and before it counts the
 * call, shows that as open for so long, and then less or none of it. A report doesn't take back
 * what one before has shown: calls since then add to that the least that a call took. One report at
 * a time. */
static void never_less(kn__tree_node *node, count *c) {
    uint64_t calls = KN__LOAD(node->shown_calls), ticks = KN__LOAD(node->shown_ticks);
    if (c->n_ended > calls) ticks += (c->n_ended - calls) * KN__LOAD(node->ticks_min);
    if (c->ticks < ticks) c->ticks = ticks;
    if (c->n_calls < calls) c->n_calls = calls;
    KN__STORE(node->shown_ticks, c->ticks);
    KN__STORE(node->shown_calls, c->n_calls);
}

static void add_mark(kn__row *row, int64_t peak, int64_t peak_most, int64_t rise) {
    row->peak = kn__max_i64(row->peak, peak);
    row->peak_most = kn__max_i64(row->peak_most, peak_most);
    row->rise = kn__max_i64(row->rise, rise);
}

/* Blocks that a scope holds were live together while it was open, also where it was opened before
 * memory was followed. */
static void add_memory(kn__row *row, const kn__tree_node *node, bool has_mark) {
    kn__memory_row memory;
    kn__memory_row_read(&memory, node);
    row->alloc_bytes += memory.alloc_bytes;
    row->n_allocs += memory.n_allocs;
    row->freed_bytes += memory.freed_bytes;
    row->temporary_bytes += memory.temporary_bytes;
    row->n_temporary += memory.n_temporary;
    row->held += memory.held;
    row->held_at_peak += memory.held_at_peak;
    int64_t peak = KN__LOAD(node->peak), held = kn__max_i64(memory.held, memory.held_at_peak);
    add_mark(row, peak, KN__LOAD(node->peak_most), KN__LOAD(node->rise));
    if (!has_mark && held > peak) add_mark(row, held, INT64_MAX, 0);
}

/* The marks of a scope that is open and, in *inner, what its parent's mark includes. */
static bool add_open_mark(kn__row *row, int64_t *inner, const reading *r, const kn__tree_node *node,
                          int64_t inside) {
    kn__memory_mark mark;
    if (!kn__memory_open_mark(&mark, r->tree, node, inside)) return false;
    add_mark(row, mark.peak, mark.peak_most, mark.rise);
    *inner = kn__max_i64(*inner, kn__max_i64(mark.peak, KN__LOAD(node->hwm_saved)));
    return true;
}

/* `n_calls`: with an open one. Of nodes of a tree that share a row the one with most threads
 * counts: they are the same threads. */
static void add_threads(kn__row *row, const kn__tree_node *node, const kn__tree *tree,
                        uint64_t n_calls) {
    uint64_t n = KN__LOAD(node->n_threads);
    n += n_calls > KN__LOAD(node->n_calls_before);
    if (row->tree != tree) row->n_tree_threads = 0;
    row->tree = tree;
    if (n <= row->n_tree_threads) return;
    row->n_threads += n - row->n_tree_threads;
    row->n_tree_threads = n;
}

static kn_status add_times(kn__row *row, kn__tree_node *node, const reading *r) {
    count c = read_count(node, r->now);
    uint64_t ended = c.n_ended;
    never_less(node, &c);
    row->open |= c.open;
    row->is_kernel = false;
    row->n_calls += c.n_calls;
    add_threads(row, node, r->tree, c.n_calls);
    row->time_ns += kn__clock_ns(c.ticks, r->tick_ns);
    row->flops = kn__sum_u64(row->flops, KN__LOAD(node->flops));
    row->moved_bytes = kn__sum_u64(row->moved_bytes, KN__LOAD(node->moved_bytes));
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
    KN_TRY(kn__times_read(r->report, row, node, r->tick_ns));
    if (node->first_start < row->first_start) {
        row->first_start = node->first_start;
        row->first_ns = kn__clock_ns(KN__LOAD(node->ticks_first), r->tick_ns);
    }
    return KN_OK;
}

static kn_status no_memory(void) { return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report"); }

/* Where the scope was that a replayed kernel was captured in: its path below "[captured]", without
 * the part that the path of the launch has too. */
static kn_status add_captured(kn__row **out, kn__report *report, kn__row *row,
                              const kn__tree_node *launched, const kn__tree_node *captured) {
    const kn__tree_node *path[KN__DEPTH_MAX + 1], *common[KN__DEPTH_MAX + 1];
    int n = 0, n_common = 0, at = 0;
    for (const kn__tree_node *c = captured; kn__node_in_path(c); c = c->parent) path[n++] = c;
    for (const kn__tree_node *c = launched; kn__node_in_path(c); c = c->parent)
        common[n_common++] = c;
    while (at < n && at < n_common &&
           strcmp(path[n - 1 - at]->label, common[n_common - 1 - at]->label) == 0) {
        at++;
    }
    KN_ASSERT(n <= KN__DEPTH_MAX && n_common <= KN__DEPTH_MAX);
    *out = kn__report_row(report, row, "[captured]");
    for (; *out && at < n; at++) *out = kn__report_row(report, *out, path[n - 1 - at]->label);
    return *out ? KN_OK : no_memory();
}

static kn_status add_kernel(kn__report *report, kn__row *row, const kn__kernel *k) {
    kn__row *leaf = kn__report_row(report, row, k->name);
    if (!leaf) return no_memory();
    leaf->is_kernel = leaf->n_calls == 0;
    KN_ASSERT(k->name[0]);
    leaf->gpu_ns += KN__LOAD(k->gpu_ns);
    leaf->gpu_bytes += KN__LOAD(k->bytes);
    leaf->n_gpu += KN__LOAD(k->n);
    return KN_OK;
}

static kn_status add_kernels(kn__report *report, kn__row *row, const kn__tree_node *node) {
    row->n_pending += KN__LOAD(node->n_pending);
    for (const kn__kernel *k = KN__LOAD(node->kernels); k; k = k->next) {
        kn__row *parent = row;
        if (k->captured) KN_TRY(add_captured(&parent, report, row, node, k->captured));
        KN_TRY(add_kernel(report, parent, k));
    }
    return KN_OK;
}

static kn_status add_extra(kn__row **out, kn__report *report, kn__row *parent, const char *label) {
    *out = kn__report_row(report, parent, label);
    if (!*out) return no_memory();
    (*out)->is_extra = true;
    return KN_OK;
}

/* GPU work that was launched with no scope open, or by an unknown thread. */
static kn_status add_unattributed(kn__report *report, const kn__tree_node *root) {
    kn__row *row = NULL;
    if (!KN__LOAD(root->kernels)) return KN_OK;
    KN_TRY(add_extra(&row, report, &report->root, "~unattributed~"));
    for (const kn__kernel *k = KN__LOAD(root->kernels); k; k = k->next) {
        report->balance.unattributed_ns += KN__LOAD(k->gpu_ns);
        report->balance.n_unattributed += KN__LOAD(k->n);
    }
    return add_kernels(report, row, root);
}

static kn_status add_unknown(kn__report *report) {
    kn__row *row = NULL;
    if (!report->balance.n_unattributed) return KN_OK;
    KN_TRY(add_extra(&row, report, &report->root, "~unattributed~"));
    row = kn__report_row(report, row, "(its launch was not seen)");
    if (!row) return no_memory();
    row->is_kernel = true;
    row->gpu_ns = report->balance.unattributed_ns;
    row->n_gpu = report->balance.n_unattributed;
    return KN_OK;
}

/* What the timer itself took: in no sum, and in no row of the program. */
static kn_status add_costs(kn__report *report) {
    kn__row *row = NULL, *cost = NULL;
    const kn__balance *b = &report->balance;
    if (!b->source) return KN_OK;
    KN_TRY(add_extra(&row, report, &report->root, "~profiler~"));
    for (int i = 0; i < KN__COSTS_MAX && b->costs[i].label; i++) {
        KN_TRY(add_extra(&cost, report, row, b->costs[i].label));
        cost->n_calls = b->costs[i].n;
        cost->time_ns = b->costs[i].ns;
        row->n_calls += cost->n_calls;
        row->time_ns += cost->time_ns;
    }
    return KN_OK;
}

static kn_status add_external(kn__report *report) {
    kn__row *row = NULL;
    const kn__external *e = &report->balance.external;
    if (!e->n_allocs) return KN_OK;
    KN_TRY(add_extra(&row, report, &report->root, "~outside pool~"));
    row->alloc_bytes = e->alloc_bytes;
    row->n_allocs = e->n_allocs;
    row->freed_bytes = e->alloc_bytes - (uint64_t)e->live;
    row->held = e->live;
    row->peak = row->rise = e->live_max;
    return KN_OK;
}

/* `inner`: the highest mark of memory of the children that are open. */
static kn_status add_children(kn__report *report, kn__row *row, const kn__tree_node *node,
                              const reading *r, int64_t *inner) {
    kn__tree_node *child = KN__LOAD(node->first_child);
    for (; child; child = KN__LOAD(child->next)) {
        kn__row *child_row = kn__report_row_of(report, row, child->label, kn__node_is_range(child));
        int64_t inside = 0;
        if (!child_row) return no_memory();
        if (!child_row->where) child_row->where = KN__LOAD(child->where);
        KN_TRY(add_times(child_row, child, r));
        KN_TRY(add_kernels(report, child_row, child));
        KN_TRY(add_children(report, child_row, child, r, &inside));
        if (!report->has_memory) continue;
        bool has_mark = add_open_mark(child_row, inner, r, child, inside);
        add_memory(child_row, child, has_mark); /* a call that ended meanwhile is counted now */
    }
    return KN_OK;
}

static uint64_t since_start(uint64_t ticks, double tick_ns) {
    uint64_t start = kn__clock_start_ticks();
    return ticks > start ? kn__clock_ns(ticks - start, tick_ns) : 0;
}

static void place_in_time(kn__row *row, double tick_ns) {
    if (row->first_start != UINT64_MAX) row->first_start = since_start(row->first_start, tick_ns);
    for (kn__row *child = row->first; child; child = child->next) place_in_time(child, tick_ns);
}

/* Threads report a free a moment late: no row shows more than the pool held. */
static void bound_peaks(kn__row *row, int64_t most) {
    if (row->peak > most) row->peak = most;
    if (row->peak_most > most) row->peak_most = most;
    for (kn__row *child = row->first; child; child = child->next) {
        if (!child->is_extra) bound_peaks(child, most);
    }
}

static void take_live(kn__series *out, double tick_ns) {
    kn__memory_series_read(out);
    out->max_at = since_start(out->max_at, tick_ns);
    for (int i = 0; i < out->n; i++) out->bins[i].end = since_start(out->bins[i].end, tick_ns);
}

static bool is_followed(void) {
    return atomic_load(&kn__prof_extras) & KN__PROF_MEM && !kn__memory_is_stopped();
}

kn_status kn__report_take(kn__report *out, uint64_t now, double tick_ns) {
    kn__report_init(out);
    out->has_memory = is_followed();
    out->n_threads = kn__tree_threads();
    kn__activity_drain();
    kn__activity_balance(&out->balance);
    kn__activity_gpu_use(&out->gpu);
    out->buffer_bytes = kn__budget_limit();
    out->buffer_full = kn__budget_was_full();
    KN_TRY(kn__counters_take(out));
    KN_TRY(add_unknown(out));
    KN_TRY(add_costs(out));
    KN_TRY(add_external(out));
    for (const kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        KN_ASSERT(!tree->root.parent);
        reading r = {out, tree, tick_ns, now};
        int64_t inner = 0;
        out->n_unrecorded += KN__LOAD(tree->n_unrecorded);
        KN_TRY(add_unattributed(out, &tree->root));
        KN_TRY(add_children(out, &out->root, &tree->root, &r, &inner));
    }
    KN_TRY(kn__open_ranges_take(out, NULL, now, tick_ns));
    if (out->has_memory) {
        add_memory(&out->outside, kn__memory_outside(), true);
        kn__memory_totals_read(&out->memory);
        take_live(&out->live, tick_ns);
    }
    if (kn__memory_is_stopped()) out->has_memory = false; /* meanwhile, at exit */
    kn__report_finish(out);
    if (out->memory.n_pools == 1) bound_peaks(&out->root, out->memory.live_max);
    place_in_time(&out->root, tick_ns);
    return KN_OK;
}

kn_status kn__report_take_tree(kn__report *out, const kn__tree *tree, uint64_t now,
                               double tick_ns) {
    kn__report_init(out);
    out->has_memory = is_followed();
    out->n_threads = 1;
    out->n_unrecorded = KN__LOAD(tree->n_unrecorded);
    reading r = {out, tree, tick_ns, now};
    int64_t inner = 0;
    KN_TRY(add_children(out, &out->root, &tree->root, &r, &inner));
    KN_TRY(kn__open_ranges_take(out, tree, now, tick_ns));
    kn__report_finish(out);
    return KN_OK;
}
