#include "name.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    char *out;
    size_t at, size;
} writer;

static void add(writer *w, const char *text, size_t length) {
    if (length > w->size - 1 - w->at) length = w->size - 1 - w->at;
    memcpy(w->out + w->at, text, length);
    w->at += length;
    w->out[w->at] = '\0';
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* <length><identifier>; moves *s behind it. */
static bool read_identifier(const char **s, writer *w) {
    size_t length = 0;
    const char *at = *s;
    for (; is_digit(*at) && length < 4096; at++) length = 10 * length + (size_t)(*at - '0');
    if (length == 0 || strnlen(at, length) < length) return false;
    if (w->at) add(w, "::", 2);
    if (length > 10 && strncmp(at, "_GLOBAL__N", 10) == 0) {
        add(w, "(anonymous)", 11);
    } else {
        add(w, at, length);
    }
    *s = at + length;
    return true;
}

/* Template arguments nest and may hold anything; they end where their E stands. */
static bool skip_arguments(const char **s) {
    int depth = 0;
    for (const char *at = *s; *at;) {
        if (is_digit(*at) && at > *s) { /* identifiers may contain I and E */
            size_t length = 0;
            while (is_digit(*at)) length = 10 * length + (size_t)(*at++ - '0');
            bool literal = at[0] == 'E' || length > strlen(at);
            if (!literal) at += length;
            continue;
        }
        if (*at == 'L' && (is_digit(at[2]) || at[2] == 'n')) { /* a literal: type, digits, E */
            at += strcspn(at, "E") + 1;
            continue;
        }
        depth += *at == 'I' || *at == 'N' || *at == 'J' || *at == 'X';
        depth -= *at == 'E';
        at++;
        if (depth == 0) {
            *s = at;
            return true;
        }
    }
    return false;
}

/* N … E: identifiers and their template arguments; the first thing not understood ends it. */
static bool read_nested(const char *s, writer *w) {
    while (*s == 'K' || *s == 'V' || *s == 'r') s++;
    if (strncmp(s, "St", 2) == 0) {
        add(w, "std", 3);
        s += 2;
    }
    while (*s && *s != 'E') {
        if (is_digit(*s)) {
            if (!read_identifier(&s, w)) return false;
        } else if (*s != 'I' || !skip_arguments(&s)) {
            break;
        }
    }
    return w->at > 0;
}

void kn__name_short(char *out, size_t out_bytes, const char *name) {
    writer w = {out, 0, out_bytes};
    bool good = false;
    out[0] = '\0';
    if (strncmp(name, "_ZN", 3) == 0) {
        good = read_nested(name + 3, &w);
    } else if (strncmp(name, "_Z", 2) == 0) {
        const char *s = name + 2 + (name[2] == 'L');
        good = read_identifier(&s, &w);
    }
    if (!good) snprintf(out, out_bytes, "%s", name);
}
