#include <inttypes.h>
#include <knet/op.h>
#include <knet/prof.h>
#include <knet/scale.h>
#include <math.h>
#include <stdlib.h>

#include "optim.h"

#define FACTOR_MIN 0x1p-24
#define FACTOR_MAX 0x1p+40

struct kn_loss_scale {
    kn_params *set;    /* shared */
    kn_tensor *factor; /* the state's, F64: replays of a captured step read it; owned */
    kn_loss_scale_options options;
    kn_loss_scale_state state;
    uint64_t divided; /* the cycle whose gradients are divided already, by a step that was made */
};

static kn_status options_check(kn_loss_scale_options *o) {
    for (int i = 0; i < 4; i++)
        if (o->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_loss_scale_create: a reserved option is not zero");
    if (o->initial == 0) o->initial = 65536;
    if (o->growth == 0) o->growth = 2;
    if (o->backoff == 0) o->backoff = 0.5;
    if (o->every == 0) o->every = 2000;
    bool fits = o->initial >= FACTOR_MIN && o->initial <= FACTOR_MAX && o->growth >= 1 &&
                o->growth <= FACTOR_MAX && o->backoff > 0 && o->backoff < 1 && o->every > 0;
    if (fits) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_loss_scale_create: initial %g, growth %g, backoff %g, every %" PRId64
                   "; initial is in 2^-24 to 2^40, growth 1 or more, backoff in (0, 1)",
                   o->initial, o->growth, o->backoff, o->every);
}

kn_status kn_loss_scale_create(kn_loss_scale **out, kn_params *params,
                               const kn_loss_scale_options *options) {
    kn_loss_scale_options o = options ? *options : (kn_loss_scale_options){0};
    KN_TRY(kn_check());
    if (!out || !params)
        return KN_FAIL(KN_ERR_INVALID, "kn_loss_scale_create: %s is NULL", out ? "params" : "out");
    KN_TRY(options_check(&o));
    KN_TRY(kn__params_together("kn_loss_scale_create", params));
    KN_FRAME(.device = params->device, .pool = params->pool, .record = KN_OFF);
    kn_tensor *factor = kn_tensor_from(&o.initial, KN_F64, KN_SCALAR);
    if (!factor) return kn_check();
    kn_loss_scale *scale = calloc(1, sizeof *scale);
    if (!scale) return KN_FAIL(KN_ERR_OOM, "kn_loss_scale_create: no host memory");
    scale->set = kn__params_retain(params);
    scale->factor = kn_tensor_detach_frame(factor);
    params->is_scaled = true;
    scale->options = o;
    scale->state.factor = o.initial;
    scale->divided = UINT64_MAX;
    *out = scale;
    return KN_OK;
}

void kn_loss_scale_destroy(kn_loss_scale *scale) {
    if (!scale) return;
    kn_tensor_release(scale->factor);
    kn__params_release(scale->set);
    free(scale);
}

static kn_status factor_set(kn_loss_scale *scale, double factor) {
    KN_FRAME(.device = scale->set->device, .pool = scale->set->pool, .record = KN_OFF);
    if (factor != scale->state.factor) KN_TRY(kn_fill_into(scale->factor, factor));
    scale->state.factor = factor;
    return KN_OK;
}

/* In f32, or f64: f16 has no room for factors. */
kn_tensor *kn_loss_scale_apply(kn_loss_scale *scale, kn_tensor *loss) {
    if (kn_pending()) return NULL;
    if (!scale) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_loss_scale_apply: scale is NULL");
    const char *problem = kn_tensor_problem(loss);
    if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_loss_scale_apply: the loss %s", problem);
    kn_dtype dtype = kn_tensor_dtype(loss), wide = dtype == KN_F64 ? KN_F64 : KN_F32;
    kn_tensor *factor = wide == KN_F64 ? scale->factor : kn_cast(scale->factor, wide);
    if (dtype == wide) return kn_mul(loss, factor);
    return kn_cast(kn_mul(kn_cast(loss, wide), factor), dtype);
}

/* --- steps --- */

static kn_tensor *is_finite(kn_tensor *g) { return kn_all(kn_isfinite(g), KN_ALL, false); }

static kn_status all_finite(double *out, const kn_params *set, kn_tensor *g) {
    kn_tensor *all = is_finite(g);
    for (int i = 0; i < set->n; i++)
        if (set->param[i]->is_sparse)
            all = kn_logical_and(all, is_finite(kn__param_grad(set->param[i])));
    return kn_item(out, all);
}

/* g *= factor */
static kn_status multiply(kn_tensor *g, double factor) {
    kn_attr_scalars attr = {.a = factor};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_affine, &attr, &g, 1);
    call.out[0] = g;
    call.given = 1;
    return kn_op_run(&call) ? KN_OK : kn_check();
}

static kn_status multiply_all(const kn_params *set, kn_tensor *g, double factor) {
    KN_TRY(multiply(g, factor));
    for (int i = 0; i < set->n; i++)
        if (set->param[i]->is_sparse) KN_TRY(multiply(kn__param_grad(set->param[i]), factor));
    return KN_OK;
}

static kn_status shrink(kn_loss_scale *scale, kn_optim *optim) {
    kn_loss_scale_state *s = &scale->state;
    kn_optim_state_written(optim); /* the gradients are used up */
    s->n_good = 0;
    s->n_skipped++;
    if (s->factor * scale->options.backoff < FACTOR_MIN)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_loss_scale_step: gradients are not finite with the scale %g", s->factor);
    return factor_set(scale, s->factor * scale->options.backoff);
}

static kn_status grow(kn_loss_scale *scale) {
    kn_loss_scale_state *s = &scale->state;
    if (++s->n_good < scale->options.every) return KN_OK;
    s->n_good = 0;
    return factor_set(scale, fmin(s->factor * scale->options.growth, FACTOR_MAX));
}

static const char *first_name(const kn_params *set) {
    return set->n ? set->param[0]->name : "none";
}

kn_status kn_loss_scale_step(kn_loss_scale *scale, kn_optim *optim, bool *stepped) {
    double finite = 0;
    if (!scale || !optim)
        return KN_FAIL(KN_ERR_INVALID, "kn_loss_scale_step: %s is NULL", scale ? "optim" : "scale");
    if (optim->set != scale->set)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_loss_scale_step: optim is of another parameter set: it begins with %s, "
                       "that of scale with %s",
                       first_name(optim->set), first_name(scale->set));
    if (kn_capture_records())
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_loss_scale_step: inside a captured step, whose replays could not skip "
                       "it where gradients are not finite: call it after the replay");
    KN_SCOPE("loss_scale");
    KN_FRAME(.device = scale->set->device, .pool = scale->set->pool, .record = KN_OFF);
    kn_tensor *g = kn_params_grad(scale->set);
    KN_TRY(kn_check());
    KN_TRY(all_finite(&finite, scale->set, g));
    if (stepped) *stepped = finite != 0;
    if (finite == 0) return shrink(scale, optim);
    bool divides = scale->divided != scale->set->cycle;
    if (divides) KN_TRY(multiply_all(scale->set, g, 1 / scale->state.factor));
    kn_status status = kn_optim_step(optim);
    if (status == KN_OK) {
        scale->divided = scale->set->cycle;
        return grow(scale);
    }
    /* the next try divides again */
    if (divides) KN_TRY(multiply_all(scale->set, g, scale->state.factor));
    return status;
}

/* --- state --- */

kn_loss_scale_state kn_loss_scale_state_get(const kn_loss_scale *scale) { return scale->state; }

kn_status kn_loss_scale_state_set(kn_loss_scale *scale, const kn_loss_scale_state *s) {
    if (!scale || !s)
        return KN_FAIL(KN_ERR_INVALID, "kn_loss_scale_state_set: %s is NULL",
                       scale ? "the state" : "scale");
    if (!(s->factor >= FACTOR_MIN && s->factor <= FACTOR_MAX) || s->n_good < 0 || s->n_skipped < 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_loss_scale_state_set: factor %g, %" PRId64 " good steps, %" PRId64
                       " left out",
                       s->factor, s->n_good, s->n_skipped);
    KN_TRY(factor_set(scale, s->factor));
    scale->state = *s;
    return KN_OK;
}
