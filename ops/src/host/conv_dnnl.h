/* Convolution of many channels, in f32, by oneDNN in the layouts that it likes best. */
#ifndef KN_CONV_DNNL_H
#define KN_CONV_DNNL_H

#include "../kernel.h"
#include "conv_plan.h"

/* Who convolves: as measured, or for tests and benchmarks one side wherever it can. */
typedef enum kn_conv_way { KN_CONV_MEASURED, KN_CONV_OURS, KN_CONV_DNNL } kn_conv_way;
void kn__conv_prefer(kn_conv_way way);

/* Whether this pass is the library's, by shape. */
bool kn__dnnl_fits(const kn_conv_sizes *s, kn_dtype dtype, kn_pass pass);

/* One pass: in[] as kernel.h says. *done stays false, with KN_OK, where the library has nothing
 * fast for these sizes. */
kn_status kn__dnnl_conv(bool *done, kn_op_call *call, kn_pass pass, const kn_conv_sizes *s);

#endif
