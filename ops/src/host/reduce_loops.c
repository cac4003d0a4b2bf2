/* Inner loops of reductions. Sums run in fixed lanes over short blocks and the blocks are added in
 * double, so an f32 sum is good to its last bits whatever its length, and has the same bits for
 * every instruction set. */
#include <math.h>

#include "loops.h"

enum { VECTORS = 4, BLOCK = 16 * VECTORS * KN_LANES };

static double short_sum(const real *x, int64_t n) {
    real sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return (double)sum;
}

static double block_sum(const real *x, int64_t n) {
    if (n < KN_LANES) return short_sum(x, n);
    kn_vec sum[VECTORS] = {{0}};
    int64_t i = 0;
    for (; i + VECTORS * KN_LANES <= n; i += VECTORS * KN_LANES)
        for (int v = 0; v < VECTORS; v++) sum[v] += kn_vec_load(x + i + v * KN_LANES);
    for (; i + KN_LANES <= n; i += KN_LANES) sum[0] += kn_vec_load(x + i);
    return (double)kn_vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + short_sum(x + i, n - i);
}

double KN_LOOP(sum_row)(const void *x, int64_t n) {
    const real *in = x;
    if (n <= BLOCK) return block_sum(in, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i += BLOCK) sum += block_sum(in + i, n - i < BLOCK ? n - i : BLOCK);
    return sum;
}

void KN_LOOP(sum_rows)(void *y, const void *x, int64_t rows, int64_t n, double scale) {
    real *out = y;
    const real *in = x;
    if (n >= KN_LANES) {
        for (int64_t r = 0; r < rows; r++) out[r] = (real)(KN_LOOP(sum_row)(in + r * n, n) * scale);
        return;
    }
    for (int64_t r = 0; r < rows; r++) out[r] = (real)(short_sum(in + r * n, n) * scale);
}

/* Adds rows in groups of four, 16 groups of them in the type's own precision. */
static void rows_sum(double *sums, const real *x, int64_t rows, int64_t n, int64_t stride) {
    real part[KN_COLUMNS];
    for (int64_t i = 0; i < n; i++) part[i] = 0;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const real *x0 = x + r * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        for (int64_t i = 0; i < n; i++) part[i] += (x0[i] + x1[i]) + (x2[i] + x3[i]);
    }
    for (; r < rows; r++) {
        const real *x0 = x + r * stride;
        for (int64_t i = 0; i < n; i++) part[i] += x0[i];
    }
    for (int64_t i = 0; i < n; i++) sums[i] += (double)part[i];
}

/* n <= KN_COLUMNS */
void KN_LOOP(sum_columns)(double *sums, const void *x, int64_t rows, int64_t n, int64_t stride) {
    const real *in = x;
    for (int64_t r = 0; r < rows; r += 64) {
        rows_sum(sums, in + r * stride, rows - r < 64 ? rows - r : 64, n, stride);
    }
}

/* --- extremes: a NaN anywhere gives NaN, as it fails every comparison and is kept once met --- */

static inline real larger(real a, real b) { return a > b || a != a ? a : b; }

static real row_max(const real *x, int64_t n) {
    real most = x[0];
    int64_t i = 0;
    if (n >= KN_LANES) {
        kn_vec best = kn_vec_load(x);
        for (i = KN_LANES; i + KN_LANES <= n; i += KN_LANES) {
            kn_vec v = kn_vec_load(x + i);
            best = kn_vec_select((best > v) | (best != best), best, v);
        }
        for (int l = 0; l < KN_LANES; l++) most = larger(most, best[l]);
    }
    for (; i < n; i++) most = larger(most, x[i]);
    return most;
}

static real row_min(const real *x, int64_t n) {
    real least = x[0];
    int64_t i = 0;
    if (n >= KN_LANES) {
        kn_vec best = kn_vec_load(x);
        for (i = KN_LANES; i + KN_LANES <= n; i += KN_LANES) {
            kn_vec v = kn_vec_load(x + i);
            best = kn_vec_select((best < v) | (best != best), best, v);
        }
        for (int l = 0; l < KN_LANES; l++) least = -larger(-least, -best[l]);
    }
    for (; i < n; i++) least = -larger(-least, -x[i]);
    return least;
}

double KN_LOOP(extreme_row)(bool max, const void *x, int64_t n) {
    return (double)(max ? row_max(x, n) : row_min(x, n));
}

void KN_LOOP(extreme_columns)(bool max, double *best, const void *x, int64_t rows, int64_t n,
                              int64_t stride) {
    for (int64_t r = 0; r < rows; r++) {
        const real *in = (const real *)x + r * stride;
        if (max) {
            for (int64_t i = 0; i < n; i++) {
                double b = best[i], v = (double)in[i];
                best[i] = ((b > v) | (b != b)) ? b : v;
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                double b = best[i], v = (double)in[i];
                best[i] = ((b < v) | (b != b)) ? b : v;
            }
        }
    }
}

/* The first maximum; a NaN counts as the largest. */
int64_t KN_LOOP(argmax_row)(const void *x, int64_t n) {
    const real *in = x;
    real most = row_max(in, n);
    int64_t i = 0;
    if (most != most) {
        while (in[i] == in[i]) i++;
    } else {
        while (in[i] != most) i++;
    }
    return i;
}

void KN_LOOP(argmax_columns)(int64_t *best_at, const void *x, int64_t rows, int64_t n,
                             int64_t stride) {
    const real *in = x;
    real best[KN_COLUMNS];
    for (int64_t i = 0; i < n; i++) best[i] = in[i], best_at[i] = 0;
    for (int64_t r = 1; r < rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            real v = in[r * stride + i];
            bool better = v > best[i] || (v != v && best[i] == best[i]);
            best[i] = better ? v : best[i];
            best_at[i] = better ? r : best_at[i];
        }
    }
}
