/* The public functions of ops.def's rows, and tensors made from a single value. */
#include <math.h>
#include <string.h>

#include "run.h"

#define ATTR_0 NULL
#define ATTR_1                                                                                     \
    &(kn_attr_scalars) { p, 0 }
#define ATTR_2                                                                                     \
    &(kn_attr_scalars) { p, q }
#define PARAMS_0
#define PARAMS_1 , double p
#define PARAMS_2 , double p, double q

/* A power whose gradient has a short form too. */
static inline kn_op shortest(kn_op op, double p) {
    if (op != KN_OP_pow_scalar) return op;
    if (p == 0.5) return KN_OP_sqrt;
    if (p == -0.5) return KN_OP_rsqrt;
    return p == -1 ? KN_OP_reciprocal : op;
}
static kn_tensor *power(kn_op op, kn_tensor *x, double p) {
    KN__AS("pow_scalar");
    return kn__row1(op, x, ATTR_1);
}

/* Of the rows whose parameter is an order: an integer, of polygamma not negative. Their kernels
 * round it. */
static bool order_fits(kn_op op, double n) {
    bool is_polygamma = op == KN_OP_polygamma;
    if (nearbyint(n) == n && !(is_polygamma && n < 0)) return true;
    kn_op_fail(op, KN_ERR_INVALID, "n is %.15g; it must be an integer%s", n,
               is_polygamma ? " of at least 0" : "");
    return false;
}
static inline bool has_order(kn_op op) {
    return op == KN_OP_polygamma || op == KN_OP_besselj || op == KN_OP_bessely;
}

static inline bool has_limits(kn_op op) { return op == KN_OP_clamp || op == KN_OP_hardtanh; }
/* A distance. */
static bool distance_fits(kn_op op, kn_tensor *x, double p) {
    return p >= 0 || kn__fail_invalid(op, x, "p is %g; it must be at least 0", p);
}
/* Orders and distances are checked. NaN means no limit; integers have no NaN, so it becomes an
 * infinity. */
#define LIMITS_0(op)
#define LIMITS_1(op)                                                                               \
    if (op == KN_OP_softshrink && !distance_fits(op, x, p)) return NULL;                           \
    if (has_order(op) && !order_fits(op, p)) return NULL;                                          \
    if (shortest(op, p) != op) return power(shortest(op, p), x, p);
#define LIMITS_2(op)                                                                               \
    if (has_limits(op) && p != p) p = -INFINITY;                                                   \
    if (has_limits(op) && q != q) q = INFINITY;

#define KN_ROW1(name, s, ...)                                                                      \
    kn_tensor *kn_##name(kn_tensor *x PARAMS_##s) {                                                \
        LIMITS_##s(KN_OP_##name) return kn__row1(KN_OP_##name, x, ATTR_##s);                       \
    }
#define KN_ROW2(name, s, ...)                                                                      \
    kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y PARAMS_##s) {                                  \
        return kn__row2(KN_OP_##name, x, y, ATTR_##s);                                             \
    }
#define KN_ROW3(name, s, ...)                                                                      \
    kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y, kn_tensor *w PARAMS_##s) {                    \
        return kn__row3(KN_OP_##name, x, y, w, ATTR_##s);                                          \
    }
#define KN_COMPARE(name, ...)                                                                      \
    kn_tensor *kn_##name(kn_tensor *x, kn_tensor *y) { return kn__row2(KN_OP_##name, x, y, NULL); }
#define KN_COMPARE1(name, ...)                                                                     \
    kn_tensor *kn_##name(kn_tensor *x) { return kn__row1(KN_OP_##name, x, NULL); }
#include <knet/ops.def>

/* --- from a value --- */

bool kn__infer_make(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    call->dtype = (uint8_t)attr->dtype;
    return kn__shaped(call, 0, attr->n_dims, attr->dim);
}

static kn_attr_make make_attr(const kn_shape *shape, kn_dtype dtype, double value) {
    kn_attr_make attr = {.a = value, .n_dims = shape->n_dims, .dtype = (int32_t)dtype};
    memcpy(attr.dim, shape->dim, sizeof attr.dim);
    return attr;
}

kn_tensor *kn_full(kn_shape shape, double value) {
    KN__AS("full");
    kn_attr_make attr = make_attr(&shape, kn_frame_dtype(), value);
    return kn_op_call_run(KN_OP_fill, &attr, NULL, 0);
}

kn_tensor *kn_zeros(kn_shape shape) {
    KN__AS("zeros");
    return kn_full(shape, 0);
}

kn_tensor *kn_ones(kn_shape shape) {
    KN__AS("ones");
    return kn_full(shape, 1);
}

kn_tensor *kn__filled(const kn_tensor *x, double value, kn_dtype dtype, kn_shape shape) {
    kn_attr_make attr = make_attr(&shape, dtype, value);
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_fill, &attr, NULL, 0);
    call.device = x->storage->device;
    return kn_op_run(&call);
}

kn_tensor *kn_filled_like(const kn_tensor *like, double value) {
    if (!like) return kn_op_fail(KN_OP_fill, KN_ERR_INVALID, "like is NULL");
    return kn__filled(like, value, (kn_dtype)like->dtype, kn_tensor_shape(like));
}

kn_tensor *kn_full_like(kn_tensor *x, double value) {
    KN__AS("full_like", "x");
    return kn__check_readable(KN_OP_neg, &x, 1) ? kn_filled_like(x, value) : NULL;
}
kn_tensor *kn_zeros_like(kn_tensor *x) {
    KN__AS("zeros_like", "x");
    return kn_full_like(x, 0);
}
kn_tensor *kn_ones_like(kn_tensor *x) {
    KN__AS("ones_like", "x");
    return kn_full_like(x, 1);
}

/* --- relu's and a bias's gradient in one: dx, and its sum over all axes but one --- */

bool kn__infer_relu_bias_back(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *y = call->in[0];
    uint32_t kept = ((1u << y->n_dims) - 1) & ~attr->mask;
    if (!kn__same_shape(y, call->in[1]) || y->n == 0 || !kept || (kept & (kept - 1))) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "y and g must be alike and not empty, one axis is kept");
    }
    return kn__like(call, 0, y) && kn__shaped(call, 1, 1, &y->dim[__builtin_ctz(kept)]);
}

/* --- in place --- */

kn_status kn_fill_into(kn_tensor *x, double value) {
    KN_TRY(kn_check());
    if (!kn__is_whole(x)) return kn__fail_unreadable("kn_fill_into: x", x);
    kn_shape shape = kn_tensor_shape(x);
    kn_attr_make attr = make_attr(&shape, (kn_dtype)x->dtype, value);
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_fill, &attr, NULL, 0);
    call.device = x->storage->device;
    return kn__run_into(&call, x);
}

kn_status kn_add_into(kn_tensor *x, kn_tensor *y) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_add, NULL, (kn_tensor *const[]){x, y}, 2);
    return kn__run_into(&call, x);
}
