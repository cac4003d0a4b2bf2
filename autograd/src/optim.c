#include <knet/optim.h>
#include <stdlib.h>

#include "params.h"

enum { LR = 0, STEPS, SCALE, HYPERS = 4 };

struct kn_optim {
    kn_params *set; /* shared */
    kn_op op;
    kn_attr_optim attr;
    kn_optim_part *parts; /* made at the first step */
    kn_tensor *m, *v;     /* like the gradient arena; KN_NONE where the method has none */
    kn_tensor *hyper;     /* F64[4] on the device: rate, steps, gradient scale, 0 */
    double clip_norm;
    bool has_m, has_v;
};

/* --- life cycle --- */

static kn_status check(const char *name, const kn_params *params, double lr, double weight_decay,
                       double clip_norm, const uint64_t reserved[4]) {
    if (!params) return KN_FAIL(KN_ERR_INVALID, "%s: params is NULL", name);
    if (!(lr >= 0) || !(weight_decay >= 0) || !(clip_norm >= 0)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: lr %g, weight_decay %g, clip_norm %g; none may be negative", name, lr,
                       weight_decay, clip_norm);
    }
    for (int i = 0; i < 4; i++) {
        if (reserved[i]) return KN_FAIL(KN_ERR_INVALID, "%s: a reserved option is not zero", name);
    }
    return KN_OK;
}

static kn_status make_hyper(kn_optim *optim, double lr) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    kn_tensor *hyper =
        kn_tensor_from((const double[HYPERS]){lr, 0, 1, 0}, KN_F64, KN_SHAPE(HYPERS));
    if (!hyper) return kn_check();
    optim->hyper = kn_tensor_detach_frame(hyper);
    return KN_OK;
}

static kn_status create(kn_optim **out, kn_params *params, double lr, const kn_optim *like) {
    KN_TRY(kn_check());
    kn_optim *optim = malloc(sizeof *optim);
    if (!optim) return KN_FAIL(KN_ERR_OOM, "no host memory for an optimiser");
    *optim = *like;
    optim->set = kn__params_retain(params);
    optim->m = optim->v = KN_NONE;
    kn_status status = make_hyper(optim, lr);
    if (status < 0) {
        kn_optim_destroy(optim);
        return status;
    }
    *out = optim;
    return KN_OK;
}

kn_status kn_sgd_create(kn_optim **out, kn_params *params, double lr,
                        const kn_sgd_options *options) {
    kn_sgd_options o = options ? *options : (kn_sgd_options){0};
    KN_TRY(check("kn_sgd_create", params, lr, o.weight_decay, o.clip_norm, o.reserved));
    kn_optim like = {
        .op = KN_OP_sgd_step, .attr = {.weight_decay = o.weight_decay}, .clip_norm = o.clip_norm};
    return create(out, params, lr, &like);
}

kn_status kn_momentum_create(kn_optim **out, kn_params *params, double lr, double momentum,
                             const kn_sgd_options *options) {
    kn_sgd_options o = options ? *options : (kn_sgd_options){0};
    KN_TRY(check("kn_momentum_create", params, lr, o.weight_decay, o.clip_norm, o.reserved));
    if (!(momentum >= 0 && momentum < 1)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_momentum_create: momentum %g is not in [0, 1)",
                       momentum);
    }
    kn_optim like = {.op = KN_OP_momentum_step,
                     .attr = {.momentum = momentum, .weight_decay = o.weight_decay},
                     .clip_norm = o.clip_norm,
                     .has_m = true};
    return create(out, params, lr, &like);
}

kn_status kn_adam_create(kn_optim **out, kn_params *params, double lr,
                         const kn_adam_options *options) {
    kn_adam_options o = options ? *options : (kn_adam_options){0};
    KN_TRY(check("kn_adam_create", params, lr, o.weight_decay, o.clip_norm, o.reserved));
    double beta1 = o.beta1 != 0 ? o.beta1 : 0.9, beta2 = o.beta2 != 0 ? o.beta2 : 0.999;
    double eps = o.eps != 0 ? o.eps : 1e-8;
    if (!(beta1 > 0 && beta1 < 1 && beta2 > 0 && beta2 < 1 && eps > 0)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_adam_create: beta1 %g and beta2 %g must be in (0, 1), eps %g above 0",
                       beta1, beta2, eps);
    }
    kn_optim like = {
        .op = KN_OP_adam_step,
        .attr = {.beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = o.weight_decay},
        .clip_norm = o.clip_norm,
        .has_m = true,
        .has_v = true};
    return create(out, params, lr, &like);
}

void kn_optim_destroy(kn_optim *optim) {
    if (!optim) return;
    kn_tensor_release(optim->m);
    kn_tensor_release(optim->v);
    kn_tensor_release(optim->hyper);
    kn__params_release(optim->set);
    free(optim->parts);
    free(optim);
}

/* --- a step --- */

static kn_status make_state(kn_tensor **out, const kn_tensor *like) {
    kn_tensor *t = kn_filled_like(like, 0);
    if (!t) return kn_check();
    *out = kn_tensor_detach_frame(t);
    return KN_OK;
}

/* State and parts go by the arena's offsets, which are final from here on. */
static kn_status prepare(kn_optim *optim) {
    kn_params *set = optim->set;
    KN_TRY(kn__params_freeze(set));
    if (optim->has_m && optim->m == KN_NONE) KN_TRY(make_state(&optim->m, set->flat));
    if (optim->has_v && optim->v == KN_NONE) KN_TRY(make_state(&optim->v, set->flat));
    kn_optim_part *parts = calloc((size_t)set->n + 1, sizeof *parts);
    if (!parts) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", set->n);
    for (int i = 0; i < set->n; i++) {
        const kn__param *p = set->param[i];
        parts[i] = (kn_optim_part){p->w, p->offset, p->w->n};
    }
    optim->attr.part = optim->parts = parts;
    optim->attr.n_parts = set->n;
    return KN_OK;
}

/* Gradient scale = min(1, clip / |g|), worked out where the gradients are: nothing waits for it. */
static kn_status clip(kn_optim *optim) {
    kn_tensor *g = optim->set->flat;
    kn_tensor *norm = kn_sqrt(kn_sum(kn_mul(g, g), KN_ALL, false));
    if (!norm) return kn_check();
    kn_tensor *limit = kn_filled_like(norm, optim->clip_norm), *one = kn_filled_like(norm, 1);
    kn_tensor *scale = kn_minimum(kn_div(limit, kn_affine(norm, 1, 1e-6)), one);
    kn_tensor *place = scale ? kn_tensor_view(optim->hyper, KN_SCALAR, SCALE) : NULL;
    if (!place) return kn_check();
    kn_attr_cast attr = {KN_F64};
    kn_op_call cast;
    kn_op_call_init(&cast, KN_OP_cast, &attr, &scale, 1);
    cast.out[0] = place;
    cast.given = 1;
    return kn_op_run(&cast) ? KN_OK : kn_check();
}

static kn_status step(kn_optim *optim) {
    if (!optim->parts) KN_TRY(prepare(optim));
    KN_TRY(kn__params_settle(optim->set));
    if (optim->clip_norm > 0) KN_TRY(clip(optim));
    return kn_optim_run(optim->op, &optim->attr, optim->set->flat, optim->m, optim->v,
                        optim->hyper);
}

kn_status kn_optim_step(kn_optim *optim) {
    KN_TRY(kn_check());
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_step: optim is NULL");
    if (!optim->set->n) return KN_OK;
    KN_SCOPE("optim_step");
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    KN_TRY(kn_check());
    KN_TRY(step(optim));
    optim->set->stepped = true;
    return KN_OK;
}

kn_status kn_optim_lr(kn_optim *optim, double lr) {
    KN_TRY(kn_check());
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_lr: optim is NULL");
    if (!(lr >= 0)) return KN_FAIL(KN_ERR_INVALID, "kn_optim_lr: lr %g is negative", lr);
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    kn_tensor *place = kn_tensor_view(optim->hyper, KN_SCALAR, LR);
    return place ? kn_fill_into(place, lr) : kn_check();
}
