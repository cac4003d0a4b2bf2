/* The logistic function, for the host's loops and the CUDA kernels: the same bits on both, error
 * below 2 ulp. Straight-line code that compilers vectorise.
 *
 * 1/(1 + e^-x) by e = e^-|x|, so that nothing overflows: 1/(1 + e), or e/(1 + e) for negative x.
 * The roundings of e, the divisor and the quotient would add up to more than 2 ulp. So the divisor
 * is kept as a sum of two numbers d + dl, and the quotient q of the leading ones corrected by
 * q·dl/d, where 1/d is q itself, or 1 - q for negative x. In f32 that leaves 1.97 ulp, found by
 * trying all numbers; in f64, where they can't be tried, e is such a sum as well: 1.4 ulp.
 *
 * e^a, a <= 0: a = k·ln 2 + r with |r| <= ln 2 / 2, then 2^k·(1 + t) with t = r + r²·p(r). 2^k is a
 * product of a larger power and a constant, so that subnormal results come out. */
#ifndef KN_SIGM_H
#define KN_SIGM_H

#include <math.h>
#include <stdint.h>

#include "rounded.h"

/* 2^(n + more), where `shifted` is n added to 1.5·2^23: its low bits are n. */
static inline KN_STRAIGHT float kn__power_f32(float shifted, uint32_t more) {
    uint32_t bits;
    float power;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3F800000u + (more << 23);
    __builtin_memcpy(&power, &bits, sizeof power);
    return power;
}

static inline KN_STRAIGHT float kn__sigm_f32(float x) {
    const float round = 0x1.8p23f; /* a sum with it rounds to an integer */
    float a = -fabsf(x);
    a = a < -105.0f ? -105.0f : a;
    float shifted = KN_ADD_F32(KN_MUL_F32(a, 1.44269504088896341f), round), k = shifted - round;
    float r = KN_ADD_F32(a, -KN_MUL_F32(k, 0.693359375f)); /* exact */
    r = KN_ADD_F32(r, KN_MUL_F32(k, 2.12194440054690583e-4f));
    /* a minimax fit, its error below 0.1 ulp */
    float p = 0.001381462154932819f;
    p = KN_ADD_F32(KN_MUL_F32(p, r), 0.008368716168736884f);
    p = KN_ADD_F32(KN_MUL_F32(p, r), 0.04166838756299099f);
    p = KN_ADD_F32(KN_MUL_F32(p, r), 0.16666520639352658f);
    p = KN_ADD_F32(KN_MUL_F32(p, r), 0.49999993450252306f);
    float t = KN_ADD_F32(KN_MUL_F32(p, KN_MUL_F32(r, r)), r);
    float e = KN_MUL_F32(KN_MUL_F32(1.0f + t, kn__power_f32(shifted, 64)), 0x1p-64f);
    float d = 1.0f + e, dl = (1.0f - d) + e;
    float q = KN_DIV_F32(x < 0 ? e : 1.0f, d), inverse = x < 0 ? 1.0f - q : q;
    return KN_ADD_F32(q, -KN_MUL_F32(KN_MUL_F32(q, dl), inverse));
}

/* The same, with 1.5·2^52. */
static inline KN_STRAIGHT double kn__power_f64(double shifted, uint64_t more) {
    uint64_t bits;
    double power;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + 0x3FF0000000000000u + (more << 52);
    __builtin_memcpy(&power, &bits, sizeof power);
    return power;
}

static inline KN_STRAIGHT double kn__sigm_f64(double x) {
    const double round = 0x1.8p52;
    double a = -fabs(x);
    a = a < -746.0 ? -746.0 : a;
    double shifted = KN_ADD_F64(KN_MUL_F64(a, 1.44269504088896341), round), k = shifted - round;
    double exact = KN_ADD_F64(a, -KN_MUL_F64(k, 0x1.62e42fefap-1)); /* 34 bits of ln 2 */
    double tail = KN_MUL_F64(k, 0x1.cf79abc9e3b39p-40);
    double r = exact - tail, rl = (exact - r) - tail;
    /* Taylor's series; the remainder is below 0.04 ulp */
    double p = 1.0 / 6227020800;
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 479001600);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 39916800);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 3628800);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 362880);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 40320);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 5040);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 720);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 120);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 24);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 6);
    p = KN_ADD_F64(KN_MUL_F64(p, r), 1.0 / 2);
    double t = KN_ADD_F64(r, KN_ADD_F64(KN_MUL_F64(p, KN_MUL_F64(r, r)), rl));
    double high = 1.0 + t, low = t - (high - 1.0);
    double power = kn__power_f64(shifted, 512);
    double e = KN_MUL_F64(KN_MUL_F64(high, power), 0x1p-512);
    double el = KN_MUL_F64(KN_MUL_F64(low, power), 0x1p-512);
    double d = 1.0 + e, dl = ((1.0 - d) + e) + el;
    double q = KN_DIV_F64(x < 0 ? e : 1.0, d), inverse = x < 0 ? 1.0 - q : q;
    double error = KN_ADD_F64(x < 0 ? el : 0.0, -KN_MUL_F64(q, dl));
    return KN_ADD_F64(q, KN_MUL_F64(error, inverse));
}

#endif
