#include "counters.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cells.h"
#include "utf8.h"

enum { NAME_MIN = 9, COUNT_WIDTH = 9, VALUE_WIDTH = 12 };

void kn__counter_text(char *out, size_t out_bytes, const char *text) {
    size_t n = 0;
    while (*text) {
        size_t step = kn__utf8_bytes(text);
        bool is_shown = kn__utf8_is_shown(text);
        size_t kept = is_shown ? step : 1;
        if (n + kept >= out_bytes) break;
        memcpy(out + n, is_shown ? text : "?", kept);
        n += kept;
        text += step ? step : 1;
    }
    out[n] = '\0';
}

void kn__counter_value(kn__text *text, long double value) {
    bool is_whole = value == rintl(value) && fabsl(value) < 0x1p64L;
    if (is_whole) {
        kn__text_printf(text, "%.0Lf", value);
    } else {
        kn__text_printf(text, "%.17g", (double)value);
    }
}

/* The mean moves with each value: a sum could overflow. It is computed as a double: long double
 * divides slowly. */
void kn__counter_add(kn__counter *c, long double value) {
    if (!c->n) c->first = c->min = c->max = value;
    c->n++;
    c->last = value;
    if (value < c->min) c->min = value;
    if (value > c->max) c->max = value;
    double n = (double)c->n, mean = (double)c->mean;
    c->mean = mean + ((double)value / n - mean / n);
    bool has_limits = c->limit_min != 0 || c->limit_max != 0;
    c->n_beyond += has_limits && (value < c->limit_min || value > c->limit_max);
}

/* --- the table --- */

typedef enum amount { FIRST, LAST, MIN, MAX, MEAN, N_VALUES } amount;

static const char *const heads[N_VALUES] = {"first", "last", "min", "max", "mean"};

static long double value_of(const kn__counter *c, amount which) {
    const long double values[N_VALUES] = {c->first, c->last, c->min, c->max, c->mean};
    return values[which];
}

void kn__counter_name(kn__text *text, const kn__counter *c) {
    kn__text_shown(text, c->name, INT_MAX);
    if (!c->unit[0]) return;
    kn__text_puts(text, " (");
    kn__text_shown(text, c->unit, INT_MAX);
    kn__text_puts(text, ")");
}

/* A narrow terminal does without the first columns. */
static amount first_shown(int width, int name) {
    amount from = FIRST;
    while (width > 0 && from < MEAN &&
           3 + name + COUNT_WIDTH + VALUE_WIDTH * (int)(N_VALUES - from) > width) {
        from++;
    }
    return from;
}

void kn__counter_cell(char cell[KN__COUNTER_CELL_BYTES], double x) {
    bool is_plain = x == 0 || (fabs(x) >= 1e-3 && fabs(x) < 1e6);
    kn__text text = kn__text_in(cell, KN__COUNTER_CELL_BYTES);
    kn__text_printf(&text, is_plain ? "%.6g" : "%.4g", x);
}

static void add_line(kn__text *text, const kn__counter *c, int name_width, amount from) {
    kn__text name = {0};
    kn__counter_name(&name, c);
    kn__text_puts(text, "   ");
    kn__text_label(text, name.data ? name.data : "", name_width, name_width);
    text->failed |= name.failed;
    kn__text_release(&name);
    kn__text_right(text, kn__count_cell((double)c->n).text, COUNT_WIDTH);
    for (amount v = from; v < N_VALUES; v++) {
        char cell[KN__COUNTER_CELL_BYTES] = "-";
        if (c->n) kn__counter_cell(cell, (double)value_of(c, v));
        kn__text_right(text, cell, VALUE_WIDTH);
    }
    kn__text_puts(text, "\n");
}

static void add_doubts(kn__text *text, const kn__counter *c) {
    if (c->n_missed) {
        kn__text_puts(text, "; ");
        kn__counter_name(text, c);
        kn__text_printf(text, ": %" PRIu64 " without a value", c->n_missed);
    }
    if (c->n_beyond) {
        kn__text_puts(text, "; ");
        kn__counter_name(text, c);
        kn__text_printf(text, ": %" PRIu64 " outside %.4Lg to %.4Lg", c->n_beyond, c->limit_min,
                        c->limit_max);
    }
}

static int longest_name(const kn__counters *counters) {
    int longest = NAME_MIN;
    for (int i = 0; i < counters->n; i++) {
        kn__text name = {0};
        kn__counter_name(&name, &counters->all[i]);
        int width = name.data ? kn__text_width(name.data) : 0;
        if (width > longest) longest = width;
        kn__text_release(&name);
    }
    return longest;
}

/* What the lines can't show, after one another. */
static void add_notes(kn__text *text, const kn__counters *counters, int width) {
    kn__text notes = {0};
    for (int i = 0; i < counters->n; i++) add_doubts(&notes, &counters->all[i]);
    if (counters->n_refused) {
        kn__text_printf(&notes, "; %" PRIu64 " more counters: there is room for %d",
                        counters->n_refused, KN__COUNTERS_MAX);
    }
    if (counters->n_lost) {
        kn__text_printf(&notes, "; %" PRIu64 " samples of no counter", counters->n_lost);
    }
    if (notes.length) kn__text_puts(&notes, "\n");
    if (notes.length && notes.data) {
        kn__text_wrap(text, notes.data + 2, 1, 0, width > 0 ? width : INT_MAX);
    }
    text->failed |= notes.failed;
    kn__text_release(&notes);
}

void kn__counters_add_table(kn__text *text, const kn__counters *counters, int width) {
    if (counters->n) {
        int name = longest_name(counters);
        amount from = first_shown(width, name);
        int most = width - 3 - COUNT_WIDTH - VALUE_WIDTH * (int)(N_VALUES - from);
        if (width > 0 && name > most) name = most > NAME_MIN ? most : NAME_MIN;
        kn__text_puts(text, " ");
        kn__text_left(text, "counters:", name + 2);
        kn__text_right(text, "samples", COUNT_WIDTH);
        for (amount v = from; v < N_VALUES; v++) kn__text_right(text, heads[v], VALUE_WIDTH);
        kn__text_puts(text, "\n");
        for (int i = 0; i < counters->n; i++) add_line(text, &counters->all[i], name, from);
    }
    add_notes(text, counters, width);
}

/* --- JSON --- */

/* A limit may be infinite, which JSON can't tell. */
static void add_limit(kn__text *text, const char *key, long double value) {
    if (!isfinite(value)) return;
    kn__text_printf(text, ",\"%s\":", key);
    kn__counter_value(text, value);
}

static void add_counter(kn__text *text, const kn__counter *c) {
    kn__text_puts(text, "{\"name\":");
    kn__text_json(text, c->name);
    kn__text_puts(text, ",\"unit\":");
    kn__text_json(text, c->unit);
    kn__text_printf(text, ",\"n\":%" PRIu64 ",\"n_missed\":%" PRIu64 ",\"n_beyond\":%" PRIu64, c->n,
                    c->n_missed, c->n_beyond);
    if (c->n) {
        for (amount v = FIRST; v < N_VALUES; v++) {
            kn__text_printf(text, ",\"%s\":", heads[v]);
            kn__counter_value(text, value_of(c, v));
        }
    }
    if (c->limit_min != 0 || c->limit_max != 0) {
        add_limit(text, "limit_min", c->limit_min);
        add_limit(text, "limit_max", c->limit_max);
    }
    kn__text_puts(text, "}");
}

void kn__counters_add_json(kn__text *text, const kn__counters *counters) {
    if (!counters->n && !counters->n_refused && !counters->n_lost) return;
    kn__text_printf(
        text, ",\n\"counters_refused\":%" PRIu64 ",\"samples_lost\":%" PRIu64 ",\"counters\":[",
        counters->n_refused, counters->n_lost);
    for (int i = 0; i < counters->n; i++) {
        kn__text_puts(text, i ? ",\n" : "\n");
        add_counter(text, &counters->all[i]);
    }
    kn__text_puts(text, "]");
}

/* --- of several runs --- */

kn__counter *kn__counters_get(kn__report *report, const char *name) {
    kn__counters *counters = &report->counters;
    char kept[sizeof counters->all->name];
    kn__counter_text(kept, sizeof kept, name);
    for (int i = 0; i < counters->n; i++) {
        if (strcmp(counters->all[i].name, kept) == 0) return &counters->all[i];
    }
    if (!counters->all) {
        counters->all = kn__report_bytes(report, KN__COUNTERS_MAX * sizeof *counters->all);
    }
    if (!counters->all || counters->n == KN__COUNTERS_MAX) return NULL;
    kn__counter *made = &counters->all[counters->n++];
    *made = (kn__counter){.n = 0};
    memcpy(made->name, kept, sizeof kept);
    return made;
}

static void merge_counter(kn__counter *to, const kn__counter *run) {
    to->n_missed += run->n_missed;
    to->n_beyond += run->n_beyond;
    if (!run->n) return;
    long double all = (long double)to->n + (long double)run->n;
    if (!to->n) to->first = to->min = to->max = run->first;
    to->last = run->last;
    to->min = fminl(to->min, run->min);
    to->max = fmaxl(to->max, run->max);
    to->mean = to->mean * ((long double)to->n / all) + run->mean * ((long double)run->n / all);
    to->n += run->n;
}

kn_status kn__counters_merge(kn__report *into, const kn__counters *run) {
    into->counters.n_refused += run->n_refused;
    into->counters.n_lost += run->n_lost;
    for (int i = 0; i < run->n; i++) {
        const kn__counter *c = &run->all[i];
        int n = into->counters.n;
        kn__counter *to = kn__counters_get(into, c->name);
        if (!to && !into->counters.all) return KN_FAIL(KN_ERR_OOM, "no memory for the report");
        if (!to) {
            into->counters.n_refused++;
            continue;
        }
        if (into->counters.n > n) { /* it is new */
            memcpy(to->unit, c->unit, sizeof to->unit);
            to->limit_min = c->limit_min;
            to->limit_max = c->limit_max;
        }
        merge_counter(to, c);
    }
    return KN_OK;
}
