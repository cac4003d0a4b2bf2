/* Casts around ops: which dtype an op's inputs get in a frame with .autocast (frame.h); and f32 for
 * ops whose kernels don't know 16 bits. */
#include <stdlib.h>

#include "run.h"

enum { FEW_INPUTS = 64 }; /* more, as concat may have, take memory of the heap */

static unsigned class_of(const kn_op_info *info, int i) {
    return info->in[i < info->n_in ? i : info->n_in - 1];
}

/* Whether input i is one of those that share the call's dtype, or has 16 bits where it never does.
 */
static bool is_shared(const kn_op_call *call, int i) {
    const kn_tensor *t = call->in[i];
    unsigned class = class_of(&kn_op_table[call->op], i);
    if (!kn__is_whole(t)) return false;
    return class & KN_CLASS_SAME || (class & KN_CLASS_COMPUTED && kn__is_half(t->dtype));
}

/* The dtype that the inputs which share one get; 0: they are left alone. */
static unsigned wanted(const kn_op_call *call, unsigned low) {
    const kn_op_info *info = &kn_op_table[call->op];
    unsigned seen = 0, halves = KN_DTYPE_BIT_(KN_F16) | KN_DTYPE_BIT_(KN_BF16);
    unsigned class = KN_CLASS_ANY;
    if (call->given) return 0;
    for (int i = 0; i < call->n_in; i++) {
        if (!is_shared(call, i)) continue;
        seen |= KN_DTYPE_BIT_(call->in[i]->dtype);
        class &= class_of(info, i);
    }
    if (!seen || (seen & ~(halves | KN_DTYPE_BIT_(KN_F32)))) return 0;
    if (info->flags & KN_FLAG_LOW) return low;
    if (seen == KN_DTYPE_BIT_(KN_F32)) return 0;
    bool mixed = (seen & (seen - 1)) != 0, is_half_fine = (class & halves) == halves;
    return mixed || !is_half_fine || info->flags & (KN_FLAG_WIDE | KN_FLAG_F32) ? KN_F32 : 0;
}

static kn_tensor *cast(kn_tensor *x, unsigned dtype) {
    kn_attr_cast attr = {(int32_t)dtype};
    return KN_CALL(cast, &attr, x);
}

/* The call with inputs of `dtype`, listed in `in`; casts that no tape saves end with it. */
static kn_tensor *run_listed(kn_tensor *in[], kn_op_call *call, unsigned dtype) {
    kn_tensor *const *before = call->in, *y = NULL;
    bool ok = true;
    int n = 0;
    for (; ok && n < call->n_in; n++) {
        bool casts = is_shared(call, n) && before[n]->dtype != dtype;
        in[n] = casts ? cast(before[n], dtype) : before[n];
        ok = in[n] != NULL;
    }
    call->in = in;
    if (ok) y = kn_op_run(call);
    call->in = before;
    for (int i = 0; i < n; i++) {
        if (in[i] != before[i]) kn_drop(in[i]);
    }
    return y;
}

static kn_tensor *run_cast(kn_op_call *call, unsigned dtype) {
    kn_tensor *few[FEW_INPUTS];
    if (call->n_in <= FEW_INPUTS) return run_listed(few, call, dtype);
    kn_tensor **in = malloc((size_t)call->n_in * sizeof *in);
    if (!in) {
        kn_op_call_fail(call, KN_ERR_OOM, "no host memory for %d inputs", call->n_in);
        return NULL;
    }
    kn_tensor *y = run_listed(in, call, dtype);
    free(in);
    return y;
}

kn_tensor *kn__autocast_run(kn__ops_thread *self, kn_op_call *call) {
    uint8_t low = self->frame->autocast;
    unsigned dtype = wanted(call, low);
    self->frame->autocast = 0; /* inside, calls are as they are */
    kn_tensor *y = dtype ? run_cast(call, dtype) : kn_op_run(call);
    self->frame->autocast = low;
    return y;
}

kn_tensor *kn__f32_run(kn_op_call *call) {
    kn_dtype dtype = (kn_dtype)call->dtype;
    unsigned want = call->want; /* the tape may want more */
    if (call->given || call->loose || call->edge) {
        kn_op_call_fail(call, KN_ERR_UNSUPPORTED, "results of %s can't be written into",
                        kn_dtype_name(dtype));
        return NULL;
    }
    if (!run_cast(call, KN_F32)) return NULL;
    for (unsigned left = want; left; left &= left - 1) {
        kn_tensor **out = &call->out[__builtin_ctz(left)];
        if ((*out)->dtype == KN_F32) *out = cast(*out, dtype);
        if (!*out) return NULL;
    }
    return call->out[__builtin_ctz(want)];
}

kn_tensor *kn__narrowed(kn_tensor *y, const kn_tensor *x) {
    bool narrows = y && kn__is_half(x->dtype) && !kn_frame_autocast();
    return narrows ? kn_cast(y, (kn_dtype)x->dtype) : y;
}
