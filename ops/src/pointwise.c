/* Pointwise ops: checks, shapes, and what is made from nothing but a value. */
#include <string.h>

#include "run.h"

/* --- one input --- */

static kn_tensor *unary(kn_op op, kn_tensor *x, const void *attr, size_t attr_bytes) {
    if (!kn__floats_check(op, "x", &x, 1, 0)) return NULL;
    kn_op_call call;
    kn__call_init(&call, op, &x, 1, (kn_dtype)x->dtype);
    kn__shape_copy(&call.shape, x);
    call.attr = attr;
    call.attr_bytes = attr_bytes;
    return kn_op_run(&call);
}

#define KN_UNARY(name, formula, saves, gradient)                                                   \
    kn_tensor *(kn_##name)(kn_tensor * x) { return unary(KN_OP_##name, x, NULL, 0); }
#include <knet/ops.def>

kn_tensor *(kn_affine)(kn_tensor *x, double scale, double shift) {
    kn_attr_scalars attr = {scale, shift};
    return unary(KN_OP_affine, x, &attr, sizeof attr);
}

kn_tensor *(kn_pow_scalar)(kn_tensor *x, double p) {
    kn_attr_scalars attr = {p, 0};
    return unary(KN_OP_pow_scalar, x, &attr, sizeof attr);
}

kn_tensor *kn_unary_back(kn_op back_op, kn_tensor *s, kn_tensor *g) {
    kn_tensor *in[] = {s, g};
    if (!kn__floats_check(back_op, "s g", in, 2, 0)) return NULL;
    if (!kn__same_shape(s, g)) {
        return kn__fail_inputs(back_op, "s g", in, 2, KN_ERR_SHAPE, "shapes differ");
    }
    kn_op_call call;
    kn__call_init(&call, back_op, in, 2, (kn_dtype)s->dtype);
    kn__shape_copy(&call.shape, s);
    return kn_op_run(&call);
}

kn_tensor *kn_relu_bias_back(kn_tensor *y, kn_tensor *g, int axis, kn_tensor *db, bool accumulate) {
    const kn_op op = KN_OP_relu_bias_back;
    kn_tensor *in[] = {y, g, db};
    if (!kn__floats_check(op, "y g db", in, 3, 0) || !kn__axis(&axis, op, y, axis)) return NULL;
    if (!kn__same_shape(y, g) || y->n == 0 || db->n != y->dim[axis]) {
        return kn__fail_inputs(op, "y g db", in, 3, KN_ERR_SHAPE,
                               "y and g must be alike and not empty, db [%lld]",
                               (long long)y->dim[axis]);
    }
    kn_attr_axes attr = {((1u << y->n_dims) - 1) & ~(1u << axis), false};
    kn_op_call call = {.op = op,
                       .n_in = 2,
                       .in = in,
                       .aux = db,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)y->dtype,
                       .shape = kn_tensor_shape(y),
                       .accumulate = accumulate};
    return kn_op_run(&call);
}

/* --- two inputs, broadcast --- */

/* Both whole, of one device and floating dtype: what nearly every call has. */
static inline bool plainly_fine(const kn_tensor *a, const kn_tensor *b) {
    return kn__is_whole(a) && kn__is_whole(b) && a->dtype == b->dtype &&
           (a->dtype == KN_F32 || a->dtype == KN_F64) && a->storage->device == b->storage->device;
}

static kn_tensor *binary(kn_op op, kn_tensor *a, kn_tensor *b, kn_dtype dtype) {
    kn_tensor *in[] = {a, b};
    if (!plainly_fine(a, b) && !kn__floats_check(op, "a b", in, 2, 0)) return NULL;
    kn_op_call call;
    kn__call_init(&call, op, in, 2, dtype ? dtype : (kn_dtype)a->dtype);
    kn__shape_copy(&call.shape, a);
    if (!kn__same_shape(a, b)) {
        kn_shape b_shape = kn_tensor_shape(b);
        if (!kn__broadcast_shape(&call.shape, &call.shape, &b_shape)) {
            return kn__fail_inputs(op, "a b", in, 2, KN_ERR_SHAPE, "shapes don't broadcast");
        }
    }
    return kn_op_run(&call);
}

#define KN_BINARY(name, formula)                                                                   \
    kn_tensor *(kn_##name)(kn_tensor * a, kn_tensor * b) { return binary(KN_OP_##name, a, b, 0); }
#define KN_COMPARE(name, formula)                                                                  \
    kn_tensor *(kn_##name)(kn_tensor * a, kn_tensor * b) {                                         \
        return binary(KN_OP_##name, a, b, KN_BOOL);                                                \
    }
#include <knet/ops.def>

kn_tensor *(kn_where)(kn_tensor *condition, kn_tensor *a, kn_tensor *b) {
    kn_tensor *in[] = {condition, a, b};
    if (!kn__inputs_check(KN_OP_where, "condition a b", in, 3, 0)) return NULL;
    if (!kn__floats_check(KN_OP_where, "a b", in + 1, 2, 0)) return NULL;
    if (condition->dtype != KN_BOOL) {
        return kn__fail_inputs(KN_OP_where, "condition a b", in, 3, KN_ERR_DTYPE,
                               "condition is %s; it must be bool",
                               kn_dtype_name((kn_dtype)condition->dtype));
    }
    kn_shape shape = kn_tensor_shape(a), b_shape = kn_tensor_shape(b),
             condition_shape = kn_tensor_shape(condition);
    if (!kn__broadcast_shape(&shape, &shape, &b_shape) ||
        !kn__broadcast_shape(&shape, &shape, &condition_shape)) {
        return kn__fail_inputs(KN_OP_where, "condition a b", in, 3, KN_ERR_SHAPE,
                               "shapes don't broadcast");
    }
    kn_op_call call = {
        .op = KN_OP_where, .n_in = 3, .in = in, .dtype = (kn_dtype)a->dtype, .shape = shape};
    return kn_op_run(&call);
}

/* --- from a value, and in place --- */

kn_tensor *(kn_full)(kn_shape shape, double value) {
    kn_attr_scalars attr = {value, 0};
    kn_op_call call = {.op = KN_OP_fill,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = kn_frame_dtype(),
                       .shape = shape,
                       .device = kn_frame_device()};
    return kn_op_run(&call);
}

kn_tensor *(kn_zeros)(kn_shape shape) { return (kn_full)(shape, 0); }
kn_tensor *(kn_ones)(kn_shape shape) { return (kn_full)(shape, 1); }

/* In place: the status of a call whose result is its own argument. */
static kn_status run_into(kn_op_call *call) {
    KN_TRY(kn_check());
    return kn_op_run(call) ? KN_OK : kn_check();
}

kn_status kn_fill_into(kn_tensor *x, double value) {
    KN_TRY(kn_check());
    if (!kn__inputs_check(KN_OP_fill, "x", &x, 1, 0)) return kn_check();
    kn_attr_scalars attr = {value, 0};
    kn_op_call call = {.op = KN_OP_fill,
                       .out = x,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .device = x->storage->device};
    return run_into(&call);
}

kn_status kn_add_into(kn_tensor *x, kn_tensor *y) {
    KN_TRY(kn_check());
    kn_tensor *in[] = {x, y};
    if (!kn__floats_check(KN_OP_add_into, "x y", in, 2, 0)) return kn_check();
    if (!kn__same_shape(x, y)) {
        kn__fail_inputs(KN_OP_add_into, "x y", in, 2, KN_ERR_SHAPE, "shapes differ");
        return kn_check();
    }
    kn_op_call call = {.op = KN_OP_add_into, .n_in = 1, .in = &y, .out = x};
    return run_into(&call);
}
