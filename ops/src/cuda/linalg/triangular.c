/* Triangles of matrices, and solving with them. */
#include "cuda/base/module.h"

kn_status kn__cuda_tri_scale(kn_op_call *call) {
    const kn_attr_tri_scale *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int64_t rows = x->dim[x->n_dims - 2], columns = x->dim[x->n_dims - 1];
    return KN__CUDA_NAMED("tri_scale_kernel",
                          kn__launch_tri_scale(call->out[0]->data, x->data, (kn_dtype)x->dtype,
                                               x->n / (rows * columns), rows, columns, attr->below,
                                               attr->on, attr->above, call->stream));
}

kn_status kn__cuda_triangular_solve(kn_op_call *call) {
    const kn_attr_solve *attr = call->attr;
    const kn_tensor *a = call->in[0], *b = call->in[1];
    int64_t n = a->dim[a->n_dims - 1], columns = b->dim[b->n_dims - 1];
    kn__triangular p = {.dtype = (kn_dtype)a->dtype,
                        .batch = b->n / (n * columns),
                        .n = n,
                        .columns = columns,
                        .trans = attr->trans,
                        .upper = attr->upper,
                        .unit = attr->unit,
                        .t = a->data,
                        .x = call->out[0]->data};
    KN_TRY(KN__CUDA(cudaMemcpyAsync, p.x, b->data, (size_t)b->n * kn_dtype_bytes(p.dtype),
                    cudaMemcpyDeviceToDevice, call->stream));
    return KN__CUDA_NAMED("triangular_solve_kernel", kn__launch_triangular_solve(&p, call->stream));
}
