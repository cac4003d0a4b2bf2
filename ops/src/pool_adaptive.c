/* Pooling to a given size, over everything, and its inverse: composed of other ops. */
#include <stdlib.h>

#include "run.h"

static bool is_image(const kn_op_call *call, int n_sizes) {
    int n = call->in[0]->n_dims - 2;
    if (n >= 1 && n <= 3 && (n_sizes < 0 || n_sizes == n)) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE,
                           "x must be [B,C,spatial…] with one to three spatial dimensions; "
                           "size has %d",
                           n_sizes < 0 ? n : n_sizes);
}

/* --- to a size: window i of n is from ⌊i·S/n⌋ to ⌈(i + 1)·S/n⌉ --- */

static int64_t first_of(int64_t i, int64_t in, int64_t out) { return i * in / out; }
static int64_t end_of(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

static int64_t longest(int64_t in, int64_t out) {
    int64_t k = 1;
    for (int64_t i = 0; i < out; i++) {
        int64_t n = end_of(i, in, out) - first_of(i, in, out);
        if (n > k) k = n;
    }
    return k;
}

/* What each of the places below counts in an average, [out,k,1…] in the dtype and on the device of
 * x. Elements that are there several times share theirs, so that none is 0: 0·∞ is NaN. */
static kn_tensor *shares(const kn_tensor *x, int axis, int64_t out, int64_t k) {
    double *a = malloc((size_t)(out * k) * sizeof *a);
    if (!a) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for averages");
    int64_t in = x->dim[axis];
    for (int64_t i = 0; i < out; i++) {
        int64_t n = end_of(i, in, out) - first_of(i, in, out);
        for (int64_t j = 0; j < k; j++)
            a[i * k + j] = 1 / (double)n / (j < n - 1 ? 1 : (double)(k - n + 1));
    }
    kn_shape shape = {.n_dims = x->n_dims - axis + 1, .dim = {out, k}};
    for (int d = 2; d < shape.n_dims; d++) shape.dim[d] = 1;
    kn_tensor *t = (kn_tensor_from)(a, KN_F64, shape);
    free(a);
    return (kn_to)((kn_cast)(t, (kn_dtype)x->dtype), kn_tensor_device(x));
}

/* The elements of each window [out·k]; a shorter one repeats its last. */
static kn_tensor *places(const kn_tensor *x, int64_t in, int64_t out, int64_t k) {
    int64_t *p = malloc((size_t)(out * k) * sizeof *p);
    if (!p) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for windows");
    for (int64_t i = 0; i < out; i++) {
        int64_t first = first_of(i, in, out), last = end_of(i, in, out) - 1;
        for (int64_t j = 0; j < k; j++) p[i * k + j] = first + j < last ? first + j : last;
    }
    kn_tensor *t = (kn_tensor_from)(p, KN_I64, KN_SHAPE(out, k));
    free(p);
    return (kn_to)(t, kn_tensor_device(x));
}

/* The windows along one axis: [… out,k …] in its place. */
static kn_tensor *windows_of(kn_tensor *x, int axis, int64_t out, int64_t k) {
    return (kn_index_select)(x, places(x, x->dim[axis], out, k), axis);
}

static kn_tensor *average_axis(kn_tensor *x, int axis, int64_t out) {
    int64_t in = x->dim[axis], k = longest(in, out);
    kn_tensor *windows = windows_of(x, axis, out, k);
    if (!windows) return NULL;
    bool same = true; /* windows are as long as each other */
    for (int64_t i = 0; i < out; i++) same &= end_of(i, in, out) - first_of(i, in, out) == k;
    if (same) return (kn_mean)(windows, KN_SHAPE(axis + 1), false);
    return (kn_sum)((kn_mul)(windows, shares(x, axis, out, k)), KN_SHAPE(axis + 1), false);
}

static kn_tensor *max_axis(kn_tensor *x, int axis, int64_t out) {
    kn_tensor *windows = windows_of(x, axis, out, longest(x->dim[axis], out));
    return windows ? (kn_max)(windows, KN_SHAPE(axis + 1), false) : NULL;
}

/* Averages in f32 of 16 bits, rounded once. */
static kn_tensor *averages(kn_tensor *x, const kn_shape *size) {
    kn_dtype dtype = (kn_dtype)x->dtype;
    bool is_half = dtype == KN_F16 || dtype == KN_BF16;
    if (is_half) x = (kn_cast)(x, KN_F32);
    for (int i = 0; i < size->n_dims && x; i++) x = average_axis(x, 2 + i, size->dim[i]);
    return x && is_half ? (kn_cast)(x, dtype) : x;
}

static bool sizes_fit(const kn_op_call *call, const kn_shape *size, bool *divides) {
    const kn_tensor *x = call->in[0];
    *divides = true;
    if (!is_image(call, size->n_dims)) return false;
    for (int i = 0; i < size->n_dims; i++) {
        int64_t in = x->dim[2 + i], out = size->dim[i];
        if (out < 1 || in < 1) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "size[%d] is %lld of %lld elements", i,
                                   (long long)out, (long long)in);
        }
        if (in % out) *divides = false;
        if (in > INT32_MAX || out > INT32_MAX) {
            return kn_op_call_fail(call, KN_ERR_SHAPE,
                                   "size[%d] is %lld of %lld elements: too large", i,
                                   (long long)out, (long long)in);
        }
    }
    return true;
}

static kn_tensor *adaptive(kn_op op, kn_tensor *x, kn_shape size) {
    kn_op_call call;
    bool divides;
    kn_op_call_init(&call, op, NULL, &x, 1);
    if (!kn__check_inputs(&call) || !sizes_fit(&call, &size, &divides)) return NULL;
    if (divides) {
        kn_shape window = size;
        int64_t elements = 1;
        for (int i = 0; i < size.n_dims; i++) {
            window.dim[i] = x->dim[2 + i] / size.dim[i];
            elements *= window.dim[i];
        }
        if (op == KN_OP_avgpool) return (kn_avgpool)(x, window, NULL);
        if (elements <= 256) return (kn_maxpool)(x, window, NULL);
    }
    if (op == KN_OP_avgpool) return averages(x, &size);
    for (int i = 0; i < size.n_dims && x; i++) x = max_axis(x, 2 + i, size.dim[i]);
    return x;
}

kn_tensor *(kn_adaptive_avgpool)(kn_tensor *x, kn_shape size) {
    return adaptive(KN_OP_avgpool, x, size);
}
kn_tensor *(kn_adaptive_maxpool)(kn_tensor *x, kn_shape size) {
    return adaptive(KN_OP_maxpool, x, size);
}

static bool spatial_axes(kn_shape *axes, kn_op op, kn_tensor *x) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    if (!kn__check_inputs(&call) || !is_image(&call, -1)) return false;
    axes->n_dims = x->n_dims - 2;
    for (int i = 0; i < axes->n_dims; i++) axes->dim[i] = 2 + i;
    return true;
}

kn_tensor *(kn_global_avgpool)(kn_tensor *x) {
    kn_shape axes;
    return spatial_axes(&axes, KN_OP_avgpool, x) ? (kn_mean)(x, axes, true) : NULL;
}
kn_tensor *(kn_global_maxpool)(kn_tensor *x) {
    kn_shape axes;
    return spatial_axes(&axes, KN_OP_maxpool, x) ? (kn_max)(x, axes, true) : NULL;
}
