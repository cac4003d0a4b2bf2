/* Matrices of up to KN__SMALL rows by kernels of our own, a batch in one or two launches; factors
 * are as in factors.h, pivots counted from 1. The size alone decides, so that whoever reads factors
 * knows who made them. */
#ifndef KN_CUDA_SMALL_H
#define KN_CUDA_SMALL_H

#include "cuda/base/module.h"

/* Of a call whose first input is square. */
static inline bool kn__is_small(const kn_op_call *call) {
    int64_t n = call->in[0]->dim[call->in[0]->n_dims - 1];
    return n > 0 && n <= KN__SMALL;
}

kn_status kn__small_cholesky(kn_op_call *call);
kn_status kn__small_solve(kn_op_call *call);
kn_status kn__small_inverse(kn_op_call *call);
kn_status kn__small_det(kn_op_call *call);

#endif
