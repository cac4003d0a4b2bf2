#include "env.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return c->ascii = true;
}

static bool set_unicode(kn__config *c, const char *value) {
    (void)value;
    c->ascii = false;
    return true;
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
    char *stop = NULL;
    errno = 0;
    unsigned long long n = strtoull(value, &stop, 10);
    if (*value < '0' || *value > '9' || errno || n < least) return false;
    *out = n;
    *end = stop;
    return true;
}

static bool scale(uint64_t *n, uint64_t by) { return !__builtin_mul_overflow(*n, by, n); }

/* "30s", "500ms", "2m", "1h", "100steps" */
static bool set_every(kn__config *c, const char *value) {
    static const char *const names[] = {"ms", "s", "m", "h", "steps", "step"};
    static const uint64_t units_ns[] = {1000000, 1000000000, 60000000000, 3600000000000, 0, 0};
    const char *unit = NULL;
    uint64_t n;
    if (!read_count(&n, value, 1, &unit)) return false;
    int at = find_name(unit, names, 6);
    if (at < 0 || (units_ns[at] && !scale(&n, units_ns[at]))) return false;
    c->every_ns = units_ns[at] ? n : 0;
    c->every_steps = units_ns[at] ? 0 : n;
    return n < (uint64_t)1 << 62;
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
    static const char *const names[] = {"USR1", "USR2"};
    int at = find_name(value, names, 2);
    c->signal = at == 0 ? SIGUSR1 : SIGUSR2;
    return at >= 0;
}

/* "32M", "500K", "1G", "4096" */
static bool set_buffer(kn__config *c, const char *value) {
    static const char *const names[] = {"", "K", "M", "G"};
    const char *unit = NULL;
    uint64_t n;
    if (!read_count(&n, value, 1, &unit)) return false;
    int at = find_name(unit, names, 4);
    if (at < 0 || !scale(&n, (uint64_t)1 << (10 * at)) || n < KN__BUFFER_BYTES_MIN) return false;
    c->buffer_bytes = n;
    return true;
}

static bool set_threads(kn__config *c, const char *value) {
    (void)value;
    return c->by_thread = true;
}

static bool set_clock(kn__config *c, const char *value) {
    c->clock = strcmp(value, "tsc") == 0 ? KN__CLOCK_TSC : KN__CLOCK_MONOTONIC;
    return c->clock == KN__CLOCK_TSC || strcmp(value, "monotonic") == 0;
}

typedef struct word {
    const char *name, *values; /* values NULL: takes none */
    apply_fn apply;            /* NULL: not built */
    const char *help;
} word;

static const word words[] = {
    {"1", NULL, set_cpu, "the table of time and memory at exit; the same as cpu,mem"},
    {"0", NULL, set_off, "nothing; also off, or the variable unset or empty"},
    {"off", NULL, set_off, NULL},
    {"cpu", NULL, set_cpu, "scopes, timed on the CPU"},
    {"nvtx", NULL, set_nvtx, "NVTX ranges for a tool that listens, no table"},
    {"gpu", NULL, set_gpu,
     "and kernels, copies and sets of the GPU in the scope that launched them"},
    {"gpu-lite", NULL, set_gpu_lite, "launches of CUDA graphs alone, each as one: next to no cost"},
    {"full", NULL, set_full, "gpu, and a row for each call of the CUDA runtime and driver"},
    {"steps", "A-B", set_steps,
     "only these steps are measured, as kn_step counts them; A- has no end"},
    {"skip", "N", set_skip, "the first N steps are not measured; the same as steps=N+1-"},
    {"mem", NULL, set_memory, "memory of each scope (on unless nomem)"},
    {"nomem", NULL, set_no_memory, "no memory columns"},
    {"every", "TIME|Nsteps", set_every,
     "reports while the program runs, as at exit: 500ms, 30s, 5m, 1h; 100steps"},
    {"signal", "USR1|USR2", set_signal, "a report when the program gets this signal"},
    {"out", "FILE", set_out,
     "where the table goes: - is stderr; in any name %p is the process id, %r the rank"},
    {"json", "FILE", set_json, "the same data as JSON"},
    {"trace", "FILE", set_trace, "every scope and kernel for Perfetto or chrome://tracing (JSON)"},
    {"csv", "FILE", set_csv, "the rows for a spreadsheet"},
    {"folded", "FILE", set_folded, "stacks for flame graph tools"},
    {"flame", "FILE", set_flame, "a flame graph (SVG)"},
    {"weight", "time|gpu|alloc", set_weight, "what the width of a flame is; time"},
    {"sort", "time|calls|alloc|peak|gpu|name|first", set_sort, "order of rows; time"},
    {"depth", "N", set_depth, "levels shown; 0 is all"},
    {"width", "N", set_width, "columns of the table at most; 0 is no limit; the terminal's"},
    {"columns", "2018|all|spread", set_columns,
     "2018: time and allocations alone, as TimerOutputs had it; spread: min, max, σ, first"},
    {"threads", NULL, set_threads, "a table for each thread too"},
    {"ascii", NULL, set_ascii, "rules of '-'"},
    {"unicode", NULL, set_unicode, "rules of '─'"},
    {"buf", "BYTES", set_buffer, "most memory of the timer's own; 32M"},
    {"cupti", "FILE", set_cupti, "libcupti, where the system doesn't find it"},
    {"record", "FILE", set_record, "keep the raw records of the GPU, to play them again"},
    {"clock", "tsc|monotonic", set_clock, "time-stamp counter (if it is invariant) or system call"},
    {"help", NULL, set_help, "this text"},
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

/* A line; the first one says what there is. */
static void complain(kn__text *messages, const char *variable, const char *text, const char *why) {
    bool is_first = messages->length == 0;
    kn__text_printf(messages, "%s: \"", variable);
    kn__text_label(messages, text, 80, 0);
    kn__text_printf(messages, "\" %s", why);
    if (is_first) list_words(messages);
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

static void read_word(kn__config *out, const char *variable, const char *text, kn__text *messages) {
    const char *equals = strchr(text, '=');
    const word *w = find_word(text, equals ? (size_t)(equals - text) : strlen(text));
    kn__config changed = *out;
    if (!w) {
        complain(messages, variable, text, "is not a word of the timer");
    } else if (!w->apply) {
        complain(messages, variable, text, "is not built into this library");
    } else if (!w->values != !equals) {
        complain(messages, variable, text, w->values ? "wants a value" : "takes no value");
    } else if (!w->apply(&changed, equals ? equals + 1 : "")) {
        complain(messages, variable, text, "has a value that does not fit");
    } else {
        *out = changed;
    }
}

static void read_list(kn__config *out, const char *variable, const char *list, kn__text *messages) {
    char text[KN__PATH_BYTES + 16];
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length >= sizeof text) {
            kn__text_printf(messages, "%s: a word of %zu characters is too long\n", variable,
                            length);
        } else if (length > 0) {
            memcpy(text, list, length);
            text[length] = '\0';
            read_word(out, variable, text, messages);
        }
        list += length + (list[length] == ',');
    }
}

void kn__config_read(kn__config *out, const char *knet_timer, const char *autograd_timer,
                     kn__text *messages) {
    *out = (kn__config){.memory = true,
                        .width = -1,
                        .clock = KN__CLOCK_TSC,
                        .out = "-",
                        .first_step = 1,
                        .buffer_bytes = KN__BUFFER_BYTES};
    bool all = knet_timer && *knet_timer, grad = autograd_timer && *autograd_timer;
    if (grad) {
        out->tier = KN__TIER_CPU;
        read_list(out, "AUTOGRAD_TIMER", autograd_timer, messages);
        out->grad_only = out->tier != KN__TIER_OFF;
    }
    if (all) { /* any list but 0, off and nvtx is a wish for the table, even one with a slip in it
                */
        kn__tier before = out->tier;
        out->tier = KN__TIER_CPU;
        read_list(out, "KNET_TIMER", knet_timer, messages);
        if (out->tier >= KN__TIER_CPU) out->grad_only = false;
        if (out->tier < KN__TIER_CPU && before > out->tier) out->tier = before;
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
        kn__text_puts(text, "  ");
        if (!name.failed) kn__text_left(text, name.data, 17);
        kn__text_printf(text, "  %s\n", words[i].help);
        kn__text_release(&name);
    }
    kn__text_puts(text, "AUTOGRAD_TIMER=1 records forward and backward operations alone.\n");
}
