/* knet scale: what a training step of a model would take on more ranks. */
#include <inttypes.h>
#include <knet/forecast.h>
#include <knet/tape.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "cmd.h"
#include "model_steps.h"
#include "now.h"
#include "output.h"
#include "units.h"

typedef struct options {
    kn__common common;
    const char *model[2];
    const char *ranks;
    double latency, overhead;
    int64_t bandwidth, batch, threads, steps;
} options;

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"ranks", KN__OPT_TEXT, AT(ranks), .value_name = "N", .initial = "1..1024",
     .help = "numbers of ranks", .remark = "FIRST..LAST by doubling, or one number"},
    {"bandwidth", KN__OPT_BYTES, AT(bandwidth), .value_name = "BYTES", .initial = "12.5GB",
     .help = "of each rank's link, a second"},
    {"latency", KN__OPT_TIME, AT(latency), .value_name = "TIME", .initial = "5us",
     .may_be_zero = true, .help = "of each message"},
    {"overhead", KN__OPT_TIME, AT(overhead), .value_name = "TIME", .initial = "150ns",
     .may_be_zero = true, .help = "of the processor for each message"},
    {"batch", KN__OPT_COUNT, AT(batch), .value_name = "N", .max = 1 << 24,
     .initial_shown = "the record's", .help = "samples per step of a rank"},
    {"threads", KN__OPT_COUNT, AT(threads), .value_name = "N", .max = 1024, .initial_shown = "all",
     .help = "threads of a rank"},
    {"steps", KN__OPT_COUNT, AT(steps), .value_name = "N", .max = 100000,
     .initial_shown = "a second, 5 or more", .help = "steps that are timed"},
};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), .choice_at = kn_model_name_at};
#undef AT

enum { RANKS_MAX = 4096 };

typedef struct ask {
    const options *options;
    int first, last; /* ranks */
    kn_forecast_link link;
    kn__output report;
    int64_t batch;
} ask;

/* --- options --- */

static bool rank_read(int *out, const char *text) {
    uint64_t n = 0;
    if (!kn__read_count(&n, text) || n < 1 || n > RANKS_MAX) return false;
    *out = (int)n;
    return true;
}

static bool ranks_read(ask *a) {
    char first[24];
    const char *dots = strstr(a->options->ranks, "..");
    if (!dots)
        return rank_read(&a->first, a->options->ranks) && rank_read(&a->last, a->options->ranks);
    size_t n = (size_t)(dots - a->options->ranks);
    if (n >= sizeof first) return false;
    memcpy(first, a->options->ranks, n);
    first[n] = '\0';
    return rank_read(&a->first, first) && rank_read(&a->last, dots + 2) && a->first <= a->last;
}

/* What the option table cannot express. */
static int options_read(ask *a) {
    const options *o = a->options;
    if (!ranks_read(a))
        return kn__fail_usage(
            "--ranks is '%s', but must be a number from 1 to %d, or two such as "
            "1..64",
            o->ranks, RANKS_MAX);
    a->link.latency_seconds = o->latency;
    a->link.overhead_seconds = o->overhead;
    a->link.bandwidth = (double)o->bandwidth;
    return KN__EXIT_OK;
}

/* --- the timeline of one rank --- */

static kn_status step(kn__model_steps *s, kn_forecast *forecast) {
    const kn_batch b = {.x = s->x, .y = s->y, .n = s->n};
    double value = 0;
    KN_TAPE();
    kn_forecast_begin(forecast);
    kn_tensor *loss = kn_model_loss(s->model, &b);
    KN_TRY(kn_backward(loss));
    kn_forecast_backward_end(forecast);
    KN_TRY(kn_optim_step(s->optim));
    KN_TRY(kn_item(&value, loss));
    return kn_forecast_end(forecast);
}

static kn_status steps_run(kn__model_steps *s, kn_forecast *forecast, int64_t n) {
    enum { STEPS_MIN = 5, TIME_NS = 1000 * 1000 * 1000 };
    KN_TRY(step(s, forecast)); /* it learns the order, and is not counted */
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC), now = begin;
    for (int64_t i = 0; n ? i < n : i < STEPS_MIN || now - begin < TIME_NS; i++) {
        KN_TRY(step(s, forecast));
        now = kn__now_ns(CLOCK_MONOTONIC);
    }
    return KN_OK;
}

/* --- the result --- */

static double hidden(const kn_forecast_result *r) {
    return r->reduce_seconds > 0 ? 1 - r->wait_seconds / r->reduce_seconds : 1;
}

static void head_print(ask *a, const kn__model_steps *s, const kn_forecast_result *r) {
    const options *o = a->options;
    char params[32];
    kn__count_text(params, sizeof params, kn_params_numel(s->params));
    kn__output_line(
        &a->report, "%s: %s parameters, batch %" PRId64 " a rank; cpu, %d thread%s a rank\n",
        o->model[0], params, a->batch, kn_frame_threads(), kn_frame_threads() == 1 ? "" : "s");
    kn__output_line(&a->report, "links: %.3g GB/s, %s a message and %s of the processor\n",
                    1e-9 * a->link.bandwidth, kn__time_cell(1e9 * o->latency, true).text,
                    kn__time_cell(1e9 * o->overhead, true).text);
    kn__output_line(&a->report,
                    "one rank: %.3f ms a step; %s of gradients in %" PRId64 " bucket%s\n\n",
                    1e3 * r->alone_seconds, kn__bytes_text((double)r->bytes).text, r->n_buckets,
                    r->n_buckets == 1 ? "" : "s");
    kn__output_line(&a->report, "%5s %11s %11s %11s %7s %10s %12s %10s\n", "ranks", "step ms",
                    "reduce ms", "wait ms", "hidden", "efficiency", "samples/s", "messages");
    if (!o->common.json) return;
    kn__text *out = &a->report.text;
    kn__text_printf(out,
                    "{\"model\":\"%s\",\"parameters\":%" PRId64 ",\"batch\":%" PRId64
                    ",\"threads\":%d,\"bandwidth\":%.17g,\"latency_seconds\":%.17g"
                    ",\"overhead_seconds\":%.17g,\"gradient_bytes\":%" PRIu64
                    ",\"buckets\":%" PRId64 ",\"forecasts\":[",
                    o->model[0], kn_params_numel(s->params), a->batch, kn_frame_threads(),
                    a->link.bandwidth, a->link.latency_seconds, a->link.overhead_seconds, r->bytes,
                    r->n_buckets);
}

static void row_print(ask *a, int n, const kn_forecast_result *r) {
    double efficiency = r->alone_seconds / r->step_seconds;
    double samples = (double)n * (double)a->batch / r->step_seconds;
    kn__output_line(&a->report, "%5d %11.3f %11.3f %11.3f %5.1f %% %8.1f %% %12.0f %10" PRIu64 "\n",
                    n, 1e3 * r->step_seconds, 1e3 * r->reduce_seconds, 1e3 * r->wait_seconds,
                    100 * hidden(r), 100 * efficiency, samples, r->n_messages);
    if (!a->options->common.json) return;
    kn__text_printf(&a->report.text,
                    "%s{\"ranks\":%d,\"step_seconds\":%.9g,\"reduce_seconds\":%.9g"
                    ",\"wait_seconds\":%.9g,\"hidden\":%.6g,\"efficiency\":%.6g"
                    ",\"samples_per_second\":%.6g,\"messages\":%" PRIu64 "}",
                    n == a->first ? "" : ",", n, r->step_seconds, r->reduce_seconds,
                    r->wait_seconds, hidden(r), efficiency, samples, r->n_messages);
}

static kn_status forecasts_print(ask *a, const kn__model_steps *s, const kn_forecast *forecast) {
    kn_forecast_result r;
    for (int n = a->first;; n = n > a->last / 2 ? a->last : 2 * n) {
        KN_TRY(kn_forecast_ranks(&r, sizeof r, forecast, n, &a->link));
        if (n == a->first) head_print(a, s, &r);
        row_print(a, n, &r);
        if (n == a->last) break;
    }
    if (a->options->common.json) kn__text_puts(&a->report.text, "]}\n");
    return KN_OK;
}

/* --- the command --- */

static kn_status model_check(const kn__model_steps *s) {
    if (!kn_model_kind_of(s->model)->turns) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "%s trains in turns, which several ranks cannot",
                   kn_model_name(s->model));
}

static kn_status scale(ask *a) {
    const options *o = a->options;
    kn__model_steps steps = {0};
    kn_forecast *forecast = NULL;
    KN_FRAME(.threads = (int)o->threads, .record = KN_OFF);
    kn_status status = kn_check();
    if (status == KN_OK) status = kn__model_steps_open(&steps, o->model[0], o->batch, KN_F32);
    if (status == KN_OK) status = model_check(&steps);
    a->batch = steps.n;
    if (status == KN_OK)
        status = kn_forecast_create(&forecast, steps.params, &(kn_forecast_options){.n_values = 1});
    if (status == KN_OK) status = steps_run(&steps, forecast, o->steps);
    if (status == KN_OK) status = forecasts_print(a, &steps, forecast);
    kn_forecast_destroy(forecast);
    kn__model_steps_close(&steps);
    return status;
}

static int run(void *options_of) {
    ask a = {.options = options_of};
    int exit_code = options_read(&a);
    if (exit_code != KN__EXIT_OK) return exit_code;
    a.report = kn__output_begin(&a.options->common);
    kn_status status = scale(&a);
    if (status < 0) {
        exit_code = status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_FAILURE;
        kn__fail_last();
        a.report.text.length = 0;
    }
    return kn__output_end(&a.report, exit_code);
}

const kn__command kn__cmd_scale = {
    .name = "scale",
    .summary = "forecast a model's training steps on more ranks",
    .description =
        "Times training steps of a model on one rank, with a made-up batch, and when each part of "
        "its gradients is finished; then forecasts steps of more ranks, each with such a batch, a "
        "machine of this kind and a link: the time of a step, how much of the averaging of "
        "gradients backward hides, and the efficiency, which is the time of one rank's step "
        "divided by it.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "The forecast follows the messages of the library's own collectives over links that "
        "nothing else slows. Gradients are averaged beside backward, as mpirun -n N knet train "
        "does.",
    .examples =
        (const kn__pair[]){{"knet scale resnet50 --batch 8", "1 to 1024 ranks, 12.5 GB/s, 5 us"},
                           {"knet scale lenet --ranks 1..16 --bandwidth 125MB --latency 50us",
                            "over Ethernet of 1 Gbit/s"},
                           {"knet scale gpt --ranks 8 --threads 4 --json", "for scripts"},
                           {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
