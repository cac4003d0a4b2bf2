/* Convolution straight from the planes, without a column matrix. */
#ifndef KN_CONV_DIRECT_H
#define KN_CONV_DIRECT_H

#include "host/conv/conv.h"
#include "kernel.h"

/* Which passes it takes, by shape: windows larger than one element, rows long enough for a vector.
 */
bool kn__direct_fits(const kn__conv_sizes *s, kn_dtype dtype);
bool kn__direct_fits_weight(const kn__conv_sizes *s);

kn_status kn__direct_conv(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                          const kn_tensor *w, const kn_tensor *bias);
kn_status kn__direct_conv_data(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *dy,
                               const kn_tensor *w);
kn_status kn__direct_conv_weight(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                                 const kn_tensor *dy);

#endif
