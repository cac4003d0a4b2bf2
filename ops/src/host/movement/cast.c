/* Casts. From or to f32 and f64 by their loops, from integers by theirs; from halves by way of f32.
 */
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
        kn__loops(KN_F32)->cast_integers(y, to, x, from, n);
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
