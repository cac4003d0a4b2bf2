/* What a reduction computes, the same on every device: each element goes through a map and is
 * joined to the others; what comes out is finished into the result.
 *
 * Some results take two passes: the first makes a *shift* for each result (the mean, or the
 * maximum), which the map of the second subtracts. */
#ifndef KN_REDUCE_H
#define KN_REDUCE_H

#ifdef __cplusplus /* of the .cu files: plain types alone */
#include <knet/tensor.h>
#else
#include <knet/op.h>
#endif

/* The map of x, with shift s, and what joins. */
typedef enum kn__fold {
    KN__FOLD_SUM,
    KN__FOLD_SUM_ABS,    /* Σ |x| */
    KN__FOLD_SUM_KNOWN,  /* Σ x, of those that are not NaN */
    KN__FOLD_SUM_SQUARE, /* Σ (x - s)² */
    KN__FOLD_SUM_FROM,   /* Σ (x - s): of a mean, s near it */
    KN__FOLD_SUM_EXP,    /* Σ e^(x - s), x <= s */
    KN__FOLD_SUM_POWER,  /* Σ |x|^p */
    KN__FOLD_COUNT,      /* of x != 0; an integer for every dtype */
    KN__FOLD_PROD,
    KN__FOLD_MAX, /* of the extremes a NaN wins */
    KN__FOLD_MIN,
    KN__FOLD_MAX_ABS,
    KN__FOLD_MIN_ABS,
    KN__FOLD_N
} kn__fold;

typedef enum kn__shift {
    KN__SHIFT_NONE,
    KN__SHIFT_MEAN,
    KN__SHIFT_MAX,
    KN__SHIFT_GIVEN /* the call's input 1 */
} kn__shift;

/* Of v, the joined value. */
typedef enum kn__finish {
    KN__FINISH_DIVIDE, /* v/divisor */
    KN__FINISH_VAR,    /* the same, less what rounding the shift added */
    KN__FINISH_STD,    /* its root */
    KN__FINISH_ROOT,   /* v^power */
    KN__FINISH_LOG,    /* s + ln v; s where that is infinite or NaN */
    KN__FINISH_ANY,    /* v > 0 */
    KN__FINISH_ALL     /* v is the number of elements */
} kn__finish;

typedef struct kn__recipe {
    kn__fold fold;
    kn__shift shift;
    kn__finish finish;
    int64_t n_in;          /* elements that make one result */
    double p;              /* of KN__FOLD_SUM_POWER */
    double divisor, power; /* of the finish */
} kn__recipe;

/* A tensor as [outer, n, inner], n along the axis of a mask, or along all axes. */
typedef struct kn__lines {
    int64_t outer, n, inner;
} kn__lines;

#ifndef __cplusplus
static inline kn__lines kn__lines_of(const kn_tensor *x, uint32_t mask) {
    kn__lines lines = {1, 1, 1};
    for (int d = 0; d < x->n_dims; d++) {
        if (mask >> d & 1)
            lines.n *= x->dim[d];
        else if (mask >> d)
            lines.outer *= x->dim[d];
        else
            lines.inner *= x->dim[d];
    }
    return lines;
}

/* The recipe of a call of `sum mean prod max …`. */
KN_API kn__recipe kn__reduce_recipe(const kn_op_call *call);

#endif
#endif
