/* Pointwise ops: finds out how the operands are broadcast, and launches. */
#include "module.h"

kn_status kn__pointwise_run(const kn_kernel_call *call, kn__pointwise_fn launch,
                            const char *label) {
    const kn_tensor *out = call->out, *last = call->in[call->n_in - 1];
    kn__pointwise p = {.dtype = (kn_dtype)last->dtype, .out = out->data};
    p.region.n = out->n;
    p.region.n_dims = out->n_dims;
    for (int d = 0; d < out->n_dims; d++) p.region.dim[d] = out->dim[d];
    kn__region_strides(p.region.stride[0], out, out);
    for (int k = 0; k < call->n_in; k++) {
        kn__region_strides(p.region.stride[k + 1], call->in[k], out);
        p.in[k] = call->in[k]->data;
    }
    kn__region_merge(&p.region, call->n_in + 1);
    const kn_attr_scalars *scalars = call->attr;
    if (scalars) p.a = scalars->a, p.b = scalars->b;
    return KN__CUDA_NAMED(label, launch(&p, call->stream));
}

kn_status kn__cuda_where(const kn_kernel_call *call) {
    return kn__pointwise_run(call, kn__launch_where, "where_kernel");
}

kn_status kn__cuda_affine(const kn_kernel_call *call) {
    return call->op == KN_OP_affine
               ? kn__pointwise_run(call, kn__launch_affine, "affine_kernel")
               : kn__pointwise_run(call, kn__launch_pow_scalar, "pow_scalar_kernel");
}

kn_status kn__cuda_add_into(const kn_kernel_call *call) {
    kn_tensor *in[] = {call->out, call->in[0]};
    kn_kernel_call add = *call;
    add.in = in, add.n_in = 2, add.attr = NULL;
    return kn__pointwise_run(&add, kn__launch_add, "add_kernel");
}

kn_status kn__bias_add(const kn_kernel_call *call, kn_tensor *y, const kn_tensor *bias, int axis) {
    kn__pointwise p = {.dtype = (kn_dtype)y->dtype,
                       .out = y->data,
                       .in = {y->data, bias->data},
                       .region = {.n = y->n, .n_dims = 3, .dim = {1, y->dim[axis], 1}}};
    kn__region *r = &p.region;
    for (int d = 0; d < axis; d++) r->dim[0] *= y->dim[d];
    for (int d = axis + 1; d < y->n_dims; d++) r->dim[2] *= y->dim[d];
    for (int k = 0; k < 2; k++) {
        r->stride[k][0] = r->dim[1] * r->dim[2], r->stride[k][1] = r->dim[2], r->stride[k][2] = 1;
    }
    r->stride[2][1] = 1;
    kn__region_merge(r, 3);
    return KN__CUDA_NAMED("bias_kernel", kn__launch_add(&p, call->stream));
}
