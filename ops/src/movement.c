/* Movement: views where elements keep their order, copies elsewhere. */
#include <string.h>

#include "run.h"

/* --- views --- */

/* Fills in the one dimension that may be -1; false with the error pending when shapes don't fit. */
static bool reshaped(kn_shape *shape, kn_tensor *x) {
    int unknown = -1;
    kn_shape known = *shape;
    for (int i = 0; i < shape->n_dims && i < KN_DIMS_MAX; i++) {
        if (shape->dim[i] != -1 || unknown >= 0) continue;
        unknown = i;
        known.dim[i] = 1;
    }
    int64_t n = kn__shape_numel(&known);
    if (unknown >= 0 && n > 0 && x->n % n == 0) shape->dim[unknown] = x->n / n;
    if (n >= 0 && kn__shape_numel(shape) == x->n) return true;
    char text[256];
    kn__fail_inputs(KN_OP_reshape, "x", &x, 1, KN_ERR_SHAPE, "%lld elements don't make %s",
                    (long long)x->n, kn_shape_text(text, sizeof text, *shape));
    return false;
}

kn_tensor *(kn_reshape)(kn_tensor *x, kn_shape shape) {
    if (!kn__inputs_check(KN_OP_reshape, "x", &x, 1, 0) || !reshaped(&shape, x)) return NULL;
    return kn__op_view(KN_OP_reshape, x, shape, 0, NULL, 0);
}

kn_tensor *(kn_flatten)(kn_tensor *x) {
    if (!kn__inputs_check(KN_OP_reshape, "x", &x, 1, 0)) return NULL;
    int64_t rows = x->n_dims ? x->dim[0] : 1, rest = 1;
    for (int i = 1; i < x->n_dims; i++) rest *= x->dim[i];
    return kn__op_view(KN_OP_reshape, x, KN_SHAPE(rows, rest), 0, NULL, 0);
}

/* --- slices --- */

static bool slice_bounds(kn_attr_move *attr, kn_shape *out, kn_tensor *x, const kn_shape *start,
                         const kn_shape *stop) {
    const kn_op op = KN_OP_slice;
    if (start->n_dims != x->n_dims || stop->n_dims != x->n_dims) {
        kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "start has %d entries, stop %d, x %d",
                        start->n_dims, stop->n_dims, x->n_dims);
        return false;
    }
    *attr = (kn_attr_move){{0}, {0}};
    out->n_dims = x->n_dims;
    for (int i = 0; i < x->n_dims; i++) {
        int64_t from = start->dim[i], to = stop->dim[i];
        if (from < 0 || to < from || to > x->dim[i]) {
            kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "%lld … %lld is no range of dimension %d",
                            (long long)from, (long long)to, i);
            return false;
        }
        attr->start[i] = from;
        attr->stop[i] = to;
        out->dim[i] = to - from;
    }
    return true;
}

/* Whether all dimensions but the first are whole: the slice is then one run of memory. */
static bool cuts_rows(const kn_tensor *x, const kn_shape *out) {
    for (int i = 1; i < x->n_dims; i++) {
        if (out->dim[i] != x->dim[i]) return false;
    }
    return true;
}

kn_tensor *(kn_slice)(kn_tensor *x, kn_shape start, kn_shape stop) {
    kn_attr_move attr;
    kn_shape shape = KN_SCALAR;
    if (!kn__inputs_check(KN_OP_slice, "x", &x, 1, 0)) return NULL;
    if (!slice_bounds(&attr, &shape, x, &start, &stop)) return NULL;
    if (cuts_rows(x, &shape)) {
        int64_t row = x->n_dims && x->dim[0] ? x->n / x->dim[0] : 0;
        return kn__op_view(KN_OP_slice, x, shape, attr.start[0] * row, &attr, sizeof attr);
    }
    kn_op_call call = {.op = KN_OP_slice,
                       .n_in = 1,
                       .in = &x,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = shape};
    return kn_op_run(&call);
}

kn_tensor *kn_slice_back(kn_tensor *g, kn_shape start, kn_shape shape) {
    const kn_op op = KN_OP_slice_back;
    if (!kn__inputs_check(op, "g", &g, 1, 0)) return NULL;
    kn_attr_move attr = {{0}, {0}};
    bool fits = g->n_dims == shape.n_dims && start.n_dims == shape.n_dims;
    for (int i = 0; fits && i < g->n_dims; i++) {
        attr.start[i] = start.dim[i];
        attr.stop[i] = start.dim[i] + g->dim[i];
        fits = start.dim[i] >= 0 && attr.stop[i] <= shape.dim[i];
    }
    if (!fits) {
        char text[256];
        return kn__fail_inputs(op, "g", &g, 1, KN_ERR_SHAPE, "g is no slice of %s",
                               kn_shape_text(text, sizeof text, shape));
    }
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &g,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)g->dtype,
                       .shape = shape};
    return kn_op_run(&call);
}

/* --- copies in another order --- */

kn_tensor *(kn_transpose)(kn_tensor *x, kn_shape axes) {
    const kn_op op = KN_OP_transpose;
    if (!kn__inputs_check(op, "x", &x, 1, 0)) return NULL;
    bool reverse = axes.n_dims == 0;
    if (!reverse && axes.n_dims != x->n_dims) {
        return kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "axes has %d entries", axes.n_dims);
    }
    kn_attr_move attr = {{0}, {0}};
    kn_shape shape = {{0}, x->n_dims};
    uint32_t seen = 0;
    for (int i = 0; i < x->n_dims; i++) {
        int axis;
        if (!kn__axis(&axis, op, x, reverse ? x->n_dims - 1 - i : axes.dim[i])) return NULL;
        if (seen >> axis & 1) {
            return kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE, "axis %d is named twice", axis);
        }
        seen |= 1u << axis;
        attr.start[i] = axis;
        shape.dim[i] = x->dim[axis];
    }
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &x,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = shape};
    return kn_op_run(&call);
}

/* x[i] like x[0] but for the joined dimension, whose sizes add up in *shape. */
static bool joins(kn_shape *shape, kn_tensor *const x[], int n_x, int axis) {
    for (int i = 1; i < n_x; i++) {
        bool fits = x[i]->n_dims == shape->n_dims && x[i]->dtype == x[0]->dtype;
        for (int d = 0; fits && d < shape->n_dims; d++) {
            fits = d == axis || x[i]->dim[d] == shape->dim[d];
        }
        if (!fits) {
            kn__fail_inputs(
                KN_OP_concat, "x", x, n_x, x[i]->dtype == x[0]->dtype ? KN_ERR_SHAPE : KN_ERR_DTYPE,
                "x[%d] does not fit x[0] beside axis %d: %s and %s", i, axis,
                kn_dtype_name((kn_dtype)x[i]->dtype), kn_dtype_name((kn_dtype)x[0]->dtype));
            return false;
        }
        shape->dim[axis] += x[i]->dim[axis];
    }
    return true;
}

kn_tensor *(kn_concat)(kn_tensor *const x[], int n_x, int axis) {
    const kn_op op = KN_OP_concat;
    if (n_x < 1 || n_x > KN_OP_INPUTS_MAX) {
        return kn_op_fail(op, KN_ERR_INVALID, "n_x is %d; it must be 1 … %d", n_x,
                          KN_OP_INPUTS_MAX);
    }
    if (!kn__inputs_check(op, "x", x, n_x, 0) || !kn__axis(&axis, op, x[0], axis)) return NULL;
    kn_shape shape = kn_tensor_shape(x[0]);
    if (!joins(&shape, x, n_x, axis)) return NULL;
    kn_attr_move attr = {{axis}, {0}};
    kn_op_call call = {.op = op,
                       .n_in = n_x,
                       .in = x,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)x[0]->dtype,
                       .shape = shape};
    return kn_op_run(&call);
}

kn_tensor *(kn_cast)(kn_tensor *x, kn_dtype dtype) {
    if (!kn__inputs_check(KN_OP_cast, "x", &x, 1, 0)) return NULL;
    if (!kn_dtype_bytes(dtype)) {
        return kn__fail_inputs(KN_OP_cast, "x", &x, 1, KN_ERR_DTYPE, "%d is no dtype", (int)dtype);
    }
    if (x->dtype == dtype) return kn__op_same(x);
    kn_op_call call = {
        .op = KN_OP_cast, .n_in = 1, .in = &x, .dtype = dtype, .shape = kn_tensor_shape(x)};
    return kn_op_run(&call);
}
