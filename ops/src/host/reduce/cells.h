/* Cells of reductions: how two are joined, and what comes of one in the end. */
#ifndef KN_REDUCE_CELLS_H
#define KN_REDUCE_CELLS_H

#include <math.h>

#include "host/reduce/folds.h"

/* What the loops subtract is the shift in their own precision: d differs from it. */
static inline double spread(const kn__recipe *r, kn_dtype dtype, double v, double shift) {
    double d = dtype == KN_F64 ? 0 : shift - (double)(float)shift;
    v = (v - (double)r->n_in * d * d) * r->scale;
    return v < 0 ? 0 : v;
}

static inline double finished(const kn__recipe *r, kn_dtype dtype, double v, double shift) {
    switch (r->finish) {
        case KN__FINISH_SCALE:
            return v * r->scale;
        case KN__FINISH_VAR:
            return spread(r, dtype, v, shift);
        case KN__FINISH_STD:
            return sqrt(spread(r, dtype, v, shift));
        case KN__FINISH_ROOT:
            return r->power == 0.5 ? sqrt(v) : pow(v, r->power);
        case KN__FINISH_LOG:
            return shift - shift == 0 ? shift + log(v) : shift;
        case KN__FINISH_ANY:
            return v > 0;
        case KN__FINISH_ALL:
            return v == (double)r->n_in;
    }
    return v;
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

/* Sums apart: compilers vectorise them. */
static inline void join_cells(kn__fold fold, bool integers, kn_cell *to, const kn_cell *from,
                              int64_t n) {
    if (integers) {
        for (int64_t i = 0; i < n; i++) to[i].i = join_integers(fold, to[i].i, from[i].i);
    } else if (fold < KN__FOLD_COUNT) {
        for (int64_t i = 0; i < n; i++) to[i].f += from[i].f;
    } else {
        for (int64_t i = 0; i < n; i++) to[i].f = join(fold, to[i].f, from[i].f);
    }
}

#endif
