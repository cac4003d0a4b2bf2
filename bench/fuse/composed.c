/* Formulas of small ops in a frame with .fuse, beside the op that has its kernel written by hand.
 */
#include <knet/norm.h>
#include <knet/optim.h>
#include <knet/tape.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "fuse.h"

enum { ROWS = 1024, COLUMNS = 1024, N = ROWS * COLUMNS };

typedef struct values {
    kn_tensor *x, *weight, *bias; /* slots */
    kn_tensor *w, *m, *v, *g;     /* slots: composed adamw's */
    kn_params *params;
    kn_optim *adamw;
    bool failed;
} values;

typedef kn_tensor *(*formula)(values *s);

static kn_tensor *layernorm_kernel(values *s) {
    return kn_layernorm(s->x, s->weight, s->bias, 1, 1e-5);
}

static kn_tensor *layernorm_composed(values *s) {
    kn_tensor *centered = kn_sub(s->x, kn_mean(s->x, KN_SHAPE(1), true));
    kn_tensor *var = kn_mean(kn_square(centered), KN_SHAPE(1), true);
    kn_tensor *normal = kn_mul(centered, kn_rsqrt(kn_affine(var, 1, 1e-5)));
    return kn_add(kn_mul(normal, s->weight), s->bias);
}

static kn_tensor *gelu_kernel(values *s) { return kn_gelu(s->x); }

static kn_tensor *gelu_composed(values *s) {
    kn_tensor *half = kn_affine(kn_erf(kn_affine(s->x, 0.70710678118654752, 0)), 0.5, 0.5);
    return kn_mul(s->x, half);
}

static kn_tensor *adamw_kernel(values *s) { return kn_optim_step(s->adamw) == KN_OK ? s->x : NULL; }

/* The decay and the corrections of the first steps are of a late step: numbers alone. */
static kn_tensor *adamw_composed(values *s) {
    kn_tensor *m = kn_axpby(s->m, s->g, 0.9, 0.1);
    kn_tensor *v = kn_axpby(s->v, kn_square(s->g), 0.999, 0.001);
    kn_tensor *step = kn_div(m, kn_affine(kn_sqrt(v), 1, 1e-8));
    kn_tensor *w = kn_axpby(s->w, step, 1 - 1e-5, -1e-3), *made[] = {m, v, w};
    kn_unhold(&s->m), kn_unhold(&s->v), kn_unhold(&s->w); /* the results take their memory */
    if (kn_compute(made, 3) < 0) return NULL;
    bool ok =
        kn_hold(&s->m, m) == KN_OK && kn_hold(&s->v, v) == KN_OK && kn_hold(&s->w, w) == KN_OK;
    return ok ? w : NULL;
}

typedef struct side {
    values *s;
    formula of;
    int fuse;
} side;

static void run(void *ctx, long n) {
    const side *a = ctx;
    for (long i = 0; i < n; i++) {
        KN_FRAME(.fuse = a->fuse);
        kn_tensor *y = a->of(a->s);
        if (!y || !kn_data(y)) a->s->failed = true;
    }
}

static kn_status values_make(values *s) {
    kn_rng *rng = NULL;
    KN_TRY(kn_rng_create(&rng, 1));
    KN_FRAME();
    kn_shape shape = KN_SHAPE(ROWS, COLUMNS), row = KN_SHAPE(COLUMNS);
    kn_status status = kn_hold(&s->x, kn_normal(shape, 0, 1, rng));
    kn_rng_destroy(rng);
    KN_TRY(status);
    KN_TRY(kn_hold(&s->weight, kn_affine(kn_ones(row), 0.5, 0)));
    KN_TRY(kn_hold(&s->bias, kn_zeros(row)));
    KN_TRY(kn_hold(&s->w, kn_affine(s->x, 1, 0)));
    KN_TRY(kn_hold(&s->g, kn_affine(s->x, 0.1, 0)));
    KN_TRY(kn_hold(&s->m, kn_zeros(shape)));
    KN_TRY(kn_hold(&s->v, kn_zeros(shape)));
    KN_TRY(kn_params_create(&s->params, NULL));
    kn_tensor *w = kn_param(s->params, shape, (kn_init){KN_INIT_CONSTANT, 1, 0}, "w");
    KN_TRY(kn_adam_create(&s->adamw, s->params, 1e-3, &(kn_adam_options){.weight_decay = 0.01}));
    KN_TAPE();
    return kn_backward(kn_sum(kn_mul(w, s->g), KN_ALL, false));
}

static void values_end(values *s) {
    kn_tensor **slot[] = {&s->x, &s->weight, &s->bias, &s->w, &s->m, &s->v, &s->g};
    for (size_t i = 0; i < sizeof slot / sizeof *slot; i++) kn_unhold(slot[i]);
    kn_optim_destroy(s->adamw);
    kn_params_destroy(s->params);
}

bool composed_run(bool (*is_wanted)(const char *metric)) {
    static const struct {
        const char *metric;
        formula composed, kernel;
    } cases[] = {{"layernorm", layernorm_composed, layernorm_kernel},
                 {"gelu", gelu_composed, gelu_kernel},
                 {"adamw", adamw_composed, adamw_kernel}};
    values s = {.failed = false};
    s.failed = values_make(&s) < 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !s.failed; i++) {
        if (!is_wanted(cases[i].metric)) continue;
        side composed = {&s, cases[i].composed, 1}, kernel = {&s, cases[i].kernel, KN_OFF};
        bench_result r = bench_pair(run, &composed, run, &kernel);
        bench_emit_ratio("fuse", cases[i].metric, r.a_ns * 1e-6, "ms", r.b_ns * 1e-6, r.ratio);
    }
    if (s.failed) fprintf(stderr, "bench_fuse: %s\n", kn_last_error()->message);
    values_end(&s);
    return !s.failed;
}
