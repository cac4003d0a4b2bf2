/* Copies between strided regions, and what else the C files of movement share. */
#ifndef KN_CUDA_MOVE_H
#define KN_CUDA_MOVE_H

#include "cuda/base/module.h"

/* A copy over the shape of t; both sides dense for now. */
kn__copy kn__copy_of(const kn_tensor *t, void *out, const void *in);
/* Strides of `whole`, and the byte address in `data` (whole's, or a tensor like it) of `start`. */
void *kn__window(int64_t *stride, const kn_tensor *whole, void *data, const int64_t *start);
/* Merges the copy's dimensions, widens its elements, enqueues it. */
kn_status kn__copy_run(kn__copy *copy, const kn_op_call *call);
/* The value as one element. */
uint64_t kn__element_bits(double value, kn_dtype dtype);
/* out = x, or zeros if x is KN_NONE. A call that accumulates: out += x, or out unchanged. */
kn_status kn__copy_base(const kn_op_call *call, const kn_tensor *x);

#endif
