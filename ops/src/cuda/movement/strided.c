/* Slices, padding and similar ops: each takes one or two copies. */
#include <string.h>

#include "cuda/movement/move.h"

static void *element_at(const kn_tensor *t, int64_t i) {
    return (char *)t->data + i * (int64_t)kn_dtype_bytes((kn_dtype)t->dtype);
}

/* Over the part, both sides dense for now. */
static kn__copy copy_of_part(const kn_attr_strided *attr, const kn_tensor *t) {
    kn_tensor part = {.dtype = t->dtype, .n_dims = (uint8_t)attr->n_dims, .n = 1};
    for (int d = 0; d < part.n_dims; d++) {
        part.dim[d] = attr->dim[d];
        part.n *= attr->dim[d];
    }
    return kn__copy_of(&part, NULL, NULL);
}

kn_status kn__cuda_strided(kn_op_call *call) {
    const kn_attr_strided *attr = call->attr;
    kn__copy copy = copy_of_part(attr, call->out[0]);
    copy.out = call->out[0]->data;
    copy.in = element_at(call->in[0], attr->start);
    memcpy(copy.region.stride[1], attr->stride, sizeof attr->stride);
    if (kn__adds(call)) copy.add = (kn_dtype)call->out[0]->dtype;
    return kn__copy_run(&copy, call);
}

kn_status kn__copy_base(const kn_op_call *call, const kn_tensor *x) {
    kn_tensor *out = call->out[0];
    if (x == KN_NONE) return kn__zeros(call, 0);
    if (x->data == out->data) return KN_OK;
    kn__copy copy = kn__copy_of(x, out->data, x->data);
    if (kn__adds(call)) copy.add = (kn_dtype)out->dtype;
    return kn__copy_run(&copy, call);
}

kn_status kn__cuda_strided_put(kn_op_call *call) {
    const kn_attr_strided *attr = call->attr;
    const kn_tensor *y = call->in[1], *out = call->out[0];
    bool adds = call->op == KN_OP_strided_add && (call->in[0] != KN_NONE || kn__adds(call));
    kn__copy copy = copy_of_part(attr, out);
    if (adds || copy.region.n < out->n) KN_TRY(kn__copy_base(call, call->in[0]));
    if (copy.region.n == 0) return KN_OK;
    copy.out = element_at(out, attr->start);
    memcpy(copy.region.stride[0], attr->stride, sizeof attr->stride);
    if (adds) copy.add = (kn_dtype)out->dtype;
    if (y == KN_NONE) {
        void *zero;
        KN_TRY(kn__work(&zero, call, sizeof(uint64_t)));
        KN_TRY(KN__CUDA(cudaMemsetAsync, zero, 0, sizeof(uint64_t), call->stream));
        memset(copy.region.stride[1], 0, sizeof copy.region.stride[1]);
        copy.in = zero;
    } else {
        copy.in = y->data;
    }
    return kn__copy_run(&copy, call);
}

/* Dimensions that are not padded are merged with the one before. */
static kn__frame_args frame_of(const kn_attr_pad *attr, const kn_tensor *x, const kn_tensor *out) {
    kn__frame_args f = {.n_dims = 1, .dim = {1}, .in = {1}};
    for (int d = 0; d < out->n_dims; d++) {
        if (x->dim[d] == out->dim[d]) {
            int last = f.n_dims - 1;
            f.dim[last] *= out->dim[d], f.in[last] *= out->dim[d], f.before[last] *= out->dim[d];
        } else {
            int last = f.n_dims - (f.dim[f.n_dims - 1] == 1); /* in place of a dimension of one */
            f.dim[last] = out->dim[d], f.in[last] = x->dim[d], f.before[last] = attr->before[d];
            f.n_dims = last + 1;
        }
    }
    return f;
}

kn_status kn__cuda_pad(kn_op_call *call) {
    const kn_attr_pad *attr = call->attr;
    const kn_tensor *x = call->in[0], *out = call->out[0];
    size_t bytes = kn_dtype_bytes((kn_dtype)out->dtype);
    uint64_t value = kn__element_bits(attr->value, (kn_dtype)out->dtype);
    if (x->n == 0)
        return KN__CUDA_NAMED("fill_kernel",
                              kn__launch_fill(out->data, bytes, value, out->n, call->stream));
    kn__frame_args f = frame_of(attr, x, out);
    return KN__CUDA_NAMED("frame_kernel",
                          kn__launch_frame(out->data, x->data, bytes, value, &f, call->stream));
}

static kn__padding padding_of(const kn_tensor *small, int axis) {
    kn__padding p = {.outer = 1, .n = small->dim[axis], .inner = 1};
    for (int i = 0; i < axis; i++) p.outer *= small->dim[i];
    for (int i = axis + 1; i < small->n_dims; i++) p.inner *= small->dim[i];
    return p;
}

static kn__padding edges_of(const kn_op_call *call, const kn_tensor *small) {
    const kn_attr_pad_edge *attr = call->attr;
    kn__padding p = padding_of(small, (int)attr->axis);
    p.before = attr->before, p.after = attr->after, p.mode = (int)attr->mode;
    return p;
}

/* As many elements enter before the axis as leave after it. */
kn_status kn__cuda_roll(kn_op_call *call) {
    const kn_attr_roll *attr = call->attr;
    const kn_tensor *x = call->in[0], *y = call->out[0];
    kn__padding p = padding_of(x, (int)attr->axis);
    p.before = attr->shift, p.after = -attr->shift, p.mode = KN_PAD_CIRCULAR;
    return KN__CUDA_NAMED(
        "pad_kernel",
        kn__launch_pad(y->data, x->data, kn_dtype_bytes((kn_dtype)x->dtype), &p, call->stream));
}

kn_status kn__cuda_pad_edge(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *out = call->out[0];
    kn__padding p = edges_of(call, x);
    return KN__CUDA_NAMED(
        "pad_kernel",
        kn__launch_pad(out->data, x->data, kn_dtype_bytes((kn_dtype)x->dtype), &p, call->stream));
}

kn_status kn__cuda_pad_edge_back(kn_op_call *call) {
    const kn_tensor *g = call->in[0], *out = call->out[0];
    kn__padding p = edges_of(call, out);
    return KN__CUDA_NAMED(
        "pad_back_kernel",
        kn__launch_pad_back(out->data, g->data, (kn_dtype)g->dtype, &p, call->stream));
}

kn_status kn__cuda_triangle(kn_op_call *call) {
    const kn_attr_triangle *attr = call->attr;
    const kn_tensor *x = call->in[0], *out = call->out[0];
    int64_t rows = x->dim[x->n_dims - 2], columns = x->dim[x->n_dims - 1];
    size_t bytes = kn_dtype_bytes((kn_dtype)x->dtype);
    return KN__CUDA_NAMED(
        "triangle_kernel",
        kn__launch_triangle(out->data, x->data, bytes, x->n, rows, columns, attr->diagonal,
                            call->op == KN_OP_triu, call->stream));
}

kn_status kn__cuda_arange(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED("arange_kernel",
                          kn__launch_arange(out->data, (kn_dtype)out->dtype, out->n, attr->a,
                                            attr->b, call->op == KN_OP_linspace, call->stream));
}
