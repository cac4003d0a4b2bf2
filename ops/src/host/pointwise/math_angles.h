/* sin, tan, atan, sinh and their kin in f64: straight-line code that compilers vectorise, error
 * below 2.5 ulp, the same bits for every instruction set that has kn__fma_f64. f32's are these,
 * rounded, with shorter polynomials (`wide` is false) whose error f32 does not show. Polynomials
 * are Chebyshev fits. Included by pointwise_math.h. */
#ifndef KN_MATH_ANGLES_H
#define KN_MATH_ANGLES_H

#include <stdbool.h>

#include "host/pointwise/math_f64.h"

#define KN_HALF_PI 1.5707963267948966
#define KN_HALF_PI_LOW 6.123233995736766e-17

/* (atan t / t - 1)/t², z = t² up to tan²(π/8) */
KN_MATH double kn__atan_tail(double z, bool wide) {
    if (wide) {
        double p = -0.019175404711104935;
        p = kn__fma_f64(p, z, 0.03923044778479309);
        p = kn__fma_f64(p, z, -0.050854078345894844);
        p = kn__fma_f64(p, z, 0.05858140904866328);
        p = kn__fma_f64(p, z, -0.06664510525508936);
        p = kn__fma_f64(p, z, 0.07692183125376892);
        p = kn__fma_f64(p, z, -0.0909090457530649);
        p = kn__fma_f64(p, z, 0.11111111015187018);
        p = kn__fma_f64(p, z, -0.14285714284665682);
        p = kn__fma_f64(p, z, 0.19999999999995516);
        p = kn__fma_f64(p, z, -0.3333333333333333);
        return p;
    }
    double p = 0.05047937432040091;
    p = kn__fma_f64(p, z, -0.08624598215196126);
    p = kn__fma_f64(p, z, 0.11071354571201351);
    p = kn__fma_f64(p, z, -0.14284150629730288);
    p = kn__fma_f64(p, z, 0.1999997724823353);
    p = kn__fma_f64(p, z, -0.3333333327922454);
    return p;
}

/* (asin t / t - 1)/t², z = t² up to 1/4 */
KN_MATH double kn__asin_tail(double z, bool wide) {
    if (wide) {
        double p = 0.02877844261259304;
        p = kn__fma_f64(p, z, -0.014881409392818066);
        p = kn__fma_f64(p, z, 0.017419357964884856);
        p = kn__fma_f64(p, z, 0.00545087818772055);
        p = kn__fma_f64(p, z, 0.010324318288744113);
        p = kn__fma_f64(p, z, 0.011478952690257387);
        p = kn__fma_f64(p, z, 0.013971235301124539);
        p = kn__fma_f64(p, z, 0.017352391265909227);
        p = kn__fma_f64(p, z, 0.022372173002005596);
        p = kn__fma_f64(p, z, 0.030381944137085216);
        p = kn__fma_f64(p, z, 0.04464285714637338);
        p = kn__fma_f64(p, z, 0.07499999999998425);
        p = kn__fma_f64(p, z, 0.16666666666666669);
        return p;
    }
    double p = 0.03098546039993495;
    p = kn__fma_f64(p, z, 0.01056694782140368);
    p = kn__fma_f64(p, z, 0.02361371422189475);
    p = kn__fma_f64(p, z, 0.030268919101073113);
    p = kn__fma_f64(p, z, 0.044647675217118564);
    p = kn__fma_f64(p, z, 0.07499992383419403);
    p = kn__fma_f64(p, z, 0.16666666686147094);
    return p;
}

/* atan(n/d), 0 <= n <= d: above tan(π/8) as π/4 + atan((n - d)/(n + d)). */
KN_MATH double kn__atan_within(double n, double d, bool wide) {
    bool turned = n > 0.41421356237309503 * d;
    double top = turned ? n - d : n, bottom = turned ? n + d : d;
    double t = top / bottom, z = t * t, rest = t * z * kn__atan_tail(z, wide);
    return turned ? (0.5 * KN_HALF_PI + t) + (rest + 0.5 * KN_HALF_PI_LOW) : t + rest;
}

KN_MATH double kn__atan(double x, bool wide) {
    double size = fabs(x);
    bool inverse = size > 1;
    double y = kn__atan_within(inverse ? 1 : size, inverse ? size : 1, wide);
    y = inverse ? (KN_HALF_PI - y) + KN_HALF_PI_LOW : y;
    return copysign(y, x);
}

/* The angle of (x, y): zeros and infinities count by their signs, as C's atan2. */
KN_MATH double kn__atan2(double y, double x, bool wide) {
    double a = fabs(y), b = fabs(x);
    bool steep = a > b, same = a == b, back = (int64_t)kn__f64_bits(x) < 0;
    double n = steep ? b : a, d = steep ? a : b;
    double scale = d > 0x1p1000 ? 0x1p-30 : 1; /* their sum is finite */
    n = same ? (a == 0 ? 0 : 1) : n * scale;
    d = same ? 1 : d * scale;
    double angle = kn__atan_within(n, d, wide);
    angle = steep ? (KN_HALF_PI - angle) + KN_HALF_PI_LOW : angle;
    angle = back ? (2 * KN_HALF_PI - angle) + 2 * KN_HALF_PI_LOW : angle;
    return ((x != x) | (y != y)) ? x + y : copysign(angle, y);
}

/* asin and acos of |x| > ½ by the root of (1 - |x|)/2. */
KN_MATH double kn__asin(double x, bool wide) {
    double size = fabs(x);
    bool large = size > 0.5;
    double z = large ? 0.5 * (1 - size) : x * x, t = large ? sqrt(z) : size;
    double rest = t * z * kn__asin_tail(z, wide);
    return copysign(large ? (KN_HALF_PI - 2 * t) - (2 * rest - KN_HALF_PI_LOW) : t + rest, x);
}
KN_MATH double kn__acos(double x, bool wide) {
    double size = fabs(x);
    bool large = size > 0.5;
    double z = large ? 0.5 * (1 - size) : x * x, t = large ? sqrt(z) : x;
    double rest = t * z * kn__asin_tail(z, wide), twice = 2 * (t + rest);
    double far = x < 0 ? 2 * KN_HALF_PI - (twice - 2 * KN_HALF_PI_LOW) : twice;
    return large ? far : KN_HALF_PI - (t - (KN_HALF_PI_LOW - rest));
}

/* --- sin, cos, tan --- */

/* (sin r / r - 1)/r², z = r² up to (π/4)² */
KN_MATH double kn__sin_tail(double z, bool wide) {
    if (wide) {
        double p = 1.5917988979397435e-10;
        p = kn__fma_f64(p, z, -2.5051129896450185e-08);
        p = kn__fma_f64(p, z, 2.7557316093198404e-06);
        p = kn__fma_f64(p, z, -0.00019841269836740532);
        p = kn__fma_f64(p, z, 0.008333333333330936);
        p = kn__fma_f64(p, z, -0.16666666666666666);
        return p;
    }
    double p = 2.724962008007533e-06;
    p = kn__fma_f64(p, z, -0.00019840084376422702);
    p = kn__fma_f64(p, z, 0.008333331870341349);
    p = kn__fma_f64(p, z, -0.16666666663844049);
    return p;
}

/* (cos r - 1 + r²/2)/r⁴, of the same z */
KN_MATH double kn__cos_tail(double z, bool wide) {
    if (wide) {
        double p = -1.138254464534925e-11;
        p = kn__fma_f64(p, z, 2.087614504941318e-09);
        p = kn__fma_f64(p, z, -2.755731726587808e-07);
        p = kn__fma_f64(p, z, 2.48015872987544e-05);
        p = kn__fma_f64(p, z, -0.0013888888888887389);
        p = kn__fma_f64(p, z, 0.041666666666666664);
        return p;
    }
    double p = 2.454768977246003e-05;
    p = kn__fma_f64(p, z, -0.001388830186756237);
    p = kn__fma_f64(p, z, 0.04166666465348879);
    return p;
}

/* Whether an element is out of reach of the reduction below, at 2^19. */
static inline __attribute__((pure)) bool kn__any_far_f64(const double *x, int64_t n) {
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = kn__f64_bits(x[i]) & 0x7FFFFFFFFFFFFFFFu;
        most = bits > most ? bits : most;
    }
    return most >= (uint64_t)(1023 + 19) << 52;
}

/* high + low, what a + b is exactly: Knuth's TwoSum. */
typedef struct kn__two_f64 {
    double high, low;
} kn__two_f64;
KN_MATH kn__two_f64 kn__two_sum(double a, double b) {
    double sum = a + b, other = sum - a;
    return (kn__two_f64){sum, (a - (sum - other)) + (b - other)};
}

/* x = n·π/2 + r, |r| <= π/4, and n modulo 4, for |x| < 2^19: with π/2 in four parts, products with
 * the first three exact. */
KN_MATH kn__two_f64 kn__quarter_f64(uint64_t *n, double x) {
    double shifted = x * 0.63661977236758134 + KN_ROUND_F64, whole = shifted - KN_ROUND_F64;
    *n = kn__f64_bits(shifted);
    kn__two_f64 first = kn__two_sum(x - whole * 0x1.921fb544p+0, whole * -0x1.0b4611a6p-34);
    kn__two_f64 second = kn__two_sum(first.high, whole * -0x1.3198a2ep-69);
    double rest = (first.low + second.low) - whole * 0x1.b839a252049c1p-104;
    double r = second.high + rest;
    return (kn__two_f64){r, (second.high - r) + rest};
}

KN_MATH double kn__sine(kn__two_f64 r, bool wide) {
    double z = r.high * r.high, half = 0.5 * z;
    double rest = r.high * z * kn__sin_tail(z, wide);
    return r.high + (rest + r.low * (1 - half));
}
KN_MATH double kn__cosine(kn__two_f64 r, bool wide) {
    double z = r.high * r.high, half = 0.5 * z, most = 1 - half;
    return most + (((1 - most) - half) + (z * z * kn__cos_tail(z, wide) - r.high * r.low));
}

KN_MATH double kn__sin_quarters_f64(double x, uint64_t quarters) {
    uint64_t n;
    kn__two_f64 r = kn__quarter_f64(&n, x);
    n += quarters;
    double y = n & 1 ? kn__cosine(r, true) : kn__sine(r, true);
    return n & 2 ? -y : y;
}
/* far: whether |x| may be 2^19 or more, or no number: the C library's. */
KN_MATH double kn__sin_f64(double x, bool far) {
    if (far && !(fabs(x) < 0x1p19)) return sin(x);
    double y = kn__sin_quarters_f64(x, 0);
    return x == 0 ? x : y;
}
KN_MATH double kn__cos_f64(double x, bool far) {
    if (far && !(fabs(x) < 0x1p19)) return cos(x);
    return kn__sin_quarters_f64(x, 1);
}

KN_MATH double kn__tan_of(kn__two_f64 r, uint64_t n, bool wide) {
    double sine = kn__sine(r, wide), cosine = kn__cosine(r, wide);
    return n & 1 ? -cosine / sine : sine / cosine;
}
KN_MATH double kn__tan_f64(double x, bool far) {
    if (far && !(fabs(x) < 0x1p19)) return tan(x);
    uint64_t n;
    kn__two_f64 r = kn__quarter_f64(&n, x);
    double y = kn__tan_of(r, n, true);
    return x == 0 ? x : y;
}

/* Of πx: x = 2m + n/2 + t, |t| <= 1/4, all exact. */
KN_MATH double kn__sinpi_quarters(double x, uint64_t quarters, bool wide) {
    double r = x - 2 * nearbyint(0.5 * x), shifted = 2 * r + KN_ROUND_F64;
    double t = r - 0.5 * (shifted - KN_ROUND_F64), high = t * 3.1415926535897931;
    double low = kn__fma_f64(t, 3.1415926535897931, -high) + t * (2 * KN_HALF_PI_LOW);
    uint64_t n = kn__f64_bits(shifted) + quarters;
    kn__two_f64 angle = {high, low};
    double y = n & 1 ? kn__cosine(angle, wide) : kn__sine(angle, wide);
    return n & 2 ? -y : y;
}
/* A zero of sin has the sign of r, or of x where r is 0; a zero of cos is +0. */
KN_MATH double kn__sinpi(double x, bool wide) {
    double y = kn__sinpi_quarters(x, 0, wide), r = x - 2 * nearbyint(0.5 * x);
    return y == 0 ? copysign(0, r == 0 ? x : r) : y;
}
KN_MATH double kn__cospi(double x, bool wide) {
    double y = kn__sinpi_quarters(x, 1, wide);
    return y == 0 ? 0 : y;
}

/* --- hyperbolic, and of right triangles --- */

/* Without squares that overflow or vanish. */
KN_MATH double kn__hypot_f64(double a, double b) {
    double x = fabs(a), y = fabs(b), most = x > y ? x : y;
    double down = most > 0x1p500 ? 0x1p-600 : 1, up = most < 0x1p-500 ? 0x1p600 : 1;
    x = x * down * up;
    y = y * down * up;
    double square = kn__fma_f64(x, x, y * y), length = sqrt(square) * (1 / down) * (1 / up);
    bool infinite = (fabs(a) > 0x1.fffffffffffffp1023) | (fabs(b) > 0x1.fffffffffffffp1023);
    return infinite ? (double)INFINITY : length;
}

/* t = (e^|x| - 1)/2, which overflows no earlier than sinh. */
KN_MATH double kn__sinh(double x) {
    double size = fabs(x);
    kn__expm1_parts_f64 e = kn__expm1_parts_of_f64(size);
    double t = kn__scale_f64(e.sum, e.k - 1), low = kn__scale_f64(e.low, e.k - 1);
    double y = t + (t / (2 * t + 1) + 1.5 * low);
    y = t > 0x1p60 ? t : y;
    return size < 0x1p-28 ? x : copysign(y, x);
}
KN_MATH double kn__cosh(double x) {
    double half = kn__exp_shifted_f64(fabs(x), 0, -1);
    return half + 0.25 / half;
}

/* ln(a + √(a² + 1)); of large a: ln 2a. */
KN_MATH double kn__asinh(double x) {
    double a = fabs(x), rest = a + a * a / (1 + sqrt(1 + a * a));
    bool large = a > 0x1p60;
    double y = kn__log1p_f64(large ? a : rest);
    return copysign(large ? y + 0.69314718055994531 : y, x);
}
KN_MATH double kn__acosh(double x) {
    bool large = x > 0x1p60;
    double y = kn__log1p_f64(large ? x : (x - 1) + sqrt((x - 1) * (x + 1)));
    y = large ? y + 0.69314718055994531 : y;
    return x < 1 ? (double)NAN : y;
}
KN_MATH double kn__atanh(double x) {
    double a = fabs(x);
    return copysign(0.5 * kn__log1p_f64(2 * a / (1 - a)), x);
}

#endif
