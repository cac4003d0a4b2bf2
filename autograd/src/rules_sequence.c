/* Rules of ops on sequences and images. Most kernels make all gradients in one call, which can't be
 * differentiated again. */
#include "rules.h"

/* Of ops marked ONCE. name: of the function that users call. */
static kn_status no_second(const kn__back *b, const char *name) {
    KN_ASSERT(kn_op_table[b->node->op].flags & KN_FLAG_ONCE);
    if (!b->pass->again) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: its gradient can't be differentiated again", name);
}

/* The gradient of result r; KN_NONE: it has none. */
static kn_tensor *gradient_of(const kn__back *b, int r) {
    kn_tensor *g = kn__node_results(b->node)[r].grad;
    return g ? g : KN_NONE;
}

static kn_status hand_over(kn__back *b, int i, kn_tensor *dx) {
    dx = kn__give_unbroadcast(b, i, dx);
    if (!dx) return kn_check();
    return dx == KN_NONE ? KN_OK : kn__back_deliver(b, i, dx);
}

/* Runs the call for the inputs that are wanted among the first n, whose gradients its results are.
 */
static kn_status deliver(kn__back *b, kn_op_call *call, int n) {
    call->want = 0;
    for (int i = 0; i < n; i++)
        if (kn__back_wants(b, i)) call->want |= (uint8_t)(1 << i);
    if (!call->want) return KN_OK;
    if (!kn_op_run(call)) return kn_check();
    for (int i = 0; i < n; i++)
        if (call->want >> i & 1) KN_TRY(hand_over(b, i, call->out[i]));
    return KN_OK;
}

kn_status kn__rule_rnn(kn__back *b) {
    kn_attr_rnn *attr = kn__back_attr(b);
    kn_op_call call;
    KN_TRY(no_second(b, "kn_rnn"));
    kn_op_call_init(
        &call, KN_OP_rnn_back, attr,
        KN_LIST_(kn__saved_in(b, 0), kn__saved_in(b, 1), kn__saved_out(b, 0), kn__saved_out(b, 3),
                 gradient_of(b, 0), gradient_of(b, 1), gradient_of(b, 2)),
        7);
    call.attr_bytes = sizeof *attr + (size_t)attr->n_lengths * sizeof attr->length[0];
    return deliver(b, &call, 4);
}

kn_status kn__rule_attention(kn__back *b) {
    kn_op_call call;
    KN_TRY(no_second(b, "kn_attention"));
    kn_op_call_init(
        &call, KN_OP_attention_back, kn__back_attr(b),
        KN_LIST_(kn__saved_in(b, 0), kn__saved_in(b, 1), kn__saved_in(b, 2), kn__saved_in(b, 3),
                 kn__saved_out(b, 0), kn__saved_out(b, 1), b->g, kn__saved_in(b, 4)),
        8);
    return deliver(b, &call, 4);
}

kn_status kn__rule_grid_sample(kn__back *b) {
    kn_op_call call;
    KN_TRY(no_second(b, "kn_grid_sample"));
    kn_op_call_init(&call, KN_OP_grid_sample_back, kn__back_attr(b),
                    KN_LIST_(kn__saved_in(b, 0), kn__saved_in(b, 1), b->g), 3);
    return deliver(b, &call, 2);
}

/* d [T,B,C], of each loss; g [B] */
kn_status kn__rule_ctc(kn__back *b) {
    KN_TRY(no_second(b, "kn_ctc_loss"));
    kn_tensor *g = kn_unsqueeze(b->g, 1), *dx = kn_mul(kn__saved_out(b, 1), g);
    return dx ? kn__back_deliver(b, 0, dx) : kn_check();
}

/* --- linear ones: their own adjoints, or each other's --- */

kn_tensor *kn__rule_rotary(kn__back *b, int i) {
    kn_attr_rotary attr = *(const kn_attr_rotary *)kn__back_attr(b);
    attr.inverse = !attr.inverse;
    return KN_GIVE(b, i, rotary, &attr, b->g);
}

kn_tensor *kn__rule_resize(kn__back *b, int i) {
    return KN_GIVE(b, i, resize_back, kn__back_attr(b), b->g);
}
kn_tensor *kn__rule_resize_back(kn__back *b, int i) {
    return KN_GIVE(b, i, resize, kn__back_attr(b), b->g);
}
