#include "host/pointwise/finish.h"

#include <knet/op_act.h>

#include "host/base/loops.h"
#include "host/pointwise/rows.h"

static void finish_real(kn_dtype dtype, kn_act act, void *y, const void *residual, int64_t n) {
    if (residual)
        kn__row_loops_of(dtype, KN_OP_add)->f(y, (const void *[]){y, residual}, n, 0, 0, false);
    if (act) kn__row_loops_of(dtype, kn_act_op(act))->f(y, (const void *[]){y}, n, 0, 0, false);
}

/* A few at a time. */
static void finish_half(kn_dtype dtype, kn_act act, char *y, const char *residual, int64_t n) {
    enum { PIECE = 1024 };
    const kn__loop_table *loops = kn__loops(KN_F32);
    float wide[PIECE], other[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t part = n - at < PIECE ? n - at : PIECE;
        size_t bytes = (size_t)at * sizeof(uint16_t);
        loops->cast_from(wide, y + bytes, dtype, part);
        if (residual) loops->cast_from(other, residual + bytes, dtype, part);
        finish_real(KN_F32, act, wide, residual ? other : NULL, part);
        loops->cast_to(y + bytes, wide, dtype, part);
    }
}

void kn__finish_run(kn_dtype dtype, kn_act act, void *y, const void *residual, int64_t n) {
    if (!residual && !act) return;
    if (kn__is_half(dtype))
        finish_half(dtype, act, y, residual, n);
    else
        finish_real(dtype, act, y, residual, n);
}
