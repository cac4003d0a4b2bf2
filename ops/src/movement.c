/* Movement: views where elements keep their order, copies elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* --- reshape: a view --- */

bool kn__infer_reshape(kn_op_call *call) {
    const kn_attr_shape *attr = call->attr;
    return kn__view(call, 0, call->in[0], (int)attr->n_dims, attr->dim, 0);
}

/* Fills in the one dimension that may be -1; false with the error pending when shapes don't fit. */
static bool reshaped(kn_shape *shape, const kn_op_call *call) {
    const kn_tensor *x = call->in[0];
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
    return kn_op_call_fail(call, KN_ERR_SHAPE, "%lld elements don't make %s", (long long)x->n,
                           kn_shape_text(text, sizeof text, *shape));
}

kn_tensor *kn_reshape(kn_tensor *x, kn_shape shape) {
    kn_attr_shape attr;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_reshape, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_reshape, &x, 1) || !reshaped(&shape, &call)) return NULL;
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    attr.n_dims = shape.n_dims;
    return kn_op_run(&call);
}

kn_tensor *kn_flatten(kn_tensor *x) {
    KN__AS("flatten");
    if (!kn__check_readable(KN_OP_reshape, &x, 1)) return NULL;
    int64_t rows = x->n_dims ? x->dim[0] : 1, rest = 1;
    for (int i = 1; i < x->n_dims; i++) rest *= x->dim[i];
    return kn_reshape(x, KN_SHAPE(rows, rest));
}

/* --- slices: a view where only the first dimension is cut --- */

static bool box_fits(const kn_op_call *call, const int64_t dim[]) {
    const kn_attr_box *attr = call->attr;
    for (int i = 0; i < call->in[0]->n_dims; i++) {
        int64_t from = attr->start[i], to = from + attr->size[i];
        if (from >= 0 && to >= from && to <= dim[i]) continue;
        return kn_op_call_fail(call, KN_ERR_SHAPE, "%lld … %lld is no range of dimension %d",
                               (long long)from, (long long)to, i);
    }
    return true;
}

bool kn__infer_slice(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    kn_tensor *x = call->in[0];
    if (!box_fits(call, x->dim)) return false;
    bool is_run = !call->given;
    for (int i = 1; i < x->n_dims; i++) is_run = is_run && attr->size[i] == x->dim[i];
    if (!is_run) return kn__shaped(call, 0, x->n_dims, attr->size);
    int64_t row = x->n_dims && x->dim[0] ? x->n / x->dim[0] : 0;
    return kn__view(call, 0, x, x->n_dims, attr->size, attr->start[0] * row);
}

kn_tensor *kn_slice(kn_tensor *x, kn_shape start, kn_shape stop) {
    kn_attr_box attr = {{0}, {0}};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_slice, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_slice, &x, 1)) return NULL;
    if (start.n_dims != x->n_dims || stop.n_dims != x->n_dims) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "start has %d entries, stop %d, x %d", start.n_dims,
                        stop.n_dims, x->n_dims);
        return NULL;
    }
    for (int i = 0; i < x->n_dims; i++) {
        attr.start[i] = start.dim[i];
        if (__builtin_sub_overflow(stop.dim[i], start.dim[i], &attr.size[i])) attr.size[i] = -1;
    }
    return kn_op_run(&call);
}

bool kn__infer_slice_back(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    const kn_tensor *g = call->in[0];
    for (int i = 0; i < g->n_dims; i++) {
        if (attr->start[i] >= 0 && attr->start[i] <= attr->size[i] - g->dim[i]) continue;
        char text[256];
        kn_shape shape = {.n_dims = g->n_dims};
        memcpy(shape.dim, attr->size, sizeof shape.dim);
        return kn_op_call_fail(call, KN_ERR_SHAPE, "g is no slice of %s",
                               kn_shape_text(text, sizeof text, shape));
    }
    return kn__shaped(call, 0, g->n_dims, attr->size);
}

/* --- copies in another order --- */

bool kn__infer_transpose(kn_op_call *call) {
    const kn_attr_transpose *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int64_t dim[KN_DIMS_MAX];
    uint32_t seen = 0;
    for (int i = 0; i < x->n_dims; i++) {
        int64_t axis = attr->axis[i];
        if (seen >> axis & 1) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d is named twice", (int)axis);
        }
        seen |= 1u << axis;
        dim[i] = x->dim[axis];
    }
    return kn__shaped(call, 0, x->n_dims, dim);
}

kn_tensor *kn__op_copy(kn_tensor *x) {
    kn_attr_transpose attr = {{0}};
    for (int i = 0; i < x->n_dims; i++) attr.axis[i] = i;
    return KN_CALL(transpose, &attr, x);
}

kn_tensor *kn_transpose(kn_tensor *x, kn_shape axes) {
    kn_attr_transpose attr = {{0}};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_transpose, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_transpose, &x, 1)) return NULL;
    bool reverse = axes.n_dims == KN_ALL.n_dims;
    if (!reverse && axes.n_dims != x->n_dims) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "axes has %d entries", axes.n_dims);
        return NULL;
    }
    for (int i = 0; i < x->n_dims; i++) {
        int axis;
        if (!kn__axis(&axis, &call, x, reverse ? x->n_dims - 1 - i : axes.dim[i])) return NULL;
        attr.axis[i] = axis;
    }
    return kn_op_run(&call);
}

kn_tensor *kn_copy(kn_tensor *x) {
    KN__AS("copy", "x");
    return kn__check_readable(KN_OP_transpose, &x, 1) ? kn__op_copy(x) : NULL;
}

kn_tensor *kn_swap_axes(kn_tensor *x, int a, int b) {
    KN__AS("swap_axes", "x");
    if (!kn__axis_of(&a, KN_OP_transpose, x) || !kn__axis_of(&b, KN_OP_transpose, x)) return NULL;
    kn_shape axes = {.n_dims = x->n_dims};
    for (int i = 0; i < x->n_dims; i++) axes.dim[i] = i == a ? b : i == b ? a : i;
    return kn_transpose(x, axes);
}

kn_tensor *kn_move_axis(kn_tensor *x, int from, int to) {
    KN__AS("move_axis", "x");
    const kn_op op = KN_OP_transpose;
    if (!kn__axis_of(&from, op, x) || !kn__axis_of(&to, op, x)) return NULL;
    kn_shape axes = {.n_dims = x->n_dims};
    for (int i = 0, other = 0; i < x->n_dims; i++) {
        if (other == from) other++;
        axes.dim[i] = i == to ? from : other++;
    }
    return kn_transpose(x, axes);
}

bool kn__infer_concat(kn_op_call *call) {
    kn_attr_concat *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int axis = (int)attr->axis;
    int64_t dim[KN_DIMS_MAX];
    for (int d = 0; d < x->n_dims; d++) dim[d] = x->dim[d];
    dim[axis] = 0;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        bool fits = t->n_dims == x->n_dims;
        for (int d = 0; fits && d < x->n_dims; d++) fits = d == axis || t->dim[d] == x->dim[d];
        if (!fits || __builtin_add_overflow(dim[axis], t->dim[axis], &dim[axis])) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "x[%d] does not fit x[0] beside axis %d", i,
                                   axis);
        }
        attr->size[i] = t->dim[axis];
    }
    return kn__shaped(call, 0, x->n_dims, dim);
}

/* One matrix after the other, each right of and below the last one. */
bool kn__infer_block_diag(kn_op_call *call) {
    kn_attr_concat *attr = call->attr;
    int64_t dim[2] = {0, 0};
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        if (t->n_dims != 2)
            return kn_op_call_fail(call, KN_ERR_SHAPE, "x[%d] has %d dimensions, not 2", i,
                                   t->n_dims);
        for (int d = 0; d < 2; d++) {
            attr->size[2 * i + d] = t->dim[d];
            if (__builtin_add_overflow(dim[d], t->dim[d], &dim[d]))
                return kn_op_call_fail(call, KN_ERR_SHAPE, "x[%d] makes the result too large", i);
        }
    }
    return kn__shaped(call, 0, 2, dim);
}

/* An op on many tensors, whose attribute has `sizes` numbers for each. */
static kn_tensor *joined(kn_op op, kn_tensor *const x[], int n_x, int axis, int sizes) {
    if (kn_pending()) return NULL;
    if (n_x < 1 || n_x > UINT16_MAX) {
        return kn_op_fail(op, KN_ERR_INVALID, "n_x is %d; it must be 1 … %d", n_x, UINT16_MAX);
    }
    if (!x) return kn_op_fail(op, KN_ERR_INVALID, "x is NULL");
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, x, n_x);
    if (!kn__check_readable(op, x, 1)) return NULL;
    if (op == KN_OP_concat && !kn__axis(&axis, &call, x[0], axis)) return NULL;
    call.attr_bytes = sizeof(kn_attr_concat) + (size_t)(sizes * n_x) * sizeof(int64_t);
    kn_attr_concat *attr = call.attr = malloc(call.attr_bytes);
    if (!attr) return kn_op_fail(op, KN_ERR_OOM, "no host memory for %d inputs", n_x);
    attr->axis = axis;
    kn_tensor *y = kn_op_run(&call);
    free(attr);
    return y;
}

kn_tensor *kn_concat(kn_tensor *const x[], int n_x, int axis) {
    return joined(KN_OP_concat, x, n_x, axis, 1);
}

kn_tensor *kn_block_diag(kn_tensor *const x[], int n_x) {
    return joined(KN_OP_block_diag, x, n_x, 0, 2);
}

/* --- dtypes --- */

bool kn__infer_cast(kn_op_call *call) {
    call->dtype = (uint8_t)((const kn_attr_cast *)call->attr)->dtype;
    return kn__like(call, 0, call->in[0]);
}

kn_tensor *kn_cast(kn_tensor *x, kn_dtype dtype) {
    kn_attr_cast attr = {(int32_t)dtype};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_cast, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_cast, &x, 1)) return NULL;
    if (!kn_dtype_bytes(dtype)) {
        kn_op_call_fail(&call, KN_ERR_DTYPE, "%d is no dtype", (int)dtype);
        return NULL;
    }
    return x->dtype == dtype ? kn__op_same(x) : kn_op_run(&call);
}
