/* Convolution through column matrices and products: any dtype, any options. */
#ifndef KN_CONV_COLUMNS_H
#define KN_CONV_COLUMNS_H

#include "host/conv/conv.h"
#include "kernel.h"

/* y = conv(x, w) + bias (NULL: none); dx from dy and w; dw (+)= from x and dy. */
kn_status kn__columns_conv(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                           const kn_tensor *w, const kn_tensor *bias);
kn_status kn__columns_conv_data(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *dy,
                                const kn_tensor *w);
kn_status kn__columns_conv_weight(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                                  const kn_tensor *dy);

#endif
