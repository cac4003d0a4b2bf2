#include "place.h"

#include <stdlib.h>
#include <string.h>

#include "mix.h"

typedef struct placer {
    const kn__lifetime *spans;
    uint32_t *order;   /* in which spans are placed */
    uint32_t *placed;  /* by offset */
    uint64_t *offsets; /* by span */
    uint32_t *best;    /* the order that gave the least so far */
    size_t n, n_placed;
    bool smallest; /* the smallest gap that fits, not the lowest */
    uint64_t seed;
} placer;

typedef int (*compare_fn)(const void *a, const void *b, void *ctx);

static int by_number(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static uint32_t life(const kn__lifetime *s) { return s->end - s->begin; }

/* Ties: the earlier one first, so that the result depends on the spans alone. */
static int by_size(const void *a, const void *b, void *ctx) {
    const placer *p = ctx;
    const kn__lifetime *x = &p->spans[*(const uint32_t *)a], *y = &p->spans[*(const uint32_t *)b];
    int c = by_number(y->size, x->size);
    return c ? c : by_number(x->begin, y->begin);
}

static int by_life(const void *a, const void *b, void *ctx) {
    const placer *p = ctx;
    const kn__lifetime *x = &p->spans[*(const uint32_t *)a], *y = &p->spans[*(const uint32_t *)b];
    int c = by_number(life(y), life(x));
    return c ? c : by_size(a, b, ctx);
}

static int by_area(const void *a, const void *b, void *ctx) {
    const placer *p = ctx;
    const kn__lifetime *x = &p->spans[*(const uint32_t *)a], *y = &p->spans[*(const uint32_t *)b];
    double u = (double)x->size * life(x), v = (double)y->size * life(y);
    return u != v ? (u < v ? 1 : -1) : by_size(a, b, ctx);
}

static int by_begin(const void *a, const void *b, void *ctx) {
    const placer *p = ctx;
    const kn__lifetime *x = &p->spans[*(const uint32_t *)a], *y = &p->spans[*(const uint32_t *)b];
    int c = by_number(x->begin, y->begin);
    return c ? c : by_size(a, b, ctx);
}

static bool overlap(const kn__lifetime *a, const kn__lifetime *b) {
    return a->begin < b->end && b->begin < a->end;
}

/* The lowest gap among the placed spans that live at the same time, or the smallest one. */
static uint64_t find_gap(const placer *p, const kn__lifetime *span) {
    uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (size_t i = 0; i < p->n_placed; i++) {
        uint32_t k = p->placed[i];
        const kn__lifetime *other = &p->spans[k];
        if (!overlap(span, other)) continue;
        uint64_t offset = p->offsets[k];
        uint64_t gap = offset > at ? offset - at : 0;
        if (gap >= span->size && gap < best_gap) {
            best = at;
            best_gap = gap;
            if (!p->smallest) break;
        }
        if (offset + other->size > at) at = offset + other->size;
    }
    return best == UINT64_MAX ? at : best;
}

static void insert(placer *p, uint32_t k, uint64_t offset) {
    size_t low = 0, high = p->n_placed;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (p->offsets[p->placed[middle]] <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(&p->placed[low + 1], &p->placed[low], (p->n_placed - low) * sizeof *p->placed);
    p->placed[low] = k;
    p->offsets[k] = offset;
    p->n_placed++;
}

/* Places the spans in p->order. Returns the end of the highest one; UINT64_MAX as soon as that is
 * more than `most`. */
static uint64_t place_all(placer *p, uint64_t most) {
    uint64_t total = 0;
    p->n_placed = 0;
    for (size_t i = 0; i < p->n; i++) {
        const kn__lifetime *span = &p->spans[p->order[i]];
        uint64_t offset = find_gap(p, span);
        if (offset + span->size > total) total = offset + span->size;
        if (total > most) return UINT64_MAX;
        insert(p, p->order[i], offset);
    }
    return total;
}

static void keep(placer *p, kn__lifetime *spans) {
    memcpy(p->best, p->order, p->n * sizeof *p->best);
    for (size_t k = 0; k < p->n; k++) spans[k].offset = p->offsets[k];
}

static const struct {
    const char *name;
    compare_fn compare;
    bool smallest;
} ORDERS[] = {
    {"size", by_size, false},
    {"lifetime", by_life, false},
    {"start", by_begin, false},
    {"size × lifetime", by_area, false},
    {"size, best fit", by_size, true},
    {"lifetime, best fit", by_life, true},
    {"start, best fit", by_begin, true},
};

/* Moves one of the highest spans to an earlier place in the order, or any span to any place. */
static void perturb(placer *p, const kn__lifetime *spans, uint64_t total) {
    size_t n = p->n, from = kn__splitmix(&p->seed) % n, to = kn__splitmix(&p->seed) % n;
    memcpy(p->order, p->best, n * sizeof *p->order);
    if (kn__splitmix(&p->seed) % 4) {
        for (size_t i = 0;
             i < n && spans[p->order[from]].offset + spans[p->order[from]].size < total; i++) {
            from = (from + 1) % n;
        }
        to = from ? kn__splitmix(&p->seed) % from : 0;
    }
    uint32_t moved = p->order[from];
    if (to < from) {
        memmove(&p->order[to + 1], &p->order[to], (from - to) * sizeof *p->order);
    } else {
        memmove(&p->order[from], &p->order[from + 1], (to - from) * sizeof *p->order);
    }
    p->order[to] = moved;
}

/* Looks for a better order near the best one, for as long as WORK comparisons of two spans take. A
 * result that is as good is accepted too: the search leaves plateaus. */
static void improve(placer *p, uint64_t *total, uint64_t peak, const char **order,
                    kn__lifetime *spans) {
    const uint64_t WORK = (uint64_t)1 << 28;
    uint64_t n_tries = WORK / ((uint64_t)p->n * p->n + 1);
    for (uint64_t i = 0; i<n_tries && * total> peak; i++) {
        perturb(p, spans, *total);
        uint64_t end = place_all(p, *total);
        if (end == UINT64_MAX) continue;
        if (end < *total) *order = "search";
        *total = end;
        keep(p, spans);
    }
}

static void place(placer *p, uint64_t *total, uint64_t peak, const char **order,
                  kn__lifetime *spans) {
    bool smallest = false;
    for (size_t i = 0; i<sizeof ORDERS / sizeof *ORDERS && * total> peak; i++) {
        for (uint32_t k = 0; k < p->n; k++) p->order[k] = k;
        qsort_r(p->order, p->n, sizeof *p->order, ORDERS[i].compare, p);
        p->smallest = ORDERS[i].smallest;
        uint64_t end = place_all(p, *total - 1);
        if (end == UINT64_MAX) continue;
        *total = end;
        *order = ORDERS[i].name;
        smallest = p->smallest;
        keep(p, spans);
    }
    p->smallest = smallest;
    improve(p, total, peak, order, spans);
}

bool kn__place_spans(uint64_t *total, const char **order, kn__lifetime *spans, size_t n) {
    uint64_t peak = 0;
    placer p = {.spans = spans, .n = n, .seed = n};
    uint32_t *words = malloc((3 * n + 1) * sizeof *words);
    p.offsets = malloc((n + 1) * sizeof *p.offsets);
    bool done = words && p.offsets && kn__place_peak(&peak, spans, n);
    *total = n ? UINT64_MAX : 0;
    *order = "";
    if (done && n) {
        p.order = words;
        p.placed = words + n;
        p.best = words + 2 * n;
        place(&p, total, peak, order, spans);
    }
    free(words);
    free(p.offsets);
    return done;
}

typedef struct change {
    uint32_t at;
    int64_t bytes;
} change;

/* What ends comes before what begins at the same time. */
static int by_time(const void *a, const void *b) {
    const change *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

bool kn__place_peak(uint64_t *peak, const kn__lifetime *spans, size_t n) {
    change *changes = malloc((2 * n + 1) * sizeof *changes);
    if (!changes) return false;
    for (size_t i = 0; i < n; i++) {
        changes[2 * i] = (change){spans[i].begin, (int64_t)spans[i].size};
        changes[2 * i + 1] = (change){spans[i].end, -(int64_t)spans[i].size};
    }
    qsort(changes, 2 * n, sizeof *changes, by_time);
    int64_t live = 0, most = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        live += changes[i].bytes;
        if (live > most) most = live;
    }
    free(changes);
    *peak = (uint64_t)most;
    return true;
}
