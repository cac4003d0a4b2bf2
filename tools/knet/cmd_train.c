/* knet train: options, set-up, the training under a progress bar, the report. */
#include <inttypes.h>
#include <knet/op.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "cmd.h"
#include "find_rate.h"
#include "model_data.h"
#include "optimizers.h"
#include "pipe.h"
#include "ranks.h"
#include "train_session.h"
#include "units.h"

typedef kn__train_options options;
typedef kn__train_session session;

/* --- options --- */
static const char *const math_names[] = {"strict", "tf32", "bf16", NULL};

static const char *const dtype_names[] = {"f32", "bf16", "f16", NULL};

static kn_math_mode math_find(const char *name) {
    kn_math_mode mode = KN_MATH_STRICT;
    while (strcmp(kn_math_mode_name(mode), name) != 0) mode++; /* the parser let no other through */
    return mode;
}

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"epochs", KN__OPT_COUNT, AT(epochs), .value_name = "N", .max = 1000000, .initial = "3",
     .help = "times through the images"},
    {"batch", KN__OPT_COUNT, AT(batch), .value_name = "N", .max = 1 << 24,
     .initial_shown = "128; of large models the record's", .help = "samples per step"},
    {"lr", KN__OPT_NUMBER, AT(update.lr), .value_name = "RATE",
     .initial_shown = "sgd 0.1, momentum and nesterov 0.02, adagrad 0.05, lamb and rmsprop 0.01, "
                      "adadelta 1, record the model's, others 0.001",
     .help = "learning rate",
     .remark = "of a resumed run: the checkpoint's unless given, or with a schedule"},
    {"schedule", KN__OPT_CHOICE, AT(update.schedule), .value_name = "NAME",
     .choices = kn__schedule_names, .initial = "constant",
     .help = "how the learning rate changes over the steps of all epochs",
     .remark = "step: to a tenth after every --lr-every epochs; linear, cosine: from --lr to "
               "--lr-end; one-cycle: up to --lr in 30 % of the steps, then down; record: the "
               "model's, which knet models MODEL shows"},
    {"warmup", KN__OPT_COUNT, AT(update.warmup), .value_name = "N", .max = 1000000000,
     .help = "first steps, during which the learning rate grows to --lr"},
    {"lr-end", KN__OPT_NUMBER, AT(update.lr_end), .value_name = "RATE", .may_be_zero = true,
     .initial = "0", .help = "learning rate at the end of the schedule"},
    {"lr-every", KN__OPT_COUNT, AT(update.lr_every), .value_name = "N", .max = 1000000,
     .help = "epochs of each learning rate of --schedule step"},
    {"optimizer", KN__OPT_CHOICE, AT(optimizer), .value_name = "NAME",
     .choices = kn__optimizer_names, .initial = "adam", .help = "rule of the update",
     .remark = "record: the model's, which knet models lists"},
    {"weight-decay", KN__OPT_NUMBER, AT(update.weight_decay), .value_name = "DECAY",
     .initial_shown = "adamw 0.01, others none", .help = "pull the weights towards zero",
     .remark = "adam, adamw and lamb: apart from the gradient; others: added to it"},
    {"clip-norm", KN__OPT_NUMBER, AT(update.clip_norm), .value_name = "NORM",
     .help = "scale the gradients of a step down to this norm where theirs is larger"},
    {"clip-each", KN__OPT_NUMBER, AT(update.clip_each), .value_name = "NORM",
     .help = "scale the gradient of each weight down to this norm where its own is larger",
     .remark = "Knet.jl's gclip"},
    {"seed", KN__OPT_SEED, AT(seed), .value_name = "N", .initial = "1",
     .help = "seed of weights and shuffles"},
    {"device", KN__OPT_TEXT, AT(device), .value_name = "NAME", .initial = "cpu",
     .help = "where to compute",
     .remark = "cpu, cuda, cuda:N, or several such as cuda:0,cuda:1: split over them by layers"},
    {"cut", KN__OPT_TEXT, AT(cut), .value_name = "LAYERS", .initial_shown = "by parameters",
     .help = "of several devices: the layers with which the second and later ones begin"},
    {"micro", KN__OPT_COUNT, AT(micro), .value_name = "N", .max = 1 << 16,
     .initial_shown = "4 a device", .help = "of several devices: parts of a batch that overlap"},
    {"threads", KN__OPT_COUNT, AT(threads), .value_name = "N", .max = 1024, .initial_shown = "all",
     .help = "threads of the CPU", .remark = "the result is the same for any number"},
    {"math", KN__OPT_CHOICE, AT(math), .value_name = "MODE", .choices = math_names,
     .initial = "strict", .help = "arithmetic of products on a GPU",
     .remark = "tf32 and bf16 need --device cuda"},
    {"dtype", KN__OPT_CHOICE, AT(dtype), .value_name = "TYPE", .choices = dtype_names,
     .initial = "f32", .help = "mixed precision: activations of 16 bits, weights of f32",
     .remark = "f16 scales the loss, as --loss-scale does"},
    {"data", KN__OPT_FOLDER, AT(data_dir), .value_name = "DIR", .not_with = "synthetic",
     .initial_shown =
         "/usr/share/datasets/fashion-mnist; of text models a licence; of gru_imdb, linear and "
         "models for ImageNet none",
     .help = "folder of images, or the model's text, reviews or table",
     .remark = "idx files as of MNIST, CIFAR's files, or train/CLASS/IMAGE.png and test/...; for "
               "linear a file with 13 numbers a line and the one to predict"},
    {"synthetic", KN__OPT_FLAG, AT(synthetic), .help = "use made-up data, which needs no files"},
    KN__RECOMPUTE_OPTION(AT(recompute)),
    {"limit", KN__OPT_BYTES, AT(limit_bytes), .value_name = "BYTES",
     .help = "the most memory that the pool may reserve, such as 512MiB"},
    {"accumulate", KN__OPT_COUNT, AT(accumulate), .value_name = "N", .max = 1 << 20, .initial = "1",
     .help = "batches whose mean gradient makes one step"},
    {"patience", KN__OPT_COUNT, AT(patience), .value_name = "N", .max = 1000000,
     .help = "stop after N epochs in which the test loss did not improve",
     .remark = "--best FILE keeps the weights of the best epoch"},
    {"metrics", KN__OPT_FILE, AT(metrics), .value_name = "FILE",
     .help = "add a line for each epoch to this file",
     .remark = "CSV if its name ends in .csv, else JSON"},
    {"tensorboard", KN__OPT_FOLDER, AT(tensorboard), .value_name = "DIR",
     .help = "add an event file to this folder, for TensorBoard"},
    {"curves", KN__OPT_FILE, AT(curves), .value_name = "FILE",
     .help = "draw the curves of loss and accuracy while it trains",
     .remark = "SVG, new whenever the epochs grew by a 32nd, to a pipe once at the end; a resumed "
               "run adds to the file's"},
    {"find-rate", KN__OPT_CHOICE, AT(find_rate), .value_name = "METHOD", .not_with = "checkpoint",
     .choices = kn__find_rate_methods, .help = "first search the learning rate by short trainings",
     .remark = "from a hundredth to ten times --lr, by golden section or hyperband"},
    {"ema", KN__OPT_NUMBER, AT(ema), .value_name = "DECAY",
     .help = "average the weights, and test the averages", .remark = "such as 0.999"},
    {"loss-scale", KN__OPT_FLAG, AT(scale),
     .help = "scale the loss in backward, by a factor that adapts itself"},
    {"augment", KN__OPT_FLAG, AT(augment),
     .help = "flip training images and move them by up to 2 pixels"},
    {"carry", KN__OPT_FLAG, AT(carry),
     .help = "begin each batch of an epoch with the state that the last one left, as char-rnn",
     .remark = "of char_lstm and char_lstm_steps; the order of the text is kept; tests begin with "
               "zeros"},
    {"prefetch", KN__OPT_FLAG, AT(prefetch), .help = "fill the next batch in a thread of its own"},
    {"checkpoint", KN__OPT_FILE, AT(checkpoint), .value_name = "FILE",
     .help = "save to this file after each epoch and when stopped",
     .remark = "safetensors: weights, optimiser, random numbers, place in the data"},
    {"best", KN__OPT_FILE, AT(best), .value_name = "FILE",
     .help = "save the weights to this file after each epoch with the least test loss so far",
     .remark = "what knet eval needs, not what --resume does; a resumed run goes on with the file"},
    {"save-every", KN__OPT_COUNT, AT(save_every), .value_name = "N", .max = 1000000000,
     .only_with = "checkpoint", .help = "save every N steps too"},
    {"keep", KN__OPT_COUNT, AT(keep), .value_name = "N", .max = 1000, .only_with = "checkpoint",
     .help = "keep the N checkpoints before the last, as FILE.1 to FILE.N"},
    {"resume", KN__OPT_FLAG, AT(resume), .only_with = "checkpoint",
     .help = "continue from the checkpoint, bit for bit; from the beginning if it doesn't exist"},
    {"sync-batchnorm", KN__OPT_FLAG, AT(sync), .not_with = "capture",
     .help = "batch norm by the joined batch of all ranks, not by each one's"},
    {"shard", KN__OPT_FLAG, AT(shard),
     .help = "cut the optimiser's state into one part a rank; the same weights, less memory"},
    {"capture", KN__OPT_FLAG, AT(capture),
     .help = "record a step once and replay it: the same results, less time between ops",
     .remark = "not of models whose step reads data on the host, such as tree_lstm"},
    {"quiet", KN__OPT_FLAG, AT(quiet), .help = "print no progress bar and no line per epoch"},
};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), .choice_at = kn_model_name_at};
#undef AT

/* Checks what the option table cannot express. */
static int options_check(const options *o) {
    int exit_code = kn__train_paths_check(o); /* first: no failure is written to a checkpoint */
    if (exit_code != KN__EXIT_OK) return exit_code;
    if (strcmp(o->device, "sim") == 0)
        return kn__fail_usage(
            "device sim computes nothing, it only counts memory; use cpu, cuda or cuda:N");
    if (strcmp(o->math, "strict") != 0 && !strstr(o->device, "cuda"))
        return kn__fail_usage(
            "--math %s applies only with --device cuda: the CPU computes strictly", o->math);
    if (!(o->ema >= 0 && o->ema < 1)) /* 0: not given */
        return kn__fail_usage("--ema %g: the decay is in (0, 1)", o->ema);
    exit_code = kn__update_check(o->optimizer, &o->update);
    if (o->carry && !exit_code) exit_code = kn__model_carry_check(o->model[0], o->device);
    if (o->capture && !exit_code) exit_code = kn__model_capture_check(o->model[0], "--capture");
    return exit_code ? exit_code : kn__model_data_check(o->model[0], o->synthetic, o->data_dir);
}

/* All ranks stop, and end alike, whichever of them had the signal. */
static kn_status interrupt_share(bool *stopped, kn_comm *comm) {
    double number = kn__interrupted;
    if (comm) KN_TRY(kn_comm_values(comm, &number, 1, KN_COMM_MAX));
    *stopped = number > 0;
    if (*stopped) kn__interrupted = (sig_atomic_t)number;
    return KN_OK;
}

/* --- set-up --- */
static kn_status device_open(session *s) {
    const options *o = &s->options;
    KN_TRY(kn__stages_find(&s->stages, kn__ranks_device(s->comm, o->device), s->comm));
    s->device = s->stages.device[0];
    s->pool = kn_device_pool(s->device);
    if (!s->pool) return kn_check();
    bool limited = o->limit_bytes > 0; /* memory can run out: let the report name the holders */
    if (limited || kn_device_kind_get(s->device) == KN_DEVICE_CUDA) KN_TRY(kn_prof_owners_on());
    return limited ? kn_pool_limit(s->pool, (size_t)o->limit_bytes) : KN_OK;
}

static kn_status loader_open(kn_loader **out, const session *s, kn_split split) {
    const options *o = &s->options;
    static const kn_augment augment = {.flip = 1, .crop = 2};
    kn_loader_options loader = {.batch = o->batch,
                                .seed = o->seed,
                                .device = s->device,
                                .split = split,
                                .augment = o->augment ? &augment : NULL,
                                .ordered = o->carry ? 2 : 0,
                                .prefetch = o->prefetch,
                                .rank = s->comm ? kn_comm_rank(s->comm) : 0,
                                .n_ranks = s->comm ? kn_comm_size(s->comm) : 1,
                                .partial = split == KN_TEST};
    return kn__model_loader(out, o->model[0], o->synthetic, o->data_dir, NULL, &loader);
}

static kn_status model_open(session *s) {
    KN_SCOPE("create model");
    const options *o = &s->options;
    KN_TRY(
        kn_params_create(&s->params, &(kn_params_options){.device = s->device, .seed = o->seed}));
    KN_TRY(kn_model_create(&s->model, o->model[0], s->params));
    kn__recompute_set(s->model, o->recompute);
    KN_TRY(kn__stages_place(s->model, &s->stages, o->cut, (int)o->micro));
    return kn__optimizer_create(&s->optim, o->optimizer, s->model, &o->update);
}

static kn_status scale_open(session *s) {
    const options *o = &s->options;
    bool is_scaled = o->scale || kn__autocast_find(o->dtype) == KN_F16;
    return is_scaled ? kn_loss_scale_create(&s->scale, s->params, NULL) : KN_OK;
}

/* Weights would drift apart, or ranks read the same samples, and no later call would notice. */
static kn_status options_agree(const session *s) {
    const options *o = &s->options;
    char text[512], update[192], ema[32] = "";
    if (o->ema > 0) snprintf(ema, sizeof ema, " --ema %.9g", o->ema);
    kn__update_options(update, sizeof update, &o->update);
    snprintf(text, sizeof text,
             "%s --optimizer %s --lr %.9g --seed %" PRIu64 " --batch %" PRId64
             " --dtype %s%s%s%s%s%s%s",
             o->model[0], o->optimizer, o->update.lr, o->seed, o->batch, o->dtype, ema,
             o->augment ? " --augment" : "", o->scale ? " --loss-scale" : "",
             o->shard ? " --shard" : "", o->sync ? " --sync-batchnorm" : "", update);
    return kn_comm_agree(s->comm, "the command line", text);
}

static kn_status parallel_open(session *s) {
    const options *o = &s->options;
    if (!s->comm || s->result.stopped) return KN_OK; /* the rates are not found */
    KN_TRY(options_agree(s));
    KN_TRY(kn_parallel_create(&s->parallel, s->params, s->comm, NULL));
    if (o->sync && !kn_layer_sync(kn_model_net(s->model), kn_parallel_batch(s->parallel)))
        return KN_FAIL(KN_ERR_INVALID, "--sync-batchnorm: %s has no batch norm", o->model[0]);
    return o->shard ? kn_parallel_shard(s->parallel, s->optim) : KN_OK;
}

static int64_t epoch_steps(const session *s) {
    return (kn_loader_batches(s->train) + s->options.accumulate - 1) / s->options.accumulate;
}

static kn_status warmup_check(const session *s) {
    const kn__update *u = &s->options.update;
    int64_t n = s->options.epochs * epoch_steps(s);
    if (u->warmup < n || u->warmup == 0) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "--warmup %" PRId64 ": the training has %" PRId64 " steps",
                   u->warmup, n);
}

static kn_status session_open(session *s) {
    KN_TRY(loader_open(&s->train, s, KN_TRAIN));
    KN_TRY(warmup_check(s));
    KN_TRY(loader_open(&s->test, s, KN_TEST));
    KN_TRY(model_open(s));
    KN_TRY(parallel_open(s));
    if (s->options.ema > 0) KN_TRY(kn_ema_create(&s->ema, s->params, s->options.ema));
    KN_TRY(scale_open(s));
    if (s->options.capture) KN_TRY(kn_capture_create(&s->capture, NULL));
    s->epochs = calloc((size_t)s->options.epochs, sizeof *s->epochs);
    return s->epochs ? KN_OK
                     : KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " epochs", s->options.epochs);
}

static void model_close(session *s) {
    kn_capture_destroy(s->capture);
    kn_parallel_destroy(s->parallel);
    kn_loss_scale_destroy(s->scale);
    kn_ema_destroy(s->ema);
    kn_optim_destroy(s->optim);
    kn_model_destroy(s->model);
    kn_params_destroy(s->params);
}

static void session_close(session *s) {
    kn_progress_end(&s->bar);
    kn_loader_destroy(s->train);
    kn_loader_destroy(s->test);
    model_close(s);
    kn_comm_destroy(s->comm);
    kn__train_files_release(&s->files);
    free(s->epochs);
}

/* --- training --- */
static bool step_done(void *ctx, const kn_train_step *step) {
    session *s = ctx;
    double loss = 0;
    int64_t done = (step->epoch - 1) * step->n_steps + step->index;
    if (s->n_steps++ == 0) kn_progress_from(&s->bar, done - 1); /* of a run that continues */
    if (kn_progress_due(&s->bar)) {
        kn_status status = kn_item(&loss, step->loss);
        if (status < 0) return kn_error_defer(status) == NULL; /* the loop takes it */
        char message[96];
        snprintf(message, sizeof message, "epoch %" PRId64 "/%" PRId64 " loss %.4f", step->epoch,
                 s->options.epochs, loss);
        kn_progress_show(&s->bar, done, message);
    }
    return !kn__interrupted;
}

static bool test_going_on(void *ctx) {
    (void)ctx;
    return !kn__interrupted;
}

static void epoch_done(void *ctx, const kn_epoch *epoch) {
    session *s = ctx;
    KN_ASSERT(s->n_epochs < s->options.epochs);
    s->epochs[s->n_epochs++] = *epoch;
    kn__train_files_add(&s->files, epoch);
    if (s->options.quiet) return;
    kn_progress_clear(&s->bar);
    bool scores = kn_model_is_classifier(s->model);
    kn__output_line(&s->report,
                    "epoch %" PRId64 "/%" PRId64
                    "  loss %.4f  test %s %.*f%s  train %.2f s  test %.2f s\n",
                    epoch->index, s->options.epochs, epoch->loss, scores ? "accuracy" : "loss",
                    scores ? 2 : 4, scores ? 100 * epoch->accuracy : epoch->test_loss,
                    scores ? " %" : "", epoch->train_seconds, epoch->test_seconds);
    if (s->report.error == EPIPE && !kn__interrupted) kn__interrupted = SIGPIPE;
}

/* --- the search of a rate --- */

/* A short training. Its score is the mean loss of the last steps, an epoch's where it has as many.
 */
typedef struct rate_steps {
    int64_t done, end, scored;
    double sum;
} rate_steps;

static bool rate_step_done(void *ctx, const kn_train_step *step) {
    rate_steps *s = ctx;
    double loss = 0;
    if (++s->done > s->end - s->scored) {
        kn_status status = kn_item(&loss, step->loss);
        if (status < 0) return kn_error_defer(status) == NULL; /* the loop takes it */
        s->sum += loss;
    }
    return s->done < s->end && !kn__interrupted;
}

/* With another rate, on the loader of the search. Each of several ranks searches by itself: one
 * that diverges would leave the others waiting. Its steps have the samples of all. */
static kn_status rate_train(double *loss, session *s, int64_t steps, int n_ranks) {
    KN_TRY(model_open(s));
    KN_TRY(scale_open(s));
    int64_t each = s->options.accumulate * n_ranks, n = kn_loader_batches(s->train);
    int64_t epoch_steps = (n + each - 1) / each;
    rate_steps done = {.end = steps, .scored = steps < epoch_steps ? steps : epoch_steps};
    const kn_train_more more = {.scale = s->scale};
    kn_status status = kn_train(&s->result, sizeof s->result, s->model, s->optim, s->train, NULL,
                                &(kn_train_options){.epochs = (steps - 1) / epoch_steps + 1,
                                                    .accumulate = each,
                                                    .more = &more,
                                                    .on_step_fn = rate_step_done,
                                                    .ctx = &done});
    *loss = s->result.diverged ? (double)INFINITY : done.sum / (double)done.scored;
    return s->result.diverged ? KN_OK : status; /* a rate too large */
}

static kn_status rate_try(double *loss, void *ctx, double rate, int64_t steps) {
    session *whole = ctx, s = {.options = whole->options};
    s.device = (s.stages = whole->stages).device[0];
    s.options.update.lr = rate;
    kn_status status = loader_open(&s.train, &s, KN_TRAIN);
    if (status == KN_OK)
        status = rate_train(loss, &s, steps, whole->comm ? kn_comm_size(whole->comm) : 1);
    if (status == KN_OK) status = interrupt_share(&whole->result.stopped, whole->comm);
    if (whole->result.stopped) status = KN_FAIL(KN_ERR_INTERNAL, "interrupted");
    if (status < 0 || !isfinite(*loss)) *loss = (double)INFINITY;
    if (status == KN_OK && !s.options.quiet)
        kn__output_line(&whole->report, "rate %.3g: loss %.4f after %" PRId64 " steps\n", rate,
                        *loss, s.result.n_steps);
    kn_loader_destroy(s.train);
    model_close(&s);
    return status;
}

static kn_status rate_find(session *s) {
    options *o = &s->options;
    double rate = 0, loss = 0;
    int n = 0;
    if (!o->find_rate) return KN_OK;
    kn__interrupt_search(true);
    kn_status status =
        kn__find_rate(&rate, &loss, &n, o->find_rate, o->update.lr, o->seed, rate_try, s);
    kn__interrupt_search(false);
    if (status == KN_OK) o->update.lr = rate;
    return s->result.stopped ? KN_OK : status; /* a signal since then stops the first step */
}

/* The ranks have the same data. */
static void data_compare(const session *s) {
    const options *o = &s->options;
    if (!o->resume || (s->comm && kn_comm_rank(s->comm) != 0)) return;
    if (kn__data_is_other(o->checkpoint, s->train))
        kn__warn("%s was trained on other data, with as many samples; this run continues on %s",
                 o->checkpoint, o->synthetic ? "made-up data" : o->data_dir);
}

static void first_line(session *s) {
    const options *o = &s->options;
    char params[32], images[32], batches[32], update[128], ranks[32] = "";
    kn__count_text(params, sizeof params, kn_params_numel(s->params));
    int64_t n_images = kn_loader_images(s->train), n_batches = kn_loader_batches(s->train);
    kn__count_text(images, sizeof images, n_images);
    kn__count_text(batches, sizeof batches, n_batches);
    kn__update_text(update, sizeof update, &o->update);
    if (s->comm) snprintf(ranks, sizeof ranks, "%d ranks, ", kn_comm_size(s->comm));
    kn__output_line(&s->report,
                    "%s: %s parameters; %s %s, %s batch%s of %" PRId64
                    "; %s, %s; %s%s, %d thread%s%s%s%s%s\n",
                    o->model[0], params, images, kn__model_samples(o->model[0], n_images), batches,
                    n_batches == 1 ? "" : "es", o->batch, o->optimizer, update, ranks,
                    s->stages.text, kn_frame_threads(), kn_frame_threads() == 1 ? "" : "s",
                    kn_frame_math() == KN_MATH_STRICT ? "" : ", math ",
                    kn_frame_math() == KN_MATH_STRICT ? "" : o->math,
                    kn_frame_autocast() ? ", " : "", kn_frame_autocast() ? o->dtype : "");
}

static kn_status session_train(session *s) {
    const options *o = &s->options;
    if (!o->quiet) first_line(s);
    int64_t n_steps = epoch_steps(s);
    s->bar = kn_progress_begin(o->quiet || o->common.json ? NULL : kn__ranks_terminal(),
                               o->epochs * n_steps);
    data_compare(s);
    kn_schedule schedule;
    bool scheduled = kn__schedule_of(&schedule, &o->update, o->model[0], o->epochs, n_steps);
    const kn_train_more more = {.ema = s->ema,
                                .scale = s->scale,
                                .parallel = s->parallel,
                                .capture = s->capture,
                                .schedule = scheduled ? &schedule : NULL};
    kn_train_checkpoint checkpoint = {.path = o->checkpoint,
                                      .every = o->save_every,
                                      .keep = (int)o->keep,
                                      .resume = o->resume,
                                      .lr = o->update.lr,
                                      .best = o->best};
    kn_status status =
        kn_train(&s->result, sizeof s->result, s->model, s->optim, s->train, s->test,
                 &(kn_train_options){.epochs = o->epochs,
                                     .checkpoint = o->checkpoint || o->best ? &checkpoint : NULL,
                                     .accumulate = o->accumulate,
                                     .patience = o->patience,
                                     .more = &more,
                                     .on_step_fn = step_done,
                                     .on_test_fn = test_going_on,
                                     .on_epoch_fn = epoch_done,
                                     .ctx = s});
    kn_progress_end(&s->bar);
    if (status == KN_OK && s->result.stopped) status = interrupt_share(&s->result.stopped, s->comm);
    if (kn__interrupted) s->result.stopped = true; /* after the last callback too */
    return status;
}

/* --- the end --- */
static int status_exit_code(kn_status status, bool setting_up) {
    bool is_usage = status == KN_ERR_DEVICE || (status == KN_ERR_INVALID && setting_up);
    return status == KN_OK         ? KN__EXIT_OK
           : status == KN_ERR_OOM  ? KN__EXIT_OOM
           : status == KN_ERR_PEER ? KN__EXIT_PEER
           : is_usage              ? KN__EXIT_USAGE
                                   : KN__EXIT_FAILURE;
}

static int error_report(const kn_error *error, bool setting_up) {
    kn__fail("%s", error->message);
    return status_exit_code(error->status, setting_up);
}

static int session_report(session *s, kn_status status, const kn_error *error) {
    int exit_code = status < 0 ? error_report(error, false) : KN__EXIT_OK;
    kn__train_files_release(&s->files);
    if (kn__interrupted) s->result.stopped = true; /* while a pipe had no reader */
    int lost = 0;
    const char *path = kn__train_files_lost(&s->files, &lost);
    if (exit_code == KN__EXIT_OK && path && !s->result.stopped) {
        kn__fail("%s is not complete: %s", path, kn__write_error(lost));
        exit_code = KN__EXIT_FAILURE;
    }
    kn__train_report(s, exit_code == KN__EXIT_OK ? NULL : kn__fail_message());
    if (exit_code == KN__EXIT_OK && s->result.stopped) exit_code = 128 + kn__interrupted;
    return exit_code;
}

/* --- the command --- */
/* The others hear why. */
static int setup_failed(session *s) {
    kn_error error = *kn_last_error();
    kn_comm_abort(s->comm, error.message);
    return error_report(&error, true);
}

/* The files of a run are rank 0's, but for the checkpoint, from which all resume. */
static int ranks_open(session *s) {
    options *o = &s->options;
    if (kn__ranks_connect(&s->comm) < 0) return error_report(kn_last_error(), true);
    if (s->comm && o->carry) return kn__fail_usage("--carry does not apply to several ranks");
    if (!s->comm && (o->sync || o->shard))
        return kn__fail_usage("--%s applies only to several ranks, as of mpirun -n 2 knet train",
                              o->sync ? "sync-batchnorm" : "shard");
    if (!s->comm) return KN__EXIT_OK;
    if (!o->threads) o->threads = kn__ranks_threads(s->comm);
    if (kn_comm_rank(s->comm) == 0) return KN__EXIT_OK;
    o->quiet = true;
    o->metrics = o->tensorboard = o->curves = NULL;
    return KN__EXIT_OK;
}

static int session_run(session *s) {
    KN_FRAME(.device = s->device, .threads = (int)s->options.threads,
             .math = (int)math_find(s->options.math),
             .autocast = kn__autocast_find(s->options.dtype));
    kn_status status = kn_check();
    if (status == KN_OK) status = kn__train_files_begin(&s->files);
    if (status == KN_OK) status = rate_find(s);
    if (status == KN_OK) status = session_open(s);
    if (status < 0) return setup_failed(s);
    if (!s->result.stopped) status = session_train(s);
    kn_error error = *kn_last_error();
    if (status < 0) kn_comm_abort(s->comm, error.message);
    return session_report(s, status, &error);
}

static int train_and_report(session *s) {
    const options *o = &s->options;
    int exit_code = ranks_open(s);
    if (exit_code == KN__EXIT_OK && device_open(s) < 0) exit_code = setup_failed(s);
    if (exit_code != KN__EXIT_OK) {
        kn_comm_destroy(s->comm);
        return exit_code;
    }
    s->report = kn__output_begin(&o->common);
    s->files =
        (kn__train_files){.metrics = o->metrics,
                          .tensorboard = o->tensorboard,
                          .curves = o->curves,
                          .continues = o->resume,
                          .saved_loss = o->resume ? kn__loss_saved(o->checkpoint) : (double)NAN,
                          .title = o->model[0]};
    exit_code = session_run(s);
    session_close(s);
    return kn__output_end(&s->report, exit_code);
}

static int run(void *options_of) {
    session s = {.options = *(const options *)options_of};
    options *o = &s.options;
    int exit_code = options_check(o);
    if (exit_code != KN__EXIT_OK) return exit_code;
    kn_schedule schedule; /* resumed, it has its own rates */
    bool continues = o->resume && !kn__schedule_of(&schedule, &o->update, o->model[0], 1, 1);
    if (o->update.lr == 0 && continues) o->update.lr = kn__rate_saved(o->checkpoint);
    if (o->update.lr == 0) o->update.lr = kn__optimizer_rate(o->optimizer, o->model[0]);
    if (o->batch == 0) o->batch = kn__model_batch(o->model[0]);
    if (!o->data_dir) o->data_dir = kn__model_path(o->model[0]);
    kn__interrupt_attach(o->checkpoint != NULL);
    exit_code = train_and_report(&s);
    kn__interrupt_detach();
    return exit_code;
}

const kn__command kn__cmd_train = {
    .name = "train",
    .summary = "train a model and report loss, accuracy and memory",
    .description =
        "Trains a model, one of those that knet models lists, on Fashion-MNIST, on other images, "
        "on a text or on made-up data, and reports loss, accuracy, time and memory.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "KNET_TIMER=1 prints at exit where time and memory went. Ctrl-C stops after the step, "
        "and so do SIGTERM and SIGHUP; a second Ctrl-C stops at once. With --checkpoint all of "
        "these save first, and so does SIGUSR1. Under mpirun or srun the processes train one "
        "model: --batch is the batch of each, and the first one prints and saves; "
        "KNET_COMM=timeout=10min sets how long they wait for each other.",
    .examples = (const kn__pair[]){{"knet train lenet --epochs 3", "on the CPU"},
                                   {"KNET_TIMER=1 knet train lenet --device cuda",
                                    "on a GPU, with a table of time and memory"},
                                   {"knet train mlp --synthetic --json --output run.json",
                                    "without files, for scripts"},
                                   {"knet train lenet --checkpoint run.safetensors --resume",
                                    "continues where the last run ended, or was killed"},
                                   {"mpirun -n 2 knet train lenet", "by two processes"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
