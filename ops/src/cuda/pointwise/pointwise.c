/* Pointwise ops: finds out which operands are read and how they are broadcast, and launches. */
#include <knet/op_act.h>

#include "cuda/base/module.h"
#include "kron.h"

static const struct {
    kn__row_id row;
    const char *label;
} of_op[KN_OP_COUNT] = {
#define ROW(name, suffix) [KN_OP_##name##suffix] = {KN__ROW_##name, #name #suffix "_kernel"},
#define KN_ROW1(name, ...) ROW(name, ) ROW(name, _back) ROW(name, _back2)
#define KN_ROW2(name, ...) ROW(name, ) ROW(name, _back) ROW(name, _back2)
#define KN_ROW3(name, ...) ROW(name, ) ROW(name, _back) ROW(name, _back2)
#define KN_COMPARE(name, ...) ROW(name, )
#define KN_COMPARE1(name, ...) ROW(name, )
#include <knet/ops.def>
};

static int64_t saturated(double value, int64_t low, int64_t high) {
    if (value != value) return 0;
    return value <= (double)low ? low : value >= (double)high ? high : (int64_t)value;
}

int64_t kn__integer_of(double value, kn_dtype dtype) {
    return dtype == KN_I64   ? saturated(value, INT64_MIN, INT64_MAX)
           : dtype == KN_I32 ? saturated(value, INT32_MIN, INT32_MAX)
                             : saturated(value, 0, 255);
}

/* An index space of out's shape, or of its elements in a row, without operands. */
static kn__row_args row_of(const kn_op_call *call, const kn_tensor *out, kn_dtype dtype) {
    kn__row_args r = {
        .row = of_op[call->op].row, .order = kn_op_table[call->op].order, .dtype = dtype};
    r.region.n = r.region.dim[0] = out->n, r.region.n_dims = 1, r.region.stride[0][0] = 1;
    if (!call->flat) {
        r.region.n_dims = out->n_dims;
        for (int d = 0; d < out->n_dims; d++) r.region.dim[d] = out->dim[d];
        kn__region_strides(r.region.stride[0], out, out);
    }
    if (kn_op_table[call->op].attr_bytes) {
        const kn_attr_scalars *scalars = call->attr;
        r.p = scalars->a, r.q = scalars->b;
        r.p_integer = kn__integer_of(r.p, dtype), r.q_integer = kn__integer_of(r.q, dtype);
    }
    return r;
}

static void add_operand(kn__row_args *r, int k, const kn_op_call *call, const kn_tensor *out) {
    const kn_tensor *x = call->in[k];
    if (call->flat)
        r->region.stride[k + 1][0] = 1;
    else
        kn__region_strides(r->region.stride[k + 1], x, out);
    r->in[k] = x->data;
}

static kn_status launch(kn__row_args *r, const kn_op_call *call) {
    const char *label = of_op[call->op].label;
    if (!call->flat) kn__region_merge(&r->region, call->n_in + 1);
    cudaError_t error = KN_PROF_CALL(
        label, r->order ? kn__launch_row_back(r, call->stream) : kn__launch_row(r, call->stream));
    if (error == cudaErrorNotSupported) return kn__no_kernel(call, r->dtype);
    return kn__cuda_status(error, label);
}

kn_status kn__cuda_row(kn_op_call *call) {
    kn_tensor *out = call->out[0];
    /* of comparisons and of where, the last input has the dtype that counts */
    kn__row_args r = row_of(call, out, (kn_dtype)call->in[call->n_in - 1]->dtype);
    for (int k = 0; k < call->n_in; k++) add_operand(&r, k, call, out);
    r.out[0] = out->data;
    return launch(&r, call);
}

kn_status kn__cuda_kron(kn_op_call *call) { return kn__kron_broadcast(call, kn__cuda_row); }

/* --- gradients --- */

/* Of the operands, whose order is g or u…, then x…, then z: those that the formula reads, a bit
 * each; `needs` lists them, and the formula multiplies operand g. */
static uint32_t operands_of(uint32_t needs, int g, int x, int z) {
    uint32_t inputs = needs & 0xFF, result = needs >> KN_NEED_OUT & 1;
    return needs & KN_NEED_ZERO ? 0 : 1u << g | inputs << x | result << z;
}

/* The operands that result j is made from; none: it is zero. */
static uint32_t reads_of(const kn_op_call *call, int j) {
    const kn_op_info *info = &kn_op_table[call->op];
    const kn_op_needs *needs = &kn_op_needs_table[call->op - info->order];
    int k = info->row;
    if (info->order == 1) return operands_of(needs->first[j], 0, 1, 1 + k);
    uint32_t reads = 0;
    for (int i = 0; i < k; i++) {
        if (call->in[i] != KN_NONE) reads |= operands_of(needs->second[i][j], i, k, 2 * k);
    }
    return reads;
}

/* The wanted results are made in one launch, and those that are zero are cleared. */
static kn_status run_back(kn_op_call *call) {
    uint32_t reads[KN_OUT_MAX] = {0}, all = 0;
    const kn_tensor *out = NULL;
    for (int j = 0; j < call->n_out; j++) {
        if (!call->out[j]) continue;
        reads[j] = reads_of(call, j), all |= reads[j];
        if (reads[j])
            out = call->out[j];
        else
            KN_TRY(kn__zeros(call, j));
    }
    if (!all) return KN_OK;
    kn__row_args r = row_of(call, out, (kn_dtype)out->dtype);
    r.accumulate = call->accumulate;
    for (int j = 0; j < call->n_out; j++) r.out[j] = reads[j] ? call->out[j]->data : NULL;
    for (int k = 0; k < call->n_in; k++) {
        if (all >> k & 1) add_operand(&r, k, call, out);
    }
    return launch(&r, call);
}

kn_status kn__cuda_row_back(kn_op_call *call) { return run_back(call); }
kn_status kn__cuda_row_back2(kn_op_call *call) { return run_back(call); }

/* --- for other kernels --- */

kn_status kn__zeros(const kn_op_call *call, int r) {
    const kn_tensor *out = call->out[r];
    if (call->accumulate >> r & 1) return KN_OK;
    size_t bytes = (size_t)out->n * kn_dtype_bytes((kn_dtype)out->dtype);
    return KN__CUDA(cudaMemsetAsync, out->data, 0, bytes, call->stream);
}

kn_status kn__no_kernel(const kn_op_call *call, kn_dtype dtype) {
    return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: %s has no kernel for %s", kn_op_name(call->op),
                   kn_device_name(call->device), kn_dtype_name(dtype));
}

kn_status kn__bias_add(const kn_op_call *call, kn_tensor *y, const kn_tensor *bias, int axis) {
    kn__row_args r = {.row = KN__ROW_add,
                      .dtype = (kn_dtype)y->dtype,
                      .out = {y->data},
                      .in = {y->data, bias->data},
                      .region = {.n = y->n, .n_dims = 3, .dim = {1, y->dim[axis], 1}}};
    kn__operand_region *region = &r.region;
    for (int d = 0; d < axis; d++) region->dim[0] *= y->dim[d];
    for (int d = axis + 1; d < y->n_dims; d++) region->dim[2] *= y->dim[d];
    for (int k = 0; k < 2; k++) {
        int64_t *stride = region->stride[k];
        stride[0] = region->dim[1] * region->dim[2], stride[1] = region->dim[2], stride[2] = 1;
    }
    region->stride[2][1] = 1;
    kn__region_merge(region, 3);
    return KN__CUDA_NAMED("bias_kernel", kn__launch_row(&r, call->stream));
}

kn_status kn__activate(const kn_op_call *call, kn_act act) {
    kn_tensor *y = call->out[0];
    kn_op op = kn_act_op(act);
    kn__row_args r = {.row = of_op[op].row,
                      .dtype = (kn_dtype)y->dtype,
                      .region = {.n = y->n, .n_dims = 1, .dim = {y->n}, .stride = {{1}, {1}}},
                      .out = {y->data},
                      .in = {y->data}};
    return KN__CUDA_NAMED(of_op[op].label, kn__launch_row(&r, call->stream));
}
