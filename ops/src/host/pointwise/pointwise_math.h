/* The functions that ops.def's formulas name, of type T, `real`. Included by row_loops.c alone. */
#ifndef KN_POINTWISE_MATH_H
#define KN_POINTWISE_MATH_H

#include <math.h>

#include "host/base/loops.h"
#include "host/pointwise/math_f32.h"
#include "host/pointwise/math_f64.h"
#include "host/pointwise/special.h"

#define T real
/* In rows of domains ANGLE and TANGENT: the loop says whether any element is far. */
#define T_SIN(x) KN_OUR_FN(sin)(x, kn__far)
#define T_COS(x) KN_OUR_FN(cos)(x, kn__far)
#define T_TAN(x) KN_OUR_FN(tan)(x, kn__far)
#define KN_ANY_FAR(x, n) KN_OUR_FN(any_far)(x, n)
/* single instructions */
#define T_ABS(x) KN_REAL_FN(fabs)(x)
#define T_SQRT(x) KN_REAL_FN(sqrt)(x)
#define T_FLOOR(x) KN_REAL_FN(floor)(x)
#define T_CEIL(x) KN_REAL_FN(ceil)(x)
#define T_TRUNC(x) KN_REAL_FN(trunc)(x)
#define T_ROUND(x) KN_REAL_FN(nearbyint)(x)
#define T_COPYSIGN(x, y) KN_REAL_FN(copysign)(x, y)
/* ours, in loops that compilers vectorise */
#define T_EXP(x) KN_OUR_FN(exp)(x)
#define T_LOG(x) KN_OUR_FN(log)(x)
#define T_TANH(x) KN_OUR_FN(tanh)(x)
#define T_EXP2(x) KN_OUR_FN(exp2)(x)
#define T_EXPM1(x) KN_OUR_FN(expm1)(x)
#define T_LOG2(x) KN_OUR_FN(log2)(x)
#define T_LOG10(x) KN_OUR_FN(log10)(x)
#define T_LOG1P(x) KN_OUR_FN(log1p)(x)
#define T_ERF(x) KN_OUR_FN(erf)(x)
#define T_SIGM(x) KN_SIGM(x)
/* the same, of f32 by f64 */
#define T_ASIN(x) (T) kn__asin((double)(x), KN_IS_WIDE)
#define T_ACOS(x) (T) kn__acos((double)(x), KN_IS_WIDE)
#define T_ATAN(x) (T) kn__atan((double)(x), KN_IS_WIDE)
#define T_ATAN2(y, x) (T) kn__atan2((double)(y), (double)(x), KN_IS_WIDE)
#define T_SINPI(x) (T) kn__sinpi((double)(x), KN_IS_WIDE)
#define T_COSPI(x) (T) kn__cospi((double)(x), KN_IS_WIDE)
#define T_SINH(x) (T) kn__sinh((double)(x))
#define T_COSH(x) (T) kn__cosh((double)(x))
#define T_ASINH(x) (T) kn__asinh((double)(x))
#define T_ACOSH(x) (T) kn__acosh((double)(x))
#define T_ATANH(x) (T) kn__atanh((double)(x))
/* the C library's */
#define T_EXP10(x) KN_REAL_FN(exp10)(x)
#define T_CBRT(x) KN_REAL_FN(cbrt)(x)
/* special.c's, for f32 too */
#define T_MOD2PI(x) (T) kn__mod2pi(x)
#define T_ERFCINV(x) (T) kn__erfcinv(x)
#define T_ERFCX(x) (T) kn__erfcx(x)
#define T_ERFCX_SLOPE(x) (T) kn__erfcx_slope(x, kn__erfcx(x))
#define T_ERFCX_SLOPE2(x) (T) kn__erfcx_slope2(x, kn__erfcx(x))
#define T_GAMMA(x) (T) kn__gamma(x)
#define T_BESSELJ(n, x) (T) kn__besselj(n, x)
#define T_BESSELY(n, x) (T) kn__bessely(n, x)

#ifdef KN_REAL_IS_F32
#define KN_REAL_FN(name) name##f
#define KN_OUR_FN(name) kn__##name##_f32
#define KN_SIGM(x) kn__sigm_f32(x)
#define T_ERFC(x) kn__erfc_f32(x)
#define T_NORMAL_CDF(x) kn__normal_cdf_f32(x)
#define KN_IS_WIDE false
#define T_HYPOT(x, y) kn__hypot_f32(x, y)
#define T_POW(x, y) kn__pow_f32(x, y)
#define T_ERFINV(x) kn__erfinv_f32(x)
/* In rows of domain QUOTIENT. */
#define T_FMOD(x, y) kn__fmod_f32(x, y, kn__far)
#define T_MOD(x, y) kn__mod_f32(x, y, kn__far)
#define T_FLOOR_DIV(x, y) kn__floor_div_f32(x, y, kn__far)
#define KN_QUOTIENT_IS_FAR(x, y) kn__quotient_is_far_f32(x, y)
/* In rows of domain ABOVE_ZERO. */
#define T_LGAMMA(x) (kn__far && !(x > 0) ? (T)kn__lgamma(x) : kn__lgamma_f32(x))
/* Of order n + k; k is constant, and n 0 unless elements are far. */
#define T_POLYGAMMA(n, k, x)                                                                       \
    (kn__far || (k) > 1 ? (T)kn__polygamma((n) + (k), x)                                           \
     : (k) == 0         ? kn__digamma_f32(x)                                                       \
                        : kn__trigamma_f32(x))
#else
#define KN_REAL_FN(name) name
#define KN_OUR_FN(name) kn__##name##_f64
#define KN_SIGM(x) kn__sigm_f64(x)
#define T_ERFC(x) erfc(x)
#define T_NORMAL_CDF(x) (0.5 * erfc((x) * -0.70710678118654752))
#define KN_IS_WIDE true
#define T_HYPOT(x, y) kn__hypot_f64(x, y)
#define T_POW(x, y) pow(x, y)
#define T_ERFINV(x) kn__erfinv(x)
#define T_FMOD(x, y) fmod(x, y)
#define T_MOD(x, y) kn__mod(x, y)
#define T_FLOOR_DIV(x, y) kn__floor_div(x, y)
#define KN_QUOTIENT_IS_FAR(x, y) false
#define T_LGAMMA(x) kn__lgamma(x)
#define T_POLYGAMMA(n, k, x) kn__polygamma((n) + (k), x)
#endif

/* In rows of domain POWER: pow, or a product or a root. */
#define T_POWER(x, p) (kn__far ? T_POW(x, p) : KN_EASY_POWER(x, p))
#define KN_EASY_POWER(x, p)                                                                        \
    ((p) == 2         ? (x) * (x)                                                                  \
     : (p) == 3       ? (x) * (x) * (x)                                                            \
     : (p) == (T)0.5  ? T_SQRT(x)                                                                  \
     : (p) == 1       ? (x)                                                                        \
     : (p) == -1      ? 1 / (x)                                                                    \
     : (p) == (T)-0.5 ? 1 / T_SQRT(x)                                                              \
     : (p) == 0       ? 1                                                                          \
                      : 1 / (T_SQRT(x) * (x)))
/* Of x^p, or of its derivatives, which have the powers p - 1 and p - 2 too. */
static inline bool kn__power_is_far(T p, bool forward) {
    if (forward && (p == -1 || p == (T)-0.5)) return false;
    return !(p == 2 || p == 3 || p == (T)0.5 || p == 1);
}

/* In rows of domains HALF and ABOVE_ZERO: what numbers above 0 don't need. */
#define T_EXPM1_BELOW(x) (kn__far ? T_EXPM1(x) : 0)
static inline __attribute__((pure)) bool kn__any_below(const T *x, int64_t n) {
    for (int64_t i = 0; i < n;) {
        real_bits any = 0; /* as wide as an element, so that it is a vector */
        for (int64_t end = n - i < 1024 ? n : i + 1024; i < end; i++) any |= x[i] > 0 ? 0 : 1;
        if (any) return true;
    }
    return false;
}

#endif
