/* Attention: options made explicit, shapes, checks. */
#include <math.h>
#include <string.h>

#include "attention.h"
#include "run.h"

/* q [B,H,T,D], k [B,G,S,D], v [B,G,S,E] */
static bool fits(const kn_op_call *call) {
    const kn_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
    if (q->n_dims != 4 || k->n_dims != 4 || v->n_dims != 4) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "q must be [B,H,T,D], k [B,G,S,D] and v [B,G,S,E]");
    }
    if (q->dim[0] != k->dim[0] || q->dim[0] != v->dim[0] || q->dim[3] != k->dim[3] ||
        k->dim[1] != v->dim[1] || k->dim[2] != v->dim[2]) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "q [B,H,T,D], k [B,G,S,D] and v [B,G,S,E] don't agree");
    }
    if (k->dim[1] == 0 ? q->dim[1] != 0 : q->dim[1] % k->dim[1] != 0) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "%lld heads of q are no multiple of %lld of k",
                               (long long)q->dim[1], (long long)k->dim[1]);
    }
    return true;
}

static bool mask_fits(const kn_op_call *call) {
    const kn_tensor *q = call->in[0], *k = call->in[1], *mask = call->in[3];
    if (mask == KN_NONE) return true;
    kn_shape all = KN_SHAPE(q->dim[0], q->dim[1], q->dim[2], k->dim[2]), wide = all;
    if (kn__broadcast_shape(&wide, mask) && wide.n_dims == 4 &&
        memcmp(wide.dim, all.dim, 4 * sizeof all.dim[0]) == 0)
        return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "mask must broadcast to [%lld,%lld,%lld,%lld]",
                           (long long)all.dim[0], (long long)all.dim[1], (long long)all.dim[2],
                           (long long)all.dim[3]);
}

bool kn__infer_attention(kn_op_call *call) {
    const kn_tensor *q = call->in[0], *v = call->in[2];
    if (!fits(call) || !mask_fits(call)) return false;
    int64_t y[4] = {q->dim[0], q->dim[1], q->dim[2], v->dim[3]};
    int64_t stats[4] = {y[0], y[1], y[2], 2};
    return kn__shaped(call, 0, 4, y) && kn__shaped(call, 1, 4, stats);
}

bool kn__infer_attention_back(kn_op_call *call) {
    const kn_tensor *q = call->in[0], *k = call->in[1];
    if (!fits(call) || !mask_fits(call)) return false;
    for (int i = 0; i < 3; i++)
        if (!kn__like(call, i, call->in[i])) return false;
    return kn__shaped(call, 3, 4, (int64_t[]){q->dim[0], q->dim[1], q->dim[2], k->dim[2]});
}

/* A cast to floats would make a mask of integers another one, of numbers to add. */
static bool mask_has_meaning(const kn_op_call *call, const kn_tensor *mask) {
    if ((KN_CLASS_FLOAT | KN_CLASS_BOOL) >> mask->dtype & 1) return true;
    return kn_op_call_fail(call, KN_ERR_DTYPE,
                           "mask is %s; it must be bool (whether the query sees the key) or %s (a "
                           "number to add to the score)",
                           kn_dtype_name((kn_dtype)mask->dtype),
                           kn_dtype_name((kn_dtype)call->dtype));
}

/* The term added to the scores, beside q of 16 bits in f32: 0 where a bool mask is true, else -inf;
 * or the mask, which has q's dtype. */
static kn_tensor *added(const kn_op_call *call, kn_tensor *mask) {
    const kn_tensor *q = call->in[0];
    if (mask->dtype == KN_BOOL) {
        kn_dtype dtype = (kn_dtype)kn__computed(q->dtype);
        kn_tensor *one = kn_tensor_new(q->storage->device, dtype, KN_SHAPE(1));
        return one ? kn_where(mask, kn_filled_like(one, 0), kn_filled_like(one, -INFINITY)) : NULL;
    }
    if (!kn__is_half(q->dtype)) return mask;
    if (mask->dtype == q->dtype || kn_frame_autocast())
        return kn__is_half(mask->dtype) ? kn_cast(mask, KN_F32) : mask;
    kn_op_call_fail(call, KN_ERR_DTYPE, "q is %s, mask is %s; see kn_cast",
                    kn_dtype_name((kn_dtype)q->dtype), kn_dtype_name((kn_dtype)mask->dtype));
    return NULL;
}

static bool options_fit(const kn_attention_options *o) {
    if (!kn__reserved_fit(KN_OP_attention, 0, o->reserved, 2)) return false;
    if (!isfinite(o->scale)) {
        kn_op_fail(KN_OP_attention, KN_ERR_INVALID, "scale is %g; it must be finite", o->scale);
        return false;
    }
    if (o->offset > INT32_MAX || o->offset < -INT32_MAX) {
        kn_op_fail(KN_OP_attention, KN_ERR_INVALID, "offset is %lld; it must be below 2^31",
                   (long long)o->offset);
        return false;
    }
    if (o->dropout >= 0 && o->dropout <= 1 && (o->dropout == 0 || o->rng)) return true;
    kn_op_fail(KN_OP_attention, KN_ERR_INVALID,
               "dropout is %g%s; it must be in 0 … 1 and needs a generator", o->dropout,
               o->rng ? "" : ", rng NULL");
    return false;
}

kn_tensor *kn_attention(kn_tensor *q, kn_tensor *k, kn_tensor *v,
                        const kn_attention_options *options) {
    static const kn_attention_options defaults = {.causal = 0};
    const kn_attention_options *o = options ? options : &defaults;
    kn_tensor *in[5] = {q, k, v, KN_NONE, KN_NONE};
    kn_op_call call;
    int causal = o->causal;
    kn_attr_attention attr = {.scale = o->scale, .dropout = o->dropout};
    kn_op_call_init(&call, KN_OP_attention, &attr, in, 5);
    if (!kn__check_readable(KN_OP_attention, in, 3) || !kn__check_inputs(&call) || !fits(&call))
        return NULL;
    if (!options_fit(o) || !kn__flag_fit(KN_OP_attention, "causal", &causal)) return NULL;
    if (causal) attr.causal = 1, attr.offset = o->offset;
    if (o->scale == 0) attr.scale = 1 / sqrt(q->dim[3] ? (double)q->dim[3] : 1);
    if (o->mask && o->mask != KN_NONE) {
        in[3] = o->mask;
        if (!kn__check_readable(KN_OP_attention, in, 4) || !mask_has_meaning(&call, o->mask))
            return NULL;
        in[3] = added(&call, o->mask);
        if (!in[3]) return NULL;
    }
    if (o->dropout > 0) {
        int64_t rows = q->dim[0] * q->dim[1] * q->dim[2];
        in[4] = kn_rng_take(o->rng, q->storage->device, rows * kn__dropout_row(k->dim[2]));
        if (!in[4]) return NULL;
    }
    return kn__narrowed(kn_op_run(&call), q);
}
