/* Rotary embedding: from a call to its launches. */
#include "cuda/base/module.h"

kn_status kn__cuda_rotary(kn_op_call *call) {
    const kn_attr_rotary *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__rotary p = {.dtype = (kn_dtype)x->dtype,
                    .steps = x->dim[x->n_dims - 2],
                    .width = x->dim[x->n_dims - 1],
                    .pairs = attr->n / 2,
                    .offset = attr->offset,
                    .base = attr->base,
                    .adjacent = attr->adjacent != 0,
                    .inverse = attr->inverse != 0};
    p.rows = x->n / p.width;
    size_t bytes = (size_t)(2 * p.steps * p.pairs) * kn_dtype_bytes(p.dtype);
    KN_TRY(kn__work(&p.table, call, bytes));
    if (bytes)
        KN_TRY(KN__CUDA_NAMED("rotary_table_kernel", kn__launch_rotary_table(&p, call->stream)));
    return KN__CUDA_NAMED("rotary_kernel",
                          kn__launch_rotary(&p, call->out[0]->data, x->data, call->stream));
}
