/* The geometry of pooling, shared by its kernels and their inner loops. */
#ifndef KN_WINDOW_H
#define KN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Spatial dimensions padded on the left to three; a plane is one image's one channel. `in` is the
 * side of x, `out` the side of y, whichever of them is being written. */
typedef struct kn__pool_window {
    int64_t in[3], out[3], size[3], stride[3], padding[3], dilation[3];
    int64_t planes, in_plane, out_plane; /* elements of a plane */
    bool is_2x2;                         /* with stride 2: the fast path */
    bool tiles;                          /* windows touch each other, and cover x */
    bool skip_nan;                       /* maxima skip NaN, unless a window has nothing else */
    bool inside;                         /* averages are over the elements of x alone */
    bool sums;                           /* no averages */
} kn__pool_window;

#endif
