/* Convolution straight from the planes: micro-tiles as in gemm_loops.c, but the right side is read
 * where it lies, so that nothing is copied and the image stays in the first cache. Compiled with
 * contraction on. */
#include <string.h>

#include "host/base/loops.h"

enum { GROUP = 32 / sizeof(real) };
typedef real group_vec __attribute__((vector_size(32)));
#if KN_TILE_IS_WIDE
enum { GROUPS = 4 }; /* of a tile: two vectors of two */
typedef real tile_vec __attribute__((vector_size(64)));
#elif defined __AVX2__
enum { GROUPS = 2 };
typedef group_vec tile_vec;
#else
enum { GROUPS = 1 };
typedef group_vec tile_vec;
#endif
enum { PER_VECTOR = sizeof(tile_vec) / sizeof(group_vec), VECTORS = GROUPS / PER_VECTOR };

static inline group_vec group_load(const real *p) {
    group_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline tile_vec tile_load(const real *const *p) {
#if KN_TILE_IS_WIDE && defined KN_REAL_IS_F32
    return __builtin_shufflevector(group_load(p[0]), group_load(p[1]), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                   10, 11, 12, 13, 14, 15);
#elif KN_TILE_IS_WIDE
    return __builtin_shufflevector(group_load(p[0]), group_load(p[1]), 0, 1, 2, 3, 4, 5, 6, 7);
#else
    return group_load(p[0]);
#endif
}

/* Where a tile's groups are read and written. */
typedef struct places {
    const real *from[GROUPS];
    real *to[GROUPS];
} places;

static inline __attribute__((always_inline)) void tile(const kn__direct *d, const places *at,
                                                       const int64_t *row_at, const real *packed,
                                                       const real *bias, int m) {
    tile_vec sum[KN_TILE_ROWS][VECTORS];
    const real *from[GROUPS];
    memcpy(from, at->from, sizeof from);
    KN_UNROLL(14)
    for (int i = 0; i < m; i++) KN_UNROLL(2)
    for (int v = 0; v < VECTORS; v++) sum[i][v] = (bias ? bias[i] : 0) - (tile_vec){0};
    for (int64_t l = 0; l < d->n_steps; l++, packed += m) {
        int64_t offset = d->offset[l];
        tile_vec b[VECTORS];
        KN_UNROLL(2)
        for (int v = 0; v < VECTORS; v++) {
            const real *p[PER_VECTOR];
            for (int g = 0; g < PER_VECTOR; g++) p[g] = from[v * PER_VECTOR + g] + offset;
            b[v] = tile_load(p);
        }
        KN_UNROLL(14)
        for (int i = 0; i < m; i++) KN_UNROLL(2)
        for (int v = 0; v < VECTORS; v++) sum[i][v] += packed[i] * b[v];
    }
    KN_UNROLL(14)
    for (int i = 0; i < m; i++) {
        group_vec result[GROUPS];
        memcpy(result, sum[i], sizeof result);
        for (int g = 0; g < GROUPS; g++) {
            real *to = at->to[g] + row_at[i];
            if (d->accumulate) result[g] += group_load(to);
            memcpy(to, &result[g], sizeof result[g]);
        }
    }
}

/* Calls `call` with m as a constant, so that the accumulators of each height are registers. */
#define TILE_CASE(height, call)                                                                    \
    case height: {                                                                                 \
        enum { m = height };                                                                       \
        call;                                                                                      \
        break;                                                                                     \
    }
#ifdef __AVX512F__
#define TILE_CASES_WIDE(call)                                                                      \
    TILE_CASE(7, call)                                                                             \
    TILE_CASE(8, call)                                                                             \
    TILE_CASE(9, call)                                                                             \
    TILE_CASE(10, call)                                                                            \
    TILE_CASE(11, call)                                                                            \
    TILE_CASE(12, call)                                                                            \
    TILE_CASE(13, call)                                                                            \
    TILE_CASE(14, call)
#else
#define TILE_CASES_WIDE(call)
#endif
#ifdef __AVX2__
#define TILE_CASES_FROM_5(call)                                                                    \
    TILE_CASE(5, call)                                                                             \
    TILE_CASE(6, call)                                                                             \
    TILE_CASES_WIDE(call)
#else
#define TILE_CASES_FROM_5(call)
#endif
#if KN_TILE_UNROLLED
#define TILE_OF_HEIGHT(height, call)                                                               \
    switch (height) {                                                                              \
        TILE_CASE(1, call)                                                                         \
        TILE_CASE(2, call)                                                                         \
        TILE_CASE(3, call)                                                                         \
        TILE_CASE(4, call)                                                                         \
        TILE_CASES_FROM_5(call)                                                                    \
        default:                                                                                   \
            KN_ASSERT(0 && "taller than a tile");                                                  \
    }
#else
#define TILE_OF_HEIGHT(height, call)                                                               \
    {                                                                                              \
        int m = height;                                                                            \
        call;                                                                                      \
    }
#endif

static int height_of(int64_t n_rows, int64_t row) {
    return n_rows - row < KN_TILE_ROWS ? (int)(n_rows - row) : KN_TILE_ROWS;
}

/* Of groups [g, g + GROUPS); past the end the last one again, which changes nothing when it is
 * stored twice. When adding, the caller's number of groups is a multiple of GROUPS. */
static places places_of(const kn__direct *d, real *to, const real *from, int64_t g, int64_t end) {
    places at;
    for (int i = 0; i < GROUPS; i++) {
        int64_t group = g + i < end ? g + i : end - 1;
        at.from[i] = from + d->from_at[group];
        at.to[i] = to + d->to_at[group];
    }
    return at;
}

void KN_LOOP(direct_product)(const kn__direct *d, void *to, const void *from, const void *packed,
                             const void *bias, int64_t first, int64_t n) {
    for (int64_t row = 0; row < d->n_rows; row += KN_TILE_ROWS) {
        const real *weights = (const real *)packed + row * d->n_steps;
        const real *start = bias ? (const real *)bias + row : NULL;
        for (int64_t g = first; g < first + n; g += GROUPS) {
            places at = places_of(d, to, from, g, first + n);
            TILE_OF_HEIGHT(height_of(d->n_rows, row),
                           tile(d, &at, d->row_at + row, weights, start, m))
        }
    }
}

/* --- the gradient of the weight --- */

typedef real column_vec __attribute__((vector_size(KN_TILE_BYTES)));

/* A vector by itself: a copy of two at once would go through memory in halves, which the processor
 * can't forward to a load of the whole. */
static inline column_vec column_load(const real *p) {
    column_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) void weight_tile(real *c, int64_t ldc, const real *x,
                                                              const int64_t *row_at,
                                                              const int64_t *at, int64_t n,
                                                              const real *packed, int m) {
    column_vec sum[KN_TILE_ROWS][2];
    KN_UNROLL(14)
    for (int i = 0; i < m; i++) sum[i][0] = sum[i][1] = (column_vec){0};
    for (int64_t p = 0; p < n; p++, packed += KN_TILE_COLUMNS) {
        const real *from = x + at[p];
        column_vec b[2] = {column_load(packed), column_load(packed + KN_TILE_COLUMNS / 2)};
        KN_UNROLL(14)
        for (int i = 0; i < m; i++) {
            real a = from[row_at[i]];
            sum[i][0] += a * b[0];
            sum[i][1] += a * b[1];
        }
    }
    KN_UNROLL(14)
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < 2; k++) {
            real *to = c + i * ldc + k * (KN_TILE_COLUMNS / 2);
            column_vec v = column_load(to) + sum[i][k];
            memcpy(to, &v, sizeof v);
        }
    }
}

void KN_LOOP(direct_weight)(void *c, const void *x, const int64_t *row_at, int64_t n_rows,
                            const int64_t *at, int64_t n, const void *packed, int64_t n_panels) {
    int64_t ldc = n_panels * KN_TILE_COLUMNS;
    for (int64_t panel = 0; panel < n_panels; panel++) {
        const real *b = (const real *)packed + panel * n * KN_TILE_COLUMNS;
        real *to = (real *)c + panel * KN_TILE_COLUMNS;
        for (int64_t row = 0; row < n_rows; row += KN_TILE_ROWS)
            TILE_OF_HEIGHT(height_of(n_rows, row),
                           weight_tile(to + row * ldc, ldc, x, row_at + row, at, n, b, m))
    }
}
