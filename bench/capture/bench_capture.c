/* Captured steps: what an op of a replay costs; a step of the MLP beside the uncaptured one. */
#include <knet/capture.h>
#include <knet/models.h>
#include <knet/optim.h>
#include <knet/tape.h>
#include <stdio.h>

#include "bench.h"

static int failed(const char *what) {
    fprintf(stderr, "bench_capture: %s: %s\n", what, kn_last_error()->message);
    return 1;
}

/* --- ops of 16 elements --- */

enum { ROUNDS = 50, OPS = 4 * ROUNDS, ELEMENTS = 16, OP_NS_MOST = 25 };

static kn_status small_ops(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_tensor *y = in[0];
    for (int i = 0; i < ROUNDS; i++)
        y = kn_relu(kn_affine(kn_mul(kn_add(y, in[1]), in[1]), 0.5, 0.1));
    out[0] = y;
    return kn_check();
}

typedef struct replays {
    kn_capture *capture;
    kn_tensor *in[2];
    kn_status status;
} replays;

static void replay(void *ctx, long n) {
    replays *r = ctx;
    for (long i = 0; i < n && r->status == KN_OK; i++)
        r->status = kn_capture_launch(r->capture, r->in, 2);
}

static int bench_ops(void) {
    KN_FRAME();
    replays r = {.status = KN_OK};
    kn_tensor *y = NULL;
    r.in[0] = kn_ones(KN_SHAPE(ELEMENTS));
    r.in[1] = kn_ones(KN_SHAPE(ELEMENTS));
    if (kn_capture_create(&r.capture, NULL) < 0) return failed("op_ns");
    for (int i = 0; i < 2; i++) {
        if (kn_capture_run(&y, 1, r.capture, r.in, 2, small_ops, NULL) < 0) return failed("op_ns");
    }
    bench_emit("capture", "op_ns", bench_ns(replay, &r) / OPS, "ns", OP_NS_MOST);
    kn_capture_destroy(r.capture);
    return r.status < 0 ? failed("op_ns") : 0;
}

/* --- a step of training --- */

enum { BATCH = 128 };

typedef struct training {
    kn_params *params;
    kn_model *model;
    kn_optim *adam;
    kn_capture *capture;
    kn_tensor *in[2]; /* slots */
    kn_status status;
} training;

static kn_status training_open(training *t, const char *model) {
    int64_t labels[BATCH];
    kn_rng *rng = NULL;
    *t = (training){.status = KN_OK};
    for (int i = 0; i < BATCH; i++) labels[i] = i % 10;
    KN_FRAME();
    KN_TRY(kn_rng_create(&rng, 1));
    kn_status status = kn_hold(&t->in[0], kn_uniform(KN_SHAPE(BATCH, 1, 28, 28), 0, 1, rng));
    kn_rng_destroy(rng);
    KN_TRY(status);
    KN_TRY(kn_hold(&t->in[1], kn_tensor_from(labels, KN_I64, KN_SHAPE(BATCH))));
    KN_TRY(kn_params_create(&t->params, NULL));
    KN_TRY(kn_model_create(&t->model, model, t->params));
    KN_TRY(kn_adam_create(&t->adam, t->params, 1e-3, NULL));
    return kn_capture_create(&t->capture, NULL);
}

static void training_close(training *t) {
    kn_capture_destroy(t->capture);
    kn_optim_destroy(t->adam);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
    kn_unhold(&t->in[0]);
    kn_unhold(&t->in[1]);
}

static kn_status train_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    training *t = ctx;
    KN_TAPE();
    kn_tensor *loss = kn_cross_entropy(kn_model_logits(t->model, in[0]), in[1]);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(t->adam));
    out[0] = kn_keep(loss);
    return kn_check();
}

static void steps_plain(void *ctx, long n) {
    training *t = ctx;
    for (long i = 0; i < n && t->status == KN_OK; i++) {
        KN_FRAME();
        kn_tensor *loss = NULL;
        t->status = train_step(&loss, t->in, t);
    }
}

static void steps_captured(void *ctx, long n) {
    training *t = ctx;
    for (long i = 0; i < n && t->status == KN_OK; i++) {
        KN_FRAME();
        kn_tensor *loss = NULL;
        t->status = kn_capture_run(&loss, 1, t->capture, t->in, 2, train_step, t);
    }
}

static int bench_steps(const char *model, const char *metric) {
    training plain, captured;
    if (training_open(&plain, model) < 0 || training_open(&captured, model) < 0)
        return failed(metric);
    bench_result r = bench_pair(steps_captured, &captured, steps_plain, &plain);
    bool ok = plain.status == KN_OK && captured.status == KN_OK;
    if (ok) bench_emit_ratio("capture", metric, 1e-3 * r.a_ns, "us", 1e-3 * r.b_ns, r.ratio);
    training_close(&plain);
    training_close(&captured);
    return ok ? 0 : failed(metric);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    return bench_ops() || bench_steps("mlp", "mlp_step") || bench_steps("lenet", "lenet_step");
}
