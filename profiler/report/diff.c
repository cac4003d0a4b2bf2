#include "diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "judge.h"

enum {
    PATH_BYTES = 1024,
    PATH_COLUMN = 56,
    PATH_COLUMNS_MIN = 20,
    ALLOC_BYTES_MIN = 1 << 16,
    RENAMES_MAX = 64,
    VALUE_COLUMNS = 100
};

/* How far the calls of a row may be from those of the one it was renamed to. */
static const double alike = 0.3;

typedef struct comparison {
    kn__diff *diff;
    const kn__report *a, *b;
    double threshold, share;
    kn__judge judge;
    kn_status status;
} comparison;

static void add_change(comparison *c, kn__change change) {
    if (c->status < 0) return;
    kn__diff *d = c->diff;
    if ((d->n & (d->n - 1)) == 0) { /* full at powers of two */
        size_t n = d->n ? 2 * (size_t)d->n : 1;
        kn__change *more = realloc(d->changes, n * sizeof *more);
        if (!more) {
            c->status = KN_FAIL(KN_ERR_OOM, "no memory for the comparison");
            return;
        }
        d->changes = more;
    }
    d->changes[d->n++] = change;
    d->n_worse += change.weight > 0 && !change.neutral;
    d->n_neutral += change.neutral;
}

/* --- what has moved --- */

static bool is_beyond(double a, double b, double part) { return fabs(b - a) > part * fabs(a); }

static bool is_large(double a, double of_a, double b, double of_b, double share) {
    return a > share * of_a || b > share * of_b;
}

static bool has_share(const comparison *c, const kn__row *a, const kn__row *b) {
    return is_large((double)a->time_ns, (double)c->a->root.time_ns, (double)b->time_ns,
                    (double)c->b->root.time_ns, c->share);
}

/* The share of the run that calls of the judged length have: one slow call gives none. */
static bool calls_have_share(const comparison *c, double before, double after) {
    return is_large(before, (double)c->a->root.time_ns, after, (double)c->b->root.time_ns,
                    c->share);
}

static void compare_time(comparison *c, const kn__row *a, const kn__row *b) {
    double before = kn__judge_call(a, b), after = kn__judge_call(b, a);
    if (!calls_have_share(c, before * (double)a->n_calls, after * (double)b->n_calls)) return;
    if (!a->n_calls || !b->n_calls) return;
    kn__verdict verdict = kn__judge_time(&c->judge, a, b);
    c->diff->n_unsteady += verdict == KN__UNSTEADY;
    if (verdict != KN__MOVED) return;
    add_change(c, (kn__change){.row = b,
                               .what = KN__DIFF_TIME,
                               .a = before,
                               .b = after,
                               .weight = (after - before) * (double)b->n_calls});
}

static double gpu_each(const kn__row *row) {
    uint64_t n = row->is_kernel ? row->n_gpu : row->n_calls;
    return n ? (double)row->gpu_ns / (double)n : 0;
}

static void compare_gpu(comparison *c, const kn__row *a, const kn__row *b) {
    double before = gpu_each(a), after = gpu_each(b);
    uint64_t n = b->is_kernel ? b->n_gpu : b->n_calls;
    if (before == 0 || after == 0 || !is_beyond(before, after, c->threshold)) return;
    if (!is_large((double)a->gpu_ns, (double)c->a->root.gpu_ns, (double)b->gpu_ns,
                  (double)c->b->root.gpu_ns, c->share)) {
        return;
    }
    add_change(c, (kn__change){.row = b,
                               .what = KN__DIFF_GPU,
                               .a = before,
                               .b = after,
                               .weight = (after - before) * (double)n});
}

/* Where both count steps, those: runs of another length have the same calls a step. Else runs. */
static double units_of(const comparison *c, const kn__report *report) {
    if (c->a->steps.n && c->b->steps.n) return (double)report->steps.n;
    return report->n_runs > 1 ? (double)report->n_runs : 1;
}

static void compare_calls(comparison *c, const kn__row *a, const kn__row *b) {
    if (!has_share(c, a, b)) return;
    double before = (double)a->n_calls / units_of(c, c->a);
    double after = (double)b->n_calls / units_of(c, c->b);
    bool once = a->n_calls == b->n_calls; /* a run, whatever its length */
    if (once || !is_beyond(before, after, c->threshold)) return;
    add_change(c,
               (kn__change){.row = b,
                            .what = KN__DIFF_CALLS,
                            .a = before,
                            .b = after,
                            .weight = (after - before) * units_of(c, c->b) * kn__judge_before(b)});
}

static double bytes_each(const kn__row *row) {
    return row->n_calls ? (double)row->alloc_bytes / (double)row->n_calls : 0;
}

static void compare_alloc(comparison *c, const kn__row *a, const kn__row *b) {
    double before = bytes_each(a), after = bytes_each(b);
    double weight = (after - before) * (double)b->n_calls;
    if (!is_beyond(before, after, c->threshold) || fabs(weight) < ALLOC_BYTES_MIN) return;
    if (!is_large((double)a->alloc_bytes, (double)c->a->root.alloc_bytes, (double)b->alloc_bytes,
                  (double)c->b->root.alloc_bytes, c->share)) {
        return;
    }
    add_change(c, (kn__change){
                      .row = b, .what = KN__DIFF_ALLOC, .a = before, .b = after, .weight = weight});
}

static void compare_marks(comparison *c, kn__diff_what what, const kn__row *row, int64_t a,
                          int64_t b) {
    double before = (double)a, after = (double)b;
    if (!is_beyond(before, after, c->threshold)) return;
    if (fabs(after - before) < ALLOC_BYTES_MIN) return;
    if (!is_large(before, (double)c->a->memory.live_max, after, (double)c->b->memory.live_max,
                  c->share)) {
        return;
    }
    add_change(c, (kn__change){
                      .row = row, .what = what, .a = before, .b = after, .weight = after - before});
}

/* ns of the row in one step, or in one run. */
static double spent(const comparison *c, const kn__report *of, const kn__row *row) {
    return (double)(row->is_kernel ? row->gpu_ns : row->time_ns) / units_of(c, of);
}

/* A row that came or went is a change of names, unless the row above spends more. */
static double growth(const comparison *c, const kn__row *a, const kn__row *b, bool gpu) {
    double before = (double)(gpu ? a->gpu_ns : a->time_ns) / units_of(c, c->a);
    double after = (double)(gpu ? b->gpu_ns : b->time_ns) / units_of(c, c->b);
    return before > 0 ? after / before - 1 : after;
}

static void add_alone(comparison *c, const kn__row *row, kn__diff_what what, bool neutral) {
    const kn__report *of = what == KN__DIFF_NEW ? c->b : c->a;
    double ns = (double)(row->is_kernel ? row->gpu_ns : row->time_ns);
    double all = (double)(row->is_kernel ? of->root.gpu_ns : of->root.time_ns);
    if (ns <= c->share * all) return;
    bool is_new = what == KN__DIFF_NEW;
    add_change(c, (kn__change){.row = row,
                               .what = what,
                               .neutral = neutral,
                               .a = is_new ? 0 : ns,
                               .b = is_new ? ns : 0,
                               .weight = is_new ? ns : -ns});
}

/* So many rows of a level have names that are data: of files, of steps. */
static bool has_few_children(const kn__row *parent) {
    int n = 0;
    for (const kn__row *row = parent->first; row && n <= RENAMES_MAX; row = row->next) n++;
    return n <= RENAMES_MAX;
}

static bool is_renamed(const comparison *c, const kn__row *a, const kn__row *b) {
    if (a->is_extra || a->is_kernel != b->is_kernel || a->is_range != b->is_range || !b->n_calls)
        return false;
    double calls = (double)a->n_calls / units_of(c, c->a),
           after = (double)b->n_calls / units_of(c, c->b);
    if (is_beyond(calls, after, 0.01) || kn__report_same(c->b, b->parent, a)) return false;
    return !is_beyond(spent(c, c->a, a), spent(c, c->b, b), alike);
}

/* The one row of A that has gone and was like this one; NULL: none, or several. */
static const kn__row *find_renamed(const comparison *c, const kn__row *a, const kn__row *b) {
    const kn__row *found = NULL;
    if (!has_few_children(a) || !has_few_children(b->parent)) return NULL;
    for (const kn__row *row = a->first; row; row = row->next) {
        if (!is_renamed(c, row, b)) continue;
        if (found) return NULL;
        found = row;
    }
    return found;
}

/* The same question from the other side: each name of B answers for one of A. */
static bool was_renamed(const comparison *c, const kn__row *row, const kn__row *b) {
    if (!has_few_children(row->parent) || !has_few_children(b)) return false;
    for (const kn__row *now = b->first; now; now = now->next) {
        if (kn__report_same(c->a, row->parent, now) || now->is_extra) continue;
        if (find_renamed(c, row->parent, now) == row) return true;
    }
    return false;
}

static void compare_rows(comparison *c, const kn__row *a, const kn__row *b);

static void compare_new(comparison *c, const kn__row *a, const kn__row *parent,
                        const kn__row *row) {
    const kn__row *before = find_renamed(c, a, row);
    if (!before) {
        add_alone(c, row, KN__DIFF_NEW, growth(c, a, parent, row->is_kernel) <= c->threshold);
        return;
    }
    if (has_share(c, before, row)) {
        add_change(c, (kn__change){.row = row,
                                   .from = before,
                                   .what = KN__DIFF_RENAMED,
                                   .neutral = true,
                                   .a = (double)before->time_ns,
                                   .b = (double)row->time_ns});
    }
    compare_rows(c, before, row);
}

static void compare_children(comparison *c, const kn__row *a, const kn__row *b) {
    for (const kn__row *row = b->first; row; row = row->next) {
        if (row->is_extra) continue; /* nothing of the program */
        const kn__row *before = kn__report_same(c->a, a, row);
        before ? compare_rows(c, before, row) : compare_new(c, a, b, row);
    }
    for (const kn__row *row = a->first; row; row = row->next) {
        if (row->is_extra || kn__report_same(c->b, b, row)) continue;
        if (!was_renamed(c, row, b)) {
            add_alone(c, row, KN__DIFF_GONE, growth(c, a, b, row->is_kernel) >= -c->threshold);
        }
    }
}

static void compare_rows(comparison *c, const kn__row *a, const kn__row *b) {
    compare_time(c, a, b);
    compare_calls(c, a, b);
    compare_gpu(c, a, b);
    if (c->a->has_memory && c->b->has_memory) {
        compare_alloc(c, a, b);
        compare_marks(c, KN__DIFF_RISE, b, a->rise, b->rise);
    }
    compare_children(c, a, b);
}

/* A step's, or the run's; of several runs the fastest one's. */
static double time_of_run(const comparison *c, const kn__report *report) {
    const kn__row *root = &report->root;
    if (root->n_runs < 2) return (double)root->time_ns / units_of(c, report);
    return (double)root->run_min_ns * (double)root->n_runs / units_of(c, report);
}

/* The time of the run counts where no row explains it. */
static void compare_runs(comparison *c) {
    const kn__row *b = &c->b->root;
    double before = time_of_run(c, c->a), after = time_of_run(c, c->b);
    if (c->diff->n > c->diff->n_neutral || before <= 0) return;
    kn__verdict verdict = kn__judge_value(&c->judge, before, after);
    if (verdict != KN__MOVED) return;
    add_change(c, (kn__change){.row = b,
                               .what = KN__DIFF_TIME,
                               .a = before,
                               .b = after,
                               .weight = (after - before) * units_of(c, c->b)});
}

/* --- order --- */

static bool is_bytes(kn__diff_what what) {
    return what == KN__DIFF_ALLOC || what == KN__DIFF_RISE || what == KN__DIFF_PEAK;
}

static int group_of(const kn__change *x) {
    return x->neutral ? 4 : 2 * (x->weight <= 0) + is_bytes(x->what);
}

static int by_weight(const void *left, const void *right) {
    const kn__change *x = left, *y = right;
    int order = group_of(x) - group_of(y);
    double p = fabs(x->weight), q = fabs(y->weight);
    return order ? order : (p < q) - (p > q);
}

kn_status kn__diff_make(kn__diff *out, const kn__report *a, const kn__report *b,
                        const kn__diff_options *options) {
    *out = (kn__diff){.by_run = !a->steps.n || !b->steps.n};
    comparison c = {
        .diff = out, .a = a, .b = b, .threshold = options->threshold, .share = options->share};
    KN_TRY(kn__judge_make(&c.judge, a, b, options->threshold, options->share));
    if (a->has_memory && b->has_memory) {
        compare_marks(&c, KN__DIFF_PEAK, &b->root, a->memory.live_max, b->memory.live_max);
    }
    compare_children(&c, &a->root, &b->root);
    out->alike = c.judge.is_alike || (c.judge.holds && out->n_unsteady);
    compare_runs(&c);
    KN_TRY(kn__counters_diff_make(&out->counters, &a->counters, &b->counters, options->threshold));
    if (out->n) qsort(out->changes, (size_t)out->n, sizeof *out->changes, by_weight);
    return c.status;
}

void kn__diff_release(kn__diff *diff) {
    free(diff->changes);
    kn__counters_diff_release(&diff->counters);
    *diff = (kn__diff){0};
}

/* --- as text --- */

static const char *const names[KN__DIFF_N] = {
    [KN__DIFF_TIME] = "time",   [KN__DIFF_GPU] = "gpu time", [KN__DIFF_CALLS] = "calls a step",
    [KN__DIFF_ALLOC] = "bytes", [KN__DIFF_RISE] = "rise",    [KN__DIFF_PEAK] = "most live",
    [KN__DIFF_NEW] = "new",     [KN__DIFF_GONE] = "gone",    [KN__DIFF_RENAMED] = "renamed"};

static const char *path_of(char *out, const kn__change *change) {
    kn__report_path(out, PATH_BYTES, change->row);
    return out[0] ? out : "(the run)";
}

static kn__quantity cell_of(const kn__change *change, double value, bool ascii) {
    if (is_bytes(change->what)) return kn__bytes_cell(value);
    return change->what == KN__DIFF_CALLS ? kn__count_cell(value) : kn__time_cell(value, ascii);
}

static void add_percent(kn__text *text, const kn__change *change) {
    char percent[32];
    kn__text cell = kn__text_in(percent, sizeof percent);
    if (change->a > 0 && change->b > 0) {
        kn__text_printf(&cell, "%+.1f%%", 100 * (change->b - change->a) / change->a);
    } else {
        kn__text_puts(&cell, "-");
    }
    kn__text_right(text, percent, 10);
}

static void add_weight(kn__text *text, const kn__change *change, bool ascii) {
    double size = fabs(change->weight);
    kn__quantity cell = is_bytes(change->what) ? kn__bytes_cell(size) : kn__time_cell(size, ascii);
    char signed_text[32];
    snprintf(signed_text, sizeof signed_text, "%s%s", change->weight < 0 ? "-" : "+", cell.text);
    kn__text_right(text, signed_text, 11);
}

static bool shows_values(const kn__diff_options *options) {
    return !options->width || options->width >= PATH_COLUMN;
}

/* The row's path behind the figures, or on a narrow terminal below them. */
static void add_path(kn__text *text, const kn__change *change, int width) {
    char path[PATH_BYTES];
    int columns = width ? width - PATH_COLUMN : 0;
    if (width && columns < PATH_COLUMNS_MIN) {
        kn__text_puts(text, "\n  ");
        columns = width > PATH_COLUMNS_MIN ? width - 4 : PATH_COLUMNS_MIN;
    }
    kn__text_puts(text, "  ");
    if (change->from) {
        kn__text whole = {0};
        kn__text_printf(&whole, "%s -> %s", change->from->label, path_of(path, change));
        kn__text_end(text, whole.data ? whole.data : "", columns);
        text->failed |= whole.failed;
        kn__text_release(&whole);
    } else {
        kn__text_end(text, path_of(path, change), columns);
    }
    kn__text_puts(text, "\n");
}

static void add_line(kn__text *text, const kn__diff *diff, const kn__change *change,
                     const kn__diff_options *options) {
    bool ascii = options->ascii;
    kn__text_puts(text, " ");
    bool by_run = change->what == KN__DIFF_CALLS && diff->by_run;
    kn__text_left(text, by_run ? "calls a run" : names[change->what], 12);
    if (shows_values(options)) {
        kn__text_right(text, change->a > 0 ? cell_of(change, change->a, ascii).text : "-", 10);
        kn__text_right(text, change->b > 0 ? cell_of(change, change->b, ascii).text : "-", 10);
    }
    add_percent(text, change);
    add_weight(text, change, ascii);
    add_path(text, change, options->width);
}

static double wall_of(const kn__report *report) {
    return (double)report->wall_ns / (double)(report->n_runs > 1 ? report->n_runs : 1);
}

static void add_runs(kn__text *text, const kn__report *a, const kn__report *b, bool ascii) {
    kn__text_printf(text, " run: %s", kn__time_cell(wall_of(a), ascii).text);
    kn__text_printf(text, " -> %s", kn__time_cell(wall_of(b), ascii).text);
    if (a->n_runs > 1 || b->n_runs > 1) {
        kn__text_printf(text, " (means of %llu and %llu runs)", (unsigned long long)a->n_runs,
                        (unsigned long long)b->n_runs);
    }
    if (a->steps.n_timed && b->steps.n_timed) {
        double before = (double)a->steps.sum_ns / (double)a->steps.n_timed;
        double after = (double)b->steps.sum_ns / (double)b->steps.n_timed;
        kn__text_printf(text, "; a step: %s", kn__time_cell(before, ascii).text);
        kn__text_printf(text, " -> %s", kn__time_cell(after, ascii).text);
    }
    if (a->has_memory && b->has_memory) {
        kn__text_printf(text, "; most live: %s", kn__bytes_text((double)a->memory.live_max).text);
        kn__text_printf(text, " -> %s", kn__bytes_text((double)b->memory.live_max).text);
    }
    kn__text_puts(text, "\n");
}

static void add_unsteady(kn__text *text, const kn__diff *diff) {
    if (diff->alike) {
        kn__text_puts(text,
                      " nearly all rows moved alike, as on a machine of another speed: a row "
                      "must move further than they did\n");
    }
    if (!diff->n_unsteady) return;
    kn__text_printf(
        text, " %d rows: another average, but the fastest call and the median as before: noise\n",
        diff->n_unsteady);
}

static void warn_unlike(kn__text *text, const char *what, const char *a, const char *b) {
    if (!a || !b || strcmp(a, b) == 0) return;
    kn__text_printf(text, " unlike runs: %s ", what);
    kn__text_label(text, a, VALUE_COLUMNS, 0);
    kn__text_puts(text, ", then ");
    kn__text_label(text, b, VALUE_COLUMNS, 0);
    kn__text_puts(text, "\n");
}

/* What makes two runs hard to compare. */
static void add_unlike(kn__text *text, const kn__run_info *a, const kn__run_info *b) {
    warn_unlike(text, "the command is", a->command, b->command);
    warn_unlike(text, "the host is", a->host, b->host);
    warn_unlike(text, "the version is", a->version, b->version);
    warn_unlike(text, "KNET_TIMER is", a->words, b->words);
    warn_unlike(text, "the program's notes are", a->notes, b->notes);
}

static void add_counts(kn__text *text, const kn__diff *diff, const kn__diff_options *options) {
    double percent = 100 * options->threshold;
    if (!diff->n) {
        kn__text_printf(text, " no row moved by more than %.3g %% and the noise\n", percent);
        return;
    }
    kn__text_printf(
        text, " moved by more than %.3g %% and the noise: %d for the worse, %d for the better",
        percent, diff->n_worse, diff->n - diff->n_worse - diff->n_neutral);
    if (diff->n_neutral) kn__text_printf(text, "; %d of other names", diff->n_neutral);
    kn__text_puts(text, "\n");
}

static void add_changes(kn__text *text, const kn__diff *diff, const kn__diff_options *options) {
    bool is_narrow = options->width && options->width < PATH_COLUMN + PATH_COLUMNS_MIN;
    kn__text_puts(text, "\n what        ");
    if (shows_values(options)) kn__text_puts(text, "    before     after");
    kn__text_puts(text, is_narrow ? "    change     in all\n" : "    change     in all  row\n");
    int n = options->top && options->top < diff->n ? options->top : diff->n;
    for (int i = 0; i < n; i++) {
        const kn__change *change = &diff->changes[i];
        const char *style = change->weight > 0 ? options->worse : options->better;
        if (change->neutral) style = NULL;
        if (style) kn__text_puts(text, style);
        add_line(text, diff, change, options);
        if (style && options->plain) kn__text_puts(text, options->plain);
    }
    if (n < diff->n)
        kn__text_printf(text, " and %d more: --top %d shows all\n", diff->n - n, diff->n);
}

void kn__diff_add_table(kn__text *text, const kn__diff *diff, const kn__report *a,
                        const kn__report *b, const kn__diff_options *options) {
    kn__text head = {0}, foot = {0};
    add_runs(&head, a, b, options->ascii);
    add_unlike(&head, &a->run, &b->run);
    add_counts(&head, diff, options);
    kn__text_wrapped(text, &head, options->width);
    if (diff->n) add_changes(text, diff, options);
    add_unsteady(&foot, diff);
    kn__text_wrapped(text, &foot, options->width);
    kn__counters_diff_add_table(text, &diff->counters, options->top, options->width);
}

/* --- as JSON --- */

static void add_change_json(kn__text *text, const kn__change *change) {
    char path[PATH_BYTES];
    kn__text_puts(text, "\n{\"path\":");
    kn__text_json(text, path_of(path, change));
    kn__text_printf(text, ",\"what\":\"%s\",\"before\":%.17g,\"after\":%.17g", names[change->what],
                    change->a, change->b);
    if (change->from) {
        kn__text_puts(text, ",\"from\":");
        kn__text_json(text, change->from->label);
    }
    kn__text_printf(text, ",\"unit\":\"%s\",\"in_all\":%.17g,\"worse\":%s,\"neutral\":%s}",
                    is_bytes(change->what)           ? "bytes"
                    : change->what == KN__DIFF_CALLS ? "calls"
                                                     : "ns",
                    change->weight, change->weight > 0 && !change->neutral ? "true" : "false",
                    change->neutral ? "true" : "false");
}

void kn__diff_add_json(kn__text *text, const kn__diff *diff, const kn__report *a,
                       const kn__report *b) {
    kn__text_printf(text,
                    "{\"schema\":\"knet.diff\",\"version\":1,\"wall_ns\":[%" PRIu64 ",%" PRIu64
                    "],\"live_bytes_max\":[%" PRId64 ",%" PRId64
                    "],\"n_worse\":%d,\"n_better\":%d,"
                    "\"n_unsteady\":%d,\"alike\":%s,"
                    "\"changes\":[",
                    a->wall_ns, b->wall_ns, a->memory.live_max, b->memory.live_max, diff->n_worse,
                    diff->n - diff->n_worse - diff->n_neutral, diff->n_unsteady,
                    diff->alike ? "true" : "false");
    for (int i = 0; i < diff->n; i++) {
        if (i) kn__text_puts(text, ",");
        add_change_json(text, &diff->changes[i]);
    }
    kn__text_puts(text, "]");
    kn__counters_diff_add_json(text, &diff->counters);
    kn__text_puts(text, "}\n");
}
