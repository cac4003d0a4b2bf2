/* knet bench: how long a step of a model takes, and how much memory. */
#include <inttypes.h>
#include <knet/prof_read.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "model_data.h"
#include "model_steps.h"
#include "output.h"
#include "ranks.h"
#include "units.h"

typedef struct options {
    kn__common common;
    const char *model[2];
    const char *device, *dtype, *recompute;
    int64_t batch, threads, steps;
    bool frozen, capture;
} options;

static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"batch", KN__OPT_COUNT, AT(batch), .value_name = "N", .max = 1 << 24,
     .initial_shown = "the record's", .help = "samples per step"},
    {"steps", KN__OPT_COUNT, AT(steps), .value_name = "N", .max = 1000000,
     .initial_shown = "a second, 5 or more", .help = "steps that are timed"},
    {"device", KN__OPT_TEXT, AT(device), .value_name = "NAME", .initial = "cpu",
     .help = "where to compute", .remark = "cpu, cuda or cuda:N"},
    {"dtype", KN__OPT_CHOICE, AT(dtype), .value_name = "TYPE", .choices = dtype_names,
     .initial = "f32", .help = "type of the parameters",
     .remark = "f16, bf16: mixed precision, f32 parameters and 16-bit activations"},
    {"threads", KN__OPT_COUNT, AT(threads), .value_name = "N", .max = 1024, .initial_shown = "all",
     .help = "threads of the CPU"},
    KN__RECOMPUTE_OPTION(AT(recompute)),
    {"frozen", KN__OPT_FLAG, AT(frozen),
     .help = "inference by the frozen form, with normalization folded into convolutions"},
    {"capture", KN__OPT_FLAG, AT(capture), .help = "record each step once and replay it",
     .remark = "not of models whose step reads data on the host, such as tree_lstm"},
};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), .choice_at = kn_model_name_at};
#undef AT

/* --- the result --- */

enum { OPS_MAX = 10, LABEL_MAX = 63 };
typedef struct op_row {
    char label[LABEL_MAX + 1];
    uint64_t n_calls, own_ns;
} op_row;

typedef struct result {
    const options *options;
    kn__output report;
    int64_t n; /* samples of a step */
    kn_device *device;
    op_row op[OPS_MAX]; /* by time, the longest first; with KNET_TIMER=1 */
    int n_ops;
} result;

/* Keeps the rows with the longest times. Scopes of the warm-up alone have no calls. */
static bool op_add(void *ctx, const kn_prof_row *row) {
    result *r = ctx;
    if (!row->n_calls) return true;
    int at = r->n_ops < OPS_MAX ? r->n_ops++ : OPS_MAX;
    while (at > 0 && r->op[at - 1].own_ns < row->own_ns) {
        if (at < OPS_MAX) r->op[at] = r->op[at - 1];
        at--;
    }
    if (at == OPS_MAX) return true;
    snprintf(r->op[at].label, sizeof r->op[at].label, "%s", row->path);
    r->op[at].n_calls = row->n_calls;
    r->op[at].own_ns = row->own_ns;
    return true;
}

static double median(const kn__step_times *t) {
    return t->n % 2 ? t->ns[t->n / 2] : (t->ns[t->n / 2 - 1] + t->ns[t->n / 2]) / 2;
}
/* Half of the times lie within it. */
static double spread(const kn__step_times *t) { return t->ns[t->n * 3 / 4] - t->ns[t->n / 4]; }

static void ops_json(result *r, int64_t n_steps) {
    kn__text *out = &r->report.text;
    for (int i = 0; i < r->n_ops; i++) {
        kn__text_puts(out, i ? ",{\"op\":" : "{\"op\":");
        kn__text_json(out, r->op[i].label);
        kn__text_printf(out, ",\"calls\":%" PRIu64 ",\"ns_per_step\":%.0f}", r->op[i].n_calls,
                        (double)r->op[i].own_ns / (double)n_steps);
    }
}

static void part_json(result *r, const char *what, const kn__step_times *t) {
    kn__text *out = &r->report.text;
    kn__text_printf(out, ",\"%s\":{\"median_ns\":%.0f,\"min_ns\":%.0f,\"spread_ns\":%.0f", what,
                    median(t), t->ns[0], spread(t));
    kn__text_printf(out,
                    ",\"steps\":%" PRId64 ",\"samples_per_second\":%.6g,\"live_bytes_max\":%" PRIu64
                    ",\"reserved_bytes_max\":%" PRIu64 ",\"ops\":[",
                    t->n, 1e9 * (double)r->n / median(t), t->live_max, t->reserved_max);
    ops_json(r, t->n);
    kn__text_puts(out, "]}");
}

static void part_text(result *r, const char *what, const kn__step_times *t) {
    kn__output *report = &r->report;
    double rate = 1e9 * (double)r->n / median(t);
    char samples[32];
    snprintf(samples, sizeof samples, rate < 99.95 ? "%#.3g" : "%.0f", rate);
    kn__output_line(report,
                    "%-6s %10.3f ms a step, least %.3f, spread %.3f, %" PRId64
                    " step%s; %s samples a second\n",
                    what, median(t) * 1e-6, t->ns[0] * 1e-6, spread(t) * 1e-6, t->n,
                    t->n == 1 ? "" : "s", samples);
    kn__output_line(report, "       at most %s live, %s reserved\n",
                    kn__bytes_text((double)t->live_max).text,
                    kn__bytes_text((double)t->reserved_max).text);
    for (int i = 0; i < r->n_ops; i++)
        kn__output_line(report, "       %10.3f ms  %s\n",
                        (double)r->op[i].own_ns * 1e-6 / (double)t->n, r->op[i].label);
}

/* --- the measurement --- */

static void head_print(result *r, const kn__model_steps *steps) {
    const options *o = r->options;
    int64_t n_params = kn_params_numel(steps->params);
    int threads = kn_frame_threads();
    char params[32];
    kn__count_text(params, sizeof params, n_params);
    kn__output_line(&r->report, "%s: %s parameters, batch %" PRId64 ", %s; %s, %d thread%s\n",
                    o->model[0], params, steps->n, o->dtype, kn_device_name(r->device), threads,
                    threads == 1 ? "" : "s");
    if (o->common.json)
        kn__text_printf(&r->report.text,
                        "{\"model\":\"%s\",\"parameters\":%" PRId64 ",\"batch\":%" PRId64
                        ",\"dtype\":\"%s\",\"device\":\"%s\",\"threads\":%d",
                        o->model[0], n_params, steps->n, o->dtype, kn_device_name(r->device),
                        threads);
}

static kn_status part_measure(result *r, kn__model_steps *steps, const char *name, int what) {
    kn__step_times times = {0};
    bool timed = getenv("KNET_TIMER") != NULL;
    r->n = steps->n;
    r->n_ops = 0;
    KN_TRY(kn__model_steps_warm_up(steps, what));
    if (timed) timed = kn_prof_reset() == KN_OK; /* without the warm-up */
    kn_status status = kn__model_steps_time(&times, steps, what, r->options->steps);
    if (status == KN_OK && timed) status = kn_prof_visit_flat(op_add, r);
    if (status == KN_OK && r->options->common.json)
        part_json(r, name, &times);
    else if (status == KN_OK)
        part_text(r, name, &times);
    free(times.ns);
    return status;
}

/* Makes the model ready for one kind of step. */
static kn_status part_prepare(const options *o, kn__model_steps *steps, int what) {
    kn_pool *pool = kn_device_pool(kn_frame_device());
    kn__recompute_set(steps->model, o->recompute);
    if (o->capture) KN_TRY(kn__model_steps_capture(steps));
    if (what == KN__STEPS_INFER) {
        kn_optim_destroy(steps->optim);
        steps->optim = NULL;
        if (o->frozen) KN_TRY(kn_freeze(steps->model));
    }
    if (!pool) return KN_OK;
    KN_TRY(kn_pool_sync(pool)); /* returns what the other kind reserved */
    return kn_pool_trim(pool, 0);
}

/* Each kind of step has a model of its own: gradients live as long as their parameters. */
static kn_status part_run(result *r, const char *name, int what) {
    const options *o = r->options;
    kn__model_steps steps = {0};
    kn_status status = kn__model_steps_open(&steps, o->model[0], o->batch, kn_frame_dtype());
    if (status == KN_OK && what == KN__STEPS_TRAIN) head_print(r, &steps);
    if (status == KN_OK) status = part_prepare(o, &steps, what);
    if (status == KN_OK) status = part_measure(r, &steps, name, what);
    kn__model_steps_close(&steps);
    return status;
}

static kn_status bench(result *r) {
    const options *o = r->options;
    KN_FRAME(.device = r->device, .threads = (int)o->threads, .record = KN_OFF);
    KN_TRY(kn_check());
    KN_FRAME(.dtype = strcmp(o->dtype, "f64") == 0 ? KN_F64 : KN_F32,
             .autocast = kn__autocast_find(o->dtype));
    KN_TRY(part_run(r, "train", KN__STEPS_TRAIN));
    KN_TRY(part_run(r, "infer", KN__STEPS_INFER));
    if (o->common.json) kn__text_puts(&r->report.text, "}\n");
    return KN_OK;
}

static int run(void *options_of) {
    const options *o = options_of;
    result r = {.options = o};
    if (strcmp(o->device, "sim") == 0)
        return kn__fail_usage("device sim computes nothing; use cpu, cuda or cuda:N");
    int exit_code = o->capture ? kn__model_capture_check(o->model[0], "--capture") : KN__EXIT_OK;
    if (exit_code != KN__EXIT_OK) return exit_code;
    kn__ranks_unused();
    r.report = kn__output_begin(&o->common);
    kn_status status = kn_device_find(&r.device, o->device);
    if (status < 0) exit_code = KN__EXIT_USAGE;
    if (status == KN_OK) {
        status = bench(&r);
        if (status < 0) exit_code = status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_FAILURE;
    }
    if (status < 0) kn__fail_last();
    if (status < 0) r.report.text.length = 0; /* discards the first part */
    return kn__output_end(&r.report, exit_code);
}

const kn__command kn__cmd_bench = {
    .name = "bench",
    .summary = "measure the time and memory of a model's steps",
    .description =
        "Measures a training step (forward, backward, update) and an inference of a model on one "
        "made-up batch: the median and the least time, the spread that half of the times lie "
        "within, samples a second, and the most memory, which inference has without gradients "
        "and optimiser.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "With KNET_TIMER=1 the ten scopes that take the longest are listed too, with their "
        "time in a step.",
    .examples =
        (const kn__pair[]){{"knet bench lenet", "at the record's batch"},
                           {"knet bench resnet50 --batch 32 --threads 1 --json", "for scripts"},
                           {"knet bench resnet50 --batch 32 --frozen", "as a service would run it"},
                           {"KNET_TIMER=1,out=/dev/null knet bench gpt", "with the time of ops"},
                           {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
