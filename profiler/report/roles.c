#include "roles.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "units.h"

enum { LAYER_BYTES = 96, ENTRIES_MAX = 1024, LAYERS_SHOWN = 4, DEPTH_MAX = 256 };
enum { SEGMENT_BYTES = 32 << 20 }; /* the least by which a pool without virtual memory grows */
enum { NAME_COLUMN = 18, LAYER_COLUMN = 37, WIDE = 60 };

static const char *const role_names[KN__ROLES] = {
    "weights",    "gradients",  "optimizer state", "data", "values of backward",
    "work space", "activations"};

/* Scopes whose name alone says the role. */
static const struct {
    const char *label;
    kn__role role;
} named[] = {{"weights", KN__ROLE_WEIGHTS},
             {"gradients", KN__ROLE_GRADIENTS},
             {"optimizer state", KN__ROLE_OPTIMIZER},
             {"load", KN__ROLE_DATA},
             {"read data", KN__ROLE_DATA},
             {"make data", KN__ROLE_DATA},
             {"work space", KN__ROLE_WORK},
             {"backward", KN__ROLE_BACKWARD}};
static const char *const passes[] = {"forward", "backward", "evaluate", "predict", "recompute"};

/* --- one row --- */

/* The innermost scope that says it. */
kn__role kn__role_of(const kn__row *row) {
    for (; row && row->parent; row = row->parent)
        for (size_t i = 0; i < sizeof named / sizeof *named; i++)
            if (strcmp(row->label, named[i].label) == 0) return named[i].role;
    return KN__ROLE_ACTIVATIONS;
}

static bool is_pass(const char *label) {
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        if (strcmp(label, passes[i]) == 0) return true;
    return false;
}

/* A derivative's row is "conv  d weight". */
static bool is_derivative(const char *label) { return strstr(label, "  d ") != NULL; }

void kn__role_layer(char *out, size_t out_bytes, const kn__row *row) {
    const kn__row *chain[DEPTH_MAX];
    int n = 0;
    out[0] = 0;
    if (row && row->parent && strcmp(row->label, "work space") == 0) row = row->parent;
    for (; row && row->parent && n < DEPTH_MAX; row = row->parent) chain[n++] = row;
    /* Below the innermost pass, or, if only the op is, as of "fc2/recompute/gelu", below the next
     * one. */
    size_t at = 0;
    for (int pass = 0, end = 0; pass < n && !at; pass++) {
        if (!is_pass(chain[pass]->label)) continue;
        for (int i = pass - 1; i > end && !is_derivative(chain[i]->label) && at < out_bytes; i--)
            at +=
                (size_t)snprintf(out + at, out_bytes - at, "%s%s", at ? "." : "", chain[i]->label);
        end = pass;
    }
}

/* --- sums --- */

typedef struct entry {
    char layer[LAYER_BYTES];
    kn__role role;
    int64_t bytes;
} entry;

typedef struct sums {
    entry *entries;
    int n;
    int64_t role[KN__ROLES];
    double largest; /* block that grows with the batch */
} sums;

/* Bytes, 0 or more; a file may say anything. */
static void add_bytes(int64_t *to, int64_t bytes) {
    if (__builtin_add_overflow(*to, bytes, to)) *to = INT64_MAX;
}

static void layer_count(sums *s, const kn__row *row, kn__role role) {
    char layer[LAYER_BYTES];
    kn__role_layer(layer, sizeof layer, row);
    int i = 0;
    while (i < s->n && (s->entries[i].role != role || strcmp(s->entries[i].layer, layer) != 0)) i++;
    if (i == ENTRIES_MAX) return;
    if (i == s->n) {
        s->entries[s->n++] = (entry){.role = role};
        snprintf(s->entries[i].layer, LAYER_BYTES, "%s", layer);
    }
    add_bytes(&s->entries[i].bytes, row->held_at_peak);
}

static bool grows(kn__role role) { return role >= KN__ROLE_DATA; }

/* Of rows below which none is: else the allocations of those are counted too. */
static double block_of(const kn__row *row) {
    double held = (double)row->held_at_peak, mean = held;
    if (!row->first && row->n_allocs) mean = (double)row->alloc_bytes / (double)row->n_allocs;
    return mean < held ? mean : held;
}

static void count(sums *s, const kn__row *row) {
    if (row->parent && row->held_at_peak > 0) {
        kn__role role = kn__role_of(row);
        add_bytes(&s->role[role], row->held_at_peak);
        if (grows(role) && block_of(row) > s->largest) s->largest = block_of(row);
        if (role >= KN__ROLE_BACKWARD) layer_count(s, row, role);
    }
    for (const kn__row *child = row->first; child; child = child->next) count(s, child);
}

static int by_bytes(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->layer, y->layer);
}

/* --- the table --- */

static void add_layers(kn__text *text, const sums *s, kn__role role) {
    int shown = 0, left = 0;
    for (int i = 0; i < s->n; i++) {
        const entry *e = &s->entries[i];
        if (e->role != role || !e->layer[0]) continue;
        if (shown == LAYERS_SHOWN) {
            left++;
            continue;
        }
        kn__text_printf(text, "%s%s %s", shown ? ", " : "", e->layer,
                        kn__bytes_cell((double)e->bytes).text);
        shown++;
    }
    if (left) kn__text_printf(text, ", %d more", left);
}

static void add_role(kn__text *text, const kn__report *report, int64_t bytes, const char *name) {
    kn__text_right(text, kn__bytes_cell((double)bytes).text, NAME_COLUMN - 9);
    kn__text_right(text, kn__percent_cell((double)bytes, (double)report->memory.live_max).text, 7);
    kn__text_printf(text, "  %s", name);
}

/* With its layers, beside the names or, where that leaves little room, below them. */
static void add_row(kn__text *text, const kn__report *report, const sums *s, kn__role role,
                    int width) {
    kn__text layers = {0};
    bool is_wide = width <= 0 || width >= WIDE;
    add_role(text, report, s->role[role], role_names[role]);
    add_layers(&layers, s, role);
    if (layers.length) {
        kn__text_wrap(text, layers.data, is_wide ? LAYER_COLUMN : NAME_COLUMN,
                      NAME_COLUMN + (int)strlen(role_names[role]), width > 0 ? width : INT_MAX);
    } else {
        kn__text_puts(text, "\n");
    }
    text->failed |= layers.failed;
    kn__text_release(&layers);
}

/* The number of a note "batch=128" of the run; 0: none. */
static int64_t batch_of(const kn__report *report) {
    const char *at = report->run.notes ? strstr(report->run.notes, "batch=") : NULL;
    return at && (at == report->run.notes || at[-1] == ' ') ? strtoll(at + 6, NULL, 10) : 0;
}

/* All but the weights, their gradients, the optimiser, and what has no scope. */
static double growing_of(const sums *s) {
    double bytes = 0;
    for (int r = 0; r < KN__ROLES; r++)
        if (grows((kn__role)r)) bytes += (double)s->role[r];
    return bytes;
}

/* Reserved and not live in the pool that holds most, without the unused part of one segment: the
 * pool reserves less where a limit leaves no room for a whole one. */
static double idle_of(const kn__report *report) {
    const kn__pool_use *most = NULL;
    for (int i = 0; i < report->memory.n_pools; i++) {
        const kn__pool_use *use = &report->memory.pools[i];
        if (!use->is_heap && (!most || use->live_max > most->live_max)) most = use;
    }
    double idle = most ? (double)most->reserved_max - (double)most->live_max - SEGMENT_BYTES : 0;
    return idle > 0 ? idle : 0;
}

/* The batch for a limit, rounded down to two digits. Free memory in pieces that are too small is
 * no use: about as much as the largest block, or what the profile shows, and a sixth of all. */
static int64_t fit_of(const kn__report *report, const sums *s, uint64_t limit, int64_t batch) {
    double grown = growing_of(s), fixed = (double)report->memory.live_max - grown;
    double idle = idle_of(report), unused = idle > s->largest ? idle : s->largest;
    double room = ((double)limit * 5 / 6 - fixed) / ((grown + unused) / (double)batch);
    if (room > 0x1p62) room = 0x1p62;
    int64_t fits = room < 0 ? 0 : (int64_t)room, unit = 1;
    while (fits / unit >= 100) unit *= 10;
    return fits / unit * unit;
}

static void add_fit(kn__text *text, const kn__report *report, const sums *s, uint64_t limit,
                    int width) {
    kn__text lines = {0};
    int64_t batch = batch_of(report);
    double grown = growing_of(s), fixed = (double)report->memory.live_max - grown;
    if (batch <= 0 || grown <= 0) return;
    kn__text_printf(&lines, " a batch of %" PRId64 ": %s a sample, %s that don't grow with it\n",
                    batch, kn__bytes_text(grown / (double)batch).text, kn__bytes_text(fixed).text);
    if (limit) {
        kn__text_printf(&lines, " in %s a batch of about %" PRId64 " would fit\n",
                        kn__bytes_text((double)limit).text, fit_of(report, s, limit, batch));
    }
    kn__text_wrapped(text, &lines, width);
}

const char *kn__fit_lacks(const kn__report *report) {
    sums s = {.entries = calloc(ENTRIES_MAX, sizeof *s.entries)};
    if (batch_of(report) > 0 && s.entries) count(&s, &report->root);
    bool trains = s.role[KN__ROLE_WEIGHTS] > 0 && growing_of(&s) > 0;
    free(s.entries);
    if (batch_of(report) <= 0) return "batch size";
    return trains ? NULL : "memory of a training";
}

void kn__roles_add(kn__text *text, const kn__report *report, uint64_t limit, int width) {
    sums s = {.entries = calloc(ENTRIES_MAX, sizeof *s.entries)};
    if (!s.entries) {
        text->failed = true;
        return;
    }
    count(&s, &report->root);
    bool trains = s.role[KN__ROLE_WEIGHTS] > 0;
    if (trains) {
        qsort(s.entries, (size_t)s.n, sizeof *s.entries, by_bytes);
        kn__text_puts(text, "\n live then, by role and layer\n");
        int64_t left = report->memory.live_max;
        for (int r = 0; r < KN__ROLES; r++) {
            if (!s.role[r]) continue;
            add_row(text, report, &s, (kn__role)r, width);
            left -= s.role[r];
        }
        if (left > 0) {
            add_role(text, report, left, "no scope");
            kn__text_puts(text, "\n");
        }
        add_fit(text, report, &s, limit, width);
    }
    free(s.entries);
}
