/* Optimiser steps: up to KN__PARTS_MAX parameters a launch; of LAMB, two launches. */
#include "cuda/base/module.h"

static kn__optim_kind kind_of(kn_op op) {
    switch (op) {
        case KN_OP_sgd_step:
            return KN__OPTIM_SGD;
        case KN_OP_momentum_step:
            return KN__OPTIM_MOMENTUM;
        case KN_OP_nesterov_step:
            return KN__OPTIM_NESTEROV;
        case KN_OP_adagrad_step:
            return KN__OPTIM_ADAGRAD;
        case KN_OP_rmsprop_step:
            return KN__OPTIM_RMSPROP;
        case KN_OP_adadelta_step:
            return KN__OPTIM_ADADELTA;
        case KN_OP_adam_step:
            return KN__OPTIM_ADAM;
        case KN_OP_lamb_step:
            return KN__OPTIM_LAMB;
        default:
            return KN__OPTIM_EMA;
    }
}

static void *data_or_null(const kn_tensor *t) { return t == KN_NONE ? NULL : t->data; }

/* Takes parts from *next on, leaving out empty ones. */
static void take_parts(kn__optim *p, int64_t *next, const kn_attr_optim *attr) {
    for (p->n_parts = 0; *next < attr->n_parts && p->n_parts < KN__PARTS_MAX; ++*next) {
        const kn_optim_part *part = &attr->part[*next];
        if (part->n == 0) continue;
        p->w[p->n_parts] = part->w->data;
        p->offset[p->n_parts] = part->offset;
        p->rate[p->n_parts] = part->rate;
        p->decay[p->n_parts] = part->decay;
        p->n[p->n_parts++] = part->n;
    }
}

/* Space for the sums of the parts that one launch takes. */
static kn_status take_sums(kn__optim *p, kn_op_call *call) {
    const kn_attr_optim *attr = call->attr;
    int64_t most = 0, next = 0;
    void *sums = NULL;
    while (next < attr->n_parts) {
        int64_t chunks = 0;
        take_parts(p, &next, attr);
        for (int i = 0; i < p->n_parts; i++)
            chunks += (p->n[i] + KN__LAMB_CHUNK - 1) / KN__LAMB_CHUNK;
        if (chunks > most) most = chunks;
    }
    KN_TRY(kn__work(&sums, call, (size_t)most * 2 * sizeof(double)));
    p->sums = sums;
    return KN_OK;
}

kn_status kn__cuda_optim(kn_op_call *call) {
    const kn_attr_optim *attr = call->attr;
    const kn_tensor *grad = call->in[0];
    kn__optim p;
    p.kind = kind_of((kn_op)call->op);
    p.dtype = (kn_dtype)grad->dtype;
    p.grad = grad->data;
    p.m = data_or_null(call->in[1]);
    p.v = data_or_null(call->in[2]);
    p.hyper = call->in[3]->data;
    p.momentum = attr->momentum;
    p.beta1 = attr->beta1, p.beta2 = attr->beta2, p.eps = attr->eps;
    p.weight_decay = attr->weight_decay;
    p.rate_outside = attr->rate_outside != 0;
    p.sums = NULL;
    int64_t next = 0;
    if (p.kind == KN__OPTIM_LAMB) KN_TRY(take_sums(&p, call));
    do {
        take_parts(&p, &next, attr);
        p.last = next == attr->n_parts;
        if (p.kind == KN__OPTIM_LAMB)
            KN_TRY(KN__CUDA_NAMED("lamb_state_kernel", kn__launch_lamb_state(&p, call->stream)));
        KN_TRY(KN__CUDA_NAMED("optim_kernel", kn__launch_optim(&p, call->stream)));
    } while (!p.last);
    return KN_OK;
}
