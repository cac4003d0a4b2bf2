/* What follows the sums of convolutions and products, while they are in the cache. */
#ifndef KN_FINISH_H
#define KN_FINISH_H

#include "kernel.h"

/* n elements of y become act(y + residual); residual NULL: none. 16 bits are computed as f32. */
void kn__finish_run(kn_dtype dtype, kn_act act, void *y, const void *residual, int64_t n);

#endif
