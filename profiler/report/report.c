#include "report.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "checked.h"
#include "fields.h"

enum { CHUNK_ROWS = 256, CHILDREN_MIN = 256, OWNER_PATH_BYTES = 512 };

typedef struct chunk {
    struct chunk *next;
    int used;
    kn__row rows[CHUNK_ROWS];
} chunk;

typedef struct kept_chunk {
    struct kept_chunk *next;
    _Alignas(max_align_t) unsigned char bytes[];
} kept_chunk;

void *kn__report_bytes(kn__report *report, size_t bytes) {
    kept_chunk *kept = malloc(sizeof *kept + bytes);
    if (!kept) return NULL;
    kept->next = report->kept;
    report->kept = kept;
    return kept->bytes;
}

const char *kn__report_keep(kn__report *report, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = kn__report_bytes(report, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void kn__report_init(kn__report *out) {
    *out = (kn__report){.root.label = "", .outside.label = "(outside any scope)"};
}

void kn__report_release(kn__report *report) {
    if (report->timeline) report->timeline_release(report->timeline);
    free(report->timeline);
    for (chunk *b = report->chunks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    for (kept_chunk *t = report->kept, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    kn__hash_release(&report->children);
    kn__report_init(report);
}

static kn__row *new_row(kn__report *report) {
    chunk *b = report->chunks;
    if (!b || b->used == CHUNK_ROWS) {
        b = calloc(1, sizeof *b);
        if (!b) return NULL;
        b->next = report->chunks;
        report->chunks = b;
    }
    return &b->rows[b->used++];
}

static uint64_t key_of(const kn__row *parent, const char *label, bool is_range) {
    return kn__hash_text((uintptr_t)parent + is_range, label);
}

/* The row's slot, or the free one where it belongs. */
static kn__child_row *find_child(const kn__report *report, const kn__row *parent, const char *label,
                                 bool is_range) {
    kn__child_row *at =
        kn__hash_find(&report->children, sizeof *at, key_of(parent, label, is_range));
    while (at->key && (at->row->parent != parent || at->row->is_range != is_range ||
                       strcmp(at->row->label, label) != 0)) {
        at = kn__hash_after(&report->children, sizeof *at, at);
    }
    return at;
}

kn__row *kn__report_row_of(kn__report *report, kn__row *parent, const char *label, bool is_range) {
    kn__hash *children = &report->children;
    if (kn__hash_is_full(children) && !kn__hash_grow(children, sizeof(kn__child_row), CHILDREN_MIN))
        return NULL;
    kn__child_row *at = find_child(report, parent, label, is_range);
    if (at->key) return at->row;
    kn__row *row = new_row(report);
    if (!row) return NULL;
    kn__hash_use(children, at, key_of(parent, label, is_range));
    at->row = row;
    row->is_range = is_range;
    row->label = label;
    row->parent = parent;
    row->depth = parent->depth + 1;
    row->min_ns = UINT64_MAX;
    row->first_start = UINT64_MAX;
    KN_ASSERT(!parent->last == !parent->first && (!parent->last || !parent->last->next));
    if (parent->last) {
        parent->last->next = row;
    } else {
        parent->first = row;
    }
    parent->last = row;
    return row;
}

kn__row *kn__report_row(kn__report *report, kn__row *parent, const char *label) {
    return kn__report_row_of(report, parent, label, false);
}

static kn__row *find_row(const kn__report *report, const kn__row *parent, const char *label,
                         bool is_range) {
    return report->children.n_slots ? find_child(report, parent, label, is_range)->row : NULL;
}

kn__row *kn__report_find(const kn__report *report, const kn__row *parent, const char *label) {
    kn__row *row = find_row(report, parent, label, false);
    return row ? row : find_row(report, parent, label, true);
}

kn__row *kn__report_same(const kn__report *report, const kn__row *parent, const kn__row *row) {
    return find_row(report, parent, row->label, row->is_range);
}

/* --- sums and order --- */

static void add_amounts(kn__row *row, const kn__row *child) {
    kn__fields_add(row, child, kn__row_gpu);
    if (child->is_extra) return;
    kn__fields_add(row, child, kn__row_amounts);
    kn__fields_add(row, child, kn__row_work);
    row->held =
        (int64_t)((uint64_t)row->held + (uint64_t)child->held); /* a file may hold anything */
    row->peak = kn__max_i64(row->peak, child->peak);
    row->peak_most = kn__max_i64(row->peak_most, child->peak_most);
}

/* Amounts that nodes keep for themselves become those of the whole subtree. */
static void include_children(kn__row *row) {
    for (kn__row *child = row->first; child; child = child->next) {
        include_children(child);
        add_amounts(row, child);
    }
    if (row->min_ns == UINT64_MAX) row->min_ns = 0;
}

void kn__row_add(kn__row *to, const kn__row *row) {
    to->n_calls += row->n_calls;
    to->n_threads = kn__max_u64(to->n_threads, row->n_threads);
    to->time_ns += row->time_ns;
    to->n_ended += row->n_ended;
    to->ended_ns += row->ended_ns;
    to->squares_ns2 += row->squares_ns2;
    kn__fields_add(to, row, kn__row_amounts);
    kn__fields_add(to, row, kn__row_work);
    kn__fields_add(to, row, kn__row_gpu);
    to->peak = kn__max_i64(to->peak, row->peak);
    to->peak_most = kn__max_i64(to->peak_most, row->peak_most);
    to->held = (int64_t)((uint64_t)to->held + (uint64_t)row->held);
    to->rise = kn__max_i64(to->rise, row->rise);
    to->held_at_peak = (int64_t)((uint64_t)to->held_at_peak + (uint64_t)row->held_at_peak);
    to->max_ns = kn__max_u64(to->max_ns, row->max_ns);
    if (row->min_ns && (!to->min_ns || row->min_ns < to->min_ns)) to->min_ns = row->min_ns;
}

/* Of rows with a first call that ended, that of the one which was seen first. */
static bool is_first(const kn__row *row, const kn__row *than) {
    if (!row->first_ns != !than->first_ns) return row->first_ns;
    if (row->first_start != than->first_start) return row->first_start < than->first_start;
    return row->first_ns < than->first_ns;
}

kn_status kn__report_add_row(kn__report *report, kn__row *to, const kn__row *row) {
    if (is_first(row, to)) {
        to->first_start = row->first_start;
        to->first_ns = row->first_ns;
    }
    kn__row_add(to, row);
    to->open |= row->open;
    return row->times ? kn__report_add_times(report, to, row->times->bins, row->times->n) : KN_OK;
}

kn__rates kn__row_rates(const kn__row *row) {
    double ns = (double)(row->gpu_ns ? row->gpu_ns : row->time_ns);
    if (ns <= 0) return (kn__rates){0};
    return (kn__rates){1e9 * (double)row->flops / ns, 1e9 * (double)row->moved_bytes / ns};
}

double kn__row_of_peak(const kn__report *report, const kn__row *row) {
    kn__rates of = kn__row_rates(row), peak = report->peaks;
    if (row->gpu_ns || peak.flops <= 0 || peak.bytes <= 0) return 0;
    double flops = of.flops / peak.flops, bytes = of.bytes / peak.bytes;
    return flops > bytes ? flops : bytes;
}

double kn__row_run_mean(const kn__report *report, const kn__row *row) {
    uint64_t all = row->is_kernel ? row->gpu_ns : row->time_ns;
    return report->n_runs ? (double)all / (double)report->n_runs : 0;
}

double kn__row_imbalance(const kn__report *report, const kn__row *row) {
    double mean = kn__row_run_mean(report, row), most = (double)row->run_max_ns;
    return mean > 0 && most > mean ? most / mean - 1 : 0;
}

double kn__row_sigma(const kn__row *row) {
    if (row->n_ended < 2) return 0;
    double n = (double)row->n_ended, mean = row->ended_ns / n;
    double variance = (row->squares_ns2 - n * mean * mean) / (n - 1);
    return variance > 0 ? sqrt(variance) : 0; /* rounding may leave less than nothing */
}

static bool has_range(const kn__row *row) {
    while (row && !row->is_range && !has_range(row->first)) row = row->next;
    return row;
}

static void sum_times(kn__report *report) {
    report->has_ranges = has_range(report->root.first);
    report->root.time_ns = report->root.n_calls = 0;
    for (kn__row *row = report->root.first; row; row = row->next) {
        if (row->is_extra) continue;
        if (!row->is_range) report->root.time_ns += row->time_ns;
        report->root.n_calls += row->n_calls;
    }
    report->has_gpu = report->root.n_gpu > 0 || report->balance.source != NULL;
}

static int compare(const kn__row *a, const kn__row *b, kn__sort by) {
    if (a->is_extra != b->is_extra) return a->is_extra - b->is_extra;
#define DESCENDING(field) ((a->field < b->field) - (a->field > b->field))
    switch (by) {
        case KN__SORT_TIME:
            if (a->is_kernel && b->is_kernel) return DESCENDING(gpu_ns); /* they have no other */
            return DESCENDING(time_ns);
        case KN__SORT_CALLS:
            return DESCENDING(n_calls);
        case KN__SORT_ALLOC:
            return DESCENDING(alloc_bytes);
        case KN__SORT_PEAK:
            return DESCENDING(peak);
        case KN__SORT_GPU:
            return DESCENDING(gpu_ns);
        case KN__SORT_NAME:
            return strcmp(a->label, b->label);
        case KN__SORT_FIRST:
            return -DESCENDING(first_start);
    }
#undef DESCENDING
    return 0;
}

/* Merge sort of a list: stable, and equal rows stay in the order of first sight. */
static kn__row *merge(kn__row *a, kn__row *b, kn__sort by) {
    kn__row head = {0}, *tail = &head;
    while (a && b) {
        kn__row **from = compare(a, b, by) <= 0 ? &a : &b;
        tail = tail->next = *from;
        *from = (*from)->next;
    }
    tail->next = a ? a : b;
    return head.next;
}

static kn__row *sort_list(kn__row *list, kn__sort by) {
    if (!list || !list->next) return list;
    kn__row *slow = list;
    for (kn__row *fast = list->next; fast && fast->next; fast = fast->next->next) {
        slow = slow->next;
    }
    kn__row *half = slow->next;
    slow->next = NULL;
    return merge(sort_list(list, by), sort_list(half, by), by);
}

static void sort_children(kn__row *row, kn__sort by) {
    row->first = sort_list(row->first, by);
    for (kn__row *child = row->first; child; child = child->next) {
        sort_children(child, by);
        row->last = child;
    }
}

void kn__report_sort(kn__report *report, kn__sort by) { sort_children(&report->root, by); }

int64_t kn__row_held(const kn__row *row) {
    int64_t held = row->held;
    for (const kn__row *child = row->first; child; child = child->next) {
        if (!child->is_extra) held -= child->held;
    }
    return held;
}

static int64_t held_at_peak(const kn__row *row) { return row->held_at_peak; }

void kn__report_path(char *out, size_t out_bytes, const kn__row *row) {
    size_t at = kn__path_start(out, out_bytes);
    for (const kn__row *of = row; of && (of->parent || of->label[0]); of = of->parent) {
        if (!kn__path_prepend(out, &at, of->label, of == row)) break;
    }
    kn__path_finish(out, out_bytes, at);
}

/* The largest n rows by some amount. */
typedef struct ranking {
    const kn__row **rows;
    int n, used;
    int64_t (*amount)(const kn__row *row);
} ranking;

/* Rows of one amount by their paths: a report that was read has its rows in another order. */
static bool is_before(const ranking *r, const kn__row *row, int64_t amount, const kn__row *other) {
    char path[OWNER_PATH_BYTES], other_path[OWNER_PATH_BYTES];
    if (r->amount(other) != amount) return r->amount(other) < amount;
    kn__report_path(path, sizeof path, row);
    kn__report_path(other_path, sizeof other_path, other);
    return strcmp(path, other_path) < 0;
}

static void keep_largest(ranking *r, const kn__row *row) {
    int64_t amount = row->is_extra ? 0 : r->amount(row);
    int at = r->used;
    while (amount > 0 && at > 0 && is_before(r, row, amount, r->rows[at - 1])) at--;
    if (amount <= 0 || at == r->n) return;
    if (r->used < r->n) r->used++;
    memmove(r->rows + at + 1, r->rows + at, (size_t)(r->used - at - 1) * sizeof *r->rows);
    r->rows[at] = row;
}

static void rank_all(ranking *r, const kn__row *row) {
    for (; row; row = row->next) {
        keep_largest(r, row);
        rank_all(r, row->first);
    }
}

static int rank(const kn__row **out, int n, const kn__report *report,
                int64_t (*amount)(const kn__row *row)) {
    ranking r = {out, n, 0, amount};
    keep_largest(&r, &report->outside);
    rank_all(&r, report->root.first);
    return r.used;
}

int kn__report_owners(const kn__row **out, int n, const kn__report *report) {
    return rank(out, n, report, held_at_peak);
}

/* --- after the last row --- */

static int note_largest(kn__owner *out, kn__report *report, int64_t (*amount)(const kn__row *row)) {
    const kn__row *rows[KN__OWNERS_SHOWN];
    int n = rank(rows, KN__OWNERS_SHOWN, report, amount), n_kept = 0;
    for (int i = 0; i < n; i++) {
        char path[OWNER_PATH_BYTES];
        kn__report_path(path, sizeof path, rows[i]);
        const char *kept = kn__report_keep(report, path);
        if (kept) out[n_kept++] = (kn__owner){kept, amount(rows[i])};
    }
    return n_kept;
}

static void note_owners(kn__report *report) {
    if (report->owners_noted) return;
    report->owners_noted = true;
    report->n_owners = note_largest(report->owners, report, held_at_peak);
    report->n_holders = note_largest(report->holders, report, kn__row_held);
}

void kn__report_finish(kn__report *report) {
    include_children(&report->root);
    sum_times(report);
    note_owners(report);
}

void kn__report_sum(kn__report *report) {
    for (kn__row *row = report->root.first; row; row = row->next) add_amounts(&report->root, row);
    sum_times(report);
    note_owners(report);
}
