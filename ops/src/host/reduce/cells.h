/* Cells of reductions: how two are joined, and what comes of one in the end. */
#ifndef KN_REDUCE_CELLS_H
#define KN_REDUCE_CELLS_H

#include <math.h>
#include <string.h>

#include "convert.h"
#include "host/reduce/folds.h"

enum { WORTH_SPLITTING = 1 << 16, CHUNK_ELEMENTS = 1 << 14, CHUNKS_MAX = 64 };
/* Halves that are converted at once: of a row, and rows of KN_COLUMNS. */
enum { HALF_BLOCK = 1024, HALF_ROWS = 16 };

static inline int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

/* What the loops subtract is the shift in their own precision: d differs from it. */
static inline double spread(const kn__recipe *r, kn_dtype dtype, double v, double shift) {
    double d = dtype == KN_F64 ? 0 : shift - (double)(float)shift;
    v = (v - (double)r->n_in * d * d) / r->divisor;
    return v < 0 ? 0 : v;
}

static inline double finished(const kn__recipe *r, kn_dtype dtype, double v, double shift) {
    switch (r->finish) {
        case KN__FINISH_DIVIDE:
            return v / r->divisor;
        case KN__FINISH_VAR:
            return spread(r, dtype, v, shift);
        case KN__FINISH_STD:
            return sqrt(spread(r, dtype, v, shift));
        case KN__FINISH_ROOT:
            return r->power == 0.5 ? sqrt(v) : pow(v, r->power);
        case KN__FINISH_LOG:
            return shift - shift == 0 ? shift + log(v) : shift;
        default: /* finish() counts */
            return v;
    }
}

static inline double join(kn__fold fold, double a, double b) {
    switch (fold) {
        case KN__FOLD_PROD:
            return a * b;
        case KN__FOLD_MAX:
        case KN__FOLD_MAX_ABS:
            return a > b || a != a ? a : b;
        case KN__FOLD_MIN:
        case KN__FOLD_MIN_ABS:
            return a < b || a != a ? a : b;
        default:
            return a + b;
    }
}

static inline int64_t join_integers(kn__fold fold, int64_t a, int64_t b) {
    switch (fold) {
        case KN__FOLD_PROD:
            return (int64_t)((uint64_t)a * (uint64_t)b);
        case KN__FOLD_MAX:
        case KN__FOLD_MAX_ABS:
            return a > b ? a : b;
        case KN__FOLD_MIN:
        case KN__FOLD_MIN_ABS:
            return a < b ? a : b;
        default:
            return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* Sums, and the largest and the least, apart: compilers vectorise them. */
static inline void join_cells(kn__fold fold, bool integers, kn__cell *to, const kn__cell *from,
                              int64_t n) {
    if (integers) {
        for (int64_t i = 0; i < n; i++) to[i].i = join_integers(fold, to[i].i, from[i].i);
    } else if (fold < KN__FOLD_COUNT) {
        for (int64_t i = 0; i < n; i++) to[i].f += from[i].f;
    } else if (fold == KN__FOLD_MAX || fold == KN__FOLD_MAX_ABS) {
        for (int64_t i = 0; i < n; i++) to[i].f = join(KN__FOLD_MAX, to[i].f, from[i].f);
    } else if (fold >= KN__FOLD_MAX) {
        for (int64_t i = 0; i < n; i++) to[i].f = join(KN__FOLD_MIN, to[i].f, from[i].f);
    } else {
        for (int64_t i = 0; i < n; i++) to[i].f = join(fold, to[i].f, from[i].f);
    }
}

/* What joins to a first element and leaves it as it is. */
static inline void neutral_cells(kn__fold fold, kn_dtype dtype, kn__cell *cells, int64_t n) {
    bool max = fold == KN__FOLD_MAX || fold == KN__FOLD_MAX_ABS, prod = fold == KN__FOLD_PROD;
    kn__cell first = {.i = 0};
    if (kn__is_float(dtype) && fold != KN__FOLD_COUNT)
        first.f = fold >= KN__FOLD_MAX ? (max ? -(double)INFINITY : (double)INFINITY) : prod;
    else
        first.i = fold >= KN__FOLD_MAX ? (max ? INT64_MIN : INT64_MAX) : prod;
    for (int64_t i = 0; i < n; i++) cells[i] = first;
}

/* n results into `to` from `at` on. With `accumulate` a result is rounded before it is added to the
 * one that is there: the same bits as a reduction and an addition after it. */
static inline void store(const kn_tensor *to, bool accumulate, int64_t at, double *v, int64_t n) {
    kn_dtype dtype = (kn_dtype)to->dtype;
    size_t bytes = kn_dtype_bytes(dtype);
    char *out = (char *)to->data + (size_t)at * bytes;
    if (accumulate && dtype == KN_F32)
        for (int64_t i = 0; i < n; i++) v[i] = (double)(float)v[i];
    if (accumulate)
        for (int64_t i = 0; i < n; i++) v[i] += kn__as_double(out + (size_t)i * bytes, dtype);
    kn__loops(KN_F64)->cast_to(out, v, dtype, n);
}

/* The cells themselves. */
static inline void store_cells(const kn_tensor *to, int64_t at, const kn__cell *cells,
                               bool integers, int64_t n) {
    kn_dtype dtype = (kn_dtype)to->dtype;
    char *out = (char *)to->data + (size_t)at * kn_dtype_bytes(dtype);
    if (integers)
        kn__loops(KN_F32)->cast_integers(out, dtype, cells, KN_I64, n);
    else
        kn__loops(KN_F64)->cast_to(out, cells, dtype, n);
}

#endif
