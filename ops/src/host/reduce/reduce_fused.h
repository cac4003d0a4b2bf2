/* Reductions whose input is a fused chain: they read its tiles, and the input takes no memory. */
#ifndef KN_REDUCE_FUSED_H
#define KN_REDUCE_FUSED_H

#include "host/pointwise/fused.h"
#include "kernel.h"

/* Whether the call visits each element of its input once, along rows. */
bool kn__host_reduce_fuses(const kn_op_call *call);
/* kn__host_reduce of the last step of f, which has the shape and dtype of in[0]. The same bits. */
kn_status kn__host_reduce_fused(kn_op_call *call, const kn__fused *f);

#endif
