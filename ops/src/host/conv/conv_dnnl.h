/* Convolution of many channels, in f32 and bf16, by oneDNN in the layouts that it likes best. */
#ifndef KN_CONV_DNNL_H
#define KN_CONV_DNNL_H

#include "host/conv/conv_plan.h"
#include "kernel.h"

/* One pass: in[] as kernel.h says; flags: KN_PLAN_FROM_BLOCKS, KN_PLAN_TO_BLOCKS, and with it
 * KN_PLAN_RELU, where the library's relu, which makes 0 of NaN, will do, and KN_PLAN_KEEP. To
 * blocks: the residual, in blocks too, is added. *done stays false, with KN_OK, where the library
 * has nothing fast for these sizes. bf16 only where kn__dnnl_has_bf16: sums, and what follows them
 * inside the library, are f32, and rounded once. */
kn_status kn__dnnl_conv(bool *done, kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                        unsigned flags);

#endif
