#include "composed.h"

/* Each is the formula that ops.def has for the second derivative. z is differentiated through the
 * op that made it. */
#define COMPOSED(name)                                                                             \
    static kn_tensor *name##_second(int i, int j, kn_tensor *u, kn_tensor *const x[],              \
                                    kn_tensor *z, const kn_attr_scalars *attr)
#define UNUSED (void)i, (void)j, (void)x, (void)z, (void)attr

COMPOSED(exp) {
    UNUSED;
    return kn_mul(u, z);
}

COMPOSED(log) {
    UNUSED;
    return kn_neg(kn_div(u, kn_mul(x[0], x[0])));
}

COMPOSED(sqrt) {
    UNUSED;
    return kn_div(u, kn_affine(kn_mul(kn_mul(z, z), z), -4, 0));
}

COMPOSED(sigm) {
    UNUSED;
    kn_tensor *slope = kn_mul(kn_mul(u, z), kn_affine(z, -1, 1));
    return kn_mul(slope, kn_affine(z, -2, 1));
}

COMPOSED(tanh) {
    UNUSED;
    kn_tensor *slope = kn_mul(u, kn_affine(kn_mul(z, z), -1, 1));
    return kn_mul(slope, kn_affine(z, -2, 0));
}

COMPOSED(pow_scalar) {
    UNUSED;
    double p = attr->a;
    kn_tensor *power = kn_pow_scalar(x[0], p - 2);
    return kn_mul(u, kn_affine(power, p == 0 || p == 1 ? 0 : p * (p - 1), 0));
}

COMPOSED(div) {
    UNUSED;
    kn_tensor *square = kn_mul(x[1], x[1]);
    if (i == 0) return kn_neg(kn_div(u, square));
    return kn_div(kn_mul(kn_affine(u, 2, 0), z), square);
}

/* 1 where t is `value`, so that powers and logarithms stay finite. */
static kn_tensor *one_where(kn_tensor *t, double value, kn_tensor *otherwise) {
    kn_tensor *v = t ? kn_filled_like(t, value) : NULL, *one = t ? kn_filled_like(t, 1) : NULL;
    return kn_where(kn_eq(t, v), one, otherwise);
}

COMPOSED(pow) {
    UNUSED;
    kn_tensor *a = x[0], *b = x[1], *less = kn_affine(b, 1, -1);
    if (j == 0) { /* b·(b - 1)·a^(b - 2), 0 where b is 0 or 1 */
        kn_tensor *factor = kn_mul(b, less), *zero = factor ? kn_filled_like(factor, 0) : NULL;
        kn_tensor *power = kn_pow(a, one_where(factor, 0, kn_affine(b, 1, -2)));
        kn_tensor *all = kn_mul(kn_mul(u, factor), power);
        return kn_where(kn_eq(factor, zero), kn_affine(all, 0, 0), all);
    }
    kn_tensor *log = kn_log(one_where(a, 0, a));
    if (i == 1) return kn_mul(kn_mul(u, z), kn_mul(log, log));
    return kn_mul(kn_mul(u, kn_pow(a, one_where(b, 0, less))), kn_affine(kn_mul(b, log), 1, 1));
}

#define NONE_second NULL
const kn__composed_fn kn__composed[KN_OP_COUNT] = {
#define KN_ROW1(name, s, domain, x, f, d0, d00, third) [KN_OP_##name] = third##_second,
#define KN_ROW2(name, s, domain, x, y, f, d0, d1, d00, d01, d11, third)                            \
    [KN_OP_##name] = third##_second,
#define KN_ROW3(name, s, domain, x, y, w, f, d0, d1, d2, d00, d01, d02, d11, d12, d22, third)      \
    [KN_OP_##name] = third##_second,
#include <knet/ops.def>
};
