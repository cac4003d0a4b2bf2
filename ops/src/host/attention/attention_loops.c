/* The softmax of attention, a block of keys at a time. */
#include <math.h>
#include <string.h>

#include "host/softmax/softmax_exp.h"

static inline int64_t seen_of(const kn__attention_rows *r, int64_t row) {
    int64_t n = r->seen + row * r->step;
    return n < 0 ? 0 : (n > r->n ? r->n : n);
}

/* s = s·scale + mask; returns the largest, which no NaN is. */
static inline real scores_of(const kn__attention_rows *r, int64_t row, real *restrict s,
                             int64_t n) {
    const real *restrict mask = r->mask ? (const real *)r->mask + row * r->mask_row : NULL;
    const real scale = (real)r->scale;
    for (int64_t j = 0; j < n; j++) s[j] *= scale;
    if (mask && r->mask_column) {
        for (int64_t j = 0; j < n; j++) s[j] += mask[j];
    } else if (mask) {
        for (int64_t j = 0; j < n; j++) s[j] += mask[0];
    }
    real most = -(real)INFINITY;
    int64_t j = 0;
    if (n >= KN_LANES) {
        kn__vec best = kn__vec_load(s);
        for (j = KN_LANES; j + KN_LANES <= n; j += KN_LANES) {
            kn__vec v = kn__vec_load(s + j);
            best = kn__vec_select(best > v, best, v);
        }
        for (int l = 0; l < KN_LANES; l++) most = best[l] > most ? best[l] : most;
    }
    for (; j < n; j++) most = s[j] > most ? s[j] : most;
    return most;
}

static real sum_of(const real *x, int64_t n) {
    kn__vec sum = {0};
    real rest = 0;
    int64_t j = 0;
    for (; j + KN_LANES <= n; j += KN_LANES) sum += kn__vec_load(x + j);
    for (; j < n; j++) rest += x[j];
    return kn__vec_sum(sum) + rest;
}

void KN_LOOP(attention_scores)(const kn__attention_rows *r) {
    real *all_most = r->most, *all_sum = r->sum, *factor = r->factor;
    for (int64_t row = 0; row < r->rows; row++) {
        real *restrict s = (real *)r->scores + row * r->stride;
        int64_t n = seen_of(r, row);
        real before = all_most[row], here = scores_of(r, row, s, n);
        real most = here > before ? here : before;
        factor[row] = 1;
        memset(s + n, 0, (size_t)(r->n - n) * sizeof(real));
        if (n == 0) continue;
        real shift = most > -(real)INFINITY ? most : 0; /* all masked, or NaN */
        for (int64_t j = 0; j < n; j++) s[j] = exp_nonpositive(s[j] - shift);
        if (before > -(real)INFINITY) factor[row] = exp_nonpositive(before - most);
        all_sum[row] = all_sum[row] * factor[row] + sum_of(s, n);
        all_most[row] = most;
    }
}

void KN_LOOP(attention_scores_back)(const kn__attention_rows *r) {
    const real *stats = r->stats, *delta = r->delta, scale = (real)r->scale;
    for (int64_t row = 0; row < r->rows; row++) {
        real *restrict s = (real *)r->scores + row * r->stride;
        real *restrict dp = (real *)r->dp + row * r->stride;
        real most = stats[2 * row], sum = stats[2 * row + 1];
        int64_t n = sum == 0 ? 0 : seen_of(r, row);
        real inverse = 1 / sum, less = delta[row];
        (void)scores_of(r, row, s, n);
        for (int64_t j = 0; j < n; j++) {
            s[j] = exp_nonpositive(s[j] - most) * inverse;
            dp[j] = s[j] * (dp[j] - less);
        }
        if (r->dmask) memcpy((real *)r->dmask + row * r->dmask_row, dp, (size_t)n * sizeof(real));
        for (int64_t j = 0; j < n; j++) dp[j] *= scale;
        memset(s + n, 0, (size_t)(r->n - n) * sizeof(real));
        memset(dp + n, 0, (size_t)(r->n - n) * sizeof(real));
    }
}

void KN_LOOP(attention_shrink)(void *y, int64_t stride, const void *factor, int64_t rows,
                               int64_t n) {
    const real *by = factor;
    for (int64_t row = 0; row < rows; row++) {
        real *restrict to = (real *)y + row * stride;
        if (by[row] == 1) continue;
        for (int64_t j = 0; j < n; j++) to[j] *= by[row];
    }
}

void KN_LOOP(attention_finish)(void *y, void *stats, const void *most, const void *sum,
                               int64_t rows, int64_t n) {
    const real *peaks = most, *sums = sum;
    for (int64_t row = 0; row < rows; row++) {
        real *restrict to = (real *)y + row * n, inverse = sums[row] == 0 ? 0 : 1 / sums[row];
        for (int64_t j = 0; j < n; j++) to[j] *= inverse;
        if (!stats) continue;
        ((real *)stats)[2 * row] = peaks[row];
        ((real *)stats)[2 * row + 1] = sums[row];
    }
}

void KN_LOOP(attention_delta)(void *delta, const void *y, const void *g, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; row++) {
        const real *a = (const real *)y + row * n, *b = (const real *)g + row * n;
        kn__vec sum = {0};
        real rest = 0;
        int64_t j = 0;
        for (; j + KN_LANES <= n; j += KN_LANES) sum += kn__vec_load(a + j) * kn__vec_load(b + j);
        for (; j < n; j++) rest += a[j] * b[j];
        ((real *)delta)[row] = kn__vec_sum(sum) + rest;
    }
}
