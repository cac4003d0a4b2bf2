#include "judge.h"

#include <math.h>
#include <stdlib.h>

/* Fewer calls say nothing of their noise. What single values are off by where nothing is known. */
enum { CALLS_MIN = 5 };
static const double unknown_noise = 0.1, noise_max = 10;

double kn__judge_before(const kn__row *row) {
    if (row->n_ended) return row->ended_ns / (double)row->n_ended;
    return row->n_calls ? (double)row->time_ns / (double)row->n_calls : 0;
}

static double change(double a, double b) { return a > 0 ? (b - a) / a : 0; }

/* --- noise of a run --- */

typedef struct sums {
    double above, all; /* ns above the fastest call, and ns */
} sums;

static void add_noise(sums *s, const kn__row *row) {
    for (; row; row = row->next) {
        if (row->is_extra) continue;
        if (!row->first && row->n_ended >= CALLS_MIN && row->min_ns) {
            double least = (double)row->n_ended * (double)row->min_ns;
            s->above += row->ended_ns > least ? row->ended_ns - least : 0;
            s->all += least;
        }
        add_noise(s, row->first);
    }
}

static double noise_of(const kn__report *report) {
    sums s = {0};
    add_noise(&s, report->root.first);
    return s.all > 0 ? fmin(s.above / s.all, noise_max) : 0;
}

/* --- what all rows have in common --- */

enum { ALIKE_ROWS_MIN = 5 };          /* fewer don't tell a slow machine from a slow program */
static const double part_asked = 0.1; /* of the share: small rows tell of the machine too */

typedef struct ratios {
    const kn__report *a, *b;
    double share;
    double *of; /* logarithms, of the rows that both have */
    int n, size;
} ratios;

static bool is_asked(const ratios *r, const kn__row *a, const kn__row *b) {
    if (a->first || b->first || a->n_ended < CALLS_MIN || b->n_ended < CALLS_MIN) return false;
    if (!a->min_ns || !b->min_ns) return false;
    double of_a = r->share * (double)r->a->root.time_ns;
    double of_b = r->share * (double)r->b->root.time_ns;
    return (double)(a->n_ended * a->min_ns) > of_a || (double)(b->n_ended * b->min_ns) > of_b;
}

static bool add_ratio(ratios *r, double ratio) {
    if (r->n == r->size) {
        int size = r->size ? 2 * r->size : 64;
        double *more = realloc(r->of, (size_t)size * sizeof *more);
        if (!more) return false;
        r->of = more;
        r->size = size;
    }
    r->of[r->n++] = log(ratio);
    return true;
}

static kn_status add_ratios(ratios *r, const kn__row *a, const kn__row *b) {
    for (const kn__row *row = b->first; row; row = row->next) {
        const kn__row *before = row->is_extra ? NULL : kn__report_same(r->a, a, row);
        if (!before) continue;
        if (is_asked(r, before, row) &&
            !add_ratio(r, (double)row->min_ns / (double)before->min_ns)) {
            return KN_FAIL(KN_ERR_OOM, "no memory for the comparison");
        }
        KN_TRY(add_ratios(r, before, row));
    }
    return KN_OK;
}

static int by_value(const void *left, const void *right) {
    double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

/* How far the rows moved that moved alike: a fifth of them moved less than `least`, a fifth more
 * than `most`, and some twice as far beyond that. */
static double alike(double least, double most, double threshold) {
    double sure = least / log1p(threshold);
    return sure > 0 ? fmin(sure, 1) * (2 * most - least) : 0;
}

static void find_alike(kn__judge *judge, ratios *r) {
    if (r->n < ALIKE_ROWS_MIN) return;
    qsort(r->of, (size_t)r->n, sizeof *r->of, by_value);
    double low = r->of[r->n / 5], high = r->of[r->n - 1 - r->n / 5];
    double sure = log1p(judge->threshold);
    judge->compared = true;
    judge->is_alike = low > sure || high < -sure;
    judge->alike_up = alike(low, high, judge->threshold);
    judge->alike_down = -alike(-high, -low, judge->threshold);
    judge->holds = judge->alike_up > sure || judge->alike_down < -sure;
}

kn_status kn__judge_make(kn__judge *out, const kn__report *a, const kn__report *b, double threshold,
                         double share) {
    ratios r = {.a = a, .b = b, .share = share * part_asked};
    double noise = noise_of(a) + noise_of(b);
    *out = (kn__judge){.threshold = threshold, .noise = fmax(noise, unknown_noise)};
    kn_status status = add_ratios(&r, &a->root, &b->root);
    if (status == KN_OK) find_alike(out, &r);
    free(r.of);
    return status;
}

/* --- one row --- */

kn__verdict kn__judge_value(const kn__judge *judge, double a, double b) {
    double by = fabs(change(a, b));
    if (by <= judge->threshold) return KN__STEADY;
    return by > judge->threshold + judge->noise ? KN__MOVED : KN__UNSTEADY;
}

/* How sure the fastest call is: one that stands alone below the others is luck. */
static double doubt_of(const kn__row *row) {
    double low = kn__row_percentile(row, 0.1), least = (double)row->min_ns;
    return low > least && least > 0 ? fmin(0.25 * (low - least) / least, 1) : 0;
}

/* Of a call beyond doubt: one far below the others, as when the clock jumped, isn't. */
static double fastest_of(const kn__row *row) {
    return doubt_of(row) < 1 ? (double)row->min_ns : kn__row_percentile(row, 0.1);
}

/* A part of the calls moved the same way. */
static bool moved_too(const kn__judge *judge, const kn__row *a, const kn__row *b, double part,
                      double by) {
    double before = kn__row_percentile(a, part), after = kn__row_percentile(b, part);
    if (before <= 0 || after <= 0) return true; /* not known */
    double part_by = change(before, after);
    return (by > 0) == (part_by > 0) && fabs(part_by) > judge->threshold / 2;
}

static kn__verdict judge_fastest(const kn__judge *judge, const kn__row *a, const kn__row *b) {
    double by = change(fastest_of(a), fastest_of(b));
    double mean_by = change(kn__judge_before(a), kn__judge_before(b));
    double doubt = fmax(doubt_of(a), doubt_of(b)); /* a row can't lose more than all of its time */
    double bound = judge->threshold + (by < 0 ? doubt / (1 + doubt) : doubt);
    if (fabs(by) <= bound) return fabs(mean_by) > judge->threshold ? KN__UNSTEADY : KN__STEADY;
    double own = log1p(by) - (by > 0 ? judge->alike_up : judge->alike_down);
    if (fabs(expm1(own)) <= bound || (own > 0) != (by > 0)) return KN__UNSTEADY;
    bool agree =
        moved_too(judge, a, b, 0.5, by) || (judge->compared && moved_too(judge, a, b, 0.03, by));
    return agree ? KN__MOVED : KN__UNSTEADY;
}

double kn__judge_call(const kn__row *row, const kn__row *other) {
    bool fastest = row->min_ns && other->min_ns && row->n_ended > 1 && other->n_ended > 1;
    return fastest ? fastest_of(row) : kn__judge_before(row);
}

kn__verdict kn__judge_time(const kn__judge *judge, const kn__row *a, const kn__row *b) {
    bool known = a->n_ended >= CALLS_MIN && b->n_ended >= CALLS_MIN && a->min_ns && b->min_ns;
    if (known) return judge_fastest(judge, a, b);
    if (a->first || b->first) return KN__STEADY; /* the rows in it are judged */
    return kn__judge_value(judge, kn__judge_call(a, b), kn__judge_call(b, a));
}
