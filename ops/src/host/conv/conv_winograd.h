/* Convolution by Winograd's transforms: with 3x3 windows 36 products of matrices in place of 144
 * sums for each tile of 4x4 results. Work space is some MiB, whatever the batch.
 *
 * With a stride of 2 a window's even and odd rows and columns are four windows of half the size,
 * 2x2 taps of one of 3x3 or 4x4, on images of every second element: *phases*. A result is the sum
 * of four products, of 25 numbers each; in the pass of dx each phase has results of its own.
 *
 * Tiles are counted by rows of them, image after image. A *unit* is some of those rows: its windows
 * are transformed, multiplied and transformed back while they lie in the second cache. */
#ifndef KN_CONV_WINOGRAD_H
#define KN_CONV_WINOGRAD_H

#include "host/conv/conv.h"

/* Two-dimensional, one group, dilations of 1, windows of 2x2 or 3x3 taps: at a stride of 1 as
 * large, at 2 of 3 to 6 elements a side; and vectors for it. */
bool kn__winograd_fits(const kn__conv_sizes *s);
/* What such a pass costs: sums, and numbers of images and of weights that are made. */
typedef struct kn__winograd_work {
    double sums, images, weights;
} kn__winograd_work;
kn__winograd_work kn__winograd_work_of(const kn__conv_sizes *s, kn__conv_pass pass);
/* The pass of an f32 call that fits. flags, of the forward pass: KN_PLAN_FROM_BLOCKS,
 * KN_PLAN_TO_BLOCKS (of 16 channels), KN_PLAN_KEEP; others don't count. OOM as kn__work. */
kn_status kn__winograd_conv(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                            unsigned flags);

#endif
