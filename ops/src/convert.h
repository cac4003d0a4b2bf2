/* Conversions between dtypes, one element at a time; f16 and bf16 round to nearest even. */
#ifndef KN_CONVERT_H
#define KN_CONVERT_H

#include <knet/tensor.h>
#include <string.h>

static inline float kn__bits_f32(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t kn__f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float kn__bf16_to_f32(uint16_t h) { return kn__bits_f32((uint32_t)h << 16); }

/* Toward zero, and odd where digits are lost: rounded again, to fewer digits, it is rounded once.
 */
static inline float kn__f64_to_odd(double x) {
    float near = (float)x;
    uint32_t bits;
    if ((double)near == x) return near;
    memcpy(&bits, &near, sizeof bits);
    if (__builtin_fabs((double)near) > __builtin_fabs(x)) bits--;
    bits |= 1;
    memcpy(&near, &bits, sizeof bits);
    return near;
}

/* The double of 53 digits likewise. */
static inline double kn__i64_to_odd(int64_t x) {
    bool is_exact = x >= -(INT64_C(1) << 53) && x <= INT64_C(1) << 53;
    return (double)(is_exact ? x : (x >> 11 | ((x & 0x7FF) != 0)) * 0x800);
}

static inline uint16_t kn__f32_to_bf16(float x) {
    uint32_t bits = kn__f32_bits(x), rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40 /* a quiet NaN */
                                                         : rounded);
}

/* Straight-line, so that loops of them vectorise. */
static inline float kn__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7FFFu;
    uint32_t small = kn__f32_bits((float)(int32_t)rest * 0x1p-24f); /* subnormal: exact */
    uint32_t bits = (rest << 13) + 0x38000000u;
    bits = rest < 0x400u ? small : bits;
    bits = rest >= 0x7C00u ? 0x7F800000u | (rest & 0x3FFu) << 13 : bits;
    return kn__bits_f32(sign | bits);
}

static inline uint16_t kn__f32_to_f16(float x) {
    uint32_t bits = kn__f32_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
    /* below 2^-14 the addition rounds to units of 2^-24 */
    uint32_t small = kn__f32_bits(kn__bits_f32(rest) + 0.5f) - 0x3F000000u;
    uint32_t half = (rest - 0x38000000u + 0xFFFu + (rest >> 13 & 1)) >> 13;
    half = rest < 0x38800000u ? small : half;
    half = rest >= 0x477FF000u ? 0x7C00u : half; /* rounds to 65536 or more */
    half = rest > 0x7F800000u ? 0x7E00u | (rest >> 13 & 0x3FFu) : half;
    return (uint16_t)(sign | half);
}

/* The element at `p` as a double: exact but for large 64-bit integers. */
static inline double kn__as_double(const void *p, kn_dtype dtype) {
    switch (dtype) {
#define KN__READ_AS(type)                                                                          \
    {                                                                                              \
        type v;                                                                                    \
        memcpy(&v, p, sizeof v);                                                                   \
        return (double)v;                                                                          \
    }
        case KN_F32:
            KN__READ_AS(float)
        case KN_F64:
            KN__READ_AS(double)
        case KN_I64:
            KN__READ_AS(int64_t)
        case KN_I32:
            KN__READ_AS(int32_t)
        case KN_U8:
        case KN_BOOL:
            KN__READ_AS(uint8_t)
#undef KN__READ_AS
        case KN_F16:
        case KN_BF16: {
            uint16_t h;
            memcpy(&h, p, sizeof h);
            return (double)(dtype == KN_F16 ? kn__f16_to_f32(h) : kn__bf16_to_f32(h));
        }
    }
    return 0;
}

/* Toward zero, saturated, NaN to 0. */
static inline int64_t kn__double_to_i64(double x) {
    if (x != x) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    return x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static inline int64_t kn__clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : (x > hi ? hi : x);
}

/* Stores a double as one element, as kn_cast would. */
static inline void kn__from_double(void *out, double x, kn_dtype dtype) {
    switch (dtype) {
#define KN__WRITE_AS(type, value)                                                                  \
    {                                                                                              \
        type v = (type)(value);                                                                    \
        memcpy(out, &v, sizeof v);                                                                 \
        return;                                                                                    \
    }
        case KN_F32:
            KN__WRITE_AS(float, x)
        case KN_F64:
            KN__WRITE_AS(double, x)
        case KN_F16:
            KN__WRITE_AS(uint16_t, kn__f32_to_f16(kn__f64_to_odd(x)))
        case KN_BF16:
            KN__WRITE_AS(uint16_t, kn__f32_to_bf16(kn__f64_to_odd(x)))
        case KN_I64:
            KN__WRITE_AS(int64_t, kn__double_to_i64(x))
        case KN_I32:
            KN__WRITE_AS(int32_t, kn__clamp(kn__double_to_i64(x), INT32_MIN, INT32_MAX))
        case KN_U8:
            KN__WRITE_AS(uint8_t, kn__clamp(kn__double_to_i64(x), 0, UINT8_MAX))
        case KN_BOOL:
            KN__WRITE_AS(uint8_t, x != 0)
#undef KN__WRITE_AS
    }
}

#endif
