/* Which range of a histogram an element lies in, on both devices. */
#ifndef KN_BINS_H
#define KN_BINS_H

#include "pad.h"

/* n ranges of equal width from lo to hi, whose distance is finite. */
typedef struct kn__bins {
    double lo, hi, step, scale;
    int64_t n;
} kn__bins;

static inline kn__bins kn__bins_of(double lo, double hi, int64_t n) {
    return (kn__bins){lo, hi, kn__linspace_step(lo, hi, n + 1), (double)n / (hi - lo), n};
}

/* Number i of linspace(lo, hi, n + 1). */
static inline KN_HOST_DEVICE double kn__bins_end(const kn__bins *b, int64_t i) {
    bool far = 2 * i > b->n; /* chosen without a branch, which could not be predicted */
    const double from[] = {b->lo, b->hi}, step[] = {b->step, -b->step};
    return kn__arange_at(from[far], step[far], (double)(far ? b->n - i : i));
}

/* The estimate is one off at most. */
static inline KN_HOST_DEVICE int64_t kn__bin_of(const kn__bins *b, double x) {
    int64_t n = b->n;
    if (!(x >= b->lo)) return x == x ? 0 : n + 1;
    if (x >= b->hi) return x == b->hi ? n : n + 1;
    double estimate = (x - b->lo) * b->scale;
    int64_t k = estimate < (double)n ? (int64_t)estimate : n - 1;
    if (k < 0) k = 0;
    if (k > 0 && x < kn__bins_end(b, k)) k--;
    if (k + 1 < n && x >= kn__bins_end(b, k + 1)) k++;
    return k + 1;
}

#endif
