/* Elements at indices, and the places of elements that are not zero. */
#include <math.h>

#include "cuda/movement/move.h"

/* Of a call whose first operand, or result, of x's shape is `whole`. */
static kn__indices indices_of(const kn_op_call *call, const kn_tensor *whole) {
    const kn_tensor *index = call->in[1];
    int axis = (int)((const kn_attr_index *)call->attr)->axis;
    kn__indices p = {.outer = 1, .size = whole->dim[axis], .inner = 1};
    for (int i = 0; i < axis; i++) p.outer *= whole->dim[i];
    for (int i = axis + 1; i < whole->n_dims; i++) p.inner *= whole->dim[i];
    p.rows = call->op == KN_OP_index_select || call->op == KN_OP_index_add ||
             call->op == KN_OP_index_set;
    p.count = p.rows ? index->n : index->dim[axis];
    p.index = index->data, p.dtype = index->dtype;
    return p;
}

/* NaN, or 0, in each element of 8 bytes. */
static uint64_t missing_of(kn_dtype dtype) {
    uint64_t bits = dtype <= KN_BF16 ? kn__element_bits(NAN, dtype) : 0;
    size_t bytes = kn_dtype_bytes(dtype);
    if (bytes <= 2) bits |= bits << 16;
    if (bytes <= 4) bits |= bits << 32;
    return bits;
}

kn_status kn__cuda_gather(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *y = call->out[0];
    kn__indices p = indices_of(call, x);
    size_t bytes = kn_dtype_bytes((kn_dtype)x->dtype),
           addresses = (size_t)x->data | (size_t)y->data;
    for (size_t wide = 16; p.rows && wide > bytes; wide /= 2) {
        int64_t by = (int64_t)(wide / bytes);
        if (addresses % wide || p.inner % by) continue;
        p.inner /= by;
        bytes = wide;
    }
    return KN__CUDA_NAMED("gather_kernel",
                          kn__launch_gather(y->data, x->data, bytes, missing_of((kn_dtype)x->dtype),
                                            &p, call->stream));
}

kn_status kn__cuda_scatter(kn_op_call *call) {
    const kn_tensor *y = call->in[2], *out = call->out[0];
    kn_dtype dtype = (kn_dtype)out->dtype;
    bool adds = call->op == KN_OP_index_add || call->op == KN_OP_scatter_add;
    kn__indices p = indices_of(call, out);
    KN_TRY(kn__copy_base(call, call->in[0]));
    if (out->n == 0 || p.outer * p.count * p.inner == 0) return KN_OK;
    kn__scatter_way way = kn__scatter_plan(&p, dtype, adds);
    size_t bytes = kn__scatter_bytes(&p, way);
    void *work = NULL;
    if (bytes) KN_TRY(kn__work(&work, call, bytes));
    if (way == KN__SCATTER_LAST) KN_TRY(KN__CUDA(cudaMemsetAsync, work, 0, bytes, call->stream));
    return KN__CUDA_NAMED("scatter_kernel",
                          kn__launch_scatter(out->data, y == KN_NONE ? NULL : y->data, dtype, adds,
                                             &p, way, work, call->stream));
}

kn_status kn__cuda_index_join(kn_op_call *call) {
    const kn_attr_concat *attr = call->attr;
    const kn_tensor *out = call->out[0];
    for (int k = 0; k < call->n_in; k++) {
        const kn_tensor *index = call->in[k];
        KN_TRY(KN__CUDA_NAMED(
            "join_kernel", kn__launch_join(out->data, index->data, (kn_dtype)index->dtype, out->n,
                                           attr->size[k], k == 0, call->stream)));
    }
    return KN_OK;
}

kn_status kn__cuda_nonzero(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    kn_dtype dtype = (kn_dtype)x->dtype;
    int64_t n_sums = kn__nonzero_sums(x->n);
    void *sums;
    KN_TRY(kn__work(&sums, call, (size_t)n_sums * sizeof(int64_t)));
    KN_TRY(KN__CUDA_NAMED("nonzero_count_kernel",
                          kn__launch_nonzero_count(sums, x->data, dtype, x->n, call->stream)));
    int64_t *count = call->out[1] ? call->out[1]->data : NULL;
    KN_TRY(
        KN__CUDA_NAMED("scan_kernel", kn__launch_sums_before(sums, n_sums, count, call->stream)));
    if (!call->out[0]) return KN_OK;
    kn__dims d = {.n_dims = x->n_dims};
    for (int i = 0; i < x->n_dims; i++) d.dim[i] = x->dim[i];
    KN_TRY(kn__zeros(call, 0));
    return KN__CUDA_NAMED("nonzero_kernel", kn__launch_nonzero(call->out[0]->data, sums, x->data,
                                                               dtype, x->n, &d, call->stream));
}
