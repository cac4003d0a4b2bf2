/* knet models: the list of models. */
#include <inttypes.h>
#include <knet/models.h>
#include <string.h>

#include "cmd.h"
#include "model_steps.h"
#include "output.h"

typedef struct options {
    kn__common common;
    const char *model[2];
} options;

static const kn__operand operand = {"MODEL", 0, 1, offsetof(options, model),
                                    .choice_at = kn_model_name_at};

static void shape_text(char *out, size_t out_bytes, const kn_model_facts *f) {
    char shape[64];
    snprintf(out, out_bytes, "%s%s", kn_shape_text(shape, sizeof shape, f->x),
             f->words ? " words" : "");
}

/* The model, and in lines of their own the published results. */
static void model_line(kn__output *report, const kn_model_kind *kind) {
    enum { INDENT = 4 };
    const kn_model_facts *f = kind->facts;
    kn__text published = {0};
    char params[32];
    kn__count_text(params, sizeof params, f->n_params);
    kn__output_line(report, "%-16s %12s  %s\n", kind->name, params, f->data);
    if (!f->published) return;
    kn__text_wrap(&published, f->published, INDENT, 0, KN__HELP_WIDTH);
    if (published.failed)
        report->text.failed = true;
    else
        kn__output_line(report, "%s", published.data);
    kn__text_release(&published);
}

static void model_print(kn__output *report, const kn_model_kind *kind) {
    const kn_model_facts *f = kind->facts;
    char params[32], words[32], shape[96], schedule[64] = "";
    kn__count_text(params, sizeof params, f->n_params);
    kn__count_text(words, sizeof words, f->words);
    shape_text(shape, sizeof shape, f);
    kn__output_line(report, "%s: %s\n", kind->name, kind->summary);
    kn__output_line(report, "parameters  %s\n", params);
    kn__output_line(report, "data        %s\n", f->data);
    kn__output_line(report, "sample      %s%s%s\n", shape, f->words ? " of " : "",
                    f->words ? words : "");
    if (f->lr_gamma > 0)
        snprintf(schedule, sizeof schedule, ", times %g after epoch %" PRId64 " and later ones",
                 f->lr_gamma, f->lr_from);
    kn__output_line(report, "step        batch %" PRId64 ", %s, rate %g%s\n", f->batch,
                    f->optimizer, f->lr, schedule);
    if (kn__bench_batch(kind) != f->batch)
        kn__output_line(report, "benchmarks  batch %" PRId64 "\n", kn__bench_batch(kind));
    if (f->published) kn__output_line(report, "published   %s\n", f->published);
}

static void model_json(kn__text *out, const kn_model_kind *kind) {
    const kn_model_facts *f = kind->facts;
    char shape[64];
    kn__text_puts(out, "{\"model\":");
    kn__text_json(out, kind->name);
    kn__text_puts(out, ",\"summary\":");
    kn__text_json(out, kind->summary);
    kn__text_printf(out, ",\"parameters\":%" PRId64 ",\"data\":", f->n_params);
    kn__text_json(out, f->data);
    kn__text_printf(out, ",\"sample\":%s,\"words\":%" PRId64 ",\"classes\":%" PRId64,
                    kn_shape_text(shape, sizeof shape, f->x), f->words, f->n_classes);
    kn__text_printf(out, ",\"batch\":%" PRId64 ",\"batch_bench\":%" PRId64, f->batch,
                    kn__bench_batch(kind));
    kn__text_printf(out,
                    ",\"optimizer\":\"%s\",\"lr\":%.17g,\"lr_gamma\":%.17g,\"lr_from\":%" PRId64,
                    f->optimizer, f->lr, f->lr_gamma, f->lr_from);
    kn__text_puts(out, ",\"published\":");
    if (f->published)
        kn__text_json(out, f->published);
    else
        kn__text_puts(out, "null");
    kn__text_puts(out, "}");
}

static int run(void *options_of) {
    const options *o = options_of;
    kn__output report = kn__output_begin(&o->common);
    if (o->common.json) {
        kn__text_puts(&report.text, "{\"models\":[");
        for (int i = 0, n = 0; kn_model_kind_at(i); i++) {
            if (o->model[0] && strcmp(o->model[0], kn_model_name_at(i)) != 0) continue;
            if (n++) kn__text_puts(&report.text, ",\n");
            model_json(&report.text, kn_model_kind_at(i));
        }
        kn__text_puts(&report.text, "]}\n");
    } else if (o->model[0]) {
        model_print(&report, kn_model_kind_find(o->model[0]));
    } else {
        for (int i = 0; kn_model_kind_at(i); i++) model_line(&report, kn_model_kind_at(i));
    }
    return kn__output_end(&report, KN__EXIT_OK);
}

const kn__command kn__cmd_models = {
    .name = "models",
    .summary = "list the models",
    .description =
        "Lists the models that knet train, eval and bench know, with their parameters, the data "
        "they are for, and the results that others published, each on a machine of its own. With a "
        "model's name: also its samples and its optimiser.",
    .operand = &operand,
    .has_result = true,
    .examples = (const kn__pair[]){{"knet models", "all of them"},
                                   {"knet models resnet50", "one, with its step"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
