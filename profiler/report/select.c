#include "select.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, LABEL_BYTES = 64 };

/* --- filter --- */

typedef struct pattern {
    const char *text;
    bool is_regex;
    regex_t regex;
} pattern;

static bool fits(const pattern *p, const kn__row *row) {
    char path[PATH_BYTES];
    kn__report_path(path, sizeof path, row);
    return strstr(path, p->text) || (p->is_regex && regexec(&p->regex, path, 0, NULL, 0) == 0);
}

static int filter_children(const pattern *p, kn__row *parent);

/* A path has those of the rows above in it, so all below a row that fits stays. */
static bool keep(const pattern *p, kn__row *row, int *n) {
    if (fits(p, row)) {
        *n += 1;
        return true;
    }
    int inside = filter_children(p, row);
    *n += inside;
    return inside > 0;
}

static int filter_children(const pattern *p, kn__row *parent) {
    int n = 0;
    kn__row *row = parent->first, **link = &parent->first;
    parent->last = NULL;
    for (kn__row *next; row; row = next) {
        next = row->next;
        if (!keep(p, row, &n)) continue;
        *link = parent->last = row;
        link = &row->next;
    }
    *link = NULL;
    return n;
}

int kn__report_filter(kn__report *report, const char *text) {
    pattern p = {.text = text};
    p.is_regex = regcomp(&p.regex, text, REG_EXTENDED | REG_NOSUB) == 0;
    int n = filter_children(&p, &report->root);
    if (p.is_regex) regfree(&p.regex);
    return n;
}

/* --- top --- */

static void add_values(kn__row *to, const kn__row *row) {
    to->n_calls += row->n_calls;
    to->time_ns += row->time_ns;
    to->n_ended += row->n_ended;
    to->ended_ns += row->ended_ns;
    to->squares_ns2 += row->squares_ns2;
    to->alloc_bytes += row->alloc_bytes;
    to->n_allocs += row->n_allocs;
    to->freed_bytes += row->freed_bytes;
    to->temporary_bytes += row->temporary_bytes;
    to->n_temporary += row->n_temporary;
    to->gpu_ns += row->gpu_ns;
    to->gpu_bytes += row->gpu_bytes;
    to->n_pending += row->n_pending;
    to->n_gpu += row->n_gpu;
    to->peak = kn__max_i64(to->peak, row->peak);
    to->peak_most = kn__max_i64(to->peak_most, row->peak_most);
    to->held = (int64_t)((uint64_t)to->held + (uint64_t)row->held);
    to->rise = kn__max_i64(to->rise, row->rise);
    to->held_at_peak = (int64_t)((uint64_t)to->held_at_peak + (uint64_t)row->held_at_peak);
    to->max_ns = kn__max_u64(to->max_ns, row->max_ns);
    if (row->min_ns && row->min_ns < to->min_ns) to->min_ns = row->min_ns;
}

/* Of the rows below: each has its own alone. */
static int64_t held_inside(const kn__row *row) {
    uint64_t sum = 0;
    for (const kn__row *child = row->first; child; child = child->next) {
        sum += (uint64_t)child->held_at_peak + (uint64_t)held_inside(child);
    }
    return (int64_t)sum;
}

static kn_status sum_up(kn__report *report, kn__row *parent, kn__row *rest) {
    char label[LABEL_BYTES];
    int n = 0;
    for (kn__row *row = rest; row; row = row->next) n++;
    snprintf(label, sizeof label, "(%d more)", n);
    const char *kept = kn__report_keep(report, label);
    kn__row *sum = kept ? kn__report_row(report, parent, kept) : NULL;
    if (!sum) return KN_FAIL(KN_ERR_OOM, "no memory for the report");
    bool all_kernels = true, all_extra = true;
    for (kn__row *row = rest; row && row != sum; row = row->next) {
        add_values(sum, row);
        sum->held_at_peak = (int64_t)((uint64_t)sum->held_at_peak + (uint64_t)held_inside(row));
        all_kernels = all_kernels && row->is_kernel;
        all_extra = all_extra && row->is_extra;
    }
    sum->is_extra = all_extra;
    sum->is_kernel = all_kernels;
    if (sum->min_ns == UINT64_MAX) sum->min_ns = 0;
    return KN_OK;
}

static kn_status top_of(kn__report *report, kn__row *parent, int n) {
    kn__row *row = parent->first, *last = NULL;
    for (int i = 0; row && i < n; i++, row = row->next) {
        KN_TRY(top_of(report, row, n));
        last = row;
    }
    if (!row || !row->next || row->is_extra) return KN_OK; /* a sum would take no less room */
    KN_TRY(sum_up(report, parent, row));
    *(last ? &last->next : &parent->first) = parent->last;
    return KN_OK;
}

kn_status kn__report_top(kn__report *report, int n) { return top_of(report, &report->root, n); }

/* --- flatten --- */

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static kn__row own_values(const kn__row *row) {
    kn__row own = *row;
    own.held = kn__row_held(row);
    for (const kn__row *child = row->first; child; child = child->next) {
        own.time_ns = less(own.time_ns, child->time_ns);
        own.alloc_bytes = less(own.alloc_bytes, child->alloc_bytes);
        own.n_allocs = less(own.n_allocs, child->n_allocs);
        own.freed_bytes = less(own.freed_bytes, child->freed_bytes);
        own.gpu_ns = less(own.gpu_ns, child->gpu_ns);
        own.n_pending = less(own.n_pending, child->n_pending);
        own.gpu_bytes = less(own.gpu_bytes, child->gpu_bytes);
        own.temporary_bytes = less(own.temporary_bytes, child->temporary_bytes);
        own.n_temporary = less(own.n_temporary, child->n_temporary);
        own.n_gpu = less(own.n_gpu, child->n_gpu);
    }
    return own;
}

static kn_status flatten(kn__report *out, const kn__row *row) {
    for (; row; row = row->next) {
        kn__row *flat = kn__report_row(out, &out->root, row->label);
        if (!flat) return KN_FAIL(KN_ERR_OOM, "no memory for the report");
        kn__row own = own_values(row);
        bool is_kernel = flat->n_calls == 0 && row->is_kernel;
        add_values(flat, &own);
        flat->is_kernel = is_kernel;
        flat->is_extra = row->is_extra;
        if (row->first_start < flat->first_start) {
            flat->first_start = row->first_start;
            flat->first_ns = row->first_ns;
        }
        KN_TRY(flatten(out, row->first));
    }
    return KN_OK;
}

kn_status kn__report_flatten(kn__report *out, const kn__report *report) {
    kn__report_init(out);
    out->wall_ns = report->wall_ns;
    out->n_threads = report->n_threads;
    out->n_unrecorded = report->n_unrecorded;
    out->buffer_bytes = report->buffer_bytes;
    out->buffer_full = report->buffer_full;
    out->has_memory = report->has_memory;
    out->outside = report->outside;
    out->memory = report->memory;
    out->live = report->live;
    out->steps = report->steps;
    out->balance = report->balance;
    memcpy(out->owners, report->owners, sizeof out->owners);
    memcpy(out->holders, report->holders, sizeof out->holders);
    out->n_owners = report->n_owners;
    out->n_holders = report->n_holders;
    out->owners_noted = true;
    KN_TRY(flatten(out, report->root.first));
    for (kn__row *row = out->root.first; row; row = row->next) {
        if (row->min_ns == UINT64_MAX) row->min_ns = 0;
    }
    kn__report_sum(out);
    return KN_OK;
}
