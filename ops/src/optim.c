/* One optimiser step over many parameters, in place. */
#include "run.h"

/* An average only reads the weights, so values that a tape saved of them stay valid. A plan learns
 * by claims which memory it uses. */
static kn_status weight_claim(kn__ops_thread *self, kn_op op, kn_storage *w, kn_stream stream) {
    if (op != KN_OP_ema_step || self->capture) return kn__claim(self, w, stream);
    KN_TRY(kn__await_writer(self, w, stream));
    return kn__use(self, w, stream);
}

/* The parameters and their state are written, hyper is the call's result. */
static kn_status claim_all(kn_op op, const kn_attr_optim *attr, kn_tensor *m, kn_tensor *v,
                           const kn_tensor *hyper) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    if (!self->frame) return KN_OK; /* kn_op_run says so */
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    if (kn__place(&pool, &stream, self, hyper->storage->device) < 0) return kn_check();
    for (int64_t i = 0; i < attr->n_parts; i++) {
        KN_TRY(weight_claim(self, op, attr->part[i].w->storage, stream));
    }
    if (m != &kn__none) KN_TRY(kn__claim(self, m->storage, stream));
    return v != &kn__none ? kn__claim(self, v->storage, stream) : KN_OK;
}

static bool parts_fit(const kn_op_call *call) {
    const kn_attr_optim *attr = call->attr;
    const kn_tensor *grad = call->in[0];
    for (int64_t i = 0; i < attr->n_parts; i++) {
        const kn_optim_part *part = &attr->part[i];
        if (!kn__is_whole(part->w)) {
            kn_error_defer(kn__fail_unreadable("a weight", part->w));
            return false;
        }
        if (part->w->dtype != grad->dtype || part->w->storage->device != call->device) {
            return kn_op_call_fail(
                call, KN_ERR_DTYPE, "weight %lld is %s on %s, grad %s on %s", (long long)i,
                kn_dtype_name((kn_dtype)part->w->dtype), kn_device_name(part->w->storage->device),
                kn_dtype_name((kn_dtype)grad->dtype), kn_device_name(call->device));
        }
        if (part->n == part->w->n && part->offset >= 0 && part->offset + part->n <= grad->n) {
            continue;
        }
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "part %lld has %lld elements at %lld of the flat gradient",
                               (long long)i, (long long)part->n, (long long)part->offset);
    }
    return true;
}

/* The result is hyper. */
bool kn__infer_optim(kn_op_call *call) {
    const kn_tensor *grad = call->in[0], *m = call->in[1], *v = call->in[2], *hyper = call->in[3];
    bool fits = (m == &kn__none || m->n == grad->n) && (v == &kn__none || v->n == grad->n);
    if (!fits || hyper->n != 4) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "m and v must be like grad, hyper f64 [4]");
    }
    if (!parts_fit(call)) return false;
    call->dtype = KN_F64;
    return kn__like(call, 0, hyper);
}

kn_status kn_optim_run(kn_op op, const kn_attr_optim *attr, kn_tensor *grad, kn_tensor *m,
                       kn_tensor *v, kn_tensor *hyper) {
    KN_TRY(kn_check());
    kn_attr_optim own = *attr;
    kn_op_call call;
    kn_op_call_init(&call, op, &own, KN_LIST_(grad, m, v, hyper), 4);
    if (!kn__check_inputs(&call) || !parts_fit(&call)) return kn_check();
    KN_TRY(claim_all(op, attr, m, v, hyper));
    return kn__run_into(&call, hyper);
}
