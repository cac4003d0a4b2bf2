/* The gradient of relu and of the bias before it, in one pass. */
#include "cuda/base/module.h"

static kn__relu_bias describe(const kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *y = call->in[0];
    int axis = __builtin_ctz(~attr->mask);
    kn__relu_bias p = {.dtype = (kn_dtype)y->dtype,
                       .outer = 1,
                       .inner = 1,
                       .channels = y->dim[axis],
                       .y = y->data,
                       .g = call->in[1]->data,
                       .dx = call->out[0]->data,
                       .sums = call->out[1]->data,
                       .accumulate = call->accumulate >> 1 & 1};
    for (int d = 0; d < axis; d++) p.outer *= y->dim[d];
    for (int d = axis + 1; d < y->n_dims; d++) p.inner *= y->dim[d];
    return p;
}

/* The chunks' sums, joined. */
static kn_status join(const kn_op_call *call, const kn__relu_bias *p) {
    kn__reduce r = {.recipe = {.fold = KN__FOLD_SUM, .n_in = p->n_chunks, .divisor = 1},
                    .dtype = p->dtype,
                    .out_dtype = p->dtype,
                    .n_kept = 1,
                    .n_reduced = 1,
                    .kept_dim = {p->channels},
                    .kept_stride = {1},
                    .reduced_dim = {p->n_chunks},
                    .reduced_stride = {p->channels},
                    .n_out = p->channels,
                    .n_in = p->n_chunks,
                    .out = p->sums,
                    .in = p->partial,
                    .n_chunks = 1,
                    .chunk = p->n_chunks,
                    .accumulate = p->accumulate};
    return KN__CUDA_NAMED("reduce_kernel", kn__launch_reduce(&r, call->stream));
}

kn_status kn__cuda_relu_bias_back(kn_op_call *call) {
    kn__relu_bias p = describe(call);
    kn__relu_bias_plan(&p);
    if (p.n_chunks > 1) {
        size_t bytes = (size_t)(p.n_chunks * p.channels) * kn_dtype_bytes(p.dtype);
        KN_TRY(kn__work(&p.partial, call, bytes));
    }
    KN_TRY(KN__CUDA_NAMED("relu_bias_back_kernel", kn__launch_relu_bias_back(&p, call->stream)));
    return p.partial ? join(call, &p) : KN_OK;
}
