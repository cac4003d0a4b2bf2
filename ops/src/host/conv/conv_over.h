/* conv_data whose dx is written over dy, of the same shape. */
#ifndef KN_CONV_OVER_H
#define KN_CONV_OVER_H

#include "kernel.h"

bool kn__conv_is_over(const kn_op_call *call);
/* dy, copied if dx goes over it: for ways that read an image's dy after they wrote of its dx. */
kn_status kn__conv_dy_apart(const char **out, kn_op_call *call);

#endif
