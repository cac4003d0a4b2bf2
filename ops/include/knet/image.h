/* Images: x [B,C,spatial…]. Part of ops.h, whose rules hold.
 *
 *     kn_resize_options linear = {.mode = KN_RESIZE_LINEAR};
 *     kn_tensor *y = kn_resize(x, KN_SHAPE(64, 64), &linear);    // x [B,C,H,W] → y [B,C,64,64]
 */
#ifndef KNET_IMAGE_H
#define KNET_IMAGE_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which elements of x make element i of y, along each dimension of size S, resized to N:
 * NEAREST      ⌊i·S/N⌋
 * EXACT        ⌊(i + 1/2)·S/N⌋
 * LINEAR       the two around (i + 1/2)·S/N - 1/2
 * CORNERS      the two around i·(S - 1)/(N - 1): the first and last elements keep their places
 * These are PyTorch's nearest, nearest-exact, and linear with align_corners false and true; but
 * nearest by a scale that isn't 2 to exactly twice the size takes element i/scale, not i/2; where a
 * quotient is a whole number PyTorch's rounding may take the element before it; nearest and linear
 * by a scale that keeps a size take its places there too, where PyTorch keeps x's. */
typedef enum kn_resize_mode {
    KN_RESIZE_NEAREST = 0,
    KN_RESIZE_EXACT,
    KN_RESIZE_LINEAR,
    KN_RESIZE_CORNERS
} kn_resize_mode;
/* Options of kn_resize. */
typedef struct kn_resize_options {
    kn_resize_mode mode;  /* 0: nearest */
    uint32_t unused;      /* zero */
    double scale[3];      /* of each spatial dimension, in place of a size */
    uint64_t reserved[4]; /* zero */
} kn_resize_options;
/* x [B,C,spatial…] with one to three spatial dimensions → [B,C,size…]. Without a size (KN_SCALAR)
 * each is S·scale, rounded down, and 1/scale takes the place of S/N, as PyTorch's scale_factor.
 * NULL options: the defaults. Gradients of any order. */
KN_API kn_tensor *kn_resize(kn_tensor *x, kn_shape size, const kn_resize_options *options);

/* kn_pixel_shuffle: x [B,C·r²,H,W] → [B,C,H·r,W·r], groups of r² channels become squares of r·r
 * elements; kn_pixel_unshuffle: x [B,C,H·r,W·r] → [B,C·r²,H,W], the inverse of kn_pixel_shuffle.
 * Source: Shi et al. 2016. */
KN_API kn_tensor *kn_pixel_shuffle(kn_tensor *x, int64_t r);
KN_API kn_tensor *kn_pixel_unshuffle(kn_tensor *x, int64_t r);

/* Options of kn_grid_sample. */
typedef struct kn_grid_options {
    int nearest; /* 1: the nearest element (halves to even); 0: between the four around */
    int border;  /* 1: places outside count as the nearest edge; 0: elements there are 0 */
    /* 1: -1 and 1 are the centres of the first and last elements; 0: the outer edges of these */
    int align_corners;
    uint32_t unused;      /* zero */
    uint64_t reserved[4]; /* zero */
} kn_grid_options;
/* x [B,C,H,W], grid [B,N,M,2] → [B,C,N,M]: x at the places (column, row) of the grid, both in
 * -1 … 1 across x; a NaN counts as -1. NULL options: the defaults. Gradients of both come from one
 * call, and can't be differentiated again: an UNSUPPORTED error. Source: Jaderberg et al. 2015. */
KN_API kn_tensor *kn_grid_sample(kn_tensor *x, kn_tensor *grid, const kn_grid_options *options);

/* theta [B,2,3] → [B,h,w,2]: the places for kn_grid_sample of an affine map: theta·(column, row, 1)
 * of the centres of an image of h·w elements. align_corners as in kn_grid_options. */
KN_API kn_tensor *kn_affine_grid(kn_tensor *theta, int64_t h, int64_t w, bool align_corners);

/* Options of kn_unfold and kn_fold, per spatial dimension. */
typedef struct kn_unfold_options {
    int64_t stride[3];    /* zeros: 1 */
    int64_t padding[3];   /* zeros around x, on both sides */
    int64_t dilation[3];  /* zeros: 1 */
    uint64_t reserved[4]; /* zero */
} kn_unfold_options;
/* x [B,C,spatial…] with one to three spatial dimensions → [B,C·elements,windows]: column i has the
 * elements of window i, channel by channel, as PyTorch's unfold (im2col). NULL options: the
 * defaults. */
KN_API kn_tensor *kn_unfold(kn_tensor *x, kn_shape window, const kn_unfold_options *options);
/* The adjoint of kn_unfold: y [B,C·elements,windows] → [B,C,size…]. Where windows overlap their
 * elements are added, in the order of y's rows; elements that no window has are 0. */
KN_API kn_tensor *kn_fold(kn_tensor *y, kn_shape size, kn_shape window,
                          const kn_unfold_options *options);

#include <knet/sites/image.h>

#ifdef __cplusplus
}
#endif
#endif
