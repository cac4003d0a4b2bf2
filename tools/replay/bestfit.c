#include "bestfit.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = KN__RUN_NONE, BINS = KN__BESTFIT_BINS };
static const uint64_t GRAIN = 512, UNIT = (uint64_t)2 << 20;

kn_status kn__bestfit_init(kn__bestfit *b, uint32_t n_lists) {
    *b = (kn__bestfit){.n_lists = n_lists};
    b->bins = calloc(n_lists, BINS * sizeof *b->bins);
    b->full = calloc(n_lists, BINS / 64 * sizeof *b->full);
    if (b->bins && b->full) return KN_OK;
    kn__bestfit_release(b);
    return KN_FAIL(KN_ERR_OOM, "no memory for %u lists of free blocks", n_lists);
}

void kn__bestfit_release(kn__bestfit *b) {
    free(b->runs);
    free(b->bins);
    free(b->full);
    *b = (kn__bestfit){0};
}

void kn__bestfit_reset(kn__bestfit *b, uint64_t bytes_max) {
    memset(b->bins, 0, b->n_lists * BINS * sizeof *b->bins);
    memset(b->full, 0, b->n_lists * BINS / 64 * sizeof *b->full);
    b->bytes_max = bytes_max;
    b->n_runs = 1;
    b->spare = b->last = NONE;
    b->end = 0;
}

/* 16 bins per doubling of the grains. */
static unsigned bin_of(uint64_t size) {
    uint64_t grains = size / GRAIN;
    unsigned e = 63u - (unsigned)__builtin_clzll(grains);
    unsigned bin = e < 4 ? (unsigned)grains : (e - 3) * 16 + (unsigned)(grains >> (e - 4) & 15);
    return bin < BINS ? bin : BINS - 1;
}

static inline void bin_insert(kn__bestfit *b, uint32_t r, uint32_t list) {
    kn__run *x = &b->runs[r];
    unsigned bin = list * BINS + bin_of(x->size);
    uint32_t next = b->bins[bin];
    x->is_free = true;
    x->list = (uint16_t)list;
    x->bin = bin;
    x->prev = NONE;
    x->next = next;
    if (next) b->runs[next].prev = r;
    b->bins[bin] = r;
    b->full[bin / 64] |= 1ull << bin % 64;
}

static inline void bin_remove(kn__bestfit *b, uint32_t r) {
    kn__run *x = &b->runs[r];
    x->is_free = false;
    if (x->next) b->runs[x->next].prev = x->prev;
    if (x->prev) {
        b->runs[x->prev].next = x->next;
    } else {
        b->bins[x->bin] = x->next;
        if (!x->next) b->full[x->bin / 64] &= ~(1ull << x->bin % 64);
    }
}

static uint32_t best_in(const kn__bestfit *b, uint32_t first, uint64_t size) {
    uint32_t best = NONE;
    for (uint32_t r = first; r; r = b->runs[r].next) {
        const kn__run *x = &b->runs[r], *y = &b->runs[best];
        if (x->size < size) continue;
        if (!best || x->size < y->size || (x->size == y->size && x->at < y->at)) best = r;
    }
    return best;
}

static uint32_t find(const kn__bestfit *b, uint32_t list, uint64_t size) {
    unsigned first = list * BINS, end = first + BINS, bin = first + bin_of(size);
    uint32_t best = best_in(b, b->bins[bin], size);
    for (unsigned from = bin + 1; !best && from < end; from = (from / 64 + 1) * 64) {
        uint64_t rest = b->full[from / 64] >> from % 64;
        if (rest) best = best_in(b, b->bins[from + (unsigned)__builtin_ctzll(rest)], size);
    }
    return best;
}

/* A record; NONE when there is no host memory. */
static uint32_t record(kn__bestfit *b) {
    uint32_t r = b->spare;
    if (r) {
        b->spare = b->runs[r].next;
        return r;
    }
    if (b->n_runs >= b->room) {
        uint32_t room = b->room ? 2 * b->room : 1024;
        kn__run *runs = realloc(b->runs, room * sizeof *runs);
        if (!runs) return NONE;
        b->runs = runs;
        b->room = room;
    }
    return b->n_runs++;
}

static kn_status no_host_memory(void) { return KN_FAIL(KN_ERR_OOM, "no host memory"); }

kn_status kn__bestfit_grow(kn__bestfit *b, uint32_t list, uint64_t size) {
    const kn__run *last = b->last ? &b->runs[b->last] : NULL;
    bool join = last && last->is_free && last->list == list;
    uint64_t have = join ? last->size : 0;
    uint64_t bytes = (size - have + UNIT - 1) / UNIT * UNIT;
    if (bytes > b->bytes_max - b->end) {
        return KN_FAIL(KN_ERR_OOM,
                       "%llu bytes asked for, the range has %llu and %llu at its end are free, "
                       "the device has %llu",
                       (unsigned long long)size, (unsigned long long)b->end,
                       (unsigned long long)have, (unsigned long long)b->bytes_max);
    }
    uint32_t r = join ? b->last : record(b);
    if (!r) return no_host_memory();
    if (join) {
        bin_remove(b, r);
        b->runs[r].size += bytes;
    } else {
        b->runs[r] = (kn__run){.at = b->end, .size = bytes, .left = b->last};
        if (b->last) b->runs[b->last].right = r;
        b->last = r;
    }
    bin_insert(b, r, list);
    b->end += bytes;
    return KN_OK;
}

static inline kn_status split(kn__bestfit *b, uint32_t r, uint64_t size, uint32_t list) {
    uint32_t rest = record(b);
    if (!rest) return no_host_memory();
    kn__run *x = &b->runs[r];
    b->runs[rest] =
        (kn__run){.at = x->at + size, .size = x->size - size, .left = r, .right = x->right};
    if (x->right) b->runs[x->right].left = rest;
    if (b->last == r) b->last = rest;
    x->right = rest;
    x->size = size;
    bin_insert(b, rest, list);
    return KN_OK;
}

kn_status kn__bestfit_take(uint32_t *out, kn__bestfit *b, uint32_t list, uint32_t rest,
                           uint64_t size) {
    uint32_t run = *out = find(b, list, size);
    if (!run) return KN_OK;
    bin_remove(b, run);
    return b->runs[run].size == size ? KN_OK : split(b, run, size, rest);
}

static inline void absorb_right(kn__bestfit *b, uint32_t r) {
    uint32_t gone = b->runs[r].right;
    bin_remove(b, gone);
    b->runs[r].size += b->runs[gone].size;
    b->runs[r].right = b->runs[gone].right;
    if (b->runs[gone].right) b->runs[b->runs[gone].right].left = r;
    if (b->last == gone) b->last = r;
    b->runs[gone].next = b->spare;
    b->spare = gone;
}

static bool merges(const kn__bestfit *b, uint32_t r, uint32_t list) {
    return r && b->runs[r].is_free && b->runs[r].list == list;
}

void kn__bestfit_free(kn__bestfit *b, uint32_t run, uint32_t list) {
    uint32_t left = b->runs[run].left, right = b->runs[run].right;
    if (merges(b, right, list)) absorb_right(b, run);
    if (merges(b, left, list)) {
        bin_remove(b, left);
        bin_insert(b, run, list);
        absorb_right(b, left);
        run = left;
    }
    bin_insert(b, run, list);
}
