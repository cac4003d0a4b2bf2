/* Padding: with a value on all axes at once, or with the axis's own elements, an axis at a time. */
#include "run.h"

bool kn__infer_pad(kn_op_call *call) {
    const kn_attr_pad *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int64_t dim[KN_DIMS_MAX];
    for (int i = 0; i < x->n_dims; i++) {
        if (__builtin_add_overflow(x->dim[i], attr->before[i], &dim[i]) ||
            __builtin_add_overflow(dim[i], attr->after[i], &dim[i])) {
            return kn_op_call_fail(call, KN_ERR_SHAPE,
                                   "the padding of axis %d is too large: %lld and %lld", i,
                                   (long long)attr->before[i], (long long)attr->after[i]);
        }
    }
    return kn__shaped(call, 0, x->n_dims, dim);
}

static bool shaped_along(kn_op_call *call, int64_t n) {
    const kn_attr_pad_edge *attr = call->attr;
    kn_shape shape = kn_tensor_shape(call->in[0]);
    shape.dim[attr->axis] = n;
    return kn__shaped(call, 0, shape.n_dims, shape.dim);
}

/* The elements of the padded axis; 0: it can't be padded so. */
static int64_t padded(const kn_op_call *call) {
    const kn_attr_pad_edge *attr = call->attr;
    int64_t n = call->in[0]->dim[attr->axis], all = 0;
    int64_t most = attr->mode == KN_PAD_REFLECT ? n - 1 : n;
    if (attr->mode == KN_PAD_REPLICATE && n) most = INT64_MAX;
    if (attr->before > most || attr->after > most)
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "axis %d is too short for a padding of %lld and %lld",
                               (int)attr->axis, (long long)attr->before, (long long)attr->after);
    if (__builtin_add_overflow(n, attr->before, &all) ||
        __builtin_add_overflow(all, attr->after, &all))
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "the padding of axis %d is too large: %lld and %lld",
                               (int)attr->axis, (long long)attr->before, (long long)attr->after);
    return all;
}

bool kn__infer_pad_edge(kn_op_call *call) {
    int64_t all = padded(call);
    return all && shaped_along(call, all);
}

bool kn__infer_pad_edge_back(kn_op_call *call) {
    const kn_attr_pad_edge *attr = call->attr;
    return shaped_along(call, call->in[0]->dim[attr->axis] - attr->before - attr->after);
}

/* Axis by axis. All are checked before: messages show x, and no axis too short has cost a copy. */
static kn_tensor *pad_edges(kn_tensor *x, const kn_attr_pad *sizes, kn_pad_mode mode) {
    KN__AS("pad");
    kn_attr_pad_edge axis[KN_DIMS_MAX];
    int n = 0;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        if (!sizes->before[i] && !sizes->after[i]) continue;
        axis[n] = (kn_attr_pad_edge){i, sizes->before[i], sizes->after[i], mode};
        kn_op_call call;
        kn_op_call_init(&call, KN_OP_pad_edge, &axis[n++], &x, 1);
        if (!kn__check_inputs(&call) || !padded(&call)) return NULL;
    }
    kn_tensor *y = n ? x : kn__op_copy(x);
    for (int k = 0; k < n && y; k++) y = KN_CALL(pad_edge, &axis[k], y);
    return y;
}

kn_tensor *kn_pad(kn_tensor *x, kn_shape before, kn_shape after, kn_pad_mode mode, double value) {
    kn_attr_pad attr = {.value = value};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_pad, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_pad, &x, 1)) return NULL;
    if (before.n_dims != x->n_dims || after.n_dims != x->n_dims) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "before has %d entries, after %d, x %d", before.n_dims,
                        after.n_dims, x->n_dims);
        return NULL;
    }
    if (mode < KN_PAD_CONSTANT || mode > KN_PAD_CIRCULAR) {
        kn_op_call_fail(&call, KN_ERR_INVALID, "mode is %d", (int)mode);
        return NULL;
    }
    for (int i = 0; i < x->n_dims; i++) {
        attr.before[i] = before.dim[i];
        attr.after[i] = after.dim[i];
        if (before.dim[i] >= 0 && after.dim[i] >= 0) continue;
        kn_op_call_fail(&call, KN_ERR_INVALID,
                        "the padding of axis %d is %lld and %lld; kn_slice removes elements", i,
                        (long long)before.dim[i], (long long)after.dim[i]);
        return NULL;
    }
    return mode == KN_PAD_CONSTANT ? kn_op_run(&call) : pad_edges(x, &attr, mode);
}
