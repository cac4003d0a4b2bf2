/* Rotary embedding: options made explicit, checks. */
#include <math.h>

#include "run.h"

#define MOST (INT64_C(1) << 52) /* positions are exact as double */

bool kn__infer_rotary(kn_op_call *call) { return kn__like(call, 0, call->in[0]); }

static bool set(kn_attr_rotary *attr, const kn_op_call *call, const kn_rotary_options *o) {
    const kn_tensor *x = call->in[0];
    int adjacent = o->adjacent;
    if (!kn__reserved_fit(KN_OP_rotary, o->unused, o->reserved, 4) ||
        !kn__flag_fit(KN_OP_rotary, "adjacent", &adjacent))
        return false;
    if (x->n_dims < 2) return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [...,T,D]");
    int64_t width = x->dim[x->n_dims - 1], n = o->n ? o->n : width;
    if (n < 0 || n > width || n % 2) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "n is %lld; it must be even and at most %lld, the row's elements",
                               (long long)n, (long long)width);
    }
    double base = o->base == 0 ? 10000 : o->base;
    if (!(base > 0 && isfinite(base))) {
        return kn_op_call_fail(call, KN_ERR_INVALID, "base is %g; it must be positive and finite",
                               base);
    }
    if (o->offset > MOST || o->offset < -MOST) {
        return kn_op_call_fail(call, KN_ERR_INVALID, "offset is %lld; it must be at most 2^52",
                               (long long)o->offset);
    }
    *attr = (kn_attr_rotary){base, o->offset, n, adjacent, 0};
    return true;
}

/* Without the casts of a frame with .autocast: 16 bits stay, so that cached keys have the dtype of
 * those of layers without positions. */
static kn_tensor *run_as_it_is(kn_op_call *call) {
    kn_dtype low = kn_frame_autocast();
    if (!low) return kn_op_run(call);
    kn__ops_self->frame->autocast = 0;
    kn_tensor *y = kn_op_run(call);
    kn__ops_self->frame->autocast = (uint8_t)low;
    return y;
}

kn_tensor *kn_rotary(kn_tensor *x, const kn_rotary_options *options) {
    static const kn_rotary_options defaults = {.n = 0};
    kn_attr_rotary attr;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_rotary, &attr, &x, 1);
    if (!kn__check_inputs(&call)) return NULL;
    return set(&attr, &call, options ? options : &defaults) ? run_as_it_is(&call) : NULL;
}
