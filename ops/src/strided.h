/* Parts of a tensor by a start and a stride for each dimension: what rearrange.c and index.c share.
 */
#ifndef KN_STRIDED_H
#define KN_STRIDED_H

#include <knet/op.h>

/* All of x. */
kn_attr_strided kn__strided_whole(const kn_tensor *x);
/* The part as a tensor: a view if its elements are a run of x's. */
kn_tensor *kn__strided(kn_tensor *x, kn_attr_strided *attr);

#endif
