/* exp, log, tanh, erf, sin and their kin in f32: straight-line code that compilers vectorise, error
 * below 2 ulp (erfc: 4.4), the same bits for every instruction set that has kn__fma_f32.
 * Polynomials are minimax or Chebyshev fits, their error below 0.1 ulp. */
#ifndef KN_MATH_F32_H
#define KN_MATH_F32_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "convert.h"
#include "host/pointwise/math_angles.h"
#include "host/pointwise/math_f64.h"
#include "sigm.h"
#include "turns.h"

#define KN_ROUND_F32 0x1.8p23f /* a sum with it rounds to an integer, in its low bits */

/* y·2^k, `shifted` is k + KN_ROUND_F32: in two factors, 2^(k/2) rounded down and the rest, so that
 * infinity and subnormals come out. */
KN_MATH float kn__scale_f32(float y, float shifted) {
    uint32_t k = kn__f32_bits(shifted) << 22, half = k & 0xFF800000u, one = 0x3F800000u;
    return y * kn__bits_f32(half + one) * kn__bits_f32(2 * k - half + one);
}

/* (e^r - 1 - r)/r², |r| <= ln 2 / 2 */
KN_MATH float kn__exp_tail_f32(float r) {
    float p = 0.001381462154932819f;
    p = kn__fma_f32(p, r, 0.008368716168736884f);
    p = kn__fma_f32(p, r, 0.04166838756299099f);
    p = kn__fma_f32(p, r, 0.16666520639352658f);
    return kn__fma_f32(p, r, 0.49999993450252306f);
}

/* e^r of |r| <= ln 2 / 2, x + low = k·ln 2 + r, |low| small beside x; *shifted is
 * k + KN_ROUND_F32. */
KN_MATH float kn__exp_rest_f32(float *shifted, float x, float low) {
    *shifted = kn__fma_f32(x, 1.44269504088896341f, KN_ROUND_F32);
    float k = *shifted - KN_ROUND_F32;
    float r = kn__fma_f32(k, -0.693359375f, x) - kn__fma_f32(k, -2.12194440054690583e-4f, -low);
    return kn__fma_f32(kn__exp_tail_f32(r), r * r, r) + 1.0f;
}

/* e^(x + low), x from -105 to 43: by 2^(k + 64) and 2^-64, so that subnormals come out. */
KN_MATH float kn__exp_within_f32(float x, float low) {
    float shifted, y = kn__exp_rest_f32(&shifted, x, low);
    return y * kn__bits_f32((kn__f32_bits(shifted) << 23) + 0x5F800000u) * 0x1p-64f;
}

/* Choices at the end, not of x: compilers would carry them through all that follows. */
KN_MATH float kn__exp_f32(float x) {
    float shifted, rest = kn__exp_rest_f32(&shifted, x, 0), y = kn__scale_f32(rest, shifted);
    y = x < -104.0f ? 0 : y;
    return x > 89.0f ? INFINITY : y;
}

KN_MATH float kn__exp2_f32(float x) {
    float c = x < -152.0f ? -152.0f : x;
    c = c > 129.0f ? 129.0f : c;
    float shifted = c + KN_ROUND_F32, r = c - (shifted - KN_ROUND_F32);
    float p = 1.529732376e-05f;
    p = kn__fma_f32(p, r, 0.000154614447f);
    p = kn__fma_f32(p, r, 0.001333350239f);
    p = kn__fma_f32(p, r, 0.009618056679f);
    p = kn__fma_f32(p, r, 0.05550410884f);
    p = kn__fma_f32(p, r, 0.2402265092f);
    p = kn__fma_f32(p, r, 0.6931471806f);
    return kn__scale_f32(kn__fma_f32(p, r, 1.0f), shifted);
}

/* e^x - 1 = 2^k·(1 - 2^-k + e^r - 1), whose terms are added up exactly but for the last rounding.
 */
KN_MATH float kn__expm1_f32(float x) {
    float c = x < -20.0f ? -20.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float shifted = c * 1.44269504088896341f + KN_ROUND_F32, k = shifted - KN_ROUND_F32;
    float exact = c - k * 0.693359375f, tail = k * -2.12194440054690583e-4f;
    float r = exact - tail, r_low = (exact - r) - tail;
    float p = 0.0001989108046f;
    p = kn__fma_f32(p, r, 0.001393373072f);
    p = kn__fma_f32(p, r, 0.008333310845f);
    p = kn__fma_f32(p, r, 0.0416664642f);
    p = kn__fma_f32(p, r, 0.1666666668f);
    p = kn__fma_f32(p, r, 0.5000000014f);
    float one = 1.0f - kn__power_f32(KN_ROUND_F32 - (k > 30.0f ? 30.0f : k), 0), high = one + r;
    float y = high + (((one - high) + r) + (r * r * p + r_low));
    y = kn__scale_f32(y, shifted);
    return x == 0 ? x : y;
}

/* x = m·2^k, m in [√½, √2), f = m - 1. */
typedef struct kn__parts_f32 {
    float k, f;
} kn__parts_f32;

KN_MATH kn__parts_f32 kn__parts_of_f32(float x) {
    float scaled = x < 0x1p-126f ? x * 0x1p25f : x;
    float extra = x < 0x1p-126f ? 25.0f : 0.0f;
    uint32_t shifted = kn__f32_bits(scaled) - 0x3F3504F3u; /* √½ */
    kn__parts_f32 parts;
    parts.k = (float)((int32_t)shifted >> 23) - extra;
    parts.f = kn__bits_f32((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    return parts;
}

/* ln(1 + f) = f - f²/2 + this */
KN_MATH float kn__log_tail_f32(float f) {
    float p = 0.06746704876004897f;
    p = kn__fma_f32(p, f, -0.1167560319099064f);
    p = kn__fma_f32(p, f, 0.1188810248196995f);
    p = kn__fma_f32(p, f, -0.12405593406708537f);
    p = kn__fma_f32(p, f, 0.1421956208132468f);
    p = kn__fma_f32(p, f, -0.16667995937964833f);
    p = kn__fma_f32(p, f, 0.20002118105914357f);
    p = kn__fma_f32(p, f, -0.2500000958967367f);
    p = kn__fma_f32(p, f, 0.3333331261400775f);
    return f * (f * f) * p;
}

/* What ln makes of the ends of its range: y, or what belongs to x. */
KN_MATH float kn__log_ends_f32(float x, float y) {
    y = x > 0x1.fffffep127f ? x : y;
    y = x == 0 ? -INFINITY : y;
    return x >= 0 ? y : NAN - x * 0; /* negative and NaN */
}

KN_MATH float kn__log_sum_f32(kn__parts_f32 m, float low) {
    float tail = kn__log_tail_f32(m.f) + kn__fma_f32(m.k, -2.12194440054690583e-4f, low);
    return kn__fma_f32(m.k, 0.693359375f, tail - 0.5f * (m.f * m.f) + m.f);
}

KN_MATH float kn__log_f32(float x) {
    return kn__log_ends_f32(x, kn__log_sum_f32(kn__parts_of_f32(x), 0));
}

/* u = 1 + x, rounded; the rounding error is added as lost/u. */
KN_MATH float kn__log1p_f32(float x) {
    float u = 1.0f + x, lost = fabsf(x) < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    float y = kn__log_ends_f32(u, kn__log_sum_f32(kn__parts_of_f32(u), lost / u));
    return x == 0 ? x : y;
}

/* k·k_scale + ln(m)·scale, in f64 but for the polynomial. */
KN_MATH float kn__log_scaled_f32(float x, double k_scale, double scale) {
    kn__parts_f32 m = kn__parts_of_f32(x);
    double f = (double)m.f, log = (double)kn__log_tail_f32(m.f) - 0.5 * f * f + f;
    return kn__log_ends_f32(x, (float)((double)m.k * k_scale + log * scale));
}

KN_MATH float kn__log2_f32(float x) { return kn__log_scaled_f32(x, 1, 1.44269504088896341); }
KN_MATH float kn__log10_f32(float x) {
    return kn__log_scaled_f32(x, 0.30102999566398120, 0.43429448190325183);
}

/* Small |x| by x + x³·p(x²), the others by 1 - 2/(e^2|x| + 1). */
KN_MATH float kn__tanh_f32(float x) {
    float z = x * x, p = 0.002147753724474016f;
    p = kn__fma_f32(p, z, -0.008182937366620341f);
    p = kn__fma_f32(p, z, 0.021703088061450784f);
    p = kn__fma_f32(p, z, -0.053947230067824314f);
    p = kn__fma_f32(p, z, 0.13333210013318883f);
    p = kn__fma_f32(p, z, -0.3333333091508564f);
    float small = kn__fma_f32(p * z, x, x);
    float size = fabsf(x), large = 1.0f - 2.0f / (kn__exp_within_f32(2.0f * size, 0) + 1.0f);
    large = size > 20.0f ? 1.0f : large;
    return copysignf(size < 0.625f ? small : large, x);
}

/* erf x = x + x·p(x²) for |x| < 1 */
KN_MATH float kn__erf_small_f32(float x) {
    float z = x * x, p = 7.85386146e-05f;
    p = kn__fma_f32(p, z, -0.000801019371f);
    p = kn__fma_f32(p, z, 0.00518832775f);
    p = kn__fma_f32(p, z, -0.0268538129f);
    p = kn__fma_f32(p, z, 0.112835854f);
    p = kn__fma_f32(p, z, -0.37612626f);
    p = kn__fma_f32(p, z, 0.128379166f);
    return kn__fma_f32(x, p, x);
}

/* From 1 on by 1 - 2^q(|x|), where q is the binary logarithm of erfc: from -2.7 to -26, and an
 * error of 2^q counts a fifth at most. So one step takes its integer off, and one factor brings
 * that back. NaN comes through q. */
KN_MATH float kn__erf_f32(float x) {
    float size = fabsf(x);
    float c = size > 4.0f ? 4.0f : size, q = 0.00026888834f;
    q = kn__fma_f32(q, c, -0.00425257208f);
    q = kn__fma_f32(q, c, 0.0315056667f);
    q = kn__fma_f32(q, c, -0.148751602f);
    q = kn__fma_f32(q, c, -0.920648396f);
    q = kn__fma_f32(q, c, -1.62604594f);
    q = kn__fma_f32(q, c, -0.000492713589f);
    float shifted = q + KN_ROUND_F32, r = q - (shifted - KN_ROUND_F32), e = 0.00134072383f;
    e = kn__fma_f32(e, r, 0.00967186131f);
    e = kn__fma_f32(e, r, 0.0555030853f);
    e = kn__fma_f32(e, r, 0.24022235f);
    e = kn__fma_f32(e, r, 0.693147242f);
    e = kn__fma_f32(e, r, 1.0f);
    float large = kn__fma_f32(-e, kn__bits_f32((kn__f32_bits(shifted) << 23) + 0x3F800000u), 1.0f);
    return size < 1.0f ? kn__erf_small_f32(x) : copysignf(large, x);
}

/* |x| < ½ by 1 - erf(x), the others by e^(-x²)·t·g(u), t = 1/(1 + |x|/2), u = (|x| - 1)·t: g feels
 * the error of u little. x² is the exact square of 12 leading bits, and a rest. */
KN_MATH float kn__erfc_f32(float x) {
    float size = fabsf(x), c = size < 10.2f ? size : 10.2f;
    float high = kn__bits_f32(kn__f32_bits(c) & 0xFFFFF000u);
    float e = kn__exp_within_f32(-high * high, -((c - high) * (c + high)));
    float t = 1.0f / kn__fma_f32(0.5f, c, 1.0f), u = (c - 1.0f) * t, g = -9.334680334e-06f;
    g = kn__fma_f32(g, u, 1.386186108e-05f);
    g = kn__fma_f32(g, u, 0.0001488480746f);
    g = kn__fma_f32(g, u, -2.794008873e-05f);
    g = kn__fma_f32(g, u, -0.002631180255f);
    g = kn__fma_f32(g, u, -0.0004526422073f);
    g = kn__fma_f32(g, u, 0.06662080747f);
    g = kn__fma_f32(g, u, -0.2940394112f);
    g = kn__fma_f32(g, u, 0.6413753654f);
    float y = e * (t * g);
    y = x < 0 ? 2.0f - y : y;
    y = size < 0.5f ? 1.0f - kn__erf_small_f32(x) : y;
    return x == x ? y : x;
}

/* The integral of the normal distribution, erfc(-x/√2)/2, by shorter sums: the error of e^(-x²/2)
 * is larger than theirs, up to x²/2 ulp. Of NaN some number: x·y is NaN. */
KN_MATH float kn__normal_cdf_f32(float x) {
    float size = fabsf(x), c = size < 14.4f ? size : 14.4f,
          e = kn__exp_within_f32(-0.5f * c * c, 0);
    float t = 1.0f / kn__fma_f32(0.26516504294495533f, c, 1.0f), g = 0.03065882582f;
    g = kn__fma_f32(g, t, -0.14314410745f);
    g = kn__fma_f32(g, t, 0.2151546851f);
    g = kn__fma_f32(g, t, -0.11354580735f);
    g = kn__fma_f32(g, t, 0.13608212045f);
    g = kn__fma_f32(g, t, 0.06107655f);
    g = kn__fma_f32(g, t, 0.1025756596f);
    g = kn__fma_f32(g, t, 0.10533598035f);
    g = kn__fma_f32(g, t, 0.1058060927f);
    float y = e * (t * g);
    return x < 0 ? y : 1.0f - y;
}

/* Whether an element is out of reach of the fast reduction below. */
static inline __attribute__((pure)) bool kn__any_far_f32(const float *x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = kn__f32_bits(x[i]) & 0x7FFFFFFFu;
        most = bits > most ? bits : most;
    }
    return most >= 146u << 23;
}

/* x = (n + quarter)·π/2 with |quarter| <= 1/2, as quarter·π/2 and n modulo 4, for |x| < 2^19: with
 * π/2 in two parts. */
KN_MATH double kn__quarter_f32(uint32_t *n, float x) {
    double y = (double)x, shifted = y * 0.63661977236758134 + 0x1.8p52, whole = shifted - 0x1.8p52;
    uint64_t bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    *n = (uint32_t)bits;
    return (y - whole * 0x1.921fb544p+0) - whole * 0x1.0b4611a626331p-34;
}

/* The same for larger |x|, integers of 24 bits times 2^(e - 150): a table has what that power is
 * modulo 4. */
KN_MATH double kn__far_quarter_f32(uint32_t *n, float x) {
    uint32_t bits = kn__f32_bits(x) & 0x7FFFFFFFu, e = bits >> 23;
    double m = (double)(int32_t)((bits & 0x007FFFFFu) | 0x00800000u);
    const double *turn = kn_turns_[e < 146 ? 0 : e - 146];
    double product = m * turn[0], fours = (product * 0.25 + 0x1.8p52) - 0x1.8p52;
    double high = product - 4 * fours, low = m * turn[1];
    double shifted = (high + low) + 0x1.8p52, whole = shifted - 0x1.8p52;
    double r = ((high - whole) + low) * 1.57079632679489662;
    shifted = x < 0 ? 0x1.8p52 - whole : shifted;
    uint64_t count;
    __builtin_memcpy(&count, &shifted, sizeof count);
    *n = (uint32_t)count;
    return x < 0 ? -r : r;
}

KN_MATH float kn__sin_of_f32(float r, uint32_t n) {
    float z = r * r, p = 2.724686872e-06f, q = 2.454541908e-05f;
    p = kn__fma_f32(p, z, -0.0001984006304f);
    p = kn__fma_f32(p, z, 0.008333331831f);
    p = kn__fma_f32(p, z, -0.1666666666f);
    q = kn__fma_f32(q, z, -0.00138882913f);
    q = kn__fma_f32(q, z, 0.0416666646f);
    float sine = kn__fma_f32(r, z * p, r), cosine = 1.0f + kn__fma_f32(z * z, q, -0.5f * z);
    float y = n & 1 ? cosine : sine;
    return n & 2 ? -y : y;
}

/* far: whether |x| may be 2^19 or more. */
KN_MATH float kn__sin_quarters_f32(float x, uint32_t quarters, bool far) {
    uint32_t n, far_n;
    float r = (float)kn__quarter_f32(&n, x);
    if (far) {
        float far_r = (float)kn__far_quarter_f32(&far_n, x);
        bool is_far = fabsf(x) >= 0x1p19f;
        r = is_far ? far_r : r;
        n = is_far ? far_n : n;
    }
    float y = kn__sin_of_f32(r, n + quarters);
    return far && !(fabsf(x) <= 0x1.fffffep127f) ? x - x : y; /* infinity, NaN */
}

KN_MATH float kn__sin_f32(float x, bool far) {
    float y = kn__sin_quarters_f32(x, 0, far);
    return x == 0 ? x : y;
}
KN_MATH float kn__cos_f32(float x, bool far) { return kn__sin_quarters_f32(x, 1, far); }

KN_MATH float kn__tan_f32(float x, bool far) {
    uint32_t n, far_n;
    double r = kn__quarter_f32(&n, x);
    if (far) {
        double far_r = kn__far_quarter_f32(&far_n, x);
        bool is_far = fabsf(x) >= 0x1p19f;
        r = is_far ? far_r : r;
        n = is_far ? far_n : n;
    }
    float y = (float)kn__tan_of((kn__two_f64){r, 0}, n, false);
    y = x == 0 ? x : y;
    return far && !(fabsf(x) <= 0x1.fffffep127f) ? x - x : y; /* infinity, NaN */
}

/* --- by f64: the roundings before the last one don't show --- */

KN_MATH float kn__hypot_f32(float a, float b) {
    double square = (double)a * (double)a + (double)b * (double)b; /* doesn't overflow */
    bool infinite = (fabsf(a) > 0x1.fffffep127f) | (fabsf(b) > 0x1.fffffep127f);
    return infinite ? INFINITY : (float)sqrt(square); /* of infinity and NaN too */
}

/* Whether the quotient has more than 23 bits, or isn't finite. */
KN_MATH bool kn__quotient_is_far_f32(float a, float b) {
    return !(fabsf(a) < 0x1p22f * fabsf(b) && fabsf(b) <= 0x1.fffffep127f);
}

/* a - n·b with the sign of a. n has 23 bits, so that n·b is exact in f64; a quotient just below n
 * may have been rounded up to it. far: whether a quotient may be far. */
KN_MATH double kn__wide_fmod_f32(float a, float b, bool far) {
    if (far && kn__quotient_is_far_f32(a, b)) return (double)fmodf(a, b);
    double y = fabs((double)b), n = (double)truncf(fabsf(a) / fabsf(b));
    double rest = fabs((double)a) - n * y;
    return copysign(rest < 0 ? rest + y : rest, (double)a);
}

KN_MATH float kn__fmod_f32(float a, float b, bool far) {
    return (float)kn__wide_fmod_f32(a, b, far);
}

/* The same with the sign of b. */
KN_MATH float kn__mod_f32(float a, float b, bool far) {
    double y = (double)b, rest = kn__wide_fmod_f32(a, b, far);
    double other = (rest < 0) != (b < 0) ? rest + y : rest;
    return (float)(rest == 0 ? copysign(0, y) : other);
}

/* floor(a/b): without the rest, which has a's sign, the quotient is whole. */
KN_MATH float kn__floor_div_f32(float a, float b, bool far) {
    double y = (double)b, rest = kn__wide_fmod_f32(a, b, far);
    double whole = nearbyint(((double)a - rest) / y);
    double below = (rest < 0) != (b < 0) ? whole - 1 : whole;
    double q = rest == 0 ? whole : below, sign = (double)(a / b);
    return b == 0 ? a / b : (float)copysign(q, sign);
}

/* a^b = 2^(b·log2 |a|), with the signs and the ends of C's powf. */
KN_MATH float kn__pow_f32(float a, float b) {
    float size = fabsf(a), half = 0.5f * b;
    kn__parts_f32 m = kn__parts_of_f32(size);
    double f = (double)m.f, s = f / (2 + f), z = s * s, q = 1.0 / 13;
    q = kn__fma_f64(q, z, 1.0 / 11);
    q = kn__fma_f64(q, z, 1.0 / 9);
    q = kn__fma_f64(q, z, 1.0 / 7);
    q = kn__fma_f64(q, z, 1.0 / 5);
    q = kn__fma_f64(q, z, 1.0 / 3);
    double log2 = (double)m.k + (s + s * z * q) * 2.8853900817779268;
    log2 = size == 0 ? -(double)INFINITY : log2;
    log2 = size <= 0x1.fffffep127f ? log2 : (double)size; /* infinity and NaN */
    double y = (double)b * log2;
    y = ((size == 1.0f) | (b == 0)) ? 0 : y;
    y = y < -160 ? -160 : y;
    y = y > 130 ? 130 : y;
    double shifted = y + KN_ROUND_F64, r = y - (shifted - KN_ROUND_F64);
    double p = 1.3215486790144305e-06;
    p = kn__fma_f64(p, r, 1.5252733804059838e-05);
    p = kn__fma_f64(p, r, 0.00015403530393381606);
    p = kn__fma_f64(p, r, 0.0013333558146428441);
    p = kn__fma_f64(p, r, 0.009618129107628477);
    p = kn__fma_f64(p, r, 0.055504108664821576);
    p = kn__fma_f64(p, r, 0.2402265069591007);
    p = kn__fma_f64(p, r, 0.6931471805599453);
    float power = (float)(kn__fma_f64(p, r, 1.0) * kn__power_f64(shifted, 0));
    bool whole = floorf(b) == b, odd = whole & (floorf(half) != half);
    bool negative = (int32_t)kn__f32_bits(a) < 0, none = (a < 0) & (a >= -0x1.fffffep127f) & !whole;
    power = (negative & odd) ? -power : power;
    power = none ? NAN : power;
    return ((b == 0) | (a == 1.0f)) ? 1.0f : power;
}

/* ln Γ(x), x > 0: below 3 Γ's logarithm at t + 1 is t·(t - 1)·p(t - 1), with t = x - 1, or t = x
 * and Γ(x) = Γ(x + 1)/x; above Stirling's series. The error of both is below 1e-8. */
KN_MATH float kn__lgamma_f32(float x) {
    kn__parts_f32 m = kn__parts_of_f32(x);
    float t = x < 1.0f ? x : x - 1.0f, s = t - 1.0f, p = 1.809150763e-05f;
    p = kn__fma_f32(p, s, -3.858047276e-05f);
    p = kn__fma_f32(p, s, 2.388162148e-05f);
    p = kn__fma_f32(p, s, -5.283974105e-05f);
    p = kn__fma_f32(p, s, 0.0001917396729f);
    p = kn__fma_f32(p, s, -0.0004251541267f);
    p = kn__fma_f32(p, s, 0.0009125944902f);
    p = kn__fma_f32(p, s, -0.002102242433f);
    p = kn__fma_f32(p, s, 0.004998996087f);
    p = kn__fma_f32(p, s, -0.01238494322f);
    p = kn__fma_f32(p, s, 0.03296498784f);
    p = kn__fma_f32(p, s, -0.1003172746f);
    p = kn__fma_f32(p, s, 0.4227843351f);
    double f = (double)m.f, log = (double)kn__log_tail_f32(m.f) - 0.5 * f * f + f;
    log += (double)m.k * 0.69314718055994531;
    double wide = (double)t, near = wide * (wide - 1) * (double)p + (x < 1.0f ? -log : 0);
    double y = (double)x, inverse = 1 / y, w = inverse * inverse;
    double sum =
        ((-0.0004544283519 * w + 0.0007847184215) * w + -0.002777586225) * w + 0.08333333267;
    double far = (y - 0.5) * log - y + 0.91893853320467274 + sum * inverse;
    float result = (float)(x < 3.0f ? near : far);
    return x <= 0x1.fffffep127f ? result : x; /* infinity */
}

/* ψ(x), x > 0: below 10 the terms up to x + 10, as one fraction, then the series of polygamma.h. */
KN_MATH float kn__digamma_f32(float x) {
    double wide = (double)x, t = wide < 10 ? wide : 1, w = t * t + t, n = 2 * t + 1, d = w;
    for (int k = 1; k < 5; k++) { /* 1/(t + 2k) + 1/(t + 2k + 1) */
        double e = w + (4 * k * t + 2 * k * (2 * k + 1));
        n = n * e + (2 * t + (4 * k + 1)) * d;
        d *= e;
    }
    double y = wide < 10 ? wide + 10 : wide, inverse = 1 / y, z = inverse * inverse;
    double p = 1.0 / 132 - z * (691.0 / 32760);
    p = ((p * z - 1.0 / 240) * z + 1.0 / 252) * z - 1.0 / 120;
    double series = kn__log_f64(y) - 0.5 * inverse - z * (p * z + 1.0 / 12);
    return (float)(series - (wide < 10 ? n / d : 0));
}

/* ψ'(x), likewise. */
KN_MATH float kn__trigamma_f32(float x) {
    double wide = (double)x, t = wide < 10 ? wide : 1, n = 0, d = 1;
    for (int k = 0; k < 5; k++) {
        double a = (t + 2 * k) * (t + 2 * k), b = (t + (2 * k + 1)) * (t + (2 * k + 1)), e = a * b;
        n = n * e + (a + b) * d;
        d *= e;
    }
    double y = wide < 10 ? wide + 10 : wide, inverse = 1 / y, z = inverse * inverse;
    double series = inverse * (1 + 0.5 * inverse + z * ((z * (1.0 / 42) - 1.0 / 30) * z + 1.0 / 6));
    return (float)(series + (wide < 10 ? n / d : 0));
}

/* x·p(w), w = -ln(1 - x²), below w = 6; above a polynomial of √w. The error of both is below
 * 1e-8. */
KN_MATH float kn__erfinv_f32(float x) {
    double wide = (double)x, w = -kn__log_f64((1 - wide) * (1 + wide)); /* exact */
    double t = w - 3, s = sqrt(w) - 3.2747448713915888;
    double near = 6.751921426360885e-10;
    near = kn__fma_f64(near, t, -5.430625584472751e-09);
    near = kn__fma_f64(near, t, -1.9426710924411974e-08);
    near = kn__fma_f64(near, t, 4.4756718967559766e-07);
    near = kn__fma_f64(near, t, -1.7674982506758127e-06);
    near = kn__fma_f64(near, t, -1.270318588974148e-05);
    near = kn__fma_f64(near, t, 0.00019510191683190823);
    near = kn__fma_f64(near, t, -0.0008362063858050736);
    near = kn__fma_f64(near, t, -0.005738166249993721);
    near = kn__fma_f64(near, t, 0.24163041618948547);
    near = kn__fma_f64(near, t, 1.6235420103172924);
    double far = 7.374729554781361e-05;
    far = kn__fma_f64(far, s, -3.104349918956848e-05);
    far = kn__fma_f64(far, s, -0.00035847961482115463);
    far = kn__fma_f64(far, s, 0.0009320896760572632);
    far = kn__fma_f64(far, s, -0.0015486805149945502);
    far = kn__fma_f64(far, s, 0.0022816230376538284);
    far = kn__fma_f64(far, s, -0.0035149574697560903);
    far = kn__fma_f64(far, s, 0.005102147604686461);
    far = kn__fma_f64(far, s, 1.005518039760307);
    far = kn__fma_f64(far, s, 3.1087638362957457);
    double y = wide * (w < 6 ? near : far);
    float size = fabsf(x), ends = size == 1.0f ? x * INFINITY : NAN; /* of NaN one NaN */
    return size < 1.0f ? (float)y : ends;
}

#endif
