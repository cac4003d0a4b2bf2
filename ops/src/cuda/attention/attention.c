/* Attention: from a call to its launches. */
#include "attention.h"
#include "cuda/base/module.h"

static kn__attention describe(const kn_op_call *call, const kn_tensor *state) {
    const kn_attr_attention *attr = call->attr;
    const kn_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *mask = call->in[3];
    kn__attention p = {.dtype = (kn_dtype)q->dtype,
                       .batch = q->dim[0],
                       .heads = q->dim[1],
                       .groups = k->dim[1],
                       .queries = q->dim[2],
                       .keys = k->dim[2],
                       .d = q->dim[3],
                       .e = v->dim[3],
                       .scale = attr->scale,
                       .causal = attr->causal != 0,
                       .offset = attr->offset,
                       .q = q->data,
                       .k = k->data,
                       .v = v->data,
                       .dropout = attr->dropout,
                       .state = state == KN_NONE ? NULL : state->data,
                       .dropout_row = kn__dropout_row(k->dim[2])};
    if (mask == KN_NONE) return p;
    p.mask = mask->data;
    kn__mask_strides(p.mask_stride, mask);
    return p;
}

kn_status kn__cuda_attention(kn_op_call *call) {
    kn__attention p = describe(call, call->in[4]);
    void *y = call->out[0] ? call->out[0]->data : NULL;
    void *stats = call->out[1] ? call->out[1]->data : NULL;
    return KN__CUDA_NAMED("attention_kernel", kn__launch_attention(&p, y, stats, call->stream));
}

kn_status kn__cuda_attention_back(kn_op_call *call) {
    kn__attention p = describe(call, call->in[7]);
    size_t each = kn_dtype_bytes((kn_dtype)kn__computed(p.dtype));
    size_t bytes = (size_t)(p.batch * p.heads * p.queries) * each;
    void *delta = NULL, *out[4];
    for (int i = 0; i < 4; i++) out[i] = call->out[i] ? call->out[i]->data : NULL;
    p.y = call->in[4]->data, p.stats = call->in[5]->data, p.g = call->in[6]->data;
    KN_TRY(kn__work(&delta, call, bytes));
    KN_TRY(KN__CUDA_NAMED("delta_kernel", kn__launch_attention_delta(&p, delta, call->stream)));
    p.delta = delta, p.dmask = out[3];
    if (out[3]) KN_TRY(kn__zeros(call, 3));
    return KN__CUDA_NAMED("attention_back_kernel",
                          kn__launch_attention_back(&p, out[0], out[1], out[2], call->stream));
}
