/* Softmax and losses. */
#include "run.h"

static kn_tensor *softmax(kn_op op, kn_tensor *x, int axis) {
    if (!kn__floats_check(op, "x", &x, 1, 0) || !kn__axis(&axis, op, x, axis)) return NULL;
    kn_attr_axes attr = {1u << axis, false};
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &x,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = kn_tensor_shape(x)};
    return kn_op_run(&call);
}

kn_tensor *(kn_softmax)(kn_tensor *x, int axis) { return softmax(KN_OP_softmax, x, axis); }
kn_tensor *(kn_logsoftmax)(kn_tensor *x, int axis) { return softmax(KN_OP_logsoftmax, x, axis); }

static kn_tensor *softmax_back(kn_op op, kn_tensor *y, kn_tensor *g, int axis) {
    kn_tensor *in[] = {y, g};
    if (!kn__floats_check(op, "y g", in, 2, 0) || !kn__axis(&axis, op, y, axis)) return NULL;
    if (!kn__same_shape(y, g)) {
        return kn__fail_inputs(op, "y g", in, 2, KN_ERR_SHAPE, "shapes differ");
    }
    kn_attr_axes attr = {1u << axis, false};
    kn_op_call call = {.op = op,
                       .n_in = 2,
                       .in = in,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)y->dtype,
                       .shape = kn_tensor_shape(y)};
    return kn_op_run(&call);
}

kn_tensor *kn_softmax_back(kn_tensor *y, kn_tensor *g, int axis) {
    return softmax_back(KN_OP_softmax_back, y, g, axis);
}
kn_tensor *kn_logsoftmax_back(kn_tensor *y, kn_tensor *g, int axis) {
    return softmax_back(KN_OP_logsoftmax_back, y, g, axis);
}

static bool labels_dtype(const kn_tensor *labels) {
    return labels->dtype == KN_I64 || labels->dtype == KN_I32 || labels->dtype == KN_U8;
}

/* scores [B,C], labels [B] */
static bool labelled(kn_op op, const char *names, kn_tensor *const in[2]) {
    if (!kn__inputs_check(op, names, in, 2, 0)) return false;
    if (!kn__floats_check(op, names, in, 1, 0)) return false;
    const kn_tensor *scores = in[0], *labels = in[1];
    if (!labels_dtype(labels)) {
        kn__fail_inputs(op, names, in, 2, KN_ERR_DTYPE, "labels is %s; it must be i64, i32 or u8",
                        kn_dtype_name((kn_dtype)labels->dtype));
    } else if (scores->n_dims != 2 || labels->n_dims != 1 || scores->dim[0] != labels->dim[0]) {
        kn__fail_inputs(op, names, in, 2, KN_ERR_SHAPE, "the shapes must be [B,C] and [B]");
    } else if (scores->n == 0) {
        kn__fail_inputs(op, names, in, 2, KN_ERR_SHAPE,
                        "there are no elements to take the mean of");
    } else {
        return true;
    }
    return false;
}

kn_tensor *(kn_cross_entropy)(kn_tensor *logits, kn_tensor *labels) {
    const kn_op op = KN_OP_cross_entropy;
    kn_tensor *in[] = {logits, labels};
    if (!labelled(op, "logits labels", in)) return NULL;
    kn_op_call call = {.op = op, .n_in = 2, .in = in, .dtype = (kn_dtype)logits->dtype};
    if (kn_op_recording(&logits, 1)) {
        call.want_aux = true;
        call.aux_dtype = call.dtype;
        call.aux_shape = kn_tensor_shape(logits);
    }
    return kn_op_run(&call);
}

static kn_tensor *labels_op(kn_op op, const char *names, kn_tensor *scores, kn_tensor *labels) {
    kn_tensor *in[] = {scores, labels};
    if (!labelled(op, names, in)) return NULL;
    kn_op_call call = {.op = op, .n_in = 2, .in = in, .dtype = (kn_dtype)scores->dtype};
    return kn_op_run(&call);
}

kn_tensor *(kn_nll)(kn_tensor *log_probs, kn_tensor *labels) {
    return labels_op(KN_OP_nll, "log_probs labels", log_probs, labels);
}
kn_tensor *(kn_accuracy)(kn_tensor *scores, kn_tensor *labels) {
    return labels_op(KN_OP_accuracy, "scores labels", scores, labels);
}

kn_tensor *kn_nll_back(kn_tensor *labels, kn_tensor *g, kn_shape shape) {
    const kn_op op = KN_OP_nll_back;
    kn_tensor *in[] = {labels, g};
    if (!kn__inputs_check(op, "labels g", in, 2, 0) || !kn__floats_check(op, "g", &g, 1, 0)) {
        return NULL;
    }
    if (!labels_dtype(labels) || g->n != 1 || shape.n_dims != 2 || shape.dim[0] != labels->n) {
        return kn__fail_inputs(op, "labels g", in, 2, KN_ERR_SHAPE,
                               "labels must be integers [B], g 0-dimensional, the shape [B,C]");
    }
    kn_op_call call = {.op = op, .n_in = 2, .in = in, .dtype = (kn_dtype)g->dtype, .shape = shape};
    return kn_op_run(&call);
}
