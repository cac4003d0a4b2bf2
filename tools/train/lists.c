/* Lists of numbers in a pickle, as NumPy writes arrays of them: Keras's imdb.npz.
 *
 * A stack machine of the opcodes that such files have (Python's pickletools describes each). It
 * builds nothing but lists of whole numbers and lists of those; all else is a value of no kind. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "dataset.h"

typedef enum kind { OTHER = 0, NUMBER, LIST, MARK } kind;
typedef struct item {
    kind kind;
    int64_t value; /* of a number; of a list its index */
} item;

typedef struct list {
    int64_t *value; /* numbers, or the indices of lists */
    int64_t n, room;
    bool has_lists;
} list;

typedef struct machine {
    const uint8_t *at, *end, *begin;
    const char *name;
    item *stack;
    list *lists;
    item *memo; /* by number */
    size_t n, room, n_lists, lists_room, n_memo, memo_room;
} machine;

static kn_status bad(const machine *m, const char *what) {
    return KN_FAIL(KN_ERR_FORMAT, "%s: byte %zu of the pickle: %s", m->name,
                   (size_t)(m->at - m->begin), what);
}

/* *array, of *room elements, gets room for n. */
static kn_status widen(const machine *m, void *array, size_t *room, size_t n, size_t element) {
    void *old;
    if (n <= *room) return KN_OK;
    size_t wider = 2 * *room > n ? 2 * *room : n < 64 ? 64 : n;
    memcpy(&old, array, sizeof old);
    void *more = realloc(old, wider * element);
    if (!more) return KN_FAIL(KN_ERR_OOM, "%s: no memory for its lists", m->name);
    memset((char *)more + *room * element, 0, (wider - *room) * element);
    memcpy(array, &more, sizeof more);
    *room = wider;
    return KN_OK;
}

/* --- the stack --- */

static kn_status push(machine *m, kind what, int64_t value) {
    KN_TRY(widen(m, &m->stack, &m->room, m->n + 1, sizeof *m->stack));
    m->stack[m->n++] = (item){what, value};
    return KN_OK;
}

static kn_status drop(machine *m, size_t n) {
    if (m->n < n) return bad(m, "takes more from the stack than there is");
    m->n -= n;
    return KN_OK;
}

static kn_status push_list(machine *m) {
    KN_TRY(widen(m, &m->lists, &m->lists_room, m->n_lists + 1, sizeof *m->lists));
    m->lists[m->n_lists] = (list){0};
    return push(m, LIST, (int64_t)m->n_lists++);
}

static kn_status list_add(machine *m, item to, item value) {
    if (to.kind != LIST) return KN_OK; /* a set or a bytearray */
    list *l = &m->lists[to.value];
    if (value.kind != NUMBER && value.kind != LIST)
        return bad(m, "a list has a value that is neither a whole number nor a list");
    if (l->n && l->has_lists != (value.kind == LIST))
        return bad(m, "a list has both numbers and lists");
    size_t room = (size_t)l->room;
    KN_TRY(widen(m, &l->value, &room, (size_t)l->n + 1, sizeof *l->value));
    l->room = (int64_t)room;
    l->has_lists = value.kind == LIST;
    l->value[l->n++] = value.value;
    return KN_OK;
}

/* *out: the place after the topmost mark. */
static kn_status find_mark(const machine *m, size_t *out) {
    for (size_t i = m->n; i > 0; i--) {
        if (m->stack[i - 1].kind != MARK) continue;
        *out = i;
        return KN_OK;
    }
    return bad(m, "no mark on the stack");
}

/* The values above the mark become one, in a list where `into` says so. */
static kn_status close_mark(machine *m, bool into) {
    size_t from = 0;
    KN_TRY(find_mark(m, &from));
    size_t n = m->n;
    if (into) {
        KN_TRY(push_list(m));
        item to = m->stack[m->n - 1];
        for (size_t i = from; i < n; i++) KN_TRY(list_add(m, to, m->stack[i]));
        m->n = from - 1;
        return push(m, LIST, to.value);
    }
    m->n = from - 1;
    return push(m, OTHER, 0);
}

static kn_status append(machine *m) {
    if (m->n < 2) return bad(m, "takes more from the stack than there is");
    KN_TRY(list_add(m, m->stack[m->n - 2], m->stack[m->n - 1]));
    return drop(m, 1);
}

static kn_status appends(machine *m) {
    size_t from = 0;
    KN_TRY(find_mark(m, &from));
    if (from < 2) return bad(m, "no list below the mark");
    for (size_t i = from; i < m->n; i++) KN_TRY(list_add(m, m->stack[from - 2], m->stack[i]));
    m->n = from - 1;
    return KN_OK;
}

static kn_status drop_mark(machine *m) {
    size_t from = 0;
    KN_TRY(find_mark(m, &from));
    m->n = from - 1;
    return KN_OK;
}

static kn_status put(machine *m, uint64_t number) {
    if (!m->n || number > (uint64_t)(m->end - m->begin))
        return bad(m, "a place of the memo is out of reach");
    if (number >= m->n_memo) m->n_memo = (size_t)number + 1;
    KN_TRY(widen(m, &m->memo, &m->memo_room, m->n_memo, sizeof *m->memo));
    m->memo[number] = m->stack[m->n - 1];
    return KN_OK;
}

static kn_status get(machine *m, uint64_t number) {
    if (number >= m->n_memo) return bad(m, "a place of the memo is empty");
    return push(m, m->memo[number].kind, m->memo[number].value);
}

/* --- operands --- */

/* A little-endian number of n bytes. */
static kn_status take(machine *m, uint64_t *out, size_t n) {
    *out = 0;
    if ((size_t)(m->end - m->at) < n) return bad(m, "the pickle ends in the middle");
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)m->at[i] << (8 * i);
    m->at += n;
    return KN_OK;
}

static kn_status skip(machine *m, uint64_t n) {
    if ((uint64_t)(m->end - m->at) < n) return bad(m, "the pickle ends in the middle");
    m->at += n;
    return KN_OK;
}

/* n bytes of length, then as many bytes. */
static kn_status text(machine *m, size_t n) {
    uint64_t length = 0;
    KN_TRY(take(m, &length, n));
    KN_TRY(skip(m, length));
    return push(m, OTHER, 0);
}

static kn_status lines(machine *m, int n) {
    for (int i = 0; i < n; i++) {
        const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
        if (!end) return bad(m, "a line has no end");
        m->at = end + 1;
    }
    return KN_OK;
}

static kn_status number(machine *m, size_t n) {
    uint64_t value = 0;
    KN_TRY(take(m, &value, n));
    return push(m, NUMBER, n == 4 ? (int64_t)(int32_t)value : (int64_t)value);
}

/* LONG1: a two's complement of up to 8 bytes. */
static kn_status long_number(machine *m) {
    uint64_t n = 0, value = 0;
    KN_TRY(take(m, &n, 1));
    if (n > 8) return bad(m, "a number of more than 8 bytes");
    KN_TRY(take(m, &value, (size_t)n));
    if (n && n < 8 && value >> (8 * n - 1)) value |= ~(uint64_t)0 << (8 * n);
    return push(m, NUMBER, (int64_t)value);
}

static kn_status memo_step(machine *m, uint8_t op) {
    uint64_t place = 0;
    switch (op) {
        case 'q':
        case 'h':
            KN_TRY(take(m, &place, 1));
            return op == 'q' ? put(m, place) : get(m, place);
        case 'r':
        case 'j':
            KN_TRY(take(m, &place, 4));
            return op == 'r' ? put(m, place) : get(m, place);
        default: /* 0x94, MEMOIZE */
            return put(m, m->n_memo);
    }
}

/* Opcodes with strings and names. */
static kn_status text_step(machine *m, uint8_t op) {
    switch (op) {
        case 'U':
        case 'C':
        case 0x8c:
            return text(m, 1);
        case 'X':
        case 'T':
        case 'B':
            return text(m, 4);
        case 0x8d:
        case 0x8e:
            return text(m, 8);
        case 'c': /* GLOBAL */
            KN_TRY(lines(m, 2));
            return push(m, OTHER, 0);
        case 'G': /* BINFLOAT */
            KN_TRY(skip(m, 8));
            return push(m, OTHER, 0);
        case 'N':
        case 0x88:
        case 0x89:
        case ')':
        case '}':
            return push(m, OTHER, 0);
        default:
            return bad(m, "an opcode that arrays of lists don't have");
    }
}

/* Opcodes that take n values and give one: tuples, calls, states. */
static kn_status fold(machine *m, size_t n) {
    KN_TRY(drop(m, n));
    return push(m, OTHER, 0);
}

static kn_status fold_step(machine *m, uint8_t op) {
    switch (op) {
        case 0x85: /* TUPLE1, 2, 3 */
            return fold(m, 1);
        case 0x87:
            return fold(m, 3);
        default: /* TUPLE2, REDUCE, STACK_GLOBAL, NEWOBJ */
            return fold(m, 2);
    }
}

static kn_status step(machine *m, uint8_t op) {
    switch (op) {
        case 0x80: /* PROTO, FRAME */
            return skip(m, 1);
        case 0x95:
            return skip(m, 8);
        case 'q':
        case 'r':
        case 'h':
        case 'j':
        case 0x94:
            return memo_step(m, op);
        case '(':
            return push(m, MARK, 0);
        case 'K':
        case 'M':
        case 'J':
            return number(m, op == 'K' ? 1 : op == 'M' ? 2 : 4);
        case 0x8a:
            return long_number(m);
        case ']':
            return push_list(m);
        case 'a':
            return append(m);
        case 'e':
            return appends(m);
        case 'l':
            return close_mark(m, true);
        case 't':
            return close_mark(m, false);
        case 'u':
            return drop_mark(m);
        case 'b': /* BUILD: the object stays */
        case '0':
            return drop(m, 1);
        case 's':
            return drop(m, 2);
        case 0x81:
        case 0x85:
        case 0x86:
        case 0x87:
        case 'R':
        case 0x93:
            return fold_step(m, op);
        default:
            return text_step(m, op);
    }
}

static kn_status run(machine *m) {
    while (m->at < m->end) {
        uint8_t op = *m->at++;
        if (op == '.') return KN_OK;
        KN_TRY(step(m, op));
    }
    return bad(m, "the pickle has no end");
}

/* --- the result --- */

/* The list of the most lists: the array's elements. */
static const list *outer_find(const machine *m) {
    const list *outer = NULL;
    for (size_t i = 0; i < m->n_lists; i++)
        if (m->lists[i].has_lists && (!outer || m->lists[i].n > outer->n)) outer = &m->lists[i];
    return outer;
}

static kn_status give(kn__lists *out, const machine *m) {
    const list *outer = outer_find(m);
    if (!outer) return KN_FAIL(KN_ERR_FORMAT, "%s: no list of lists of numbers", m->name);
    int64_t total = 0, most = m->end - m->begin; /* a list that occurs often takes few bytes */
    for (int64_t i = 0; i < outer->n; i++) {
        const list *l = &m->lists[outer->value[i]];
        if (l->has_lists)
            return KN_FAIL(KN_ERR_FORMAT, "%s: list %" PRId64 " is not one of numbers", m->name, i);
        if (l->n > most - total)
            return KN_FAIL(KN_ERR_FORMAT,
                           "%s: up to list %" PRId64 " there are more numbers than the %" PRId64
                           " bytes of the pickle; it repeats lists",
                           m->name, i, most);
        total += l->n;
    }
    out->n = outer->n;
    out->offset = malloc((size_t)(outer->n + 1) * sizeof *out->offset);
    out->value = malloc((size_t)(total + 1) * sizeof *out->value);
    if (!out->offset || !out->value)
        return KN_FAIL(KN_ERR_OOM, "%s: no memory for %" PRId64 " numbers", m->name, total);
    out->offset[0] = 0;
    for (int64_t i = 0; i < outer->n; i++) {
        const list *l = &m->lists[outer->value[i]];
        if (l->n) memcpy(out->value + out->offset[i], l->value, (size_t)l->n * sizeof *l->value);
        out->offset[i + 1] = out->offset[i] + l->n;
    }
    return KN_OK;
}

kn_status kn__lists_read(kn__lists *out, const uint8_t *pickle, size_t n_bytes, const char *name) {
    machine m = {.at = pickle, .begin = pickle, .end = pickle + n_bytes, .name = name};
    *out = (kn__lists){0};
    kn_status status = run(&m);
    if (status == KN_OK) status = give(out, &m);
    if (status < 0) kn__lists_release(out);
    for (size_t i = 0; i < m.n_lists; i++) free(m.lists[i].value);
    free(m.lists);
    free(m.stack);
    free(m.memo);
    return status;
}

void kn__lists_release(kn__lists *lists) {
    free(lists->offset);
    free(lists->value);
    *lists = (kn__lists){0};
}
