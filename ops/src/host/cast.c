/* Casts: blocks go through float, double or int64_t, whichever loses nothing of the source, and are
 * rounded once into the result. */
#include "../convert.h"
#include "../kernel.h"
#include "chunks.h"

enum { BLOCK = 256, GRAIN = 1 << 15 };

typedef union middle {
    float f32[BLOCK];
    double f64[BLOCK];
    int64_t i64[BLOCK];
} middle;

typedef enum middle_kind { BY_F32, BY_F64, BY_I64 } middle_kind;

static middle_kind middle_of(kn_dtype from) {
    if (from == KN_F64) return BY_F64;
    return from == KN_F32 || from == KN_F16 || from == KN_BF16 ? BY_F32 : BY_I64;
}

#define LOOP(to, from, expr)                                                                       \
    for (int64_t i = 0; i < n; i++) {                                                              \
        from v = in[i];                                                                            \
        out[i] = (to)(expr);                                                                       \
    }                                                                                              \
    return;
#define COPY(to, from, to_data, from_data, expr)                                                   \
    {                                                                                              \
        to *out = to_data;                                                                         \
        const from *in = from_data;                                                                \
        LOOP(to, from, expr)                                                                       \
    }

static void load(middle *m, const void *x, kn_dtype from, int64_t n) {
    switch (from) {
        case KN_F32:
            COPY(float, float, m->f32, x, v)
        case KN_F64:
            COPY(double, double, m->f64, x, v)
        case KN_F16:
            COPY(float, uint16_t, m->f32, x, kn__f16_to_f32(v))
        case KN_BF16:
            COPY(float, uint16_t, m->f32, x, kn__bf16_to_f32(v))
        case KN_I64:
            COPY(int64_t, int64_t, m->i64, x, v)
        case KN_I32:
            COPY(int64_t, int32_t, m->i64, x, v)
        case KN_U8:
            COPY(int64_t, uint8_t, m->i64, x, v)
        case KN_BOOL:
            COPY(int64_t, uint8_t, m->i64, x, v != 0)
    }
}

/* From a floating middle `v`. */
#define STORE_FLOAT(type, data)                                                                    \
    switch (to) {                                                                                  \
        case KN_F32:                                                                               \
            COPY(float, type, y, data, v)                                                          \
        case KN_F64:                                                                               \
            COPY(double, type, y, data, v)                                                         \
        case KN_F16:                                                                               \
            COPY(uint16_t, type, y, data, kn__f32_to_f16((float)v))                                \
        case KN_BF16:                                                                              \
            COPY(uint16_t, type, y, data, kn__f32_to_bf16((float)v))                               \
        case KN_I64:                                                                               \
            COPY(int64_t, type, y, data, kn__double_to_i64((double)v))                             \
        case KN_I32:                                                                               \
            COPY(int32_t, type, y, data,                                                           \
                 kn__clamp(kn__double_to_i64((double)v), INT32_MIN, INT32_MAX))                    \
        case KN_U8:                                                                                \
            COPY(uint8_t, type, y, data, kn__clamp(kn__double_to_i64((double)v), 0, UINT8_MAX))    \
        case KN_BOOL:                                                                              \
            COPY(uint8_t, type, y, data, v != 0)                                                   \
    }

static void store_f32(void *y, const middle *m, kn_dtype to, int64_t n) {
    STORE_FLOAT(float, m->f32)
}

static void store_f64(void *y, const middle *m, kn_dtype to, int64_t n) {
    STORE_FLOAT(double, m->f64)
}

static void store_i64(void *y, const middle *m, kn_dtype to, int64_t n) {
    switch (to) {
        case KN_F32:
            COPY(float, int64_t, y, m->i64, v)
        case KN_F64:
            COPY(double, int64_t, y, m->i64, v)
        case KN_F16:
            COPY(uint16_t, int64_t, y, m->i64, kn__f32_to_f16((float)v))
        case KN_BF16:
            COPY(uint16_t, int64_t, y, m->i64, kn__f32_to_bf16((float)v))
        case KN_I64:
            COPY(int64_t, int64_t, y, m->i64, v)
        case KN_I32:
            COPY(int32_t, int64_t, y, m->i64, kn__clamp(v, INT32_MIN, INT32_MAX))
        case KN_U8:
            COPY(uint8_t, int64_t, y, m->i64, kn__clamp(v, 0, UINT8_MAX))
        case KN_BOOL:
            COPY(uint8_t, int64_t, y, m->i64, v != 0)
    }
}

typedef struct cast_job {
    char *out;
    const char *x;
    kn_dtype from, to;
    int64_t n;
} cast_job;

static void cast_block(const cast_job *j, int64_t at, int64_t n) {
    middle m;
    const void *x = j->x + (size_t)at * kn_dtype_bytes(j->from);
    void *y = j->out + (size_t)at * kn_dtype_bytes(j->to);
    load(&m, x, j->from, n);
    switch (middle_of(j->from)) {
        case BY_F32:
            store_f32(y, &m, j->to, n);
            return;
        case BY_F64:
            store_f64(y, &m, j->to, n);
            return;
        case BY_I64:
            store_i64(y, &m, j->to, n);
            return;
    }
}

static void cast_part(void *ctx, int64_t part) {
    const cast_job *j = ctx;
    int64_t to = (part + 1) * GRAIN;
    if (to > j->n) to = j->n;
    for (int64_t at = part * GRAIN; at < to; at += BLOCK) {
        cast_block(j, at, to - at < BLOCK ? to - at : BLOCK);
    }
}

kn_status kn__host_cast(const kn_kernel_call *call) {
    cast_job j = {call->out->data, call->in[0]->data, (kn_dtype)call->in[0]->dtype,
                  (kn_dtype)call->out->dtype, call->out->n};
    kn__parallel_for(call->threads, kn__chunks(j.n, GRAIN), cast_part, &j);
    return KN_OK;
}
