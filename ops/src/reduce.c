/* Reductions, and the broadcasts that are their adjoints. */
#include <string.h>

#include "run.h"

static uint32_t all_axes(const kn_tensor *x) { return (1u << x->n_dims) - 1; }

/* The axes as a bit mask; false with the error pending when one is wrong or named twice. */
static bool axes_mask(uint32_t *mask, kn_op op, kn_tensor *x, const kn_shape *axes) {
    *mask = axes->n_dims == 0 ? all_axes(x) : 0;
    if (axes->n_dims < 0 || axes->n_dims > KN_DIMS_MAX) {
        kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "axes has %d entries", axes->n_dims);
        return false;
    }
    for (int i = 0; i < axes->n_dims; i++) {
        int axis;
        if (!kn__axis(&axis, op, x, axes->dim[i])) return false;
        if (*mask >> axis & 1) {
            kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "axis %d is named twice", axis);
            return false;
        }
        *mask |= 1u << axis;
    }
    return true;
}

static kn_shape reduced_shape(const kn_tensor *x, uint32_t mask, bool keep_dims) {
    kn_shape shape = KN_SCALAR;
    for (int i = 0; i < x->n_dims; i++) {
        bool reduced = mask >> i & 1;
        if (!reduced)
            shape.dim[shape.n_dims++] = x->dim[i];
        else if (keep_dims)
            shape.dim[shape.n_dims++] = 1;
    }
    return shape;
}

static kn_tensor *reduce_mask(kn_op op, kn_tensor *x, uint32_t mask, bool keep_dims,
                              kn_tensor *into) {
    kn_attr_axes attr = {mask, keep_dims};
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &x,
                       .out = into,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = reduced_shape(x, mask, keep_dims),
                       .accumulate = into != NULL};
    return kn_op_run(&call);
}

static kn_tensor *reduce(kn_op op, kn_tensor *x, const kn_shape *axes, bool keep_dims) {
    uint32_t mask;
    if (!kn__floats_check(op, "x", &x, 1, 0) || !axes_mask(&mask, op, x, axes)) return NULL;
    if (op == KN_OP_max || op == KN_OP_min) {
        for (int i = 0; i < x->n_dims; i++) {
            if ((mask >> i & 1) && x->dim[i] == 0) {
                return kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "axis %d has no elements", i);
            }
        }
    }
    return reduce_mask(op, x, mask, keep_dims, NULL);
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
    const kn_op op = KN_OP_argmax;
    if (!kn__floats_check(op, "x", &x, 1, 0) || !kn__axis(&axis, op, x, axis)) return NULL;
    if (x->dim[axis] == 0) {
        return kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "axis %d has no elements", axis);
    }
    kn_attr_axes attr = {1u << axis, false};
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &x,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = KN_I64,
                       .shape = reduced_shape(x, attr.mask, false)};
    return kn_op_run(&call);
}

kn_tensor *(kn_broadcast)(kn_tensor *x, kn_shape shape) {
    const kn_op op = KN_OP_broadcast;
    if (!kn__inputs_check(op, "x", &x, 1, 0)) return NULL;
    kn_shape x_shape = kn_tensor_shape(x), both;
    if (kn__shape_numel(&shape) < 0 || !kn__broadcast_shape(&both, &x_shape, &shape) ||
        !kn__shape_equal(&both, &shape)) {
        char text[256];
        return kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "x can't be broadcast to %s",
                               kn_shape_text(text, sizeof text, shape));
    }
    if (kn__shape_equal(&x_shape, &shape)) return kn__op_same(x);
    kn_op_call call = {.op = op, .n_in = 1, .in = &x, .dtype = (kn_dtype)x->dtype, .shape = shape};
    return kn_op_run(&call);
}

/* --- for gradient rules --- */

kn_tensor *kn_sum_mask(kn_tensor *x, uint32_t mask, bool keep_dims, kn_tensor *into) {
    kn_tensor *in[] = {x, into};
    if (!kn__floats_check(KN_OP_sum, "x into", in, into ? 2 : 1, 0)) return NULL;
    mask &= all_axes(x);
    kn_shape shape = reduced_shape(x, mask, keep_dims);
    if (into && kn__shape_numel(&shape) != into->n) {
        return kn__fail_inputs(KN_OP_sum, "x into", in, 2, KN_ERR_SHAPE,
                               "the sum over axes 0x%x does not fit into", mask);
    }
    return reduce_mask(KN_OP_sum, x, mask, keep_dims, into);
}
