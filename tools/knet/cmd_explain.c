/* knet explain: what a training step runs, before and after fusion, and captured. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "explain.h"
#include "model_data.h"
#include "output.h"

enum { BLOCKS_MOST = 24 };

typedef struct options {
    kn__common common;
    const char *model[2];
    const char *format;
    int64_t batch, threads, steps;
    bool captured;
} options;

static const char *const formats[] = {"text", "svg", "dot", NULL};

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"format", KN__OPT_CHOICE, AT(format), .value_name = "FORMAT", .choices = formats,
     .initial = "text", .not_with = "json", .help = "a list, a picture, or a graph for graphviz"},
    {"captured", KN__OPT_FLAG, AT(captured),
     .help = "also the fused step as it is recorded once and replayed",
     .remark = "not of models whose step reads data on the host, such as tree_lstm"},
    {"batch", KN__OPT_COUNT, AT(batch), .value_name = "N", .max = 1 << 24,
     .initial_shown = "the record's", .help = "samples per step"},
    {"steps", KN__OPT_COUNT, AT(steps), .value_name = "N", .max = 1000, .initial = "5",
     .help = "steps whose least times count"},
    {"threads", KN__OPT_COUNT, AT(threads), .value_name = "N", .max = 1024, .initial_shown = "all",
     .help = "threads of the CPU"},
};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), .choice_at = kn_model_name_at};
#undef AT

static void write(kn__output *report, const options *o, const kn__explain *e, int64_t batch) {
    kn__text *out = &report->text;
    if (o->common.json) {
        kn__text_printf(out, "{\"model\":\"%s\",\"batch\":%" PRId64 ",\"threads\":%d", o->model[0],
                        batch, kn_frame_threads());
        kn__explain_json(out, e);
        kn__text_puts(out, "}\n");
    } else if (strcmp(o->format, "svg") == 0) {
        kn__explain_svg(out, e);
    } else if (strcmp(o->format, "dot") == 0) {
        kn__explain_dot(out, e);
    } else {
        kn__explain_text(out, e);
    }
}

static kn_status explain(kn__output *report, const options *o) {
    kn__model_steps steps = {0};
    kn__explain_run run[KN__EXPLAIN_SIDES] = {{.n_events = 0}};
    kn__explain e = {.n_sides = o->captured ? 3 : 2};
    char title[160];
    kn_status status = KN_OK;
    KN_FRAME(.threads = (int)o->threads, .record = KN_OFF);
    KN_TRY_GOTO(status, kn_check());
    KN_TRY_GOTO(status, kn__model_steps_open(&steps, o->model[0], o->batch, KN_F32));
    KN_TRY_GOTO(status, kn__explain_record(&run[0], &steps, KN_OFF, (int)o->steps));
    KN_TRY_GOTO(status, kn__explain_record(&run[1], &steps, 1, (int)o->steps));
    if (o->captured) {
        KN_TRY_GOTO(status, kn__model_steps_capture(&steps));
        KN_TRY_GOTO(status, kn__explain_record(&run[2], &steps, 1, (int)o->steps));
    }
    for (int i = 0; i < e.n_sides; i++)
        KN_TRY_GOTO(status, kn__explain_group(&e.side[i], &run[i], BLOCKS_MOST));
    snprintf(title, sizeof title, "%s: a training step, batch %lld, f32, cpu, %d thread%s",
             o->model[0], (long long)steps.n, kn_frame_threads(),
             kn_frame_threads() == 1 ? "" : "s");
    e.title = title;
    write(report, o, &e, steps.n);
cleanup:
    for (int i = 0; i < e.n_sides; i++) {
        kn__explain_graph_release(&e.side[i]);
        kn__explain_run_release(&run[i]);
    }
    kn__model_steps_close(&steps);
    return status;
}

static int run(void *options_of) {
    const options *o = options_of;
    int exit_code = o->captured ? kn__model_capture_check(o->model[0], "--captured") : KN__EXIT_OK;
    if (exit_code != KN__EXIT_OK) return exit_code;
    kn__output report = kn__output_begin(&o->common);
    report.live = false; /* all of it at the end */
    kn_status status = explain(&report, o);
    if (status < 0) exit_code = status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_FAILURE;
    if (status < 0) kn__fail_last();
    return kn__output_end(&report, exit_code);
}

const kn__command kn__cmd_explain = {
    .name = "explain",
    .summary = "draw what a training step runs, before and after fusion",
    .description =
        "Runs training steps of a model on one made-up batch, without and with fusion (.fuse of "
        "frames), and shows the graph of kernels of both: forward, backward and update by the "
        "scopes of the model, with the time of each and the bytes that it reads and writes. "
        "Scopes that repeat each other are shown once. With --captured the plan is shown beside "
        "them: the calls that a replay of the fused step makes.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "A time is the least of all steps; a fused kernel has the names of its ops, joined by +. "
        "With KNET_FUSE=0 both sides are the same.",
    .examples =
        (const kn__pair[]){{"knet explain lenet", "a list"},
                           {"knet explain gpt --format svg --output gpt.svg", "a picture"},
                           {"knet explain lenet --captured", "and the plan of a replay"},
                           {"knet explain mlp --format dot | dot -Tpdf >mlp.pdf", "by graphviz"},
                           {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
