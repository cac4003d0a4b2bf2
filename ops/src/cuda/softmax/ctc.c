/* The CTC loss: from a call to its launch. */
#include "cuda/base/module.h"

kn_status kn__cuda_ctc(kn_op_call *call) {
    const kn_attr_ctc *attr = call->attr;
    const kn_tensor *x = call->in[0], *targets = call->in[1];
    kn__ctc p = {.dtype = (kn_dtype)x->dtype,
                 .steps = x->dim[0],
                 .batch = x->dim[1],
                 .classes = x->dim[2],
                 .labels = targets->dim[1],
                 .blank = attr->blank,
                 .zero_infinity = attr->zero_infinity != 0,
                 .x = x->data,
                 .losses = call->out[0] ? call->out[0]->data : NULL,
                 .d = call->out[1] ? call->out[1]->data : NULL};
    for (int i = 0; i < 3; i++) {
        const kn_tensor *t = call->in[1 + i];
        p.index[i] = t == KN_NONE ? NULL : t->data;
        p.index_dtype[i] = t == KN_NONE ? KN_I64 : (kn_dtype)t->dtype;
    }
    if (p.batch == 0) return KN_OK;
    if (p.d) KN_TRY(kn__zeros(call, 1));
    p.rows = p.d && p.steps > 2 ? p.steps : 2;
    p.room = (p.rows + 5) * (2 * p.labels + 1);
    void *work = NULL;
    KN_TRY(kn__work(&work, call, (size_t)(p.batch * p.room) * sizeof(double)));
    p.work = work;
    return KN__CUDA_NAMED("ctc_kernel", kn__launch_ctc(&p, call->stream));
}
