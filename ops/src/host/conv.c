/* Convolution and its gradients: sizes, and the choice between the ways of doing them. */
#include "conv.h"

#include <string.h>

#include "conv_columns.h"
#include "conv_direct.h"
#include "conv_dnnl.h"

/* x [B,C,…], w [O,C/groups,…], y [B,O,…] */
static kn_conv_sizes sizes_of(const kn_attr_conv *attr, const kn_tensor *x, const kn_tensor *w,
                              const kn_tensor *y) {
    kn_conv_sizes s = {.batch = x->dim[0],
                       .groups = attr->groups,
                       .channels = w->dim[1],
                       .outputs = w->dim[0] / attr->groups,
                       .in_plane = 1,
                       .out_plane = 1,
                       .window_size = 1,
                       .flip = attr->flip};
    for (int i = 0; i < 3; i++) {
        int d = i - (3 - attr->n_spatial);
        s.in[i] = d < 0 ? 1 : x->dim[2 + d];
        s.out[i] = d < 0 ? 1 : y->dim[2 + d];
        s.window[i] = d < 0 ? 1 : w->dim[2 + d];
        s.stride[i] = d < 0 ? 1 : attr->stride[d];
        s.padding[i] = d < 0 ? 0 : attr->padding[d];
        s.padding_end[i] = d < 0 ? 0 : attr->padding_end[d];
        s.dilation[i] = d < 0 ? 1 : attr->dilation[d];
        s.in_plane *= s.in[i];
        s.out_plane *= s.out[i];
        s.window_size *= s.window[i];
    }
    return s;
}

/* Whether the library did it; where it has nothing fast, our own kernels follow. */
static kn_status try_library(bool *done, kn_op_call *call, kn_pass pass, const kn_conv_sizes *s) {
    *done = false;
    if (!kn__dnnl_fits(s, (kn_dtype)call->out[0]->dtype, pass)) return KN_OK;
    return kn__dnnl_conv(done, call, pass, s);
}

static void zero_result(const kn_op_call *call) {
    const kn_tensor *out = call->out[0];
    memset(out->data, 0, (size_t)out->n * kn_dtype_bytes((kn_dtype)out->dtype));
}

/* in: x, w, b */
kn_status kn__host_conv(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1];
    const kn_tensor *b = call->in[2] == KN_NONE ? NULL : call->in[2];
    kn_conv_sizes s = sizes_of(call->attr, x, w, call->out[0]);
    bool done;
    kn_status status = try_library(&done, call, KN_PASS_FORWARD, &s);
    if (done || status != KN_OK) return status;
    return kn__direct_fits(&s, (kn_dtype)x->dtype) ? kn__direct_conv(call, &s, x, w, b)
                                                   : kn__columns_conv(call, &s, x, w, b);
}

/* in: dy, w */
kn_status kn__host_conv_data(kn_op_call *call) {
    const kn_tensor *dy = call->in[0], *w = call->in[1];
    kn_conv_sizes s = sizes_of(call->attr, call->out[0], w, dy);
    if (dy->n == 0) {
        zero_result(call);
        return KN_OK;
    }
    bool done;
    kn_status status = try_library(&done, call, KN_PASS_DATA, &s);
    if (done || status != KN_OK) return status;
    return kn__direct_fits(&s, (kn_dtype)w->dtype) ? kn__direct_conv_data(call, &s, dy, w)
                                                   : kn__columns_conv_data(call, &s, dy, w);
}

/* in: x, dy */
kn_status kn__host_conv_weight(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *dy = call->in[1];
    kn_conv_sizes s = sizes_of(call->attr, x, call->out[0], dy);
    if (x->n == 0 || dy->n == 0) {
        if (!(call->accumulate & 1)) zero_result(call);
        return KN_OK;
    }
    bool done;
    kn_status status = try_library(&done, call, KN_PASS_WEIGHT, &s);
    if (done || status != KN_OK) return status;
    return kn__direct_fits_weight(&s) ? kn__direct_conv_weight(call, &s, x, dy)
                                      : kn__columns_conv_weight(call, &s, x, dy);
}
