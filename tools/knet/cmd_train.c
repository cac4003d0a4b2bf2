/* knet train: options, set-up, the training under a progress bar, the report. */
#include <inttypes.h>
#include <knet/op.h>
#include <knet/progress.h>
#include <knet/train.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "units.h"

enum { SYNTHETIC_TRAIN = 12800, SYNTHETIC_TEST = 2560 };

typedef struct options {
    kn__common common;
    const char *model[2];
    const char *optimizer, *device, *math, *data_dir;
    int64_t epochs, batch, threads, limit_bytes;
    double lr;
    uint64_t seed;
    bool synthetic, quiet;
} options;

typedef struct session {
    options options;
    kn_device *device;
    kn_pool *pool;
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
    kn_progress bar;
    kn__output report;
    kn_train_result result;
    /* The finished ones. */
    kn_epoch *epochs;
    int64_t n_epochs;
} session;

/* --- options --- */
typedef struct optimizer {
    const char *name;
    double lr; /* default rate */
    kn_status (*create)(kn_optim **out, kn_params *params, double lr);
} optimizer;

static kn_status sgd_create(kn_optim **out, kn_params *params, double lr) {
    return kn_sgd_create(out, params, lr, NULL);
}
static kn_status momentum_create(kn_optim **out, kn_params *params, double lr) {
    return kn_momentum_create(out, params, lr, 0.95, NULL);
}
static kn_status adam_create(kn_optim **out, kn_params *params, double lr) {
    return kn_adam_create(out, params, lr, NULL);
}

/* Rates as Knet.jl's defaults; momentum's there is for sums of gradients, here they are means. */
static const optimizer optimizers[] = {
    {"sgd", 0.1, sgd_create}, {"momentum", 0.02, momentum_create}, {"adam", 0.001, adam_create}};
static const char *const optimizer_names[] = {"sgd", "momentum", "adam", NULL};

static const char *const math_names[] = {"strict", "tf32", "bf16", NULL};

static kn_math_mode math_find(const char *name) {
    kn_math_mode mode = KN_MATH_STRICT;
    while (strcmp(kn_math_mode_name(mode), name) != 0) mode++; /* the parser let no other through */
    return mode;
}

static const optimizer *optimizer_find(const char *name) {
    const optimizer *o = optimizers;
    while (strcmp(o->name, name) != 0) o++; /* the parser let no other name through */
    return o;
}

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"epochs", KN__OPT_COUNT, AT(epochs), .value_name = "N", .max = 1000000, .initial = "3",
     .help = "times through the images"},
    {"batch", KN__OPT_COUNT, AT(batch), .value_name = "N", .max = 1 << 24, .initial = "128",
     .help = "images per step"},
    {"lr", KN__OPT_NUMBER, AT(lr), .value_name = "RATE",
     .initial_shown = "sgd 0.1, momentum 0.02, adam 0.001", .help = "learning rate"},
    {"optimizer", KN__OPT_CHOICE, AT(optimizer), .value_name = "NAME", .choices = optimizer_names,
     .initial = "adam", .help = "rule of the update"},
    {"seed", KN__OPT_SEED, AT(seed), .value_name = "N", .initial = "1",
     .help = "seed of weights and shuffles"},
    {"device", KN__OPT_TEXT, AT(device), .value_name = "NAME", .initial = "cpu",
     .help = "where to compute", .remark = "cpu, cuda or cuda:N"},
    {"threads", KN__OPT_COUNT, AT(threads), .value_name = "N", .max = 1024, .initial_shown = "all",
     .help = "threads of the CPU", .remark = "the result is the same for any number"},
    {"math", KN__OPT_CHOICE, AT(math), .value_name = "MODE", .choices = math_names,
     .initial = "strict", .help = "arithmetic of products on a GPU",
     .remark = "tf32 and bf16 need --device cuda"},
    {"data", KN__OPT_FOLDER, AT(data_dir), .value_name = "DIR", .not_with = "synthetic",
     .initial = "/usr/share/datasets/fashion-mnist", .help = "folder of idx files, as of MNIST"},
    {"synthetic", KN__OPT_FLAG, AT(synthetic), .help = "use made-up images, which need no files"},
    {"limit", KN__OPT_BYTES, AT(limit_bytes), .value_name = "BYTES",
     .help = "the most memory that the pool may reserve, such as 512MiB"},
    {"quiet", KN__OPT_FLAG, AT(quiet), .help = "print no progress bar and no line per epoch"},
};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), kn_model_name_at, false};
#undef AT

/* Checks what the option table cannot express. */
static int options_check(const options *o) {
    if (strcmp(o->device, "sim") == 0)
        return kn__fail_usage(
            "device sim computes nothing, it only counts memory; "
            "use cpu, cuda or cuda:N");
    if (strcmp(o->device, "cpu") == 0 && strcmp(o->math, "strict") != 0)
        return kn__fail_usage(
            "--math %s applies only with --device cuda: the CPU computes strictly", o->math);
    return KN__EXIT_OK;
}

/* --- interruption --- */
static volatile sig_atomic_t interrupted; /* 0, or by which signal */

static void interrupt(int signal_number) { interrupted = signal_number; }

/* The second Ctrl-C meets the default action; a second hang-up is common, from the shell and the
 * kernel. What is ignored stays so (nohup), but for Ctrl-C: shells ignore it in what they start in
 * the background. */
static void interrupt_attach(void) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = interrupt};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction before;
        sigaction(ends[i], NULL, &before);
        action.sa_flags = SA_RESTART | (ends[i] == SIGINT ? (int)SA_RESETHAND : 0);
        if (ends[i] == SIGINT || before.sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
    }
}

/* --- set-up --- */
static kn_status device_open(session *s) {
    const options *o = &s->options;
    KN_TRY(kn_device_find(&s->device, o->device));
    s->pool = kn_device_pool(s->device);
    if (!s->pool) return kn_check();
    bool limited = o->limit_bytes > 0;
    /* Memory can run out: let the report name who holds it. */
    if (limited || kn_device_kind_get(s->device) == KN_DEVICE_CUDA) KN_TRY(kn_prof_owners_on());
    return limited ? kn_pool_limit(s->pool, (size_t)o->limit_bytes) : KN_OK;
}

static kn_status loader_open(kn_loader **out, const session *s, kn_split split, int64_t n_made) {
    const options *o = &s->options;
    kn_loader_options loader = {.batch = o->batch,
                                .seed = o->seed,
                                .device = s->device,
                                .split = split,
                                .partial = split == KN_TEST};
    return o->synthetic ? kn_loader_create_synthetic(out, n_made, &loader)
                        : kn_loader_create(out, o->data_dir, &loader);
}

static kn_status model_open(session *s) {
    KN_SCOPE("create model");
    const options *o = &s->options;
    KN_TRY(
        kn_params_create(&s->params, &(kn_params_options){.device = s->device, .seed = o->seed}));
    KN_TRY(kn_model_create(&s->model, o->model[0], s->params));
    return optimizer_find(o->optimizer)->create(&s->optim, s->params, o->lr);
}

static kn_status session_open(session *s) {
    KN_TRY(loader_open(&s->train, s, KN_TRAIN, SYNTHETIC_TRAIN));
    KN_TRY(loader_open(&s->test, s, KN_TEST, SYNTHETIC_TEST));
    KN_TRY(model_open(s));
    s->epochs = calloc((size_t)s->options.epochs, sizeof *s->epochs);
    return s->epochs ? KN_OK
                     : KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " epochs", s->options.epochs);
}

static void session_close(session *s) {
    kn_progress_end(&s->bar);
    kn_loader_destroy(s->train);
    kn_loader_destroy(s->test);
    kn_optim_destroy(s->optim);
    kn_model_destroy(s->model);
    kn_params_destroy(s->params);
    free(s->epochs);
}

/* --- training --- */
static bool step_done(void *ctx, const kn_train_step *step) {
    session *s = ctx;
    double loss = 0;
    if (kn_progress_due(&s->bar)) {
        kn_status status = kn_item(&loss, step->loss);
        if (status < 0) return kn_error_defer(status) == NULL; /* the loop takes it */
        char message[96];
        snprintf(message, sizeof message, "epoch %" PRId64 "/%" PRId64 " loss %.4f", step->epoch,
                 s->options.epochs, loss);
        kn_progress_show(&s->bar, (step->epoch - 1) * step->n_steps + step->index, message);
    }
    return !interrupted;
}

static bool test_going_on(void *ctx) {
    (void)ctx;
    return !interrupted;
}

static void epoch_done(void *ctx, const kn_epoch *epoch) {
    session *s = ctx;
    s->epochs[s->n_epochs++] = *epoch;
    if (s->options.quiet) return;
    kn_progress_clear(&s->bar);
    kn__output_line(&s->report,
                    "epoch %" PRId64 "/%" PRId64
                    "  loss %.4f  test accuracy %.2f %%  train %.2f s  test %.2f s\n",
                    epoch->index, s->options.epochs, epoch->loss, 100 * epoch->accuracy,
                    epoch->train_seconds, epoch->test_seconds);
    if (s->report.reader_gone && !interrupted) interrupted = SIGPIPE;
}

static kn_status session_train(session *s) {
    const options *o = &s->options;
    char params[32], images[32], batches[32];
    kn__count_text(params, sizeof params, kn_params_numel(s->params));
    kn__count_text(images, sizeof images, kn_loader_images(s->train));
    kn__count_text(batches, sizeof batches, kn_loader_batches(s->train));
    if (!o->quiet)
        kn__output_line(&s->report,
                        "%s: %s parameters; %s images, %s batches of %" PRId64
                        "; %s, rate %g; %s, %d thread%s%s%s\n",
                        o->model[0], params, images, batches, o->batch, o->optimizer, o->lr,
                        kn_device_name(s->device), kn_frame_threads(),
                        kn_frame_threads() == 1 ? "" : "s",
                        kn_frame_math() == KN_MATH_STRICT ? "" : ", math ",
                        kn_frame_math() == KN_MATH_STRICT ? "" : o->math);
    s->bar = kn_progress_begin(o->quiet || o->common.json ? NULL : stderr,
                               o->epochs * kn_loader_batches(s->train));
    kn_status status = kn_train(&s->result, sizeof s->result, s->model, s->optim, s->train, s->test,
                                &(kn_train_options){.epochs = o->epochs,
                                                    .on_step_fn = step_done,
                                                    .on_test_fn = test_going_on,
                                                    .on_epoch_fn = epoch_done,
                                                    .ctx = s});
    kn_progress_end(&s->bar);
    if (interrupted) s->result.stopped = true; /* after the last callback too */
    return status;
}

/* --- the report --- */
/* FNV-1a over the bytes of all parameters: equal exactly when training went the same way. */
static kn_status weights_hash(uint64_t *out, kn_params *params) {
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < kn_params_count(params); i++) {
        kn_tensor *w = kn_params_at(params, i, NULL);
        size_t n = (size_t)kn_tensor_numel(w) * kn_dtype_bytes(kn_tensor_dtype(w));
        unsigned char *bytes = malloc(n);
        if (!bytes) return KN_FAIL(KN_ERR_OOM, "no memory to read %zu bytes of parameters", n);
        kn_status status = kn_copy_out(bytes, n, w);
        for (size_t k = 0; status == KN_OK && k < n; k++) hash = (hash ^ bytes[k]) * 1099511628211u;
        free(bytes);
        KN_TRY(status);
    }
    *out = hash;
    return KN_OK;
}

static void epochs_json(const session *s, kn__text *out) {
    for (int64_t i = 0; i < s->n_epochs; i++) {
        const kn_epoch *e = &s->epochs[i];
        kn__text_printf(out, "%s{\"epoch\":%" PRId64 ",\"loss\":", i ? "," : "", e->index);
        kn__json_number(out, e->loss);
        kn__text_puts(out, ",\"test_accuracy\":");
        kn__json_number(out, e->accuracy);
        kn__text_printf(out, ",\"train_seconds\":%.6f,\"test_seconds\":%.6f}", e->train_seconds,
                        e->test_seconds);
    }
}

static void result_json(session *s, const char *status, const char *message) {
    const options *o = &s->options;
    kn__text *out = &s->report.text;
    kn_pool_stats stats = {0};
    uint64_t hash = 0;
    kn_pool_stats_read(&stats, sizeof stats, s->pool);
    kn__text_printf(out, "{\"model\":\"%s\",\"parameters\":%" PRId64 ",\"data\":", o->model[0],
                    kn_params_numel(s->params));
    kn__text_json(out, o->synthetic ? "synthetic" : o->data_dir);
    kn__text_printf(out,
                    ",\"images\":%" PRId64 ",\"batch\":%" PRId64
                    ",\"optimizer\":\"%s\",\"lr\":%.17g"
                    ",\"seed\":%" PRIu64
                    ",\"device\":\"%s\",\"threads\":%d,\"math\":\"%s\",\"epochs\":[",
                    kn_loader_images(s->train), o->batch, o->optimizer, o->lr, o->seed,
                    kn_device_name(s->device), kn_frame_threads(), o->math);
    epochs_json(s, out);
    kn__text_printf(out, "],\"steps\":%" PRId64 ",\"seconds\":%.6f", s->result.n_steps,
                    s->result.seconds);
    if (weights_hash(&hash, s->params) == KN_OK)
        kn__text_printf(out, ",\"weights_fnv1a\":\"%016" PRIx64 "\"", hash);
    kn__text_printf(out,
                    ",\"memory\":{\"live_bytes_max\":%" PRIu64 ",\"reserved_bytes_max\":%" PRIu64
                    "},\"status\":\"%s\"",
                    stats.live_bytes_max, stats.reserved_bytes_max, status);
    if (message) {
        kn__text_puts(out, ",\"error\":");
        kn__text_json(out, message);
    }
    kn__text_puts(out, "}\n");
}

static void result_text(session *s) {
    const kn_epoch *last = s->n_epochs ? &s->epochs[s->n_epochs - 1] : NULL;
    kn_pool_stats stats = {0};
    kn_pool_stats_read(&stats, sizeof stats, s->pool);
    if (s->result.stopped)
        kn__output_line(&s->report, "interrupted in epoch %" PRId64 " after %" PRId64 " steps\n",
                        s->result.last.index, s->result.n_steps);
    if (s->options.quiet && last)
        kn__output_line(&s->report, "loss %.4f  test accuracy %.2f %%  %.2f s\n", last->loss,
                        100 * last->accuracy, s->result.seconds);
    kn__output_line(&s->report, "memory: at most %s live, %s reserved (pool %s)\n",
                    kn__bytes_text((double)stats.live_bytes_max).text,
                    kn__bytes_text((double)stats.reserved_bytes_max).text, kn_pool_name(s->pool));
    if (last && !isfinite(last->loss))
        kn__warn("the loss is %s; a smaller --lr may help", isnan(last->loss) ? "NaN" : "infinite");
}

static int status_exit_code(kn_status status, bool setting_up) {
    switch (status) {
        case KN_OK:
            return KN__EXIT_OK;
        case KN_ERR_DEVICE:
            return KN__EXIT_USAGE;
        case KN_ERR_OOM:
            return KN__EXIT_OOM;
        case KN_ERR_INVALID:
            return setting_up ? KN__EXIT_USAGE : KN__EXIT_FAILURE;
        default:
            return KN__EXIT_FAILURE;
    }
}

static int error_report(const kn_error *error, bool setting_up) {
    kn__fail("%s", error->message);
    return status_exit_code(error->status, setting_up);
}

static int session_report(session *s, kn_status status, const kn_error *error) {
    int exit_code = status < 0 ? error_report(error, false) : KN__EXIT_OK;
    if (s->options.common.json) {
        const char *word = status < 0 ? "failed" : s->result.stopped ? "interrupted" : "ok";
        result_json(s, word, status < 0 ? error->message : NULL);
    } else {
        result_text(s);
    }
    if (exit_code == KN__EXIT_OK && s->result.stopped) exit_code = 128 + interrupted;
    return exit_code;
}

/* --- the command --- */
static int session_run(session *s) {
    KN_FRAME(.device = s->device, .threads = (int)s->options.threads,
             .math = (int)math_find(s->options.math));
    kn_status status = kn_check();
    if (status == KN_OK) status = session_open(s);
    if (status < 0) return error_report(kn_last_error(), true);
    status = session_train(s);
    kn_error error = *kn_last_error();
    return session_report(s, status, &error);
}

static int run(void *options_of) {
    session s = {.options = *(const options *)options_of};
    options *o = &s.options;
    int exit_code = options_check(o);
    if (exit_code != KN__EXIT_OK) return exit_code;
    if (o->lr == 0) o->lr = optimizer_find(o->optimizer)->lr;
    interrupt_attach();
    if (device_open(&s) < 0) return error_report(kn_last_error(), true);
    s.report = kn__output_begin(&o->common);
    exit_code = session_run(&s);
    session_close(&s);
    return kn__output_end(&s.report, exit_code);
}

const kn__command kn__cmd_train = {
    .name = "train",
    .summary = "train a model and report loss, accuracy and memory",
    .description =
        "Trains a model (lenet or mlp) on Fashion-MNIST, or on other images in its "
        "format, and reports loss, accuracy, time and memory.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "KNET_TIMER=1 prints at exit where time and memory went. Ctrl-C stops after the step, "
        "and so do SIGTERM and SIGHUP; a second Ctrl-C stops at once.",
    .examples = (const kn__pair[]){{"knet train lenet --epochs 3", "on the CPU"},
                                   {"KNET_TIMER=1 knet train lenet --device cuda",
                                    "on a GPU, with a table of time and memory"},
                                   {"knet train mlp --synthetic --json --output run.json",
                                    "without files, for scripts"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
