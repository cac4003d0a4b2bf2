#include <knet/optim.h>
#include <stdlib.h>

#include "params.h"

enum { HYPERS = 4, ALIGN = 64 /* elements */ };

struct kn_ema {
    kn_params *set;       /* shared */
    kn_tensor *mean;      /* one arena; owned */
    kn_tensor *hyper;     /* what the kernel of all optimisers reads */
    kn_optim_part *parts; /* weights, and their places in the arena */
    int n;                /* parameters at creation */
    double decay;
    bool swapped;  /* it holds the values that the weights had, the parameters the averages */
    kn_ema *under; /* swapped: the averages that came there before */
};

static int64_t lay_out(kn_ema *ema) {
    int64_t at = 0;
    for (int i = 0; i < ema->n; i++) {
        kn_tensor *w = ema->set->param[i]->w;
        ema->parts[i] = (kn_optim_part){w, at, w->n, 1, 1};
        at += (w->n + ALIGN - 1) / ALIGN * ALIGN;
    }
    return at;
}

static kn_status run(kn_ema *ema, double decay) {
    kn_attr_optim attr = {.part = ema->parts, .n_parts = ema->n, .momentum = decay};
    return kn_optim_run(KN_OP_ema_step, &attr, ema->mean, ema->mean, KN_NONE, ema->hyper);
}

static kn_status prepare(kn_ema *ema) {
    kn_params *set = ema->set;
    KN_FRAME(.device = set->device, .pool = set->pool, .dtype = set->dtype, .record = KN_OFF);
    KN_TRY(kn_check());
    kn_tensor *mean = kn_zeros(KN_SHAPE(lay_out(ema)));
    kn_tensor *hyper = kn_tensor_from((const double[HYPERS]){0, 0, 1, 0}, KN_F64, KN_SHAPE(HYPERS));
    if (!mean || !hyper) return kn_check();
    ema->mean = kn_tensor_detach_frame(mean);
    ema->hyper = kn_tensor_detach_frame(hyper);
    return run(ema, 0);
}

kn_status kn_ema_create(kn_ema **out, kn_params *params, double decay) {
    KN_TRY(kn_check());
    if (!out || !params)
        return KN_FAIL(KN_ERR_INVALID, "kn_ema_create: %s is NULL", out ? "params" : "out");
    KN_TRY(kn__params_together("kn_ema_create", params));
    if (!(decay > 0 && decay < 1)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_ema_create: decay %g is not in (0, 1)", decay);
    }
    kn_ema *ema = calloc(1, sizeof *ema);
    kn_optim_part *parts = calloc((size_t)params->n + 1, sizeof *parts);
    if (!ema || !parts) {
        free(ema);
        free(parts);
        return KN_FAIL(KN_ERR_OOM, "no host memory for averages of %d parameters", params->n);
    }
    *ema = (kn_ema){.set = kn__params_retain(params),
                    .mean = KN_NONE,
                    .hyper = KN_NONE,
                    .parts = parts,
                    .n = params->n,
                    .decay = decay};
    kn_status status = prepare(ema);
    if (status < 0) {
        kn_ema_destroy(ema);
        return status;
    }
    *out = ema;
    return KN_OK;
}

/* The parameters must be those of the creation. */
static kn_status check(const char *name, const kn_ema *ema) {
    KN_TRY(kn_check());
    if (!ema) return KN_FAIL(KN_ERR_INVALID, "%s: ema is NULL", name);
    if (ema->set->n != ema->n) {
        return KN_FAIL(KN_ERR_INVALID, "%s: the set has %d parameters, it had %d at kn_ema_create",
                       name, ema->set->n, ema->n);
    }
    return KN_OK;
}

kn_status kn_ema_update(kn_ema *ema) {
    KN_TRY(check("kn_ema_update", ema));
    KN_TRY(kn__params_own("kn_ema_update", ema->set));
    KN_SCOPE("ema_update");
    KN_FRAME(.device = ema->set->device, .pool = ema->set->pool, .record = KN_OFF);
    KN_TRY(kn_check());
    return run(ema, ema->decay);
}

/* Adds -0.0: +0.0 would make +0.0 of -0.0. */
static kn_status copy_into(kn_tensor *to, kn_tensor *from) {
    kn_attr_scalars same = {.a = 1, .b = -0.0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_affine, &same, &from, 1);
    call.out[0] = to;
    call.given = 1;
    return kn_op_run(&call) ? KN_OK : kn_check();
}

static kn_status swap_one(kn_ema *ema, const kn_optim_part *part, kn_tensor *scratch) {
    KN_FRAME(.record = KN_OFF);
    kn_shape shape = kn_tensor_shape(part->w);
    kn_tensor *mean = kn_tensor_view(ema->mean, shape, part->offset);
    kn_tensor *old = kn_tensor_view(scratch, shape, 0);
    if (!mean || !old) return kn_check();
    KN_TRY(copy_into(old, mean));
    KN_TRY(copy_into(mean, part->w));
    return copy_into(part->w, old);
}

/* Each holds the values that the weights had before it. */
static kn_status is_last(const kn_ema *ema) {
    if (!ema->swapped || ema->set->swapped == ema) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_ema_swap: averages of decay %g were exchanged with the weights after these "
                   "of %g: exchange them again before",
                   ema->set->swapped->decay, ema->decay);
}

/* Takes it out of the averages that are in place of the weights. */
static void take_out(kn_ema *ema) {
    kn_ema **at = &ema->set->swapped;
    while (*at != ema) at = &(*at)->under;
    *at = ema->under;
    ema->under = NULL;
    ema->swapped = false;
}

/* All memory is taken before the first exchange: no failure leaves half of them exchanged. */
kn_status kn_ema_swap(kn_ema *ema) {
    KN_TRY(check("kn_ema_swap", ema));
    if (kn_capture_records())
        return KN_FAIL(
            KN_ERR_INVALID,
            "kn_ema_swap: inside a captured step, whose replays would exchange the values "
            "alone: call it before or after the step");
    KN_TRY(is_last(ema));
    KN_SCOPE("ema_swap");
    KN_FRAME(.device = ema->set->device, .pool = ema->set->pool, .dtype = ema->set->dtype,
             .record = KN_OFF);
    KN_TRY(kn_check());
    int64_t n_max = 0;
    for (int i = 0; i < ema->n; i++)
        if (ema->parts[i].n > n_max) n_max = ema->parts[i].n;
    kn_tensor *scratch = kn_tensor_new(ema->set->device, ema->set->dtype, KN_SHAPE(n_max));
    if (!scratch) return kn_check();
    for (int i = 0; i < ema->n; i++) KN_TRY(swap_one(ema, &ema->parts[i], scratch));
    if (ema->swapped) {
        take_out(ema);
        return KN_OK;
    }
    ema->swapped = true;
    ema->under = ema->set->swapped;
    ema->set->swapped = ema;
    return KN_OK;
}

bool kn_ema_is_swapped(const kn_ema *ema) { return ema && ema->swapped; }

int kn_params_swapped(const kn_params *params) {
    int n = 0;
    for (const kn_ema *ema = params->swapped; ema; ema = ema->under) n++;
    return n;
}

kn_params *kn_ema_params(const kn_ema *ema) { return ema->set; }

double kn_ema_decay(const kn_ema *ema) { return ema->decay; }

kn_tensor *kn_ema_at(kn_ema *ema, int i) {
    if (!ema || i < 0 || i >= ema->n) return NULL;
    return kn_tensor_view(ema->mean, kn_tensor_shape(ema->parts[i].w), ema->parts[i].offset);
}

void kn_ema_destroy(kn_ema *ema) {
    if (!ema) return;
    if (ema->swapped) take_out(ema); /* the averages become the weights */
    kn_tensor_release(ema->mean);
    kn_tensor_release(ema->hyper);
    kn__params_release(ema->set);
    free(ema->parts);
    free(ema);
}
