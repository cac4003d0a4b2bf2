/* Reductions: sorts the dimensions of x into kept and reduced ones. */
#include "module.h"

/* Appends a dimension to a list, merged with the one before where one stride walks both. */
static void add_dim(int *n, int64_t *dim, int64_t *stride, int64_t size, int64_t step) {
    if (size == 1) return;
    if (*n && stride[*n - 1] == step * size) {
        dim[*n - 1] *= size;
        stride[*n - 1] = step;
        return;
    }
    dim[*n] = size;
    stride[(*n)++] = step;
}

static kn__reduce_kind kind_of(kn_op op) {
    switch ((int)op) {
        case KN_OP_mean:
            return KN__REDUCE_MEAN;
        case KN_OP_max:
            return KN__REDUCE_MAX;
        case KN_OP_min:
            return KN__REDUCE_MIN;
        default:
            return KN__REDUCE_SUM;
    }
}

static kn__reduce reduce_of(const kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__reduce r = {.kind = kind_of((kn_op)call->op),
                    .dtype = (kn_dtype)x->dtype,
                    .n_out = 1,
                    .n_in = 1,
                    .out = call->out[0]->data,
                    .in = x->data,
                    .accumulate = kn__adds(call)};
    int64_t stride[KN_DIMS_MAX], step = 1;
    for (int d = x->n_dims - 1; d >= 0; d--) {
        stride[d] = step;
        step *= x->dim[d];
    }
    for (int d = 0; d < x->n_dims; d++) {
        if (attr->mask >> d & 1) {
            add_dim(&r.n_reduced, r.reduced_dim, r.reduced_stride, x->dim[d], stride[d]);
            r.n_in *= x->dim[d];
        } else {
            add_dim(&r.n_kept, r.kept_dim, r.kept_stride, x->dim[d], stride[d]);
            r.n_out *= x->dim[d];
        }
    }
    return r;
}

kn_status kn__cuda_reduce(kn_op_call *call) {
    kn__reduce r = reduce_of(call);
    kn__reduce_plan(&r);
    if (r.n_chunks > 1) {
        size_t bytes = (size_t)(r.n_chunks * r.n_out) * kn_dtype_bytes(r.dtype);
        KN_TRY(kn__work(&r.partial, call, bytes));
    }
    return KN__CUDA_NAMED("reduce_kernel", kn__launch_reduce(&r, call->stream));
}

kn_status kn__cuda_argmax(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int axis = __builtin_ctz(attr->mask);
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < axis; d++) outer *= x->dim[d];
    for (int d = axis + 1; d < x->n_dims; d++) inner *= x->dim[d];
    return KN__CUDA_NAMED("argmax_kernel",
                          kn__launch_argmax(call->out[0]->data, x->data, (kn_dtype)x->dtype, outer,
                                            x->dim[axis], inner, call->stream));
}
