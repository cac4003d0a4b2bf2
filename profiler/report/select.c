#include "select.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"

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

/* A row that stays for those below it alone: it has their sums, as their path, and no calls. */
static void sum_below(kn__row *row) {
    kn__row sum = {.label = row->label,
                   .where = row->where,
                   .parent = row->parent,
                   .first = row->first,
                   .last = row->last,
                   .next = row->next,
                   .depth = row->depth,
                   .is_kernel = row->is_kernel,
                   .is_extra = row->is_extra,
                   .is_range = row->is_range,
                   .first_start = row->first_start};
    for (const kn__row *child = row->first; child; child = child->next) {
        kn__row_add(&sum, child);
        if (child->is_range) sum.time_ns -= child->time_ns;
        sum.open |= child->open;
    }
    sum.n_calls = sum.n_ended = sum.min_ns = sum.max_ns = 0;
    sum.ended_ns = sum.squares_ns2 = 0;
    sum.held_at_peak = sum.rise = 0; /* of the row itself */
    *row = sum;
}

static int filter_children(const pattern *p, kn__row *parent);

/* A path has those of the rows above in it, so all below a row that fits stays. */
static bool keep(const pattern *p, kn__row *row, int *n) {
    if (fits(p, row)) {
        *n += 1;
        return true;
    }
    int inside = filter_children(p, row);
    if (inside) sum_below(row);
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
    bool all_kernels = true;
    for (kn__row *row = rest; row && row != sum; row = row->next) {
        kn__row_add(sum, row);
        if (row->is_range) sum->time_ns -= row->time_ns;
        sum->held_at_peak = (int64_t)((uint64_t)sum->held_at_peak + (uint64_t)held_inside(row));
        all_kernels = all_kernels && row->is_kernel;
    }
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

static kn__row own_values(const kn__row *row) {
    kn__row own = *row;
    own.held = kn__row_held(row);
    for (const kn__row *child = row->first; child; child = child->next) {
        uint64_t inside = child->is_range ? 0 : child->time_ns;
        own.time_ns -= own.time_ns < inside ? own.time_ns : inside;
        kn__fields_subtract(&own, child, kn__row_amounts);
        kn__fields_subtract(&own, child, kn__row_work);
        kn__fields_subtract(&own, child, kn__row_gpu);
    }
    return own;
}

/* One that was never called and stands for those below it. */
static bool is_path(const kn__row *row) {
    return row->first && !row->n_calls && !row->is_kernel && !row->is_extra;
}

static kn_status add_flat(kn__report *out, const kn__row *row) {
    kn__row *flat = kn__report_row_of(out, &out->root, row->label, row->is_range);
    if (!flat) return KN_FAIL(KN_ERR_OOM, "no memory for the report");
    kn__row own = own_values(row);
    bool is_kernel = flat->n_calls == 0 && row->is_kernel;
    kn__row_add(flat, &own);
    flat->is_kernel = is_kernel;
    flat->is_extra = row->is_extra;
    flat->open |= row->open;
    if (row->first_start < flat->first_start) {
        flat->first_start = row->first_start;
        flat->first_ns = row->first_ns;
    }
    return KN_OK;
}

static kn_status flatten(kn__report *out, const kn__row *row) {
    for (; row; row = row->next) {
        if (!is_path(row)) KN_TRY(add_flat(out, row));
        KN_TRY(flatten(out, row->first));
    }
    return KN_OK;
}

kn_status kn__report_flatten(kn__report *out, const kn__report *report) {
    *out = *report;
    out->root = (kn__row){.label = ""};
    out->chunks = NULL;
    out->kept = NULL;
    out->timeline = NULL;
    out->children = (kn__hash){0};
    out->owners_noted = true;
    KN_TRY(flatten(out, report->root.first));
    for (kn__row *row = out->root.first; row; row = row->next) {
        if (row->min_ns == UINT64_MAX) row->min_ns = 0;
    }
    kn__report_sum(out);
    return KN_OK;
}
