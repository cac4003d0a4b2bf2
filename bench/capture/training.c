#include "training.h"

#include <knet/tape.h>

enum { BATCH = 128 };

kn_status training_open(training *t, const char *model) {
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
    /* So small a rate that all steps are alike: trained for long, the net has units without a
     * gradient, whose moments become denormal numbers and slow the steps down. */
    KN_TRY(kn_adam_create(&t->adam, t->params, 1e-12, NULL));
    return kn_capture_create(&t->capture, NULL);
}

void training_close(training *t) {
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

void steps_plain(void *ctx, long n) {
    training *t = ctx;
    for (long i = 0; i < n && t->status == KN_OK; i++) {
        KN_FRAME();
        kn_tensor *loss = NULL;
        t->status = train_step(&loss, t->in, t);
    }
}

void steps_captured(void *ctx, long n) {
    training *t = ctx;
    for (long i = 0; i < n && t->status == KN_OK; i++) {
        KN_FRAME();
        kn_tensor *loss = NULL;
        t->status = kn_capture_run(&loss, 1, t->capture, t->in, 2, train_step, t);
    }
}
