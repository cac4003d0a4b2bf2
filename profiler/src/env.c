#include "env.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"
#include "words.h"

/* Sets what the word says; false: the value is not one of its values. */
typedef bool (*apply_fn)(kn__config *config, const char *value);

static bool set_cpu(kn__config *c, const char *value) {
    (void)value;
    if (c->tier < KN__TIER_CPU) c->tier = KN__TIER_CPU;
    return true;
}

static bool set_gpu(kn__config *c, const char *value) {
    (void)value;
    c->tier = KN__TIER_GPU;
    return true;
}

static bool set_gpu_lite(kn__config *c, const char *value) {
    (void)value;
    c->tier = KN__TIER_GPU_LITE;
    return true;
}

static bool set_full(kn__config *c, const char *value) {
    (void)value;
    c->tier = KN__TIER_FULL;
    return true;
}

static bool set_nvtx(kn__config *c, const char *value) {
    (void)value;
    c->tier = KN__TIER_NVTX;
    return true;
}

static bool set_off(kn__config *c, const char *value) {
    (void)value;
    c->tier = KN__TIER_OFF;
    return true;
}

static bool set_memory(kn__config *c, const char *value) {
    (void)value;
    return c->memory = true;
}

static bool set_no_memory(kn__config *c, const char *value) {
    (void)value;
    c->memory = false;
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

static bool set_help(kn__config *c, const char *value) {
    (void)value;
    return c->help = true;
}

static bool set_path(char *out, const char *value) {
    return *value && snprintf(out, KN__PATH_BYTES, "%s", value) < KN__PATH_BYTES;
}

static bool set_out(kn__config *c, const char *value) { return set_path(c->out, value); }
static bool set_json(kn__config *c, const char *value) { return set_path(c->json, value); }

static bool set_record(kn__config *c, const char *value) { return set_path(c->record, value); }
static bool set_cupti(kn__config *c, const char *value) { return set_path(c->cupti, value); }
static bool set_trace(kn__config *c, const char *value) { return set_path(c->trace, value); }
static bool set_csv(kn__config *c, const char *value) { return set_path(c->csv, value); }
static bool set_folded(kn__config *c, const char *value) { return set_path(c->folded, value); }
static bool set_flame(kn__config *c, const char *value) { return set_path(c->flame, value); }

static bool set_number(int *out, const char *value, int most) {
    char *end = NULL;
    long n = strtol(value, &end, 10);
    if (end == value || *end || n < 0 || n > most) return false;
    *out = (int)n;
    return true;
}

static bool set_depth(kn__config *c, const char *value) {
    return set_number(&c->depth, value, KN__DEPTH_MAX);
}

static bool set_width(kn__config *c, const char *value) {
    return set_number(&c->width, value, 10000);
}

/* The place of the value among n names; -1: it is none of them. */
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

static bool set_threads(kn__config *c, const char *value) {
    (void)value;
    return c->by_thread = true;
}

static bool set_clock(kn__config *c, const char *value) {
    c->clock = strcmp(value, "tsc") == 0 ? KN__CLOCK_TSC : KN__CLOCK_MONOTONIC;
    return c->clock == KN__CLOCK_TSC || strcmp(value, "monotonic") == 0;
}

/* Whether a word names a file, and what it needs to have an effect. */
enum { FILE_NAME = 1, FOR_TABLE = 2, FOR_GPU = 4, FOR_FLAME = 8 };

typedef struct word {
    const char *name, *values; /* values NULL: takes none */
    apply_fn apply;            /* NULL: not built */
    const char *help;
    unsigned about;
} word;

static const word words[] = {
    {"1", NULL, set_cpu, "the table of time and memory at exit; the same as cpu,mem", FOR_TABLE},
    {"0", NULL, set_off, "nothing; also off, or the variable unset or empty", 0},
    {"off", NULL, set_off, NULL, 0},
    {"cpu", NULL, set_cpu, "scopes, timed on the CPU", FOR_TABLE},
    {"nvtx", NULL, set_nvtx, "NVTX ranges for a tool that listens, no table", 0},
    {"gpu", NULL, set_gpu,
     "and kernels, copies and sets of the GPU in the scope that launched them", FOR_TABLE},
    {"gpu-lite", NULL, set_gpu_lite, "launches of CUDA graphs alone, each as one: next to no cost",
     FOR_TABLE},
    {"full", NULL, set_full, "gpu, and a row for each call of the CUDA runtime and driver",
     FOR_TABLE},
    {"steps", "A-B", set_steps,
     "only these steps are measured, as kn_step counts them; A- has no end", FOR_TABLE},
    {"skip", "N", set_skip, "the first N steps are not measured; the same as steps=N+1-",
     FOR_TABLE},
    {"mem", NULL, set_memory, "memory of each scope (on unless nomem)", FOR_TABLE},
    {"nomem", NULL, set_no_memory, "no memory columns", FOR_TABLE},
    {"every", "TIME|Nsteps", set_every,
     "reports while the program runs, as at exit: 500ms, 30s, 5m, 1h; 100steps", FOR_TABLE},
    {"signal", "USR1|USR2|TERM|INT|HUP", set_signal,
     "a report when the program gets this signal; TERM, INT and HUP then end it as ever",
     FOR_TABLE},
    {"out", "FILE", set_out,
     "where the table goes: - is stderr; in any name %p is the process id, %r the rank",
     FOR_TABLE | FILE_NAME},
    {"json", "FILE", set_json, "the same data as JSON", FOR_TABLE | FILE_NAME},
    {"trace", "FILE", set_trace, "every scope and kernel for Perfetto or chrome://tracing (JSON)",
     FOR_TABLE | FILE_NAME},
    {"csv", "FILE", set_csv, "the rows for a spreadsheet", FOR_TABLE | FILE_NAME},
    {"folded", "FILE", set_folded, "stacks for flame graph tools", FOR_TABLE | FILE_NAME},
    {"flame", "FILE", set_flame, "a flame graph (SVG)", FOR_TABLE | FILE_NAME},
    {"weight", "time|gpu|alloc", set_weight, "what the width of a flame is; time",
     FOR_TABLE | FOR_FLAME},
    {"sort", "time|calls|alloc|peak|gpu|name|first", set_sort, "order of rows; time", FOR_TABLE},
    {"depth", "N", set_depth, "levels shown; 0 is all", FOR_TABLE},
    {"width", "N", set_width, "columns of the table at most; 0 is no limit; the terminal's",
     FOR_TABLE},
    {"columns", "2018|all|spread", set_columns,
     "2018: time and allocations alone, as TimerOutputs had it; spread: min, max, deviation, first",
     FOR_TABLE},
    {"threads", NULL, set_threads, "a table for each thread too", FOR_TABLE},
    {"ascii", NULL, set_ascii, "ASCII characters alone, as where the locale has no UTF-8",
     FOR_TABLE},
    {"unicode", NULL, set_unicode, "other characters too, whatever the locale", FOR_TABLE},
    {"buf", "BYTES", set_buffer, "most memory of the timer's own; 64M", 0},
    {"cupti", "FILE", set_cupti, "libcupti, where the system doesn't find it", FOR_GPU | FILE_NAME},
    {"record", "FILE", set_record, "keep the raw records of the GPU, to play them again",
     FOR_GPU | FILE_NAME},
    {"clock", "tsc|monotonic", set_clock, "time-stamp counter (if it is invariant) or system call",
     0},
    {"help", NULL, set_help, "this text", 0},
};

enum { N_WORDS = sizeof words / sizeof *words };

static void list_words(kn__text *text) {
    const char *separator = "; the words are ";
    for (int i = 0; i < N_WORDS; i++) {
        if (!words[i].apply) continue;
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

/* A line; the first one says what there is. */
static void complain(kn__text *messages, const char *variable, const char *text, const char *why) {
    bool is_first = messages->length == 0;
    warn(messages, variable, text, why);
    if (!is_first || messages->failed) return;
    messages->length--; /* the end of the line */
    list_words(messages);
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

static void read_word(const list *l, const char *text) {
    const char *value = NULL;
    const word *w = word_of(text, &value);
    const char *given = value ? value : "";
    kn__config changed = *l->config;
    if (!w) {
        complain(l->messages, l->variable, text, "is not a word of the timer");
    } else if (!w->apply) {
        complain(l->messages, l->variable, text, "is not built into this library");
    } else if (!w->values != !value) {
        complain(l->messages, l->variable, text, w->values ? "wants a value" : "takes no value");
    } else if (l->is_secure && w->about & FILE_NAME && strcmp(given, "-") != 0) {
        warn(l->messages, l->variable, text, "is ignored: this program is setuid or setgid");
    } else if (!w->apply(&changed, given)) {
        complain(l->messages, l->variable, text, "has a value that does not fit");
    } else {
        *l->config = changed;
    }
}

/* Words that are right, but say nothing beside the others. */
static void check_effect(const list *l, const char *text) {
    const char *value = NULL;
    const word *w = word_of(text, &value);
    const kn__config *c = l->config;
    unsigned about = w && w->apply ? w->about : 0;
    if (about & FOR_TABLE && c->tier < KN__TIER_CPU) {
        warn(l->messages, l->variable, text, "has no effect: nvtx makes no table");
    } else if (about & FOR_GPU && c->tier < KN__TIER_GPU_LITE) {
        warn(l->messages, l->variable, text, "has no effect without gpu, gpu-lite or full");
    } else if (about & FOR_FLAME && !c->folded[0] && !c->flame[0]) {
        warn(l->messages, l->variable, text, "has no effect without folded= or flame=");
    }
}

static void for_each_word(const list *l, const char *at, void (*fn)(const list *, const char *)) {
    char text[KN__PATH_BYTES + 16];
    size_t length;
    while (kn__words_next(&at, text, sizeof text, &length)) {
        if (length < sizeof text) {
            fn(l, text);
        } else if (fn == read_word) {
            kn__text_printf(l->messages, "%s: a word of %zu characters is too long\n", l->variable,
                            length);
        }
    }
}

void kn__config_read(kn__config *out, const char *knet_timer, const char *autograd_timer,
                     bool is_secure, kn__text *messages) {
    *out = (kn__config){.memory = true,
                        .width = -1,
                        .clock = KN__CLOCK_TSC,
                        .out = "-",
                        .first_step = 1,
                        .buffer_bytes = KN__BUFFER_BYTES};
    bool all = knet_timer && *knet_timer, grad = autograd_timer && *autograd_timer;
    list grads = {out, "AUTOGRAD_TIMER", messages, is_secure};
    list words_of_all = {out, "KNET_TIMER", messages, is_secure};
    if (grad) {
        out->tier = KN__TIER_CPU;
        for_each_word(&grads, autograd_timer, read_word);
        out->grad_only = out->tier != KN__TIER_OFF;
    }
    if (all) { /* any list but 0, off and nvtx is a wish for the table, even one with a slip in it
                */
        kn__tier before = out->tier;
        out->tier = KN__TIER_CPU;
        for_each_word(&words_of_all, knet_timer, read_word);
        if (out->tier >= KN__TIER_CPU) out->grad_only = false;
        if (out->tier < KN__TIER_CPU && before > out->tier) out->tier = before;
    }
    if (out->tier == KN__TIER_OFF) return;
    if (grad) for_each_word(&grads, autograd_timer, check_effect);
    if (all) for_each_word(&words_of_all, knet_timer, check_effect);
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
