#include <inttypes.h>
#include <knet/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checked.h"
#include "optim.h"

/* --- life cycle --- */

static kn_status check(const char *name, const kn_params *params, double lr, double weight_decay,
                       double clip_norm, double clip_each, const uint64_t reserved[3]) {
    if (!params) return KN_FAIL(KN_ERR_INVALID, "%s: params is NULL", name);
    bool fits = lr >= 0 && weight_decay >= 0 && clip_norm >= 0 && clip_each >= 0;
    if (!fits || isinf(lr) || isinf(weight_decay)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: lr %g, weight_decay %g, clip_norm %g, clip_each %g; each must be 0 or "
                       "more, the first two finite",
                       name, lr, weight_decay, clip_norm, clip_each);
    }
    for (int i = 0; i < 3; i++) {
        if (reserved[i]) return KN_FAIL(KN_ERR_INVALID, "%s: a reserved option is not zero", name);
    }
    return KN_OK;
}

static kn_status make_hyper(kn_optim *optim, double lr) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .dtype = optim->set->dtype,
             .record = KN_OFF);
    kn_tensor *hyper =
        kn_tensor_from((const double[HYPERS]){lr, 0, 1, 0}, KN_F64, KN_SHAPE(HYPERS));
    if (!hyper) return kn_check();
    optim->hyper = kn_tensor_detach_frame(hyper);
    return KN_OK;
}

static kn_status check_sparse(kn_op op, const kn_params *set) {
    for (int i = 0; op == KN_OP_lamb_step && i < set->n; i++) {
        const kn__param *p = set->param[i];
        if (p->is_sparse)
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "LAMB moves whole parameters; the gradient of %s is row-sparse",
                           p->name);
    }
    return KN_OK;
}

static kn_status create_one(kn_optim **out, kn_params *params, double lr, const kn_optim *like) {
    KN_TRY(check_sparse(like->op, params));
    kn_optim *optim = malloc(sizeof *optim);
    if (!optim) return KN_FAIL(KN_ERR_OOM, "no host memory for an optimiser");
    *optim = *like;
    optim->set = kn__params_retain(params);
    optim->m = optim->v = optim->hyper = KN_NONE;
    optim->n_turns = 1;
    kn_status status = make_hyper(optim, lr);
    if (status < 0) {
        kn_optim_destroy(optim);
        return status;
    }
    *out = optim;
    return KN_OK;
}

/* One of each device. */
static kn_status create(kn_optim **out, kn_params *params, double lr, const kn_optim *like) {
    kn_optim *first = NULL, **last = &first;
    KN_TRY(kn_check());
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_%s_create: out is NULL", kn_optim_name(like));
    if (like->clip_norm > 0) KN_TRY(kn__params_together("clip_norm", params));
    for (kn_params *part = params; part; part = part->next) {
        kn_status status = create_one(last, part, lr, like);
        if (status < 0) {
            kn_optim_destroy(first);
            return status;
        }
        last = &(*last)->next;
    }
    *out = first;
    return KN_OK;
}

static kn_status sgd_check(const char *name, const kn_params *params, double lr,
                           const kn_sgd_options *o, double momentum) {
    const uint64_t reserved[3] = {o->reserved[0]};
    KN_TRY(check(name, params, lr, o->weight_decay, o->clip_norm, o->clip_each, reserved));
    if (momentum >= 0 && momentum < 1) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: momentum %g is not in [0, 1)", name, momentum);
}

kn_status kn_sgd_create(kn_optim **out, kn_params *params, double lr,
                        const kn_sgd_options *options) {
    const char *name = "kn_sgd_create";
    kn_sgd_options o = options ? *options : (kn_sgd_options){0};
    if (!out) return KN_FAIL(KN_ERR_INVALID, "%s: out is NULL", name);
    KN_TRY(sgd_check(name, params, lr, &o, o.momentum));
    if (o.nesterov > 1)
        return KN_FAIL(KN_ERR_INVALID, "%s: nesterov is %" PRIu64 "; 0 or 1 are possible", name,
                       o.nesterov);
    if (o.nesterov && o.momentum == 0)
        return KN_FAIL(KN_ERR_INVALID, "%s: nesterov is of momentum, which is 0", name);
    kn_optim like = {.op = o.momentum == 0 ? KN_OP_sgd_step
                           : o.nesterov    ? KN_OP_nesterov_step
                                           : KN_OP_momentum_step,
                     .attr = {.momentum = o.momentum, .weight_decay = o.weight_decay},
                     .clip_norm = o.clip_norm,
                     .clip_each = o.clip_each,
                     .has_m = o.momentum != 0};
    like.attr.rate_outside = like.has_m;
    return create(out, params, lr, &like);
}

static kn_status with_momentum(const char *name, kn_op op, kn_optim **out, kn_params *params,
                               double lr, double momentum, const kn_sgd_options *options) {
    kn_sgd_options o = options ? *options : (kn_sgd_options){0};
    KN_TRY(sgd_check(name, params, lr, &o, momentum));
    if (o.momentum != 0 || o.nesterov)
        return KN_FAIL(KN_ERR_INVALID, "%s: options.momentum and .nesterov are kn_sgd_create's",
                       name);
    kn_optim like = {.op = op,
                     .attr = {.momentum = momentum, .weight_decay = o.weight_decay},
                     .clip_norm = o.clip_norm,
                     .clip_each = o.clip_each,
                     .has_m = true};
    return create(out, params, lr, &like);
}

kn_status kn_momentum_create(kn_optim **out, kn_params *params, double lr, double momentum,
                             const kn_sgd_options *options) {
    return with_momentum("kn_momentum_create", KN_OP_momentum_step, out, params, lr, momentum,
                         options);
}
kn_status kn_nesterov_create(kn_optim **out, kn_params *params, double lr, double momentum,
                             const kn_sgd_options *options) {
    return with_momentum("kn_nesterov_create", KN_OP_nesterov_step, out, params, lr, momentum,
                         options);
}

static kn_status adaptive(const char *name, kn_op op, kn_optim **out, kn_params *params, double lr,
                          const kn_adaptive_options *options) {
    kn_adaptive_options o = options ? *options : (kn_adaptive_options){0};
    KN_TRY(check(name, params, lr, o.weight_decay, o.clip_norm, o.clip_each, o.reserved));
    double rho = o.rho != 0 ? o.rho : 0.9, eps = o.eps != 0 ? o.eps : 1e-6;
    if (!(rho > 0 && rho < 1 && eps > 0) || isinf(eps)) {
        return KN_FAIL(KN_ERR_INVALID, "%s: rho %g must be in (0, 1), eps %g above 0 and finite",
                       name, rho, eps);
    }
    kn_optim like = {.op = op,
                     .attr = {.beta2 = rho, .eps = eps, .weight_decay = o.weight_decay},
                     .clip_norm = o.clip_norm,
                     .clip_each = o.clip_each,
                     .has_m = op == KN_OP_adadelta_step,
                     .has_v = true};
    return create(out, params, lr, &like);
}

kn_status kn_adagrad_create(kn_optim **out, kn_params *params, double lr,
                            const kn_adaptive_options *options) {
    return adaptive("kn_adagrad_create", KN_OP_adagrad_step, out, params, lr, options);
}
kn_status kn_rmsprop_create(kn_optim **out, kn_params *params, double lr,
                            const kn_adaptive_options *options) {
    return adaptive("kn_rmsprop_create", KN_OP_rmsprop_step, out, params, lr, options);
}
kn_status kn_adadelta_create(kn_optim **out, kn_params *params, double lr,
                             const kn_adaptive_options *options) {
    return adaptive("kn_adadelta_create", KN_OP_adadelta_step, out, params, lr, options);
}

static kn_status adam_like(const char *name, kn_op op, kn_optim **out, kn_params *params, double lr,
                           const kn_adam_options *options) {
    kn_adam_options o = options ? *options : (kn_adam_options){0};
    KN_TRY(check(name, params, lr, o.weight_decay, o.clip_norm, o.clip_each, o.reserved));
    double beta1 = o.beta1 != 0 ? o.beta1 : 0.9, beta2 = o.beta2 != 0 ? o.beta2 : 0.999;
    double eps = o.eps != 0 ? o.eps : 1e-8;
    if (!(beta1 > 0 && beta1 < 1 && beta2 > 0 && beta2 < 1 && eps > 0) || isinf(eps)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: beta1 %g and beta2 %g must be in (0, 1), eps %g above 0 and finite",
                       name, beta1, beta2, eps);
    }
    kn_optim like = {
        .op = op,
        .attr = {.beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = o.weight_decay},
        .clip_norm = o.clip_norm,
        .clip_each = o.clip_each,
        .has_m = true,
        .has_v = true};
    return create(out, params, lr, &like);
}

kn_status kn_adam_create(kn_optim **out, kn_params *params, double lr,
                         const kn_adam_options *options) {
    return adam_like("kn_adam_create", KN_OP_adam_step, out, params, lr, options);
}
kn_status kn_lamb_create(kn_optim **out, kn_params *params, double lr,
                         const kn_adam_options *options) {
    return adam_like("kn_lamb_create", KN_OP_lamb_step, out, params, lr, options);
}

static void rows_state_free(kn_optim *optim) {
    for (int i = 0; optim->row_m && i < optim->set->n - optim->n_dense; i++) {
        kn_tensor_release(optim->row_m[i]);
        kn_tensor_release(optim->row_v[i]);
    }
    free(optim->row_m);
    free(optim->row_v);
}

void kn_optim_destroy(kn_optim *optim) {
    if (!optim) return;
    kn_optim_destroy(optim->next);
    kn__shard_release(optim);
    kn__turns_free(optim->turn, optim->n_turns);
    free(optim->turn_end);
    kn_tensor_release(optim->m);
    kn_tensor_release(optim->v);
    kn_tensor_release(optim->hyper);
    rows_state_free(optim);
    kn__params_release(optim->set);
    for (int i = 0; i < optim->n_groups; i++) free(optim->groups[i].prefix);
    free(optim->groups);
    free(optim->parts);
    free(optim);
}

/* --- state --- */

kn_status kn__optim_state_make(kn_tensor **out, const kn_tensor *like) {
    kn_tensor *t = kn_filled_like(like, 0);
    if (!t) return kn_check();
    *out = kn_tensor_detach_frame(t);
    return KN_OK;
}

/* --- a step --- */

static kn_optim_part part_of(const kn_optim *optim, const kn__param *p) {
    kn_optim_part part = {p->w, p->offset, p->w->n, 1, 1};
    kn__part_scale(&part, optim, p);
    return part;
}

/* Dense parameters first, by turns: they alone are in the step of all. */
static kn_status make_parts(kn_optim *optim) {
    const kn_params *set = optim->set;
    kn_optim_part *parts = calloc(2 * (size_t)set->n + 1, sizeof *parts);
    if (!parts) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", set->n);
    int n = 0;
    for (int t = 0; t < optim->n_turns; t++) {
        for (int i = 0; i < set->n; i++)
            if (!set->param[i]->is_sparse && kn__turn_of(optim, set->param[i]) == t)
                parts[n++] = part_of(optim, set->param[i]);
        if (optim->turn) optim->turn_end[t] = n;
    }
    KN_ASSERT(n <= set->n);
    optim->n_dense = n;
    for (int i = 0; i < set->n; i++)
        if (set->param[i]->is_sparse) parts[n++] = part_of(optim, set->param[i]);
    KN_ASSERT(n == set->n && !optim->parts);
    optim->parts = parts;
    optim->moving = parts + n;
    return KN_OK;
}

/* After the parts are there: failed, they stay for the next try. */
static kn_status make_rows_state(kn_optim *optim) {
    int n = optim->set->n - optim->n_dense;
    if (!n) return KN_OK;
    if (!optim->row_m) {
        optim->row_m = calloc((size_t)n, sizeof(kn_tensor *));
        optim->row_v = calloc((size_t)n, sizeof(kn_tensor *));
        if (!optim->row_m || !optim->row_v) {
            free(optim->row_m);
            free(optim->row_v);
            optim->row_m = optim->row_v = NULL;
            return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", n);
        }
        for (int i = 0; i < n; i++) optim->row_m[i] = optim->row_v[i] = KN_NONE;
    }
    for (int i = 0; i < n; i++) {
        const kn_tensor *w = optim->parts[optim->n_dense + i].w;
        if (optim->has_m && optim->row_m[i] == KN_NONE)
            KN_TRY(kn__optim_state_make(&optim->row_m[i], w));
        if (optim->has_v && optim->row_v[i] == KN_NONE)
            KN_TRY(kn__optim_state_make(&optim->row_v[i], w));
    }
    return KN_OK;
}

/* State and parts go by the arena's offsets, which are final from here on. */
kn_status kn__optim_prepare(kn_optim *optim) {
    KN_SCOPE("optimizer state");
    kn_params *set = optim->set;
    KN_TRY(check_sparse(optim->op, set));
    KN_TRY(kn__params_fix(set));
    if (optim->has_m && optim->m == KN_NONE) KN_TRY(kn__optim_state_make(&optim->m, set->flat));
    if (optim->has_v && optim->v == KN_NONE) KN_TRY(kn__optim_state_make(&optim->v, set->flat));
    if (!optim->parts) KN_TRY(make_parts(optim));
    KN_TRY(make_rows_state(optim));
    KN_ASSERT(set->flat && optim->parts && !optim->is_ready);
    optim->is_ready = true;
    return KN_OK;
}

static kn_status run_dense(kn_optim *optim) {
    kn_tensor *grad = optim->part_grad ? optim->part_grad : optim->set->flat;
    kn_attr_optim attr = kn__parts_attr(optim, 0, optim->n_dense);
    return kn_optim_run(optim->op, &attr, grad, optim->m, optim->v, optim->hyper);
}

/* All memory is taken before the first parameter is written: a failed step may be repeated. */
static kn_status run(kn_optim *optim) {
    KN_ASSERT(optim->is_ready && optim->set->flat);
    int n = optim->part_grad ? 0 : optim->set->n - optim->n_dense;
    if (!n) return run_dense(optim);
    kn__rows_update *u = calloc((size_t)n, sizeof *u);
    if (!u) return KN_FAIL(KN_ERR_OOM, "no host memory for %d parameters", n);
    kn_status status = KN_OK;
    for (int i = 0; i < n && status == KN_OK; i++) {
        const kn_optim_part *part = &optim->parts[optim->n_dense + i];
        if (kn__edge_param(part->w->grad)->is_frozen) continue;
        u[i] = (kn__rows_update){.w = part->w, .m = optim->row_m[i], .v = optim->row_v[i]};
        status = kn__rows_step(&u[i], optim->op, &optim->attr, part, optim->hyper);
    }
    if (status == KN_OK) status = run_dense(optim);
    for (int i = 0; i < n && status == KN_OK; i++) status = kn__rows_write(&u[i]);
    free(u);
    return status;
}

static kn_status step(kn_optim *optim) {
    if (!optim->is_ready) KN_TRY(kn__optim_prepare(optim));
    KN_TRY(kn__params_settle(optim->set));
    if (optim->clip_each > 0) KN_TRY(kn__clip_each(optim));
    if (optim->clip_norm > 0) KN_TRY(kn__clip(optim));
    KN_TRY(kn__shard_grad_copy(optim));
    KN_TRY(run(optim));
    optim->clipped = 0;
    return KN_OK;
}

static kn_status prepare(kn_optim *optim) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    return optim->is_ready || !optim->set->n ? KN_OK : kn__optim_prepare(optim);
}

static kn_status step_part(kn_optim *optim) {
    if (!optim->set->n) return KN_OK;
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    KN_TRY(kn_check());
    kn__shard_whole_release(optim);
    KN_TRY(step(optim));
    optim->set->stepped = true;
    kn__params_effect(optim->set);
    return optim->on_step ? optim->on_step(optim->on_step_ctx) : KN_OK;
}

kn_status kn_optim_step(kn_optim *optim) {
    KN_TRY(kn_check());
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_step: optim is NULL");
    if (optim->turn)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_optim_step: the optimiser has %d turns; use kn_optim_turn_step",
                       optim->n_turns);
    KN_TRY(kn__params_own("kn_optim_step", optim->set));
    KN_SCOPE("optim_step");
    for (kn_optim *o = optim->next; o; o = o->next) KN_TRY(prepare(o)); /* before any has moved */
    for (; optim; optim = optim->next) KN_TRY(step_part(optim));
    return KN_OK;
}

/* --- for checkpoints --- */

kn_params *kn_optim_params(const kn_optim *optim) { return optim->set; }

const char *kn_optim_name(const kn_optim *optim) {
    if (optim->attr.rate_outside)
        return optim->op == KN_OP_nesterov_step ? "sgd_nesterov" : "sgd_momentum";
    switch (optim->op) {
        case KN_OP_sgd_step:
            return "sgd";
        case KN_OP_momentum_step:
            return "momentum";
        case KN_OP_nesterov_step:
            return "nesterov";
        case KN_OP_adagrad_step:
            return "adagrad";
        case KN_OP_rmsprop_step:
            return "rmsprop";
        case KN_OP_adadelta_step:
            return "adadelta";
        case KN_OP_lamb_step:
            return "lamb";
        default:
            return "adam";
    }
}

kn_optim_settings kn_optim_settings_get(const kn_optim *optim) {
    const kn_attr_optim *attr = &optim->attr;
    return (kn_optim_settings){attr->momentum,     attr->beta1,      attr->beta2,     attr->eps,
                               attr->weight_decay, optim->clip_norm, optim->clip_each};
}

kn_status kn_optim_prepare(kn_optim *optim) {
    KN_TRY(kn_check());
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_prepare: optim is NULL");
    for (; optim; optim = optim->next) KN_TRY(prepare(optim));
    return KN_OK;
}

static kn_tensor *rows_state_of(const kn_optim *optim, const kn__param *p, bool is_m) {
    int i = 0;
    while (optim->parts[optim->n_dense + i].w != p->w) i++;
    KN_ASSERT(p->is_sparse && optim->n_dense + i < optim->set->n);
    return is_m ? optim->row_m[i] : optim->row_v[i];
}

/* A device without parameters makes no steps. */
static kn_optim *stepping(kn_optim *optim) {
    while (!optim->set->n && optim->next) optim = optim->next;
    return optim;
}

/* Rate and steps are the same on every device. */
enum { COMMON = 1 };

/* planned: those that the first step makes count too. */
static int n_arrays(const kn_optim *optim, bool planned) {
    return optim->is_ready || planned ? (optim->has_m + optim->has_v) * optim->set->n : 0;
}

static kn_tensor *array_view(const kn_optim *optim, const kn__param *p, int which, bool is_m) {
    if (optim->part_grad && !optim->whole[which])
        return KN_FAIL_NULL(KN_ERR_INVALID,
                            "kn_optim_state_at: the state is cut into parts; call "
                            "kn_parallel_state_join before a checkpoint");
    if (p->is_sparse)
        return kn_tensor_view(rows_state_of(optim, p, is_m), kn_tensor_shape(p->w), 0);
    kn_tensor *all = optim->whole[which] ? optim->whole[which] : is_m ? optim->m : optim->v;
    return kn_tensor_view(all, kn_tensor_shape(p->w), p->offset);
}

static kn_tensor *state_at(kn_optim *optim, int i, char *name, size_t name_bytes, bool planned) {
    optim = stepping(optim);
    while (optim->next && i >= COMMON + n_arrays(optim, planned)) {
        i -= n_arrays(optim, planned);
        optim = optim->next;
    }
    kn_params *set = optim->set;
    if (kn_pending() || i < 0) return NULL;
    if (i == 0) {
        snprintf(name, name_bytes, "hyper");
        return kn_tensor_view(optim->hyper, KN_SHAPE(HYPERS * (int64_t)optim->n_turns), 0);
    }
    if (!set->n) return kn__update_state_at(optim, i, name, name_bytes);
    if (i - 1 >= n_arrays(optim, planned)) return NULL;
    int which = (i - 1) / set->n;
    const kn__param *p = set->param[(i - 1) % set->n];
    bool is_m = optim->has_m && which == 0;
    snprintf(name, name_bytes, "%c/%s", is_m ? 'm' : 'v', p->name);
    return planned ? p->w : array_view(optim, p, which, is_m);
}

kn_tensor *kn_optim_state_at(kn_optim *optim, int i, char *name, size_t name_bytes) {
    return state_at(optim, i, name, name_bytes, false);
}
kn_tensor *kn_optim_state_like(kn_optim *optim, int i, char *name, size_t name_bytes) {
    return state_at(optim, i, name, name_bytes, true);
}

static void common_copy(const kn_optim *from, kn_optim *to) {
    double hyper[HYPERS];
    kn_status status = kn_copy_out(hyper, sizeof hyper, from->hyper);
    if (status == KN_OK) status = kn_copy_into(to->hyper, hyper, sizeof hyper);
    if (status < 0) kn_error_defer(status);
}

/* Of each turn. */
static kn_status hyper_set(kn_optim *optim, int which, double value) {
    KN_FRAME(.device = optim->set->device, .pool = optim->set->pool, .record = KN_OFF);
    for (int i = 0; i < optim->n_turns; i++) {
        kn_tensor *place = kn_tensor_view(optim->hyper, KN_SCALAR, (int64_t)i * HYPERS + which);
        KN_TRY(place ? kn_fill_into(place, value) : kn_check());
    }
    return KN_OK;
}

/* Who wrote the state may have clipped: a step that does sets the scale, others leave it at 1. */
void kn_optim_state_written(kn_optim *optim) {
    const kn_optim *from = stepping(optim);
    for (kn_optim *o = optim; o; o = o->next) {
        if (o != from) common_copy(from, o);
        kn_status status = hyper_set(o, SCALE, 1);
        if (status < 0) kn_error_defer(status);
        o->set->stepped = true;
    }
}

kn_status kn_optim_lr(kn_optim *optim, double lr) {
    KN_TRY(kn_check());
    if (!optim) return KN_FAIL(KN_ERR_INVALID, "kn_optim_lr: optim is NULL");
    if (!(lr >= 0) || isinf(lr))
        return KN_FAIL(KN_ERR_INVALID, "kn_optim_lr: lr %g: must be 0 or more, and finite", lr);
    if (kn_capture_records())
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_optim_lr: inside a captured step, whose replays would all set the rate "
                       "%g: set it before the step",
                       lr);
    for (; optim; optim = optim->next) KN_TRY(hyper_set(optim, LR, lr));
    return KN_OK;
}
