/* knet eval, knet predict: a trained model on the test images. */
#include <inttypes.h>
#include <knet/train.h>
#include <math.h>
#include <string.h>

#include "cmd.h"
#include "model_data.h"
#include "output.h"
#include "ranks.h"

typedef struct options {
    kn__common common;
    const char *model[2];
    const char *weights, *device, *data_dir;
    int64_t batch, threads, count;
    bool synthetic, frozen;
} options;

typedef struct session {
    const options *options;
    kn_device *device;
    kn_params *params;
    kn_model *model;
    kn_loader *test;
    bool averaged; /* the weights are the averages of --ema */
    kn__output report;
} session;

#define AT(member) offsetof(options, member)
#define COMMON_OPTIONS                                                                             \
    {"weights",                                                                                    \
     KN__OPT_FILE,                                                                                 \
     AT(weights),                                                                                  \
     .value_name = "FILE",                                                                         \
     .is_needed = true,                                                                            \
     .help = "checkpoint of knet train, or another safetensors file with these weights",           \
     .remark = "the averages of --ema where it has them"},                                         \
        {"batch",                                                                                  \
         KN__OPT_COUNT,                                                                            \
         AT(batch),                                                                                \
         .value_name = "N",                                                                        \
         .max = 1 << 24,                                                                           \
         .initial = "128",                                                                         \
         .help = "images at a time"},                                                              \
        {"device",                                                                                 \
         KN__OPT_TEXT,                                                                             \
         AT(device),                                                                               \
         .value_name = "NAME",                                                                     \
         .initial = "cpu",                                                                         \
         .help = "where to compute",                                                               \
         .remark = "cpu, cuda or cuda:N"},                                                         \
        {"threads",                                                                                \
         KN__OPT_COUNT,                                                                            \
         AT(threads),                                                                              \
         .value_name = "N",                                                                        \
         .max = 1024,                                                                              \
         .initial_shown = "all",                                                                   \
         .help = "threads of the CPU",                                                             \
         .remark = "the result is the same for any number"},                                       \
        {"data",                                                                                   \
         KN__OPT_FOLDER,                                                                           \
         AT(data_dir),                                                                             \
         .value_name = "DIR",                                                                      \
         .not_with = "synthetic",                                                                  \
         .initial_shown = "as knet train",                                                         \
         .help = "the data to test it on"},                                                        \
        {"frozen", KN__OPT_FLAG, AT(frozen),                                                       \
         .help = "fold normalization into convolutions: faster, the same but for rounding"},       \
    {                                                                                              \
        "synthetic", KN__OPT_FLAG, AT(synthetic), .help = "use made-up data, which needs no files" \
    }
static const kn__opt eval_table[] = {COMMON_OPTIONS};
static const kn__opt predict_table[] = {
    COMMON_OPTIONS,
    {"count", KN__OPT_COUNT, AT(count), .value_name = "N", .max = INT64_MAX, .initial_shown = "all",
     .help = "only the first N images"}};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), .choice_at = kn_model_name_at};
#undef AT

/* --- set-up --- */

static int options_check(const options *o) {
    if (strcmp(o->device, "sim") == 0)
        return kn__fail_usage("device sim computes nothing; use cpu, cuda or cuda:N");
    if (!o->weights) return kn__fail_usage("--weights FILE is needed: what knet train saved");
    return kn__model_data_check(o->model[0], o->synthetic, o->data_dir);
}

static kn_status session_open(session *s) {
    const options *o = s->options;
    kn_loader_options loader = {
        .batch = o->batch, .device = s->device, .split = KN_TEST, .partial = 1};
    kn_vocab *vocab = NULL;
    KN_TRY(kn__model_vocab(&vocab, o->weights));
    kn_status status =
        kn__model_loader(&s->test, o->model[0], o->synthetic, o->data_dir, vocab, &loader);
    kn_vocab_destroy(vocab);
    KN_TRY(status);
    KN_TRY(kn_params_create(&s->params, &(kn_params_options){.device = s->device}));
    KN_TRY(kn_model_create(&s->model, o->model[0], s->params));
    KN_TRY(kn__model_weights(&s->averaged, s->model, o->weights));
    return o->frozen ? kn_freeze(s->model) : KN_OK;
}

static void session_close(session *s) {
    kn_loader_destroy(s->test);
    kn_model_destroy(s->model);
    kn_params_destroy(s->params);
}

static int run_with(const options *o, kn_status (*work_fn)(session *s)) {
    session s = {.options = o};
    int exit_code = options_check(o);
    if (exit_code != KN__EXIT_OK) return exit_code;
    kn__ranks_unused();
    s.report = kn__output_begin(&o->common);
    kn_status status = kn_device_find(&s.device, o->device);
    bool is_device_bad = status < 0;
    if (status == KN_OK) {
        KN_FRAME(.device = s.device, .threads = (int)o->threads, .record = KN_OFF);
        status = kn_check();
        if (status == KN_OK) status = session_open(&s);
        if (status == KN_OK) status = work_fn(&s);
        if (status < 0) kn__fail_last();
        session_close(&s);
    } else {
        kn__fail_last();
    }
    if (status < 0) s.report.text.length = 0; /* discards the first part */
    exit_code = status == KN_OK        ? KN__EXIT_OK
                : is_device_bad        ? KN__EXIT_USAGE
                : status == KN_ERR_OOM ? KN__EXIT_OOM
                                       : KN__EXIT_FAILURE;
    return kn__output_end(&s.report, exit_code);
}

/* --- classes --- */

/* Of each image of a batch, in the caller's frame. */
typedef struct classes {
    const float *share; /* the highest probability */
    const int64_t *at;  /* the class that has it */
} classes;

static kn_status batch_classes(classes *out, const session *s, const kn_batch *b) {
    kn_tensor *p = kn_softmax(kn_model_predict(s->model, b), 1), *best = NULL, *at = NULL;
    KN_TRY(kn_max_index(&best, &at, p, KN_SHAPE(1), false));
    out->share = kn_data(kn_to(best, kn_device_host()));
    out->at = kn_data(kn_to(at, kn_device_host()));
    return out->share && out->at ? KN_OK : kn_check();
}

/* A class of NaN would be one like any other. */
static kn_status share_check(double share, int64_t image) {
    if (!isnan(share)) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "the model's probabilities of image %" PRId64
                   " are NaN: its weights are damaged, or its training diverged",
                   image);
}

/* --- eval --- */

static kn_status loss_is_nan(session *s) {
    int64_t image = 0;
    kn_loader_rewind(s->test);
    for (kn_batch b; kn_model_is_classifier(s->model) && kn_loader_next(s->test, &b);) {
        KN_FRAME();
        classes found;
        KN_TRY(batch_classes(&found, s, &b));
        for (int64_t i = 0; i < b.n; i++) KN_TRY(share_check((double)found.share[i], image++));
    }
    KN_TRY(kn_check());
    return KN_FAIL(KN_ERR_INVALID,
                   "the model's loss is NaN: its weights are damaged, or its training diverged");
}

static kn_status evaluate(session *s) {
    const options *o = s->options;
    kn_test_result result;
    char images[32];
    KN_TRY(kn_test(&result, s->model, s->test));
    if (isnan(result.loss)) return loss_is_nan(s);
    kn__count_text(images, sizeof images, result.n_images);
    if (!o->common.json) {
        kn__output_line(&s->report, "%s: %s test %s; loss %.4f", o->model[0], images,
                        kn__model_samples(o->model[0], result.n_images), result.loss);
        if (kn_model_is_classifier(s->model))
            kn__output_line(&s->report, "  accuracy %.2f %%", 100 * result.accuracy);
        kn__output_line(&s->report, s->averaged ? "  (averaged weights)\n" : "\n");
        return KN_OK;
    }
    kn__text *out = &s->report.text;
    kn__text_printf(out, "{\"model\":\"%s\",\"weights\":", o->model[0]);
    kn__text_json(out, o->weights);
    kn__text_puts(out, ",\"data\":");
    kn__text_json(out, o->synthetic  ? "synthetic"
                       : o->data_dir ? o->data_dir
                                     : kn__model_path(o->model[0]));
    kn__text_printf(out, ",\"images\":%" PRId64 ",\"loss\":", result.n_images);
    kn__output_number(out, result.loss);
    kn__text_puts(out, ",\"accuracy\":");
    kn__output_number(out, result.accuracy);
    kn__text_printf(out, ",\"averaged\":%s}\n", s->averaged ? "true" : "false");
    return KN_OK;
}

static int eval_run(void *of) { return run_with(of, evaluate); }

const kn__command kn__cmd_eval = {
    .name = "eval",
    .summary = "test a trained model",
    .description = "Computes the loss and the accuracy of a trained model on the test images.",
    .operand = &operand,
    .opts = eval_table,
    .n_opts = sizeof eval_table / sizeof *eval_table,
    .has_result = true,
    .notes =
        "The loss of dcgan compares the mean image of a batch of its own with that of a batch "
        "of the data, so it depends on --batch: give that of the training, which is 64 unless "
        "given, to compare with its test loss.",
    .examples = (const kn__pair[]){{"knet eval lenet --weights run.safetensors",
                                    "what knet train --checkpoint saved"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = eval_run,
};

/* --- predict --- */

/* The class with the highest probability, for each image of the batch. */
static kn_status batch_predict(session *s, const kn_batch *b, int64_t *n_left, int64_t *index) {
    KN_FRAME();
    classes found;
    KN_TRY(batch_classes(&found, s, b));
    const int64_t *label = kn_data(kn_to(b->y, kn_device_host()));
    if (!label) return kn_check();
    for (int64_t i = 0; i<b->n && * n_left> 0; i++, (*n_left)--, (*index)++) {
        double share = (double)found.share[i];
        KN_TRY(share_check(share, *index));
        kn__output_line(&s->report, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%.6f\n", *index,
                        found.at[i], label[i], share);
        if (!s->options->common.json) continue;
        kn__text_printf(&s->report.text,
                        "%s{\"image\":%" PRId64 ",\"class\":%" PRId64 ",\"label\":%" PRId64
                        ",\"probability\":",
                        *index ? ",\n" : "", *index, found.at[i], label[i]);
        kn__output_number(&s->report.text, share);
        kn__text_puts(&s->report.text, "}");
    }
    return KN_OK;
}

static kn_status predict(session *s) {
    int64_t n_left = s->options->count ? s->options->count : INT64_MAX, index = 0;
    if (!kn_model_is_classifier(s->model))
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the model %s does not classify", s->options->model[0]);
    kn__output_line(&s->report, "image,class,label,probability\n");
    if (s->options->common.json) kn__text_puts(&s->report.text, "{\"predictions\":[");
    for (kn_batch b; n_left > 0 && kn_loader_next(s->test, &b);)
        KN_TRY(batch_predict(s, &b, &n_left, &index));
    if (s->options->common.json)
        kn__text_printf(&s->report.text, "],\"averaged\":%s}\n", s->averaged ? "true" : "false");
    return kn_check();
}

static int predict_run(void *of) { return run_with(of, predict); }

const kn__command kn__cmd_predict = {
    .name = "predict",
    .summary = "print what a trained model takes the test images for",
    .description =
        "Prints a line for each test image, in their order: its class by the model, the label that "
        "the data has, and the model's probability.",
    .operand = &operand,
    .opts = predict_table,
    .n_opts = sizeof predict_table / sizeof *predict_table,
    .has_result = true,
    .examples = (const kn__pair[]){{"knet predict lenet --weights run.safetensors --count 10",
                                    "the first ten images"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = predict_run,
};
