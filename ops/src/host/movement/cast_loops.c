/* Casts from and to the real type, and from integers: one rounding each; and fills. */
#include "convert.h"
#include "host/base/loops.h"

#define COPY(to, from, expr)                                                                       \
    {                                                                                              \
        to *out = y;                                                                               \
        const from *in = x;                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from v = in[i];                                                                        \
            out[i] = (to)(expr);                                                                   \
        }                                                                                          \
        return;                                                                                    \
    }

void KN_LOOP(cast_from)(void *restrict y, const void *restrict x, kn_dtype from, int64_t n) {
    switch (from) {
        case KN_F32:
            COPY(real, float, v)
        case KN_F64:
            COPY(real, double, v)
        case KN_F16:
            COPY(real, uint16_t, kn__f16_to_f32(v))
        case KN_BF16:
            COPY(real, uint16_t, kn__bf16_to_f32(v))
        case KN_I64:
            COPY(real, int64_t, v)
        case KN_I32:
            COPY(real, int32_t, v)
        case KN_U8:
            COPY(real, uint8_t, v)
        case KN_BOOL:
            COPY(real, uint8_t, v != 0)
    }
}

/* To be rounded to 16 bits. */
#define SINGLE(v) (sizeof(real) == sizeof(double) ? kn__f64_to_odd((double)(v)) : (float)(v))

/* What kn__double_to_i64 and kn__clamp make. The conversion gets numbers that it has room for, so
 * that it needs no branch and loops of it vectorise. */
#define INLINE static inline __attribute__((always_inline))
#define LESS (1 - (sizeof(real) == sizeof(double) ? (real)0x1p-53 : (real)0x1p-24))
#define TO_INTEGER(name, type, bits)                                                               \
    INLINE type name(real v) {                                                                     \
        const real end = (real)0x1p##bits, last = end * LESS;                                      \
        real x = v > -end ? v : -end;                                                              \
        type near = (type)(x < last ? x : last);                                                   \
        near = v >= end ? (type)((UINT64_C(1) << (bits)) - 1) : near;                              \
        return v == v ? near : 0;                                                                  \
    }
TO_INTEGER(to_i64, int64_t, 63)
TO_INTEGER(to_i32, int32_t, 31)
INLINE uint8_t to_u8(real v) {
    real x = v > 0 ? v : 0;
    return (uint8_t)(int32_t)(x < UINT8_MAX ? x : UINT8_MAX);
}

void KN_LOOP(cast_to)(void *restrict y, const void *restrict x, kn_dtype to, int64_t n) {
    switch (to) {
        case KN_F32:
            COPY(float, real, v)
        case KN_F64:
            COPY(double, real, v)
        case KN_F16:
            COPY(uint16_t, real, kn__f32_to_f16(SINGLE(v)))
        case KN_BF16:
            COPY(uint16_t, real, kn__f32_to_bf16(SINGLE(v)))
        case KN_I64:
            COPY(int64_t, real, to_i64(v))
        case KN_I32:
            COPY(int32_t, real, to_i32(v))
        case KN_U8:
            COPY(uint8_t, real, to_u8(v))
        case KN_BOOL:
            COPY(uint8_t, real, v != 0)
    }
}

/* As kn__i64_to_odd: of 17 digits at least. */
INLINE float i32_to_odd(int32_t v) {
    bool is_exact = v >= -(1 << 24) && v <= 1 << 24;
    return (float)(is_exact ? v : (v >> 8 | ((v & 0xFF) != 0)) * 0x100);
}

/* value: of the element v, where a bool is 0 or 1; single: that, to be rounded to 16 bits */
#define INTEGERS(from, value, i32, u8, single)                                                     \
    switch (to) {                                                                                  \
        case KN_I64:                                                                               \
            COPY(int64_t, from, value)                                                             \
        case KN_I32:                                                                               \
            COPY(int32_t, from, i32)                                                               \
        case KN_U8:                                                                                \
            COPY(uint8_t, from, u8)                                                                \
        case KN_F16:                                                                               \
            COPY(uint16_t, from, kn__f32_to_f16(single))                                           \
        case KN_BF16:                                                                              \
            COPY(uint16_t, from, kn__f32_to_bf16(single))                                          \
        default:                                                                                   \
            COPY(uint8_t, from, v != 0)                                                            \
    }

void KN_LOOP(cast_integers)(void *restrict y, kn_dtype to, const void *restrict x, kn_dtype from,
                            int64_t n) {
    switch (from) {
        case KN_I64:
            INTEGERS(int64_t, v, kn__clamp(v, INT32_MIN, INT32_MAX), kn__clamp(v, 0, UINT8_MAX),
                     kn__f64_to_odd(kn__i64_to_odd(v)))
        case KN_I32:
            INTEGERS(int32_t, v, v, v < 0 ? 0 : (v < UINT8_MAX ? v : UINT8_MAX), i32_to_odd(v))
        case KN_U8:
            INTEGERS(uint8_t, v, v, v, (float)v)
        default:
            INTEGERS(uint8_t, v != 0, v != 0, v != 0, (float)(v != 0))
    }
}

void KN_LOOP(fill)(char *restrict y, const char *restrict line, size_t n) {
    kn__vec v;
    size_t at = 0;
    __builtin_memcpy(&v, line, sizeof v);
    for (; at + sizeof v <= n; at += sizeof v) __builtin_memcpy(y + at, &v, sizeof v);
    __builtin_memcpy(y + at, line, n - at);
}
