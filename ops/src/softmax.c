/* Softmax and log-softmax. */
#include "run.h"

bool kn__infer_softmax(kn_op_call *call) { return kn__like(call, 0, call->in[0]); }

bool kn__infer_softmax_back(kn_op_call *call) {
    if (kn__same_shape(call->in[0], call->in[1])) return kn__like(call, 0, call->in[0]);
    return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes differ");
}

static kn_tensor *softmax(kn_op op, kn_tensor *x, int axis) {
    kn_attr_axes attr = {0, 0};
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, &x, 1);
    if (!kn__check_readable(op, &x, 1) || !kn__axis(&axis, &call, x, axis)) return NULL;
    attr.mask = 1u << axis;
    return kn_op_run(&call);
}

kn_tensor *kn_softmax(kn_tensor *x, int axis) { return softmax(KN_OP_softmax, x, axis); }
kn_tensor *kn_logsoftmax(kn_tensor *x, int axis) { return softmax(KN_OP_logsoftmax, x, axis); }
