#include "diff_counters.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "counters.h"

enum { NAME_LEAST = 10, NAME_MOST = 40, VALUE_WIDTH = 12, CHANGE_WIDTH = 10 };

static const kn__counter *find(const kn__counters *counters, const char *name) {
    for (int i = 0; i < counters->n; i++) {
        if (strcmp(counters->all[i].name, name) == 0) return &counters->all[i];
    }
    return NULL;
}

static bool is_beyond(long double a, long double b, double part) {
    return fabsl(b - a) > part * fabsl(a);
}

static bool has_moved(const kn__counter *a, const kn__counter *b, double threshold) {
    if (!a || !b || !a->n != !b->n || strcmp(a->unit, b->unit) != 0) return true;
    return is_beyond(a->mean, b->mean, threshold) || is_beyond(a->last, b->last, threshold);
}

static void add_pair(kn__counters_diff *d, const kn__counter *a, const kn__counter *b,
                     double threshold) {
    bool moved = has_moved(a, b, threshold);
    d->all[d->n++] = (kn__counter_pair){a, b, moved};
    d->n_moved += moved;
}

kn_status kn__counters_diff_make(kn__counters_diff *out, const kn__counters *a,
                                 const kn__counters *b, double threshold) {
    *out = (kn__counters_diff){.n = 0};
    size_t room = (size_t)a->n + (size_t)b->n;
    if (!room) return KN_OK;
    out->all = malloc(room * sizeof *out->all);
    if (!out->all) return KN_FAIL(KN_ERR_OOM, "no memory for the comparison");
    for (int i = 0; i < b->n; i++) add_pair(out, find(a, b->all[i].name), &b->all[i], threshold);
    for (int i = 0; i < a->n; i++) {
        if (!find(b, a->all[i].name)) add_pair(out, &a->all[i], NULL, threshold);
    }
    return KN_OK;
}

void kn__counters_diff_release(kn__counters_diff *diff) {
    free(diff->all);
    *diff = (kn__counters_diff){.n = 0};
}

/* --- as text --- */

static const char *what_of(const kn__counter_pair *p) {
    return !p->a ? "new" : !p->b ? "gone" : p->has_moved ? "moved" : "same";
}

static void add_value(kn__text *text, const kn__counter *c, long double value) {
    char cell[KN__COUNTER_CELL_BYTES] = "-";
    if (c && c->n) kn__counter_cell(cell, (double)value);
    kn__text_right(text, cell, VALUE_WIDTH);
}

/* What a line shows, by its width: the mean after, before too, and the same of the last value. */
typedef struct shape {
    int name; /* columns */
    bool has_before, has_last;
} shape;

enum { INDENT = 3, PAIR_WIDTH = 2 * VALUE_WIDTH + CHANGE_WIDTH };

/* The mean or the last value of both sides, and what came of it. */
static void add_values(kn__text *text, const kn__counter_pair *p, const shape *s, bool is_last) {
    static const kn__counter none = {.n = 0};
    const kn__counter *a = p->a ? p->a : &none, *b = p->b ? p->b : &none;
    long double before = is_last ? a->last : a->mean, after = is_last ? b->last : b->mean;
    double percent = (double)(100 * (after - before) / fabsl(before));
    char change[32];
    kn__text cell = kn__text_in(change, sizeof change);
    if (a->n && b->n && before != 0) {
        kn__text_printf(&cell, fabs(percent) < 1e5 ? "%+.1f%%" : "%+.2g%%", percent);
    } else {
        kn__text_puts(&cell, "-");
    }
    bool is_alone = !p->a || !p->b;
    if (s->has_before) add_value(text, a, before);
    add_value(text, b, after);
    kn__text_right(text, is_alone && !is_last ? what_of(p) : change, CHANGE_WIDTH);
}

static int name_width(const kn__counters_diff *diff) {
    int widest = NAME_LEAST;
    for (int i = 0; i < diff->n; i++) {
        const kn__counter_pair *p = &diff->all[i];
        kn__text name = {0};
        kn__counter_name(&name, p->b ? p->b : p->a);
        int width = name.data && p->has_moved ? kn__text_width(name.data) : 0;
        if (width > widest) widest = width;
        kn__text_release(&name);
    }
    return widest < NAME_MOST ? widest : NAME_MOST;
}

static shape shape_of(const kn__counters_diff *diff, int width) {
    int name = name_width(diff);
    if (!width) return (shape){name, true, true};
    shape s = {.has_before = width >= INDENT + NAME_LEAST + PAIR_WIDTH,
               .has_last = width >= INDENT + NAME_LEAST + 2 * PAIR_WIDTH};
    int values = s.has_last ? 2 * PAIR_WIDTH : PAIR_WIDTH - (s.has_before ? 0 : VALUE_WIDTH);
    int room = width - INDENT - values;
    s.name = name < room ? name : room > NAME_LEAST ? room : NAME_LEAST;
    return s;
}

static void add_line(kn__text *text, const kn__counter_pair *p, const shape *s) {
    kn__text name = {0};
    kn__counter_name(&name, p->b ? p->b : p->a);
    kn__text_repeat(text, " ", INDENT);
    kn__text_label(text, name.data ? name.data : "", s->name, s->name);
    text->failed |= name.failed;
    kn__text_release(&name);
    add_values(text, p, s, false);
    if (s->has_last) add_values(text, p, s, true);
    kn__text_puts(text, "\n");
}

static void add_heading(kn__text *text, const shape *s) {
    kn__text_puts(text, "\n ");
    kn__text_left(text, "counters:", s->name + INDENT - 1);
    for (int is_last = 0; is_last <= s->has_last; is_last++) {
        const char *what = is_last ? "last" : "mean";
        if (s->has_before) kn__text_right(text, what, VALUE_WIDTH);
        kn__text_right(text, s->has_before ? "after" : what, VALUE_WIDTH);
        kn__text_right(text, "change", CHANGE_WIDTH);
    }
    kn__text_puts(text, "\n");
}

void kn__counters_diff_add_table(kn__text *text, const kn__counters_diff *diff, int top,
                                 int width) {
    if (!diff->n) return;
    shape s = shape_of(diff, width);
    kn__text foot = {0};
    int shown = 0;
    if (diff->n_moved) add_heading(text, &s);
    for (int i = 0; i < diff->n; i++) {
        if (!diff->all[i].has_moved || (top && shown == top)) continue;
        add_line(text, &diff->all[i], &s);
        shown++;
    }
    if (shown < diff->n_moved)
        kn__text_printf(&foot, " and %d more counters that moved: --top %d shows all\n",
                        diff->n_moved - shown, diff->n_moved);
    if (diff->n > diff->n_moved)
        kn__text_printf(&foot, " counters that did not move: %d\n", diff->n - diff->n_moved);
    kn__text_wrapped(text, &foot, width);
}

/* --- as JSON --- */

static void add_side(kn__text *text, const char *key, const kn__counter *c) {
    if (!c) return;
    kn__text_printf(text, ",\"%s\":{\"n\":%" PRIu64, key, c->n);
    if (c->n) {
        kn__text_puts(text, ",\"mean\":");
        kn__counter_value(text, c->mean);
        kn__text_puts(text, ",\"last\":");
        kn__counter_value(text, c->last);
    }
    kn__text_puts(text, "}");
}

void kn__counters_diff_add_json(kn__text *text, const kn__counters_diff *diff) {
    kn__text_printf(text, ",\"n_counters_moved\":%d,\"counters\":[", diff->n_moved);
    for (int i = 0; i < diff->n; i++) {
        const kn__counter_pair *p = &diff->all[i];
        const kn__counter *named = p->b ? p->b : p->a;
        kn__text_puts(text, i ? ",\n{\"name\":" : "\n{\"name\":");
        kn__text_json(text, named->name);
        kn__text_puts(text, ",\"unit\":");
        kn__text_json(text, named->unit);
        kn__text_printf(text, ",\"what\":\"%s\"", what_of(p));
        add_side(text, "before", p->a);
        add_side(text, "after", p->b);
        kn__text_puts(text, "}");
    }
    kn__text_puts(text, "]");
}
