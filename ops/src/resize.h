/* Which elements of an axis a resized one is made of, on both devices. */
#ifndef KN_RESIZE_H
#define KN_RESIZE_H

#include <knet/image.h>
#include <stdbool.h>
#include <stdint.h>

#include "rounded.h"

/* Three axes; those that the image lacks have one element, and come first. */
typedef struct kn__resize {
    int64_t in[3], out[3];
    double ratio[3]; /* 0: by the sizes, in integers */
    int mode;        /* kn_resize_mode */
    bool is_linear;
} kn__resize;

/* Element i of the result is (1 - weight)·x[at] + weight·x[next]. */
typedef struct kn__taps {
    int64_t at, next;
    double weight;
} kn__taps;

static inline KN_HOST_DEVICE kn__taps kn__resize_source(const kn__resize *r, int d, int64_t i) {
    int64_t n = r->in[d], at;
    double ratio = r->ratio[d], place = (double)i;
    if (!r->is_linear) {
        bool half = r->mode == KN_RESIZE_EXACT;
        if (ratio > 0)
            at = (int64_t)(half ? (place + 0.5) * ratio : place * ratio);
        else
            at = half ? (2 * i + 1) * n / (2 * r->out[d]) : i * n / r->out[d];
        kn__taps s = {at < n ? at : n - 1, 0, 0};
        s.next = s.at;
        return s;
    }
    if (r->mode == KN_RESIZE_CORNERS)
        place = KN_MUL_F64(place, ratio);
    else
        place = KN_ADD_F64(KN_MUL_F64(place + 0.5, ratio), -0.5);
    if (!(place > 0)) place = 0;
    at = place < (double)(n - 1) ? (int64_t)place : n - 1;
    kn__taps s = {at, at < n - 1 ? at + 1 : at, place - (double)at};
    if (s.next == s.at) s.weight = 0;
    return s;
}

/* Results first … end - 1 contain all that read element i. */
static inline KN_HOST_DEVICE void kn__resize_readers(int64_t *first, int64_t *end,
                                                     const kn__resize *r, int d, int64_t i) {
    double ratio = r->ratio[d] > 0 ? r->ratio[d] : (double)r->in[d] / (double)r->out[d];
    double low = ((double)i - 2) / ratio - 2, high = ((double)i + 2) / ratio + 3;
    *first = i == 0 || low < 0 ? 0 : (int64_t)low;
    *end = i == r->in[d] - 1 || high > (double)r->out[d] ? r->out[d] : (int64_t)high;
    if (*first > r->out[d]) *first = r->out[d];
}

#endif
