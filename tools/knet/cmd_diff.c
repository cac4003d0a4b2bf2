/* knet diff: what became slower or larger between two profiles. */
#include <stdio.h>

#include "cmd.h"
#include "cmd_profile.h"
#include "diff.h"
#include "opts.h"

enum { N_FILES = 2 };

typedef struct options {
    const char *files[N_FILES + 1];
    double threshold, share; /* percent */
    int64_t top;
    bool json, ascii;
} options;

static bool options_parse(int *exit_code, options *o, int argc, char **argv) {
    const kn__opt table[] = {
        {"threshold", KN__OPT_NUMBER, &o->threshold, .value_name = "PERCENT",
         .help = "smaller changes are noise [5]"},
        {"share", KN__OPT_NUMBER, &o->share, .value_name = "PERCENT",
         .help = "rows with less of their run in both are left out [0.5]"},
        {"top", KN__OPT_COUNT, &o->top, .value_name = "N", .max = 1000000,
         .help = "lines of the table at most, the worst first [30]"},
        {"json", KN__OPT_FLAG, &o->json, .help = "one JSON object"},
        {"ascii", KN__OPT_FLAG, &o->ascii, .help = "no characters beyond ASCII"},
    };
    const kn__command command = {
        .name = "diff",
        .summary = "compares two profiles: files that KNET_TIMER=json=FILE made, before and after",
        .operand = "BEFORE AFTER",
        .operand_at = o->files,
        .operands_max = N_FILES,
        .opts = table,
        .n_opts = sizeof table / sizeof *table,
        .epilogue =
            "A row's time moved when a call takes more than the threshold longer or shorter on\n"
            "average, that is three standard errors, and the fastest call moved the same way. A "
            "row\n"
            "called once is judged by the rows in it, or by five thresholds. Calls are compared a\n"
            "step, bytes a call.\n"
            "Exit codes: 0 nothing is worse, 1 some row is, 2 wrong usage or a file that can't be\n"
            "read or is no profile.",
    };
    if (!kn__opts_parse(exit_code, &command, argc, argv)) return false;
    if (o->files[1]) return true;
    fputs(
        "knet diff: a second file is missing: knet diff BEFORE AFTER\n"
        "Try 'knet diff --help'.\n",
        stderr);
    *exit_code = KN__EXIT_USAGE;
    return false;
}

static int compare(const options *o, const kn__report *a, const kn__report *b) {
    kn__diff_options how = {o->threshold / 100, o->share / 100, (int)o->top, o->ascii};
    kn__diff diff;
    int code = KN__EXIT_OOM;
    if (kn__diff_make(&diff, a, b, &how) >= 0) {
        kn__text text = {0};
        o->json ? kn__diff_add_json(&text, &diff, a, b)
                : kn__diff_add_table(&text, &diff, a, b, &how);
        code = kn__print_result("knet diff", &text);
        kn__text_release(&text);
        if (code == KN__EXIT_OK && diff.n_worse) code = KN__EXIT_FAILURE;
    } else {
        fprintf(stderr, "knet diff: %s\n", kn_last_error()->message);
    }
    kn__diff_release(&diff);
    return code;
}

int kn__cmd_diff(int argc, char **argv) {
    options o = {.threshold = 5, .share = 0.5, .top = 30};
    int code = KN__EXIT_OK;
    if (!options_parse(&code, &o, argc, argv)) return code;
    kn__report reports[N_FILES];
    code = KN__EXIT_OK;
    for (int i = 0; i < N_FILES; i++) {
        int read = kn__profile_read(&reports[i], "knet diff", o.files[i]); /* tells of both */
        if (code == KN__EXIT_OK) code = read;
    }
    if (code == KN__EXIT_OK) code = compare(&o, &reports[0], &reports[1]);
    for (int i = 0; i < N_FILES; i++) kn__report_release(&reports[i]);
    return code;
}
