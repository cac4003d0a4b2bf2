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
    size_t bytes = kn_dtype_bytes(p.dtype);
    if (!p.trans && n > KN__TRIANGULAR_ROWS) { /* the kernel reads columns of T side by side */
        void *t = NULL;
        KN_TRY(kn__work(&t, call, (size_t)a->n * bytes));
        KN_TRY(KN__CUDA_NAMED("transpose_kernel",
                              kn__launch_transpose(t, p.t, bytes, p.batch, n, n, call->stream)));
        p.t = t, p.trans = true, p.upper = !p.upper;
    }
    KN_TRY(KN__CUDA(cudaMemcpyAsync, p.x, b->data, (size_t)b->n * bytes, cudaMemcpyDeviceToDevice,
                    call->stream));
    return KN__CUDA_NAMED("triangular_solve_kernel", kn__launch_triangular_solve(&p, call->stream));
}
