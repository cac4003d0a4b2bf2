/* One optimiser step over many parameters, in place. */
#include "run.h"

/* The parameters and their state are written, hyper is the call's result. */
static kn_status claim_all(const kn_attr_optim *attr, kn_tensor *m, kn_tensor *v,
                           const kn_tensor *hyper) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    if (!self->frame) return KN_OK; /* kn_op_run says so */
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    if (kn__place(&pool, &stream, self, hyper->storage->device) < 0) return kn_check();
    for (int i = 0; i < attr->n_parts; i++) {
        KN_TRY(kn__claim(self, attr->part[i].w->storage, stream));
    }
    if (m != &kn__none) KN_TRY(kn__claim(self, m->storage, stream));
    return v != &kn__none ? kn__claim(self, v->storage, stream) : KN_OK;
}

static bool parts_fit(kn_op op, const kn_attr_optim *attr, kn_tensor *const in[4]) {
    for (int i = 0; i < attr->n_parts; i++) {
        const kn_optim_part *part = &attr->part[i];
        kn_tensor *both[] = {part->w, in[0]};
        if (!kn__floats_check(op, "w grad", both, 2, 0)) return false;
        if (part->n == part->w->n && part->offset >= 0 && part->offset + part->n <= in[0]->n) {
            continue;
        }
        kn__fail_inputs(op, "w grad", both, 2, KN_ERR_SHAPE,
                        "part %d has %lld elements at %lld of the flat gradient", i,
                        (long long)part->n, (long long)part->offset);
        return false;
    }
    return true;
}

kn_status kn_optim_run(kn_op op, const kn_attr_optim *attr, kn_tensor *grad, kn_tensor *m,
                       kn_tensor *v, kn_tensor *hyper) {
    KN_TRY(kn_check());
    kn_tensor *in[] = {grad, m, v, hyper};
    if (!kn__inputs_check(op, "grad m v hyper", in, 4, 1u << 1 | 1u << 2)) return kn_check();
    if (!kn__floats_check(op, "grad m v", in, 3, 1u << 1 | 1u << 2)) return kn_check();
    bool state_fits = (m == &kn__none || m->n == grad->n) && (v == &kn__none || v->n == grad->n);
    if (hyper->dtype != KN_F64 || hyper->n != 4 || !state_fits) {
        kn__fail_inputs(op, "grad m v hyper", in, 4, KN_ERR_SHAPE,
                        "m and v must be like grad, hyper f64 [4]");
        return kn_check();
    }
    if (!parts_fit(op, attr, in)) return kn_check();
    kn_op_call call = {
        .op = op, .n_in = 4, .in = in, .out = hyper, .attr = attr, .attr_bytes = sizeof *attr};
    KN_TRY(claim_all(attr, m, v, hyper));
    return kn_op_run(&call) ? KN_OK : kn_check();
}
