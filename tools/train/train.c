#include <inttypes.h>
#include <knet/op.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "now.h"

typedef struct run {
    const kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
    kn_train_options options;
    kn_tensor *loss_sum; /* slot: of the epoch, on the device */
    kn_train_result result;
} run;

static double now_seconds(void) { return 1e-9 * (double)kn__now_ns(CLOCK_MONOTONIC); }

/* A zero on the batch's device, for sums that are read once. */
static kn_status sum_begin(kn_tensor **slot, const kn_batch *b) {
    KN_FRAME(.device = kn_tensor_device(b->x), .dtype = KN_F32, .record = KN_OFF);
    return kn_hold(slot, kn_zeros(KN_SCALAR));
}

/* --- testing --- */

static kn_status batch_evaluate(kn_tensor *sum, const kn_model *model, const kn_batch *b) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *accuracy = kn_accuracy(kn_model_logits(model, b->x), b->y);
    return kn_add_into(sum, kn_affine(accuracy, (double)b->n, 0));
}

/* Whether training, when the test is part of it, was stopped during this batch. */
static bool test_stopped(run *r) {
    if (r && r->options.on_test_fn && !r->options.on_test_fn(r->options.ctx))
        r->result.stopped = true;
    return r && r->result.stopped;
}

/* r: NULL outside of training. *accuracy is written when all batches were seen. */
static kn_status evaluate(double *accuracy, const kn_model *model, kn_loader *loader, run *r) {
    KN_SCOPE("evaluate");
    KN_SLOT(right);
    int64_t n = 0;
    kn_loader_rewind(loader);
    for (kn_batch b; kn_loader_next(loader, &b); n += b.n) {
        if (n == 0) KN_TRY(sum_begin(&right, &b));
        KN_TRY(batch_evaluate(right, model, &b));
        if (test_stopped(r)) return kn_check();
    }
    KN_TRY(kn_check());
    double sum = 0;
    KN_TRY(kn_item(&sum, right));
    *accuracy = nearbyint(sum) / (double)n; /* a whole number, but for the rounding of the shares */
    return KN_OK;
}

kn_status kn_evaluate(double *accuracy, const kn_model *model, kn_loader *loader) {
    return evaluate(accuracy, model, loader, NULL);
}

/* --- training --- */

/* A label beyond the scores would only show as a loss of NaN. */
static kn_status classes_check(const run *r, const kn_loader *loader, const kn_tensor *logits) {
    kn_shape shape = kn_tensor_shape(logits);
    int64_t n = loader ? kn_loader_classes(loader) : 0;
    if (!logits || shape.n_dims != 2 || n <= shape.dim[1]) return KN_OK;
    return KN_FAIL(
        KN_ERR_INVALID, "%s labels go up to %" PRId64 ", but the model %s has %" PRId64 " classes",
        loader == r->test ? "test" : "training", n - 1, kn_model_name(r->model), shape.dim[1]);
}

static kn_status step_forward(run *r, const kn_batch *b, kn_tensor **loss) {
    KN_SCOPE("forward");
    kn_tensor *logits = kn_model_logits(r->model, b->x);
    if (r->result.n_steps == 0) {
        KN_TRY(classes_check(r, r->train, logits));
        KN_TRY(classes_check(r, r->test, logits));
    }
    *loss = kn_cross_entropy(logits, b->y);
    return KN_OK;
}

static kn_status step_update(run *r, const kn_batch *b, kn_tensor *loss) {
    KN_SCOPE("update");
    KN_TRY(kn_optim_step(r->optim));
    if (r->result.last.n_steps == 0) KN_TRY(sum_begin(&r->loss_sum, b));
    return kn_add_into(r->loss_sum, loss);
}

static kn_status step_run(run *r, const kn_batch *b) {
    KN_TAPE();
    kn_tensor *loss = NULL;
    KN_TRY(step_forward(r, b, &loss));
    KN_TRY(kn_backward(loss)); /* opens the scope "backward" itself */
    KN_TRY(step_update(r, b, loss));
    kn_step();
    r->result.n_steps++;
    kn_epoch *epoch = &r->result.last;
    epoch->n_steps++;
    kn_train_step step = {epoch->index, epoch->n_steps, kn_loader_batches(r->train), loss};
    if (r->options.on_step_fn && !r->options.on_step_fn(r->options.ctx, &step))
        r->result.stopped = true;
    return kn_check();
}

static kn_status epoch_train(run *r) {
    kn_epoch *epoch = &r->result.last;
    for (kn_batch b; !r->result.stopped && kn_loader_next(r->train, &b);) KN_TRY(step_run(r, &b));
    KN_TRY(kn_check());
    double sum = 0;
    if (epoch->n_steps) KN_TRY(kn_item(&sum, r->loss_sum));
    epoch->loss = sum / (double)epoch->n_steps;
    return KN_OK;
}

static kn_status epoch_run(run *r, int64_t index) {
    kn_epoch *epoch = &r->result.last;
    *epoch = (kn_epoch){.index = index, .loss = NAN, .accuracy = NAN};
    double begin = now_seconds();
    kn_status status = epoch_train(r);
    double trained = now_seconds();
    epoch->train_seconds = trained - begin;
    if (status < 0 || r->result.stopped) return status;
    if (r->test) KN_TRY(evaluate(&epoch->accuracy, r->model, r->test, r));
    epoch->test_seconds = now_seconds() - trained;
    if (r->options.on_epoch_fn && !r->result.stopped) r->options.on_epoch_fn(r->options.ctx, epoch);
    return KN_OK;
}

kn_status kn_train(kn_train_result *out, size_t out_bytes, const kn_model *model, kn_optim *optim,
                   kn_loader *train, kn_loader *test, const kn_train_options *options) {
    run r = {.model = model, .optim = optim, .train = train, .test = test};
    kn_status status = KN_OK;
    memset(out, 0, out_bytes);
    if (options) r.options = *options;
    if (!r.options.epochs) r.options.epochs = 1;
    for (int i = 0; i < 4; i++)
        if (r.options.reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_train_options: reserved is not zero");
    kn_loader_rewind(train);
    double begin = now_seconds();
    for (int64_t i = 1; i <= r.options.epochs && status == KN_OK && !r.result.stopped; i++)
        status = epoch_run(&r, i);
    r.result.seconds = now_seconds() - begin;
    kn_unhold(&r.loss_sum);
    memcpy(out, &r.result, out_bytes < sizeof r.result ? out_bytes : sizeof r.result);
    return status;
}
