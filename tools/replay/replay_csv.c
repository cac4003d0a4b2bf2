/* RMM's log: Thread,Time,Action,Pointer,Size,Stream. Columns go by their names. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "replay_formats.h"

enum { COLUMNS_MAX = 16 };
typedef enum column { ACTION, POINTER, SIZE, STREAM, N_COLUMNS } column;
static const char *const NAMES[N_COLUMNS] = {"Action", "Pointer", "Size", "Stream"};

typedef struct reader {
    kn__builder *b;
    kn__input *in;
    char line[KN__TRACE_LINE_MAX + 1];
    char *fields[COLUMNS_MAX];
    int n_fields;
    int at[N_COLUMNS]; /* which field; -1: none */
    int n_columns;
} reader;

/* The next line, without its end, or *end. */
static kn_status next_line(reader *r, bool *end) {
    const unsigned char *bytes;
    size_t n;
    r->b->at++;
    KN_TRY(kn__input_peek(&bytes, &n, r->in, KN__TRACE_LINE_MAX));
    const unsigned char *stop = memchr(bytes, '\n', n);
    *end = n == 0;
    if (!stop && n == KN__TRACE_LINE_MAX) {
        return kn__build_fail(r->b, "the line has more than %d bytes", KN__TRACE_LINE_MAX);
    }
    size_t length = stop ? (size_t)(stop - bytes) : n;
    if (memchr(bytes, 0, length)) return kn__build_fail(r->b, "there is a zero byte in the line");
    memcpy(r->line, bytes, length);
    if (length && r->line[length - 1] == '\r') r->line[length - 1] = '\0';
    r->line[length] = '\0';
    return kn__input_read(r->in, NULL, stop ? length + 1 : n);
}

static kn_status split(reader *r) {
    char *at = r->line;
    r->n_fields = 0;
    for (;;) {
        char *comma = strchr(at, ',');
        if (r->n_fields == COLUMNS_MAX) {
            return kn__build_fail(r->b, "the line has more than %d fields", COLUMNS_MAX);
        }
        r->fields[r->n_fields++] = at;
        if (!comma) return KN_OK;
        *comma = '\0';
        at = comma + 1;
    }
}

static kn_status read_header(reader *r) {
    bool end;
    KN_TRY(next_line(r, &end));
    KN_TRY(split(r));
    r->n_columns = r->n_fields;
    for (column c = 0; c < N_COLUMNS; c++) {
        r->at[c] = -1;
        for (int i = 0; i < r->n_fields; i++) {
            if (strcmp(r->fields[i], NAMES[c]) == 0) r->at[c] = i;
        }
        if (r->at[c] < 0 && c != STREAM) {
            return kn__build_fail(r->b, "there is no column %s", NAMES[c]);
        }
    }
    return KN_OK;
}

/* Decimal, or hexadecimal with 0x; "(nil)" is C++'s null pointer. */
static kn_status number(uint64_t *out, const reader *r, column c) {
    const char *text = r->at[c] < 0 ? "0" : r->fields[r->at[c]];
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char *end = NULL;
    if (strcmp(text, "(nil)") == 0) text = "0";
    errno = 0;
    unsigned long long value = strtoull(text, &end, hex ? 16 : 10);
    bool digits = hex ? text[2] != '\0' : *text >= '0' && *text <= '9';
    if (!digits || *end || errno) {
        return kn__build_fail(r->b, "%s is '%.64s', not a number", NAMES[c], text);
    }
    *out = value;
    return KN_OK;
}

/* A free on another stream than the allocation's: that stream used the block. */
static kn_status free_on(kn__builder *b, uint64_t ptr, uint64_t size, uint64_t stream) {
    uint64_t home;
    if (kn__build_stream_of(b, ptr, &home) && home != stream) {
        KN_TRY(kn__build_use(b, ptr, stream));
    }
    return kn__build_free(b, ptr, size);
}

static kn_status read_event(reader *r) {
    if (r->n_fields != r->n_columns) {
        return kn__build_fail(r->b, "the line has %d fields, the header has %d", r->n_fields,
                              r->n_columns);
    }
    const char *action = r->fields[r->at[ACTION]];
    uint64_t ptr, size, stream;
    if (strcmp(action, "allocate failure") == 0) {
        r->b->trace.n_ooms++;
        return KN_OK;
    }
    bool alloc = strcmp(action, "allocate") == 0;
    if (!alloc && strcmp(action, "free") != 0) {
        return kn__build_fail(r->b,
                              "unknown action '%.64s' (allocate, free and allocate failure are "
                              "known)",
                              action);
    }
    KN_TRY(number(&ptr, r, POINTER));
    KN_TRY(number(&size, r, SIZE));
    KN_TRY(number(&stream, r, STREAM));
    return alloc ? kn__build_alloc(r->b, ptr, size, stream) : free_on(r->b, ptr, size, stream);
}

kn_status kn__read_csv(kn__builder *b, kn__input *in) {
    reader r = {.b = b, .in = in};
    b->trace.format = "RMM CSV";
    b->lines = true;
    KN_TRY(read_header(&r));
    for (bool end = false; !end;) {
        KN_TRY(next_line(&r, &end));
        if (!r.line[0]) continue;
        KN_TRY(split(&r));
        KN_TRY(read_event(&r));
    }
    return KN_OK;
}
