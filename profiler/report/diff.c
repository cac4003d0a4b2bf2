#include "diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* UNSURE: a row called once says nothing about its noise; it has to move this many thresholds, and
 * what is in it is judged in its place where there is something. ERRORS: of the mean. */
enum { UNSURE = 5, ERRORS = 3, PATH_BYTES = 1024, ALLOC_BYTES_MIN = 1 << 16 };

typedef struct comparison {
    kn__diff *diff;
    const kn__report *a, *b;
    double threshold, share;
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
    d->n_worse += change.weight > 0;
}

/* --- what has moved --- */

static double mean_of(const kn__row *row) {
    if (row->n_ended) return row->ended_ns / (double)row->n_ended;
    return row->n_calls ? (double)row->time_ns / (double)row->n_calls : 0;
}

static bool is_beyond(double a, double b, double part) { return fabs(b - a) > part * fabs(a); }

static double standard_error(const kn__row *a, const kn__row *b) {
    double x = kn__row_sigma(a), y = kn__row_sigma(b);
    return sqrt(x * x / (double)a->n_ended + y * y / (double)b->n_ended);
}

typedef enum verdict { STEADY, MOVED, UNSTEADY } verdict;

/* A mean may be carried away by a few calls, or by other programs: then the fastest call stays. */
static verdict judge_time(const comparison *c, const kn__row *a, const kn__row *b) {
    double before = mean_of(a), after = mean_of(b);
    if (!is_beyond(before, after, c->threshold)) return STEADY;
    if (a->n_ended < 2 || b->n_ended < 2) {
        bool is_leaf = !a->first && !b->first;
        return is_leaf && is_beyond(before, after, UNSURE * c->threshold) ? MOVED : STEADY;
    }
    double fastest = (double)a->min_ns, fastest_after = (double)b->min_ns;
    bool same_way = (after > before) == (fastest_after > fastest);
    if (!same_way || !is_beyond(fastest, fastest_after, c->threshold / 2)) return UNSTEADY;
    return fabs(after - before) > ERRORS * standard_error(a, b) ? MOVED : UNSTEADY;
}

static bool is_large(double a, double of_a, double b, double of_b, double share) {
    return a > share * of_a || b > share * of_b;
}

static bool has_share(const comparison *c, const kn__row *a, const kn__row *b) {
    return is_large((double)a->time_ns, (double)c->a->root.time_ns, (double)b->time_ns,
                    (double)c->b->root.time_ns, c->share);
}

static void compare_time(comparison *c, const kn__row *a, const kn__row *b) {
    if (!a->n_calls || !b->n_calls || !has_share(c, a, b)) return;
    verdict v = judge_time(c, a, b);
    c->diff->n_unsteady += v == UNSTEADY;
    if (v != MOVED) return;
    double before = mean_of(a), after = mean_of(b);
    add_change(
        c, (kn__change){b, KN__DIFF_TIME, before, after, (after - before) * (double)b->n_calls});
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
    add_change(c, (kn__change){b, KN__DIFF_GPU, before, after, (after - before) * (double)n});
}

/* Runs of different length have different counts: a step has the same. */
static void compare_calls(comparison *c, const kn__row *a, const kn__row *b) {
    if (!c->a->steps.n || !c->b->steps.n || !has_share(c, a, b)) return;
    double before = (double)a->n_calls / (double)c->a->steps.n;
    double after = (double)b->n_calls / (double)c->b->steps.n;
    bool once = a->n_calls == b->n_calls; /* a run, whatever its length */
    if (once || !is_beyond(before, after, c->threshold)) return;
    add_change(c, (kn__change){b, KN__DIFF_CALLS, before, after,
                               (after - before) * (double)c->b->steps.n * mean_of(b)});
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
    add_change(c, (kn__change){b, KN__DIFF_ALLOC, before, after, weight});
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
    add_change(c, (kn__change){row, what, before, after, after - before});
}

static void add_alone(comparison *c, const kn__row *row, kn__diff_what what) {
    const kn__report *of = what == KN__DIFF_NEW ? c->b : c->a;
    double ns = (double)(row->is_kernel ? row->gpu_ns : row->time_ns);
    double all = (double)(row->is_kernel ? of->root.gpu_ns : of->root.time_ns);
    if (ns <= c->share * all) return;
    bool is_new = what == KN__DIFF_NEW;
    add_change(c, (kn__change){row, what, is_new ? 0 : ns, is_new ? ns : 0, is_new ? ns : -ns});
}

static void compare_rows(comparison *c, const kn__row *a, const kn__row *b);

static void compare_children(comparison *c, const kn__row *a, const kn__row *b) {
    for (const kn__row *row = b->first; row; row = row->next) {
        if (row->is_extra) continue; /* nothing of the program */
        const kn__row *before = kn__report_find(c->a, a, row->label);
        before ? compare_rows(c, before, row) : add_alone(c, row, KN__DIFF_NEW);
    }
    for (const kn__row *row = a->first; row; row = row->next) {
        if (!row->is_extra && !kn__report_find(c->b, b, row->label))
            add_alone(c, row, KN__DIFF_GONE);
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

/* --- order --- */

static bool is_bytes(kn__diff_what what) { return what == KN__DIFF_ALLOC || what == KN__DIFF_PEAK; }

static int group_of(const kn__change *x) { return 2 * (x->weight <= 0) + is_bytes(x->what); }

static int by_weight(const void *left, const void *right) {
    const kn__change *x = left, *y = right;
    int order = group_of(x) - group_of(y);
    double p = fabs(x->weight), q = fabs(y->weight);
    return order ? order : (p < q) - (p > q);
}

kn_status kn__diff_make(kn__diff *out, const kn__report *a, const kn__report *b,
                        const kn__diff_options *options) {
    *out = (kn__diff){0};
    comparison c = {out, a, b, options->threshold, options->share, KN_OK};
    if (a->has_memory && b->has_memory) {
        compare_marks(&c, KN__DIFF_PEAK, &b->root, a->memory.live_max, b->memory.live_max);
    }
    compare_children(&c, &a->root, &b->root);
    if (out->n) qsort(out->changes, (size_t)out->n, sizeof *out->changes, by_weight);
    return c.status;
}

void kn__diff_release(kn__diff *diff) {
    free(diff->changes);
    *diff = (kn__diff){0};
}

/* --- as text --- */

static const char *const names[KN__DIFF_N] = {
    [KN__DIFF_TIME] = "time",   [KN__DIFF_GPU] = "gpu time", [KN__DIFF_CALLS] = "calls a step",
    [KN__DIFF_ALLOC] = "bytes", [KN__DIFF_RISE] = "rise",    [KN__DIFF_PEAK] = "most live",
    [KN__DIFF_NEW] = "new",     [KN__DIFF_GONE] = "gone"};

static const char *path_of(char *out, const kn__change *change) {
    kn__report_path(out, PATH_BYTES, change->row);
    return out[0] ? out : "(the run)";
}

static kn__quantity cell_of(const kn__change *change, double value, bool ascii) {
    if (is_bytes(change->what)) return kn__bytes_cell(value);
    return change->what == KN__DIFF_CALLS ? kn__count_cell(value) : kn__time_cell(value, ascii);
}

static void add_percent(kn__text *text, const kn__change *change) {
    char percent[32] = "-";
    if (change->a > 0 && change->b > 0) {
        snprintf(percent, sizeof percent, "%+.1f%%", 100 * (change->b - change->a) / change->a);
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

static void add_line(kn__text *text, const kn__change *change, bool ascii) {
    char path[PATH_BYTES];
    kn__text_puts(text, " ");
    kn__text_left(text, names[change->what], 12);
    kn__text_right(text, change->a > 0 ? cell_of(change, change->a, ascii).text : "-", 10);
    kn__text_right(text, change->b > 0 ? cell_of(change, change->b, ascii).text : "-", 10);
    add_percent(text, change);
    add_weight(text, change, ascii);
    kn__text_puts(text, "  ");
    kn__text_label(text, path_of(path, change), PATH_BYTES, 0);
    kn__text_puts(text, "\n");
}

static void add_runs(kn__text *text, const kn__report *a, const kn__report *b, bool ascii) {
    kn__text_printf(text, " run: %s", kn__time_cell((double)a->wall_ns, ascii).text);
    kn__text_printf(text, " -> %s", kn__time_cell((double)b->wall_ns, ascii).text);
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
    if (!diff->n_unsteady) return;
    kn__text_printf(text,
                    " %d rows: another average, but the fastest call as before, or within the "
                    "error: noise\n",
                    diff->n_unsteady);
}

void kn__diff_add_table(kn__text *text, const kn__diff *diff, const kn__report *a,
                        const kn__report *b, const kn__diff_options *options) {
    add_runs(text, a, b, options->ascii);
    if (!diff->n) {
        kn__text_printf(text, " no row moved by more than %.3g %% and the noise\n",
                        100 * options->threshold);
        add_unsteady(text, diff);
        return;
    }
    kn__text_printf(
        text, " moved by more than %.3g %% and the noise: %d for the worse, %d for the better\n\n",
        100 * options->threshold, diff->n_worse, diff->n - diff->n_worse);
    kn__text_puts(text, " what            before     after    change     in all  row\n");
    int n = options->top && options->top < diff->n ? options->top : diff->n;
    for (int i = 0; i < n; i++) {
        const char *style = diff->changes[i].weight > 0 ? options->worse : options->better;
        if (style) kn__text_puts(text, style);
        add_line(text, &diff->changes[i], options->ascii);
        if (options->plain) kn__text_puts(text, options->plain);
    }
    if (n < diff->n)
        kn__text_printf(text, " and %d more: --top %d shows all\n", diff->n - n, diff->n);
    add_unsteady(text, diff);
}

/* --- as JSON --- */

static void add_change_json(kn__text *text, const kn__change *change) {
    char path[PATH_BYTES];
    kn__text_puts(text, "\n{\"path\":");
    kn__text_json(text, path_of(path, change));
    kn__text_printf(text, ",\"what\":\"%s\",\"before\":%.17g,\"after\":%.17g", names[change->what],
                    change->a, change->b);
    kn__text_printf(text, ",\"unit\":\"%s\",\"in_all\":%.17g,\"worse\":%s}",
                    is_bytes(change->what)           ? "bytes"
                    : change->what == KN__DIFF_CALLS ? "calls"
                                                     : "ns",
                    change->weight, change->weight > 0 ? "true" : "false");
}

void kn__diff_add_json(kn__text *text, const kn__diff *diff, const kn__report *a,
                       const kn__report *b) {
    kn__text_printf(text,
                    "{\"schema\":\"knet.diff\",\"version\":1,\"wall_ns\":[%" PRIu64 ",%" PRIu64
                    "],\"live_bytes_max\":[%" PRId64 ",%" PRId64
                    "],\"n_worse\":%d,\"n_better\":%d,"
                    "\"n_unsteady\":%d,"
                    "\"changes\":[",
                    a->wall_ns, b->wall_ns, a->memory.live_max, b->memory.live_max, diff->n_worse,
                    diff->n - diff->n_worse, diff->n_unsteady);
    for (int i = 0; i < diff->n; i++) {
        if (i) kn__text_puts(text, ",");
        add_change_json(text, &diff->changes[i]);
    }
    kn__text_puts(text, "]}\n");
}
