#include "env.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file.h"
#include "table.h"
#include "timer_words.h"
#include "trace.h"
#include "units.h"
#include "words.h"

/* Sets what the word says; false: the value doesn't fit. */
typedef bool (*apply_fn)(kn__config *config, const char *value);

static bool set_cpu(kn__config *c, const char *value) {
    (void)value;
    if (c->tier < KN__TIER_CPU) c->tier = KN__TIER_CPU;
    return true;
}

static bool set_ascii(kn__config *c, const char *value) {
    (void)value;
    c->unicode = false;
    return c->ascii = true;
}

static bool set_unicode(kn__config *c, const char *value) {
    (void)value;
    c->ascii = false;
    return c->unicode = true;
}

static bool set_number(int *out, const char *value, int most) {
    uint64_t n;
    if (!kn__read_count(&n, value) || n > (uint64_t)most) return false;
    *out = (int)n;
    return true;
}

static bool set_depth(kn__config *c, const char *value) {
    return set_number(&c->depth, value, KN__DEPTH_MAX);
}

static bool set_top(kn__config *c, const char *value) {
    return set_number(&c->top, value, 1000000);
}

static bool set_min(kn__config *c, const char *value) { return kn__read_percent(&c->min, value); }

static bool set_width(kn__config *c, const char *value) {
    return set_number(&c->width, value, 10000);
}

/* The index of the value among n names, or -1. */
static int find_name(const char *value, const char *const *names, int n) {
    for (int i = 0; i < n; i++) {
        if (strcmp(value, names[i]) == 0) return i;
    }
    return -1;
}

static bool set_sort(kn__config *c, const char *value) {
    static const char *const names[] = {
        [KN__SORT_TIME] = "time",   [KN__SORT_CALLS] = "calls", [KN__SORT_ALLOC] = "alloc",
        [KN__SORT_PEAK] = "peak",   [KN__SORT_GPU] = "gpu",     [KN__SORT_NAME] = "name",
        [KN__SORT_FIRST] = "first",
    };
    int at = find_name(value, names, (int)(sizeof names / sizeof *names));
    if (at >= 0) c->sort = (kn__sort)at;
    return at >= 0;
}

static bool set_weight(kn__config *c, const char *value) {
    static const char *const names[] = {
        [KN__WEIGHT_TIME] = "time", [KN__WEIGHT_GPU] = "gpu", [KN__WEIGHT_ALLOC] = "alloc"};
    int at = find_name(value, names, (int)(sizeof names / sizeof *names));
    if (at >= 0) c->weight = (kn__weight)at;
    return at >= 0;
}

static bool set_columns(kn__config *c, const char *value) {
    c->columns_2018 = strcmp(value, "2018") == 0;
    c->columns_spread = strcmp(value, "spread") == 0;
    return c->columns_2018 || c->columns_spread || strcmp(value, "all") == 0;
}

/* A whole number from `least`; what follows it is at *end. */
static bool read_count(uint64_t *out, const char *value, uint64_t least, const char **end) {
    char digits[24];
    size_t length = strspn(value, "0123456789");
    *end = value + length;
    snprintf(digits, sizeof digits, "%.*s", (int)length, value);
    return length < sizeof digits && kn__read_count(out, digits) && *out >= least;
}

/* "30s", "500ms", "2m", "1h", "100steps" */
static bool set_every(kn__config *c, const char *value) {
    const char *unit = NULL;
    uint64_t n;
    bool in_steps = read_count(&n, value, 1, &unit) && unit[0] == 's' && unit[1] == 't';
    if (in_steps ? strcmp(unit, "steps") != 0 && strcmp(unit, "step") != 0
                 : !kn__read_duration(&n, value)) {
        return false;
    }
    c->every_ns = in_steps ? 0 : n;
    c->every_steps = in_steps ? n : 0;
    return n > 0 && n < (uint64_t)1 << 62;
}

/* "10-12", "10-" (to the end), "10" (that one); the first step of a program is 1 */
static bool set_steps(kn__config *c, const char *value) {
    const char *rest = NULL;
    if (!read_count(&c->first_step, value, 1, &rest)) return false;
    c->last_step = c->first_step;
    if (!*rest) return true;
    c->last_step = 0;
    if (*rest++ != '-') return false;
    if (!*rest) return true;
    return read_count(&c->last_step, rest, c->first_step, &rest) && !*rest;
}

static bool set_skip(kn__config *c, const char *value) {
    const char *rest = NULL;
    if (!read_count(&c->first_step, value, 0, &rest) || *rest) return false;
    c->last_step = 0;
    return ++c->first_step != 0;
}

static bool set_signal(kn__config *c, const char *value) {
    static const char *const names[] = {"USR1", "USR2", "TERM", "INT", "HUP"};
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};
    int at = find_name(value, names, (int)(sizeof names / sizeof *names));
    if (at >= 0) c->signal = numbers[at];
    return at >= 0;
}

static bool set_buffer(kn__config *c, const char *value) {
    return kn__read_bytes(&c->buffer_bytes, value) && c->buffer_bytes >= KN__BUFFER_BYTES_MIN;
}

static bool set_trace_max(kn__config *c, const char *value) {
    return kn__read_bytes(&c->trace_max, value) && c->trace_max > 0;
}

static bool set_trace_last(kn__config *c, const char *value) {
    const char *rest = NULL;
    return read_count(&c->trace_steps, value, 1, &rest) && !*rest &&
           c->trace_steps <= KN__TRACE_STEPS_MAX;
}

static bool set_trace_slow(kn__config *c, const char *value) {
    return kn__read_duration(&c->trace_slow_ns, value) && c->trace_slow_ns > 0;
}

static bool set_clock(kn__config *c, const char *value) {
    c->clock = strcmp(value, "tsc") == 0 ? KN__CLOCK_TSC : KN__CLOCK_MONOTONIC;
    return c->clock == KN__CLOCK_TSC || strcmp(value, "monotonic") == 0;
}

/* Whether a word names a file, and which words it needs to have an effect. */
enum {
    FILE_NAME = 1,
    FOR_TABLE = 2,
    FOR_GPU = 4,
    FOR_FLAME = 8,
    FOR_TRACE = 16,
    IS_READ = 32,
    FOR_JSON = 64,
    FOR_PAGE = 128,
    FOR_FILE = 256 /* of a trace */
};

/* What a word sets: a tier, a flag or a path of the configuration, or what its function does. */
typedef enum setting { FUNCTION, TIER, ON, OFF, PATH } setting;

typedef struct word {
    const char *name, *values; /* values NULL: takes none */
    apply_fn apply;            /* NULL: `kind` and `at` */
    const char *help;
    unsigned about;
    setting kind;
    size_t at; /* the tier, or where the field is */
} word;

#define FIELD(field) offsetof(kn__config, field)

static const word words[] = {
    {"1", NULL, set_cpu, "the table of time and memory at exit; the same as cpu,mem", FOR_TABLE,
     FUNCTION, 0},
    {"0", NULL, NULL, "nothing; also off, or the variable unset or empty", 0, TIER, KN__TIER_OFF},
    {"off", NULL, NULL, NULL, 0, TIER, KN__TIER_OFF},
    {"cpu", NULL, set_cpu, "scopes, timed on the CPU", FOR_TABLE, FUNCTION, 0},
    {"nvtx", NULL, NULL, "NVTX ranges for a tool that listens, no table", 0, TIER, KN__TIER_NVTX},
    {"gpu", NULL, NULL, "and kernels, copies and sets of the GPU in the scope that launched them",
     FOR_TABLE, TIER, KN__TIER_GPU},
    {"gpu-lite", NULL, NULL, "launches of CUDA graphs alone, each as one: next to no cost",
     FOR_TABLE, TIER, KN__TIER_GPU_LITE},
    {"full", NULL, NULL, "gpu, and a row for each call of the CUDA runtime and driver", FOR_TABLE,
     TIER, KN__TIER_FULL},
    {"steps", "A-B", set_steps,
     "only these steps are measured, as kn_step counts them; A- has no end", FOR_TABLE, FUNCTION,
     0},
    {"skip", "N", set_skip, "the first N steps are not measured; the same as steps=N+1-", FOR_TABLE,
     FUNCTION, 0},
    {"mem", NULL, NULL, "memory of each scope (on unless nomem)", FOR_TABLE, ON, FIELD(memory)},
    {"nomem", NULL, NULL, "no memory columns", FOR_TABLE, OFF, FIELD(memory)},
    {"nolive", NULL, NULL, "no page and no thread for knet top, which shows a running program",
     FOR_TABLE, OFF, FIELD(live)},
    {"every", "TIME|Nsteps", set_every,
     "reports while the program runs, as at exit: 500ms, 30s, 5m, 1h; 100steps; one that can't be "
     "written is skipped, with a line on stderr",
     FOR_TABLE, FUNCTION, 0},
    {"signal", "USR1|USR2|TERM|INT|HUP", set_signal,
     "a report when the program gets this signal; TERM, INT and HUP then end it as ever", FOR_TABLE,
     FUNCTION, 0},
    {"out", "FILE", NULL,
     "where the table goes: - is stderr; in any name %p is the process id, %r the rank, %% is %",
     FOR_TABLE | FILE_NAME, PATH, FIELD(out)},
    {"json", "FILE", NULL, "the same data as JSON", FOR_TABLE | FILE_NAME, PATH, FIELD(json)},
    {"events", NULL, NULL,
     "every scope and kernel in that file too: it is a trace as well (knet report --format trace)",
     FOR_TABLE | FOR_JSON, ON, FIELD(events)},
    {"trace", "FILE", NULL,
     "every scope and kernel, for chrome://tracing (JSON) or, as FILE.pftrace, for Perfetto",
     FOR_TABLE | FILE_NAME, PATH, FIELD(trace)},
    {"trace_last", "N", set_trace_last,
     "of it, of events or of a page's timeline, only the last N steps, up to 1000",
     FOR_TABLE | FOR_TRACE, FUNCTION, 0},
    {"trace_slow", "TIME", set_trace_slow,
     "of it, only steps longer than TIME; with trace_last=N the N-1 steps before each too",
     FOR_TABLE | FOR_TRACE, FUNCTION, 0},
    {"trace_max", "BYTES", set_trace_max,
     "most bytes of that file, such as 512K; 1G, of events 64M", FOR_TABLE | FOR_FILE, FUNCTION, 0},
    {"csv", "FILE", NULL, "the rows for a spreadsheet", FOR_TABLE | FILE_NAME, PATH, FIELD(csv)},
    {"folded", "FILE", NULL, "stacks for flame graph tools", FOR_TABLE | FILE_NAME, PATH,
     FIELD(folded)},
    {"flame", "FILE", NULL, "a flame graph (SVG)", FOR_TABLE | FILE_NAME, PATH, FIELD(flame)},
    {"html", "FILE", NULL,
     "a page for a browser: flame graph, tree, memory over time, timeline of the last events",
     FOR_TABLE | FILE_NAME, PATH, FIELD(html)},
    {"notimeline", NULL, NULL, "no timeline in that page, and no events kept for it",
     FOR_TABLE | FOR_PAGE, OFF, FIELD(timeline)},
    {"metrics", "FILE", NULL, "rows, pools and counters as text for Prometheus",
     FOR_TABLE | FILE_NAME, PATH, FIELD(metrics)},
    {"weight", "time|gpu|alloc", set_weight, "what the width of a flame is; time",
     FOR_TABLE | FOR_FLAME, FUNCTION, 0},
    {"sort", "time|calls|alloc|peak|gpu|name|first", set_sort, "order of rows; time", FOR_TABLE,
     FUNCTION, 0},
    {"depth", "N", set_depth, "levels shown, up to 200; 0 is all", FOR_TABLE, FUNCTION, 0},
    {"top", "N", set_top,
     "the first N rows of each level, up to 1000000, and a sum of the others; 0 is all", FOR_TABLE,
     FUNCTION, 0},
    {"min", "PERCENT", set_min,
     "rows with less are summed up; 0 shows every row on a line of its own; 0.1", FOR_TABLE,
     FUNCTION, 0},
    {"width", "N", set_width, "columns of the table, up to 10000; 0 is no limit; the terminal's",
     FOR_TABLE, FUNCTION, 0},
    {"columns", "2018|all|spread", set_columns,
     "2018: time and allocations alone, as TimerOutputs had it; spread: min, p50, p99, max, "
     "deviation, first",
     FOR_TABLE, FUNCTION, 0},
    {"threads", NULL, NULL, "a table for each thread too", FOR_TABLE, ON, FIELD(by_thread)},
    {"ascii", NULL, set_ascii, "ASCII characters alone, as where the locale has no UTF-8",
     FOR_TABLE, FUNCTION, 0},
    {"unicode", NULL, set_unicode, "other characters too, whatever the locale", FOR_TABLE, FUNCTION,
     0},
    {"buf", "BYTES", set_buffer, "most memory of the timer's own, from 1M on; 64M", 0, FUNCTION, 0},
    {"cupti", "FILE", NULL, "libcupti, where the system doesn't find it",
     FOR_GPU | FILE_NAME | IS_READ, PATH, FIELD(cupti)},
    {"record", "FILE", NULL, "keep the raw records of the GPU, to play them again",
     FOR_GPU | FILE_NAME, PATH, FIELD(record)},
    {"clock", "tsc|monotonic", set_clock, "time-stamp counter (if it is invariant) or system call",
     0, FUNCTION, 0},
    {"help", NULL, NULL, "this text", 0, ON, FIELD(help)},
};

enum { N_WORDS = sizeof words / sizeof *words };

static void list_words(kn__text *text) {
    const char *separator = "; the words are ";
    for (int i = 0; i < N_WORDS; i++) {
        kn__text_puts(text, separator);
        kn__text_puts(text, words[i].name);
        if (words[i].values) kn__text_puts(text, "=");
        separator = ", ";
    }
}

static void warn(kn__text *messages, const char *variable, const char *text, const char *why) {
    kn__text_printf(messages, "%s: \"", variable);
    kn__text_shown(messages, text, 77);
    kn__text_printf(messages, "\" %s\n", why);
}

/* Adds a line that lists the values of a word; for the first unknown word, all words. */
static void complain(kn__text *messages, const char *variable, const char *text, const char *why,
                     const word *w) {
    bool is_first = messages->length == 0;
    warn(messages, variable, text, why);
    if (messages->failed) return;
    messages->length--; /* the end of the line */
    if (w && w->values) kn__text_printf(messages, ": %s=%s, %s", w->name, w->values, w->help);
    if (!w && is_first) list_words(messages);
    kn__text_puts(messages, "\n");
}

static const word *find_word(const char *name, size_t length) {
    for (int i = 0; i < N_WORDS; i++) {
        if (strlen(words[i].name) == length && memcmp(words[i].name, name, length) == 0) {
            return &words[i];
        }
    }
    return NULL;
}

/* Where the words are read from, and for whom. */
typedef struct list {
    kn__config *config;
    const char *variable;
    kn__text *messages;
    bool is_secure;
} list;

static const word *word_of(const char *text, const char **value) {
    const char *equals = strchr(text, '=');
    *value = equals ? equals + 1 : NULL;
    return find_word(text, equals ? (size_t)(equals - text) : strlen(text));
}

static bool apply(const word *w, kn__config *c, const char *value) {
    char *field = (char *)c + w->at;
    switch (w->kind) {
        case FUNCTION:
            return w->apply(c, value);
        case TIER:
            c->tier = (kn__tier)w->at;
            return true;
        case ON:
        case OFF:
            *(bool *)field = w->kind == ON;
            return true;
        case PATH:
            return *value && snprintf(field, KN__PATH_BYTES, "%s", value) < KN__PATH_BYTES;
    }
    return false;
}

/* Of a trace's name `trace=` alone makes a trace. */
static bool is_misnamed(const word *w, const char *value) {
    bool is_report = w->kind == PATH && !(w->about & IS_READ) && w->at != FIELD(trace);
    return is_report && kn__trace_is_perfetto(value);
}

static void read_word(const list *l, const char *text) {
    const char *value = NULL;
    const word *w = word_of(text, &value);
    const char *given = value ? value : "";
    kn__config changed = *l->config;
    if (!w) {
        complain(l->messages, l->variable, text, "is not a word of the timer", w);
    } else if (!w->values != !value) {
        complain(l->messages, l->variable, text, w->values ? "wants a value" : "takes no value", w);
    } else if (l->is_secure && w->about & FILE_NAME && strcmp(given, "-") != 0) {
        warn(l->messages, l->variable, text, "is ignored: this program is setuid or setgid");
    } else if (is_misnamed(w, given)) {
        warn(l->messages, l->variable, text,
             "is ignored: this is the name of a trace for Perfetto, which trace=FILE writes");
    } else if (!apply(w, &changed, given)) {
        complain(l->messages, l->variable, text, "has a value that does not fit", w);
    } else {
        *l->config = changed;
    }
}

/* Whether a report is written in place of what the file held, and not behind it as in a device, a
 * pipe or a standard stream. */
static bool is_replacing(const char *path) {
    char full[KN__PATH_EXPANDED_BYTES];
    struct stat file;
    if (strcmp(path, "-") == 0 || !kn__path_expand(full, sizeof full, path)) return false;
    if (stat(full, &file) != 0) return true;
    return S_ISREG(file.st_mode) && kn__standard_stream(full) < 0;
}

/* The word of a file that this word's file is too; of two words the later one of the table says
 * so. */
static const word *same_file(const word *w, const kn__config *c) {
    const char *path = (const char *)c + w->at;
    if (w->kind != PATH || !*path || !is_replacing(path)) return NULL;
    for (const word *other = words; other < w; other++) {
        const char *another = (const char *)c + other->at;
        if (other->kind == PATH && strcmp(another, path) == 0) return other;
    }
    return NULL;
}

/* Whether the report of another rank replaces this one. A second rank's trace or records end with
 * an error of their own. */
static bool is_replaced(const word *w, const kn__config *c) {
    const char *path = (const char *)c + w->at;
    bool is_report =
        w->kind == PATH && !(w->about & IS_READ) && w->at != FIELD(trace) && w->at != FIELD(record);
    if (!is_report || strcmp(kn__rank_text(), "0") == 0) return false;
    bool is_own =
        kn__path_has(path, 'r') || kn__path_has(path, 'p') || kn__path_is_descriptor(path);
    return !is_own && is_replacing(path);
}

/* Words that are right, but say nothing beside the others. */
static void check_effect(const list *l, const char *text) {
    const char *value = NULL;
    const word *w = word_of(text, &value);
    const kn__config *c = l->config;
    unsigned about = w ? w->about : 0;
    const word *other = w ? same_file(w, c) : NULL;
    if (other) {
        char why[80];
        snprintf(why, sizeof why,
                 "names the same file as %s=: only one of them is there at the end", other->name);
        warn(l->messages, l->variable, text, why);
    } else if (w && is_replaced(w, c)) {
        warn(l->messages, l->variable, text,
             "names the same file on every rank: only one of their reports is there at the end; "
             "put %r into the name");
    } else if (about & FOR_TABLE && c->tier < KN__TIER_CPU) {
        warn(l->messages, l->variable, text, "has no effect: nvtx makes no table");
    } else if (about & FOR_GPU && c->tier < KN__TIER_GPU_LITE) {
        warn(l->messages, l->variable, text, "has no effect without gpu, gpu-lite or full");
    } else if (about & FOR_FLAME && !c->folded[0] && !c->flame[0]) {
        warn(l->messages, l->variable, text, "has no effect without folded= or flame=");
    } else if (about & FOR_FILE && !c->trace[0] && !c->events) {
        warn(l->messages, l->variable, text, "has no effect without trace= or events");
    } else if (about & FOR_TRACE && !c->trace[0] && !c->events && !c->html[0]) {
        warn(l->messages, l->variable, text, "has no effect without trace=, events or html=");
    } else if (about & FOR_PAGE && !c->html[0]) {
        warn(l->messages, l->variable, text, "has no effect without html=");
    } else if (about & FOR_JSON && (!c->json[0] || c->trace[0])) {
        warn(l->messages, l->variable, text,
             c->trace[0] ? "has no effect beside trace=" : "has no effect without json=");
    }
}

static void for_each_word(const list *l, const char *at, void (*fn)(const list *, const char *)) {
    char text[KN__PATH_BYTES + 16];
    size_t length;
    while (kn__words_next(&at, text, sizeof text, &length)) {
        if (length < sizeof text) {
            fn(l, text);
        } else if (fn == read_word) {
            kn__text_printf(l->messages,
                            "%s: a word of %zu characters is too long; the most are %zu\n",
                            l->variable, length, sizeof text - 1);
        }
    }
}

/* As without any word. */
static kn__config config_initial(void) {
    return (kn__config){.memory = true,
                        .live = true,
                        .timeline = true,
                        .width = -1,
                        .min = KN__TABLE_MIN,
                        .clock = KN__CLOCK_TSC,
                        .out = "-",
                        .first_step = 1,
                        .buffer_bytes = KN__BUFFER_BYTES};
}

kn_status kn__timer_words_check(const char *value, const char *who) {
    kn__config config = config_initial();
    kn__text messages = {0};
    for_each_word(&(list){&config, who, &messages, false}, value, read_word);
    const char *first = messages.data ? messages.data : "";
    kn_status status = messages.failed ? KN_FAIL(KN_ERR_OOM, "%s: no memory for messages", who)
                       : *first ? KN_FAIL(KN_ERR_INVALID, "%.*s", (int)strcspn(first, "\n"), first)
                                : KN_OK;
    kn__text_release(&messages);
    return status;
}

void kn__config_read(kn__config *out, const char *knet_timer, const char *autograd_timer,
                     bool is_secure, kn__text *messages) {
    *out = config_initial();
    bool all = knet_timer && *knet_timer, grad = autograd_timer && *autograd_timer;
    list grads = {out, "AUTOGRAD_TIMER", messages, is_secure};
    list words_of_all = {out, "KNET_TIMER", messages, is_secure};
    if (grad) {
        out->tier = KN__TIER_CPU;
        for_each_word(&grads, autograd_timer, read_word);
        out->grad_only = out->tier != KN__TIER_OFF;
    }
    if (all) { /* any list but 0, off, nvtx and help asks for the table, even one with a mistake */
        kn__tier before = out->tier;
        out->tier = strcmp(knet_timer, "help") == 0 ? KN__TIER_OFF : KN__TIER_CPU;
        for_each_word(&words_of_all, knet_timer, read_word);
        if (out->tier >= KN__TIER_CPU) out->grad_only = false;
        if (out->tier < KN__TIER_CPU && before > out->tier) out->tier = before;
    }
    if (out->tier == KN__TIER_OFF) return;
    if (grad) for_each_word(&grads, autograd_timer, check_effect);
    if (all) for_each_word(&words_of_all, knet_timer, check_effect);
}

void kn__config_for_child(kn__config *config) {
    for (int i = 0; i < N_WORDS; i++) {
        char *path = (char *)config + words[i].at;
        if (words[i].kind != PATH || words[i].about & IS_READ) continue;
        if (strcmp(path, "-") == 0 || kn__path_has(path, 'p')) continue;
        bool is_kept = *path && strcmp(path, "/dev/null") != 0;
        if (is_kept && !config->left_out[0]) memcpy(config->left_out, path, KN__PATH_BYTES);
        *path = '\0';
    }
}

void kn__config_help(kn__text *text) {
    kn__text_puts(text,
                  "KNET_TIMER is a list of words separated by commas, such as\n"
                  "  KNET_TIMER=1\n"
                  "  KNET_TIMER=cpu,sort=alloc,depth=3,out=prof.%p.txt,json=prof.json\n"
                  "The words:\n");
    for (int i = 0; i < N_WORDS; i++) {
        if (!words[i].help) continue;
        kn__text name = {0};
        kn__text_printf(&name, "%s%s%s", words[i].name, words[i].values ? "=" : "",
                        words[i].values ? words[i].values : "");
        if (!name.failed) kn__text_entry(text, name.data, words[i].help, 21, KN__HELP_WIDTH);
        kn__text_release(&name);
    }
    kn__text_puts(text, "AUTOGRAD_TIMER=1 records forward and backward operations alone.\n");
}
