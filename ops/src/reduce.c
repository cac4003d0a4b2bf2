/* Reductions, and the broadcasts that are their adjoints. */
#include <string.h>

#include "run.h"

/* The axes as a bit mask; false with the error pending when one is wrong or named twice. */
static bool axes_mask(uint32_t *mask, const kn_op_call *call, const kn_shape *axes) {
    const kn_tensor *x = call->in[0];
    *mask = axes->n_dims == KN_ALL.n_dims ? (1u << x->n_dims) - 1 : 0;
    if (axes->n_dims > KN_DIMS_MAX) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "axes has %d entries", axes->n_dims);
    }
    for (int i = 0; i < axes->n_dims; i++) {
        int axis;
        if (!kn__axis(&axis, call, x, axes->dim[i])) return false;
        if (*mask >> axis & 1) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d is named twice", axis);
        }
        *mask |= 1u << axis;
    }
    return true;
}

bool kn__infer_reduce(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int64_t dim[KN_DIMS_MAX];
    int n_dims = 0;
    for (int i = 0; i < x->n_dims; i++) {
        bool reduced = attr->mask >> i & 1;
        if (!reduced)
            dim[n_dims++] = x->dim[i];
        else if (attr->keep_dims)
            dim[n_dims++] = 1;
    }
    return kn__shaped(call, 0, n_dims, dim);
}

/* Of nothing there is a sum, and no maximum. */
bool kn__infer_extremum(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    for (int i = 0; i < x->n_dims; i++) {
        if ((attr->mask >> i & 1) && x->dim[i] == 0) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d has no elements", i);
        }
    }
    return kn__infer_reduce(call);
}

static kn_tensor *reduce(kn_op op, kn_tensor *x, const kn_shape *axes, bool keep_dims) {
    kn_attr_axes attr = {.keep_dims = keep_dims};
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, &x, 1);
    if (!kn__check_readable(op, &x, 1) || !axes_mask(&attr.mask, &call, axes)) return NULL;
    return kn_op_run(&call);
}

kn_tensor *(kn_sum)(kn_tensor *x, kn_shape axes, bool keep_dims) {
    return reduce(KN_OP_sum, x, &axes, keep_dims);
}
kn_tensor *(kn_mean)(kn_tensor *x, kn_shape axes, bool keep_dims) {
    return reduce(KN_OP_mean, x, &axes, keep_dims);
}
kn_tensor *(kn_max)(kn_tensor *x, kn_shape axes, bool keep_dims) {
    return reduce(KN_OP_max, x, &axes, keep_dims);
}
kn_tensor *(kn_min)(kn_tensor *x, kn_shape axes, bool keep_dims) {
    return reduce(KN_OP_min, x, &axes, keep_dims);
}
kn_tensor *(kn_argmax)(kn_tensor *x, int axis) {
    kn_shape axes = KN_SHAPE(axis);
    return reduce(KN_OP_argmax, x, &axes, false);
}

kn_tensor *kn_sum_mask(kn_tensor *x, uint32_t mask, bool keep_dims) {
    kn_attr_axes attr = {mask, keep_dims};
    return KN_CALL(sum, &attr, x);
}

/* --- broadcast --- */

bool kn__infer_broadcast(kn_op_call *call) {
    const kn_attr_shape *attr = call->attr;
    return kn__shaped(call, 0, (int)attr->n_dims, attr->dim);
}

static bool broadcasts_to(const kn_tensor *x, const kn_shape *shape) {
    kn_shape both = *shape;
    return kn__shape_numel(shape) >= 0 && kn__broadcast_shape(&both, x) &&
           both.n_dims == shape->n_dims &&
           !memcmp(both.dim, shape->dim, (size_t)shape->n_dims * sizeof shape->dim[0]);
}

kn_tensor *(kn_broadcast)(kn_tensor *x, kn_shape shape) {
    kn_attr_shape attr = {.n_dims = shape.n_dims};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_broadcast, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_broadcast, &x, 1)) return NULL;
    if (!broadcasts_to(x, &shape)) {
        char text[256];
        kn_op_call_fail(&call, KN_ERR_SHAPE, "x can't be broadcast to %s",
                        kn_shape_text(text, sizeof text, shape));
        return NULL;
    }
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    bool same = x->n_dims == shape.n_dims &&
                !memcmp(x->dim, shape.dim, (size_t)x->n_dims * sizeof x->dim[0]);
    return same ? kn__op_same(x) : kn_op_run(&call);
}
