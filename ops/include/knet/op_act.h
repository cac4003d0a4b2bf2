/* For those who implement ops and gradient rules: the activations of products and convolutions.
 * Used by the libraries of one release with each other; not a stable interface. */
#ifndef KNET_OP_ACT_H
#define KNET_OP_ACT_H

#include <knet/op.h>

enum { KN_ACTS = KN_ACT_HARDSWISH + 1 };
/* The op with the values of an activation; KN_ACT_NONE has none. */
static inline kn_op kn_act_op(kn_act act) {
    static const uint16_t ops[] = {KN_OP_COUNT,     KN_OP_relu, KN_OP_gelu, KN_OP_silu,
                                   KN_OP_gelu_tanh, KN_OP_sigm, KN_OP_tanh, KN_OP_hardswish};
    return (kn_op)ops[act];
}
/* Whether the gradient of an activation, or of none, reads its result alone: such a call is
 * recorded as it is. */
static inline bool kn_act_keeps_result(kn_act act) {
    return act == KN_ACT_NONE || kn_op_needs_table[kn_act_op(act)].first[0] == 1 << KN_NEED_OUT;
}

#endif
