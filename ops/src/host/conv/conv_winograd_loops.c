/* Winograd's transforms of 4x4 results of a 3x3 window: F(4x4, 3x3) with the points 0, ±5/8, ±3/2
 * and infinity, whose errors are a fourth of those of 0, ±1, ±2. Each lane of a vector is a
 * channel.
 *
 * With the matrices of a tile's products, B for windows of the image, G for weights and A for
 * results: y = Aᵀ[(G w Gᵀ) ⊙ (Bᵀ x B)]A, and dw = Gᵀ[(A dy Aᵀ) ⊙ (Bᵀ x B)]G. */
#include "host/base/loops.h"
#include "host/base/transpose.h"

enum { SIDE6 = 6, LANES = KN_WINOGRAD_BLOCK };
typedef real vec __attribute__((vector_size(LANES * sizeof(real))));
#define INLINE static inline __attribute__((always_inline))

/* Points a and b: their squares, sums and products. */
#define PA ((real)0.625)
#define PB ((real)1.5)
#define AA (PA * PA)
#define BB (PB * PB)
#define SCALE_0 (1 / (AA * BB))
#define SCALE_A (1 / (2 * AA * (AA - BB)))
#define SCALE_B (1 / (2 * BB * (BB - AA)))

INLINE vec load(const real *p) {
    vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(real *p, vec v) { __builtin_memcpy(p, &v, sizeof v); }

/* Bᵀ d */
INLINE void window_column(vec to[], const vec d[], int step) {
    const vec even_a = d[4] - BB * d[2], odd_a = PA * (d[3] - BB * d[1]);
    const vec even_b = d[4] - AA * d[2], odd_b = PB * (d[3] - AA * d[1]);
    to[0] = AA * BB * d[0] - (AA + BB) * d[2] + d[4];
    to[step] = even_a + odd_a;
    to[2 * step] = even_a - odd_a;
    to[3 * step] = even_b + odd_b;
    to[4 * step] = even_b - odd_b;
    to[5 * step] = AA * BB * d[1] - (AA + BB) * d[3] + d[5];
}

/* A d */
INLINE void gradient_column(vec to[], const vec d[], int step) {
    const vec even_a = d[0] + AA * d[2], odd_a = PA * (d[1] + AA * d[3]);
    const vec even_b = d[0] + BB * d[2], odd_b = PB * (d[1] + BB * d[3]);
    to[0] = d[0];
    to[step] = even_a + odd_a;
    to[2 * step] = even_a - odd_a;
    to[3 * step] = even_b + odd_b;
    to[4 * step] = even_b - odd_b;
    to[5 * step] = d[3];
}

/* Aᵀ m */
INLINE void result_column(vec to[], const vec m[], int step) {
    const vec sum_a = m[1] + m[2], difference_a = PA * (m[1] - m[2]);
    const vec sum_b = m[3] + m[4], difference_b = PB * (m[3] - m[4]);
    to[0] = m[0] + sum_a + sum_b;
    to[step] = difference_a + difference_b;
    to[2 * step] = AA * sum_a + BB * sum_b;
    to[3 * step] = AA * difference_a + BB * difference_b + m[5];
}

/* --- images --- */

/* `inside`: the whole window is. */
INLINE void window_load(vec d[SIDE6], const kn__winograd_tiles *t, const real *x, int64_t column,
                        int side, bool inside) {
    const real *at = x + (t->row * t->columns + column) * LANES;
    const bool in_columns = inside || (uint64_t)column < (uint64_t)t->columns;
    KN_UNROLL(6)
    for (int i = 0; i < side; i++) {
        bool is_there = inside || (in_columns && (uint64_t)(t->row + i) < (uint64_t)t->rows);
        d[i] = is_there ? load(at + i * t->columns * LANES) : (vec){0};
    }
}

/* Windows of `side` elements a side, of which a transform makes 6. */
#define TRANSFORM_TILES(side, transform)                                                           \
    for (int64_t i = 0; i < t->n; i++, to += t->tile_step) {                                       \
        int64_t column = t->column + 4 * i;                                                        \
        bool inside = t->row >= 0 && t->row + (side) <= t->rows && column >= 0 &&                  \
                      column + (side) <= t->columns;                                               \
        vec half[SIDE6 * SIDE6], d[SIDE6], out[SIDE6];                                             \
        if (inside)                                                                                \
            for (int c = 0; c < (side); c++) {                                                     \
                window_load(d, t, x, column + c, side, true);                                      \
                transform(half + c, d, SIDE6);                                                     \
            }                                                                                      \
        else                                                                                       \
            for (int c = 0; c < (side); c++) {                                                     \
                window_load(d, t, x, column + c, side, false);                                     \
                transform(half + c, d, SIDE6);                                                     \
            }                                                                                      \
        for (int r = 0; r < SIDE6; r++) {                                                          \
            transform(out, half + r * SIDE6, 1);                                                   \
            for (int c = 0; c < SIDE6; c++) store(to + (r * SIDE6 + c) * t->step, out[c]);         \
        }                                                                                          \
    }

void KN_LOOP(winograd_windows)(const kn__winograd_tiles *t, void *v, const void *from) {
    const real *x = from;
    real *to = v;
    TRANSFORM_TILES(6, window_column)
}

void KN_LOOP(winograd_gradients)(const kn__winograd_tiles *t, void *v, const void *from) {
    const real *x = from;
    real *to = v;
    TRANSFORM_TILES(4, gradient_column)
}

void KN_LOOP(winograd_results)(const kn__winograd_tiles *t, void *to, const void *sums,
                               const void *bias) {
    const real *from = sums;
    const vec start = load(bias);
    for (int64_t i = 0; i < t->n; i++, from += t->tile_step) {
        int64_t column = t->column + 4 * i;
        real *y = (real *)to + (t->row * t->columns + column) * LANES;
        vec half[4 * SIDE6], m[SIDE6], out[4];
        for (int c = 0; c < SIDE6; c++) {
            for (int r = 0; r < SIDE6; r++) m[r] = load(from + (r * SIDE6 + c) * t->step);
            result_column(half + c, m, SIDE6);
        }
        for (int r = 0; r < 4 && t->row + r < t->rows; r++, y += t->columns * LANES) {
            result_column(out, half + r * SIDE6, 1);
            for (int c = 0; c < 4 && column + c < t->columns; c++)
                store(y + c * LANES, out[c] + start);
        }
    }
}

/* --- weights: a lane is an output --- */

enum { WIDE = KN_TILE_COLUMNS };

void KN_LOOP(winograd_weights)(void *u, int64_t step, const void *from, int64_t w_step, int n,
                               bool flip) {
    const real *w = from;
    real *to = u, g[9][WIDE] = {{0}}, half[SIDE6][3][WIDE];
    for (int j = 0; j < n; j++)
        for (int k = 0; k < 9; k++) g[k][j] = w[j * w_step + (flip ? 8 - k : k)];
    for (int c = 0; c < 3; c++)
        for (int j = 0; j < WIDE; j++) {
            real x = g[c][j], y = g[3 + c][j], z = g[6 + c][j];
            half[0][c][j] = SCALE_0 * x;
            half[1][c][j] = SCALE_A * ((x + AA * z) + PA * y);
            half[2][c][j] = SCALE_A * ((x + AA * z) - PA * y);
            half[3][c][j] = SCALE_B * ((x + BB * z) + PB * y);
            half[4][c][j] = SCALE_B * ((x + BB * z) - PB * y);
            half[5][c][j] = z;
        }
    for (int r = 0; r < SIDE6; r++, to += SIDE6 * step) {
        KN_SIMD
        for (int j = 0; j < WIDE; j++) {
            real x = half[r][0][j], y = half[r][1][j], z = half[r][2][j];
            to[j] = SCALE_0 * x;
            to[step + j] = SCALE_A * ((x + AA * z) + PA * y);
            to[2 * step + j] = SCALE_A * ((x + AA * z) - PA * y);
            to[3 * step + j] = SCALE_B * ((x + BB * z) + PB * y);
            to[4 * step + j] = SCALE_B * ((x + BB * z) - PB * y);
            to[5 * step + j] = z;
        }
    }
}

void KN_LOOP(winograd_weight_sums)(void *dw, int64_t w_step, const void *sums, int64_t step, int n,
                                   bool accumulate) {
    const real *p = sums;
    real *to = dw, g[9][WIDE], half[3][SIDE6][WIDE];
    for (int c = 0; c < SIDE6; c++)
        for (int j = 0; j < WIDE; j++) {
            const real *at = p + c * step + j;
            const int64_t row = SIDE6 * step;
            real sum_a = SCALE_A * (at[row] + at[2 * row]),
                 sum_b = SCALE_B * (at[3 * row] + at[4 * row]);
            half[0][c][j] = SCALE_0 * at[0] + sum_a + sum_b;
            half[1][c][j] =
                PA * SCALE_A * (at[row] - at[2 * row]) + PB * SCALE_B * (at[3 * row] - at[4 * row]);
            half[2][c][j] = AA * sum_a + BB * sum_b + at[5 * row];
        }
    for (int r = 0; r < 3; r++)
        for (int j = 0; j < WIDE; j++) {
            real(*at)[WIDE] = half[r];
            real sum_a = SCALE_A * (at[1][j] + at[2][j]), sum_b = SCALE_B * (at[3][j] + at[4][j]);
            g[3 * r][j] = SCALE_0 * at[0][j] + sum_a + sum_b;
            g[3 * r + 1][j] =
                PA * SCALE_A * (at[1][j] - at[2][j]) + PB * SCALE_B * (at[3][j] - at[4][j]);
            g[3 * r + 2][j] = AA * sum_a + BB * sum_b + at[5][j];
        }
    for (int j = 0; j < n; j++, to += w_step)
        for (int k = 0; k < 9; k++) to[k] = accumulate ? to[k] + g[k][j] : g[k][j];
}

/* --- layouts --- */

void KN_LOOP(planes_to_blocks)(void *to, const void *from, int64_t plane, int n_planes, int64_t n) {
    if (n_planes < LANES) memset(to, 0, (size_t)n * LANES * sizeof(real));
    transpose(to, LANES, from, plane, n_planes, n);
}

void KN_LOOP(blocks_to_planes)(void *to, int64_t plane, int n_planes, const void *from, int64_t n) {
    transpose(to, plane, from, LANES, n, n_planes);
}
