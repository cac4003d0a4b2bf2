/* Pooling: brings one to three spatial dimensions to three. */
#include "cuda/base/module.h"

/* `big` is the side before pooling, `small` the one after. */
static kn_status describe(kn__pooling *p, const kn_op_call *call, const kn_tensor *big,
                          const kn_tensor *small) {
    const kn_attr_pool *attr = call->attr;
    int n = attr->n_spatial, pad = 3 - n;
    *p = (kn__pooling){.dtype = (kn_dtype)call->out[0]->dtype,
                       .planes = big->dim[0] * big->dim[1],
                       .inside = attr->inside == 1,
                       .sums = attr->inside == 2,
                       .skip_nan = attr->skip_nan,
                       .is_tight = true};
    for (int d = 0; d < 3; d++) {
        bool used = d >= pad;
        p->x[d] = used ? big->dim[2 + d - pad] : 1;
        p->y[d] = used ? small->dim[2 + d - pad] : 1;
        p->window[d] = used ? attr->window[d - pad] : 1;
        p->stride[d] = p->y[d] > 1 ? attr->stride[d - pad] : 1; /* which has 32 bits then */
        p->padding[d] = used ? attr->padding[d - pad] : 0;
        p->dilation[d] = used ? attr->dilation[d - pad] : 1;
        int64_t extent = (p->window[d] - 1) * p->dilation[d] + 1;
        int64_t end = (p->y[d] - 1) * p->stride[d] + extent; /* of the last window */
        p->is_tight &= p->stride[d] && !p->padding[d] && p->dilation[d] == 1 && end <= p->x[d];
        if (p->x[d] + p->padding[d] + extent > INT32_MAX) {
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "kn_%s: %s takes sizes up to 2^31 - 1 with their padding, not %lld",
                           kn_op_name(call->op), kn_device_name(call->device), (long long)p->x[d]);
        }
    }
    return KN_OK;
}

kn_status kn__cuda_maxpool(kn_op_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->in[0], call->out[0]));
    uint8_t *offset = call->out[1] ? call->out[1]->data : NULL;
    return KN__CUDA_NAMED("maxpool_kernel", kn__launch_maxpool(&p, call->out[0]->data, offset,
                                                               call->in[0]->data, call->stream));
}

kn_status kn__cuda_maxpool_back(kn_op_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->out[0], call->in[0]));
    return KN__CUDA_NAMED("maxpool_back_kernel",
                          kn__launch_maxpool_back(&p, call->out[0]->data, call->in[0]->data,
                                                  call->in[1]->data, call->stream));
}

kn_status kn__cuda_maxpool_take(kn_op_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->in[0], call->out[0]));
    return KN__CUDA_NAMED("maxpool_take_kernel",
                          kn__launch_maxpool_take(&p, call->out[0]->data, call->in[0]->data,
                                                  call->in[1]->data, call->stream));
}

kn_status kn__cuda_avgpool(kn_op_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->in[0], call->out[0]));
    return KN__CUDA_NAMED("avgpool_kernel", kn__launch_avgpool(&p, call->out[0]->data,
                                                               call->in[0]->data, call->stream));
}

kn_status kn__cuda_avgpool_back(kn_op_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->out[0], call->in[0]));
    return KN__CUDA_NAMED(
        "avgpool_back_kernel",
        kn__launch_avgpool_back(&p, call->out[0]->data, call->in[0]->data, call->stream));
}
