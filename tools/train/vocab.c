/* Words and characters, counted and numbered. */
#include <inttypes.h>
#include <knet/vocab.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "hash.h"
#include "text.h"
#include "utf8.h"

enum { SPECIAL = 2 };

typedef struct word {
    uint64_t key; /* of the hash table: of its text */
    char *text;   /* owned; of n bytes, and a zero */
    size_t n;
    int64_t count, number;
} word;

struct kn_vocab {
    kn_vocab_unit unit;
    kn__hash words; /* of word */
    char **list;    /* [size]: the first two owned */
    int64_t size;
};

/* --- cutting a text --- */

typedef struct cutter {
    const char *at, *end;
    kn_vocab_unit unit;
    char *word; /* malloc's; of n bytes */
    size_t n, room;
    bool failed; /* no memory */
} cutter;

static bool is_letter(char c) {
    unsigned char u = (unsigned char)c;
    return (u >= '0' && u <= '9') || (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') || u >= 0x80;
}
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == 0; }

static void cutter_put(cutter *c, char byte) {
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        char *more = realloc(c->word, room);
        c->failed = c->failed || !more;
        if (!more) return;
        c->word = more;
        c->room = room;
    }
    c->word[c->n++] = byte;
}

/* The character of UTF-8 at the cutter, which need not end in a zero. */
static bool character_next(cutter *c) {
    char four[5] = {0};
    if (c->at == c->end) return false;
    for (int i = 0; i < 4 && c->at + i < c->end; i++) four[i] = c->at[i];
    size_t n = kn__utf8_bytes(four);
    if (n == 0) n = 1;
    for (size_t i = 0; i < n; i++) cutter_put(c, *c->at++);
    return true;
}

static bool word_next(cutter *c) {
    while (c->at < c->end && is_space(*c->at)) c->at++;
    if (c->at == c->end) return false;
    if (!is_letter(*c->at)) return character_next(c);
    while (c->at < c->end) {
        bool inside = *c->at == '\'' && c->at + 1 < c->end && is_letter(c->at[1]);
        if (!is_letter(*c->at) && !inside) break;
        cutter_put(c, *c->at >= 'A' && *c->at <= 'Z' ? (char)(*c->at - 'A' + 'a') : *c->at);
        c->at++;
    }
    return true;
}

static bool cutter_next(cutter *c) {
    c->n = 0;
    bool some = c->unit == KN_WORDS ? word_next(c) : character_next(c);
    return some && !c->failed;
}

/* --- the table --- */

/* Of its bytes: a character may be a zero. */
static uint64_t key_of(const char *text, size_t n) { return kn__hash_bytes(1, text, n); }

/* The slot of the word, or the free one for it. The table has slots. */
static word *slot_find(const kn__hash *words, const char *text, size_t n) {
    uint64_t key = key_of(text, n);
    word *w = kn__hash_find(words, sizeof *w, key);
    while (w->key && (w->n != n || memcmp(w->text, text, n) != 0))
        w = kn__hash_after(words, sizeof *w, w);
    return w;
}

static kn_status word_count(kn__hash *words, const char *text, size_t n) {
    if (kn__hash_is_full(words) && !kn__hash_grow(words, sizeof(word), 256))
        return KN_FAIL(KN_ERR_OOM, "kn_vocab_create: no memory for %zu words", words->n_used);
    word *w = slot_find(words, text, n);
    if (!w->key) {
        char *own = malloc(n + 1);
        if (!own) return KN_FAIL(KN_ERR_OOM, "kn_vocab_create: no memory for a word");
        memcpy(own, text, n);
        own[n] = 0;
        kn__hash_use(words, w, key_of(text, n));
        w->text = own;
        w->n = n;
    }
    w->count++;
    return KN_OK;
}

static int by_count(const void *a, const void *b) {
    const word *x = *(word *const *)a, *y = *(word *const *)b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return strcmp(x->text, y->text);
}

/* Numbers the words, and lists their texts. */
static kn_status words_number(kn_vocab *v, const kn_vocab_options *o) {
    word **order = malloc(v->words.n_used * sizeof(word *) + 1);
    v->list = calloc(v->words.n_used + SPECIAL, sizeof *v->list);
    if (!order || !v->list) {
        free(order);
        return KN_FAIL(KN_ERR_OOM, "kn_vocab_create: no memory for %zu words", v->words.n_used);
    }
    size_t n = 0;
    for (size_t i = 0; i < v->words.n_slots; i++) {
        word *w = kn__hash_at(&v->words, sizeof *w, i);
        if (w->key) order[n++] = w;
    }
    qsort(order, n, sizeof *order, by_count);
    v->list[0] = strdup("<pad>");
    v->list[1] = strdup("<unk>");
    v->size = SPECIAL;
    for (size_t i = 0; i < n; i++) {
        bool kept = order[i]->count >= o->least && (!o->size || v->size < o->size);
        order[i]->number = kept ? v->size : 1;
        if (kept) v->list[v->size++] = order[i]->text;
    }
    free(order);
    return v->list[0] && v->list[1] ? KN_OK : KN_FAIL(KN_ERR_OOM, "kn_vocab_create: no memory");
}

kn_status kn_vocab_create(kn_vocab **out, const char *text, size_t text_bytes,
                          const kn_vocab_options *options) {
    kn_vocab_options o = options ? *options : (kn_vocab_options){0};
    if (!out || (!text && text_bytes))
        return KN_FAIL(KN_ERR_INVALID, "kn_vocab_create: %s is NULL", out ? "text" : "out");
    for (int i = 0; i < 4; i++)
        if (o.reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_vocab_create: a reserved option is not zero");
    if (o.unit != KN_CHARACTERS && o.unit != KN_WORDS)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_vocab_create: unit %d: must be KN_CHARACTERS or KN_WORDS", (int)o.unit);
    if ((o.size && o.size <= SPECIAL) || o.least < 0 || (!text && text_bytes))
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_vocab_create: size %" PRId64 " must be 3 or more, least %" PRId64
                       " not negative",
                       o.size, o.least);
    kn_vocab *v = calloc(1, sizeof *v);
    if (!v) return KN_FAIL(KN_ERR_OOM, "kn_vocab_create: no memory");
    v->unit = o.unit;
    kn_status status = KN_OK;
    cutter c = {.at = text, .end = text + text_bytes, .unit = o.unit};
    while (text_bytes && status == KN_OK && cutter_next(&c))
        status = word_count(&v->words, c.word, c.n);
    if (c.failed) status = KN_FAIL(KN_ERR_OOM, "kn_vocab_create: no memory for a word");
    free(c.word);
    if (status == KN_OK) status = words_number(v, &o);
    if (status == KN_OK)
        *out = v;
    else
        kn_vocab_destroy(v);
    return status;
}

void kn_vocab_destroy(kn_vocab *v) {
    if (!v) return;
    for (size_t i = 0; i < v->words.n_slots; i++)
        free(((word *)kn__hash_at(&v->words, sizeof(word), i))->text);
    for (int64_t i = 0; v->list && i < SPECIAL; i++) free(v->list[i]);
    free(v->list);
    kn__hash_release(&v->words);
    free(v);
}

int64_t kn_vocab_size(const kn_vocab *v) { return v->size; }
const char *kn_vocab_word(const kn_vocab *v, int64_t i) {
    return i >= 0 && i < v->size ? v->list[i] : NULL;
}

int64_t kn_vocab_find(const kn_vocab *v, const char *text, size_t n) {
    if (!v->words.n_slots) return 1;
    const word *w = slot_find(&v->words, text, n);
    return w->key ? w->number : 1;
}

kn_status kn_vocab_encode(int64_t **index, int64_t *n, const kn_vocab *v, const char *text,
                          size_t text_bytes) {
    const char *missing = !index                ? "index"
                          : !n                  ? "n"
                          : !v                  ? "vocab"
                          : text || !text_bytes ? NULL
                                                : "text";
    if (missing) return KN_FAIL(KN_ERR_INVALID, "kn_vocab_encode: %s is NULL", missing);
    cutter c = {.at = text, .end = text + text_bytes, .unit = v->unit};
    size_t room = 0, used = 0;
    int64_t *list = NULL;
    while (text_bytes && !c.failed && cutter_next(&c)) {
        if (used == room) {
            room = room ? 2 * room : 256;
            int64_t *more = realloc(list, room * sizeof *list);
            c.failed = !more;
            if (!more) break;
            list = more;
        }
        list[used++] = kn_vocab_find(v, c.word, c.n);
    }
    free(c.word);
    if (!list && !c.failed) list = calloc(1, sizeof *list);
    if (!list || c.failed) {
        free(list);
        return KN_FAIL(KN_ERR_OOM, "kn_vocab_encode: no memory for %zu words", used);
    }
    *index = list;
    *n = (int64_t)used;
    return KN_OK;
}

/* --- as a line --- */

static const char *const unit_names[] = {"characters", "words"};

/* Printable ASCII, but for what ends a word or is escaped; a character that is a zero is "". */
static void word_put(kn__text *out, const char *at) {
    kn__text_puts(out, *at ? " " : " %00");
    for (; *at; at++) {
        unsigned char c = (unsigned char)*at;
        bool is_plain = c > ' ' && c < 0x7f && !strchr("%\"\\", c);
        kn__text_printf(out, is_plain ? "%c" : "%%%02X", c);
    }
}

char *kn_vocab_text(const kn_vocab *v) {
    kn__text out = {0};
    kn__text_puts(&out, unit_names[v->unit]);
    for (int64_t i = SPECIAL; i < v->size; i++) word_put(&out, v->list[i]);
    if (!out.failed) return out.data;
    kn__text_release(&out);
    return KN_FAIL_NULL(KN_ERR_OOM, "kn_vocab_text: no memory for %" PRId64 " words", v->size);
}

/* -1: c is no digit. */
static int hex_digit(char c) {
    static const char digits[] = "0123456789ABCDEFabcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    int i = at ? (int)(at - digits) : -1;
    return i < 16 ? i : i - 6;
}

/* Takes a word of *n bytes off the line into `bytes`, which is as long. */
static kn_status word_take(size_t *n, const char **line, char *bytes) {
    const char *at = *line;
    for (*n = 0; *at && *at != ' '; at++) {
        bytes[*n] = *at;
        if (*at == '%') {
            int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);
            if (low < 0)
                return KN_FAIL(KN_ERR_FORMAT,
                               "kn_vocab_parse: '%.3s' is not a byte as %%00 to %%FF", at);
            bytes[*n] = (char)(16 * high + low);
            at += 2;
        }
        ++*n;
    }
    *line = at + (*at == ' ');
    return *n ? KN_OK : KN_FAIL(KN_ERR_FORMAT, "kn_vocab_parse: a word is empty");
}

/* A word that no text is cut into would never be found. */
static kn_status word_check(kn_vocab_unit unit, const char *bytes, size_t n) {
    cutter c = {.at = bytes, .end = bytes + n, .unit = unit};
    bool is_word = cutter_next(&c) && c.n == n && memcmp(c.word, bytes, n) == 0;
    free(c.word);
    if (c.failed) return KN_FAIL(KN_ERR_OOM, "kn_vocab_parse: no memory for a word");
    if (is_word) return KN_OK;
    return KN_FAIL(KN_ERR_FORMAT,
                   "kn_vocab_parse: '%.*s' is not one of the %s that texts are cut into",
                   n < 40 ? (int)n : 40, bytes, unit_names[unit]);
}

/* The words get counts that number them in this order. */
static kn_status words_parse(kn_vocab *v, const char *line, char *bytes) {
    int64_t left = INT64_MAX - 1;
    while (*line) {
        size_t n = 0;
        KN_TRY(word_take(&n, &line, bytes));
        KN_TRY(word_check(v->unit, bytes, n));
        KN_TRY(word_count(&v->words, bytes, n));
        word *w = slot_find(&v->words, bytes, n);
        if (w->count != 1)
            return KN_FAIL(KN_ERR_FORMAT, "kn_vocab_parse: the word '%.40s' occurs twice", w->text);
        w->count = left--;
    }
    return words_number(v, &(kn_vocab_options){0});
}

kn_status kn_vocab_parse(kn_vocab **out, const char *text) {
    const char *line = text ? strchr(text, ' ') : NULL;
    size_t n = text ? line ? (size_t)(line - text) : strlen(text) : 0;
    int unit = 0;
    while (unit < 2 && (strlen(unit_names[unit]) != n || memcmp(unit_names[unit], text, n) != 0))
        unit++;
    if (unit == 2)
        return KN_FAIL(KN_ERR_FORMAT, "kn_vocab_parse: '%.*s' is not a unit: characters or words",
                       (int)n, text ? text : "");
    kn_vocab *v = calloc(1, sizeof *v);
    char *room = malloc(strlen(text) + 1);
    if (v) v->unit = (kn_vocab_unit)unit;
    kn_status status = v && room ? words_parse(v, line ? line + 1 : "", room)
                                 : KN_FAIL(KN_ERR_OOM, "kn_vocab_parse: no memory");
    free(room);
    if (status == KN_OK)
        *out = v;
    else
        kn_vocab_destroy(v);
    return status;
}
