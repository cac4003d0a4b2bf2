#include <inttypes.h>
#include <knet/op.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "layers/layer.h"
#include "loader.h"
#include "losses.h"
#include "models/model.h"
#include "now.h"
#include "ranks.h"
#include "train_run.h"

typedef kn__train_run run;

static double now_seconds(void) { return 1e-9 * (double)kn__now_ns(CLOCK_MONOTONIC); }

/* A label beyond the scores would only show as a loss of NaN. */
static kn_status classes_check(const kn_model *model, const kn_loader *loader, const char *split,
                               const kn_tensor *scores) {
    kn_shape shape = kn_tensor_shape(scores);
    int64_t n = loader ? kn_loader_classes(loader) : 0;
    if (!scores || shape.n_dims != 2 || n <= shape.dim[1]) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s labels go up to %" PRId64 ", but the model %s has %" PRId64 " classes",
                   split, n - 1, kn_model_name(model), shape.dim[1]);
}

/* --- testing --- */

typedef struct sums {
    kn_tensor *right, *loss; /* slots */
} sums;

static kn_status batch_test(const sums *sum, const kn_model *model, const kn_loader *loader,
                            const kn_batch *b) {
    KN_FRAME(.record = KN_OFF);
    if (!kn_model_is_classifier(model))
        return kn__sum_add(sum->loss, kn_model_loss(model, b), b->n);
    kn_tensor *scores = kn_model_predict(model, b);
    if (b->index == 0) KN_TRY(classes_check(model, loader, "test", scores));
    KN_TRY(kn__sum_add(sum->right, kn_accuracy(scores, b->y), b->n));
    return kn__sum_add(sum->loss, kn_cross_entropy(scores, b->y), b->n);
}

/* Whether training, when the test is part of it, was stopped during this batch. */
static bool test_stopped(run *r) {
    if (r && r->options.on_test_fn && !r->options.on_test_fn(r->options.ctx))
        r->result.stopped = true;
    return r && r->result.stopped;
}

static kn_status test_batches(kn_test_result *out, const sums *sum, const kn_model *model,
                              int64_t n, kn_parallel *parallel) {
    double right = 0, loss = 0;
    KN_TRY(kn_item(&right, sum->right));
    KN_TRY(kn_item(&loss, sum->loss));
    double all[] = {right, loss, (double)n};
    KN_TRY(kn__ranks_combine(parallel, all, 3, KN_COMM_SUM));
    /* right is a whole number, but for the rounding of the shares */
    *out = (kn_test_result){.loss = all[1] / all[2], .accuracy = NAN, .n_images = (int64_t)all[2]};
    if (kn_model_is_classifier(model)) out->accuracy = nearbyint(all[0]) / all[2];
    return KN_OK;
}

/* r: NULL outside of training. *out is written when all batches were seen. */
static kn_status test(kn_test_result *out, const kn_model *model, kn_loader *loader, run *r) {
    KN_SCOPE("evaluate");
    KN_SLOT(right);
    KN_SLOT(loss);
    int64_t n = 0;
    kn_loader_rewind(loader);
    for (kn_batch b; kn_loader_next(loader, &b); n += b.n) {
        if (n == 0) KN_TRY(kn__sum_begin(&right, b.x));
        if (n == 0) KN_TRY(kn__sum_begin(&loss, b.x));
        KN_TRY(batch_test(&(sums){right, loss}, model, loader, &b));
        if (test_stopped(r)) break;
    }
    KN_TRY(kn_check());
    kn_parallel *parallel = r ? r->more.parallel : NULL;
    if (r) KN_TRY(kn__ranks_any(parallel, &r->result.stopped));
    if (r && r->result.stopped) return KN_OK;
    return test_batches(out, &(sums){right, loss}, model, n, parallel);
}

kn_status kn_test(kn_test_result *out, const kn_model *model, kn_loader *loader) {
    if (!model || !loader)
        return KN_FAIL(KN_ERR_INVALID, "kn_test: %s is NULL", model ? "loader" : "model");
    return test(out, model, loader, NULL);
}

kn_status kn_evaluate(double *accuracy, const kn_model *model, kn_loader *loader) {
    kn_test_result result;
    KN_TRY(kn_test(&result, model, loader));
    *accuracy = result.accuracy;
    return KN_OK;
}

/* --- a loss that is no number --- */

/* *name: the first weight with such values; NULL: none has them. */
static kn_status weights_not_finite(const char **name, const run *r) {
    kn_params *params = kn_model_params(r->model);
    for (int i = 0; i < kn_params_count(params); i++) {
        KN_FRAME(.record = KN_OFF);
        double finite = 0;
        kn_tensor *w = kn_params_at(params, i, name);
        KN_TRY(kn_item(&finite, kn_all(kn_isfinite(w), KN_ALL, false)));
        if (finite == 0) return KN_OK;
    }
    *name = NULL;
    return KN_OK;
}

/* From such weights the forward pass would name the first op that reads them. */
static kn_status weights_fail(const run *r, const char *name, const char *loss) {
    return KN_FAIL(KN_ERR_INVALID,
                   "the loss of step %" PRId64
                   " is %s; try a smaller learning rate: the weight %s "
                   "is infinite or NaN already, from %s",
                   r->result.n_steps + 1, loss, name,
                   r->more.capture ? "this step or an earlier one; train without capture to find "
                                     "the op"
                                   : "an earlier step");
}

/* The forward pass again, which stops at the op that made the first value of that kind. */
static kn_status not_finite(run *r, const kn_batch *b, double loss) {
    const char *name = NULL, *what = isnan(loss) ? "NaN" : "infinite";
    r->result.diverged = true;
    KN_TRY(weights_not_finite(&name, r));
    if (name) return weights_fail(r, name, what);
    bool before = kn_anomaly_get();
    kn_status status = KN_OK;
    kn_anomaly_set(true);
    kn_frame tape = {0, 0};
    if (!kn_frame_tape()) tape = kn_tape_begin(NULL);
    (void)kn_model_loss(r->model, b);
    status = kn_check();
    kn_frame_end(&tape);
    kn_anomaly_set(before);
    kn_error why = *kn_last_error();
    return KN_FAIL(
        KN_ERR_INVALID, "the loss of step %" PRId64 " is %s; try a smaller learning rate%s%s",
        r->result.n_steps + 1, what, status < 0 ? ": " : "", status < 0 ? why.message : "");
}

/* Where it costs no wait for a device. */
static kn_status loss_check(run *r, const kn_batch *b, kn_tensor *loss) {
    double value = 0;
    if (!loss || kn_tensor_device(loss) != kn_device_host()) return kn_check();
    KN_TRY(kn_item(&value, loss));
    return isfinite(value) ? KN_OK : not_finite(r, b, value);
}

/* --- training --- */

static kn_status batch_forward(run *r, const kn_batch *b, kn_tensor **loss) {
    KN_SCOPE("forward");
    if (!kn_model_is_classifier(r->model)) {
        *loss = kn_model_loss(r->model, b);
        return KN_OK;
    }
    kn_tensor *logits = kn_model_predict(r->model, b);
    if (r->result.n_steps == r->result.resumed) {
        KN_TRY(classes_check(r->model, r->train, "training", logits));
        KN_TRY(classes_check(r->model, r->test, "test", logits));
    }
    *loss = kn_cross_entropy(logits, b->y);
    return KN_OK;
}

/* How many batches the step that begins with this one has: the last of an epoch may have fewer. */
static int64_t step_batches(const run *r, const kn_batch *b) {
    int64_t left = kn_loader_batches(r->train) - b->index;
    return left < r->options.accumulate ? left : r->options.accumulate;
}

/* Adds the batch's share to the gradients; *loss: the share of its loss. */
static kn_status batch_backward(run *r, const kn_batch *b, int64_t n, kn_tensor **loss) {
    KN_TAPE();
    kn_tensor *share = NULL;
    KN_TRY(batch_forward(r, b, &share));
    if (n > 1) share = kn_affine(share, 1 / (double)n, 0);
    kn_tensor *scaled = r->more.scale ? kn_loss_scale_apply(r->more.scale, share) : share;
    KN_SLOT(kept); /* backward keeps the value that it begins with alone */
    if (scaled != share) KN_TRY(kn_hold(&kept, share));
    KN_TRY(kn_backward(scaled)); /* opens the scope "backward" itself */
    *loss = kn_keep(share);
    return kn_check();
}

static kn_status weights_update(run *r) {
    KN_SCOPE("update");
    KN_FRAME(.record = KN_OFF);
    if (r->more.parallel) KN_TRY(kn_parallel_finish(r->more.parallel));
    if (!kn_model_kind_of(r->model)->turns)
        KN_TRY(r->more.scale ? kn_loss_scale_step(r->more.scale, r->optim, NULL)
                             : kn_optim_step(r->optim));
    return r->more.ema ? kn_ema_update(r->more.ema) : KN_OK;
}

/* The captured part of a batch's step: all but the sums of losses, and what the host decides. */
typedef struct batch_step {
    run *run;
    const kn_batch *batch;
    int64_t n; /* batches of the step */
    bool updates;
} batch_step;

static kn_status batch_step_run(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const batch_step *s = ctx;
    run *r = s->run;
    kn_batch b = *s->batch;
    b.x = in[0];
    if (b.y) b.y = in[1];
    if (kn_model_kind_of(r->model)->turns)
        KN_TRY(kn_model_step(&out[0], r->model, r->optim, &b)); /* updates included */
    else
        KN_TRY(batch_backward(r, &b, s->n, &out[0]));
    return s->updates ? weights_update(r) : KN_OK;
}

/* Whether a captured step contains the update: it reads nothing on the host. */
static bool captures_update(const run *r) {
    return r->more.capture && r->options.accumulate == 1 && !r->more.scale && !r->more.parallel;
}

/* Batch i of the n of a step; its loss is added to *sum. */
static kn_status batch_run(run *r, const kn_batch *b, int64_t i, int64_t n, kn_tensor **sum) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *const in[] = {b->x, b->y};
    kn_tensor *loss = NULL;
    batch_step s = {r, b, n, captures_update(r)};
    if (r->carry && b->index == 0) KN_TRY(kn_fill_into(r->carry, 0));
    if (r->more.capture) {
        /* The first batch overwrites gradients, later ones add to them. One batch alone is variant
         * 0, where ops refuse what replays would keep, as lengths of kn_rnn. */
        kn_capture_select(r->more.capture, (uint64_t)(2 * (n - 1) + (i > 0)));
        KN_TRY(kn_capture_run(&loss, 1, r->more.capture, in, b->y ? 2 : 1, batch_step_run, &s));
    } else {
        KN_TRY(batch_step_run(&loss, in, &s));
    }
    KN_TRY(loss_check(r, b, loss));
    if (!*sum) return kn_hold(sum, loss);
    return kn_add_into(*sum, loss);
}

static kn_status step_batches_run(run *r, kn_batch *b, kn_tensor **loss) {
    int64_t n = step_batches(r, b);
    for (int64_t i = 0; i < n && (i == 0 || kn_loader_next(r->train, b)); i++) {
        if (r->more.parallel) kn_parallel_sync(r->more.parallel, i == n - 1);
        KN_TRY(batch_run(r, b, i, n, loss));
    }
    return kn_check();
}

static kn_status loss_add(run *r, kn_tensor *loss) {
    KN_SCOPE("update");
    KN_FRAME(.record = KN_OFF);
    if (!r->losses) KN_TRY(kn__losses_begin(&r->losses, loss));
    return kn__losses_add(r->losses, r->result.last.n_steps, loss);
}

static bool is_patience_over(const run *r) {
    return r->options.patience && r->n_worse >= r->options.patience;
}

/* Whether nothing is left to train: all epochs are done, or patience ended the run. */
static bool run_is_over(run *r, int64_t first) {
    kn_epoch *last = &r->result.last;
    r->result.converged = is_patience_over(r);
    if (first <= r->options.epochs && !r->result.converged) return false;
    if (last->n_steps) return true; /* stopped inside an epoch of a longer run */
    *last = r->finished;
    last->index = first - 1;
    last->n_steps = kn__train_steps(r);
    return true;
}

/* --- steps and epochs --- */

static kn_status rate_set(run *r) {
    double lr = 0;
    if (!r->more.schedule) return KN_OK;
    KN_TRY(kn_schedule_lr(&lr, &r->schedule, r->result.n_steps));
    return kn_optim_lr(r->optim, lr);
}

static kn_status step_run(run *r, kn_batch *b) {
    KN_SLOT(loss);
    KN_TRY(rate_set(r));
    KN_TRY(step_batches_run(r, b, &loss));
    if (!captures_update(r)) KN_TRY(weights_update(r));
    KN_TRY(loss_add(r, loss));
    kn_step();
    r->result.n_steps++;
    kn_epoch *epoch = &r->result.last;
    epoch->n_steps++;
    kn_train_step step = {epoch->index, epoch->n_steps, kn__train_steps(r), loss};
    if (r->options.on_step_fn && !r->options.on_step_fn(r->options.ctx, &step))
        r->result.stopped = true;
    KN_TRY(kn_check());
    KN_TRY(kn__ranks_any(r->more.parallel, &r->result.stopped));
    epoch->train_seconds = now_seconds() - r->begin;
    bool due = r->checkpoint.every && r->result.n_steps % r->checkpoint.every == 0;
    return due || r->result.stopped ? kn__train_save(r) : KN_OK;
}

static kn_status epoch_train(run *r) {
    kn_epoch *epoch = &r->result.last;
    kn_batch b = {.n = 0};
    if (epoch->n_steps == 0) kn_unhold(&r->losses);
    bool is_done =
        epoch->n_steps == kn__train_steps(r); /* resumed: stopped in its last step or test */
    if (is_done) kn_loader_rewind(r->train);
    while (!is_done && !r->result.stopped && kn_loader_next(r->train, &b)) KN_TRY(step_run(r, &b));
    KN_TRY(kn_check());
    double sum = 0;
    if (epoch->n_steps) KN_TRY(kn__losses_read(&sum, r->losses));
    KN_TRY(kn__ranks_combine(r->more.parallel, &sum, 1, KN_COMM_MEAN));
    epoch->loss = sum / (double)epoch->n_steps;
    if (epoch->n_steps && !isfinite(epoch->loss) && b.n) return not_finite(r, &b, epoch->loss);
    return KN_OK;
}

/* Losses are compared as they are saved: a run without a test goes by its training loss. */
static kn_status epoch_judge(run *r) {
    const kn_epoch *epoch = &r->result.last;
    double loss = r->test ? epoch->test_loss : epoch->loss, before = r->best;
    r->n_worse = loss < r->best ? 0 : r->n_worse + 1;
    if (loss < r->best) r->best = loss;
    r->result.converged = is_patience_over(r);
    return kn__best_judge(&r->kept, epoch->index, loss, before, r->more.parallel);
}

/* By the averages of the weights where there are some. */
static kn_status averages_test(run *r, kn_test_result *tested) {
    KN_TRY(kn__ranks_state_mean(r->more.parallel, kn_model_net(r->model)));
    if (!r->more.ema) return test(tested, r->model, r->test, r);
    KN_TRY(kn_ema_swap(r->more.ema));
    kn_status status = test(tested, r->model, r->test, r);
    kn_status back = kn_ema_swap(r->more.ema);
    return status < 0 ? status : back;
}

static kn_status epoch_run(run *r, int64_t index) {
    kn_epoch *epoch = &r->result.last;
    kn_test_result tested = {.loss = NAN, .accuracy = NAN};
    r->begin = now_seconds() - kn__train_spent(r);
    *epoch = (kn_epoch){
        .index = index, .n_steps = epoch->n_steps, .loss = NAN, .accuracy = NAN, .test_loss = NAN};
    kn_status status = epoch_train(r);
    double trained = now_seconds();
    epoch->train_seconds = trained - r->begin;
    if (status < 0 || r->result.stopped) return status;
    if (r->test) KN_TRY(averages_test(r, &tested));
    epoch->accuracy = tested.accuracy;
    epoch->test_loss = tested.loss;
    epoch->test_seconds = now_seconds() - trained;
    if (r->result.stopped) return kn__train_save(r);
    r->finished = *epoch;
    KN_TRY(epoch_judge(r));
    if (r->options.on_epoch_fn) r->options.on_epoch_fn(r->options.ctx, epoch);
    return KN_OK;
}

static kn_status options_check(run *r, const kn_train_options *options) {
    if (options) r->options = *options;
    kn_train_options *o = &r->options;
    if (!o->epochs) o->epochs = 1;
    if (!o->accumulate) o->accumulate = 1;
    if (o->more) r->more = *o->more;
    for (int i = 0; i < 3; i++)
        if (r->more.reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_train_more: reserved is not zero");
    if (o->epochs < 0 || o->accumulate < 0 || o->patience < 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_train_options: epochs %" PRId64 ", accumulate %" PRId64
                       ", patience %" PRId64 "; none may be negative",
                       o->epochs, o->accumulate, o->patience);
    if (kn__ranks_size(r->more.parallel) > 1 && kn_model_kind_of(r->model)->turns)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "%s trains in turns, which several ranks cannot",
                       kn_model_name(r->model));
    if (o->checkpoint) r->checkpoint = *o->checkpoint;
    return o->checkpoint ? kn__train_checkpoint_check(o->checkpoint) : KN_OK;
}

/* Before the first step, whatever its numbers lack. */
static kn_status schedule_check(run *r) {
    double lr = 0;
    if (!r->more.schedule) return KN_OK;
    r->schedule = *r->more.schedule;
    if (r->schedule.steps == 0) r->schedule.steps = r->options.epochs * kn__train_steps(r);
    return kn_schedule_lr(&lr, &r->schedule, 0);
}

static kn_status objects_check(const run *r) {
    if (!r->model || !r->optim || !r->train)
        return KN_FAIL(KN_ERR_INVALID, "kn_train: %s is NULL",
                       !r->model   ? "model"
                       : !r->optim ? "optim"
                                   : "train");
    kn_params *params = kn_model_params(r->model), *others = kn_optim_params(r->optim);
    const char *name = "none", *other = "none";
    if (params == others) return KN_OK;
    if (kn_params_count(params)) (void)kn_params_at(params, 0, &name);
    if (kn_params_count(others)) (void)kn_params_at(others, 0, &other);
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_train: optim is of another parameter set: it begins with %s, that of the "
                   "model %s with %s",
                   other, kn_model_name(r->model), name);
}

static kn_status turns_check(const run *r) {
    if (kn_model_kind_of(r->model)->turns && (r->options.accumulate > 1 || r->more.scale))
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the model %s trains in turns, without %s",
                       kn_model_name(r->model),
                       r->more.scale ? "a loss scale" : "accumulated batches");
    return kn__model_turns_fit(r->model, r->optim);
}

static bool same_shape(kn_shape a, kn_shape b) {
    bool same = a.n_dims == b.n_dims;
    for (int i = 0; same && i < a.n_dims; i++) same = a.dim[i] == b.dim[i];
    return same;
}

/* A test of another size than the training is an error before the first step, not after an epoch,
 * unless the model takes any size: predicts a batch to see. */
static kn_status test_shape_check(run *r) {
    char test[128], train[128];
    kn_batch b;
    if (!r->test || r->test->data->offset) return KN_OK;
    kn_shape shape = r->test->data->x_shape, trained = r->train->data->x_shape;
    if (same_shape(shape, trained)) return KN_OK;
    KN_SCOPE("evaluate");
    KN_FRAME(.record = KN_OFF);
    kn_loader_rewind(r->test);
    if (!kn_loader_next(r->test, &b)) return kn_check();
    (void)(kn_model_is_classifier(r->model) ? kn_model_predict(r->model, &b)
                                            : kn_model_loss(r->model, &b));
    kn_status status = kn_check();
    if (status != KN_ERR_SHAPE) return status;
    kn_error why = *kn_last_error();
    return KN_FAIL(KN_ERR_SHAPE, "test samples are %s, training samples %s: %s",
                   kn_shape_text(test, sizeof test, shape),
                   kn_shape_text(train, sizeof train, trained), why.message);
}

/* Ranks that differ here would make other calls later, or train from other weights: a checkpoint
 * that only some of them see. */
static kn_status ranks_check(const run *r, int64_t first) {
    char text[256];
    const kn_loader_options *data = &r->train->options;
    if (kn__ranks_size(r->more.parallel) == 1) return KN_OK;
    KN_TRY(kn__ranks_data_check(r->more.parallel, r->train));
    snprintf(text, sizeof text,
             "%" PRId64 " epochs of %" PRId64 " batches of %" PRId64 "%s, %" PRId64
             " a step%s%s; from epoch %" PRId64 ", step %" PRId64 "; patience %" PRId64
             "; %s%s, saved every %" PRId64 " steps",
             r->options.epochs, kn_loader_batches(r->train), data->batch,
             data->augment ? ", augmented" : "", r->options.accumulate,
             r->more.ema ? ", averaged weights" : "", r->more.scale ? ", scaled loss" : "", first,
             r->result.n_steps, r->options.patience,
             r->checkpoint.path ? "a checkpoint" : "no checkpoint",
             r->checkpoint.best ? ", the best" : "", r->checkpoint.every);
    return kn_comm_agree(kn_parallel_comm(r->more.parallel), "the training", text);
}

/* What batches leave to the next one. Batches in another order don't continue each other, and ranks
 * would each have a state, of which a checkpoint has one. */
static kn_status carry_begin(run *r) {
    const kn_model_kind *kind = kn_model_kind_of(r->model);
    kn__layer_root *root = kn_model_net(r->model)->root;
    const kn_loader_options *o = &r->train->options;
    if (!kind->carry || o->ordered != 2 || o->n_ranks > 1 || root->is_placed) return KN_OK;
    kn_shape shape = kind->carry(kn_model_self(r->model), o->batch);
    KN_FRAME(.device = o->device, .dtype = kn_params_dtype(kn_model_params(r->model)),
             .record = KN_OFF);
    KN_TRY(kn_hold(&r->carry, kn_zeros(shape)));
    root->carry = r->carry;
    return KN_OK;
}

static void carry_end(run *r) {
    if (!r->carry) return;
    kn_model_net(r->model)->root->carry = NULL;
    kn_unhold(&r->carry);
}

/* The next epoch begins with no steps; a resumed one with those that it had. */
static kn_status epochs_run(run *r) {
    int64_t first = 1;
    kn_loader_rewind(r->train);
    if (r->checkpoint.path && kn__ranks_writes(r->more.parallel))
        KN_TRY(kn__checkpoint_can_save(r->checkpoint.path));
    KN_TRY(kn__train_resume(r, &first));
    KN_TRY(kn__best_begin(&r->kept, r->checkpoint.best, r->best, r->more.parallel));
    KN_TRY(ranks_check(r, first));
    kn__loader_note(r->train);
    if (run_is_over(r, first)) return KN_OK;
    for (int64_t i = first; i <= r->options.epochs; i++) {
        KN_TRY(epoch_run(r, i));
        if (r->result.stopped) return KN_OK;
        /* Saved as the next one's beginning: whoever resumes doesn't test again. */
        int64_t n_steps = r->result.last.n_steps;
        r->result.last.index = i + 1;
        r->result.last.n_steps = 0;
        KN_TRY(kn__train_save(r));
        r->result.last.index = i;
        bool is_last = i == r->options.epochs || r->result.converged;
        if (is_last) r->result.last.n_steps = n_steps;
        if (is_last) return KN_OK;
    }
    return KN_OK;
}

kn_status kn_train(kn_train_result *out, size_t out_bytes, const kn_model *model, kn_optim *optim,
                   kn_loader *train, kn_loader *test_loader, const kn_train_options *options) {
    run r = {.model = model,
             .optim = optim,
             .train = train,
             .test = test_loader,
             .best = (double)INFINITY,
             .finished = {.loss = NAN, .accuracy = NAN, .test_loss = NAN}};
    memset(out, 0, out_bytes);
    double begin = now_seconds();
    kn_status status = objects_check(&r);
    if (status == KN_OK) status = options_check(&r, options);
    if (status == KN_OK) status = turns_check(&r);
    if (status == KN_OK) status = schedule_check(&r);
    if (status == KN_OK) status = test_shape_check(&r);
    if (status == KN_OK) status = carry_begin(&r);
    if (status == KN_OK) status = epochs_run(&r);
    if (r.model) carry_end(&r);
    r.result.seconds = now_seconds() - begin;
    kn_unhold(&r.losses);
    memcpy(out, &r.result, out_bytes < sizeof r.result ? out_bytes : sizeof r.result);
    return status;
}
