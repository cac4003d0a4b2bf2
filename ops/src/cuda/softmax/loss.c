/* Softmax, and losses over rows of scores. */
#include "cuda/base/module.h"

static kn__softmax describe(const kn_op_call *call, bool log) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int axis = __builtin_ctz(attr->mask);
    kn__softmax p = {.dtype = (kn_dtype)x->dtype, .log = log, .outer = 1, .n = 1, .inner = 1};
    for (int d = 0; d < x->n_dims; d++) {
        *(d < axis ? &p.outer : d == axis ? &p.n : &p.inner) *= x->dim[d];
    }
    return p;
}

kn_status kn__cuda_softmax(kn_op_call *call) {
    kn__softmax p = describe(call, call->op == KN_OP_logsoftmax);
    return KN__CUDA_NAMED("softmax_kernel", kn__launch_softmax(&p, call->out[0]->data,
                                                               call->in[0]->data, call->stream));
}

kn_status kn__cuda_softmax_back(kn_op_call *call) {
    kn__softmax p = describe(call, call->op == KN_OP_logsoftmax_back);
    return KN__CUDA_NAMED("softmax_back_kernel",
                          kn__launch_softmax_back(&p, call->out[0]->data, call->in[0]->data,
                                                  call->in[1]->data, call->stream));
}

/* Runs a loss of scores in[0] and labels in[1] with its work space. */
static kn_status run_rows(kn_op_call *call,
                          cudaError_t (*launch)(const kn__loss *p, cudaStream_t stream),
                          const char *label) {
    const kn_tensor *scores = call->in[0], *labels = call->in[1];
    kn__loss p = {
        .dtype = (kn_dtype)scores->dtype,
        .label_dtype = (kn_dtype)labels->dtype,
        .rows = scores->dim[0],
        .classes = scores->dim[1],
        .scores = scores->data,
        .labels = labels->data,
        .smoothing = call->op == KN_OP_cross_entropy ? ((const kn_attr_scalars *)call->attr)->a : 0,
        .best = call->op == KN_OP_accuracy ? ((const kn_attr_best *)call->attr)->k : 0,
        .out = call->out[0]->data,
        .dlogits = call->n_out > 1 && call->out[1] ? call->out[1]->data : NULL};
    size_t each = kn_dtype_bytes((kn_dtype)kn__computed(p.dtype));
    KN_TRY(kn__work(&p.row_loss, call, (size_t)p.rows * each));
    return KN__CUDA_NAMED(label, launch(&p, call->stream));
}

kn_status kn__cuda_cross_entropy(kn_op_call *call) {
    return run_rows(call, kn__launch_cross_entropy, "cross_entropy_kernel");
}

kn_status kn__cuda_nll(kn_op_call *call) { return run_rows(call, kn__launch_nll, "nll_kernel"); }

kn_status kn__cuda_accuracy(kn_op_call *call) {
    return run_rows(call, kn__launch_accuracy, "accuracy_kernel");
}

kn_status kn__cuda_nll_back(kn_op_call *call) {
    const kn_tensor *labels = call->in[0], *out = call->out[0];
    kn__loss p = {.dtype = (kn_dtype)out->dtype,
                  .label_dtype = (kn_dtype)labels->dtype,
                  .rows = out->dim[0],
                  .classes = out->dim[1],
                  .labels = labels->data};
    return KN__CUDA_NAMED("nll_back_kernel",
                          kn__launch_nll_back(&p, out->data, call->in[1]->data, call->stream));
}
