#include "config.h"

#include <stdio.h>
#include <string.h>

#include "pool_types.h"

/* ---- values ---- */

typedef struct suffix {
    const char *text;
    uint64_t factor;
} suffix;

static const suffix SIZES[] = {{"B", 1},
                               {"KiB", (uint64_t)1 << 10},
                               {"MiB", (uint64_t)1 << 20},
                               {"GiB", (uint64_t)1 << 30},
                               {"TiB", (uint64_t)1 << 40},
                               {"KB", 1000},
                               {"MB", 1000000},
                               {"GB", 1000000000},
                               {"TB", 1000000000000},
                               {"", 1}};
static const suffix TIMES[] = {{"ns", 1},         {"us", 1000},         {"ms", 1000000},
                               {"s", 1000000000}, {"min", 60000000000}, {"h", 3600000000000}};
#define SIZE_WANTED "a number above 0 and B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
#define TIME_WANTED "a number above 0 and ns, us, ms, s, min or h"
#define FRACTION_WANTED "a number above 0, at most 1"
#define PATH_WANTED "a path of 1 to 511 characters"

enum { NANO = 1000000000 };

/* Digits with at most nine decimals, in any locale: whole and billionths. Returns what is behind
 * them; NULL: no such number. */
static const char *parse_number(const char *at, uint64_t *whole, uint64_t *nano) {
    const char *start = at;
    *whole = *nano = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(*whole, (uint64_t)10, whole)) return NULL;
        if (__builtin_add_overflow(*whole, (uint64_t)(*at - '0'), whole)) return NULL;
    }
    if (at == start) return NULL;
    if (*at != '.') return at;
    start = ++at;
    for (uint64_t unit = NANO / 10; *at >= '0' && *at <= '9'; at++, unit /= 10) {
        if (!unit) return NULL;
        *nano += unit * (uint64_t)(*at - '0');
    }
    return at == start ? NULL : at;
}

static bool parse_scaled(uint64_t *out, const char *value, const suffix *suffixes, size_t n) {
    uint64_t whole, nano, scaled;
    const char *end = parse_number(value, &whole, &nano);
    for (size_t i = 0; end && i < n; i++) {
        if (strcmp(suffixes[i].text, end) != 0) continue;
        uint64_t factor = suffixes[i].factor; /* and nano billionths of it, exactly */
        uint64_t rest = factor / NANO * nano + factor % NANO * nano / NANO;
        if (__builtin_mul_overflow(whole, factor, &scaled)) return false;
        if (__builtin_add_overflow(scaled, rest, &scaled)) return false;
        *out = scaled;
        return scaled > 0;
    }
    return false;
}

static bool parse_size(size_t *out, const char *value) {
    uint64_t bytes = 0;
    if (!parse_scaled(&bytes, value, SIZES, sizeof SIZES / sizeof *SIZES)) return false;
    if (bytes > (uint64_t)1 << 60) return false;
    *out = (size_t)bytes;
    return true;
}

static bool parse_path(char *out, const char *value) {
    return *value && snprintf(out, KN__CONFIG_PATH_BYTES, "%s", value) < KN__CONFIG_PATH_BYTES;
}

/* ---- words ---- */

/* Sets what the word says; false: the value is not one of its values. */
typedef bool (*apply_fn)(kn__alloc_config *config, const char *value);

static bool set_limit(kn__alloc_config *c, const char *value) {
    return parse_size(&c->pool.limit_bytes, value);
}

static bool set_soft_limit(kn__alloc_config *c, const char *value) {
    return parse_size(&c->pool.soft_limit_bytes, value);
}

static bool set_fraction(kn__alloc_config *c, const char *value) {
    uint64_t whole, nano;
    const char *end = parse_number(value, &whole, &nano);
    if (!end || *end || whole > 1 || whole * NANO + nano == 0 || whole * NANO + nano > NANO) {
        return false;
    }
    c->pool.device_fraction = (double)whole + (double)nano / NANO;
    return true;
}

static bool set_slab_max(kn__alloc_config *c, const char *value) {
    size_t bytes = 0;
    if (!parse_size(&bytes, value) || bytes < KN__PAGE || bytes > KN__SLAB_MAX) return false;
    c->pool.slab_max_bytes = bytes;
    return true;
}

static bool set_decay(kn__alloc_config *c, const char *value) {
    return parse_scaled(&c->pool.decay_ns, value, TIMES, sizeof TIMES / sizeof *TIMES);
}

static bool set_trace(kn__alloc_config *c, const char *value) {
    return parse_path(c->trace, value);
}

static bool set_stats(kn__alloc_config *c, const char *value) {
    return parse_path(c->stats, value ? value : "-");
}

static bool set_snapshot(kn__alloc_config *c, const char *value) {
    return parse_path(c->snapshot, value);
}

static bool set_oom(kn__alloc_config *c, const char *value) { return parse_path(c->oom, value); }

static bool set_help(kn__alloc_config *c, const char *value) {
    (void)value;
    return c->help = true;
}

enum { NO_VALUE, VALUE, VALUE_OR_NONE };

typedef struct word {
    const char *name, *shown;
    int takes;
    apply_fn apply;
    const char *wanted, *help;
} word;

static const word WORDS[] = {
    {"limit", "SIZE", VALUE, set_limit, SIZE_WANTED, "most a device's pool may reserve"},
    {"soft_limit", "SIZE", VALUE, set_soft_limit, SIZE_WANTED,
     "above it memory that is free is used up before the pool grows"},
    {"fraction", "X", VALUE, set_fraction, FRACTION_WANTED,
     "the limit as a share of the device's memory, such as 0.9"},
    {"slab_max", "SIZE", VALUE, set_slab_max, "a size from 64KiB to 1MiB",
     "largest size served from slabs; 64KiB"},
    {"decay", "TIME", VALUE, set_decay, TIME_WANTED,
     "memory idle for so long goes back to the device; never"},
    {"trace", "FILE", VALUE, set_trace, PATH_WANTED,
     "every allocation and free of every pool, for knet replay"},
    {"stats", "[FILE]", VALUE_OR_NONE, set_stats, PATH_WANTED,
     "each pool's counters when it goes or at exit; JSON if FILE ends in .json"},
    {"snapshot", "FILE", VALUE, set_snapshot, PATH_WANTED,
     "every block of each pool at exit, as JSON"},
    {"oom", "FILE", VALUE, set_oom, PATH_WANTED,
     "each allocation that failed, and who held the memory: a line of JSON"},
    {"help", "", NO_VALUE, set_help, "", "this text"},
};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

static void list_words(kn__writer *w) {
    for (int i = 0; i < N_WORDS; i++) {
        kn__write(w, "%s%s%s", i ? ", " : "", WORDS[i].name, WORDS[i].takes == VALUE ? "=" : "");
    }
}

/* The word as it was written, with what can't be shown left out. */
static void quote(kn__writer *w, const char *text, size_t length) {
    kn__write_text(w, "KNET_ALLOC: \"");
    for (size_t i = 0; i < length && i < 80; i++) {
        kn__write(w, "%c", text[i] < 0x20 || text[i] > 0x7e ? '?' : text[i]);
    }
    kn__write_text(w, length > 80 ? "...\" " : "\" ");
}

static const word *find_word(const char *name, size_t length) {
    for (int i = 0; i < N_WORDS; i++) {
        if (strlen(WORDS[i].name) == length && memcmp(WORDS[i].name, name, length) == 0) {
            return &WORDS[i];
        }
    }
    return NULL;
}

static void read_word(kn__alloc_config *out, const char *text, kn__writer *messages) {
    size_t length = strlen(text), name = strcspn(text, "=");
    const char *value = text[name] ? text + name + 1 : NULL;
    const word *w = find_word(text, name);
    kn__alloc_config changed = *out;
    if (w && !(value && w->takes == NO_VALUE) && !(!value && w->takes == VALUE) &&
        w->apply(&changed, value)) {
        *out = changed;
        return;
    }
    quote(messages, text, length);
    if (!w) {
        kn__write_text(messages, "is not a word of the allocator; the words are ");
        list_words(messages);
    } else if (value && w->takes == NO_VALUE) {
        kn__write(messages, "takes no value: write %s", w->name);
    } else {
        kn__write(messages, "is not %s=%s: %s wants %s", w->name, w->shown, w->name, w->wanted);
    }
    kn__write_text(messages, "\n");
}

static void check_together(kn__alloc_config *out, kn__writer *messages) {
    kn_pool_options *o = &out->pool;
    if (!o->limit_bytes || o->soft_limit_bytes <= o->limit_bytes) return;
    kn__write(messages, "KNET_ALLOC: soft_limit is %zu bytes, above limit, which is %zu: %s\n",
              o->soft_limit_bytes, o->limit_bytes, "it is left out");
    o->soft_limit_bytes = 0;
}

void kn__alloc_config_read(kn__alloc_config *out, const char *list, kn__writer *messages) {
    char text[KN__CONFIG_PATH_BYTES + 64];
    *out = (kn__alloc_config){.help = false};
    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (length >= sizeof text) {
            quote(messages, list, length);
            kn__write(messages, "is too long: %zu characters\n", length);
        } else if (length > 0) {
            memcpy(text, list, length);
            text[length] = '\0';
            read_word(out, text, messages);
        }
        list += length + (list[length] == ',');
    }
    check_together(out, messages);
}

void kn__alloc_config_help(kn__writer *w) {
    kn__write_text(w,
                   "KNET_ALLOC is a list of words separated by commas, such as\n"
                   "  KNET_ALLOC=stats\n"
                   "  KNET_ALLOC=limit=8GiB,decay=10s,trace=run.%p.kntrace,oom=oom.json\n"
                   "The words; those with SIZE, X and TIME are for the devices' default pools:\n");
    for (int i = 0; i < N_WORDS; i++) {
        char left[32];
        const word *d = &WORDS[i];
        const char *equals = d->takes == VALUE ? "=" : "";
        bool optional = d->takes == VALUE_OR_NONE;
        snprintf(left, sizeof left, "%s%s%s", d->name, optional ? "[=FILE]" : equals,
                 optional ? "" : d->shown);
        kn__write(w, "  %-15s  %s\n", left, d->help);
    }
    kn__write_text(w, "SIZE is " SIZE_WANTED "; TIME is " TIME_WANTED
                      ".\nFILE - is stderr; %p in a name is the process id.\n");
}
