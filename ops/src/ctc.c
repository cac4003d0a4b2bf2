/* The loss of connectionist temporal classification: shapes, options, reduction. */
#include "run.h"

/* log_probs [T,B,C], targets [B,S] */
static bool fits(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *targets = call->in[1];
    if (x->n_dims != 3 || targets->n_dims != 2 || targets->dim[0] != x->dim[1])
        return kn_op_call_fail(call, KN_ERR_SHAPE, "the shapes must be [T,B,C] and [B,S]");
    for (int i = 2; i < 4; i++) {
        const kn_tensor *t = call->in[i];
        if (t == KN_NONE || (t->n_dims == 1 && t->n == x->dim[1])) continue;
        return kn_op_call_fail(call, KN_ERR_SHAPE, "%s must be [%lld]",
                               kn_op_table[call->op].in_name[i], (long long)x->dim[1]);
    }
    return true;
}

bool kn__infer_ctc(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    return fits(call) && kn__shaped(call, 0, 1, &x->dim[1]) && kn__like(call, 1, x);
}

/* The losses divided by the lengths of their targets. */
static kn_tensor *by_length(kn_tensor *losses, const kn_tensor *targets, kn_tensor *lengths) {
    if (!losses) return NULL;
    int64_t most = targets->dim[1];
    if (lengths == KN_NONE)
        return kn_div(losses, kn__constant_like(losses, (double)(most > 1 ? most : 1)));
    kn_tensor *n = kn_cast(lengths, (kn_dtype)losses->dtype);
    return kn_div(losses, kn_maximum(n, kn__constant_like(losses, 1)));
}

kn_tensor *kn_ctc_loss(kn_tensor *log_probs, kn_tensor *targets, const kn_ctc_options *options) {
    KN__AS("ctc_loss");
    static const kn_ctc_options defaults = {.blank = 0};
    const kn_ctc_options *o = options ? options : &defaults;
    int zero_infinity = o->zero_infinity;
    kn_attr_ctc attr = {.blank = o->blank};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_ctc, &attr,
                    KN_LIST_(log_probs, targets, o->lengths ? o->lengths : KN_NONE,
                             o->target_lengths ? o->target_lengths : KN_NONE),
                    4);
    if (!kn__check_inputs(&call) || !fits(&call)) return NULL;
    if (!kn__reserved_fit(KN_OP_ctc, 0, o->reserved, 4)) return NULL;
    if (!kn__flag_fit(KN_OP_ctc, "zero_infinity", &zero_infinity)) return NULL;
    attr.zero_infinity = zero_infinity;
    if (o->blank < 0 || o->blank >= log_probs->dim[2]) {
        kn_op_call_fail(&call, KN_ERR_INVALID, "blank is %lld; there are %lld classes",
                        (long long)o->blank, (long long)log_probs->dim[2]);
        return NULL;
    }
    if (o->reduction == KN_REDUCE_MEAN && !targets->dim[0]) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "there are no elements to take the mean of");
        return NULL;
    }
    kn_tensor *losses = kn_op_run(&call);
    if (o->reduction == KN_REDUCE_MEAN) losses = by_length(losses, targets, call.in[3]);
    return kn__loss_reduced(losses, (kn_reduction)o->reduction);
}
