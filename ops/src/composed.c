/* Public pointwise functions that are composed of rows. */
#include <float.h>
#include <math.h>

#include "run.h"

static const double pi = 3.1415926535897932;

kn_tensor *kn__constant_like(const kn_tensor *x, double value) {
    if (!x || x == KN_NONE) return NULL;
    return kn__filled(x, value, (kn_dtype)x->dtype, KN_SCALAR);
}

static kn_tensor *scaled(kn_tensor *x, double by) { return kn_affine(x, by, 0); }
static kn_tensor *inverse(kn_tensor *x) { return kn_reciprocal(x); }
/* x/180, rounded once: sinpi of a multiple of 90 degrees is exact. */
static kn_tensor *half_turns(kn_tensor *x) { return kn_div(x, kn__constant_like(x, 180)); }
/* The same angle in [-180, 180], exactly. */
static kn_tensor *reduced(kn_tensor *x) {
    kn_tensor *below = kn_fmod(x, kn__constant_like(x, 360));
    return kn_sub(below, scaled(kn_round(scaled(below, 1 / 360.0)), 360));
}
/* Of the angle in [-90, 90] that has the same sine; of an angle's distance from 90. Both are
 * differences of numbers of which one is at most twice the other, or sums that stay below 90. */
static kn_tensor *sine(kn_tensor *x) {
    return x ? kn_sinpi(half_turns(kn_sub(scaled(kn_clamp(x, -90, 90), 2), x))) : NULL;
}
/* Near 0, where |x| has no second derivative, 1 - 2·sin²(x/2). */
static kn_tensor *cosine(kn_tensor *x) {
    if (!x) return NULL;
    kn_tensor *size = kn_abs(x), *half = scaled(half_turns(x), 0.5);
    kn_tensor *near = kn_affine(kn_square(kn_sinpi(half)), -2, 1);
    return kn_where(kn_lt(size, kn__constant_like(x, 45)), near,
                    kn_sinpi(half_turns(kn_affine(size, -1, 90))));
}

#define COMPOSED(name, value)                                                                      \
    kn_tensor *kn_##name(kn_tensor *x) {                                                           \
        KN__AS(#name, "x");                                                                        \
        KN__FRAME_INSIDE();                                                                        \
        return kn__given(value);                                                                   \
    }

/* f32 for 16 bits, whose range and digits what comes between x and the result would leave. */
static kn_tensor *widened(kn_tensor *x) {
    bool is_wide = !x || x == KN_NONE || (x->dtype != KN_F16 && x->dtype != KN_BF16);
    return is_wide ? x : kn_cast(x, KN_F32);
}
static kn_tensor *narrowed(kn_tensor *y, const kn_tensor *x) {
    return !y || y->dtype == x->dtype ? y : kn_cast(y, (kn_dtype)x->dtype);
}
#define COMPOSED_WIDE(name, value)                                                                 \
    kn_tensor *kn_##name(kn_tensor *x) {                                                           \
        KN__AS(#name, "x");                                                                        \
        KN__FRAME_INSIDE();                                                                        \
        const kn_tensor *whole = x;                                                                \
        x = widened(x);                                                                            \
        return kn__given(narrowed(value, whole));                                                  \
    }

COMPOSED_WIDE(sec, inverse(kn_cos(x)))
COMPOSED_WIDE(csc, inverse(kn_sin(x)))

COMPOSED(deg2rad, scaled(x, pi / 180))
COMPOSED(rad2deg, scaled(x, 180 / pi))
COMPOSED_WIDE(sind, sine(reduced(x)))
COMPOSED_WIDE(cosd, cosine(reduced(x)))
COMPOSED_WIDE(tand, kn_div(kn_sind(x), kn_cosd(x)))
COMPOSED_WIDE(secd, inverse(kn_cosd(x)))
COMPOSED_WIDE(cscd, inverse(kn_sind(x)))
COMPOSED_WIDE(cotd, kn_div(kn_cosd(x), kn_sind(x)))
COMPOSED(asind, kn_rad2deg(kn_asin(x)))
COMPOSED(acosd, kn_rad2deg(kn_acos(x)))
COMPOSED(atand, kn_rad2deg(kn_atan(x)))
COMPOSED(asecd, kn_rad2deg(kn_asec(x)))
COMPOSED(acscd, kn_rad2deg(kn_acsc(x)))
COMPOSED(acotd, kn_rad2deg(kn_acot(x)))

COMPOSED(digamma, kn_polygamma(x, 0))
COMPOSED(trigamma, kn_polygamma(x, 1))
COMPOSED(besselj0, kn_besselj(x, 0))
COMPOSED(besselj1, kn_besselj(x, 1))
COMPOSED(bessely0, kn_bessely(x, 0))
COMPOSED(bessely1, kn_bessely(x, 1))

COMPOSED_WIDE(tanhshrink, kn_sub(x, kn_tanh(x)))
COMPOSED(relu6, kn_hardtanh(x, 0, 6))
COMPOSED_WIDE(logit, kn_sub(kn_log(x), kn_log1p(kn_neg(x))))

/* |x| + softplus(-2|x|) - ln 2; near 0, where that is a difference, log(1 + sinh²x)/2. */
static kn_tensor *log_cosh(kn_tensor *x) {
    kn_tensor *size = kn_abs(x);
    kn_tensor *far = kn_affine(kn_softplus(scaled(size, -2)), 1, -0.69314718055994531);
    kn_tensor *near = kn_log1p(kn_square(kn_sinh(kn_clamp(x, -1, 1))));
    return kn_where(kn_lt(size, kn__constant_like(x, 1)), scaled(near, 0.5), kn_add(far, size));
}
COMPOSED_WIDE(log_cosh, log_cosh(x))

double kn__largest(kn_dtype dtype) {
    return dtype == KN_F64    ? DBL_MAX
           : dtype == KN_F16  ? 65504
           : dtype == KN_BF16 ? 0x1.FEp127
                              : (double)FLT_MAX;
}

/* `value`, or the finite number of x's dtype nearest to it; an infinity stays. */
static double in_range(const kn_tensor *x, double value) {
    double most = kn__largest((kn_dtype)x->dtype);
    return isfinite(value) && fabs(value) > most ? copysign(most, value) : value;
}

/* The numbers in their places are chosen first: no result on the way is infinite or NaN. */
kn_tensor *kn_nan_to_num(kn_tensor *x, double nan, double above, double below) {
    KN__AS("nan_to_num", "x");
    if (!kn__check_readable(KN_OP_isnan, &x, 1)) return NULL;
    if (!(KN_CLASS_FLOAT >> x->dtype & 1)) return kn__op_copy(x);
    KN__FRAME_INSIDE();
    kn_tensor *up = kn__constant_like(x, in_range(x, above));
    kn_tensor *down = kn__constant_like(x, in_range(x, below));
    kn_tensor *y = kn_where(kn_gt(x, kn__constant_like(x, 0)), up, down);
    y = kn_where(kn_isnan(x), kn__constant_like(x, in_range(x, nan)), y);
    return kn__given(kn_where(kn_isfinite(x), x, y));
}

/* By three powers of two, none of which overflows or loses digits. The last one is as large as it
 * can be, so that a result below the least normal number is rounded once. */
kn_tensor *kn_ldexp(kn_tensor *x, kn_tensor *n) {
    KN__AS("ldexp", "x", "n");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_mul, NULL, KN_LIST_(x, n), 2);
    if (!kn__check_inputs(&call)) return NULL;
    KN__FRAME_INSIDE();
    if (n->dtype != x->dtype) n = widened(n); /* autocast would cast its powers, cut off */
    int digits = n->dtype == KN_F64 ? 1023 : n->dtype == KN_F16 ? 15 : 127;
    double lo = 1 - digits, hi = digits;
    kn_tensor *last = kn_clamp(n, lo, hi), *rest = kn_sub(n, last);
    kn_tensor *middle = kn_clamp(rest, lo, hi);
    kn_tensor *first = kn_clamp(kn_sub(rest, middle), lo, hi);
    x = kn_mul(kn_mul(x, kn_exp2(first)), kn_exp2(middle));
    return kn__given(kn_mul(x, kn_exp2(last)));
}

/* |a - b| of integers in f64: of i64 their own difference, rounded once, where it can't wrap. */
static kn_tensor *distance(kn_tensor *a, kn_tensor *b) {
    kn_tensor *wide = kn_abs(kn_sub(kn_cast(a, KN_F64), kn_cast(b, KN_F64)));
    if (a->dtype != KN_I64) return wide;
    kn_tensor *own = kn_cast(kn_abs(kn_sub(a, b)), KN_F64);
    return kn_where(kn_lt(wide, kn__constant_like(wide, 0x1p62)), own, wide);
}

kn_tensor *kn_isclose(kn_tensor *a, kn_tensor *b, double rtol, double atol) {
    KN__AS("isclose", "a", "b");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_eq, NULL, KN_LIST_(a, b), 2);
    if (!kn__check_inputs(&call)) return NULL;
    KN__FRAME_INSIDE();
    if (!(KN_CLASS_FLOAT >> b->dtype & 1)) {
        kn_tensor *most = kn_affine(kn_abs(kn_cast(b, KN_F64)), rtol, atol);
        return kn__given(kn_logical_or(kn_eq(a, b), kn_le(distance(a, b), most)));
    }
    a = widened(a), b = widened(b);
    kn_tensor *off = kn_abs(kn_sub(a, b)), *most = kn_affine(kn_abs(b), rtol, atol);
    kn_tensor *finite = kn_logical_and(kn_isfinite(a), kn_isfinite(b));
    kn_tensor *near = kn_logical_and(kn_le(off, most), finite);
    return kn__given(kn_logical_or(kn_eq(a, b), near));
}

kn_tensor *kn_all_close(kn_tensor *a, kn_tensor *b, double rtol, double atol) {
    KN__AS("all_close", "a", "b");
    KN__FRAME_INSIDE();
    return kn__given(kn_all(kn_isclose(a, b, rtol, atol), KN_ALL, false));
}
