#include "name.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "text.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

/* A piece of a name: a template argument or the type of a parameter. */
typedef struct piece {
    const char *at;
    size_t length;
} piece;

enum { PIECES_MAX = 24, DEPTH_MAX = 20, SHORT_BYTES = 512 };

typedef struct pieces {
    piece all[PIECES_MAX];
    int n;
} pieces;

static void add_piece(pieces *p, const char *at, const char *end) {
    if (p && p->n < PIECES_MAX) p->all[p->n++] = (piece){at, (size_t)(end - at)};
}

/* --- mangled names --- */

/* <length><identifier>; moves *s to what follows. */
static bool read_identifier(const char **s, kn__text *w) {
    size_t length = 0;
    const char *at = *s;
    for (; is_digit(*at) && length < 4096; at++) length = 10 * length + (size_t)(*at - '0');
    if (length == 0 || strnlen(at, length) < length) return false;
    if (w && w->length) kn__text_add(w, "::", 2);
    if (w && length > 10 && strncmp(at, "_GLOBAL__N", 10) == 0) {
        kn__text_add(w, "(anonymous)", 11);
    } else if (w) {
        kn__text_add(w, at, length);
    }
    *s = at + length;
    return true;
}

/* "St", "Sa" and so on, "S_", "S1A_"; "T_", "T0_". */
static const char *skip_reference(const char *s) {
    if (s[0] == 'S' && s[1] >= 'a' && s[1] <= 'z') return s + 2;
    const char *at = s + 1;
    while (is_digit(*at) || is_upper(*at)) at++;
    return *at == '_' ? at + 1 : s + 1;
}

static bool is_opener(char c) { return c == 'I' || c == 'N' || c == 'J' || c == 'X' || c == 'F'; }

/* From an opener to behind its E: groups nest and may hold anything. */
static bool skip_group(const char **s) {
    int depth = 0;
    for (const char *at = *s; *at;) {
        if (is_digit(*at)) { /* identifiers may contain I and E */
            const char *name = at;
            if (read_identifier(&at, NULL)) continue;
            at = name + 1;
        } else if (*at == 'L') { /* a literal: type, digits, E */
            at += strcspn(at, "E");
            at += *at == 'E';
        } else if (*at == 'S' || *at == 'T') {
            at = skip_reference(at);
        } else {
            depth += is_opener(*at);
            depth -= *at == 'E';
            at++;
        }
        if (depth == 0) {
            *s = at;
            return true;
        }
    }
    return false;
}

/* One type or one template argument. */
static bool skip_type(const char **s) {
    const char *at = *s;
    while (*at && strchr("PROKVr", *at)) at++;
    if (*at == 'D' && at[1] == 'p') at += 2; /* a pack's expansion */
    if (!*at || *at == 'E') return false;
    if (*at == 'L' || is_opener(*at)) {
        if (*at == 'L') {
            at += strcspn(at, "E");
            at += *at == 'E';
        } else if (!skip_group(&at)) {
            return false;
        }
        *s = at;
        return true;
    }
    if (is_digit(*at)) {
        if (!read_identifier(&at, NULL)) return false;
    } else if (*at == 'S' || *at == 'T') {
        bool is_std = at[1] == 't' && *at == 'S';
        at = skip_reference(at);
        if (is_std && is_digit(*at) && !read_identifier(&at, NULL)) return false;
    } else if (*at == 'D' && at[1]) {
        at += 2;
    } else {
        at++;
    }
    if (*at == 'I' && !skip_group(&at)) return false;
    *s = at;
    return true;
}

/* What stands between an I and its E. */
static void split_group(pieces *p, const char *at, const char *end) {
    for (const char *next = at; at < end && skip_type(&next) && next <= end; at = next) {
        add_piece(p, at, next);
    }
}

static bool read_arguments(const char **s, pieces *p) {
    const char *start = *s + 1;
    if (!skip_group(s)) return false;
    split_group(p, start, *s - 1);
    return true;
}

/* N … E: identifiers and their template arguments; the first thing not understood ends it. */
static bool read_nested(const char **s, kn__text *w, pieces *p) {
    while (**s == 'K' || **s == 'V' || **s == 'r') ++*s;
    if (strncmp(*s, "St", 2) == 0) {
        kn__text_puts(w, "std");
        *s += 2;
    }
    while (**s && **s != 'E') {
        if (is_digit(**s)) {
            if (!read_identifier(s, w)) return false;
        } else if (**s != 'I' || !read_arguments(s, p)) {
            break;
        }
    }
    *s += **s == 'E';
    return w->length > 0;
}

static bool read_mangled(const char *name, kn__text *w, pieces *p) {
    const char *s = name + 2;
    bool good;
    if (*s == 'N') {
        s++;
        good = read_nested(&s, w, p);
    } else {
        s += *s == 'L';
        good = read_identifier(&s, w) && (*s != 'I' || read_arguments(&s, p));
    }
    if (good) split_group(p, s, s + strlen(s)); /* parameters, where overloads differ */
    return good;
}

/* --- names that were demangled already --- */

static const char *close_of(const char *open) {
    int depth = 0;
    for (const char *s = open; *s; s++) {
        depth += *s == '<' || *s == '(';
        depth -= *s == ')' || (*s == '>' && s[-1] != '-');
        if (depth == 0) return s;
    }
    return NULL;
}

static void split_list(pieces *p, const char *at, const char *end) {
    for (const char *s = at; at < end && s <= end; s++) {
        const char *close = s < end && (*s == '<' || *s == '(') ? close_of(s) : NULL;
        if (close && close < end) s = close;
        if (s < end && *s != ',') continue;
        while (at < s && *at == ' ') at++;
        add_piece(p, at, s);
        at = s + 1;
    }
}

/* "void name<arguments>(parameters)" */
static bool read_plain(const char *name, kn__text *w, pieces *p) {
    const char *open = name + strcspn(name, "<(");
    const char *base = open;
    if (!*open || open == name) return false;
    while (base > name && base[-1] != ' ') base--;
    kn__text_add(w, base, (size_t)(open - base));
    while (*open == '<' || *open == '(') {
        const char *close = close_of(open);
        if (!close) return false;
        split_list(p, open + 1, close);
        open = close + 1;
    }
    return w->length > 0 && !*open;
}

static bool read_name(const char *name, kn__text *w, pieces *p) {
    return strncmp(name, "_Z", 2) == 0 ? read_mangled(name, w, p) : read_plain(name, w, p);
}

void kn__name_short(char *out, size_t out_bytes, const char *name) {
    kn__text w = kn__text_in(out, out_bytes);
    if (!read_name(name, &w, NULL)) snprintf(out, out_bytes, "%s", name);
}

/* --- pieces as people read them --- */

static const char *builtin(char c) {
    static const char *const names[26] = {['v' - 'a'] = "void",
                                          ['b' - 'a'] = "bool",
                                          ['c' - 'a'] = "char",
                                          ['a' - 'a'] = "signed char",
                                          ['h' - 'a'] = "uchar",
                                          ['s' - 'a'] = "short",
                                          ['t' - 'a'] = "ushort",
                                          ['i' - 'a'] = "int",
                                          ['j' - 'a'] = "unsigned",
                                          ['l' - 'a'] = "long",
                                          ['m' - 'a'] = "ulong",
                                          ['x' - 'a'] = "long long",
                                          ['y' - 'a'] = "unsigned long long",
                                          ['f' - 'a'] = "float",
                                          ['d' - 'a'] = "double"};
    return c >= 'a' && c <= 'z' ? names[c - 'a'] : NULL;
}

static void add_type(kn__text *w, const char *at, size_t length, int depth);

static void add_list(kn__text *w, const pieces *p, int depth) {
    for (int i = 0; i < p->n; i++) {
        if (i) kn__text_add(w, ", ", 2);
        add_type(w, p->all[i].at, p->all[i].length, depth);
    }
}

/* The innermost name of a class, with its arguments. */
static bool add_class(kn__text *w, const char *at, const char *end, int depth) {
    char last[SHORT_BYTES] = "";
    pieces arguments = {.n = 0};
    while (at < end && *at != 'E') {
        if (is_digit(*at)) {
            kn__text name = kn__text_in(last, sizeof last);
            if (!read_identifier(&at, &name)) return false;
            arguments.n = 0;
        } else if (*at == 'I') {
            if (!read_arguments(&at, &arguments)) return false;
        } else if (*at == 'S' || *at == 'T') {
            at = skip_reference(at);
        } else {
            at++;
        }
    }
    if (!last[0]) return false;
    kn__text_puts(w, last);
    if (!arguments.n || depth == DEPTH_MAX) return true;
    kn__text_add(w, "<", 1);
    add_list(w, &arguments, depth + 1);
    kn__text_add(w, ">", 1);
    return true;
}

/* Li4E, Lb1E, Lin3E; of an enum its number alone. */
static void add_literal(kn__text *w, const char *at, size_t length) {
    const char *end = at + length - 1, *value = end;
    while (value > at && is_digit(value[-1])) value--;
    if (at[1] == 'b' && end - value == 1) {
        kn__text_puts(w, *value == '1' ? "true" : "false");
        return;
    }
    if (value[-1] == 'n') kn__text_add(w, "-", 1);
    kn__text_add(w, value, (size_t)(end - value));
}

static void add_type(kn__text *w, const char *at, size_t length, int depth) {
    const char *end = at + length;
    int n_stars = 0;
    while (at < end && *at && strchr("PROKVr", *at)) n_stars += *at++ == 'P';
    size_t left = (size_t)(end - at);
    if (left > 2 && *at == 'L') {
        add_literal(w, at, left);
    } else if (left == 1 && builtin(*at)) {
        kn__text_puts(w, builtin(*at));
    } else if (left == 2 && strncmp(at, "Dh", 2) == 0) {
        kn__text_puts(w, "half");
    } else if (!left || !add_class(w, at + (*at == 'N'), end, depth)) {
        kn__text_add(w, at, left);
    }
    while (n_stars-- > 0) kn__text_add(w, "*", 1);
}

/* --- the names of a table --- */

typedef struct kn__shown_name {
    const char *label;
    char *text;
} shown;

void kn__names_add(kn__names *names, const char *label) {
    if (names->n == names->size) {
        size_t size = names->size ? 2 * names->size : 64;
        shown *all = realloc(names->all, size * sizeof *all);
        if (!all) return;
        names->all = all;
        names->size = size;
    }
    names->all[names->n++] = (shown){label, NULL};
}

void kn__names_add_kernels(kn__names *names, const kn__row *row) {
    for (; row; row = row->next) {
        if (row->is_kernel) kn__names_add(names, row->label);
        kn__names_add_kernels(names, row->first);
    }
}

static int by_label(const void *a, const void *b) {
    return strcmp(((const shown *)a)->label, ((const shown *)b)->label);
}

static int by_text(const void *a, const void *b) {
    const shown *x = *(shown *const *)a, *y = *(shown *const *)b;
    int order = strcmp(x->text, y->text);
    return order ? order : strcmp(x->label, y->label);
}

static void read_pieces(pieces *p, const char *label) {
    char base[SHORT_BYTES];
    kn__text w = kn__text_in(base, sizeof base);
    *p = (pieces){.n = 0};
    if (!read_name(label, &w, p)) p->n = 0;
}

static bool is_same(const pieces *a, const pieces *b, int i) {
    if (i >= a->n || i >= b->n) return a->n == b->n;
    return a->all[i].length == b->all[i].length &&
           memcmp(a->all[i].at, b->all[i].at, a->all[i].length) == 0;
}

/* Whether one piece alone tells all of them apart. */
static bool is_enough(const pieces *all, size_t n, int k) {
    for (size_t i = 1; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (is_same(&all[i], &all[j], k)) return false;
        }
    }
    return true;
}

/* The first piece that is enough, else all in which they differ. */
static void choose(bool *chosen, const pieces *all, size_t n) {
    for (int k = 0; k < PIECES_MAX; k++) {
        for (size_t i = 1; i < n; i++) chosen[k] |= !is_same(&all[0], &all[i], k);
        if (!chosen[k] || !is_enough(all, n, k)) continue;
        memset(chosen, 0, PIECES_MAX * sizeof *chosen);
        chosen[k] = true;
        return;
    }
}

static void show(shown *name, const pieces *p, const bool *chosen) {
    char text[SHORT_BYTES] = "";
    kn__text w = kn__text_in(text, sizeof text);
    pieces kept = {.n = 0};
    for (int k = 0; k < p->n; k++) {
        if (chosen[k]) kept.all[kept.n++] = p->all[k];
    }
    if (!kept.n) return;
    kn__text_puts(&w, name->text);
    kn__text_add(&w, "<", 1);
    add_list(&w, &kept, 0);
    kn__text_add(&w, ">", 1);
    char *copy = strdup(text);
    if (!copy) return;
    free(name->text);
    name->text = copy;
}

/* Names of one template. */
static void tell_apart(shown **group, size_t n) {
    bool chosen[PIECES_MAX] = {false};
    pieces *all = malloc(n * sizeof *all);
    if (!all) return;
    for (size_t i = 0; i < n; i++) read_pieces(&all[i], group[i]->label);
    choose(chosen, all, n);
    for (size_t i = 0; i < n; i++) show(group[i], &all[i], chosen);
    free(all);
}

static void tell_groups_apart(shown **order, size_t n) {
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(order[i]->text, order[end]->text) == 0;) end++;
        if (end - i > 1) tell_apart(order + i, end - i);
    }
}

void kn__names_settle(kn__names *names) {
    size_t n = 0;
    if (!names->n) return;
    qsort(names->all, names->n, sizeof *names->all, by_label);
    for (size_t i = 0; i < names->n; i++) {
        if (n && strcmp(names->all[n - 1].label, names->all[i].label) == 0) continue;
        names->all[n++] = names->all[i];
    }
    names->n = n;
    shown **order = malloc(n * sizeof *order);
    bool complete = order != NULL;
    for (size_t i = 0; i < n && complete; i++) {
        char text[SHORT_BYTES];
        kn__name_short(text, sizeof text, names->all[i].label);
        names->all[i].text = strdup(text);
        complete = names->all[i].text != NULL;
        order[i] = &names->all[i];
    }
    if (complete) {
        qsort(order, n, sizeof *order, by_text);
        tell_groups_apart(order, n);
    }
    free(order);
}

const char *kn__names_get(const kn__names *names, const char *label) {
    shown key = {label, NULL};
    const shown *found =
        names->n ? bsearch(&key, names->all, names->n, sizeof key, by_label) : NULL;
    return found ? found->text : NULL;
}

void kn__names_release(kn__names *names) {
    for (size_t i = 0; i < names->n; i++) free(names->all[i].text);
    free(names->all);
    *names = (kn__names){0};
}
