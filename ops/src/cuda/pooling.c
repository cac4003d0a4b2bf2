/* Pooling: brings one to three spatial dimensions to three. */
#include "module.h"

/* `big` is the side before pooling, `small` the one after. */
static kn_status describe(kn__pooling *p, const kn_kernel_call *call, const kn_tensor *big,
                          const kn_tensor *small) {
    const kn_attr_pool *attr = call->attr;
    int n = attr->n_spatial, pad = 3 - n;
    *p = (kn__pooling){.dtype = (kn_dtype)call->out->dtype, .planes = big->dim[0] * big->dim[1]};
    for (int d = 0; d < 3; d++) {
        bool used = d >= pad;
        p->x[d] = used ? big->dim[2 + d - pad] : 1;
        p->y[d] = used ? small->dim[2 + d - pad] : 1;
        p->window[d] = used ? attr->window[d - pad] : 1;
        p->stride[d] = used ? attr->stride[d - pad] : 1;
        if (p->x[d] > INT32_MAX) {
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "pooling on CUDA takes sizes up to 2^31 - 1, not %lld",
                           (long long)p->x[d]);
        }
    }
    return KN_OK;
}

kn_status kn__cuda_maxpool(const kn_kernel_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->in[0], call->out));
    uint8_t *offset = call->aux ? call->aux->data : NULL;
    return KN__CUDA_NAMED("maxpool_kernel", kn__launch_maxpool(&p, call->out->data, offset,
                                                               call->in[0]->data, call->stream));
}

kn_status kn__cuda_maxpool_back(const kn_kernel_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->out, call->in[0]));
    return KN__CUDA_NAMED("maxpool_back_kernel",
                          kn__launch_maxpool_back(&p, call->out->data, call->in[0]->data,
                                                  call->in[1]->data, call->stream));
}

kn_status kn__cuda_maxpool_take(const kn_kernel_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->in[0], call->out));
    return KN__CUDA_NAMED("maxpool_take_kernel",
                          kn__launch_maxpool_take(&p, call->out->data, call->in[0]->data,
                                                  call->in[1]->data, call->stream));
}

kn_status kn__cuda_avgpool(const kn_kernel_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->in[0], call->out));
    return KN__CUDA_NAMED("avgpool_kernel",
                          kn__launch_avgpool(&p, call->out->data, call->in[0]->data, call->stream));
}

kn_status kn__cuda_avgpool_back(const kn_kernel_call *call) {
    kn__pooling p;
    KN_TRY(describe(&p, call, call->out, call->in[0]));
    return KN__CUDA_NAMED(
        "avgpool_back_kernel",
        kn__launch_avgpool_back(&p, call->out->data, call->in[0]->data, call->stream));
}
