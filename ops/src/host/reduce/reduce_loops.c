/* Inner loops of reductions of floats. Elements are joined in fixed lanes over short blocks, the
 * blocks in double: so an f32 sum is good to its last bits whatever its length, and has the same
 * bits for every instruction set. One walk along rows and one along columns serve every fold. */
#include <math.h>

#include "host/base/turned.h"
#include "host/reduce/folds.h"
#include "host/softmax/softmax_exp.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

#ifdef KN_REAL_IS_F32
#define KN_FABS fabsf
#else
#define KN_FABS fabs
#endif

typedef real vec __attribute__((vector_size(KN_TILE_BYTES)));
typedef real_bits vec_bits __attribute__((vector_size(KN_TILE_BYTES)));
enum {
    WIDTH = KN_TILE_BYTES / sizeof(real),
    LANES = 256 / sizeof(real),
    VECTORS = LANES / WIDTH,
    BLOCK = KN_FOLD_BLOCK_BYTES / sizeof(real),
    STEP = KN_LANES,
    BLOCK_ROWS = KN_BRIEF_ROWS,
    BESIDE = 16, /* short rows at a time: of 8 compilers make no loop, hence no vectors */
    FEW = 8      /* columns, at most, that are walked one after the other */
};
#define INLINE static inline __attribute__((always_inline))

/* --- one element, one vector; `fold` is constant in every expansion --- */

INLINE bool is_extreme(kn__fold fold) { return fold >= KN__FOLD_MAX; }
INLINE bool is_max(kn__fold fold) { return fold == KN__FOLD_MAX || fold == KN__FOLD_MAX_ABS; }
INLINE bool is_abs(kn__fold fold) {
    return fold == KN__FOLD_SUM_ABS || fold == KN__FOLD_MAX_ABS || fold == KN__FOLD_MIN_ABS;
}

INLINE double neutral(kn__fold fold) {
    if (is_extreme(fold)) return is_max(fold) ? -(double)INFINITY : (double)INFINITY;
    return fold == KN__FOLD_PROD;
}

/* x^p; usual ones by products, which vectorise. */
INLINE double power(double x, double p) {
    if (p == 3) return x * x * x;
    return p == 4 ? x * x * (x * x) : pow(x, p);
}

INLINE real map(kn__fold fold, real x, real shift, double p) {
    if (is_abs(fold)) return KN_FABS(x);
    if (fold == KN__FOLD_SUM_KNOWN) return x == x ? x : 0;
    if (fold == KN__FOLD_SUM_SQUARE) return (x - shift) * (x - shift);
    if (fold == KN__FOLD_SUM_FROM) return x - shift;
    if (fold == KN__FOLD_SUM_EXP) return exp_nonpositive(x - shift);
    if (fold == KN__FOLD_SUM_POWER) return (real)power(fabs((double)x), p);
    return x;
}

INLINE vec map_vec(kn__fold fold, vec x, vec shift) {
    if (is_abs(fold)) {
        const vec_bits sign = (vec_bits)(-(vec){0});
        return (vec)((vec_bits)x & ~sign);
    }
    if (fold == KN__FOLD_SUM_KNOWN) return (vec)((vec_bits)x & (vec_bits)(x == x));
    if (fold == KN__FOLD_SUM_FROM) return x - shift;
    return fold == KN__FOLD_SUM_SQUARE ? (x - shift) * (x - shift) : x;
}

INLINE double join(kn__fold fold, double a, double b) {
    if (is_extreme(fold)) return ((is_max(fold) ? a > b : a < b) | (a != a)) ? a : b;
    return fold == KN__FOLD_PROD ? a * b : a + b;
}

/* The same within a block, in the type's own precision. */
INLINE real join_real(kn__fold fold, real a, real b) {
    if (is_extreme(fold)) return ((is_max(fold) ? a > b : a < b) | (a != a)) ? a : b;
    return fold == KN__FOLD_PROD ? a * b : a + b;
}

/* a > b ? a : b, lane by lane; for the least: a < b. */
INLINE vec better(bool max, vec a, vec b) {
#if defined __x86_64__ && defined KN_REAL_IS_F32
#define MAX_MIN(width) (max ? _mm##width##_max_ps(a, b) : _mm##width##_min_ps(a, b))
#elif defined __x86_64__
#define MAX_MIN(width) (max ? _mm##width##_max_pd(a, b) : _mm##width##_min_pd(a, b))
#endif
#ifndef MAX_MIN
    vec_bits keep = max ? a > b : a < b;
    return (vec)((keep & (vec_bits)a) | (~keep & (vec_bits)b));
#elif defined __AVX512F__
    return MAX_MIN(512);
#elif defined __AVX2__
    return MAX_MIN(256);
#else
    return MAX_MIN();
#endif
}

/* Where u or v is a NaN. */
INLINE vec_bits unordered(vec u, vec v) {
#if defined __AVX512F__ && defined KN_REAL_IS_F32
    return (vec_bits)_mm512_movm_epi32(_mm512_cmp_ps_mask((__m512)u, (__m512)v, _CMP_UNORD_Q));
#elif defined __AVX512F__
    return (vec_bits)_mm512_movm_epi64(_mm512_cmp_pd_mask((__m512d)u, (__m512d)v, _CMP_UNORD_Q));
#elif defined __AVX2__ && defined KN_REAL_IS_F32
    return (vec_bits)_mm256_cmp_ps((__m256)u, (__m256)v, _CMP_UNORD_Q);
#elif defined __AVX2__
    return (vec_bits)_mm256_cmp_pd((__m256d)u, (__m256d)v, _CMP_UNORD_Q);
#elif defined __x86_64__ && defined KN_REAL_IS_F32
    return (vec_bits)_mm_cmpunord_ps((__m128)u, (__m128)v);
#elif defined __x86_64__
    return (vec_bits)_mm_cmpunord_pd((__m128d)u, (__m128d)v);
#else
    return (u != u) | (v != v);
#endif
}

/* Joins v into acc; of extremes, NaNs are noted and left out. */
INLINE void join_vec(kn__fold fold, vec *acc, vec_bits *nans, vec v) {
    if (is_extreme(fold)) {
        *acc = better(is_max(fold), v, *acc);
        *nans |= v != v;
    } else {
        *acc = fold == KN__FOLD_PROD ? *acc * v : *acc + v;
    }
}

INLINE vec load(const real *x) {
    vec v;
    __builtin_memcpy(&v, x, sizeof v);
    return v;
}

/* --- along rows --- */

INLINE bool any_bit(const vec_bits *v) {
    uint64_t word[sizeof *v / sizeof(uint64_t)], any = 0;
    __builtin_memcpy(word, v, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) any |= word[i];
    return any != 0;
}

/* Lane l meets lane l + half, for halves of the lanes, of that half, and so on. */
INLINE real join_lanes(kn__fold fold, vec acc[], int lanes, const vec_bits *nans) {
    vec_bits none = {0};
    for (int half = lanes / WIDTH / 2; half; half /= 2)
        for (int k = 0; k < half; k++) {
            vec v = acc[k];
            acc[k] = acc[k + half];
            join_vec(fold, &acc[k], &none, v);
        }
    vec v = acc[0];
#define MEET(half)                                                                                 \
    if (WIDTH > half) {                                                                            \
        vec other = TURNED(v, half);                                                               \
        join_vec(fold, &other, &none, v);                                                          \
        v = other;                                                                                 \
    }
    MEET(8)
    MEET(4)
    MEET(2)
    MEET(1)
    return is_extreme(fold) && any_bit(nans) ? (real)NAN : v[0];
}

INLINE real few(kn__fold fold, const real *x, int64_t n, real shift, double p) {
    real acc = (real)neutral(fold);
    for (int64_t i = 0; i < n; i++) acc = join_real(fold, acc, map(fold, x[i], shift, p));
    return acc;
}

/* In `lanes` lanes, a constant. */
INLINE double lanes_block(kn__fold fold, const real *x, int64_t n, int lanes, real shift,
                          double p) {
    enum { STEP_VECTORS = STEP / WIDTH };
    vec acc[VECTORS], shifts = shift - (vec){0}, first = (real)neutral(fold) - (vec){0};
    vec_bits nans = {0};
    for (int k = 0; k < lanes / WIDTH; k++) acc[k] = first;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        KN_UNROLL(16)
        for (int k = 0; k < lanes / WIDTH; k++)
            join_vec(fold, &acc[k], &nans, map_vec(fold, load(x + i + k * WIDTH), shifts));
    }
    for (; i + STEP <= n; i += STEP) {
        KN_UNROLL(4)
        for (int k = 0; k < STEP_VECTORS; k++)
            join_vec(fold, &acc[k], &nans, map_vec(fold, load(x + i + k * WIDTH), shifts));
    }
    if (is_extreme(fold) && i < n) { /* the last ones, some of them for a second time */
        KN_UNROLL(4)
        for (int k = 0; k < STEP_VECTORS; k++)
            join_vec(fold, &acc[k], &nans, map_vec(fold, load(x + n - STEP + k * WIDTH), shifts));
        i = n;
    }
    real rest = few(fold, x + i, n - i, shift, p);
    return join(fold, (double)join_lanes(fold, acc, lanes, &nans), (double)rest);
}

/* Short ones in few lanes: the others would stay neutral. */
INLINE double block(kn__fold fold, const real *x, int64_t n, real shift, double p) {
    if (n < STEP) return (double)few(fold, x, n, shift, p);
    return n < LANES ? lanes_block(fold, x, n, STEP, shift, p)
                     : lanes_block(fold, x, n, LANES, shift, p);
}

/* Exponentials and powers are computed first, then added. */
INLINE double mapped_block(kn__fold fold, const real *x, int64_t n, real shift, double p) {
    real mapped[BLOCK];
    for (int64_t i = 0; i < n; i++) mapped[i] = map(fold, x[i], shift, p);
    return block(KN__FOLD_SUM, mapped, n, 0, 0);
}

/* Joins the blocks to acc, one after the other. */
INLINE double row(kn__fold fold, double acc, const real *x, int64_t n, real shift, double p) {
    bool mapped = fold == KN__FOLD_SUM_EXP || fold == KN__FOLD_SUM_POWER;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        double part =
            mapped ? mapped_block(fold, x + i, m, shift, p) : block(fold, x + i, m, shift, p);
        acc = join(fold, acc, part);
    }
    return acc;
}

INLINE void rows(kn__fold fold, kn__cell *cells, const real *x, int64_t n, int64_t down,
                 int64_t stride, const kn__cell *shift, double p) {
    for (int64_t o = 0; o < n; o++) {
        real s = shift ? (real)shift[o].f : 0;
        cells[o].f = row(fold, cells[o].f, x + o * stride, down, s, p);
    }
}

/* --- along columns: blocks of rows in the type's own precision, four rows at a time --- */

INLINE void block_of_rows(kn__fold fold, real *part, const real *x, int64_t n, int64_t down,
                          int64_t stride, const real *s, double p) {
    int64_t d = 0;
    for (; d + 4 <= down; d += 4) {
        const real *x0 = x + d * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        for (int64_t i = 0; i < n; i++) {
            real a = join_real(fold, map(fold, x0[i], s[i], p), map(fold, x1[i], s[i], p));
            real b = join_real(fold, map(fold, x2[i], s[i], p), map(fold, x3[i], s[i], p));
            part[i] = join_real(fold, part[i], join_real(fold, a, b));
        }
    }
    for (; d < down; d++) {
        const real *x0 = x + d * stride;
        for (int64_t i = 0; i < n; i++)
            part[i] = join_real(fold, part[i], map(fold, x0[i], s[i], p));
    }
}

/* The same of n columns, a constant, without other ones beside them: groups of four rows become
 * vectors, then are joined one after the other as above. */
INLINE void block_of_few(kn__fold fold, real *part, const real *x, int n, int64_t down,
                         const real *s, double p) {
    real four[BLOCK_ROWS / 4 * FEW];
    const int64_t groups = down / 4;
    for (int64_t g = 0; g < groups; g++) {
        for (int i = 0; i < n; i++) {
            const real *in = x + 4 * g * n + i;
            real a = join_real(fold, map(fold, in[0], s[i], p), map(fold, in[n], s[i], p));
            real b = join_real(fold, map(fold, in[2 * n], s[i], p), map(fold, in[3 * n], s[i], p));
            four[g * n + i] = join_real(fold, a, b);
        }
    }
    for (int64_t g = 0; g < groups; g++)
        for (int i = 0; i < n; i++) part[i] = join_real(fold, part[i], four[g * n + i]);
    for (int64_t d = 4 * groups; d < down; d++)
        for (int i = 0; i < n; i++)
            part[i] = join_real(fold, part[i], map(fold, x[d * n + i], s[i], p));
}

INLINE void join_block(kn__fold fold, real *part, const real *x, int64_t n, int64_t down,
                       int64_t stride, const real *s, double p) {
    if (n == 2 && stride == 2)
        block_of_few(fold, part, x, 2, down, s, p);
    else if (n == 3 && stride == 3)
        block_of_few(fold, part, x, 3, down, s, p);
    else if (n == 4 && stride == 4)
        block_of_few(fold, part, x, 4, down, s, p);
    else
        block_of_rows(fold, part, x, n, down, stride, s, p);
}

/* Extremes of `down` rows, a constant; NaNs are noted aside: the choice of one of two numbers is
 * one instruction then. nans is NULL where these are all rows. */
INLINE void join_extremes(kn__fold fold, real *part, real_bits *nans, const real *x, int64_t n,
                          int64_t down, int64_t stride) {
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        vec acc = (real)neutral(fold) - (vec){0};
        vec_bits seen = {0};
        if (nans) {
            acc = load(part + i);
            __builtin_memcpy(&seen, nans + i, sizeof seen);
        }
        for (int64_t d = 0; d < down; d += 2) { /* the last of an odd number twice */
            vec u = map_vec(fold, load(x + d * stride + i), (vec){0}), v = u;
            if (d + 1 < down) v = map_vec(fold, load(x + (d + 1) * stride + i), (vec){0});
            seen |= unordered(u, v);
            acc = better(is_max(fold), u, acc);
            acc = better(is_max(fold), v, acc);
        }
        if (nans)
            __builtin_memcpy(nans + i, &seen, sizeof seen);
        else
            acc = (vec)((seen & (vec_bits)((real)NAN - (vec){0})) | (~seen & (vec_bits)acc));
        __builtin_memcpy(part + i, &acc, sizeof acc);
    }
    for (; i < n; i++) {
        real acc = nans ? part[i] : (real)neutral(fold);
        for (int64_t d = 0; d < down; d++) {
            real v = map(fold, x[d * stride + i], 0, 0);
            acc = join_real(fold, v, acc);
            if (nans) nans[i] |= v != v;
        }
        part[i] = acc != acc ? (real)NAN : acc;
    }
}

/* part needs no value before. */
INLINE void extremes_of_rows(kn__fold fold, real *part, const real *x, int64_t n, int64_t down,
                             int64_t stride) {
    if (down == 2 || down == 3) {
        down == 2 ? join_extremes(fold, part, NULL, x, n, 2, stride)
                  : join_extremes(fold, part, NULL, x, n, 3, stride);
        return;
    }
    real_bits nans[KN_COLUMNS];
    int64_t d = 0;
    for (int64_t i = 0; i < n; i++) part[i] = (real)neutral(fold), nans[i] = 0;
    for (; d + 4 <= down; d += 4) join_extremes(fold, part, nans, x + d * stride, n, 4, stride);
    if (down - d >= 2) {
        join_extremes(fold, part, nans, x + d * stride, n, 2, stride);
        d += 2;
    }
    if (d < down) join_extremes(fold, part, nans, x + d * stride, n, 1, stride);
    for (int64_t i = 0; i < n; i++) part[i] = nans[i] ? (real)NAN : part[i];
}

INLINE void columns(kn__fold fold, kn__cell *cells, const real *x, int64_t n, int64_t down,
                    int64_t stride, const kn__cell *shift, double p) {
    real part[KN_COLUMNS], s[KN_COLUMNS];
    for (int64_t i = 0; i < n; i++) s[i] = shift ? (real)shift[i].f : 0;
    for (int64_t d = 0; d < down; d += BLOCK_ROWS) {
        int64_t rows = down - d < BLOCK_ROWS ? down - d : BLOCK_ROWS;
        if (is_extreme(fold)) {
            extremes_of_rows(fold, part, x + d * stride, n, rows, stride);
        } else {
            for (int64_t i = 0; i < n; i++) part[i] = (real)neutral(fold);
            join_block(fold, part, x + d * stride, n, rows, stride, s, p);
        }
        for (int64_t i = 0; i < n; i++) cells[i].f = join(fold, cells[i].f, (double)part[i]);
    }
}

/* --- few elements a result: as above, but without cells --- */

INLINE void divide_all(real *y, int64_t n, double divisor) {
    if (divisor == 1) return;
    for (int64_t i = 0; i < n; i++) y[i] = (real)((double)y[i] / divisor);
}

INLINE void brief_columns(kn__fold fold, real *y, const real *x, int64_t n, int64_t down,
                          int64_t stride, double divisor) {
    if (is_extreme(fold)) {
        extremes_of_rows(fold, y, x, n, down, stride);
    } else {
        for (int64_t i = 0; i < n; i++) y[i] = (real)neutral(fold);
        block_of_rows(fold, y, x, n, down, stride, y, 0); /* of folds without a shift */
    }
    divide_all(y, n, divisor);
}

/* BESIDE rows next to each other; says how many. */
INLINE int64_t brief_lanes(kn__fold fold, real *y, const real *x, int64_t n, int64_t down) {
    int64_t o = 0;
    for (; o + BESIDE <= n; o += BESIDE) {
        real acc[BESIDE];
        for (int l = 0; l < BESIDE; l++) acc[l] = (real)neutral(fold);
        for (int64_t d = 0; d < down; d++)
            for (int l = 0; l < BESIDE; l++)
                acc[l] = join_real(fold, acc[l], map(fold, x[(o + l) * down + d], 0, 0));
        __builtin_memcpy(y + o, acc, sizeof acc);
    }
    return o;
}

INLINE void brief_rows(kn__fold fold, real *y, const real *x, int64_t n, int64_t down,
                       double divisor) {
    int64_t o = 0;
    if (down == 2) /* compilers pick every second and every fourth element fast */
        for (; o < n; o++) y[o] = few(fold, x + o * 2, 2, 0, 0);
    else if (down == 4)
        for (; o < n; o++) y[o] = few(fold, x + o * 4, 4, 0, 0);
    else
        o = brief_lanes(fold, y, x, n, down);
    for (; o < n; o++) y[o] = few(fold, x + o * down, down, 0, 0);
    divide_all(y, n, divisor);
}

/* --- counts --- */

static void count_rows(kn__cell *cells, const void *x, int64_t n, int64_t down, int64_t stride,
                       const kn__cell *shift, double p) {
    (void)shift, (void)p;
    for (int64_t o = 0; o < n; o++) {
        const real *in = (const real *)x + o * stride;
        for (int64_t d = 0; d < down; d += BLOCK) {
            int64_t m = down - d < BLOCK ? down - d : BLOCK;
            real_bits count = 0;
            for (int64_t i = 0; i < m; i++) count += in[d + i] != 0;
            cells[o].i += count;
        }
    }
}

static void count_columns(kn__cell *cells, const void *x, int64_t n, int64_t down, int64_t stride,
                          const kn__cell *shift, double p) {
    (void)shift, (void)p;
    for (int64_t d = 0; d < down; d++) {
        const real *in = (const real *)x + d * stride;
        for (int64_t i = 0; i < n; i++) cells[i].i += in[i] != 0;
    }
}

/* --- places of extremes --- */

/* The block with the extreme is found first, then its place in there. */
INLINE void place_row(kn__cell *cell, int64_t *place, const real *x, int64_t n, kn__fold fold) {
    double best = (double)x[0];
    int64_t from = 0, i;
    for (i = 0; i < n; i += BLOCK) {
        double b = block(fold, x + i, n - i < BLOCK ? n - i : BLOCK, 0, 0);
        if ((fold == KN__FOLD_MAX ? b > best : b < best) || (b != b && best == best)) {
            best = b;
            from = i;
        }
    }
    i = from;
    if (best != best)
        while (x[i] == x[i]) i++;
    else
        while ((double)x[i] != best) i++;
    cell->f = (double)x[i]; /* equal, but a zero may have another sign */
    *place = i;
}

/* Short ones, BESIDE next to each other; says how many. */
INLINE int64_t place_short(kn__cell *cells, int64_t *places, const real *x, int64_t n, int64_t down,
                           int64_t stride, bool max) {
    int64_t o = 0;
    for (; o + BESIDE <= n; o += BESIDE) {
        real best[BESIDE];
        real_bits at[BESIDE];
        for (int l = 0; l < BESIDE; l++) best[l] = x[(o + l) * stride], at[l] = 0;
        for (int64_t d = 1; d < down; d++) {
            for (int l = 0; l < BESIDE; l++) {
                real b = best[l], v = x[(o + l) * stride + d];
                bool better_one = (max ? v > b : v < b) | ((v != v) & (b == b));
                best[l] = better_one ? v : b;
                at[l] = better_one ? (real_bits)d : at[l];
            }
        }
        for (int l = 0; l < BESIDE; l++) cells[o + l].f = (double)best[l], places[o + l] = at[l];
    }
    return o;
}

INLINE void place_each(kn__cell *cells, int64_t *places, const real *x, int64_t n, int64_t down,
                       int64_t stride, bool max) {
    int64_t o = down < BESIDE ? place_short(cells, places, x, n, down, stride, max) : 0;
    for (; o < n; o++)
        place_row(&cells[o], &places[o], x + o * stride, down, max ? KN__FOLD_MAX : KN__FOLD_MIN);
}

static void place_rows(kn__cell *cells, int64_t *places, const void *x, int64_t n, int64_t down,
                       int64_t stride, bool max) {
    if (max)
        place_each(cells, places, x, n, down, stride, true);
    else
        place_each(cells, places, x, n, down, stride, false);
}

/* Of few columns: rarely does an element improve on those before. */
INLINE void place_few(real *best, int64_t *places, const real *x, int64_t n, int64_t down,
                      int64_t stride, bool max) {
    enum { ROWS = 256 };
    for (int64_t from = 1; from < down; from += ROWS) {
        int64_t to = down - from < ROWS ? down : from + ROWS;
        for (int64_t i = 0; i < n; i++) {
            real b = best[i];
            for (int64_t d = from; d < to; d++) {
                real v = x[d * stride + i];
                if (__builtin_expect(max ? v <= b : v >= b, 1)) continue;
                if (b != b) break; /* the first NaN stays */
                b = v;
                places[i] = d;
            }
            best[i] = b;
        }
    }
}

INLINE void place_all(real *best, int64_t *places, const real *x, int64_t n, int64_t down,
                      int64_t stride, bool max) {
    if (n <= FEW) {
        place_few(best, places, x, n, down, stride, max);
        return;
    }
    for (int64_t d = 1; d < down; d++) {
        const real *in = x + d * stride;
        for (int64_t i = 0; i < n; i++) {
            real b = best[i], v = in[i];
            bool better_one = (max ? v > b : v < b) | ((v != v) & (b == b));
            best[i] = better_one ? v : b;
            places[i] = better_one ? d : places[i];
        }
    }
}

static void place_columns(kn__cell *cells, int64_t *places, const void *x, int64_t n, int64_t down,
                          int64_t stride, bool max) {
    const real *in = x;
    real best[KN_COLUMNS];
    for (int64_t i = 0; i < n; i++) best[i] = in[i], places[i] = 0;
    if (max)
        place_all(best, places, in, n, down, stride, true);
    else
        place_all(best, places, in, n, down, stride, false);
    for (int64_t i = 0; i < n; i++) cells[i].f = (double)best[i];
}

/* --- scans --- */

typedef real element, result;
typedef double joined;
#define KN_CELL f
#include "host/reduce/scan_loops.h"

/* --- the table --- */

#define FOLDS(F) BRIEF_FOLDS(F) F(SUM_SQUARE) F(SUM_FROM) F(SUM_EXP) F(SUM_POWER)
#define BRIEF_FOLDS(F) F(SUM) F(SUM_ABS) F(SUM_KNOWN) F(PROD) F(MAX) F(MIN) F(MAX_ABS) F(MIN_ABS)
#define EXPAND(name)                                                                               \
    static void rows_##name(kn__cell *cells, const void *x, int64_t n, int64_t down,               \
                            int64_t stride, const kn__cell *shift, double p) {                     \
        rows(KN__FOLD_##name, cells, x, n, down, stride, shift, p);                                \
    }                                                                                              \
    static void columns_##name(kn__cell *cells, const void *x, int64_t n, int64_t down,            \
                               int64_t stride, const kn__cell *shift, double p) {                  \
        columns(KN__FOLD_##name, cells, x, n, down, stride, shift, p);                             \
    }
FOLDS(EXPAND)

#define EXPAND_BRIEF(name)                                                                         \
    static void brief_rows_##name(void *restrict y, const void *restrict x, int64_t n,             \
                                  int64_t down, int64_t stride, double divisor) {                  \
        (void)stride;                                                                              \
        brief_rows(KN__FOLD_##name, y, x, n, down, divisor);                                       \
    }                                                                                              \
    static void brief_columns_##name(void *restrict y, const void *restrict x, int64_t n,          \
                                     int64_t down, int64_t stride, double divisor) {               \
        brief_columns(KN__FOLD_##name, y, x, n, down, stride, divisor);                            \
    }
BRIEF_FOLDS(EXPAND_BRIEF)

extern const kn__fold_table KN_LOOP(folds);
const kn__fold_table KN_LOOP(folds) = {
#define ROWS(name) [KN__FOLD_##name] = rows_##name,
#define COLUMNS(name) [KN__FOLD_##name] = columns_##name,
    .rows = {FOLDS(ROWS)[KN__FOLD_COUNT] = count_rows},
    .columns = {FOLDS(COLUMNS)[KN__FOLD_COUNT] = count_columns},
#define BRIEF_ROWS(name) [KN__FOLD_##name] = brief_rows_##name,
#define BRIEF_COLUMNS(name) [KN__FOLD_##name] = brief_columns_##name,
    .brief_rows = {BRIEF_FOLDS(BRIEF_ROWS)},
    .brief_columns = {BRIEF_FOLDS(BRIEF_COLUMNS)},
    .place_rows = place_rows,
    .place_columns = place_columns,
    SCAN_TABLES};
