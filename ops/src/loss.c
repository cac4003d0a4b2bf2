/* Losses over rows with integer labels. */
#include "run.h"

/* scores [B,C], labels [B] */
static bool labelled(const kn_op_call *call) {
    const kn_tensor *scores = call->in[0], *labels = call->in[1];
    if (scores->n_dims != 2 || labels->n_dims != 1 || scores->dim[0] != labels->dim[0]) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "the shapes must be [B,C] and [B]");
    }
    if (scores->n) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "there are no elements to take the mean of");
}

bool kn__infer_labelled(kn_op_call *call) { return labelled(call) && kn__shaped(call, 0, 0, NULL); }

bool kn__infer_cross_entropy(kn_op_call *call) {
    return kn__infer_labelled(call) && kn__like(call, 1, call->in[0]);
}

bool kn__infer_nll_back(kn_op_call *call) {
    const kn_tensor *labels = call->in[0], *g = call->in[1];
    if (g->n != 1 || labels->n_dims != 1) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "labels must be [B], g 0-dimensional");
    }
    const kn_attr_classes *attr = call->attr;
    return kn__shaped(call, 0, 2, (int64_t[]){labels->n, attr->n});
}

kn_tensor *(kn_cross_entropy)(kn_tensor *logits, kn_tensor *labels) {
    return KN_CALL(cross_entropy, NULL, logits, labels);
}
kn_tensor *(kn_nll)(kn_tensor *log_probs, kn_tensor *labels) {
    return KN_CALL(nll, NULL, log_probs, labels);
}
kn_tensor *(kn_accuracy)(kn_tensor *scores, kn_tensor *labels) {
    return KN_CALL(accuracy, NULL, scores, labels);
}
