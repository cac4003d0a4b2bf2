/* Casts. From or to f32 and f64 by their loops; between the others by way of the one of f32 and
 * int64_t that loses nothing of the source. */
#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/pointwise/fused.h"
#include "kernel.h"

enum { BLOCK = 256, GRAIN = 1 << 15 };

typedef struct cast_job {
    char *out;
    const char *x;
    kn_dtype from, to;
    int64_t n;
} cast_job;

static bool is_real(kn_dtype dtype) { return dtype == KN_F32 || dtype == KN_F64; }
static bool is_half(kn_dtype dtype) { return dtype == KN_F16 || dtype == KN_BF16; }

/* Halves to integers or the other half. */
static void cast_half(void *y, kn_dtype to, const void *x, kn_dtype from, int64_t n) {
    const kn__loop_table *loops = kn__loops(KN_F32);
    float middle[BLOCK];
    loops->cast_from(middle, x, from, n);
    loops->cast_to(y, middle, to, n);
}

static int64_t load_integer(const void *x, kn_dtype from, int64_t i) {
    switch (from) {
        case KN_I64:
            return ((const int64_t *)x)[i];
        case KN_I32:
            return ((const int32_t *)x)[i];
        case KN_BOOL:
            return ((const uint8_t *)x)[i] != 0;
        default:
            return ((const uint8_t *)x)[i];
    }
}

static void store_integer(void *y, kn_dtype to, int64_t i, int64_t v) {
    switch (to) {
        case KN_I64:
            ((int64_t *)y)[i] = v;
            return;
        case KN_I32:
            ((int32_t *)y)[i] = (int32_t)kn__clamp(v, INT32_MIN, INT32_MAX);
            return;
        case KN_U8:
            ((uint8_t *)y)[i] = (uint8_t)kn__clamp(v, 0, UINT8_MAX);
            return;
        case KN_F16:
            ((uint16_t *)y)[i] = kn__f32_to_f16(kn__f64_to_odd(kn__i64_to_odd(v)));
            return;
        case KN_BF16:
            ((uint16_t *)y)[i] = kn__f32_to_bf16(kn__f64_to_odd(kn__i64_to_odd(v)));
            return;
        default:
            ((uint8_t *)y)[i] = v != 0;
    }
}

void kn__cast_block(void *y, kn_dtype to, const void *x, kn_dtype from, int64_t n) {
    if (is_real(to)) {
        kn__loops(to)->cast_from(y, x, from, n);
    } else if (is_real(from)) {
        kn__loops(from)->cast_to(y, x, to, n);
    } else if (is_half(from)) {
        for (int64_t i = 0; i < n; i += BLOCK) {
            cast_half((char *)y + (size_t)i * kn_dtype_bytes(to), to,
                      (const char *)x + (size_t)i * kn_dtype_bytes(from), from,
                      n - i < BLOCK ? n - i : BLOCK);
        }
    } else {
        for (int64_t i = 0; i < n; i++) store_integer(y, to, i, load_integer(x, from, i));
    }
}

static void cast_part(void *ctx, int64_t part) {
    const cast_job *j = ctx;
    int64_t from = part * GRAIN, left = j->n - from;
    kn__cast_block(j->out + (size_t)from * kn_dtype_bytes(j->to), j->to,
                   j->x + (size_t)from * kn_dtype_bytes(j->from), j->from,
                   left < GRAIN ? left : GRAIN);
}

void kn__cast(int threads, void *y, kn_dtype to, const void *x, kn_dtype from, int64_t n) {
    cast_job j = {y, x, from, to, n};
    kn__parallel_for(threads, kn__chunks(n, GRAIN), cast_part, &j);
}

kn_status kn__host_cast(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *y = call->out[0];
    kn__cast(call->threads, y->data, (kn_dtype)y->dtype, x->data, (kn_dtype)x->dtype, y->n);
    return KN_OK;
}
