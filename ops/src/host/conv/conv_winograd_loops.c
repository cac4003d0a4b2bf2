/* Winograd's transforms of 4x4 results of windows of 3x3 and 2x2 taps, with the points of whose
 * polynomials the errors are small: of 3x3, F(4x4, 3x3), 0, ±5/8, ±3/2 and infinity, a fourth of
 * those of 0, ±1, ±2; of 2x2, F(4x4, 2x2), ±1/2, ±3/2 and infinity. Each lane of a vector is a
 * channel.
 *
 * With the matrices of a tile's products, B for windows of the image, G for weights and A for
 * results: y = Aᵀ[(G w Gᵀ) ⊙ (Bᵀ x B)]A, and dw = Gᵀ[(A dy Aᵀ) ⊙ (Bᵀ x B)]G. */
#include "host/base/loops.h"
#include "host/base/transpose.h"

enum { TILE = KN_WINOGRAD_TILE, SIDE6 = 6, LANES = KN_WINOGRAD_BLOCK }; /* SIDE6: the longer one */
typedef real vec __attribute__((vector_size(LANES * sizeof(real))));
#define INLINE static inline __attribute__((always_inline))

/* Points a and b of 3 and 2 taps: their squares, sums and products. */
#define PA ((real)0.625)
#define PB ((real)1.5)
#define AA (PA * PA)
#define BB (PB * PB)
#define SCALE_0 (1 / (AA * BB))
#define SCALE_A (1 / (2 * AA * (AA - BB)))
#define SCALE_B (1 / (2 * BB * (BB - AA)))
#define QA ((real)0.5)
#define QB ((real)1.5)
#define QAA (QA * QA)
#define QBB (QB * QB)
#define QSCALE_A (1 / (2 * QA * (QAA - QBB)))
#define QSCALE_B (1 / (2 * QB * (QBB - QAA)))

INLINE vec load(const real *p) {
    vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(real *p, vec v) { __builtin_memcpy(p, &v, sizeof v); }

/* Bᵀ d */
INLINE void window_column(vec to[], const vec d[], int step, int taps) {
    if (taps == 2) {
        const vec odd_a = d[3] - QBB * d[1], even_a = QA * (d[2] - QBB * d[0]);
        const vec odd_b = d[3] - QAA * d[1], even_b = QB * (d[2] - QAA * d[0]);
        to[0] = even_a + odd_a;
        to[step] = even_a - odd_a;
        to[2 * step] = even_b + odd_b;
        to[3 * step] = even_b - odd_b;
        to[4 * step] = QAA * QBB * d[0] - (QAA + QBB) * d[2] + d[4];
        return;
    }
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
INLINE void gradient_column(vec to[], const vec d[], int step, int taps) {
    if (taps == 3) to[0] = d[0], to += step;
    const real a = taps == 3 ? PA : QA, b = taps == 3 ? PB : QB;
    const vec even_a = d[0] + a * a * d[2], odd_a = a * (d[1] + a * a * d[3]);
    const vec even_b = d[0] + b * b * d[2], odd_b = b * (d[1] + b * b * d[3]);
    to[0] = even_a + odd_a;
    to[step] = even_a - odd_a;
    to[2 * step] = even_b + odd_b;
    to[3 * step] = even_b - odd_b;
    to[4 * step] = d[3];
}

/* Aᵀ m */
INLINE void result_column(vec to[], const vec m[], int step, int taps) {
    const vec *at = taps == 3 ? m + 1 : m;
    const real a = taps == 3 ? PA : QA, b = taps == 3 ? PB : QB;
    const vec sum_a = at[0] + at[1], difference_a = a * (at[0] - at[1]);
    const vec sum_b = at[2] + at[3], difference_b = b * (at[2] - at[3]);
    to[0] = taps == 3 ? m[0] + sum_a + sum_b : sum_a + sum_b;
    to[step] = difference_a + difference_b;
    to[2 * step] = a * a * sum_a + b * b * sum_b;
    to[3 * step] = a * a * difference_a + b * b * difference_b + at[4];
}

/* --- images --- */

/* A column of a window; `inside`: the whole window is. */
INLINE void column_load(vec d[SIDE6], const kn__winograd_tiles *t, const real *x, int64_t column,
                        int side, bool inside) {
    const real *at = x + (t->row * t->columns + column) * LANES;
    const int64_t step = t->stride * t->columns * LANES;
    const bool in_columns = inside || (uint64_t)column < (uint64_t)t->columns;
    KN_UNROLL(6)
    for (int i = 0; i < side; i++) {
        int64_t row = t->row + i * t->stride;
        bool is_there = inside || (in_columns && (uint64_t)row < (uint64_t)t->rows);
        d[i] = is_there ? load(at + i * step) : (vec){0};
    }
}

/* Of windows of `side` elements a side, of which `transform` makes as many as a tile has. */
#define TRANSFORM_TILES(side, taps, transform)                                                     \
    const int many = TILE - 1 + (taps);                                                            \
    for (int64_t i = 0; i < t->n; i++, to += t->tile_step) {                                       \
        int64_t column = t->column + TILE * t->stride * i, last = t->stride * ((side)-1);          \
        bool inside =                                                                              \
            t->row >= 0 && t->row + last < t->rows && column >= 0 && column + last < t->columns;   \
        vec half[SIDE6 * SIDE6], d[SIDE6], out[SIDE6];                                             \
        if (inside)                                                                                \
            for (int c = 0; c < (side); c++) {                                                     \
                column_load(d, t, x, column + c * t->stride, side, true);                          \
                transform(half + c, d, SIDE6, taps);                                               \
            }                                                                                      \
        else                                                                                       \
            for (int c = 0; c < (side); c++) {                                                     \
                column_load(d, t, x, column + c * t->stride, side, false);                         \
                transform(half + c, d, SIDE6, taps);                                               \
            }                                                                                      \
        for (int r = 0; r < many; r++) {                                                           \
            transform(out, half + r * SIDE6, 1, taps);                                             \
            for (int c = 0; c < many; c++) store(to + (r * many + c) * t->step, out[c]);           \
        }                                                                                          \
    }

void KN_LOOP(winograd_windows)(const kn__winograd_tiles *t, void *v, const void *from) {
    const real *x = from;
    real *to = v;
    if (t->taps == 3) {
        TRANSFORM_TILES(6, 3, window_column)
    } else {
        TRANSFORM_TILES(5, 2, window_column)
    }
}

void KN_LOOP(winograd_gradients)(const kn__winograd_tiles *t, void *v, const void *from) {
    const real *x = from;
    real *to = v;
    if (t->taps == 3) {
        TRANSFORM_TILES(TILE, 3, gradient_column)
    } else {
        TRANSFORM_TILES(TILE, 2, gradient_column)
    }
}

INLINE void results(const kn__winograd_tiles *t, real *to, const real *from, vec start, int taps) {
    const int side = TILE - 1 + taps;
    for (int64_t i = 0; i < t->n; i++, from += t->tile_step) {
        int64_t column = t->column + TILE * t->stride * i, row = t->row;
        vec half[TILE * SIDE6], m[SIDE6], out[TILE];
        for (int c = 0; c < side; c++) {
            for (int r = 0; r < side; r++) m[r] = load(from + (r * side + c) * t->step);
            result_column(half + c, m, SIDE6, taps);
        }
        for (int r = 0; r < TILE && row < t->rows; r++, row += t->stride) {
            real *y = to + (row * t->columns + column) * LANES;
            result_column(out, half + r * SIDE6, 1, taps);
            for (int c = 0; c < TILE && column + c * t->stride < t->columns; c++)
                store(y + c * t->stride * LANES, out[c] + start);
        }
    }
}

void KN_LOOP(winograd_results)(const kn__winograd_tiles *t, void *to, const void *sums,
                               const void *bias) {
    if (t->taps == 3)
        results(t, to, sums, load(bias), 3);
    else
        results(t, to, sums, load(bias), 2);
}

/* --- weights: a lane is an output --- */

enum { WIDE = KN_TILE_COLUMNS };
typedef real line[WIDE];

/* G g: `from` step_from lines apart, `to` step_to elements. */
INLINE void weight_column(real *to, int64_t step_to, line *from, int step_from, int taps) {
    KN_SIMD
    for (int j = 0; j < WIDE; j++) {
        real x = from[0][j], y = from[step_from][j];
        if (taps == 2) {
            to[j] = QSCALE_A * (x + QA * y);
            to[step_to + j] = QSCALE_A * (x - QA * y);
            to[2 * step_to + j] = QSCALE_B * (x + QB * y);
            to[3 * step_to + j] = QSCALE_B * (x - QB * y);
            to[4 * step_to + j] = y;
        } else {
            real z = from[2 * step_from][j];
            to[j] = SCALE_0 * x;
            to[step_to + j] = SCALE_A * ((x + AA * z) + PA * y);
            to[2 * step_to + j] = SCALE_A * ((x + AA * z) - PA * y);
            to[3 * step_to + j] = SCALE_B * ((x + BB * z) + PB * y);
            to[4 * step_to + j] = SCALE_B * ((x + BB * z) - PB * y);
            to[5 * step_to + j] = z;
        }
    }
}

INLINE void weights(real *to, int64_t step, line *g, int taps) {
    const int side = TILE - 1 + taps;
    line half[SIDE6 * 3];
    for (int c = 0; c < taps; c++) weight_column(half[c], 3 * WIDE, g + c, taps, taps);
    for (int r = 0; r < side; r++) weight_column(to + r * side * step, step, half + 3 * r, 1, taps);
}

void KN_LOOP(winograd_weights)(void *u, int64_t step, const void *from, int64_t w_step, int n,
                               const kn__winograd_taps *taps) {
    const real *w = from;
    line g[9] = {{0}};
    for (int k = 0; k < taps->n * taps->n; k++)
        for (int j = 0; j < n && taps->place[k] >= 0; j++) g[k][j] = w[j * w_step + taps->place[k]];
    if (taps->n == 3)
        weights(u, step, g, 3);
    else
        weights(u, step, g, 2);
}

/* Gᵀ m */
INLINE void weight_sum(line *to, int step_to, const real *m, int64_t step, int taps) {
    for (int j = 0; j < WIDE; j++) {
        const real *at = m + j;
        if (taps == 2) {
            real a = at[0], a2 = at[step], b = at[2 * step], b2 = at[3 * step];
            to[0][j] = QSCALE_A * (a + a2) + QSCALE_B * (b + b2);
            to[step_to][j] = QA * QSCALE_A * (a - a2) + QB * QSCALE_B * (b - b2) + at[4 * step];
        } else {
            real sum_a = SCALE_A * (at[step] + at[2 * step]),
                 sum_b = SCALE_B * (at[3 * step] + at[4 * step]);
            to[0][j] = SCALE_0 * at[0] + sum_a + sum_b;
            to[step_to][j] = PA * SCALE_A * (at[step] - at[2 * step]) +
                             PB * SCALE_B * (at[3 * step] - at[4 * step]);
            to[2 * step_to][j] = AA * sum_a + BB * sum_b + at[5 * step];
        }
    }
}

INLINE void weight_sums(line *g, const real *sums, int64_t step, int taps) {
    const int side = TILE - 1 + taps;
    line half[3 * SIDE6];
    for (int c = 0; c < side; c++) weight_sum(half + c, SIDE6, sums + c * step, side * step, taps);
    for (int r = 0; r < taps; r++) weight_sum(g + r * taps, 1, half[r * SIDE6], WIDE, taps);
}

void KN_LOOP(winograd_weight_sums)(void *dw, int64_t w_step, const void *sums, int64_t step, int n,
                                   const kn__winograd_taps *taps, bool accumulate) {
    real *to = dw;
    line g[9];
    if (taps->n == 3)
        weight_sums(g, sums, step, 3);
    else
        weight_sums(g, sums, step, 2);
    for (int j = 0; j < n; j++, to += w_step)
        for (int k = 0; k < taps->n * taps->n; k++) {
            int place = taps->place[k];
            if (place >= 0) to[place] = accumulate ? to[place] + g[k][j] : g[k][j];
        }
}

/* --- layouts --- */

void KN_LOOP(planes_to_blocks)(void *to, const void *from, int64_t plane, int n_planes, int64_t n) {
    if (n_planes < LANES) memset(to, 0, (size_t)n * LANES * sizeof(real));
    transpose(to, LANES, from, plane, n_planes, n);
}

void KN_LOOP(blocks_to_planes)(void *to, int64_t plane, int n_planes, const void *from, int64_t n) {
    transpose(to, plane, from, LANES, n, n_planes);
}
