/* Convolution with 3x3 windows by Winograd's transforms: 36 products of matrices in place of 144
 * sums for each tile of 4x4 results. Work space is some MiB, whatever the batch.
 *
 * Tiles are counted by rows of them, image after image. A *unit* is some of those rows: its windows
 * are transformed, multiplied and transformed back while they lie in the second cache. */
#ifndef KN_CONV_WINOGRAD_H
#define KN_CONV_WINOGRAD_H

#include "host/conv/conv.h"

/* 3x3, two-dimensional, one group, strides and dilations of 1; and vectors for it. */
bool kn__winograd_fits(const kn__conv_sizes *s);
/* The pass of an f32 call that fits. flags, of the forward pass: KN_PLAN_FROM_BLOCKS,
 * KN_PLAN_TO_BLOCKS (of 16 channels), KN_PLAN_KEEP; others don't count. OOM as kn__work. */
kn_status kn__winograd_conv(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                            unsigned flags);

#endif
