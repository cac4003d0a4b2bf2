#include "cuda/linalg/small.h"

#include "factors.h"

typedef struct matrices {
    kn_dtype dtype;
    int64_t batch, n;
} matrices;

static matrices matrices_of(const kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    int64_t n = a->dim[a->n_dims - 1];
    return (matrices){(kn_dtype)a->dtype, a->n / (n * n), n};
}

kn_status kn__small_cholesky(kn_op_call *call) {
    matrices m = matrices_of(call);
    return KN__CUDA_NAMED("cholesky_kernel",
                          kn__launch_cholesky(call->out[0]->data, call->in[0]->data, m.dtype,
                                              m.batch, m.n, call->stream));
}

/* Those that are given, or made; stored where they are wanted. */
static kn_status factors_of(const void **out, kn_op_call *call) {
    const kn_tensor *given = kn__factors_in(call), *kept = kn__factors_out(call);
    matrices m = matrices_of(call);
    size_t bytes = (size_t)(m.batch * (m.n + 1) * m.n) * kn_dtype_bytes(m.dtype);
    if (given != KN_NONE) {
        *out = given->data;
        if (!kept) return KN_OK;
        return KN__CUDA(cudaMemcpyAsync, kept->data, given->data, bytes, cudaMemcpyDeviceToDevice,
                        call->stream);
    }
    void *factors = kept ? kept->data : NULL;
    if (!kept) KN_TRY(kn__work(&factors, call, bytes));
    *out = factors;
    return KN__CUDA_NAMED("lu_kernel", kn__launch_lu(factors, call->in[0]->data, m.dtype, m.batch,
                                                     m.n, call->stream));
}

static kn_status solve(kn_op_call *call, const void *b, int64_t columns, bool trans) {
    const void *factors = NULL;
    matrices m = matrices_of(call);
    KN_TRY(factors_of(&factors, call));
    if (columns == 0 || !call->out[0]) return KN_OK;
    return KN__CUDA_NAMED("lu_solve_kernel",
                          kn__launch_lu_solve(call->out[0]->data, b, factors, m.dtype, m.batch, m.n,
                                              columns, trans, call->stream));
}

kn_status kn__small_solve(kn_op_call *call) {
    const kn_attr_solve *attr = call->attr;
    const kn_tensor *b = call->in[1];
    return solve(call, b->data, b->dim[b->n_dims - 1], attr->trans);
}

kn_status kn__small_inverse(kn_op_call *call) {
    return solve(call, NULL, matrices_of(call).n, false);
}

kn_status kn__small_det(kn_op_call *call) {
    const void *factors = NULL;
    matrices m = matrices_of(call);
    bool logs = call->op == KN_OP_slogdet;
    void *first = call->out[0] ? call->out[0]->data : NULL;
    void *sign = logs && call->out[1] ? call->out[1]->data : NULL;
    KN_TRY(factors_of(&factors, call));
    return KN__CUDA_NAMED("lu_det_kernel",
                          kn__launch_lu_det(logs ? NULL : first, logs ? first : NULL, sign, factors,
                                            m.dtype, m.batch, m.n, call->stream));
}
