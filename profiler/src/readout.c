/* kn_prof_read and its kin. */
#include "readout.h"

#include <knet/prof_read.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "mute.h"
#include "select.h"
#include "text.h"
#include "tree.h"

/* The counts at a reset. */
typedef struct snapshot {
    atomic_int n_users; /* calls that compare with it, and `base` */
    kn__report *report;
} snapshot;

/* Of the last reset; under the lock of kn__prof_with_report. */
static snapshot *base;

typedef struct visit {
    kn_prof_visit_fn fn;
    void *ctx;
    kn__report *now;
    snapshot *then;           /* NULL: there was no reset */
    const kn__report *before; /* NULL: count from the start */
    kn__text path;
    bool flat;
    bool is_range; /* of the row that fn gets */
} visit;

/* --- rows --- */

static uint64_t inside_ns(const kn__row *row) {
    uint64_t ns = 0;
    for (const kn__row *child = row->first; child; child = child->next)
        if (!child->is_extra && !child->is_kernel && !child->is_range) ns += child->time_ns;
    return ns < row->time_ns ? ns : row->time_ns;
}

/* Amounts that were there before may be larger where a call was open then. */
static uint64_t since(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

static kn_prof_row row_make(const kn__row *row, const kn__row *before, const char *path) {
    static const kn__row zero = {0};
    const kn__row *b = before ? before : &zero;
    uint64_t n_calls = since(row->n_calls, b->n_calls), ns = since(row->time_ns, b->time_ns);
    uint64_t own_ns = since(row->time_ns - inside_ns(row), b->time_ns - inside_ns(b));
    if (!n_calls && !b->open) ns = 0; /* the clock's rate is known better now */
    return (kn_prof_row){
        .path = path,
        .depth = row->depth,
        .n_calls = n_calls,
        .time_ns = ns,
        .own_ns = own_ns < ns ? own_ns : ns,
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
        const kn__row *was = before ? kn__report_same(v->before, before, child) : NULL;
        if (!is_shown(child)) continue;
        v->path.length = length;
        if (child->depth > 1) kn__text_puts(&v->path, "/");
        kn__text_puts(&v->path, child->label);
        if (v->path.failed) return false;
        kn_prof_row out = row_make(child, was, v->path.data);
        v->is_range = child->is_range;
        kn__unmute();
        bool goes_on = v->fn(v->ctx, &out);
        kn__mute();
        if (!goes_on) return false;
        if (!rows_visit(v, child, was, v->path.length)) return false;
    }
    return true;
}

static void snapshot_drop(snapshot *s) {
    if (!s || atomic_fetch_sub(&s->n_users, 1) > 1) return;
    kn__report_release(s->report);
    free(s->report);
    free(s);
}

/* The report is the visit's. */
static kn_status keep_report(void *ctx, kn__report **report) {
    visit *v = ctx;
    v->now = *report;
    *report = NULL;
    v->then = base;
    if (base) atomic_fetch_add(&base->n_users, 1);
    return KN_OK;
}

static kn_status visit_tree(visit *v) {
    kn__report_sort(v->now, KN__SORT_FIRST);
    v->before = v->then ? v->then->report : NULL;
    (void)rows_visit(v, &v->now->root, v->before ? &v->before->root : NULL, 0);
    return KN_OK;
}

static kn_status visit_flat(visit *v) {
    kn__report now, then;
    kn_status status = kn__report_flatten(&now, v->now);
    kn__report_init(&then);
    if (status == KN_OK && v->then) status = kn__report_flatten(&then, v->then->report);
    if (status == KN_OK) {
        v->before = &then;
        (void)rows_visit(v, &now.root, &then.root, 0);
    }
    kn__report_release(&then);
    kn__report_release(&now);
    return status;
}

/* The visitor may end the program, or call the timer: no lock is held. */
static kn_status visit_rows(visit *v, const char *who) {
    if (!v->fn) return KN_FAIL(KN_ERR_INVALID, "%s: fn is NULL", who);
    KN_TRY(kn__prof_with_report(who, keep_report, v));
    kn__mute();
    kn_status status = v->flat ? visit_flat(v) : visit_tree(v);
    if (v->path.failed) status = KN_FAIL(KN_ERR_OOM, "%s: no memory for a path", who);
    kn__text_release(&v->path);
    kn__report_release(v->now);
    free(v->now);
    snapshot_drop(v->then);
    kn__unmute();
    return status;
}

/* --- the calls --- */

kn_status kn_prof_visit(kn_prof_visit_fn fn, void *ctx) {
    return visit_rows(&(visit){.fn = fn, .ctx = ctx}, "kn_prof_visit");
}

kn_status kn_prof_visit_flat(kn_prof_visit_fn fn, void *ctx) {
    return visit_rows(&(visit){.fn = fn, .ctx = ctx, .flat = true}, "kn_prof_visit_flat");
}

typedef struct search {
    const char *path;
    const visit *by;
    kn_prof_row found;
    bool has;
} search;

static bool row_match(void *ctx, const kn_prof_row *row) {
    search *s = ctx;
    if (strcmp(row->path, s->path) != 0) return true;
    s->found = *row;
    s->found.path = s->path;
    s->has = true;
    return s->by->is_range; /* there may be a scope too */
}

kn_status kn_prof_read(kn_prof_row *out, size_t out_bytes, const char *path) {
    search s = {.path = path};
    if (!path) return KN_FAIL(KN_ERR_INVALID, "kn_prof_read: the path is NULL");
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_prof_read: out is NULL");
    visit v = {.fn = row_match, .ctx = &s};
    s.by = &v;
    KN_TRY(visit_rows(&v, "kn_prof_read"));
    if (!s.has) return KN_FAIL(KN_ERR_INVALID, "kn_prof_read: no scope '%.200s'", path);
    memset(out, 0, out_bytes);
    memcpy(out, &s.found, out_bytes < sizeof s.found ? out_bytes : sizeof s.found);
    return KN_OK;
}

/* The report is the base from now on. */
static kn_status base_set(void *ctx, kn__report **report) {
    snapshot *made = malloc(sizeof *made), *older = base;
    (void)ctx;
    if (!made) return KN_FAIL(KN_ERR_OOM, "kn_prof_reset: no memory");
    *made = (snapshot){1, *report};
    *report = NULL;
    base = made;
    snapshot_drop(older);
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
    for (int i = n - 1; i >= 0 && at + 1 < out_bytes; i--) {
        const char *slash = i < n - 1 ? "/" : "";
        int length = snprintf(out + at, out_bytes - at, "%s%s", slash, open[i]->label);
        at += length > 0 ? (size_t)length : 0;
    }
    return out;
}
