/* Where the elements of a padded axis come from, and those of a row of numbers: for the host's
 * kernels and CUDA's. */
#ifndef KN_PAD_SRC_H
#define KN_PAD_SRC_H

#include <float.h>
#include <knet/ops.h>
#include <math.h>

#include "rounded.h"

/* Of an axis of n elements, padded: the element at i, which is -before … n + after - 1. */
static inline KN_HOST_DEVICE int64_t kn__pad_source(int mode, int64_t n, int64_t i) {
    if (i >= 0 && i < n) return i;
    switch (mode) {
        case KN_PAD_REFLECT:
            return i < 0 ? -i : 2 * n - 2 - i;
        case KN_PAD_SYMMETRIC:
            return i < 0 ? -1 - i : 2 * n - 1 - i;
        case KN_PAD_REPLICATE:
            return i < 0 ? 0 : n - 1;
        default:
            return i < 0 ? i + n : i - n;
    }
}

/* The places outside the axis that hold element j: first[k] … first[k] + count[k] - 1, before the
 * axis (k = 0) and after it (k = 1). */
static inline KN_HOST_DEVICE void kn__pad_copies(int mode, int64_t n, int64_t before, int64_t after,
                                                 int64_t j, int64_t first[2], int64_t count[2]) {
    count[0] = count[1] = 1;
    switch (mode) {
        case KN_PAD_REFLECT:
            first[0] = -j, first[1] = 2 * n - 2 - j;
            break;
        case KN_PAD_SYMMETRIC:
            first[0] = -1 - j, first[1] = 2 * n - 1 - j;
            break;
        case KN_PAD_REPLICATE:
            first[0] = -before, first[1] = n;
            count[0] = j == 0 ? before : 0;
            count[1] = j == n - 1 ? after : 0;
            return;
        default:
            first[0] = j - n, first[1] = j + n;
    }
    if (first[0] < -before || first[0] >= 0) count[0] = 0;
    if (first[1] >= n + after || first[1] < n) count[1] = 0;
}

/* Number i of a row. */
static inline KN_HOST_DEVICE double kn__arange_at(double first, double step, double i) {
    return KN_ADD_F64(first, KN_MUL_F64(step, i));
}

static inline KN_HOST_DEVICE double kn__linspace_step(double first, double last, int64_t n) {
    return n > 1 ? KN_DIV_F64(last - first, (double)(n - 1)) : 0;
}
/* Number k from the end. */
static inline KN_HOST_DEVICE double kn__linspace_from_end(double last, double step, double k) {
    return KN_ADD_F64(last, -KN_MUL_F64(step, k));
}
/* The distance of the ends exceeds f64. */
static inline KN_HOST_DEVICE bool kn__linspace_is_far(double first, double last) {
    return fabs(last - first) > DBL_MAX;
}
/* Counted from the nearer end, so that both ends are exact; far ends by their shares. */
static inline KN_HOST_DEVICE double kn__linspace_at(double first, double last, int64_t n,
                                                    int64_t i) {
    if (n > 1 && kn__linspace_is_far(first, last)) {
        double steps = (double)(n - 1);
        return KN_ADD_F64(KN_MUL_F64(first, KN_DIV_F64((double)(n - 1 - i), steps)),
                          KN_MUL_F64(last, KN_DIV_F64((double)i, steps)));
    }
    double step = kn__linspace_step(first, last, n);
    if (2 * i < n) return kn__arange_at(first, step, (double)i);
    return kn__linspace_from_end(last, step, (double)(n - 1 - i));
}

#endif
