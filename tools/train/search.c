#include <inttypes.h>
#include <knet/search.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- golden section --- */

typedef struct point {
    double x, loss;
} point;

static kn_status try_at(point *out, point *best, kn_search_fn fn, void *ctx, double x) {
    double loss = 0;
    KN_TRY(fn(&loss, ctx, x));
    *out = (point){x, isnan(loss) ? (double)INFINITY : loss};
    if (out->loss < best->loss || isnan(best->x)) *best = *out;
    return KN_OK;
}

static kn_status interval_check(const char *who, double lo, double hi) {
    if (lo < hi && isfinite(hi - lo)) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: from %g to %g is no interval: lo must be below hi, and both finite", who,
                   lo, hi);
}

static kn_status calls_check(const char *who, int n_calls) {
    if (n_calls >= 2) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: %d calls; 2 or more are needed", who, n_calls);
}

/* Of the inner points a < b the better one stays inside the smaller interval. */
kn_status kn_search_golden(double *x, double *loss, kn_search_fn fn, void *ctx, double lo,
                           double hi, int n_calls) {
    const double ratio = (sqrt(5) - 1) / 2;
    if (!fn) return KN_FAIL(KN_ERR_INVALID, "kn_search_golden: fn is NULL");
    KN_TRY(interval_check("kn_search_golden", lo, hi));
    KN_TRY(calls_check("kn_search_golden", n_calls));
    point a, b, best = {.x = (double)NAN, .loss = (double)INFINITY};
    KN_TRY(try_at(&a, &best, fn, ctx, hi - ratio * (hi - lo)));
    KN_TRY(try_at(&b, &best, fn, ctx, lo + ratio * (hi - lo)));
    for (int i = 2; i < n_calls; i++) {
        if (a.loss <= b.loss) {
            hi = b.x;
            b = a;
            KN_TRY(try_at(&a, &best, fn, ctx, hi - ratio * (hi - lo)));
        } else {
            lo = a.x;
            a = b;
            KN_TRY(try_at(&b, &best, fn, ctx, lo + ratio * (hi - lo)));
        }
    }
    *x = best.x;
    *loss = best.loss;
    return KN_OK;
}

/* --- several numbers --- */

typedef struct line {
    const kn_golden *g;
    double *x; /* [n] */
    int i;     /* the number that moves */
} line;

static kn_status at_line(double *loss, void *ctx, double x) {
    const line *l = ctx;
    l->x[l->i] = x;
    return l->g->fn(loss, l->g->ctx, l->x);
}

static kn_status golden_fields_check(const kn_golden *g) {
    if (g->n < 1 || g->rounds < 0)
        return KN_FAIL(KN_ERR_INVALID, "kn_golden_run: n %d must be 1 or more, rounds %d 0 or more",
                       g->n, g->rounds);
    if (g->unused)
        return KN_FAIL(KN_ERR_INVALID, "kn_golden_run: unused is %" PRIu32 "; it must be 0",
                       g->unused);
    for (int i = 0; i < 4; i++)
        if (g->reserved[i])
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_golden_run: reserved[%d] is %" PRIu64 "; it must be 0", i,
                           g->reserved[i]);
    return calls_check("kn_golden_run", g->n_calls);
}

/* All before the first call of fn, which may train for hours. */
static kn_status golden_check(const double x[], const kn_golden *g) {
    if (!x || !g || !g->fn || !g->lo || !g->hi)
        return KN_FAIL(KN_ERR_INVALID, "kn_golden_run: %s is NULL",
                       !x       ? "x"
                       : !g     ? "g"
                       : !g->fn ? "fn"
                       : g->lo  ? "hi"
                                : "lo");
    KN_TRY(golden_fields_check(g));
    char who[64];
    for (int i = 0; i < g->n; i++) {
        snprintf(who, sizeof who, "kn_golden_run: number %d", i + 1);
        KN_TRY(interval_check(who, g->lo[i], g->hi[i]));
    }
    for (int i = 0; i < g->n; i++)
        if (!(x[i] >= g->lo[i] && x[i] <= g->hi[i]))
            return KN_FAIL(KN_ERR_INVALID, "kn_golden_run: x[%d] is %g; its interval is %g to %g",
                           i, x[i], g->lo[i], g->hi[i]);
    return KN_OK;
}

/* *best: the loss at `at`; infinite before the first search. */
static kn_status golden_round(double at[], double *best, const kn_golden *g) {
    for (int i = 0; i < g->n; i++) {
        line l = {g, at, i};
        double found = 0, loss = 0, before = at[i];
        KN_TRY(kn_search_golden(&found, &loss, at_line, &l, g->lo[i], g->hi[i], g->n_calls));
        at[i] = loss < *best ? found : before;
        if (loss < *best) *best = loss;
    }
    return KN_OK;
}

kn_status kn_golden_run(double x[], double *loss, const kn_golden *g) {
    KN_TRY(golden_check(x, g));
    const size_t n = (uint32_t)g->n;
    double best = (double)INFINITY, *at = calloc(n, sizeof *at);
    if (!at) return KN_FAIL(KN_ERR_OOM, "kn_golden_run: no memory for %d numbers", g->n);
    memcpy(at, x, n * sizeof *at);
    kn_status status = KN_OK;
    for (int i = 0; i < (g->rounds ? g->rounds : 2) && status == KN_OK; i++)
        status = golden_round(at, &best, g);
    if (status == KN_OK) {
        memcpy(x, at, n * sizeof *at);
        *loss = best;
    }
    free(at);
    return status;
}

/* --- hyperband --- */

typedef struct trial {
    int64_t i;
    double loss;
} trial;

static kn_status options_read(kn_hyperband *o, const kn_hyperband *h) {
    *o = *h;
    if (!o->eta) o->eta = 3;
    bool fits = o->resource_max >= 1 && o->resource_max <= INT32_MAX && o->eta >= 2;
    for (int i = 0; i < 4; i++) fits = fits && !o->reserved[i];
    if (fits) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_hyperband: resource_max %" PRId64 " must be 1 or more, eta %" PRId64
                   " 2 or more, reserved fields zero",
                   o->resource_max, o->eta);
}

/* The rounds of the first bracket, but for its last: how often resource_max can be divided. */
static int brackets_of(const kn_hyperband *o) {
    int s = 0;
    for (int64_t r = o->resource_max; r >= o->eta; r /= o->eta) s++;
    return s;
}

static int64_t power(int64_t base, int n) {
    int64_t out = 1;
    for (int i = 0; i < n; i++) out *= base;
    return out;
}

/* Configurations of the bracket with s rounds before its last: ⌈(s_max + 1)·eta^s / (s + 1)⌉. */
static int64_t bracket_size(const kn_hyperband *o, int s_max, int s) {
    return ((s_max + 1) * power(o->eta, s) + s) / (s + 1);
}

int64_t kn_hyperband_count(const kn_hyperband *h) {
    kn_hyperband o;
    int64_t n = 0;
    if (options_read(&o, h) < 0) return -1;
    int s_max = brackets_of(&o);
    for (int s = s_max; s >= 0; s--) n += bracket_size(&o, s_max, s);
    return n;
}

static int by_loss(const void *a, const void *b) {
    const trial *x = a, *y = b;
    if (x->loss != y->loss) return x->loss < y->loss ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Successive halving. */
static kn_status bracket_run(trial *best, trial *trials, int64_t n, int s, const kn_hyperband *o) {
    for (int round = 0; round <= s && n > 0; round++) {
        int64_t resource = o->resource_max / power(o->eta, s - round);
        for (int64_t k = 0; k < n; k++) {
            KN_TRY(o->fn(&trials[k].loss, o->ctx, trials[k].i, resource));
            if (isnan(trials[k].loss)) trials[k].loss = (double)INFINITY;
            if (best->i < 0 || trials[k].loss < best->loss) *best = trials[k];
        }
        qsort(trials, (size_t)n, sizeof *trials, by_loss);
        n /= o->eta;
    }
    return KN_OK;
}

kn_status kn_hyperband_run(int64_t *best_i, double *loss, const kn_hyperband *h) {
    kn_hyperband o;
    if (!h) return KN_FAIL(KN_ERR_INVALID, "kn_hyperband_run: the options are NULL");
    KN_TRY(options_read(&o, h));
    if (!o.fn) return KN_FAIL(KN_ERR_INVALID, "kn_hyperband_run: fn is NULL");
    int s_max = brackets_of(&o);
    int64_t first = 0;
    trial best = {-1, (double)INFINITY};
    kn_status status = KN_OK;
    for (int s = s_max; s >= 0 && status == KN_OK; s--) {
        int64_t n = bracket_size(&o, s_max, s);
        trial *trials = calloc((size_t)n, sizeof *trials);
        if (!trials) return KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " configurations", n);
        for (int64_t k = 0; k < n; k++) trials[k].i = first + k;
        first += n;
        status = bracket_run(&best, trials, n, s, &o);
        free(trials);
    }
    KN_TRY(status);
    *best_i = best.i;
    *loss = best.loss;
    return KN_OK;
}
