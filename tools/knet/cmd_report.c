/* knet report: shows a profile that the timer wrote as JSON. */
#include <string.h>

#include "cmd.h"
#include "export.h"
#include "holders.h"
#include "html.h"
#include "json.h"
#include "merge.h"
#include "metrics.h"
#include "output.h"
#include "profile.h"
#include "read.h"
#include "roles.h"
#include "select.h"
#include "stacks.h"
#include "table.h"
#include "timeline.h"
#include "user_locale.h"

typedef struct options {
    kn__common common;
    const char *sort, *format, *weight, *columns, *filter;
    int64_t depth, top, width, fits;
    double min;
    bool flatten, memory, ascii;
    const char *file[];
} options;

static const char *const sorts[] = {"time", "calls", "alloc", "peak", "gpu", "name", "first", NULL};
enum {
    TABLE,
    CSV,
    FOLDED,
    FLAME,
    HTML,
    JSON,
    HATCHET,
    SPEEDSCOPE,
    METRICS,
    TRACE,
    PFTRACE,
    FORMATS
};
static const char *const formats[FORMATS + 1] = {
    [TABLE] = "table",     [CSV] = "csv",     [FOLDED] = "folded",   [FLAME] = "flame",
    [HTML] = "html",       [JSON] = "json",   [HATCHET] = "hatchet", [SPEEDSCOPE] = "speedscope",
    [METRICS] = "metrics", [TRACE] = "trace", [PFTRACE] = "pftrace",
};
/* How each is written: from the rows, from them with a weight, or from the events. The table has
 * none of these: add_table and add_memory draw it. */
static const struct {
    void (*rows)(kn__text *out, const kn__report *report);
    void (*weighted)(kn__text *out, const kn__report *report, kn__weight weight);
    const kn__trace_format *events;
} writers[FORMATS] = {
    [CSV].rows = kn__csv_add,
    [FOLDED].weighted = kn__folded_add,
    [FLAME].weighted = kn__flame_add,
    [HTML].rows = kn__html_add,
    [JSON].rows = kn__json_add,
    [HATCHET].rows = kn__hatchet_add,
    [SPEEDSCOPE].rows = kn__speedscope_add,
    [METRICS].rows = kn__metrics_add,
    [TRACE].events = &kn__trace_json,
    [PFTRACE].events = &kn__trace_perfetto,
};
static const char *const weights[] = {"time", "gpu", "alloc", NULL};
static const char *const column_sets[] = {"2018", "all", "spread", NULL};

#define AT(member) offsetof(options, member)
#define OF_TABLE .only_with = "format=table", .not_with = "memory json"
static const kn__opt table[] = {
    {"sort", KN__OPT_CHOICE, AT(sort), .value_name = "BY", .choices = sorts, .initial = "time",
     .not_with = "memory", .help = "order of the rows of a level",
     .remark = "first: as they were first seen"},
    {"depth", KN__OPT_COUNT, AT(depth), .value_name = "N", .max = KN__READ_DEPTH_MAX, OF_TABLE,
     .initial_shown = "all", .help = "levels to show"},
    {"top", KN__OPT_COUNT, AT(top), .value_name = "N", .max = 1000000,
     .help = "show the first N rows of each level and sum up the others",
     .remark = "with --memory: N owners"},
    {"min", KN__OPT_PERCENT, AT(min), .value_name = "PERCENT", .initial = "0.1", OF_TABLE,
     .help = "sum up the rows of a level with less",
     .remark = "0: show every row on a line of its own"},
    {"filter", KN__OPT_TEXT, AT(filter), .value_name = "TEXT",
     .help = "show rows whose path contains TEXT, or matches it as a regular expression",
     .remark = "rows above them have the sums of the shown rows, and no calls"},
    {"flatten", KN__OPT_FLAG, AT(flatten),
     .help = "show no tree, but one row per label, with its own time and bytes"},
    {"columns", KN__OPT_CHOICE, AT(columns), .value_name = "SET", .choices = column_sets,
     .initial = "all", OF_TABLE, .help = "columns of the table",
     .remark = "2018: time and allocations; spread: also minimum, percentiles, maximum, deviation "
               "and first call"},
    {"memory", KN__OPT_FLAG, AT(memory), .only_with = "format=table", .not_with = "json",
     .help = "show the high-water mark by owner and purpose, and live bytes over time"},
    {"fits", KN__OPT_BYTES, AT(fits), .value_name = "BYTES", .only_with = "memory",
     .help = "about what batch would fit into so much memory",
     .remark = "of a profile with the note batch=N, as of knet train and kn_train"},
    {"format", KN__OPT_CHOICE, AT(format), .value_name = "FORMAT", .choices = formats,
     .initial = "table", .not_with = "json", .help = "form of the output",
     .remark =
         "folded: stacks for flame graph tools; flame: a flame graph (SVG); html: a page for a "
         "browser; metrics: text for Prometheus; trace, pftrace: the events, for chrome://tracing "
         "and Perfetto"},
    {"weight", KN__OPT_CHOICE, AT(weight), .value_name = "OF", .choices = weights,
     .initial = "time", .only_with = "format=folded,flame",
     .help = "what the width of a flame shows"},
    {"width", KN__OPT_COUNT, AT(width), .value_name = "N", .max = 10000,
     .initial_shown = "the terminal's", .only_with = "format=table", .not_with = "json",
     .help = "columns of the terminal to fit into"},
    {"ascii", KN__OPT_FLAG, AT(ascii), .only_with = "format=table", .not_with = "json",
     .help = "use ASCII characters alone, as where the locale has no UTF-8"},
};
static const kn__operand operand = {"FILE...", 1, 0, AT(file), .is_file = true};
#undef OF_TABLE
#undef AT

/* In the order of `sorts`. */
static kn__sort sort_of(const options *o) {
    static const kn__sort by[] = {KN__SORT_TIME, KN__SORT_CALLS, KN__SORT_ALLOC, KN__SORT_PEAK,
                                  KN__SORT_GPU,  KN__SORT_NAME,  KN__SORT_FIRST};
    return by[kn__choice_find(o->sort, sorts)];
}

static int width_of(const options *o, const kn__output *out) {
    return o->width ? (int)o->width : out->path ? 0 : kn__terminal_width();
}

static int format_of(const options *o) {
    return o->common.json ? JSON : kn__choice_find(o->format, formats);
}

static bool is_ascii(const options *o) { return o->ascii || !kn__locale_is_utf8(); }

/* Whether the line is drawn: of '-' or of characters beyond ASCII alone. */
static bool is_rule(const char *line, size_t n) {
    bool drawn = false;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == ' ') continue;
        if (line[i] != '-' && (line[i] & 0x80) == 0) return false;
        drawn = true;
    }
    return drawn;
}

/* Adds the lines of a table: rules are dim; headings, below the first long one, are bold. */
static void add_painted(kn__output *out, const kn__text *lines) {
    int n_rules = 0;
    for (const char *at = lines->data; at && *at;) {
        size_t n = strcspn(at, "\n");
        bool rule = is_rule(at, n);
        kn__style style = rule                ? KN__STYLE_DIM
                          : n_rules == 1 && n ? KN__STYLE_BOLD
                                              : KN__STYLE_PLAIN;
        n_rules += rule && strncmp(at, "  ", 2) != 0;
        if (style) kn__text_puts(&out->text, kn__output_style(out, style));
        kn__text_add(&out->text, at, n);
        if (style) kn__text_puts(&out->text, kn__output_style(out, KN__STYLE_PLAIN));
        kn__text_puts(&out->text, "\n");
        at += n + (at[n] != '\0');
    }
}

static void add_table(kn__output *out, const kn__report *report, const options *o) {
    kn__table_options how = {.width = width_of(o, out),
                             .depth = (int)o->depth,
                             .top = (int)o->top,
                             .min = o->min,
                             .ascii = is_ascii(o),
                             .columns_2018 = strcmp(o->columns, "2018") == 0,
                             .spread = strcmp(o->columns, "spread") == 0};
    how.bare = how.columns_2018;
    kn__text lines = {0};
    kn__table_add(&lines, report, &how);
    add_painted(out, &lines);
    out->text.failed |= lines.failed;
    kn__text_release(&lines);
}

static void add_memory(kn__output *out, const kn__report *report, const options *o) {
    kn__memory_view view = {.width = width_of(o, out),
                            .owners = (int)o->top,
                            .limit_bytes = (uint64_t)o->fits,
                            .ascii = is_ascii(o)};
    kn__memory_add(&out->text, report, &view);
}

static void add_report(kn__output *out, const kn__report *report, const options *o) {
    int format = format_of(o);
    if (writers[format].rows) {
        writers[format].rows(&out->text, report);
    } else if (writers[format].weighted) {
        kn__weight weight = (kn__weight)kn__choice_find(o->weight, weights);
        writers[format].weighted(&out->text, report, weight);
    } else if (o->memory) {
        add_memory(out, report, o);
    } else {
        add_table(out, report, o);
    }
}

/* Profiles have events where they were written with the word "events", traces always. */
static int show_trace(const kn__report *report, const options *o) {
    if (!report->timeline) {
        kn__fail("%s has no events: write them with KNET_TIMER=json=FILE,events or trace=FILE",
                 o->file[0]);
        return KN__EXIT_FAILURE;
    }
    kn__output out = kn__output_begin(&o->common);
    out.live = false;
    int code = KN__EXIT_OK;
    if (kn__timeline_add(&out.text, report->timeline, writers[format_of(o)].events) < 0) {
        kn__fail_last();
        code = KN__EXIT_OOM;
    }
    return kn__output_end(&out, code);
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
    bool other = format_of(o) != TABLE; /* a table does it itself */
    return o->top && other ? kn__report_top(*out, (int)o->top) : KN_OK;
}

static int fit_lacks(const char *what, const options *o) {
    kn__fail(
        "%s has no %s, which --fits needs: a profile of knet train or kn_train has it; a loop "
        "of your own notes its batch by kn_prof_note(\"batch\", \"128\")",
        o->file[0], what);
    return KN__EXIT_FAILURE;
}

static int show(kn__report *report, const options *o) {
    const char *lack = o->fits ? kn__fit_lacks(report) : NULL;
    if (lack) return fit_lacks(lack, o);
    if (o->filter && kn__report_filter(report, o->filter) == 0) {
        kn__fail("no row of %s matches '%s'", o->file[0], o->filter);
        return KN__EXIT_FAILURE;
    }
    kn__report flat, *chosen = NULL;
    kn__report_init(&flat);
    int code = KN__EXIT_OOM;
    if (select_rows(&chosen, &flat, report, o) >= 0) {
        kn__output out = kn__output_begin(&o->common);
        out.live = false;
        add_report(&out, chosen, o);
        code = kn__output_end(&out, KN__EXIT_OK);
    } else {
        kn__fail_last();
    }
    kn__report_release(&flat);
    return code;
}

/* One profile as it is; several as the sum of their runs or ranks. */
static kn_status read_files(kn__report *out, const options *o) {
    if (!o->file[1]) return kn__profile_read(out, o->file[0]);
    kn__report_init(out);
    for (int i = 0; o->file[i]; i++) {
        kn__report one;
        kn_status status = kn__profile_read(&one, o->file[i]);
        if (status >= 0) status = kn__report_merge(out, &one);
        kn__report_release(&one);
        KN_TRY(status);
    }
    return KN_OK;
}

static int run(void *options_of) {
    const options *o = options_of;
    kn__report report;
    bool wants_events = writers[format_of(o)].events;
    if (wants_events && o->file[1])
        return kn__fail_usage("--format %s shows one file: events of several can't be joined",
                              o->format);
    kn_status status = read_files(&report, o);
    int code = status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_FAILURE;
    if (status < 0) {
        kn__fail_last();
    } else {
        code = wants_events ? show_trace(&report, o) : show(&report, o);
    }
    kn__report_release(&report);
    return code;
}

const kn__command kn__cmd_report = {
    .name = "report",
    .summary = "show a profile: where time and memory went",
    .description =
        "Shows a profile, a file that KNET_TIMER=json=FILE wrote, a trace in JSON (of "
        "KNET_TIMER=trace=FILE.json, PyTorch, Chrome) or an export of Nsight Systems (nsys export "
        "--type sqlite). It may be gzip'd, but for the last; - is standard input. Several files, "
        "such as those of all ranks (json=FILE.%r), are added up, "
        "with the least, mean and most time of each row, the imbalance and the slowest one, from "
        "0.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .exits =
        (const kn__pair[]){
            {"1",
             "the file cannot be read, no row matches --filter, or --fits lacks what it needs"},
            {NULL, NULL}},
    .examples = (const kn__pair[]){{"knet report run.json --depth 2 --top 5", "the largest rows"},
                                   {"knet report run.json --format flame --output run.svg",
                                    "a flame graph for the browser"},
                                   {"knet report run.json --format html --output run.html",
                                    "flame graph, tree and memory over time in one page"},
                                   {"zcat run.json.gz | knet report - --memory", "who held memory"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
