/* e^x for x <= 0 in straight-line code that compilers vectorise. Included by *_loops.c files only.
 * Error below 2 ulp; 0 below the smallest normal number; NaN stays NaN. */
#ifndef KN_SOFTMAX_EXP_H
#define KN_SOFTMAX_EXP_H

#include "host/base/fused_sum.h"
#include "host/base/loops.h"

#ifdef KN_REAL_IS_F32
#define EXP_LOWEST (-87.3f)
#define EXP_ROUND 0x1.8p23f
#define EXP_LOG2E 1.44269504088896341f
#define EXP_LN2_HIGH 0.693359375f /* 10 bits, so that products with small integers are exact */
#define EXP_LN2_LOW (-2.12194440054690583e-4f)
#define EXP_TERMS 7
#define EXP_FMA kn__fma_f32
#else
#define EXP_LOWEST (-708.3)
#define EXP_ROUND 0x1.8p52
#define EXP_LOG2E 1.44269504088896341
#define EXP_LN2_HIGH 0x1.62e42fefap-1
#define EXP_LN2_LOW 0x1.cf79abc9e3b39p-40
#define EXP_TERMS 13
#define EXP_FMA kn__fma_f64
#endif

/* Of e^r: 1/13!, … 1. */
static const double exp_series[14] = {1.0 / 6227020800,
                                      1.0 / 479001600,
                                      1.0 / 39916800,
                                      1.0 / 3628800,
                                      1.0 / 362880,
                                      1.0 / 40320,
                                      1.0 / 5040,
                                      1.0 / 720,
                                      1.0 / 120,
                                      1.0 / 24,
                                      1.0 / 6,
                                      1.0 / 2,
                                      1.0,
                                      1.0};

/* x = k·ln 2 + r with |r| <= ln 2 / 2; e^r by Taylor's series; k goes into the exponent. */
static inline real exp_nonpositive(real x) {
    real clamped = x < EXP_LOWEST ? EXP_LOWEST : x;
    real shifted = EXP_FMA(clamped, EXP_LOG2E, EXP_ROUND);
    real k = shifted - EXP_ROUND;
    real r = EXP_FMA(k, -EXP_LN2_LOW, EXP_FMA(k, -EXP_LN2_HIGH, clamped));
    real y = (real)exp_series[13 - EXP_TERMS];
    KN_UNROLL(14)
    for (int i = 14 - EXP_TERMS; i < 14; i++) y = EXP_FMA(y, r, (real)exp_series[i]);
    real_bits bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    bits = (real_bits)((unsigned long long)bits << KN_MANTISSA) + KN_EXPONENT_ONE;
    real power;
    __builtin_memcpy(&power, &bits, sizeof power);
    return x < EXP_LOWEST ? 0 : y * power;
}

#endif
