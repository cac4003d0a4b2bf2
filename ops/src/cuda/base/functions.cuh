// The functions that ops.def's formulas name, and elements: packs of them, threads that walk over
// them. NVRTC compiles this file too (pointwise/chain.cuh): it includes no header of the runtime.
#ifndef KN_CUDA_FUNCTIONS_CUH
#define KN_CUDA_FUNCTIONS_CUH

#include <math.h>
#include <stdint.h>

#include "erfcx.h"
#include "polygamma.h"
#include "sigm.h"

#define T_EXP(x) kn_dev::exp_(x)
#define T_LOG(x) kn_dev::log_(x)
#define T_SQRT(x) kn_dev::sqrt_(x)
#define T_TANH(x) kn_dev::tanh_(x)
#define T_ABS(x) kn_dev::abs_(x)
#define T_ERFC(x) kn_dev::erfc_(x)
#define T_NORMAL_CDF(x) ((T)0.5 * T_ERFC((x) * (T)-0.70710678118654752))
#define T_EXP2(x) kn_dev::exp2_(x)
#define T_EXPM1(x) kn_dev::expm1_(x)
#define T_EXPM1_BELOW(x) kn_dev::expm1_(x)
#define T_LOG2(x) kn_dev::log2_(x)
#define T_LOG10(x) kn_dev::log10_(x)
#define T_LOG1P(x) kn_dev::log1p_(x)
#define T_SIN(x) kn_dev::sin_(x)
#define T_COS(x) kn_dev::cos_(x)
#define T_ERF(x) kn_dev::erf_(x)
#define T_FLOOR(x) kn_dev::floor_(x)
#define T_CEIL(x) kn_dev::ceil_(x)
#define T_TRUNC(x) kn_dev::trunc_(x)
#define T_ROUND(x) kn_dev::round_(x)
#define T_EXP10(x) kn_dev::exp10_(x)
#define T_CBRT(x) kn_dev::cbrt_(x)
#define T_TAN(x) kn_dev::tan_(x)
#define T_ASIN(x) kn_dev::asin_(x)
#define T_ACOS(x) kn_dev::acos_(x)
#define T_ATAN(x) kn_dev::atan_(x)
#define T_SINH(x) kn_dev::sinh_(x)
#define T_COSH(x) kn_dev::cosh_(x)
#define T_ASINH(x) kn_dev::asinh_(x)
#define T_ACOSH(x) kn_dev::acosh_(x)
#define T_ATANH(x) kn_dev::atanh_(x)
#define T_SINPI(x) kn_dev::sinpi_(x)
#define T_COSPI(x) kn_dev::cospi_(x)
#define T_ERFINV(x) kn_dev::erfinv_(x)
#define T_ERFCINV(x) kn_dev::erfcinv_(x)
#define T_ERFCX(x) kn_dev::erfcx_(x)
#define T_ERFCX_SLOPE(x) (T) kn__erfcx_slope(x, kn_dev::erfcx_((double)(x)))
#define T_ERFCX_SLOPE2(x) (T) kn__erfcx_slope2(x, kn_dev::erfcx_((double)(x)))
#define T_GAMMA(x) kn_dev::gamma_(x)
#define T_LGAMMA(x) kn_dev::lgamma_(x)
#define T_SIGM(x) kn_dev::sigm_(x)
#define T_MOD2PI(x) kn_dev::mod2pi_(x)
#define T_POW(x, y) kn_dev::pow_(x, y)
// pow where no product or root does
#define T_POWER(x, p)                                                                              \
    ((p) == 2        ? (x) * (x)                                                                   \
     : (p) == 3      ? (x) * (x) * (x)                                                             \
     : (p) == (T)0.5 ? T_SQRT(x)                                                                   \
     : (p) == 1      ? (x)                                                                         \
     : (p) == -1     ? 1 / (x)                                                                     \
                     : T_POW(x, p))
#define T_COPYSIGN(x, y) kn_dev::copysign_(x, y)
#define T_HYPOT(x, y) kn_dev::hypot_(x, y)
#define T_ATAN2(x, y) kn_dev::atan2_(x, y)
#define T_FMOD(x, y) kn_dev::fmod_(x, y)
#define T_MOD(x, y) kn_dev::mod_(x, y)
#define T_FLOOR_DIV(x, y) kn_dev::floor_div_(x, y)
#define T_POLYGAMMA(n, k, x) (T) kn__polygamma((n) + (k), x) /* k: constant */
#define T_BESSELJ(n, x) (T) kn_dev::besselj(n, x)
#define T_BESSELY(n, x) (T) kn_dev::bessely(n, x)

namespace kn_dev {

/* Unlike the host's, CUDA's functions know no negative orders: that of -n is (-1)^n that of n. */
__device__ inline double of_order(int order, double value) {
    return order < 0 && order % 2 ? -value : value;
}
__device__ inline double besselj(double n, double x) {
    if (!(fabs(n) <= KN_BESSEL_ORDER_MAX)) return NAN;
    return of_order((int)rint(n), jn((int)rint(fabs(n)), x));
}
__device__ inline double bessely(double n, double x) {
    if (!(fabs(n) <= KN_BESSEL_ORDER_MAX)) return NAN;
    return of_order((int)rint(n), yn((int)rint(fabs(n)), x));
}

#define KN_OF_ONE(name, f32, f64)                                                                  \
    __device__ inline float name##_(float x) { return f32(x); }                                    \
    __device__ inline double name##_(double x) { return f64(x); }
#define KN_OF_TWO(name, f32, f64)                                                                  \
    __device__ inline float name##_(float x, float y) { return f32(x, y); }                        \
    __device__ inline double name##_(double x, double y) { return f64(x, y); }
KN_OF_ONE(exp, expf, exp)
KN_OF_ONE(log, logf, log)
KN_OF_ONE(sqrt, sqrtf, sqrt)
KN_OF_ONE(tanh, tanhf, tanh)
KN_OF_ONE(abs, fabsf, fabs)
KN_OF_ONE(erfc, erfcf, erfc)
KN_OF_ONE(exp2, exp2f, exp2)
KN_OF_ONE(expm1, expm1f, expm1)
KN_OF_ONE(log2, log2f, log2)
KN_OF_ONE(log10, log10f, log10)
KN_OF_ONE(log1p, log1pf, log1p)
KN_OF_ONE(sin, sinf, sin)
KN_OF_ONE(cos, cosf, cos)
KN_OF_ONE(erf, erff, erf)
KN_OF_ONE(floor, floorf, floor)
KN_OF_ONE(ceil, ceilf, ceil)
KN_OF_ONE(trunc, truncf, trunc)
KN_OF_ONE(round, rintf, rint)
KN_OF_ONE(exp10, exp10f, exp10)
KN_OF_ONE(cbrt, cbrtf, cbrt)
KN_OF_ONE(tan, tanf, tan)
KN_OF_ONE(asin, asinf, asin)
KN_OF_ONE(acos, acosf, acos)
KN_OF_ONE(atan, atanf, atan)
KN_OF_ONE(sinh, sinhf, sinh)
KN_OF_ONE(cosh, coshf, cosh)
KN_OF_ONE(asinh, asinhf, asinh)
KN_OF_ONE(acosh, acoshf, acosh)
KN_OF_ONE(atanh, atanhf, atanh)
KN_OF_ONE(sinpi, sinpif, sinpi)
KN_OF_ONE(cospi, cospif, cospi)
KN_OF_ONE(erfinv, erfinvf, erfinv)
KN_OF_ONE(erfcinv, erfcinvf, erfcinv)
KN_OF_ONE(erfcx, erfcxf, erfcx)
KN_OF_ONE(gamma, tgammaf, tgamma)
KN_OF_ONE(lgamma, lgammaf, lgamma)
KN_OF_ONE(sigm, kn__sigm_f32, kn__sigm_f64)
KN_OF_TWO(pow, powf, pow)
KN_OF_TWO(copysign, copysignf, copysign)
KN_OF_TWO(hypot, hypotf, hypot)
KN_OF_TWO(atan2, atan2f, atan2)
KN_OF_TWO(fmod, fmodf, fmod)
#undef KN_OF_ONE
#undef KN_OF_TWO

template <class T>
__device__ T mod_(T x, T y) {  // with the sign of y
    T rest = fmod_(x, y);
    if (rest == 0) return copysign_(T(0), y);
    return (rest < 0) != (y < 0) ? rest + y : rest;
}
template <class T>
__device__ T floor_div_(T x, T y) {  // without the rest, which has x's sign, the quotient is whole
    T rest = fmod_(x, y), sign = x / y;
    if (y == 0) return sign;
    double q = rint(((double)x - (double)rest) / (double)y);
    if (rest != 0 && (rest < 0) != (y < 0)) q -= 1;
    return copysign_(T(q), sign);
}
template <class T>
__device__ T mod2pi_(T x) {  // by functions that reduce any x to the last places
    double s = sin((double)x), angle = fabs((double)x) < 3 ? (double)x : atan2(s, cos((double)x));
    return (T)(angle < 0 ? angle + 6.2831853071795865 : angle);
}

// V elements that are loaded or stored in one access.
template <class T, int V>
struct alignas(sizeof(T) * V) pack {
    T v[V];
};

struct boolean {  // an operand that is BOOL whatever the others are
    uint8_t v;
};

__device__ inline int64_t thread_index() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

}  // namespace kn_dev
#endif
