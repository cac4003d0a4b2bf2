/* knet diff: what became slower or larger between two profiles. */
#include "cmd.h"
#include "diff.h"
#include "locale.h"
#include "output.h"
#include "profile.h"

/* As those of diff(1): 1 is a difference, 2 is trouble. */
enum { N_FILES = 2, EXIT_WORSE = 1, EXIT_TROUBLE = 2 };

typedef struct options {
    kn__common common;
    const char *files[N_FILES + 1];
    /* Percent. */
    double threshold, share;
    int64_t top;
    bool ascii;
} options;

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"threshold", KN__OPT_NUMBER, AT(threshold), .value_name = "PERCENT", .initial = "5",
     .help = "smaller changes are noise"},
    {"share", KN__OPT_NUMBER, AT(share), .value_name = "PERCENT", .initial = "0.5",
     .help = "leave out rows with less of their run in both"},
    {"top", KN__OPT_COUNT, AT(top), .value_name = "N", .max = 1000000, .initial = "30",
     .not_with = "json", .help = "lines of the table at most, the worst first"},
    {"ascii", KN__OPT_FLAG, AT(ascii), .not_with = "json",
     .help = "use ASCII characters alone, as where the locale has no UTF-8"},
};
static const kn__operand operand = {"BEFORE AFTER", N_FILES, N_FILES, AT(files), NULL, true};
#undef AT

static int compare(kn__output *out, const options *o, const kn__report *a, const kn__report *b) {
    kn__diff_options how = {.threshold = o->threshold / 100,
                            .share = o->share / 100,
                            .top = (int)o->top,
                            .ascii = o->ascii || !kn__locale_is_utf8(),
                            .better = kn__output_style(out, KN__STYLE_GREEN),
                            .worse = kn__output_style(out, KN__STYLE_RED),
                            .plain = kn__output_style(out, KN__STYLE_PLAIN)};
    kn__diff diff;
    int code = KN__EXIT_OK;
    if (kn__diff_make(&diff, a, b, &how) >= 0) {
        o->common.json ? kn__diff_add_json(&out->text, &diff, a, b)
                       : kn__diff_add_table(&out->text, &diff, a, b, &how);
        if (diff.n_worse) code = EXIT_WORSE;
    } else {
        kn__fail_last();
        code = KN__EXIT_OOM;
    }
    kn__diff_release(&diff);
    return code;
}

static int run(void *options_of) {
    const options *o = options_of;
    kn__report reports[N_FILES];
    int code = KN__EXIT_OK;
    for (int i = 0; i < N_FILES; i++) { /* names each file that is wrong */
        kn_status status = kn__profile_read(&reports[i], o->files[i]);
        if (status < 0) kn__fail_last();
        if (status < 0) code = status == KN_ERR_OOM ? KN__EXIT_OOM : EXIT_TROUBLE;
    }
    if (code == KN__EXIT_OK) {
        kn__output out = kn__output_begin(&o->common);
        out.live = false;
        code = compare(&out, o, &reports[0], &reports[1]);
        code = kn__output_end(&out, code);
    }
    for (int i = 0; i < N_FILES; i++) kn__report_release(&reports[i]);
    return code;
}

const kn__command kn__cmd_diff = {
    .name = "diff",
    .summary = "compare two profiles: what became slower or larger",
    .description =
        "Compares two profiles, files that KNET_TIMER=json=FILE wrote before and after a change. "
        "They may be gzip'd; - is standard input.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "A row's time moved when its calls take longer or shorter on average by more than the "
        "threshold and by more than three standard errors, and the fastest call moved the same "
        "way. A row with one call is judged by the rows in it, or by five thresholds. Calls are "
        "compared per step, bytes per call.",
    .exits = (const kn__pair[]){{"0", "no row is worse"},
                                {"1", "some row is worse"},
                                {"2", "wrong usage, or a file that cannot be read"},
                                {NULL, NULL}},
    .examples = (const kn__pair[]){{"knet diff main.json this.json --threshold 10",
                                    "fails in CI when a row became 10 % slower"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
