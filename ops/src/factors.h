/* The LU factors that solve, det and slogdet leave for gradients, and that solve and inverse take
 * in place of factoring again: [...,N+1,N], a matrix as the device's library has it, then its
 * pivots, N of int32_t. */
#ifndef KN_FACTORS_H
#define KN_FACTORS_H

#include <knet/op.h>

/* Those that a call is given; KN_NONE: it factors a. */
static inline const kn_tensor *kn__factors_in(const kn_op_call *call) {
    if (call->op == KN_OP_solve) return call->in[2];
    return call->op == KN_OP_inverse ? call->in[1] : KN_NONE;
}

/* Where they are stored; NULL: they are not wanted. */
static inline const kn_tensor *kn__factors_out(const kn_op_call *call) {
    if (call->op == KN_OP_inverse) return NULL;
    return call->out[call->op == KN_OP_slogdet ? 2 : 1];
}

#endif
