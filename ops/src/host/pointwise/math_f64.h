/* exp, log, tanh, erf and their kin in f64: straight-line code that compilers vectorise, error
 * below 2 ulp, the same bits for every instruction set that has kn__fma_f64. Polynomials are
 * Chebyshev fits with an error below 0.1 ulp. Included by pointwise_math.h. */
#ifndef KN_MATH_F64_H
#define KN_MATH_F64_H

#include <math.h>
#include <stdint.h>

#include "host/base/fused_sum.h"
#include "sigm.h"

#define KN_MATH static inline KN_STRAIGHT

static inline uint64_t kn__f64_bits(double x) {
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
KN_MATH double kn__bits_f64(uint64_t bits) {
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

#define KN_ROUND_F64 0x1.8p52        /* a sum with it rounds to an integer, in its low bits */
#define KN_LN2_HIGH 0x1.62e42fefap-1 /* 34 bits */
#define KN_LN2_LOW 0x1.cf79abc9e3b39p-40

/* y·2^k, |k| <= 2044: in two factors, so that infinity and subnormals come out. */
KN_MATH double kn__scale_f64(double y, double k) {
    double half = k * 0.5 + KN_ROUND_F64, rest = k - (half - KN_ROUND_F64) + KN_ROUND_F64;
    return y * kn__power_f64(half, 0) * kn__power_f64(rest, 0);
}

/* (e^r - 1 - r)/r², |r| <= ln 2 / 2 */
KN_MATH double kn__exp_tail_f64(double r) {
    double p = 2.5100472505694996e-08;
    p = kn__fma_f64(p, r, 2.7620201591031547e-07);
    p = kn__fma_f64(p, r, 2.7557268276905696e-06);
    p = kn__fma_f64(p, r, 2.4801521057868204e-05);
    p = kn__fma_f64(p, r, 0.00019841269863171557);
    p = kn__fma_f64(p, r, 0.0013888888917367081);
    p = kn__fma_f64(p, r, 0.008333333333330039);
    p = kn__fma_f64(p, r, 0.041666666666623824);
    p = kn__fma_f64(p, r, 0.16666666666666669);
    return kn__fma_f64(p, r, 0.5);
}

/* 2^shift·e^(x + low), |low| tiny beside x: x = k·ln 2 + r. */
KN_MATH double kn__exp_shifted_f64(double x, double low, double shift) {
    double c = x < -746 ? -746 : x;
    c = c > 712 ? 712 : c;
    double k = kn__fma_f64(c, 1.44269504088896341, KN_ROUND_F64) - KN_ROUND_F64;
    double r = kn__fma_f64(k, -KN_LN2_HIGH, c) - kn__fma_f64(k, KN_LN2_LOW, -low);
    return kn__scale_f64(kn__fma_f64(r * r, kn__exp_tail_f64(r), r) + 1, k + shift);
}

KN_MATH double kn__exp_sum_f64(double x, double low) { return kn__exp_shifted_f64(x, low, 0); }

KN_MATH double kn__exp_f64(double x) { return kn__exp_sum_f64(x, 0); }

KN_MATH double kn__exp2_f64(double x) {
    double c = x < -1080 ? -1080 : x;
    c = c > 1025 ? 1025 : c;
    double k = (c + KN_ROUND_F64) - KN_ROUND_F64, r = c - k;
    double p = 2.5729324177362305e-11;
    p = kn__fma_f64(p, r, 4.4558179083360645e-10);
    p = kn__fma_f64(p, r, 7.0548973041554995e-09);
    p = kn__fma_f64(p, r, 1.0178057087733941e-07);
    p = kn__fma_f64(p, r, 1.3215486808705563e-06);
    p = kn__fma_f64(p, r, 1.5252733841556773e-05);
    p = kn__fma_f64(p, r, 0.00015403530393370734);
    p = kn__fma_f64(p, r, 0.001333355814640647);
    p = kn__fma_f64(p, r, 0.00961812910762848);
    p = kn__fma_f64(p, r, 0.055504108664821625);
    p = kn__fma_f64(p, r, 0.24022650695910072);
    p = kn__fma_f64(p, r, 0.6931471805599453);
    return kn__scale_f64(kn__fma_f64(p, r, 1.0), k);
}

/* e^x - 1 = 2^k·(sum + low): 1 - 2^-k and e^r - 1, added up exactly but for the last rounding. */
typedef struct kn__expm1_parts_f64 {
    double k, sum, low;
} kn__expm1_parts_f64;

KN_MATH kn__expm1_parts_f64 kn__expm1_parts_of_f64(double x) {
    double c = x < -50 ? -50 : x;
    c = c > 712 ? 712 : c;
    double k = kn__fma_f64(c, 1.44269504088896341, KN_ROUND_F64) - KN_ROUND_F64;
    double exact = c - k * KN_LN2_HIGH, tail = k * KN_LN2_LOW;
    double r = exact - tail, r_low = (exact - r) - tail;
    double one = 1 - kn__power_f64(KN_ROUND_F64 - (k > 60 ? 60 : k), 0), high = one + r;
    double rest = ((one - high) + r) + (r * r * kn__exp_tail_f64(r) + r_low), sum = high + rest;
    return (kn__expm1_parts_f64){k, sum, (high - sum) + rest};
}

KN_MATH double kn__expm1_f64(double x) {
    kn__expm1_parts_f64 e = kn__expm1_parts_of_f64(x);
    double y = kn__scale_f64(e.sum, e.k);
    return x == 0 ? x : y;
}

/* q = t/d, t = e^(2|x|) - 1, d = t + 2; corrected by what t and d lost, where 1/d = (1 - q)/2. */
KN_MATH double kn__tanh_f64(double x) {
    double size = fabs(x);
    kn__expm1_parts_f64 e = kn__expm1_parts_of_f64(2 * (size > 22 ? 22 : size));
    double power = kn__power_f64(e.k + KN_ROUND_F64, 0), t = e.sum * power, t_low = e.low * power;
    double d = t + 2, lost = t > 2 ? 2 - (d - t) : t - (d - 2), d_low = lost + t_low, q = t / d;
    return copysign(q + (t_low - q * d_low) * (0.5 - 0.5 * q), x);
}

/* x = m·2^k, m in [√½, √2), f = m - 1. */
typedef struct kn__parts_f64 {
    double k, f;
} kn__parts_f64;

KN_MATH kn__parts_f64 kn__parts_of_f64(double x) {
    double scaled = x < 0x1p-1022 ? x * 0x1p54 : x, extra = x < 0x1p-1022 ? 1023 + 54 : 1023;
    const uint64_t root = 0x3FE6A09E667F3BCDu, one = 0x3FF0000000000000u;
    uint64_t shifted = kn__f64_bits(scaled) - root + one;
    kn__parts_f64 parts;
    /* the exponent as a number: below 2^52 + itself */
    parts.k = (kn__bits_f64((shifted >> 52) | 0x4330000000000000u) - 0x1p52) - extra;
    parts.f = kn__bits_f64((shifted & 0x000FFFFFFFFFFFFFu) + root) - 1;
    return parts;
}

/* ln(1 + f) = f - f²/2 + this: with s = f/(2 + f), ln(1 + f) = 2s + s·R(s²) = f - s·(f - R). */
KN_MATH double kn__log_tail_f64(double f) {
    double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double p = 0.14618236865830497;
    p = kn__fma_f64(p, z, 0.15331576916675838);
    p = kn__fma_f64(p, z, 0.18182893480846);
    p = kn__fma_f64(p, z, 0.2222221107497463);
    p = kn__fma_f64(p, z, 0.2857142862634218);
    p = kn__fma_f64(p, z, 0.39999999999898694);
    p = kn__fma_f64(p, z, 0.666666666666667);
    return s * kn__fma_f64(z, p, half);
}

/* What ln makes of the ends of its range: y, or what belongs to x. */
KN_MATH double kn__log_ends_f64(double x, double y) {
    y = x > 0x1.fffffffffffffp1023 ? x : y;
    y = x == 0 ? -(double)INFINITY : y;
    return x >= 0 ? y : (double)NAN - x * 0; /* negative and NaN */
}

KN_MATH double kn__log_f64(double x) {
    kn__parts_f64 m = kn__parts_of_f64(x);
    double half = 0.5 * m.f * m.f;
    double y = m.k * KN_LN2_HIGH - ((half - (kn__log_tail_f64(m.f) + m.k * KN_LN2_LOW)) - m.f);
    return kn__log_ends_f64(x, y);
}

/* u = 1 + x, rounded; the rounding error is added as lost/u. */
KN_MATH double kn__log1p_f64(double x) {
    double u = 1 + x, lost = fabs(x) < 1 ? x - (u - 1) : 1 - (u - x);
    kn__parts_f64 m = kn__parts_of_f64(u);
    double half = 0.5 * m.f * m.f, low = m.k * KN_LN2_LOW + lost / u;
    double y = m.k * KN_LN2_HIGH - ((half - (kn__log_tail_f64(m.f) + low)) - m.f);
    y = kn__log_ends_f64(u, y);
    return x == 0 ? x : y;
}

/* k·(high + low) + ln(m)·(scale_high + scale_low), the leading products exact. */
KN_MATH double kn__log_scaled_f64(double x, double k_high, double k_low, double scale_high,
                                  double scale_low) {
    kn__parts_f64 m = kn__parts_of_f64(x);
    double half = 0.5 * m.f * m.f, tail = kn__log_tail_f64(m.f);
    double high = kn__bits_f64(kn__f64_bits(m.f - half) & 0xFFFFFFFF00000000u);
    double low = (m.f - high) - half + tail;
    double first = m.k * k_high, second = high * scale_high;
    double rest = m.k * k_low + (low + high) * scale_low + low * scale_high;
    double sum = first + second;
    rest += (first - sum) + second; /* |first| is larger, or 0 */
    return kn__log_ends_f64(x, sum + rest);
}

KN_MATH double kn__log2_f64(double x) {
    return kn__log_scaled_f64(x, 1, 0, 0x1.7154765000000p+0, 0x1.5c17f0bbbe880p-31);
}
KN_MATH double kn__log10_f64(double x) {
    return kn__log_scaled_f64(x, 0x1.34413509f0000p-2, 0x1.e7fbcc47c4acdp-40, 0x1.bcb7b15000000p-2,
                              0x1.37287195355bbp-33);
}

/* erf: x + x·p(x²) for small x, else 1 - erfc(x) with erfc(x) = e^(-x²)·t·g(t), t = 1/(1 + x/2). */
KN_MATH double kn__erf_f64(double x) {
    double size = fabs(x), z = x * x;
    double p = 1.0675693706713948e-08;
    p = kn__fma_f64(p, z, -1.5697115571004142e-07);
    p = kn__fma_f64(p, z, 1.6399123262977372e-06);
    p = kn__fma_f64(p, z, -1.4921921653420798e-05);
    p = kn__fma_f64(p, z, 0.00012055190337021296);
    p = kn__fma_f64(p, z, -0.0008548323506677763);
    p = kn__fma_f64(p, z, 0.00522397757126982);
    p = kn__fma_f64(p, z, -0.026866170640255645);
    p = kn__fma_f64(p, z, 0.11283791670932594);
    p = kn__fma_f64(p, z, -0.3761263890318335);
    p = kn__fma_f64(p, z, 0.12837916709551256);
    double c = size > 6 ? 6 : size;
    double high = kn__bits_f64(kn__f64_bits(c) & 0xFFFFFFFFF8000000u);
    double e = kn__exp_sum_f64(-high * high, -((c - high) * (c + high)));
    double t = 1 / kn__fma_f64(0.5, c, 1.0);
    double g = 0.036597339418357924;
    g = kn__fma_f64(g, t, -0.35234617357425313);
    g = kn__fma_f64(g, t, 1.5391916297842674);
    g = kn__fma_f64(g, t, -4.020976255996927);
    g = kn__fma_f64(g, t, 6.951806798511214);
    g = kn__fma_f64(g, t, -8.306001437111933);
    g = kn__fma_f64(g, t, 6.992642049151034);
    g = kn__fma_f64(g, t, -4.263791555608159);
    g = kn__fma_f64(g, t, 2.0453830026814748);
    g = kn__fma_f64(g, t, -0.8074352709019119);
    g = kn__fma_f64(g, t, 0.1587040202642057);
    g = kn__fma_f64(g, t, -0.05188793673148233);
    g = kn__fma_f64(g, t, 0.09167460772906062);
    g = kn__fma_f64(g, t, 0.1753384888425048);
    g = kn__fma_f64(g, t, 0.24691521686102677);
    g = kn__fma_f64(g, t, 0.28209047812733967);
    g = kn__fma_f64(g, t, 0.2820948971954017);
    double large = 1 - e * t * g;
    large = size != size ? size : large;
    return size < 0.85 ? kn__fma_f64(x, p, x) : copysign(large, x);
}

#endif
