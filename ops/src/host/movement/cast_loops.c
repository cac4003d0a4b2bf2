/* Casts from and to the real type: one rounding each; and fills. */
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
            COPY(int64_t, real, kn__double_to_i64((double)v))
        case KN_I32:
            COPY(int32_t, real, kn__clamp(kn__double_to_i64((double)v), INT32_MIN, INT32_MAX))
        case KN_U8:
            COPY(uint8_t, real, kn__clamp(kn__double_to_i64((double)v), 0, UINT8_MAX))
        case KN_BOOL:
            COPY(uint8_t, real, v != 0)
    }
}

void KN_LOOP(fill)(char *restrict y, const char *restrict line, size_t n) {
    kn__vec v;
    size_t at = 0;
    __builtin_memcpy(&v, line, sizeof v);
    for (; at + sizeof v <= n; at += sizeof v) __builtin_memcpy(y + at, &v, sizeof v);
    __builtin_memcpy(y + at, line, n - at);
}
