/* kn_prof_read and its kin. */
#include "readout.h"

#include <knet/prof_read.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "select.h"
#include "tree.h"

enum { PATH_BYTES = 2048 };

/* The counts at the last reset; under the lock of kn__prof_with_report. */
static kn__report *base;

typedef struct visit {
    kn_prof_visit_fn fn;
    void *ctx;
    const kn__report *before; /* NULL: count from the start */
    char path[PATH_BYTES];
    bool flat;
} visit;

/* --- rows --- */

static uint64_t inside_ns(const kn__row *row) {
    uint64_t ns = 0;
    for (const kn__row *child = row->first; child; child = child->next)
        if (!child->is_extra && !child->is_kernel) ns += child->time_ns;
    return ns < row->time_ns ? ns : row->time_ns;
}

/* Amounts that were there before may be larger where a call was open then. */
static uint64_t since(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

static kn_prof_row row_make(const kn__row *row, const kn__row *before, const char *path) {
    static const kn__row zero = {0};
    const kn__row *b = before ? before : &zero;
    return (kn_prof_row){
        .path = path,
        .depth = row->depth,
        .n_calls = since(row->n_calls, b->n_calls),
        .time_ns = since(row->time_ns, b->time_ns),
        .own_ns = since(row->time_ns - inside_ns(row), b->time_ns - inside_ns(b)),
        .gpu_ns = since(row->gpu_ns, b->gpu_ns),
        .n_allocs = since(row->n_allocs, b->n_allocs),
        .alloc_bytes = since(row->alloc_bytes, b->alloc_bytes),
        .freed_bytes = since(row->freed_bytes, b->freed_bytes),
        .held_bytes = row->held,
    };
}

static bool is_shown(const kn__row *row) { return !row->is_extra && !row->is_kernel; }

/* False: fn had enough. */
static bool rows_visit(visit *v, const kn__row *row, const kn__row *before, size_t length) {
    for (const kn__row *child = row->first; child; child = child->next) {
        const kn__row *was = before ? kn__report_find(v->before, before, child->label) : NULL;
        size_t at = length, n = strlen(child->label);
        if (!is_shown(child) || at + n + 2 > PATH_BYTES) continue;
        if (at && !v->flat) v->path[at++] = '/';
        memcpy(v->path + at, child->label, n + 1);
        kn_prof_row out = row_make(child, was, v->path);
        if (!v->fn(v->ctx, &out)) return false;
        if (!rows_visit(v, child, was, at + n)) return false;
    }
    return true;
}

static kn_status visit_tree(void *ctx, kn__report **report) {
    visit *v = ctx;
    kn__report_sort(*report, KN__SORT_FIRST);
    v->before = base;
    (void)rows_visit(v, &(*report)->root, base ? &base->root : NULL, 0);
    return KN_OK;
}

static kn_status visit_flat(void *ctx, kn__report **report) {
    visit *v = ctx;
    kn__report now, then;
    kn_status status = kn__report_flatten(&now, *report);
    kn__report_init(&then);
    if (status == KN_OK && base) {
        kn__report_release(&then);
        status = kn__report_flatten(&then, base);
    }
    if (status == KN_OK) {
        v->before = &then;
        (void)rows_visit(v, &now.root, &then.root, 0);
    }
    kn__report_release(&then);
    kn__report_release(&now);
    return status;
}

/* --- the calls --- */

kn_status kn_prof_visit(kn_prof_visit_fn fn, void *ctx) {
    visit v = {.fn = fn, .ctx = ctx};
    if (!fn) return KN_FAIL(KN_ERR_INVALID, "kn_prof_visit: fn is NULL");
    return kn__prof_with_report("kn_prof_visit", visit_tree, &v);
}

kn_status kn_prof_visit_flat(kn_prof_visit_fn fn, void *ctx) {
    visit v = {.fn = fn, .ctx = ctx, .flat = true};
    if (!fn) return KN_FAIL(KN_ERR_INVALID, "kn_prof_visit_flat: fn is NULL");
    return kn__prof_with_report("kn_prof_visit_flat", visit_flat, &v);
}

typedef struct search {
    const char *path;
    kn_prof_row found;
    bool has;
} search;

static bool row_match(void *ctx, const kn_prof_row *row) {
    search *s = ctx;
    if (strcmp(row->path, s->path) != 0) return true;
    s->found = *row;
    s->found.path = s->path;
    s->has = true;
    return false;
}

kn_status kn_prof_read(kn_prof_row *out, size_t out_bytes, const char *path) {
    search s = {.path = path};
    if (!path) return KN_FAIL(KN_ERR_INVALID, "kn_prof_read: the path is NULL");
    KN_TRY(kn_prof_visit(row_match, &s));
    if (!s.has) return KN_FAIL(KN_ERR_INVALID, "kn_prof_read: no scope '%.200s'", path);
    memset(out, 0, out_bytes);
    memcpy(out, &s.found, out_bytes < sizeof s.found ? out_bytes : sizeof s.found);
    return KN_OK;
}

/* The report becomes the base; the older one is released in its place. */
static kn_status base_set(void *ctx, kn__report **report) {
    (void)ctx;
    kn__report *older = base;
    base = *report;
    *report = older;
    return KN_OK;
}

kn_status kn_prof_reset(void) { return kn__prof_with_report("kn_prof_reset", base_set, NULL); }

int kn_prof_open_scopes(kn_prof_open *out, int n_max) {
    const kn__tree_node *node = kn__tree_mine ? kn__tree_mine->current : NULL;
    int n = node ? node->depth : 0;
    for (; node && node->parent; node = node->parent) {
        int i = (int)node->depth - 1;
        if (i < n_max) out[i] = (kn_prof_open){node->label, node->start};
    }
    return n;
}

char *kn_prof_open_path(char *out, size_t out_bytes, uint64_t *open_ns) {
    enum { DEPTH_MAX = 256 };
    const kn__tree_node *open[DEPTH_MAX], *node = kn__tree_mine ? kn__tree_mine->current : NULL;
    int n = 0;
    size_t at = 0;
    if (open_ns) *open_ns = 0;
    if (node && node->parent && open_ns)
        *open_ns = kn__clock_ns(kn__clock_now() - node->start, kn__clock_tick_ns());
    for (; node && node->parent && n < DEPTH_MAX; node = node->parent) open[n++] = node;
    if (out_bytes) out[0] = 0;
    while (n-- && at + 1 < out_bytes) {
        int length = snprintf(out + at, out_bytes - at, "%s%s", at ? "/" : "", open[n]->label);
        at += length > 0 ? (size_t)length : 0;
    }
    return out;
}
