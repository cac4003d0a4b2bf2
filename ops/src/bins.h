/* Which range of a histogram an element lies in, on both devices. */
#ifndef KN_BINS_H
#define KN_BINS_H

#include "pad.h"

/* n ranges of equal width from lo to hi, whose distance is finite. */
typedef struct kn__bins {
    double lo, hi, step, scale;
    int64_t n;
    bool is_f32; /* the ends are rounded to f32 */
} kn__bins;

static inline kn__bins kn__bins_of(double lo, double hi, int64_t n, bool is_f32) {
    kn__bins b = {lo, hi, kn__linspace_step(lo, hi, n + 1), (double)n / (hi - lo), n, is_f32};
    return b;
}

/* Number i of linspace(lo, hi, n + 1), in the elements' dtype. */
static inline KN_HOST_DEVICE double kn__bins_end(const kn__bins *b, int64_t i) {
    double end = 2 * i <= b->n ? kn__arange_at(b->lo, b->step, (double)i)
                               : kn__linspace_from_end(b->hi, b->step, (double)(b->n - i));
    return b->is_f32 ? (double)(float)end : end;
}

/* The estimate is one off at most, but for ends that are equal once they are rounded. */
static inline KN_HOST_DEVICE int64_t kn__bin_of(const kn__bins *b, double x) {
    int64_t n = b->n;
    if (!(x >= kn__bins_end(b, 0))) return x == x ? 0 : n + 1;
    if (x >= kn__bins_end(b, n)) return x == kn__bins_end(b, n) ? n : n + 1;
    double estimate = (x - b->lo) * b->scale;
    int64_t k = estimate < (double)n ? (int64_t)estimate : n - 1;
    if (k < 0) k = 0;
    while (k > 0 && x < kn__bins_end(b, k)) k--;
    while (k + 1 < n && x >= kn__bins_end(b, k + 1)) k++;
    return k + 1;
}

#endif
