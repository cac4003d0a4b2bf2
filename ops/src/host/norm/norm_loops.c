/* Statistics of runs, rows and columns, and what normalization makes of them. Sums run in the lanes
 * of 64-byte vectors over blocks of some thousand elements, and in double over the blocks, so that
 * their order doesn't depend on the instruction set. A variance is the sum of squared distances
 * from the mean: no digits cancel. */
#include <math.h>

#include "host/base/lanes.h"

enum { BLOCK = 4096, WAYS = 4, COLUMNS = 64 };

/* A sum of n <= BLOCK terms of type real; `term` is of the vector or number at i. */
#define BLOCK_SUM(total, n, vector_term, number_term)                                              \
    do {                                                                                           \
        kn__vec sum_[WAYS] = {{0}};                                                                \
        int64_t i = 0;                                                                             \
        for (; i + WAYS * KN_LANES <= (n); i += WAYS * KN_LANES)                                   \
            for (int k_ = 0; k_ < WAYS; k_++) {                                                    \
                int64_t at = i + k_ * KN_LANES;                                                    \
                sum_[k_] += (vector_term);                                                         \
            }                                                                                      \
        for (; i + KN_LANES <= (n); i += KN_LANES) {                                               \
            int64_t at = i;                                                                        \
            sum_[0] += (vector_term);                                                              \
        }                                                                                          \
        real rest_ = 0;                                                                            \
        for (; i < (n); i++) {                                                                     \
            int64_t at = i;                                                                        \
            rest_ += (number_term);                                                                \
        }                                                                                          \
        total += (double)(kn__lanes_sum((sum_[0] + sum_[1]) + (sum_[2] + sum_[3])) + rest_);       \
    } while (0)

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

static double run_sum(const real *x, int64_t n) {
    double total = 0;
    for (int64_t from = 0; from < n; from += BLOCK) {
        const real *p = x + from;
        BLOCK_SUM(total, at_most(n - from, BLOCK), kn__vec_load(p + at), p[at]);
    }
    return total;
}

/* Σ(x - mean)² */
static double run_squares(const real *x, int64_t n, real mean) {
    double total = 0;
    kn__vec m = kn__vec_all(mean);
    for (int64_t from = 0; from < n; from += BLOCK) {
        const real *p = x + from;
        BLOCK_SUM(total, at_most(n - from, BLOCK),
                  (kn__vec_load(p + at) - m) * (kn__vec_load(p + at) - m),
                  (p[at] - mean) * (p[at] - mean));
    }
    return total;
}

/* Σ g·(x - mean) */
static double run_dot(const real *g, const real *x, int64_t n, real mean) {
    double total = 0;
    kn__vec m = kn__vec_all(mean);
    for (int64_t from = 0; from < n; from += BLOCK) {
        const real *p = x + from, *q = g + from;
        BLOCK_SUM(total, at_most(n - from, BLOCK),
                  kn__vec_load(q + at) * (kn__vec_load(p + at) - m), q[at] * (p[at] - mean));
    }
    return total;
}

/* --- runs of n elements, `stride` apart --- */

void KN_LOOP(norm_moments)(double out[2], const void *x, int64_t parts, int64_t n, int64_t stride) {
    const real *in = x;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < parts; i++) sum += run_sum(in + i * stride, n);
    double mean = sum / (double)(parts * n);
    for (int64_t i = 0; i < parts; i++) squares += run_squares(in + i * stride, n, (real)mean);
    out[0] = mean;
    out[1] = squares;
}

void KN_LOOP(norm_scale)(void *y, const void *x, int64_t parts, int64_t n, int64_t stride,
                         double mean, double scale, double shift) {
    real m = (real)mean, a = (real)scale, b = (real)shift;
    for (int64_t i = 0; i < parts; i++) {
        const real *in = (const real *)x + i * stride;
        real *out = (real *)y + i * stride;
        for (int64_t j = 0; j < n; j++) out[j] = (in[j] - m) * a + b;
    }
}

void KN_LOOP(norm_back_sums)(double out[2], const void *g, const void *x, int64_t parts, int64_t n,
                             int64_t stride, double mean) {
    out[0] = out[1] = 0;
    for (int64_t i = 0; i < parts; i++) {
        const real *p = (const real *)x + i * stride, *q = (const real *)g + i * stride;
        out[0] += run_sum(q, n);
        out[1] += run_dot(q, p, n, (real)mean);
    }
}

/* dx = t0·g - t1 - (x - t3)·t2 */
void KN_LOOP(norm_back_scale)(void *dx, const void *g, const void *x, int64_t parts, int64_t n,
                              int64_t stride, const double t[4]) {
    real a = (real)t[0], b = (real)t[1], c = (real)t[2], m = (real)t[3];
    for (int64_t i = 0; i < parts; i++) {
        const real *p = (const real *)x + i * stride, *q = (const real *)g + i * stride;
        real *to = (real *)dx + i * stride;
        for (int64_t j = 0; j < n; j++) to[j] = a * q[j] - b - (p[j] - m) * c;
    }
}

/* --- columns --- */

static void few_column_moments(double *mean, double *squares, const real *x, int64_t rows, int m,
                               int64_t stride) {
    real sum[COLUMNS] = {0}, middle[COLUMNS];
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < m; j++) sum[j] += x[i * stride + j];
    for (int j = 0; j < m; j++) {
        mean[j] = (double)sum[j] / (double)rows;
        middle[j] = (real)mean[j];
        sum[j] = 0;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < m; j++) {
            real d = x[i * stride + j] - middle[j];
            sum[j] += d * d;
        }
    for (int j = 0; j < m; j++) squares[j] = (double)sum[j];
}

void KN_LOOP(norm_column_moments)(double *mean, double *squares, const void *x, int64_t rows,
                                  int64_t n, int64_t stride) {
    for (int64_t j = 0; j < n; j += COLUMNS)
        few_column_moments(mean + j, squares + j, (const real *)x + j, rows,
                           (int)at_most(n - j, COLUMNS), stride);
}

static void few_column_sums(double *sums, double *dots, const real *g, const real *x,
                            const real *mean, int64_t rows, int m, int64_t stride) {
    real sum[COLUMNS] = {0}, product[COLUMNS] = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < m; j++) {
            sum[j] += g[i * stride + j];
            product[j] += g[i * stride + j] * (x[i * stride + j] - mean[j]);
        }
    for (int j = 0; j < m; j++) sums[j] = (double)sum[j], dots[j] = (double)product[j];
}

void KN_LOOP(norm_column_sums)(double *sums, double *dots, const void *g, const void *x,
                               const void *mean, int64_t rows, int64_t n, int64_t stride) {
    for (int64_t j = 0; j < n; j += COLUMNS)
        few_column_sums(sums + j, dots + j, (const real *)g + j, (const real *)x + j,
                        (const real *)mean + j, rows, (int)at_most(n - j, COLUMNS), stride);
}

void KN_LOOP(norm_column_scale)(void *y, const void *x, const void *mean, const void *scale,
                                const void *shift, int64_t rows, int64_t n, int64_t stride) {
    const real *in = x, *m = mean, *a = scale, *b = shift;
    real *out = y;
    for (int64_t i = 0; i < rows; i++, in += stride, out += stride)
        for (int64_t j = 0; j < n; j++) out[j] = (in[j] - m[j]) * a[j] + b[j];
}

void KN_LOOP(norm_column_back)(void *dx, const void *g, const void *x, const void *const t[4],
                               int64_t rows, int64_t n, int64_t stride) {
    const real *p = x, *q = g, *a = t[0], *b = t[1], *c = t[2], *m = t[3];
    real *to = dx;
    for (int64_t i = 0; i < rows; i++, p += stride, q += stride, to += stride)
        for (int64_t j = 0; j < n; j++) to[j] = a[j] * q[j] - b[j] - (p[j] - m[j]) * c[j];
}

/* --- rows with a weight for each element --- */

static void scale_row(real *y, const real *x, const real *w, const real *b, int64_t n, real mean,
                      real rstd) {
    if (w && b)
        for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * w[j] + b[j];
    else if (w)
        for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * w[j];
    else if (b)
        for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd + b[j];
    else
        for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd;
}

void KN_LOOP(norm_rows)(const kn__norm_rows *p, int64_t first, int64_t rows) {
    int64_t n = p->n;
    for (int64_t r = first; r < first + rows; r++) {
        const real *x = (const real *)p->x + r * n;
        real mean = p->centred ? (real)(run_sum(x, n) / (double)n) : 0;
        real rstd = (real)(1 / sqrt(run_squares(x, n, mean) / (double)n + p->eps));
        if (p->mean) ((real *)p->mean)[r] = mean;
        if (p->rstd) ((real *)p->rstd)[r] = rstd;
        if (p->y) scale_row((real *)p->y + r * n, x, p->w, p->b, n, mean, rstd);
    }
}

/* A row's gradient; w, dw and db may be NULL. */
typedef struct back_row {
    const real *g, *x, *w;
    real *dw, *db;
    int64_t n;
    real mean, rstd;
} back_row;

/* sums: Σ g·w and Σ g·w·(x - mean); dw += g·x̂, db += g: all in one pass. */
static inline __attribute__((always_inline)) void row_sums(double sums[2], const back_row *r,
                                                           bool has_w, bool has_dw, bool has_db) {
    const kn__vec m = kn__vec_all(r->mean), s = kn__vec_all(r->rstd);
    sums[0] = sums[1] = 0;
    for (int64_t i = 0, end; i < r->n; i = end) {
        kn__vec sum = {0}, dot = {0};
        real sum_rest = 0, dot_rest = 0;
        end = at_most(r->n, i + BLOCK);
        for (; i + KN_LANES <= end; i += KN_LANES) {
            kn__vec g = kn__vec_load(r->g + i), d = kn__vec_load(r->x + i) - m;
            if (has_dw) kn__vec_store(r->dw + i, kn__vec_load(r->dw + i) + g * (d * s));
            if (has_db) kn__vec_store(r->db + i, kn__vec_load(r->db + i) + g);
            if (has_w) g *= kn__vec_load(r->w + i);
            sum += g, dot += g * d;
        }
        for (; i < end; i++) {
            real g = r->g[i], d = r->x[i] - r->mean;
            if (has_dw) r->dw[i] += g * (d * r->rstd);
            if (has_db) r->db[i] += g;
            if (has_w) g *= r->w[i];
            sum_rest += g, dot_rest += g * d;
        }
        sums[0] += (double)(kn__lanes_sum(sum) + sum_rest);
        sums[1] += (double)(kn__lanes_sum(dot) + dot_rest);
    }
}

#define ROW_SUMS(which)                                                                            \
    case which:                                                                                    \
        row_sums(sums, r, (which)&1, (which)&2, (which)&4);                                        \
        break;
static void sums_of_row(double sums[2], const back_row *r) {
    switch ((r->w ? 1 : 0) | (r->dw ? 2 : 0) | (r->db ? 4 : 0)) {
        ROW_SUMS(0)
        ROW_SUMS(1)
        ROW_SUMS(2)
        ROW_SUMS(3)
        ROW_SUMS(4)
        ROW_SUMS(5)
        ROW_SUMS(6)
        ROW_SUMS(7)
    }
}

/* dx = rstd·(g·w - Σ g·w/n - x̂·Σ g·w·x̂/n); may lie over g */
static void row_dx(real *dx, const back_row *r, const double sums[2], bool centred) {
    const real *g = r->g, *x = r->x, *w = r->w;
    real mean = r->mean, rstd = r->rstd;
    double s = (double)rstd, n = (double)r->n;
    real b = centred ? (real)(sums[0] * s / n) : 0, c = (real)(sums[1] * s * s * s / n);
    if (w)
        for (int64_t j = 0; j < r->n; j++) dx[j] = g[j] * w[j] * rstd - b - (x[j] - mean) * c;
    else
        for (int64_t j = 0; j < r->n; j++) dx[j] = g[j] * rstd - b - (x[j] - mean) * c;
}

void KN_LOOP(norm_back_rows)(const kn__norm_rows *p, void *dw, void *db, int64_t first,
                             int64_t rows) {
    for (int64_t i = first; i < first + rows; i++) {
        back_row r = {.g = (const real *)p->g + i * p->n,
                      .x = (const real *)p->x + i * p->n,
                      .w = p->w,
                      .dw = dw,
                      .db = db,
                      .n = p->n,
                      .mean = p->mean ? ((const real *)p->mean)[i] : 0,
                      .rstd = ((const real *)p->rstd)[i]};
        double sums[2];
        sums_of_row(sums, &r);
        if (p->y) row_dx((real *)p->y + i * p->n, &r, sums, p->centred);
    }
}
