/* Movement ops: every one is a copy between two strided regions; transposes that swap two blocks of
 * dimensions go through tiles. */
#include <string.h>

#include "convert.h"
#include "cuda/movement/move.h"

static bool all_divide(const kn__operand_region *r, int64_t by) {
    int last = r->n_dims - 1;
    if (r->stride[0][last] != 1 || r->stride[1][last] != 1 || r->dim[last] % by) return false;
    for (int d = 0; d < last; d++) {
        if (r->stride[0][d] % by || r->stride[1][d] % by) return false;
    }
    return true;
}

/* Where rows are dense on both sides, moves as many bytes at once as sizes and addresses allow. */
static void widen(kn__copy *copy) {
    kn__operand_region *r = &copy->region;
    size_t addresses = (size_t)copy->out | (size_t)copy->in;
    for (size_t bytes = 16; bytes > copy->element_bytes; bytes /= 2) {
        int64_t by = (int64_t)(bytes / copy->element_bytes);
        if (addresses % bytes || !all_divide(r, by)) continue;
        int last = r->n_dims - 1;
        r->dim[last] /= by, r->n /= by;
        for (int d = 0; d < last; d++) r->stride[0][d] /= by, r->stride[1][d] /= by;
        copy->element_bytes = bytes;
        return;
    }
}

kn_status kn__copy_run(kn__copy *copy, const kn_op_call *call) {
    kn__region_merge(&copy->region, 2);
    if (!copy->add) widen(copy);
    return KN__CUDA_NAMED("copy_kernel", kn__launch_copy(copy, call->stream));
}

kn__copy kn__copy_of(const kn_tensor *t, void *out, const void *in) {
    kn__copy copy = {.element_bytes = kn_dtype_bytes((kn_dtype)t->dtype), .out = out, .in = in};
    copy.region.n = t->n, copy.region.n_dims = t->n_dims;
    for (int d = 0; d < t->n_dims; d++) copy.region.dim[d] = t->dim[d];
    kn__region_strides(copy.region.stride[0], t, t);
    kn__region_strides(copy.region.stride[1], t, t);
    return copy;
}

void *kn__window(int64_t *stride, const kn_tensor *whole, void *data, const int64_t *start) {
    int64_t step = 1, at = 0;
    for (int d = whole->n_dims - 1; d >= 0; d--) {
        stride[d] = step;
        at += start[d] * step;
        step *= whole->dim[d];
    }
    return (char *)data + (size_t)at * kn_dtype_bytes((kn_dtype)whole->dtype);
}

static kn_status add_or_copy(kn__copy *copy, const kn_op_call *call) {
    if (kn__adds(call)) copy->add = (kn_dtype)call->out[0]->dtype;
    return kn__copy_run(copy, call);
}

kn_status kn__cuda_slice(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    kn_tensor *x = call->in[0], *out = call->out[0];
    kn__copy copy = kn__copy_of(out, out->data, NULL);
    copy.in = kn__window(copy.region.stride[1], x, x->data, attr->start);
    return add_or_copy(&copy, call);
}

kn_status kn__cuda_slice_back(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    kn_tensor *g = call->in[0], *out = call->out[0];
    KN_TRY(kn__zeros(call, 0));
    if (g->n == 0) return KN_OK;
    kn__copy copy = kn__copy_of(g, NULL, g->data);
    copy.out = kn__window(copy.region.stride[0], out, out->data, attr->start);
    return add_or_copy(&copy, call);
}

/* x into the result, from start on. */
static kn_status part_copy(kn_op_call *call, kn_tensor *x, const int64_t start[]) {
    if (!x->n) return KN_OK;
    kn__copy copy = kn__copy_of(x, NULL, x->data);
    copy.out = kn__window(copy.region.stride[0], call->out[0], call->out[0]->data, start);
    return kn__copy_run(&copy, call);
}

kn_status kn__cuda_concat(kn_op_call *call) {
    const kn_attr_concat *attr = call->attr;
    int64_t start[KN_DIMS_MAX] = {0};
    for (int i = 0; i < call->n_in; i++) {
        kn_tensor *x = call->in[i];
        KN_TRY(part_copy(call, x, start));
        start[attr->axis] += x->dim[attr->axis];
    }
    return KN_OK;
}

kn_status kn__cuda_block_diag(kn_op_call *call) {
    int64_t start[KN_DIMS_MAX] = {0};
    KN_TRY(kn__zeros(call, 0));
    for (int i = 0; i < call->n_in; i++) {
        kn_tensor *x = call->in[i];
        KN_TRY(part_copy(call, x, start));
        for (int d = 0; d < 2; d++) start[d] += x->dim[d];
    }
    return KN_OK;
}

kn_status kn__cuda_broadcast(kn_op_call *call) {
    kn__copy copy = kn__copy_of(call->out[0], call->out[0]->data, call->in[0]->data);
    kn__region_strides(copy.region.stride[1], call->in[0], call->out[0]);
    return add_or_copy(&copy, call);
}

/* [batch, rows, cols] → [batch, cols, rows], seen in the result's merged dimensions. */
static bool swaps_two(const kn__operand_region *r) {
    int n = r->n_dims;
    if (n != 2 && n != 3) return false;
    int64_t rows = r->dim[n - 1], cols = r->dim[n - 2];
    return r->stride[1][n - 2] == 1 && r->stride[1][n - 1] == cols &&
           (n == 2 || r->stride[1][0] == rows * cols) && rows > 1 && cols > 1;
}

kn_status kn__cuda_transpose(kn_op_call *call) {
    const kn_attr_transpose *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__copy copy = kn__copy_of(call->out[0], call->out[0]->data, x->data);
    int64_t stride[KN_DIMS_MAX], zero[KN_DIMS_MAX] = {0};
    kn__window(stride, x, x->data, zero);
    for (int d = 0; d < x->n_dims; d++) copy.region.stride[1][d] = stride[attr->axis[d]];
    kn__region_merge(&copy.region, 2);
    const kn__operand_region *r = &copy.region;
    if (!swaps_two(r)) return kn__copy_run(&copy, call);
    int n = r->n_dims;
    return KN__CUDA_NAMED(
        "transpose_kernel",
        kn__launch_transpose(copy.out, copy.in, copy.element_bytes, n == 3 ? r->dim[0] : 1,
                             r->dim[n - 1], r->dim[n - 2], call->stream));
}

/* --- one value everywhere, and other dtypes --- */

uint64_t kn__element_bits(double value, kn_dtype dtype) {
    uint64_t bits = 0;
    kn__from_double(&bits, value, dtype);
    return bits;
}

kn_status kn__cuda_fill(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    kn_tensor *out = call->out[0];
    uint64_t element = kn__element_bits(attr->a, (kn_dtype)out->dtype);
    if (element == 0) return kn__zeros(call, 0);
    return KN__CUDA_NAMED("fill_kernel",
                          kn__launch_fill(out->data, kn_dtype_bytes((kn_dtype)out->dtype), element,
                                          out->n, call->stream));
}

kn_status kn__cuda_cast(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *out = call->out[0];
    return KN__CUDA_NAMED("cast_kernel", kn__launch_cast(out->data, (kn_dtype)out->dtype, x->data,
                                                         (kn_dtype)x->dtype, out->n, call->stream));
}
