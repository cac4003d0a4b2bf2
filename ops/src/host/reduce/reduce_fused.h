/* Reductions whose input is a fused chain: they read its tiles, and the input takes no memory. */
#ifndef KN_REDUCE_FUSED_H
#define KN_REDUCE_FUSED_H

#include "host/pointwise/fused.h"
#include "kernel.h"
#include "reduce.h"

/* Whether the call visits each element of its input once, along rows. */
bool kn__host_reduce_fuses(const kn_op_call *call);
/* kn__host_reduce of the last step of f, which has the shape and dtype of in[0]. The same bits. */
kn_status kn__host_reduce_fused(kn_op_call *call, const kn__fused *f);

/* Of a call that reduces rows of contiguous floats to floats: elements of a row, and the recipe; 0:
 * it is of another kind. */
int64_t kn__host_reduce_row(kn__recipe *recipe, const kn_op_call *call);
/* The same for `rows` rows of `row` elements at x, at most KN_COLUMNS of them, whose results lie at
 * y. The bits of kn__host_reduce. */
void kn__host_reduce_rows(void *y, kn_dtype to, const void *x, kn_dtype from,
                          const kn__recipe *recipe, int64_t rows, int64_t row);

#endif
