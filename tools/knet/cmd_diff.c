/* knet diff: what became slower or larger between two profiles. */
#include "cmd.h"
#include "diff.h"
#include "merge.h"
#include "output.h"
#include "profile.h"
#include "terminal.h"
#include "user_locale.h"

/* As those of diff(1): 1 is a difference, 2 is trouble. */
enum { N_SIDES = 2, EXIT_WORSE = 1, EXIT_TROUBLE = 2 };

typedef struct options {
    kn__common common;
    int n_before; /* of the files */
    /* Percent. */
    double threshold, share;
    int64_t top, width;
    bool ascii, counters;
    const char *files[];
} options;

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"threshold", KN__OPT_NUMBER, AT(threshold), .value_name = "PERCENT", .initial = "5",
     .may_be_zero = true, .help = "smaller changes are noise"},
    {"share", KN__OPT_NUMBER, AT(share), .value_name = "PERCENT", .initial = "0.5",
     .may_be_zero = true, .help = "leave out rows with less of their run in both"},
    {"top", KN__OPT_COUNT, AT(top), .value_name = "N", .max = 1000000, .initial = "30",
     .not_with = "json", .help = "lines of the table at most, the worst first"},
    {"width", KN__OPT_COUNT, AT(width), .value_name = "N", .max = 10000,
     .initial_shown = "the terminal's", .not_with = "json",
     .help = "columns of the terminal to fit into"},
    {"ascii", KN__OPT_FLAG, AT(ascii), .not_with = "json",
     .help = "use ASCII characters alone, as where the locale has no UTF-8"},
    {"counters", KN__OPT_FLAG, AT(counters),
     .help = "exit with 1 also if a counter moved, is new or is gone"},
};
static const kn__operand operand = {"BEFORE AFTER...", N_SIDES,         0,
                                    AT(files),         .is_file = true, .split = AT(n_before)};
#undef AT

static int width_of(const options *o, const kn__output *out) {
    return o->width ? (int)o->width : out->path ? 0 : kn__terminal_width();
}

static int compare(kn__output *out, const options *o, const kn__report *a, const kn__report *b) {
    kn__diff_options how = {.threshold = o->threshold / 100,
                            .share = o->share / 100,
                            .top = (int)o->top,
                            .width = width_of(o, out),
                            .ascii = o->ascii || !kn__locale_is_utf8(),
                            .better = kn__output_style(out, KN__STYLE_GREEN),
                            .worse = kn__output_style(out, KN__STYLE_RED),
                            .plain = kn__output_style(out, KN__STYLE_PLAIN)};
    kn__diff diff;
    int code = KN__EXIT_OK;
    if (kn__diff_make(&diff, a, b, &how) >= 0) {
        o->common.json ? kn__diff_add_json(&out->text, &diff, a, b)
                       : kn__diff_add_table(&out->text, &diff, a, b, &how);
        bool moved = o->counters && diff.counters.n_moved;
        if (diff.n_worse || moved) code = EXIT_WORSE;
    } else {
        kn__fail_last();
        code = KN__EXIT_OOM;
    }
    kn__diff_release(&diff);
    return code;
}

/* Adds a file to its side; names each one that is wrong. */
static int add_file(kn__report *side, const char *path) {
    kn__report report;
    kn_status status = kn__profile_read(&report, path);
    if (status >= 0) status = kn__report_merge(side, &report);
    if (status < 0) kn__fail_last();
    kn__report_release(&report);
    if (status >= 0) return KN__EXIT_OK;
    return status == KN_ERR_OOM ? KN__EXIT_OOM : EXIT_TROUBLE;
}

/* How many of the files are of the first side; 0: that isn't clear. */
static int split_of(const options *o, int n) {
    if (o->n_before > 0) return o->n_before < n ? o->n_before : 0;
    return n == N_SIDES ? 1 : 0;
}

static int run(void *options_of) {
    const options *o = options_of;
    kn__report sides[N_SIDES];
    int code = KN__EXIT_OK, n = 0;
    while (o->files[n]) n++;
    int n_before = split_of(o, n);
    if (!n_before)
        return kn__fail_usage("%d profiles need a -- between those before and those after", n);
    for (int i = 0; i < N_SIDES; i++) kn__report_init(&sides[i]);
    for (int i = 0; i < n; i++) {
        int failed = add_file(&sides[i >= n_before], o->files[i]);
        if (failed) code = failed;
    }
    if (code == KN__EXIT_OK) {
        kn__output out = kn__output_begin(&o->common);
        out.live = false;
        code = compare(&out, o, &sides[0], &sides[1]);
        code = kn__output_end(&out, code);
    }
    for (int i = 0; i < N_SIDES; i++) kn__report_release(&sides[i]);
    return code;
}

const kn__command kn__cmd_diff = {
    .name = "diff",
    .summary = "compare two profiles: what became slower or larger",
    .description =
        "Compares two profiles, files that KNET_TIMER=json=FILE wrote before and after a change. "
        "They may be gzip'd; - is standard input. Traces in JSON and exports of Nsight Systems are "
        "read too, as by knet report.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "A row has moved if its fastest call changed by more than the threshold and by what the "
        "spread of its calls leaves in doubt, and its median moved the same way. Where nearly all "
        "rows moved alike, the machine may have run at another speed: a row must move further than "
        "they did, and the run as a whole by more than the noise. Rows with fewer than five calls "
        "must change by more than the noise that the other rows show. On a busy machine give "
        "several runs a side, made in turns: knet diff a*.json -- b*.json. Calls are "
        "compared per step, or per run; bytes per call. A row that came or went counts if the row "
        "above it spends more; a row of another name and the same time counts as renamed. A "
        "counter "
        "moved if its mean or its last value changed by more than the threshold; whether more of "
        "it "
        "is better is not known, so it does not change the exit code, but with --counters.",
    .exits = (const kn__pair[]){{"0", "no row is worse"},
                                {"1", "some row is worse, or with --counters a counter moved"},
                                {"2", "wrong usage, or a file that cannot be read"},
                                {NULL, NULL}},
    .examples = (const kn__pair[]){{"knet diff main.json this.json --threshold 10",
                                    "fails in CI when a row became 10 % slower"},
                                   {"knet diff old*.json -- new*.json", "several runs a side"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
