#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

typedef struct builder {
    kn__table_lines *out;
    const kn__report *report;
    const kn__lines_options *options;
} builder;

/* Clocks of threads differ a little, and scopes may end after the wall time was read. */
bool kn__report_is_parallel(const kn__report *report) {
    return report->n_threads > 1 && report->wall_ns &&
           (double)report->root.time_ns > 1.02 * (double)report->wall_ns;
}

double kn__report_whole_ns(const kn__report *report) {
    bool by_wall = kn__report_is_parallel(report) || (report->has_ranges && report->wall_ns);
    return (double)(by_wall ? report->wall_ns : report->root.time_ns);
}

/* --- labels --- */

static const char *name_of(const builder *b, const kn__row *row) {
    const char *shown = row->is_kernel ? kn__names_get(b->options->names, row->label) : NULL;
    return shown ? shown : row->label;
}

static void add_threads(const builder *b, kn__text *label, const kn__row *row) {
    if (row->n_threads < 2 || row->n_threads == row->parent->n_threads) return;
    if (!kn__report_is_parallel(b->report)) return;
    kn__text_printf(label, " (%llu threads)", (unsigned long long)row->n_threads);
}

static void add_line(builder *b, kn__line line) {
    kn__table_lines *out = b->out;
    if (line.label && out->n == out->size) {
        size_t size = out->size ? 2 * out->size : 64;
        kn__line *all = realloc(out->all, size * sizeof *all);
        if (all) {
            out->all = all;
            out->size = size;
        }
    }
    if (!line.label || out->n == out->size) {
        out->failed = true;
        free(line.label);
        free(line.sum);
        return;
    }
    out->all[out->n++] = line;
}

/* --- which rows --- */

static bool is_hidden(const builder *b, const kn__row *row) {
    return b->options->depth > 0 && row->depth > b->options->depth;
}

static bool is_below(double part, double whole, double min) {
    return part < min * whole || part == 0;
}

static bool is_short(const builder *b, const kn__row *row) {
    double min = b->options->min;
    if (min <= 0 || row->n_pending || (row->is_extra && row->depth == 1)) return false;
    return is_below((double)row->time_ns, kn__report_whole_ns(b->report), min) &&
           is_below((double)row->gpu_ns, (double)b->report->root.gpu_ns, min);
}

static bool is_small(const builder *b, const kn__row *row) {
    double all = (double)b->report->root.alloc_bytes;
    return is_short(b, row) && is_below((double)row->alloc_bytes, all, b->options->min);
}

/* Notes that the tape takes and memory for one call belong to the operation, whose bytes have them
 * too, unless they cost something. */
static bool is_part_of_parent(const builder *b, const kn__row *row) {
    if (row->first || row->depth == 1) return false;
    if (strcmp(row->label, "work space") == 0) return is_short(b, row);
    return strcmp(row->label, "record") == 0 && is_small(b, row);
}

static const kn__row *shown(const builder *b, const kn__row *row) {
    while (row && is_part_of_parent(b, row)) row = row->next;
    return row;
}

/* The time of the rows below it that have a line. */
static uint64_t time_inside(const builder *b, const kn__row *row) {
    uint64_t ns = 0;
    for (const kn__row *child = row->first; child; child = child->next) {
        if (!is_part_of_parent(b, child) && !child->is_range) ns += child->time_ns;
    }
    return ns;
}

/* The only row below, if it says the same as the row itself: called once in each call of it. */
static const kn__row *same_below(const builder *b, const kn__row *row) {
    const kn__row *child = shown(b, row->first);
    if (b->options->min <= 0 || !child || shown(b, child->next)) return NULL;
    if (is_hidden(b, child)) return NULL;
    if (row->is_extra || child->is_extra || row->is_range || child->is_range) return NULL;
    uint64_t n = child->is_kernel ? child->n_gpu : child->n_calls;
    return row->n_calls && n == row->n_calls && child->n_threads <= row->n_threads ? child : NULL;
}

/* Beyond the first rows of a level; notes of the timer stay. */
static bool is_beyond(const builder *b, const kn__row *row, int n_kept) {
    bool is_note = row->is_extra && row->depth == 1;
    return b->options->top > 0 && n_kept >= b->options->top && !is_note;
}

/* Whether the line of a level that sums up rows has this one too; n_kept: the rows before it that
 * have a line of their own. */
static bool is_summed(const builder *b, const kn__row *row, int *n_kept) {
    if (is_small(b, row) || is_beyond(b, row, *n_kept)) return true;
    ++*n_kept;
    return false;
}

static int count_summed(const builder *b, const kn__row *row) {
    int n = 0;
    for (int n_kept = 0; row; row = shown(b, row->next)) n += is_summed(b, row, &n_kept);
    return n;
}

/* --- lines --- */

static void add_level(builder *b, const kn__row *row, int depth);

static void add_row(builder *b, const kn__row *row, int depth) {
    kn__text label = {0};
    const kn__row *last = row;
    kn__text_puts(&label, name_of(b, row));
    if (row->is_range) kn__text_puts(&label, " (range)");
    add_threads(b, &label, row);
    for (const kn__row *child; (child = same_below(b, last)); last = child) {
        kn__text_puts(&label, b->options->ascii ? " > " : " › ");
        kn__text_puts(&label, name_of(b, child));
        b->out->joined = true;
    }
    uint64_t own_ns = row->time_ns, inside = time_inside(b, last);
    own_ns -= inside < own_ns ? inside : own_ns;
    if (row->n_calls && own_ns < row->time_ns) b->out->has_own = true;
    if (label.failed) kn__text_release(&label);
    add_line(b, (kn__line){.row = row, .label = label.data, .depth = depth, .own_ns = own_ns});
    if (!is_small(b, row)) add_level(b, shown(b, last->first), depth + 1);
}

static void label_sum(builder *b, kn__line *line, int n, int n_small) {
    kn__text label = {0};
    if (n_small < n) {
        kn__text_printf(&label, "(%d more)", n);
    } else {
        kn__text_printf(&label, "(%d below %.3g %%)", n, 100 * b->options->min);
        b->out->n_small += (size_t)n;
    }
    line->label = label.data;
}

static void add_sum(builder *b, const kn__row *row, int depth) {
    kn__row *sum = calloc(1, sizeof *sum);
    int n = 0, n_small = 0;
    if (!sum) {
        b->out->failed = true;
        return;
    }
    sum->min_ns = UINT64_MAX;
    sum->is_kernel = true;
    for (int n_kept = 0; row; row = shown(b, row->next)) {
        if (!is_summed(b, row, &n_kept)) continue;
        kn__row_add(sum, row);
        if (row->is_range) sum->time_ns -= row->time_ns;
        sum->is_kernel = sum->is_kernel && row->is_kernel;
        n++;
        n_small += is_small(b, row);
    }
    if (sum->min_ns == UINT64_MAX) sum->min_ns = 0;
    kn__line line = {.row = sum, .sum = sum, .depth = depth, .own_ns = sum->time_ns};
    label_sum(b, &line, n, n_small);
    add_line(b, line);
}

/* The sum stands below the rows of the program. One row alone is no sum. */
static void add_level(builder *b, const kn__row *first, int depth) {
    if (!first || is_hidden(b, first)) return;
    bool has_sum = count_summed(b, first) > 1;
    int n_kept = 0;
    for (const kn__row *row = first; row; row = shown(b, row->next)) {
        if (has_sum && depth == 0 && row->is_extra) {
            add_sum(b, first, depth);
            has_sum = false;
        }
        bool is_alone = !has_sum && !(depth == 0 && row->is_extra);
        if (!is_summed(b, row, &n_kept) || is_alone) add_row(b, row, depth);
    }
    if (has_sum) add_sum(b, first, depth);
}

void kn__lines_make(kn__table_lines *out, const kn__report *report,
                    const kn__lines_options *options) {
    builder b = {out, report, options};
    *out = (kn__table_lines){0};
    add_level(&b, shown(&b, report->root.first), 0);
}

void kn__lines_release(kn__table_lines *lines) {
    for (size_t i = 0; i < lines->n; i++) {
        free(lines->all[i].label);
        free(lines->all[i].sum);
    }
    free(lines->all);
    *lines = (kn__table_lines){0};
}
