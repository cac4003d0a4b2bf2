/* Normalization by channels of a batch, and of rows. */
#include "cuda/base/module.h"

static void *data_of(const kn_tensor *t) { return t && t != KN_NONE ? t->data : NULL; }

static kn__norm describe(const kn_op_call *call, const kn_tensor *x) {
    const kn_attr_normalize *a = call->attr;
    return (kn__norm){.dtype = (kn_dtype)x->dtype,
                      .outer = a->outer,
                      .groups = a->groups,
                      .channels = a->channels,
                      .inner = a->inner,
                      .eps = a->eps,
                      .momentum = a->momentum,
                      .by_rstd = a->by_rstd != 0,
                      .centred = true,
                      .x = x->data,
                      .y = data_of(call->out[0])};
}

static kn_status work_space(kn__norm *p, kn_op_call *call) {
    void *parts, *terms;
    size_t channels = (size_t)(p->groups * p->channels) * sizeof(double);
    kn__norm_plan(p);
    KN_TRY(kn__work(&parts, call, ((size_t)p->n_chunks * 2 + 1) * channels));
    KN_TRY(kn__work(&terms, call, 4 * channels));
    p->parts = parts;
    p->terms = terms;
    return KN_OK;
}

kn_status kn__cuda_batchnorm(kn_op_call *call) {
    kn__norm p = describe(call, call->in[0]);
    p.by_batch = true;
    p.running_mean = data_of(call->in[1]);
    p.running_var = data_of(call->in[2]);
    p.weight = data_of(call->in[3]);
    p.bias = data_of(call->in[4]);
    p.mean = data_of(call->out[1]);
    p.rstd = data_of(call->out[2]);
    KN_TRY(work_space(&p, call));
    KN_TRY(KN__CUDA_NAMED("batch_moments_kernel", kn__launch_batch_moments(&p, call->stream)));
    if (!p.y) return KN_OK;
    return KN__CUDA_NAMED("batch_scale_kernel", kn__launch_batch_scale(&p, call->stream));
}

kn_status kn__cuda_batchnorm_eval(kn_op_call *call) {
    kn__norm p = describe(call, call->in[0]);
    void *terms;
    p.running_mean = call->in[1]->data;
    p.running_var = call->in[2]->data;
    p.weight = data_of(call->in[3]);
    p.bias = data_of(call->in[4]);
    KN_TRY(kn__work(&terms, call, 4 * (size_t)p.channels * sizeof(double)));
    p.terms = terms;
    KN_TRY(KN__CUDA_NAMED("batch_eval_kernel", kn__launch_batch_eval(&p, call->stream)));
    return KN__CUDA_NAMED("batch_scale_kernel", kn__launch_batch_scale(&p, call->stream));
}

/* Of both back ops: g, x, weight, mean, rstd → dx, dweight, dbias. */
static kn__norm describe_back(const kn_op_call *call) {
    kn__norm p = describe(call, call->in[1]);
    p.g = call->in[0]->data;
    p.weight = data_of(call->in[2]);
    p.mean = data_of(call->in[3]);
    p.rstd = data_of(call->in[4]);
    p.centred = p.mean != NULL;
    p.dweight = data_of(call->out[1]);
    p.dbias = data_of(call->out[2]);
    return p;
}

kn_status kn__cuda_batchnorm_back(kn_op_call *call) {
    kn__norm p = describe_back(call);
    p.by_batch = true;
    KN_TRY(work_space(&p, call));
    KN_TRY(KN__CUDA_NAMED("norm_sums_kernel", kn__launch_norm_sums(&p, call->stream)));
    if (!p.y) return KN_OK;
    return KN__CUDA_NAMED("batch_back_kernel", kn__launch_batch_back(&p, call->stream));
}

kn_status kn__cuda_rownorm(kn_op_call *call) {
    kn__norm p = describe(call, call->in[0]);
    p.centred = call->op != KN_OP_rmsnorm;
    p.weight = data_of(call->in[1]);
    p.bias = p.centred ? data_of(call->in[2]) : NULL;
    p.mean = p.centred ? data_of(call->out[1]) : NULL;
    p.rstd = data_of(call->out[p.centred ? 2 : 1]);
    return KN__CUDA_NAMED("rownorm_kernel", kn__launch_rownorm(&p, call->stream));
}

kn_status kn__cuda_rownorm_back(kn_op_call *call) {
    kn__norm p = describe_back(call);
    if (p.y && call->out[0]->n) {
        KN_TRY(KN__CUDA_NAMED("rownorm_back_kernel", kn__launch_rownorm_back(&p, call->stream)));
    }
    if (!p.dweight && !p.dbias) return KN_OK;
    KN_TRY(work_space(&p, call));
    return KN__CUDA_NAMED("norm_sums_kernel", kn__launch_norm_sums(&p, call->stream));
}
