/* A stack machine over the opcodes that build containers; see Python's pickletools for each. */
#include "replay_pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const kn__value NONE = {.kind = KN__VALUE_OTHER};
enum { WORD_BYTES_MAX = 32 };

/* Memory. */

static kn_status hold(kn__pickle *p, size_t more_bytes) {
    if (more_bytes > KN__PICKLE_BYTES_MAX - p->held_bytes) {
        return kn__build_fail(p->b, "the pickle needs more than %zu bytes of memory",
                              KN__PICKLE_BYTES_MAX);
    }
    p->held_bytes += more_bytes;
    return KN_OK;
}

/* *ptr, of `room` elements, becomes one of `wider`. */
static kn_status widen(kn__pickle *p, void *ptr, size_t room, size_t wider, size_t element) {
    void *old;
    memcpy(&old, ptr, sizeof old);
    KN_TRY(hold(p, (wider - room) * element));
    void *grown = realloc(old, wider * element);
    if (!grown) return KN_FAIL(KN_ERR_OOM, "%s: no memory to read it", p->b->path);
    memcpy(ptr, &grown, sizeof grown);
    return KN_OK;
}

static kn_status values_push(kn__pickle *p, kn__values *v, kn__value value) {
    if (v->n == v->room) {
        size_t wider = v->room ? 2 * v->room : 256;
        KN_TRY(widen(p, &v->at, v->room, wider, sizeof *v->at));
        v->room = wider;
    }
    v->at[v->n++] = value;
    return KN_OK;
}

static kn_status push(kn__pickle *p, kn__value value) { return values_push(p, &p->stack, value); }

static kn_status container_push(kn__pickle *p, uint64_t number, kn__value value) {
    kn__container *c = &p->containers[number];
    if (c->n == c->room) {
        uint32_t wider = c->room ? 2 * c->room : 4;
        if (wider <= c->room) return kn__build_fail(p->b, "a list of more than 2^31 items");
        KN_TRY(widen(p, &c->items, c->room, wider, sizeof *c->items));
        c->room = wider;
    }
    c->items[c->n++] = value;
    return KN_OK;
}

static kn_status push_container(kn__pickle *p, kn__value_kind kind) {
    if (p->n_containers == p->containers_room) {
        size_t wider = p->containers_room ? 2 * p->containers_room : 256;
        KN_TRY(widen(p, &p->containers, p->containers_room, wider, sizeof *p->containers));
        p->containers_room = wider;
    }
    p->containers[p->n_containers] = (kn__container){0};
    return push(p, (kn__value){.kind = (uint16_t)kind, .bits = p->n_containers++});
}

void kn__pickle_release(kn__pickle *p) {
    for (size_t i = 0; i < p->n_containers; i++) free(p->containers[i].items);
    free(p->containers);
    free(p->stack.at);
    free(p->memo.at);
    memset(p, 0, sizeof *p);
}

/* The stack. */

static kn_status too_short(const kn__pickle *p) {
    return kn__build_fail(p->b, "the pickle takes more from its stack than it put there");
}

static kn_status pop(kn__value *out, kn__pickle *p) {
    if (p->stack.n == 0) return too_short(p);
    *out = p->stack.at[--p->stack.n];
    return KN_OK;
}

/* The place behind the topmost mark. */
static kn_status find_mark(size_t *out, const kn__pickle *p) {
    for (size_t i = p->stack.n; i > 0; i--) {
        if (p->stack.at[i - 1].kind != KN__VALUE_MARK) continue;
        *out = i;
        return KN_OK;
    }
    return kn__build_fail(p->b, "the pickle has no mark on its stack");
}

/* The container below place `below` of the stack. */
static kn_status target_of(uint64_t *out, const kn__pickle *p, size_t below, kn__value_kind kind) {
    if (below == 0 || p->stack.at[below - 1].kind != kind) {
        return kn__build_fail(p->b, "the pickle adds to something that is not a %s",
                              kind == KN__VALUE_DICT ? "dict" : "list");
    }
    *out = p->stack.at[below - 1].bits;
    return KN_OK;
}

/* Copies the values on the stack from place `from` on into a list. */
static kn_status append_from(kn__pickle *p, uint64_t list, size_t from) {
    for (size_t i = from; i < p->stack.n; i++) {
        KN_TRY(container_push(p, list, p->stack.at[i]));
    }
    return KN_OK;
}

/* The same with keys and values, into a dict. */
static kn_status set_from(kn__pickle *p, uint64_t dict, size_t from) {
    if ((p->stack.n - from) % 2) return kn__build_fail(p->b, "a dict has a key with no value");
    for (size_t i = from; i < p->stack.n; i += 2) {
        kn__value key = p->stack.at[i], value = p->stack.at[i + 1];
        if (key.kind != KN__VALUE_WORD || key.bits == p->n_words) continue;
        value.key = (uint16_t)key.bits;
        KN_TRY(container_push(p, dict, value));
    }
    return KN_OK;
}

static kn_status copy_from(kn__pickle *p, kn__value_kind kind, uint64_t number, size_t from) {
    return kind == KN__VALUE_DICT ? set_from(p, number, from) : append_from(p, number, from);
}

/* Moves the values on the stack from place `from` on into the container below place `below`. */
static kn_status add_from(kn__pickle *p, kn__value_kind kind, size_t from, size_t below) {
    uint64_t target = 0;
    KN_TRY(target_of(&target, p, below, kind));
    KN_TRY(copy_from(p, kind, target, from));
    p->stack.n = below;
    return KN_OK;
}

/* Makes a container of the values on the stack from place `from` on, in place `to`. */
static kn_status gather(kn__pickle *p, kn__value_kind kind, size_t from, size_t to) {
    KN_TRY(push_container(p, kind));
    kn__value made = p->stack.at[--p->stack.n];
    KN_TRY(copy_from(p, kind, made.bits, from));
    p->stack.n = to;
    return push(p, made);
}

static kn_status gather_last(kn__pickle *p, size_t n) {
    if (p->stack.n < n) return too_short(p);
    return gather(p, KN__VALUE_LIST, p->stack.n - n, p->stack.n - n);
}

/* Arguments. */

static kn_status little_endian(uint64_t *out, kn__pickle *p, int n_bytes) {
    unsigned char bytes[8];
    KN_TRY(kn__input_read(p->in, bytes, (uint64_t)n_bytes));
    *out = 0;
    for (int i = n_bytes; i-- > 0;) *out = *out << 8 | bytes[i];
    return KN_OK;
}

static kn_status push_uint(kn__pickle *p, int n_bytes) {
    kn__value v = {.kind = KN__VALUE_INT};
    KN_TRY(little_endian(&v.bits, p, n_bytes));
    return push(p, v);
}

static kn_status push_int32(kn__pickle *p) {
    kn__value v = {.kind = KN__VALUE_INT};
    KN_TRY(little_endian(&v.bits, p, 4));
    if (v.bits >> 31) v = (kn__value){.kind = KN__VALUE_INT, .negative = true};
    return push(p, v);
}

/* Two's complement of any length; what needs more than 64 bits is no address and no size. */
static kn_status push_long(kn__pickle *p, int length_bytes) {
    uint64_t n;
    unsigned char bytes[9] = {0};
    kn__value v = {.kind = KN__VALUE_INT};
    KN_TRY(little_endian(&n, p, length_bytes));
    KN_TRY(kn__input_read(p->in, bytes, n < 9 ? n : 9));
    if (n > 9) {
        KN_TRY(kn__input_read(p->in, NULL, n - 9));
        return push(p, NONE);
    }
    if (n && bytes[n - 1] & 0x80) {
        v.negative = true;
    } else if (bytes[8]) {
        v = NONE;
    } else {
        for (int i = 8; i-- > 0;) v.bits = v.bits << 8 | bytes[i];
    }
    return push(p, v);
}

static kn_status push_text(kn__pickle *p, int length_bytes) {
    uint64_t n;
    char text[WORD_BYTES_MAX + 1] = {0};
    kn__value v = {.kind = KN__VALUE_WORD, .bits = p->n_words};
    KN_TRY(little_endian(&n, p, length_bytes));
    KN_TRY(kn__input_read(p->in, text, n < WORD_BYTES_MAX ? n : WORD_BYTES_MAX));
    if (n > WORD_BYTES_MAX) KN_TRY(kn__input_read(p->in, NULL, n - WORD_BYTES_MAX));
    for (uint16_t i = 0; i < p->n_words && n < WORD_BYTES_MAX; i++) {
        if (strlen(p->words[i]) == n && memcmp(p->words[i], text, n) == 0) v.bits = i;
    }
    return push(p, v);
}

static kn_status push_skipped(kn__pickle *p, int length_bytes) {
    uint64_t n;
    KN_TRY(little_endian(&n, p, length_bytes));
    KN_TRY(kn__input_read(p->in, NULL, n));
    return push(p, NONE);
}

/* The memo. */

static kn_status memo_put(kn__pickle *p, uint64_t index) {
    if (p->stack.n == 0) return too_short(p);
    if (index > p->memo.n + 65536) {
        return kn__build_fail(p->b, "memo %" PRIu64 " comes after memo %zu", index, p->memo.n);
    }
    while (p->memo.n <= index) KN_TRY(values_push(p, &p->memo, NONE));
    p->memo.at[index] = p->stack.at[p->stack.n - 1];
    return KN_OK;
}

static kn_status memo_put_at(kn__pickle *p, int index_bytes) {
    uint64_t index;
    KN_TRY(little_endian(&index, p, index_bytes));
    return memo_put(p, index);
}

static kn_status memo_get_at(kn__pickle *p, int index_bytes) {
    uint64_t index;
    KN_TRY(little_endian(&index, p, index_bytes));
    if (index >= p->memo.n) return kn__build_fail(p->b, "memo %" PRIu64 " was never set", index);
    return push(p, p->memo.at[index]);
}

/* The machine. */

static kn_status unknown(const kn__pickle *p, unsigned op) {
    static const char CODE[] = "cRibo\x81\x82\x83\x84\x92\x93QP";
    bool runs = op && memchr(CODE, (int)op, sizeof CODE - 1);
    return kn__build_fail(p->b, "opcode 0x%02x %s; only containers, numbers and strings are read",
                          op, runs ? "would name or run code" : "is unknown");
}

static kn_status proto(kn__pickle *p) {
    uint64_t version;
    KN_TRY(little_endian(&version, p, 1));
    if (version >= 2 && version <= 5) return KN_OK;
    return kn__build_fail(p->b, "pickle protocol %" PRIu64 "; 2 to 5 are read", version);
}

static kn_status marked(kn__pickle *p, unsigned op) {
    size_t from = 1;
    KN_TRY(find_mark(&from, p));
    switch (op) {
        case '1': /* POP_MARK */
            p->stack.n = from - 1;
            return KN_OK;
        case 'e':  /* APPENDS */
        case 0x90: /* ADDITEMS */
            return add_from(p, KN__VALUE_LIST, from, from - 1);
        case 'u': /* SETITEMS */
            return add_from(p, KN__VALUE_DICT, from, from - 1);
        case 'd': /* DICT */
            return gather(p, KN__VALUE_DICT, from, from - 1);
        default: /* TUPLE, LIST, FROZENSET */
            return gather(p, KN__VALUE_LIST, from, from - 1);
    }
}

static kn_status structural(kn__pickle *p, unsigned op) {
    kn__value top;
    switch (op) {
        case '(': /* MARK */
            return push(p, (kn__value){.kind = KN__VALUE_MARK});
        case '0': /* POP */
            return pop(&top, p);
        case '2': /* DUP */
            KN_TRY(pop(&top, p));
            KN_TRY(push(p, top));
            return push(p, top);
        case ')':  /* EMPTY_TUPLE */
        case ']':  /* EMPTY_LIST */
        case 0x8f: /* EMPTY_SET */
            return push_container(p, KN__VALUE_LIST);
        case '}': /* EMPTY_DICT */
            return push_container(p, KN__VALUE_DICT);
        case 0x85: /* TUPLE1, TUPLE2, TUPLE3 */
        case 0x86:
        case 0x87:
            return gather_last(p, op - 0x84);
        case 'a': /* APPEND */
            if (p->stack.n < 2) return too_short(p);
            return add_from(p, KN__VALUE_LIST, p->stack.n - 1, p->stack.n - 1);
        case 's': /* SETITEM */
            if (p->stack.n < 3) return too_short(p);
            return add_from(p, KN__VALUE_DICT, p->stack.n - 2, p->stack.n - 2);
        case '1':
        case 'e':
        case 0x90:
        case 'u':
        case 'd':
        case 't':
        case 'l':
        case 0x91:
            return marked(p, op);
        case 0x94: /* MEMOIZE */
            return memo_put(p, p->memo.n);
        case 'q': /* BINPUT */
            return memo_put_at(p, 1);
        case 'r': /* LONG_BINPUT */
            return memo_put_at(p, 4);
        case 'h': /* BINGET */
            return memo_get_at(p, 1);
        case 'j': /* LONG_BINGET */
            return memo_get_at(p, 4);
        default:
            return unknown(p, op);
    }
}

static kn_status scalar(kn__pickle *p, unsigned op) {
    switch (op) {
        case 0x80: /* PROTO */
            return proto(p);
        case 0x95: /* FRAME */
            return kn__input_read(p->in, NULL, 8);
        case 'N': /* NONE */
            return push(p, NONE);
        case 0x88: /* NEWTRUE, NEWFALSE */
        case 0x89:
            return push(p, (kn__value){.kind = KN__VALUE_BOOL, .bits = op == 0x88});
        case 'J': /* BININT */
            return push_int32(p);
        case 'K': /* BININT1 */
            return push_uint(p, 1);
        case 'M': /* BININT2 */
            return push_uint(p, 2);
        case 0x8a: /* LONG1 */
            return push_long(p, 1);
        case 0x8b: /* LONG4 */
            return push_long(p, 4);
        case 'G': /* BINFLOAT */
            KN_TRY(kn__input_read(p->in, NULL, 8));
            return push(p, NONE);
        case 0x8c: /* SHORT_BINUNICODE */
        case 'U':  /* SHORT_BINSTRING */
            return push_text(p, 1);
        case 'X': /* BINUNICODE */
        case 'T': /* BINSTRING */
            return push_text(p, 4);
        case 0x8d: /* BINUNICODE8 */
            return push_text(p, 8);
        case 'C': /* SHORT_BINBYTES */
            return push_skipped(p, 1);
        case 'B': /* BINBYTES */
            return push_skipped(p, 4);
        case 0x8e: /* BINBYTES8, BYTEARRAY8 */
        case 0x96:
            return push_skipped(p, 8);
        default:
            return structural(p, op);
    }
}

kn_status kn__pickle_read(kn__pickle *p) {
    while (p->words[p->n_words]) p->n_words++;
    for (;;) {
        unsigned char op;
        p->b->at = p->in->offset;
        KN_TRY(kn__input_read(p->in, &op, 1));
        if (op == '.') return pop(&p->root, p);
        KN_TRY(scalar(p, op));
    }
}

/* Looking. */

const kn__value *kn__pickle_items(const kn__pickle *p, kn__value list, size_t *n) {
    *n = 0;
    if (list.kind != KN__VALUE_LIST && list.kind != KN__VALUE_DICT) return NULL;
    *n = p->containers[list.bits].n;
    return p->containers[list.bits].items;
}

bool kn__pickle_get(const kn__pickle *p, kn__value dict, uint16_t word, kn__value *out) {
    size_t n;
    const kn__value *items = kn__pickle_items(p, dict, &n);
    if (dict.kind != KN__VALUE_DICT) return false;
    while (n-- > 0) {
        if (items[n].key != word) continue;
        *out = items[n];
        return true;
    }
    return false;
}
