/* Pooling to a given size, and over everything. */
#include <stdlib.h>

#include "run.h"

/* --- to a size: window i of n is from ⌊i·S/n⌋ to ⌈(i + 1)·S/n⌉ --- */

static int64_t first_of(int64_t i, int64_t in, int64_t out) { return i * in / out; }
static int64_t end_of(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

/* A window is in/out elements long and begins at any multiple of gcd(in, out)/out: it has ⌊in/out⌋
 * whole elements, and parts of one or two more. */
static int64_t longest(int64_t in, int64_t out) {
    int64_t rest = in % out;
    return in / out + (rest ? 1 + (out % rest != 0) : 0);
}

/* The elements of each window [out·k]; a shorter one repeats its last. */
static kn_tensor *places(const kn_tensor *x, int64_t in, int64_t out, int64_t k) {
    int64_t *p = malloc((size_t)(out * k) * sizeof *p);
    if (!p) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for windows");
    for (int64_t i = 0; i < out; i++) {
        int64_t first = first_of(i, in, out), last = end_of(i, in, out) - 1;
        for (int64_t j = 0; j < k; j++) p[i * k + j] = first + j < last ? first + j : last;
    }
    kn_tensor *t = kn__constant_from(kn_tensor_device(x), p, KN_I64, KN_SHAPE(out, k));
    free(p);
    return t;
}

/* --- largest elements of windows that offsets of 8 bits can't count. Of elements that tie the
 * first gets the gradient, as in other windows --- */

static kn_tensor *largest(kn_tensor *x, int axis) {
    kn_attr_axes attr = {.mask = 1u << axis};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_max_index, &attr, &x, 1);
    call.want = 1;
    return x ? kn_op_run(&call) : NULL;
}

/* Windows that are as long as each other are an axis of their own. */
static kn_tensor *max_axis(kn_tensor *x, int axis, int64_t out) {
    int64_t in = x->dim[axis], k = longest(in, out);
    if (in % out) return largest(kn_index_select(x, places(x, in, out, k), axis), axis + 1);
    kn_shape split = kn_tensor_shape(x);
    for (int i = split.n_dims++; i > axis + 1; i--) split.dim[i] = split.dim[i - 1];
    split.dim[axis] = out;
    split.dim[axis + 1] = k;
    return largest(kn_reshape(x, split), axis + 1);
}

/* One window of everything: a row of each channel. */
static kn_tensor *max_channel(kn_tensor *x) {
    kn_shape row = KN_SHAPE(x->dim[0], x->dim[1], 1), one = row;
    for (int i = 2; i < x->n_dims; i++) row.dim[2] *= x->dim[i], one.dim[i] = 1;
    one.n_dims = x->n_dims;
    kn_tensor *y = largest(kn_reshape(x, row), 2);
    return y ? kn_reshape(y, one) : NULL;
}

static bool sizes_fit(const kn_op_call *call, const kn_shape *size) {
    const kn_tensor *x = call->in[0];
    if (!kn__spatial_fits(call, "size", size->n_dims)) return false;
    for (int i = 0; i < size->n_dims; i++) {
        int64_t in = x->dim[2 + i], out = size->dim[i];
        if (out >= 1 && in >= 1 && in <= INT32_MAX && out <= INT32_MAX) continue;
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "size[%d] is %lld of %lld elements; both must be in 1 … 2^31 - 1", i,
                               (long long)out, (long long)in);
    }
    return true;
}

/* One kernel if windows are as long as each other, another if not: those have no stride. */
static kn_tensor *adaptive(kn_op op, kn_tensor *x, kn_shape size) {
    kn_attr_pool attr = {.dilation = {1, 1, 1}, .n_spatial = size.n_dims};
    kn_op_call call;
    int64_t elements = 1, windows = 1;
    kn_op_call_init(&call, op, &attr, &x, 1);
    if (!kn__check_inputs(&call) || !sizes_fit(&call, &size)) return NULL;
    for (int i = 0; i < 3; i++) {
        bool used = i < size.n_dims;
        int64_t in = used ? x->dim[2 + i] : 1, out = used ? size.dim[i] : 1;
        attr.window[i] = longest(in, out);
        attr.stride[i] = in % out ? 0 : in / out;
        attr.size[i] = attr.stride[i] ? 0 : out;
        windows *= out;
        elements = attr.window[i] > 256 || elements > 256 ? 257 : elements * attr.window[i];
    }
    if (op == KN_OP_avgpool || elements <= 256) return kn_op_run(&call);
    if (windows == 1) return max_channel(x);
    /* the last axis first: of elements that tie, the first in memory stays */
    for (int i = size.n_dims - 1; i >= 0 && x; i--) x = max_axis(x, 2 + i, size.dim[i]);
    return x;
}

kn_tensor *kn_adaptive_avgpool(kn_tensor *x, kn_shape size) {
    KN__AS("adaptive_avgpool");
    return adaptive(KN_OP_avgpool, x, size);
}
kn_tensor *kn_adaptive_maxpool(kn_tensor *x, kn_shape size) {
    KN__AS("adaptive_maxpool");
    return adaptive(KN_OP_maxpool, x, size);
}

static bool spatial_axes(kn_shape *axes, kn_op op, kn_tensor *x) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    if (!kn__check_inputs(&call) || !kn__spatial_fits(&call, NULL, x->n_dims - 2)) return false;
    axes->n_dims = x->n_dims - 2;
    for (int i = 0; i < axes->n_dims; i++) axes->dim[i] = 2 + i;
    return true;
}

kn_tensor *kn_global_avgpool(kn_tensor *x) {
    KN__AS("global_avgpool");
    kn_shape axes;
    return spatial_axes(&axes, KN_OP_avgpool, x) ? kn_mean(x, axes, true) : NULL;
}
kn_tensor *kn_global_maxpool(kn_tensor *x) {
    KN__AS("global_maxpool");
    kn_shape axes;
    return spatial_axes(&axes, KN_OP_maxpool, x) ? max_channel(x) : NULL;
}
