/* Which range of a histogram an element lies in, on both devices. */
#ifndef KN_RANGES_H
#define KN_RANGES_H

#include "pad.h"

/* n ranges of equal width from lo to hi, whose distance is finite. */
typedef struct kn__ranges {
    double lo, hi, step, scale;
    double near; /* rounding moves an end, or an estimate, by less than this share of a range */
    int64_t n;
} kn__ranges;

static inline kn__ranges kn__ranges_of(double lo, double hi, int64_t n) {
    double size = fabs(lo) > fabs(hi) ? fabs(lo) : fabs(hi), width = hi - lo;
    double near = 0x1p-50 * (double)n * (1 + size / width);
    return (kn__ranges){lo, hi, kn__linspace_step(lo, hi, n + 1), (double)n / width, near, n};
}

/* Number i of linspace(lo, hi, n + 1). */
static inline KN_HOST_DEVICE double kn__ranges_end(const kn__ranges *r, int64_t i) {
    if (2 * i <= r->n) return kn__arange_at(r->lo, r->step, (double)i);
    return kn__linspace_from_end(r->hi, r->step, (double)(r->n - i));
}

/* For x anywhere, by the ends beside the estimate k. */
static inline KN_HOST_DEVICE int64_t kn__range_near(const kn__ranges *r, double x, int64_t k) {
    int64_t n = r->n;
    if (!(x >= r->lo)) return x == x ? 0 : n + 1;
    if (x >= r->hi) return x == r->hi ? n : n + 1;
    if (k > 0 && x < kn__ranges_end(r, k)) k--;
    if (k + 1 < n && x >= kn__ranges_end(r, k + 1)) k++;
    return k + 1;
}

/* 1 … n; 0 below lo; n + 1 beyond hi, and for NaN. Most elements are far from the ends. */
static inline KN_HOST_DEVICE int64_t kn__range_of(const kn__ranges *r, double x) {
    double at = (x - r->lo) * r->scale, n = (double)r->n;
    at = at > 0 ? at : 0; /* of NaN too */
    at = at < n ? at : n;
    int64_t k = (int64_t)at;
    double part = at - (double)k;
    return part > r->near && part < 1 - r->near ? k + 1 : kn__range_near(r, x, k);
}

#endif
