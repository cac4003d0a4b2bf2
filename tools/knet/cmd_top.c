/* knet top: a running program's tree and memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "holders.h"
#include "output.h"
#include "profile.h"
#include "read.h"
#include "table.h"
#include "top.h"
#include "user_locale.h"

enum { PIDS_SHOWN = 8, COMMAND_SHOWN = 40 };

typedef struct options {
    kn__common common;
    const char *pid[2];
    const char *sort;
    int64_t depth;
    double min, every;
    bool once, memory, ascii;
} options;

static const char *const sorts[] = {"time", "calls", "alloc", "peak", "gpu", "name", "first", NULL};

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"once", KN__OPT_FLAG, AT(once),
     .help = "print one report and end, as in the background, or where standard input or output is "
             "no terminal"},
    {"every", KN__OPT_TIME, AT(every), .value_name = "TIME", .initial = "1s", .not_with = "once",
     .help = "time between two reports"},
    {"sort", KN__OPT_CHOICE, AT(sort), .value_name = "BY", .choices = sorts, .initial = "time",
     .not_with = "json", .help = "order of the rows of a level"},
    {"depth", KN__OPT_COUNT, AT(depth), .value_name = "N", .max = KN__READ_DEPTH_MAX,
     .initial_shown = "all", .not_with = "json", .help = "levels to show"},
    {"min", KN__OPT_PERCENT, AT(min), .value_name = "PERCENT", .initial = "0.1", .not_with = "json",
     .help = "sum up the rows of a level with less"},
    {"memory", KN__OPT_FLAG, AT(memory), .not_with = "json",
     .help = "show the holders of memory, and live bytes over time"},
    {"ascii", KN__OPT_FLAG, AT(ascii), .not_with = "json",
     .help = "use ASCII characters alone, as where the locale has no UTF-8"},
};
#undef AT
static const kn__operand operand = {"PID", 0, 1, offsetof(options, pid), .choice_at = NULL};

/* --- lines --- */

static void add_view(kn__text *out, const kn__report *report, const kn__top_view *view, int width) {
    if (view->memory) {
        kn__memory_view how = {.width = width, .ascii = view->ascii};
        kn__memory_add(out, report, &how);
        return;
    }
    kn__table_options how = {
        .width = width, .depth = view->depth, .min = view->min, .ascii = view->ascii};
    kn__table_add(out, report, &how);
}

kn_status kn__top_lines(kn__text *out, const kn__live *live, const kn__top_view *view, int width) {
    kn__text text = {0};
    kn__report report;
    kn__report_init(&report);
    kn_status status = kn__live_read(&text, live);
    if (status >= 0) {
        status = kn__profile_parse(&report, live->command, text.data ? text.data : "", text.length);
    }
    if (status >= 0) {
        kn__report_sort(&report, view->sort);
        add_view(out, &report, view, width);
        if (out->failed) status = KN_FAIL(KN_ERR_OOM, "no memory for the table");
    }
    kn__report_release(&report);
    kn__text_release(&text);
    return status;
}

/* --- which process --- */

static int say_several(const long *pids, int n) {
    kn__text list = {0};
    char command[COMMAND_SHOWN];
    for (int i = 0; i < n && i < PIDS_SHOWN; i++) {
        kn__live_command(command, sizeof command, pids[i]);
        kn__text_printf(&list, "%s%ld (", i ? ", " : "", pids[i]);
        kn__text_shown(&list, command, COMMAND_SHOWN);
        kn__text_puts(&list, ")");
    }
    int code =
        kn__fail_usage("%d programs are timed; say which: %s%s", n,
                       list.data && !list.failed ? list.data : "", n > PIDS_SHOWN ? ", ..." : "");
    kn__text_release(&list);
    return code;
}

static int find_pid(long *out, const char *word) {
    long pids[PIDS_SHOWN];
    if (word) {
        char *end = NULL;
        errno = 0;
        *out = strtol(word, &end, 10);
        if (errno || end == word || *end || *out <= 0) {
            return kn__fail_usage("'%s' is no process id", word);
        }
        return KN__EXIT_OK;
    }
    int n = kn__live_find(pids, PIDS_SHOWN);
    if (n > 1) return say_several(pids, n);
    if (n == 1) {
        *out = pids[0];
        return KN__EXIT_OK;
    }
    kn__fail("no program of yours is timed: start one with KNET_TIMER=1 or by knet run");
    return KN__EXIT_FAILURE;
}

/* --- once, and on a screen --- */

static int failed(kn_status status) {
    kn__fail_last();
    return status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_FAILURE;
}

static int show_once(const options *o, const kn__live *live, const kn__top_view *view) {
    kn__output out = kn__output_begin(&o->common);
    out.live = false;
    kn_status status;
    if (o->common.json) {
        status = kn__live_read(&out.text, live);
    } else {
        status = kn__top_lines(&out.text, live, view, out.path ? 0 : kn__terminal_width());
    }
    if (status >= 0) return kn__output_end(&out, KN__EXIT_OK);
    kn__text_release(&out.text);
    return failed(status);
}

static int show_screen(const options *o, const kn__live *live, kn__top_view *view) {
    kn__top_end end = {.program_ended = false};
    kn_status status = kn__top_screen(&end, live, view, o->every);
    int code = end.signal_number ? 128 + end.signal_number : KN__EXIT_OK;
    if (status < 0) {
        code = failed(status);
    } else if (end.program_ended) {
        kn__output out = kn__output_begin(&o->common);
        kn__output_line(&out, "%s", end.last.data ? end.last.data : "");
        kn__output_line(&out, "%s has ended\n", live->name);
        code = kn__output_end(&out, code);
    }
    kn__text_release(&end.last);
    return code;
}

static int run(void *options_of) {
    const options *o = options_of;
    static const kn__sort by[] = {KN__SORT_TIME, KN__SORT_CALLS, KN__SORT_ALLOC, KN__SORT_PEAK,
                                  KN__SORT_GPU,  KN__SORT_NAME,  KN__SORT_FIRST};
    kn__top_view view = {.sort = by[kn__choice_find(o->sort, sorts)],
                         .depth = (int)o->depth,
                         .min = o->min,
                         .memory = o->memory,
                         .ascii = o->ascii || !kn__locale_is_utf8()};
    kn__live live;
    long pid = 0;
    int code = find_pid(&pid, o->pid[0]);
    if (code != KN__EXIT_OK) return code;
    kn_status status = kn__live_open(&live, pid);
    if (status < 0) return failed(status);
    bool has_terminal =
        isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !kn__terminal_in_background(STDIN_FILENO);
    bool once = o->once || o->common.json || o->common.output || !has_terminal;
    code = once ? show_once(o, &live, &view) : show_screen(o, &live, &view);
    kn__live_close(&live);
    return code;
}

const kn__command kn__cmd_top = {
    .name = "top",
    .summary = "show a running program: its tree and memory, live",
    .description =
        "Shows the table of a program that runs under the timer (KNET_TIMER=1, or knet run), "
        "again and again. Without PID it shows the only timed program of yours. The program "
        "makes a report when it is asked, on a thread that sleeps otherwise, so its scopes cost "
        "the same as without a viewer. --json prints the profile, as KNET_TIMER=json=FILE "
        "writes it.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "Keys: q ends, space pauses, s changes the order, m switches to the view of memory "
        "and back, + and - change the depth, the arrows and page keys scroll. When the "
        "program ends, the last table is printed. A program has no page before its first "
        "scope, with KNET_TIMER=nolive, if it is setuid, or once it has closed all its "
        "descriptors. Other users' programs are refused.",
    .exits = (const kn__pair[]){{"1", "there is no such program, or it is stopped"}, {NULL, NULL}},
    .examples = (const kn__pair[]){{"knet top", "the timed program"},
                                   {"knet top 4242 --once --depth 2", "one table"},
                                   {"knet top 4242 --json --output now.json",
                                    "a profile, for knet report and knet diff"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
