/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011)
 * and the numbers made of its words, shared by the host and the CUDA kernels, so that both give the
 * same bits.
 *
 * State is I64[2]: seed (the key) and offset (the first counter not used yet). The element map is
 * fixed: 32 consecutive elements take 8 counters of 4 words; element 32b + 8w + l is word w of
 * counter offset + 8b + l. Doubles take two words, so 16 consecutive elements take 8 counters, and
 * element 16b + 8p + l is words 2p and 2p + 1 of counter offset + 8b + l. Dropout's mask uses the
 * one-word map for every dtype. So results depend on (seed, offset, element) only: not on threads,
 * grid or device.
 *
 * Normals come in pairs from one counter (Box-Muller): in the one-word map words 0, 1 make elements
 * 8·0 + l and 8·1 + l, words 2, 3 the other two; for doubles words (0, 1) and (2, 3) are the two
 * uniforms of elements 8·0 + l and 8·1 + l.
 *
 * Exponential numbers take one uniform each, by the map of their type.
 *
 * Bernoulli's uses the one-word map for every dtype, integers and truncated normals the doubles'.
 * A permutation takes the first five counters, one of up to 32 elements a counter each.
 *
 * rng_take gives out[0] = seed, out[1] = offset, then moves the generator's offset on by
 * kn__philox_counters(n): enough for n doubles, whatever the dtype.
 *
 * All arithmetic is made of single correctly rounded operations (never contracted to fma), which is
 * what makes it the same everywhere.
 */
#ifndef KN_PHILOX_H
#define KN_PHILOX_H

#include <stdint.h>
#include <string.h>

#include "rounded.h"

#define KN_PHILOX_M0 0xD2511F53u
#define KN_PHILOX_M1 0xCD9E8D57u
#define KN_PHILOX_W0 0x9E3779B9u
#define KN_PHILOX_W1 0xBB67AE85u

/* The four words of one counter. The upper half of the 128-bit counter is a stream number. */
static inline KN_HOST_DEVICE void kn__philox_stream(uint32_t out[4], uint64_t counter,
                                                    uint64_t seed, uint32_t stream) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = stream, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)KN_PHILOX_M0 * c0, p1 = (uint64_t)KN_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += KN_PHILOX_W0;
        k1 += KN_PHILOX_W1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}
static inline KN_HOST_DEVICE void kn__philox(uint32_t out[4], uint64_t counter, uint64_t seed) {
    kn__philox_stream(out, counter, seed, 0);
}

/* Counters that n elements take. */
static inline KN_HOST_DEVICE uint64_t kn__philox_counters(int64_t n) {
    return ((uint64_t)n + 15) / 16 * 8;
}

/* [0, 1) with 24 and with 53 bits. */
static inline KN_STRAIGHT float kn__unit_f32(uint32_t word) {
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}
static inline KN_STRAIGHT double kn__unit_f64(uint32_t low, uint32_t high) {
    return (double)(int64_t)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

/* lo + u·(hi - lo), kept below hi, which rounding could reach. `below`: kn__below_*(lo, hi). */
static inline KN_HOST_DEVICE float kn__uniform_f32(uint32_t word, float lo, float hi, float below) {
    float y = KN_ADD_F32(lo, KN_MUL_F32(kn__unit_f32(word), hi - lo));
    return y < below ? y : below;
}
static inline KN_HOST_DEVICE double kn__uniform_f64(uint32_t low, uint32_t high, double lo,
                                                    double hi, double below) {
    double y = KN_ADD_F64(lo, KN_MUL_F64(kn__unit_f64(low, high), hi - lo));
    return y < below ? y : below;
}
/* The largest value below hi, or hi itself when the interval is empty. */
static inline KN_HOST_DEVICE float kn__below_f32(float lo, float hi) {
    uint32_t bits;
    memcpy(&bits, &hi, sizeof bits);
    bits = hi == 0 ? 0x80000001u : (hi > 0 ? bits - 1 : bits + 1);
    float below;
    memcpy(&below, &bits, sizeof below);
    return lo < hi ? below : hi;
}
static inline KN_HOST_DEVICE double kn__below_f64(double lo, double hi) {
    uint64_t bits;
    memcpy(&bits, &hi, sizeof bits);
    bits = hi == 0 ? 0x8000000000000001u : (hi > 0 ? bits - 1 : bits + 1);
    double below;
    memcpy(&below, &bits, sizeof below);
    return lo < hi ? below : hi;
}

/* Dropout keeps an element whose word is at least the threshold: probability 1 - p to 2^-32. p = 1
 * drops all: its scale is 0. */
static inline KN_HOST_DEVICE uint32_t kn__dropout_threshold(double p) {
    return p >= 1 ? 0xFFFFFFFFu : (p <= 0 ? 0u : (uint32_t)(p * 4294967296.0));
}
static inline KN_HOST_DEVICE double kn__dropout_scale(double p) { return p >= 1 ? 0 : 1 / (1 - p); }

/* Horner's rule, one rounding an operation. */
static inline KN_STRAIGHT double kn__horner(const double *c, int n, double x) {
    double y = c[0];
    KN_UNROLLED
    for (int i = 1; i < n; i++) y = KN_ADD_F64(KN_MUL_F64(y, x), c[i]);
    return y;
}

/* ln u for u in (0, 1], error below 1e-15 relative: u = 2^k·m with m in [√½, √2), and
 * ln m = 2·atanh((m - 1)/(m + 1)) by its series. */
static inline KN_STRAIGHT double kn__log_unit(double u) {
    const double series[] = {2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11,
                             2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3,  2.0};
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    const uint64_t root = 0x3FE6A09E667F3BCDu; /* √½ */
    uint64_t shifted = bits - root + 0x3FF0000000000000u;
    int k = (int)(shifted >> 52) - 1023;
    bits = (shifted & 0x000FFFFFFFFFFFFFu) + root;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), y = kn__horner(series, 11, KN_MUL_F64(s, s));
    return KN_ADD_F64(KN_MUL_F64((double)k, 0.693147180559945309417), KN_MUL_F64(y, s));
}

/* cos and sin of 2πu for u in [0, 1): the nearest quarter turn, then Taylor series on ±π/4. */
static inline KN_STRAIGHT void kn__cos_sin_turn(double *cosine, double *sine, double u) {
    const double sin_series[] = {1.0 / 355687428096000,
                                 -1.0 / 1307674368000,
                                 1.0 / 6227020800,
                                 -1.0 / 39916800,
                                 1.0 / 362880,
                                 -1.0 / 5040,
                                 1.0 / 120,
                                 -1.0 / 6,
                                 1.0};
    const double cos_series[] = {1.0 / 20922789888000,
                                 -1.0 / 87178291200,
                                 1.0 / 479001600,
                                 -1.0 / 3628800,
                                 1.0 / 40320,
                                 -1.0 / 720,
                                 1.0 / 24,
                                 -1.0 / 2,
                                 1.0};
    int quarter = (int)KN_ADD_F64(KN_MUL_F64(u, 4), 0.5);
    double a = KN_MUL_F64(KN_ADD_F64(u, KN_MUL_F64((double)quarter, -0.25)), 6.283185307179586477);
    double aa = KN_MUL_F64(a, a);
    double s = KN_MUL_F64(kn__horner(sin_series, 9, aa), a), c = kn__horner(cos_series, 9, aa);
    double cs = quarter & 1 ? s : c, sn = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -cs : cs;
    *sine = quarter & 2 ? -sn : sn;
}

/* Box and Muller 1958: two normals from two uniforms; `first` in (0, 1], `second` in [0, 1). */
static inline KN_STRAIGHT void kn__normal_pair(double z[2], double first, double second) {
    double r = KN_SQRT_F64(KN_MUL_F64(-2.0, kn__log_unit(first))), c, s;
    kn__cos_sin_turn(&c, &s, second);
    z[0] = KN_MUL_F64(r, c), z[1] = KN_MUL_F64(r, s);
}
/* From two words (f32's map) and from four (f64's). 1 - u keeps the logarithm's argument off 0. */
static inline KN_STRAIGHT void kn__normal_pair_f32(double z[2], uint32_t w0, uint32_t w1) {
    kn__normal_pair(z, 1 - (double)kn__unit_f32(w0), (double)kn__unit_f32(w1));
}
static inline KN_STRAIGHT void kn__normal_pair_f64(double z[2], const uint32_t w[4]) {
    kn__normal_pair(z, 1 - kn__unit_f64(w[0], w[1]), kn__unit_f64(w[2], w[3]));
}

/* -ln u/rate, of 24 and of 52 bits in the middle of their steps: u is neither 0 nor 1. */
static inline KN_STRAIGHT double kn__exponential(double u, double rate) {
    return KN_DIV_F64(-kn__log_unit(u), rate);
}
static inline KN_STRAIGHT double kn__exponential_f32(uint32_t word, double rate) {
    return kn__exponential(KN_ADD_F64((double)kn__unit_f32(word), 0x1p-25), rate);
}
static inline KN_STRAIGHT double kn__exponential_f64(uint32_t low, uint32_t high, double rate) {
    uint64_t bits = (((uint64_t)high << 32) | low) >> 12;
    double u = KN_ADD_F64(KN_MUL_F64((double)(int64_t)bits, 0x1p-52), 0x1p-53);
    return kn__exponential(u, rate);
}

#endif
