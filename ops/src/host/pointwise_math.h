/* exp, log and tanh in straight-line code that compilers vectorise; pow and the f64 forms are the C
 * library's. The logistic function is sigm.h's. Included by *_loops.c files only.
 *
 * f32: error below 2 ulp, the same bits for every instruction set (no fused multiply-add). The
 * polynomials are minimax fits (Remez exchange), their error below 0.1 ulp. */
#ifndef KN_POINTWISE_MATH_H
#define KN_POINTWISE_MATH_H

#include <math.h>

#include "../sigm.h"
#include "loops.h"

#define T real
#define T_POW(x, y) KN_REAL_FN(pow)(x, y)
#define T_ABS(x) KN_REAL_FN(fabs)(x)
#define T_SQRT(x) KN_REAL_FN(sqrt)(x)
#define T_ERFC(x) KN_REAL_FN(erfc)(x)
#define T_EXP(x) kn_exp_(x)
#define T_LOG(x) kn_log_(x)
#define T_TANH(x) kn_tanh_(x)

#ifdef KN_REAL_IS_F32
#define KN_REAL_FN(name) name##f
#define T_SIGM(x) kn__sigm_f32(x)

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float of_bits(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

/* x = k·ln 2 + r, |r| <= ln 2 / 2; 2^k in two factors, so that infinity and subnormals come out. */
static inline float kn_exp_(float x) {
    float clamped = x < -105.0f ? -105.0f : x;
    clamped = clamped > 89.0f ? 89.0f : clamped;
    float shifted = clamped * 1.44269504088896341f + 0x1.8p23f; /* the sum rounds to an integer */
    float k = shifted - 0x1.8p23f;
    float r = (clamped - k * 0.693359375f) - k * -2.12194440054690583e-4f;
    float p = 0.001381462154932819f;
    p = p * r + 0.008368716168736884f;
    p = p * r + 0.04166838756299099f;
    p = p * r + 0.16666520639352658f;
    p = p * r + 0.49999993450252306f;
    float y = p * (r * r) + r + 1.0f;
    uint32_t exponent = bits_of(shifted) - 0x4B400000u; /* k as an integer, two's complement */
    uint32_t half = (uint32_t)((int32_t)exponent >> 1);
    return y * of_bits((half + 127) << 23) * of_bits((exponent - half + 127) << 23);
}

/* x = m·2^k, m in [√½, √2), f = m - 1; ln(1 + f) = f - f²/2 + f³·p(f). */
static inline float kn_log_(float x) {
    float scaled = x < 0x1p-126f ? x * 0x1p25f : x;
    float extra = x < 0x1p-126f ? 25.0f : 0.0f;
    uint32_t shifted = bits_of(scaled) - 0x3F3504F3u; /* √½ */
    float k = (float)((int32_t)shifted >> 23) - extra;
    float f = of_bits((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float p = 0.06746704876004897f;
    p = p * f + -0.1167560319099064f;
    p = p * f + 0.1188810248196995f;
    p = p * f + -0.12405593406708537f;
    p = p * f + 0.1421956208132468f;
    p = p * f + -0.16667995937964833f;
    p = p * f + 0.20002118105914357f;
    p = p * f + -0.2500000958967367f;
    p = p * f + 0.3333331261400775f;
    float square = f * f;
    float tail = f * square * p + k * -2.12194440054690583e-4f;
    float y = (tail - 0.5f * square + f) + k * 0.693359375f;
    y = x > 0x1.fffffep127f ? x : y; /* infinity */
    y = x == 0 ? -INFINITY : y;
    return x >= 0 ? y : NAN - x * 0; /* negative and NaN */
}

/* Small |x| by x + x³·p(x²), the others by 1 - 2/(e^2|x| + 1). */
static inline float kn_tanh_(float x) {
    float z = x * x, p = 0.002147753724474016f;
    p = p * z + -0.008182937366620341f;
    p = p * z + 0.021703088061450784f;
    p = p * z + -0.053947230067824314f;
    p = p * z + 0.13333210013318883f;
    p = p * z + -0.3333333091508564f;
    float small = p * z * x + x;
    float size = fabsf(x), large = 1.0f - 2.0f / (kn_exp_(2.0f * size) + 1.0f);
    return size < 0.625f ? small : copysignf(large, x);
}

#else
#define KN_REAL_FN(name) name
#define T_SIGM(x) kn__sigm_f64(x)

static inline double kn_exp_(double x) { return exp(x); }
static inline double kn_log_(double x) { return log(x); }
static inline double kn_tanh_(double x) { return tanh(x); }
#endif

#endif
