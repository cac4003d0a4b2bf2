/* Inner loops of reductions of integers, joined in i64: compiled for i64, i32 and u8 (which serves
 * bools too). Sums and products wrap. */
#include "host/base/loops.h"
#include "host/reduce/folds.h"

typedef KN_ROW_INTEGER integer;
#define INLINE static inline __attribute__((always_inline))

INLINE bool is_max(kn__fold fold) { return fold == KN__FOLD_MAX || fold == KN__FOLD_MAX_ABS; }
INLINE bool is_extreme(kn__fold fold) { return fold >= KN__FOLD_MAX; }

INLINE int64_t map(kn__fold fold, integer x) {
    int64_t v = (int64_t)x, size = v < 0 ? (int64_t)(0 - (uint64_t)v) : v;
    switch (fold) {
        case KN__FOLD_COUNT:
            return v != 0;
        case KN__FOLD_SUM_SQUARE:
            return (int64_t)((uint64_t)v * (uint64_t)v);
        case KN__FOLD_SUM_ABS:
            return size;
        case KN__FOLD_MAX_ABS:
        case KN__FOLD_MIN_ABS:
            return (int64_t)(integer)size; /* that of the least integer wraps, as kn_abs's does */
        default:
            return v;
    }
}

INLINE int64_t join(kn__fold fold, int64_t a, int64_t b) {
    if (is_extreme(fold)) return (is_max(fold) ? a > b : a < b) ? a : b;
    return fold == KN__FOLD_PROD ? a * b : a + b;
}

/* Counts and small sums: lanes of the type's own width, emptied before they overflow. */
typedef integer vec __attribute__((vector_size(KN_TILE_BYTES)));
enum { WIDTH = KN_TILE_BYTES / sizeof(integer), ROUNDS = 255 };

INLINE int64_t count(const integer *x, int64_t n) {
    int64_t total = 0, i = 0;
    while (i + WIDTH <= n) {
        vec lanes = {0};
        for (int r = 0; r < ROUNDS && i + WIDTH <= n; r++, i += WIDTH) {
            vec v;
            __builtin_memcpy(&v, x + i, sizeof v);
            lanes -= (vec)(v != 0); /* a lane that is true is -1 */
        }
        for (int l = 0; l < (int)WIDTH; l++) total += (int64_t)lanes[l];
    }
    for (; i < n; i++) total += x[i] != 0;
    return total;
}

/* The extreme in the type's own width. */
INLINE int64_t extreme(kn__fold fold, const integer *x, int64_t n) {
    integer best = x[0];
    for (int64_t i = 1; i < n; i++) best = (is_max(fold) ? x[i] > best : x[i] < best) ? x[i] : best;
    return (int64_t)best;
}

INLINE void rows(kn__fold fold, kn__cell *cells, const integer *x, int64_t n, int64_t down,
                 int64_t stride) {
    for (int64_t o = 0; o < n; o++) {
        const integer *in = x + o * stride;
        int64_t acc = cells[o].i;
        if (fold == KN__FOLD_COUNT) {
            acc += count(in, down);
        } else if ((fold == KN__FOLD_MAX || fold == KN__FOLD_MIN) && down > 0) {
            acc = join(fold, acc, extreme(fold, in, down));
        } else {
            for (int64_t d = 0; d < down; d++) acc = join(fold, acc, map(fold, in[d]));
        }
        cells[o].i = acc;
    }
}

/* --- along columns: extremes in the type's own width, else four rows at a time --- */

INLINE integer least(kn__fold fold) {
    return is_max(fold) ? (integer)KN_ROW_MIN : (integer)KN_ROW_MAX;
}

INLINE integer join_own(kn__fold fold, integer a, integer x) {
    integer v = (integer)map(fold, x);
    return (is_max(fold) ? a > v : a < v) ? a : v;
}

INLINE void brief_columns(kn__fold fold, integer *y, const integer *x, int64_t n, int64_t down,
                          int64_t stride) {
    int64_t d = 0;
    for (int64_t i = 0; i < n; i++) y[i] = least(fold);
    for (; d + 4 <= down; d += 4) {
        const integer *x0 = x + d * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        for (int64_t i = 0; i < n; i++) {
            integer a = join_own(fold, join_own(fold, y[i], x0[i]), x1[i]);
            y[i] = join_own(fold, join_own(fold, a, x2[i]), x3[i]);
        }
    }
    for (; d < down; d++)
        for (int64_t i = 0; i < n; i++) y[i] = join_own(fold, y[i], x[d * stride + i]);
}

#ifdef KN_ROW_BOOLS /* bytes: four of their squares have room */
typedef int32_t of_four;
#else
typedef int64_t of_four;
#endif

INLINE int64_t join_four(kn__fold fold, integer a, integer b, integer c, integer d) {
    if (fold == KN__FOLD_PROD) return (int64_t)a * (int64_t)b * ((int64_t)c * (int64_t)d);
    const of_four first = (of_four)map(fold, a) + (of_four)map(fold, b);
    const of_four sum = first + ((of_four)map(fold, c) + (of_four)map(fold, d));
    return (int64_t)sum;
}

INLINE void columns(kn__fold fold, kn__cell *cells, const integer *x, int64_t n, int64_t down,
                    int64_t stride) {
    int64_t d = 0;
    if (is_extreme(fold)) {
        integer part[KN_COLUMNS];
        brief_columns(fold, part, x, n, down, stride);
        for (int64_t i = 0; i < n; i++) cells[i].i = join(fold, cells[i].i, (int64_t)part[i]);
        return;
    }
    for (; d + 4 <= down; d += 4) {
        const integer *x0 = x + d * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        for (int64_t i = 0; i < n; i++)
            cells[i].i = join(fold, cells[i].i, join_four(fold, x0[i], x1[i], x2[i], x3[i]));
    }
    for (; d < down; d++) {
        const integer *in = x + d * stride;
        for (int64_t i = 0; i < n; i++) cells[i].i = join(fold, cells[i].i, map(fold, in[i]));
    }
}

/* --- extremes of short rows --- */

INLINE void brief_rows(kn__fold fold, integer *y, const integer *x, int64_t n, int64_t down) {
    for (int64_t i = 0; i < n; i++) y[i] = least(fold);
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < down; d++) y[i] = join_own(fold, y[i], x[i * down + d]);
}

/* --- places of extremes --- */

/* Short rows, BESIDE next to each other; says how many. FEW: as in reduce_loops.c. */
enum { BESIDE = 16, FEW = 8 };
INLINE int64_t place_short(kn__cell *cells, int64_t *places, const integer *x, int64_t n,
                           int64_t down, int64_t stride, bool max) {
    int64_t o = 0;
    for (; o + BESIDE <= n; o += BESIDE) {
        integer best[BESIDE], at[BESIDE];
        for (int l = 0; l < BESIDE; l++) best[l] = x[(o + l) * stride], at[l] = 0;
        for (int64_t d = 1; d < down; d++) {
            for (int l = 0; l < BESIDE; l++) {
                integer b = best[l], v = x[(o + l) * stride + d];
                bool better = max ? v > b : v < b;
                best[l] = better ? v : b;
                at[l] = better ? (integer)d : at[l];
            }
        }
        for (int l = 0; l < BESIDE; l++) {
            cells[o + l].i = (int64_t)best[l];
            places[o + l] = (int64_t)at[l];
        }
    }
    return o;
}

INLINE void place_each(kn__cell *cells, int64_t *places, const integer *x, int64_t n, int64_t down,
                       int64_t stride, bool max) {
    int64_t o = down < BESIDE ? place_short(cells, places, x, n, down, stride, max) : 0;
    for (; o < n; o++) {
        const integer *in = x + o * stride;
        int64_t best = extreme(max ? KN__FOLD_MAX : KN__FOLD_MIN, in, down), i = 0;
        while ((int64_t)in[i] != best) i++;
        cells[o].i = best;
        places[o] = i;
    }
}

static void place_rows(kn__cell *cells, int64_t *places, const void *x, int64_t n, int64_t down,
                       int64_t stride, bool max) {
    if (max)
        place_each(cells, places, x, n, down, stride, true);
    else
        place_each(cells, places, x, n, down, stride, false);
}

/* Of few columns: rarely does an element improve on those before. */
INLINE void place_few(integer *best, int64_t *places, const integer *x, int64_t n, int64_t down,
                      int64_t stride, bool max) {
    enum { ROWS = 256 };
    for (int64_t from = 1; from < down; from += ROWS) {
        int64_t to = down - from < ROWS ? down : from + ROWS;
        for (int64_t i = 0; i < n; i++) {
            integer b = best[i];
            for (int64_t d = from; d < to; d++) {
                integer v = x[d * stride + i];
                if (__builtin_expect(max ? v <= b : v >= b, 1)) continue;
                b = v;
                places[i] = d;
            }
            best[i] = b;
        }
    }
}

INLINE void place_all(integer *best, int64_t *places, const integer *x, int64_t n, int64_t down,
                      int64_t stride, bool max) {
    if (n <= FEW) {
        place_few(best, places, x, n, down, stride, max);
        return;
    }
    for (int64_t d = 1; d < down; d++) {
        const integer *in = x + d * stride;
        for (int64_t i = 0; i < n; i++) {
            integer b = best[i], v = in[i];
            bool better = max ? v > b : v < b;
            best[i] = better ? v : b;
            places[i] = better ? d : places[i];
        }
    }
}

static void place_columns(kn__cell *cells, int64_t *places, const void *x, int64_t n, int64_t down,
                          int64_t stride, bool max) {
    const integer *in = x;
    integer best[KN_COLUMNS];
    for (int64_t i = 0; i < n; i++) best[i] = in[i], places[i] = 0;
    if (max)
        place_all(best, places, in, n, down, stride, true);
    else
        place_all(best, places, in, n, down, stride, false);
    for (int64_t i = 0; i < n; i++) cells[i].i = (int64_t)best[i];
}

typedef integer element;
typedef int64_t result, joined;
#define KN_CELL i
#include "host/reduce/scan_loops.h"

#define FOLDS(F)                                                                                   \
    F(SUM) F(SUM_ABS) F(SUM_SQUARE) F(COUNT) F(PROD) F(MAX) F(MIN) F(MAX_ABS) F(MIN_ABS)
#define EXPAND(name)                                                                               \
    static void rows_##name(kn__cell *cells, const void *x, int64_t n, int64_t down,               \
                            int64_t stride, const kn__cell *shift, double p) {                     \
        (void)shift, (void)p;                                                                      \
        rows(KN__FOLD_##name, cells, x, n, down, stride);                                          \
    }                                                                                              \
    static void columns_##name(kn__cell *cells, const void *x, int64_t n, int64_t down,            \
                               int64_t stride, const kn__cell *shift, double p) {                  \
        (void)shift, (void)p;                                                                      \
        columns(KN__FOLD_##name, cells, x, n, down, stride);                                       \
    }
FOLDS(EXPAND)

#define BRIEF_FOLDS(F) F(MAX) F(MIN) F(MAX_ABS) F(MIN_ABS)
#define EXPAND_BRIEF(name)                                                                         \
    static void brief_rows_##name(void *restrict y, const void *restrict x, int64_t n,             \
                                  int64_t down, int64_t stride, double divisor) {                  \
        (void)stride, (void)divisor;                                                               \
        brief_rows(KN__FOLD_##name, y, x, n, down);                                                \
    }                                                                                              \
    static void brief_columns_##name(void *restrict y, const void *restrict x, int64_t n,          \
                                     int64_t down, int64_t stride, double divisor) {               \
        (void)divisor;                                                                             \
        brief_columns(KN__FOLD_##name, y, x, n, down, stride);                                     \
    }
BRIEF_FOLDS(EXPAND_BRIEF)

#define TABLE__(name, isa) kn__folds_##name##_##isa
#define TABLE_(name, isa) TABLE__(name, isa)
extern const kn__fold_table TABLE_(KN_ROW_NAME, KN_ISA);
const kn__fold_table TABLE_(KN_ROW_NAME, KN_ISA) = {
#define ROWS(name) [KN__FOLD_##name] = rows_##name,
#define COLUMNS(name) [KN__FOLD_##name] = columns_##name,
    .rows = {FOLDS(ROWS)},
    .columns = {FOLDS(COLUMNS)},
#define BRIEF_ROWS(name) [KN__FOLD_##name] = brief_rows_##name,
#define BRIEF_COLUMNS(name) [KN__FOLD_##name] = brief_columns_##name,
    .brief_rows = {BRIEF_FOLDS(BRIEF_ROWS)},
    .brief_columns = {BRIEF_FOLDS(BRIEF_COLUMNS)},
    .place_rows = place_rows,
    .place_columns = place_columns,
    SCAN_TABLES};
