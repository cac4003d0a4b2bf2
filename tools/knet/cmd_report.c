/* knet report: shows a profile that the timer wrote as JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_profile.h"
#include "export.h"
#include "holders.h"
#include "json.h"
#include "opts.h"
#include "read.h"
#include "select.h"
#include "table.h"

typedef struct options {
    const char *file;
    const char *sort, *format, *weight, *columns, *filter;
    int64_t depth, top, width;
    bool flatten, memory, ascii, json;
} options;

static const char *const sorts[] = {"time", "calls", "alloc", "peak", "gpu", "name", "first", NULL};
static const char *const formats[] = {"table", "csv", "folded", "flame", "json", NULL};
static const char *const weights[] = {"time", "gpu", "alloc", NULL};
static const char *const column_sets[] = {"2018", "all", "spread", NULL};

static bool options_parse(int *exit_code, options *o, int argc, char **argv) {
    const kn__opt table[] = {
        {"sort", KN__OPT_CHOICE, &o->sort, .value_name = "BY", .choices = sorts,
         .help = "time, calls, alloc, peak, gpu, name or first (first seen) [time]"},
        {"depth", KN__OPT_COUNT, &o->depth, .value_name = "N", .max = KN__READ_DEPTH_MAX,
         .help = "levels shown [all]"},
        {"top", KN__OPT_COUNT, &o->top, .value_name = "N", .max = 1000000,
         .help = "the first N rows of each level, the others in one row"},
        {"filter", KN__OPT_TEXT, &o->filter, .value_name = "TEXT",
         .help = "rows whose path has TEXT in it, or fits it as a regular expression"},
        {"flatten", KN__OPT_FLAG, &o->flatten,
         .help = "no tree: a row a label, with its own time and bytes alone"},
        {"columns", KN__OPT_CHOICE, &o->columns, .value_name = "SET", .choices = column_sets,
         .help = "2018 (time and allocations), all, or spread (min, max, deviation, first) [all]"},
        {"memory", KN__OPT_FLAG, &o->memory,
         .help = "the high-water mark, who owned it, and live bytes over time"},
        {"format", KN__OPT_CHOICE, &o->format, .value_name = "FORMAT", .choices = formats,
         .help = "table, csv, folded (stacks), flame (SVG) or json [table]"},
        {"weight", KN__OPT_CHOICE, &o->weight, .value_name = "OF", .choices = weights,
         .help = "of stacks and flames: time, gpu or alloc [time]"},
        {"width", KN__OPT_COUNT, &o->width, .value_name = "N", .max = 10000,
         .help = "columns of the table at most [the terminal's]"},
        {"ascii", KN__OPT_FLAG, &o->ascii, .help = "no characters beyond ASCII in rules and graph"},
        {"json", KN__OPT_FLAG, &o->json, .help = "the same as --format json"},
    };
    const kn__command command = {
        .name = "report",
        .summary = "shows a profile: a file that KNET_TIMER=json=FILE made",
        .operand = "FILE",
        .operand_at = &o->file,
        .opts = table,
        .n_opts = sizeof table / sizeof *table,
        .epilogue =
            "Exit codes: 0 success, 1 nothing fits --filter or the output can't be written,\n"
            "2 wrong usage or a file that can't be read or is no profile.",
    };
    return kn__opts_parse(exit_code, &command, argc, argv);
}

static int place(const char *value, const char *const *choices) {
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], value) == 0) return i;
    }
    return 0;
}

/* As in the lists above. */
static kn__sort sort_of(const options *o) {
    static const kn__sort by[] = {KN__SORT_TIME, KN__SORT_CALLS, KN__SORT_ALLOC, KN__SORT_PEAK,
                                  KN__SORT_GPU,  KN__SORT_NAME,  KN__SORT_FIRST};
    return by[place(o->sort, sorts)];
}

static int width_of(const options *o) {
    struct winsize size;
    if (o->width) return (int)o->width;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void add_table(kn__text *text, const kn__report *report, const options *o) {
    kn__table_options table = {.width = width_of(o),
                               .depth = (int)o->depth,
                               .ascii = o->ascii,
                               .columns_2018 = strcmp(o->columns, "2018") == 0,
                               .spread = strcmp(o->columns, "spread") == 0};
    table.bare = table.columns_2018;
    kn__table_add(text, report, &table);
}

static void add_memory(kn__text *text, const kn__report *report, const options *o) {
    kn__memory_view view = {.width = width_of(o), .owners = (int)o->top, .ascii = o->ascii};
    kn__memory_add(text, report, &view);
}

static void add_report(kn__text *text, const kn__report *report, const options *o) {
    kn__weight weight = (kn__weight)place(o->weight, weights);
    if (o->json || strcmp(o->format, "json") == 0) {
        kn__json_add(text, report);
    } else if (strcmp(o->format, "csv") == 0) {
        kn__csv_add(text, report);
    } else if (strcmp(o->format, "folded") == 0) {
        kn__folded_add(text, report, weight);
    } else if (strcmp(o->format, "flame") == 0) {
        kn__flame_add(text, report, weight);
    } else if (o->memory) {
        add_memory(text, report, o);
    } else {
        add_table(text, report, o);
    }
}

/* What standard output does not take goes to standard error, with the reason. */
int kn__print_result(const char *command, const kn__text *text) {
    const char *data = text->data ? text->data : "";
    if (text->failed) {
        fprintf(stderr, "%s: no memory for the result\n", command);
        return KN__EXIT_OOM;
    }
    errno = 0;
    if (fwrite(data, 1, text->length, stdout) == text->length && fflush(stdout) == 0) {
        return KN__EXIT_OK;
    }
    if (errno == EPIPE) return KN__EXIT_FAILURE; /* who reads it has had enough */
    fprintf(stderr, "%s: standard output can't be written: %s; the result:\n%s", command,
            strerror(errno), data);
    return KN__EXIT_FAILURE;
}

int kn__profile_read(kn__report *out, const char *command, const char *file) {
    kn_status status = kn__report_read(out, file);
    if (status >= 0) return KN__EXIT_OK;
    fprintf(stderr, "%s: %s\n", command, kn_last_error()->message);
    return status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_USAGE;
}

/* Rows as the options want them: those of `report`, or flat ones in `flat`. */
static kn_status select_rows(kn__report **out, kn__report *flat, kn__report *report,
                             const options *o) {
    *out = report;
    if (o->flatten) {
        KN_TRY(kn__report_flatten(flat, report));
        *out = flat;
    }
    kn__report_sort(*out, sort_of(o));
    return o->top && !o->memory ? kn__report_top(*out, (int)o->top) : KN_OK;
}

static int show(kn__report *report, const options *o) {
    if (o->filter && kn__report_filter(report, o->filter) == 0) {
        fprintf(stderr, "knet report: no row of %s fits '%s'\n", o->file, o->filter);
        return KN__EXIT_FAILURE;
    }
    kn__report flat, *chosen = NULL;
    kn__report_init(&flat);
    int code = KN__EXIT_OOM;
    if (select_rows(&chosen, &flat, report, o) >= 0) {
        kn__text text = {0};
        add_report(&text, chosen, o);
        code = kn__print_result("knet report", &text);
        kn__text_release(&text);
    } else {
        fprintf(stderr, "knet report: %s\n", kn_last_error()->message);
    }
    kn__report_release(&flat);
    return code;
}

int kn__cmd_report(int argc, char **argv) {
    options o = {.sort = "time", .format = "table", .weight = "time", .columns = "all"};
    int code = KN__EXIT_OK;
    if (!options_parse(&code, &o, argc, argv)) return code;
    kn__report report;
    code = kn__profile_read(&report, "knet report", o.file);
    if (code == KN__EXIT_OK) code = show(&report, &o);
    kn__report_release(&report);
    return code;
}
