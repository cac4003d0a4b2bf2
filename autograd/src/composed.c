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

static kn_tensor *cube(kn_tensor *z) { return kn_mul(kn_square(z), z); }

COMPOSED(reciprocal) {
    UNUSED;
    return kn_mul(kn_affine(u, 2, 0), cube(z));
}

COMPOSED(rsqrt) {
    UNUSED;
    return kn_mul(kn_affine(u, 0.75, 0), kn_mul(cube(z), kn_square(z)));
}

static const double ln2 = 0.69314718055994531, ln10 = 2.3025850929940457, pi = 3.1415926535897932;

COMPOSED(exp2) {
    UNUSED;
    return kn_mul(u, kn_affine(z, ln2 * ln2, 0));
}

COMPOSED(exp10) {
    UNUSED;
    return kn_mul(u, kn_affine(z, ln10 * ln10, 0));
}

COMPOSED(expm1) {
    UNUSED;
    return kn_mul(u, kn_affine(z, 1, 1));
}

COMPOSED(log2) {
    UNUSED;
    return kn_div(u, kn_affine(kn_square(x[0]), -ln2, 0));
}

COMPOSED(log10) {
    UNUSED;
    return kn_div(u, kn_affine(kn_square(x[0]), -ln10, 0));
}

COMPOSED(log1p) {
    UNUSED;
    return kn_neg(kn_div(u, kn_square(kn_affine(x[0], 1, 1))));
}

COMPOSED(sin) {
    UNUSED;
    return kn_neg(kn_mul(u, kn_sin(x[0])));
}

COMPOSED(cos) {
    UNUSED;
    return kn_neg(kn_mul(u, kn_cos(x[0])));
}

COMPOSED(tan) {
    UNUSED;
    return kn_mul(kn_affine(u, 2, 0), kn_add(z, cube(z)));
}

COMPOSED(sinh) {
    UNUSED;
    return kn_mul(u, kn_sinh(x[0]));
}

COMPOSED(cosh) {
    UNUSED;
    return kn_mul(u, kn_cosh(x[0]));
}

COMPOSED(sech) {
    UNUSED;
    return kn_mul(u, kn_sub(z, kn_affine(cube(z), 2, 0)));
}

COMPOSED(csch) {
    UNUSED;
    return kn_mul(u, kn_add(z, kn_affine(cube(z), 2, 0)));
}

COMPOSED(coth) {
    UNUSED;
    return kn_mul(kn_div(kn_affine(u, 2, 0), kn_tanh(x[0])), kn_square(kn_csch(x[0])));
}

COMPOSED(cot) { return tan_second(i, j, u, x, z, attr); }

COMPOSED(sinpi) {
    UNUSED;
    return kn_mul(u, kn_affine(kn_sinpi(x[0]), -pi * pi, 0));
}

COMPOSED(cospi) {
    UNUSED;
    return kn_mul(u, kn_affine(kn_cospi(x[0]), -pi * pi, 0));
}

COMPOSED(erfc) { /* u·4x/√π·e^(-x²) */
    UNUSED;
    return kn_mul(u,
                  kn_mul(kn_affine(x[0], 2.2567583341910251, 0), kn_exp(kn_neg(kn_square(x[0])))));
}

COMPOSED(erf) { return kn_neg(erfc_second(i, j, u, x, z, attr)); }

COMPOSED(softplus) {
    UNUSED;
    return kn_mul(u, kn_mul(kn_sigm(x[0]), kn_sigm(kn_neg(x[0]))));
}

COMPOSED(pow_scalar) {
    UNUSED;
    double p = attr->a;
    if (p == 0 || p == 1) return kn_filled_like(u, 0); /* where x is 0, too */
    kn_tensor *power = kn_pow_scalar(x[0], p - 2);
    return kn_mul(u, kn_affine(power, p * (p - 1), 0));
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
        return kn_where(kn_eq(factor, zero), zero, all);
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
