/* Softmax, log-softmax, their gradients, and the fused loss of one row. Sums run in the lanes of
 * one 64-byte vector, then pairwise, so their order doesn't depend on the instruction set.
 * Log-softmax subtracts the maximum first: added to the logarithm it would round that away where
 * it is large. */
#include <math.h>
#include <string.h>

#include "host/base/lanes.h"
#include "host/softmax/softmax_exp.h"

#ifdef KN_REAL_IS_F32
#define LOG logf
#else
#define LOG log
#endif

/* A NaN may get lost here: the sum of the exponentials keeps it. */
static inline real larger(real a, real b) { return a > b ? a : b; }

/* Lanes are arrays here: gcc compares vectors wider than the machine's one by one. */
static real row_max(const real *x, int64_t n) {
    real most = -(real)INFINITY, best[KN_LANES];
    for (int l = 0; l < KN_LANES; l++) best[l] = most;
    int64_t i = 0;
    for (; i + KN_LANES <= n; i += KN_LANES)
        for (int l = 0; l < KN_LANES; l++) best[l] = larger(x[i + l], best[l]);
    for (int l = 0; l < KN_LANES; l++) most = larger(most, best[l]);
    for (; i < n; i++) most = larger(most, x[i]);
    return most;
}

static real row_sum(const real *x, int64_t n) {
    kn__vec sum = {0};
    int64_t i = 0;
    for (; i + KN_LANES <= n; i += KN_LANES) sum += kn__vec_load(x + i);
    real rest = 0;
    for (; i < n; i++) rest += x[i];
    return kn__lanes_sum(sum) + rest;
}

static real row_dot(const real *x, const real *y, int64_t n) {
    kn__vec sum = {0};
    int64_t i = 0;
    for (; i + KN_LANES <= n; i += KN_LANES) sum += kn__vec_load(x + i) * kn__vec_load(y + i);
    real rest = 0;
    for (; i < n; i++) rest += x[i] * y[i];
    return kn__lanes_sum(sum) + rest;
}

enum { SUM_BLOCK = 4096 }; /* summed in f32; sums of more, which would lose digits, in f64 */

static inline int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

static real block_sum(const real *y, const real *g, int64_t n) {
    return y ? row_dot(y, g, n) : row_sum(g, n);
}

/* Of y·g, or of g where y is NULL. */
static real long_row_sum(const real *y, const real *g, int64_t n) {
    if (n <= SUM_BLOCK) return block_sum(y, g, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i += SUM_BLOCK)
        sum += (double)block_sum(y ? y + i : NULL, g + i, least_of(n - i, SUM_BLOCK));
    return (real)sum;
}

static real block_exp(real *y, const real *x, int64_t n, real most) {
    real own[SUM_BLOCK], *e = y ? y : own;
    KN_SIMD
    for (int64_t i = 0; i < n; i++) e[i] = exp_nonpositive(x[i] - most);
    return row_sum(e, n);
}

/* e^(x - most), into y unless that is NULL; returns the sum. */
static real row_exp(real *y, const real *x, int64_t n, real most) {
    if (n <= SUM_BLOCK) return block_exp(y, x, n, most);
    double sum = 0;
    for (int64_t i = 0; i < n; i += SUM_BLOCK)
        sum += (double)block_exp(y ? y + i : NULL, x + i, least_of(n - i, SUM_BLOCK), most);
    return (real)sum;
}

void KN_LOOP(softmax_rows)(void *y, const void *x, int64_t rows, int64_t n, bool logs) {
    const real *in = x;
    real *out = y;
    for (int64_t r = 0; r < rows; r++, in += n, out += n) {
        real most = row_max(in, n);
        if (logs) {
            real log_sum = LOG(row_exp(NULL, in, n, most));
            for (int64_t i = 0; i < n; i++) out[i] = (in[i] - most) - log_sum;
            continue;
        }
        real scale = 1 / row_exp(out, in, n, most);
        for (int64_t i = 0; i < n; i++) out[i] *= scale;
    }
}

void KN_LOOP(softmax_back_rows)(void *dx, const void *y, const void *g, int64_t rows, int64_t n,
                                bool logs) {
    const real *out = y, *grad = g;
    real *to = dx;
    for (int64_t r = 0; r < rows; r++, out += n, grad += n, to += n) {
        if (logs) {
            real sum = long_row_sum(NULL, grad, n);
            for (int64_t i = 0; i < n; i++) to[i] = grad[i] - exp_nonpositive(out[i]) * sum;
        } else {
            real sum = long_row_sum(out, grad, n);
            for (int64_t i = 0; i < n; i++) to[i] = out[i] * (grad[i] - sum);
        }
    }
}

enum { COLUMNS = 64 };    /* done at a time: their statistics stay in the first cache */
enum { ROW_BLOCK = 256 }; /* as many terms as a lane has of a SUM_BLOCK */

/* e^(x - most), into y, and its sums. */
static void columns_exp(real sum[COLUMNS], real *y, const real *x, int64_t n, int64_t stride, int m,
                        real most[COLUMNS]) {
    double total[COLUMNS] = {0};
    for (int64_t from = 0; from < n; from += ROW_BLOCK) {
        int64_t to = from + least_of(n - from, ROW_BLOCK);
        for (int j = 0; j < m; j++) sum[j] = 0;
        for (int64_t i = from; i < to; i++)
            for (int j = 0; j < m; j++) {
                real e = exp_nonpositive(x[i * stride + j] - most[j]);
                sum[j] += e;
                y[i * stride + j] = e;
            }
        if (n <= ROW_BLOCK) return;
        for (int j = 0; j < m; j++) total[j] += (double)sum[j];
    }
    for (int j = 0; j < m; j++) sum[j] = (real)total[j];
}

static void columns_forward(real *y, const real *x, int64_t n, int64_t stride, int m, bool logs) {
    real most[COLUMNS], sum[COLUMNS];
    for (int j = 0; j < m; j++) most[j] = x[j];
    for (int64_t i = 1; i < n; i++)
        for (int j = 0; j < m; j++) most[j] = larger(most[j], x[i * stride + j]);
    columns_exp(sum, y, x, n, stride, m, most);
    if (logs) {
        for (int j = 0; j < m; j++) sum[j] = LOG(sum[j]);
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < m; j++) y[i * stride + j] = (x[i * stride + j] - most[j]) - sum[j];
    } else {
        for (int j = 0; j < m; j++) sum[j] = 1 / sum[j];
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < m; j++) y[i * stride + j] *= sum[j];
    }
}

void KN_LOOP(softmax_columns)(void *y, const void *x, int64_t n, int64_t stride, int64_t columns,
                              bool logs) {
    for (int64_t j = 0; j < columns; j += COLUMNS)
        columns_forward((real *)y + j, (const real *)x + j, n, stride,
                        (int)least_of(columns - j, COLUMNS), logs);
}

/* Adds rows of g, or of y·g. */
static inline __attribute__((always_inline)) void add_rows(real sum[COLUMNS], const real *y,
                                                           const real *g, int64_t n, int64_t stride,
                                                           int m, bool logs) {
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            sum[j] += logs ? g[i * stride + j] : y[i * stride + j] * g[i * stride + j];
}

/* Sums of blocks of rows. Not inlined, for the sake of the loop of few rows. */
static __attribute__((noinline)) void add_many_rows(real sum[COLUMNS], const real *y, const real *g,
                                                    int64_t n, int64_t stride, int m, bool logs) {
    double total[COLUMNS] = {0};
    for (int64_t i = 0; i < n; i += ROW_BLOCK) {
        real part[COLUMNS] = {0};
        int64_t rows = least_of(n - i, ROW_BLOCK);
        if (logs)
            add_rows(part, NULL, g + i * stride, rows, stride, m, true);
        else
            add_rows(part, y + i * stride, g + i * stride, rows, stride, m, false);
        for (int j = 0; j < m; j++) total[j] += (double)part[j];
    }
    for (int j = 0; j < m; j++) sum[j] = (real)total[j];
}

/* dx may lie where y or g does, element by element. */
static inline __attribute__((always_inline)) void columns_back(real *dx, const real *y,
                                                               const real *g, int64_t n,
                                                               int64_t stride, int m, bool logs) {
    real sum[COLUMNS] = {0};
    if (n > ROW_BLOCK)
        add_many_rows(sum, y, g, n, stride, m, logs);
    else
        add_rows(sum, y, g, n, stride, m, logs);
    for (int64_t i = 0; i < n; i++) {
        real *to = dx + i * stride;
        const real *of = y + i * stride, *from = g + i * stride;
        KN_SIMD
        for (int j = 0; j < m; j++)
            to[j] = logs ? from[j] - exp_nonpositive(of[j]) * sum[j] : of[j] * (from[j] - sum[j]);
    }
}

void KN_LOOP(softmax_back_columns)(void *dx, const void *y, const void *g, int64_t n,
                                   int64_t stride, int64_t columns, bool logs) {
    real *to = dx;
    const real *of = y, *from = g;
    for (int64_t j = 0; j < columns; j += COLUMNS) {
        int m = (int)least_of(columns - j, COLUMNS);
        if (logs)
            columns_back(to + j, of + j, from + j, n, stride, m, true);
        else
            columns_back(to + j, of + j, from + j, n, stride, m, false);
    }
}

/* The mean of x - most. */
static double mean_above(const real *x, int64_t n, real most) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] - (double)most;
    return sum / (double)n;
}

double KN_LOOP(cross_entropy_row)(void *d, const void *x, int64_t n, int64_t label, double scale,
                                  double smoothing) {
    const real *in = x;
    real *grad = d, most = row_max(in, n), sum;
    bool known = label >= 0 && label < n;
    sum = row_exp(grad, in, n, most);
    if (grad) {
        real factor = known ? (real)scale / sum : (real)NAN;
        real each = (real)(scale * smoothing / (double)n);
        for (int64_t i = 0; i < n; i++) grad[i] = grad[i] * factor - each;
        if (known) grad[label] -= (real)(scale * (1 - smoothing));
    }
    if (!known) return (double)NAN;
    double score = (double)in[label] - (double)most;
    if (smoothing > 0) {
        score = smoothing < 1 ? (1 - smoothing) * score : 0; /* 0·infinity would be NaN */
        score += smoothing * mean_above(in, n, most);
    }
    return (double)LOG(sum) - score;
}

/* Elements above `least`, or not below it; NaN counts as larger than numbers, so that it is not
 * overlooked. No branch inside, so that the loops go by vectors. */
static int64_t count_above(const real *x, int64_t n, real least) {
    real_bits count = 0;
    for (int64_t i = 0; i < n; i++) count += !(x[i] <= least);
    return count;
}
static int64_t count_from(const real *x, int64_t n, real least) {
    real_bits count = 0;
    for (int64_t i = 0; i < n; i++) count += !(x[i] < least);
    return count;
}
static int64_t count_nan(const real *x, int64_t n) {
    real_bits count = 0;
    for (int64_t i = 0; i < n; i++) count += x[i] != x[i];
    return count;
}

/* Stretches, so that a row whose answer is known is not read to its end. */
bool KN_LOOP(is_among_first)(const void *x, int64_t n, int64_t at, int64_t k) {
    enum { STRETCH = 4096 };
    const real *in = x, score = in[at];
    int64_t before = 0;
    for (int64_t i = 0; i < at && before < k; i += STRETCH) {
        int64_t part = least_of(at - i, STRETCH);
        before += score != score ? count_nan(in + i, part) : count_from(in + i, part, score);
    }
    if (score != score) return before < k;
    for (int64_t i = at + 1; i < n && before < k; i += STRETCH)
        before += count_above(in + i, least_of(n - i, STRETCH), score);
    return before < k;
}
