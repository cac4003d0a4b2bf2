#include "inspect/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "alloc_words.h"
#include "core/pool_state.h"
#include "pool/options.h"
#include "units.h"
#include "words.h"

enum { NANO = 1000000000, WORD_BYTES = KN__CONFIG_PATH_BYTES + 64 };
#define TOO_LONG "it is too long: %zu characters; the most are %d"

typedef enum kind { SIZE, SLAB_SIZE, SHARE, TIME, FILE_NAME, FILE_OR_STDERR, SWITCH } kind;

static const struct {
    const char *shown, *wanted;
    bool (*read_fn)(uint64_t *out, const char *text); /* of numbers */
    uint64_t min, max;
} KINDS[] = {
    [SIZE] = {"=SIZE", "a number above 0, whole or with " KN__BYTES_UNITS, kn__read_bytes, 1,
              1ull << 60},
    [SLAB_SIZE] = {"=SIZE", "a size from 64KiB to 1MiB", kn__read_bytes, KN__PAGE, KN__SLAB_MAX},
    [SHARE] = {"=X", "a number above 0, at most 1, without an exponent", kn__read_billionths, 1,
               NANO},
    [TIME] = {"=TIME", "a number above 0 and " KN__DURATION_UNITS, kn__read_duration, 1,
              UINT64_MAX},
    [FILE_NAME] = {"=FILE", "a path of 1 to 511 characters", NULL, 0, 0},
    [FILE_OR_STDERR] = {"[=FILE]", "a path of 1 to 511 characters", NULL, 0, 0},
    [SWITCH] = {"", "no value", NULL, 0, 0},
};

static const struct word {
    const char *name;
    kind kind;
    size_t offset; /* in kn__alloc_config */
    const char *help;
} WORDS[] = {
#define AT(member) offsetof(kn__alloc_config, member)
    {"limit", SIZE, AT(pool.limit_bytes), "the most memory that a pool reserves"},
    {"soft_limit", SIZE, AT(pool.soft_limit_bytes),
     "use up free memory before the pool reserves more than this"},
    {"fraction", SHARE, AT(pool.device_fraction),
     "the limit as a share of the device's memory, such as 0.9"},
    {"pressure", SHARE, AT(pool.pressure),
     "the share of the memory in use above which requests may wait for streams; default: 0.9"},
    {"slab_max", SLAB_SIZE, AT(pool.slab_max_bytes),
     "the largest size served from slabs; default: 64KiB"},
    {"decay", TIME, AT(pool.decay_ns),
     "return memory that has been idle this long; default: never"},
    {"trace", FILE_NAME, AT(trace), "record every allocation and free, for knet replay"},
    {"stats", FILE_OR_STDERR, AT(stats),
     "each pool's counters when it is destroyed or at exit; JSON if FILE ends in .json"},
    {"snapshot", FILE_NAME, AT(snapshot), "every block of each pool at exit, as JSON"},
    {"oom", FILE_NAME, AT(oom), "a line of JSON for each allocation that fails"},
    {"stacks", SWITCH, AT(stacks), "keep the call stacks of allocations, for snapshot and oom"},
    {"help", SWITCH, AT(help), "print this text"},
#undef AT
};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

/* Sizes and times have no greatest one that their words tell of. */
static bool is_too_large(const struct word *w, const char *value) {
    uint64_t n;
    if (!w || !value || (w->kind != SIZE && w->kind != TIME)) return false;
    return KINDS[w->kind].read_fn(&n, value) ? n > KINDS[w->kind].max : errno == ERANGE;
}

/* Sets what the word names; false, with nothing changed: the value is not one of its values. NULL:
 * the word has no value. */
static bool apply(kn__alloc_config *config, const struct word *w, const char *value) {
    void *at = (char *)config + w->offset;
    uint64_t n;
    if (w->kind == SWITCH) {
        if (!value) *(bool *)at = true;
        return !value;
    }
    if (!value && w->kind != FILE_OR_STDERR) return false;
    if (value && KINDS[w->kind].read_fn && strcmp(value, "none") == 0) {
        memset(at, 0, sizeof n);
        return true;
    }
    if (KINDS[w->kind].read_fn) {
        if (!KINDS[w->kind].read_fn(&n, value)) return false;
        if (n < KINDS[w->kind].min || n > KINDS[w->kind].max) return false;
        double share = (double)n / NANO;
        memcpy(at, w->kind == SHARE ? (void *)&share : &n, sizeof n);
        return true;
    }
    if (!value) value = "-";
    size_t length = strlen(value);
    if (length == 0 || length >= KN__CONFIG_PATH_BYTES) return false;
    memcpy(at, value, length + 1);
    return true;
}

/* Starts a message about the word as it was written. */
static void quote(kn__writer *w, const char *text) {
    kn__write_text(w, "KNET_ALLOC: \"");
    kn__text_shown(&w->text, text, 80);
    kn__write_text(w, "\" is ignored: ");
}

static const struct word *find_word(const char *text, size_t length) {
    const struct word *w = WORDS, *end = WORDS + N_WORDS;
    while (w < end && (strlen(w->name) != length || memcmp(w->name, text, length) != 0)) w++;
    return w < end ? w : NULL;
}

/* Says why a word was not applied. */
static void explain(kn__writer *out, const struct word *w, const char *value, bool of_pool) {
    if (is_too_large(w, value)) {
        kn__write_text(out, "the number is too large");
        return;
    }
    if (w) {
        kn__write(out, "%s%s takes %s", w->name, KINDS[w->kind].shown, KINDS[w->kind].wanted);
        return;
    }
    const char *separator = "";
    kn__write_text(out, "there is no such word; the words are");
    for (w = WORDS; w < WORDS + N_WORDS; w++) {
        if (of_pool && w->offset >= sizeof(kn_pool_options)) continue;
        kn__write(out, "%s %s", separator, w->name);
        separator = ",";
    }
}

static void read_word(kn__alloc_config *out, const char *text, kn__writer *messages) {
    size_t length = strcspn(text, "=");
    const struct word *w = find_word(text, length);
    const char *value = text[length] ? text + length + 1 : NULL;
    if (w && apply(out, w, value)) return;
    quote(messages, text);
    explain(messages, w, value, false);
    kn__write_text(messages, "\n");
}

/* `text` has the begin of a word that is too long, `whole` its length. */
static kn_status configure_word(kn__alloc_config *out, const char *text, size_t whole, bool of_pool,
                                const char *who) {
    size_t length = strcspn(text, "=");
    const struct word *w = find_word(text, length);
    const char *value = text[length] ? text + length + 1 : NULL;
    char why[512], shown[96];
    kn__writer reason = kn__writer_of(why, sizeof why);
    kn__text name = kn__text_in(shown, sizeof shown);
    kn__text_shown(&name, text, 80);
    if (whole >= WORD_BYTES) {
        return KN_FAIL(KN_ERR_INVALID, "%s: \"%s\": " TOO_LONG, who, shown, whole, WORD_BYTES - 1);
    }
    if (of_pool && w && w->offset >= sizeof(kn_pool_options)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: \"%s\" concerns the whole process; set it in KNET_ALLOC", who, shown);
    }
    if (w && apply(out, w, value)) return KN_OK;
    explain(&reason, w, value, of_pool);
    return KN_FAIL(KN_ERR_INVALID, "%s: \"%s\": %s", who, shown, why);
}

static kn_status configure_words(kn__alloc_config *out, const char *words, bool of_pool,
                                 const char *who) {
    char text[WORD_BYTES];
    size_t length;
    while (words && kn__words_next(&words, text, sizeof text, &length)) {
        KN_TRY(configure_word(out, text, length, of_pool, who));
    }
    return KN_OK;
}

static kn_status configure(kn_pool_options *out, const char *words) {
    kn__alloc_config config = {.pool = *out};
    KN_TRY(configure_words(&config, words, true, "kn_pool_configure"));
    *out = config.pool;
    return KN_OK;
}

kn_status kn_pool_configure(kn_pool *pool, const char *words) {
    return kn__options_change(pool, words, configure, "kn_pool_configure");
}

kn_status kn__alloc_words_check(const char *value, const char *who) {
    kn__alloc_config config = {.help = false};
    return configure_words(&config, value, false, who);
}

static void check_together(kn__alloc_config *out, kn__writer *messages) {
    kn_pool_options *o = &out->pool;
    if (!o->limit_bytes || o->soft_limit_bytes <= o->limit_bytes) return;
    kn__write(messages, "KNET_ALLOC: soft_limit is ignored: its %zu bytes are above limit, %zu\n",
              o->soft_limit_bytes, o->limit_bytes);
    o->soft_limit_bytes = 0;
}

void kn__alloc_config_read(kn__alloc_config *out, const char *list, kn__writer *messages) {
    char text[WORD_BYTES];
    size_t length;
    *out = (kn__alloc_config){.help = false};
    while (list && kn__words_next(&list, text, sizeof text, &length)) {
        if (length < sizeof text) {
            read_word(out, text, messages);
        } else {
            quote(messages, text);
            kn__write(messages, TOO_LONG "\n", length, WORD_BYTES - 1);
        }
    }
    check_together(out, messages);
}

void kn__alloc_config_help(kn__writer *w) {
    kn__write_text(w,
                   "KNET_ALLOC is a list of words separated by commas, such as\n"
                   "  KNET_ALLOC=stats\n"
                   "  KNET_ALLOC=limit=8GiB,decay=10s,trace=run.%p.kntrace,oom=oom.json\n"
                   "The words; those with SIZE, X or TIME set options of the devices' default\n"
                   "pools:\n");
    for (int i = 0; i < N_WORDS; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s%s", WORDS[i].name, KINDS[WORDS[i].kind].shown);
        kn__text_entry(&w->text, left, WORDS[i].help, 19, KN__HELP_WIDTH);
    }
    char units[512];
    kn__text text = kn__text_in(units, sizeof units);
    kn__text_printf(&text, "SIZE is %s.\nTIME is %s.\n", KINDS[SIZE].wanted, KINDS[TIME].wanted);
    kn__text_wrap(&w->text, units, 0, 0, KN__HELP_WIDTH);
    kn__write_text(w,
                   "none instead of SIZE, X or TIME is the default.\n"
                   "FILE - is stderr; %p in a name is the process id, %r the rank, %% is %.\n"
                   "A child of fork(), and so a daemon that forks as it starts, writes no file\n"
                   "but that of oom. Setuid programs ignore KNET_ALLOC.\n");
}
