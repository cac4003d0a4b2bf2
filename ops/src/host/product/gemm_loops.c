/* The micro-tile of the packed product, and packing; narrow products and those with a vector.
 * Compiled with contraction on: a·b + c is one fma where the instruction set has it. */
#include <string.h>

#include "host/base/lanes.h"
#include "host/base/loops.h"
#include "host/base/transpose.h"

typedef real tile_vec __attribute__((vector_size(KN_TILE_BYTES)));

static inline tile_vec load(const real *p) {
    tile_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store(real *p, tile_vec v) { memcpy(p, &v, sizeof v); }

/* c[m,n] += a·b with m rows and one or two vectors of columns, all in registers; element (i, l) of
 * a is a[i·step + l·step_k]. */
static inline __attribute__((always_inline)) void tile(real *c, int64_t ldc, const real *a,
                                                       int64_t step, int64_t step_k, const real *b,
                                                       int64_t k, int m, int n, int vectors) {
    tile_vec sum[KN_TILE_ROWS][2];
    KN_UNROLL(14)
    for (int i = 0; i < m; i++) sum[i][0] = sum[i][1] = (tile_vec){0};
    for (int64_t l = 0; l < k; l++, a += step_k, b += KN_TILE_COLUMNS) {
        tile_vec b0 = load(b), b1 = vectors > 1 ? load(b + KN_TILE_LANES) : b0;
        KN_UNROLL(14)
        for (int i = 0; i < m; i++) {
            sum[i][0] += a[i * step] * b0;
            if (vectors > 1) sum[i][1] += a[i * step] * b1;
        }
    }
    if (n == vectors * KN_TILE_LANES) {
        KN_UNROLL(14)
        for (int i = 0; i < m; i++)
            for (int v = 0; v < vectors; v++) {
                real *to = c + i * ldc + v * KN_TILE_LANES;
                store(to, load(to) + sum[i][v]);
            }
        return;
    }
    real rest[KN_TILE_ROWS][KN_TILE_COLUMNS];
    KN_UNROLL(14)
    for (int i = 0; i < m; i++)
        for (int v = 0; v < vectors; v++) store(rest[i] + v * KN_TILE_LANES, sum[i][v]);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) c[i * ldc + j] += rest[i][j];
}

#define TILE_CASE(m)                                                                               \
    case m:                                                                                        \
        if (n > KN_TILE_LANES)                                                                     \
            tile(c, ldc, a, step, step_k, b, k, m, n, 2);                                          \
        else                                                                                       \
            tile(c, ldc, a, step, step_k, b, k, m, n, 1);                                          \
        break;

static inline __attribute__((always_inline)) void any_tile(real *c, int64_t ldc, const real *a,
                                                           int64_t step, int64_t step_k,
                                                           const real *b, int64_t k, int m, int n) {
#if KN_TILE_UNROLLED
    switch (m) { /* so that the accumulators of each height are registers */
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
#ifdef __AVX2__
        TILE_CASE(5)
        TILE_CASE(6)
#endif
#ifdef __AVX512F__
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
        TILE_CASE(13)
        TILE_CASE(14)
#endif
        default:
            KN_ASSERT(0 && "taller than a tile");
    }
#else
    tile(c, ldc, a, step, step_k, b, k, m, n, n > KN_TILE_LANES ? 2 : 1);
#endif
}

void KN_LOOP(gemm_tile)(void *c, int64_t ldc, const void *a, int64_t lda, const void *b, int64_t k,
                        int m, int n) {
    any_tile(c, ldc, a, 1, lda, b, k, m, n);
}

void KN_LOOP(gemm_tile_rows)(void *c, int64_t ldc, const void *a, int64_t lda, const void *b,
                             int64_t k, int m, int n) {
    any_tile(c, ldc, a, lda, 1, b, k, m, n);
}

/* --- packing: panels [k][width] of `width` neighbours along the outer dimension --- */

static void pack_panel(real *to, const real *from, int64_t stride, int64_t stride_k, int64_t n,
                       int64_t k, int64_t width) {
    if (stride == 1) {
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < n; i++) to[l * width + i] = from[l * stride_k + i];
    } else if (stride_k == 1) {
        transpose(to, width, from, stride, n, k);
    } else {
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < n; i++) to[l * width + i] = from[i * stride + l * stride_k];
    }
    for (int64_t l = 0; l < k && n < width; l++)
        for (int64_t i = n; i < width; i++) to[l * width + i] = 0;
}

void KN_LOOP(gemm_pack)(void *to, const void *from, int64_t stride, int64_t stride_k, int64_t n,
                        int64_t k, int width, bool padded) {
    for (int64_t i = 0; i < n; i += width) {
        int64_t m = n - i < width ? n - i : width;
        pack_panel((real *)to + i * k, (const real *)from + i * stride, stride, stride_k, m, k,
                   padded ? width : m);
    }
}

/* --- narrow products: b in registers; each sum begins with 0 and runs along the steps --- */

static inline __attribute__((always_inline)) void narrow(const kn__narrow *p, real *restrict c,
                                                         const real *restrict a, const real *b,
                                                         int64_t m, int n, int k, bool dense) {
    const int64_t a_row = dense ? k : p->a_row, a_step = dense ? 1 : p->a_step;
    const int64_t ldc = dense ? n : p->ldc;
    const bool accumulate = !dense && p->accumulate;
    real w[KN_NARROW][KN_NARROW];
    for (int l = 0; l < k; l++)
        for (int j = 0; j < n; j++) w[l][j] = b[l * p->b_step + j * p->b_column];
    for (int64_t i = 0; i < m; i++) {
        real sum[KN_NARROW] = {0};
        for (int l = 0; l < k; l++)
            for (int j = 0; j < n; j++) sum[j] += a[i * a_row + l * a_step] * w[l][j];
        for (int j = 0; j < n; j++) c[i * ldc + j] = accumulate ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

static inline __attribute__((always_inline)) void narrows(const kn__narrow *p, int n, int k) {
    const bool dense = p->a_step == 1 && p->a_row == k && p->ldc == n && !p->accumulate;
    for (int64_t i = 0; i < p->count; i++) {
        real *c = (real *)p->c + i * p->next_c;
        const real *a = (const real *)p->a + i * p->next_a;
        const real *b = (const real *)p->b + i * p->next_b;
        if (dense) {
            narrow(p, c, a, b, p->m, n, k, true);
        } else {
            narrow(p, c, a, b, p->m, n, k, false);
        }
    }
}

#define NARROW_CASE(n, k)                                                                          \
    case (n - 1) * KN_NARROW + k - 1:                                                              \
        narrows(p, n, k);                                                                          \
        break;
#define NARROW_CASES(n) NARROW_CASE(n, 1) NARROW_CASE(n, 2) NARROW_CASE(n, 3) NARROW_CASE(n, 4)

void KN_LOOP(gemm_narrow)(const kn__narrow *p) {
    switch ((p->n - 1) * KN_NARROW + p->k - 1) {
        NARROW_CASES(1)
        NARROW_CASES(2)
        NARROW_CASES(3)
        NARROW_CASES(4)
        default:
            KN_ASSERT(0 && "wider than narrow");
    }
}

/* --- products with a vector: of each row, or of all rows --- */

enum { DOT_ROWS = 4, ADDED_ROWS = 8, ADDED_COLUMNS = 8192 / sizeof(real) };

static inline real sum_of(tile_vec v) { /* pairwise */
#if KN_TILE_IS_WIDE                     /* in registers, in 0.6 of the time */
    return kn__lanes_sum(v);
#else
    real s[KN_TILE_LANES];
    store(s, v);
    for (int half = KN_TILE_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
#endif
}

static inline __attribute__((always_inline)) void dots(real *y, int64_t step, const real *a,
                                                       int64_t lda, const real *x, int64_t k,
                                                       int rows) {
    tile_vec sum[DOT_ROWS] = {{0}};
    real rest[DOT_ROWS] = {0};
    int64_t l = 0;
    for (; l + KN_TILE_LANES <= k; l += KN_TILE_LANES)
        for (int i = 0; i < rows; i++) sum[i] += load(a + i * lda + l) * load(x + l);
    for (; l < k; l++)
        for (int i = 0; i < rows; i++) rest[i] += a[i * lda + l] * x[l];
    for (int i = 0; i < rows; i++) y[i * step] += sum_of(sum[i]) + rest[i];
}

void KN_LOOP(gemv_rows)(void *y, int64_t step, const void *a, int64_t lda, const void *x, int64_t m,
                        int64_t k) {
    real *to = y;
    const real *row = a;
    int64_t i = 0;
    for (; i + DOT_ROWS <= m; i += DOT_ROWS, to += DOT_ROWS * step, row += DOT_ROWS * lda)
        dots(to, step, row, lda, x, k, DOT_ROWS);
    for (; i < m; i++, to += step, row += lda) dots(to, step, row, lda, x, k, 1);
}

static inline __attribute__((always_inline)) void add_rows(real *restrict y, const real *restrict a,
                                                           int64_t lda, const real *x, int64_t step,
                                                           int64_t n, int rows) {
    real by[ADDED_ROWS];
    for (int l = 0; l < rows; l++) by[l] = x[l * step];
    for (int64_t j = 0; j < n; j++) {
        real sum = y[j];
        for (int l = 0; l < rows; l++) sum += by[l] * a[l * lda + j];
        y[j] = sum;
    }
}

void KN_LOOP(gemv_columns)(void *y, const void *a, int64_t lda, const void *x, int64_t step,
                           int64_t k, int64_t n) {
    for (int64_t j = 0; j < n; j += ADDED_COLUMNS) {
        int64_t columns = n - j < ADDED_COLUMNS ? n - j : ADDED_COLUMNS, l = 0;
        real *to = (real *)y + j;
        const real *row = (const real *)a + j, *by = x;
        for (; l + ADDED_ROWS <= k; l += ADDED_ROWS)
            add_rows(to, row + l * lda, lda, by + l * step, step, columns, ADDED_ROWS);
        for (; l < k; l++) add_rows(to, row + l * lda, lda, by + l * step, step, columns, 1);
    }
}
