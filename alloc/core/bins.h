/* Bins: a stream's free blocks by size, 16 bins per doubling.
 *
 * The last freed comes first, which is likely in the cache and, on the traces that were tried,
 * leaves less fragmentation than the lowest address. A request looks at a few blocks of its own
 * bin, which may be too small, then takes the first of the next bin that has any. They know blocks
 * alone: neither pools nor locks. */
#ifndef KN_ALLOC_BINS_H
#define KN_ALLOC_BINS_H

#include "core/block.h"

enum {
    KN__BINS = 512,
    KN__BIN_PROBE = 4 /* blocks of a bin that are looked at */
};

/* Hot: all but the middle of `head`. Made by kn__bins_init. */
typedef struct kn__bins {
    /* Bins that are not empty; a bit for each of them, and one behind all, where a search ends. */
    uint32_t n_used;
    uint64_t words[KN__BINS / 64 + 1];
    /* The last freed first; behind all bins: none. */
    kn__block *head[KN__BINS + 1];
} kn__bins;

static inline unsigned kn__bin_of(size_t size) {
    size_t n = size / KN__BLOCK_GRAIN;
    unsigned shift = 59u - (unsigned)__builtin_clzll(n | 16);
    return (shift << 4) + (unsigned)(n >> shift);
}

/* The bins are zero. */
static inline void kn__bins_init(kn__bins *bins) { bins->words[KN__BINS / 64] = 1; }

static inline void kn__bins_insert(kn__bins *bins, kn__block *block) {
    unsigned bin = kn__bin_of(block->size);
    kn__block *next = bins->head[bin];
    KN_ASSERT(block->state == KN__FREE && block != next);
    block->prev = NULL;
    block->next = next;
    bins->head[bin] = block;
    if (next) {
        next->prev = block;
        return;
    }
    bins->words[bin / 64] |= 1ull << bin % 64;
    bins->n_used++;
}

static inline void kn__bins_remove(kn__bins *bins, kn__block *block) {
    kn__block *next = block->next, *prev = block->prev;
    if (next) next->prev = prev;
    if (prev) {
        prev->next = next;
        return;
    }
    unsigned bin = kn__bin_of(block->size);
    KN_ASSERT(bins->head[bin] == block);
    bins->head[bin] = next;
    if (next) return;
    bins->words[bin / 64] &= ~(1ull << bin % 64);
    bins->n_used--;
}

/* The first bin from `bin` on that is not empty; KN__BINS: none. */
static inline unsigned kn__bins_next(const kn__bins *bins, unsigned bin) {
    unsigned i = bin / 64;
    uint64_t word = bins->words[i] & ~0ull << bin % 64;
    while (!word) word = bins->words[++i];
    return i * 64 + (unsigned)__builtin_ctzll(word);
}

/* The best of the first blocks of a bin. */
static inline kn__block *kn__bin_probe(const kn__bins *bins, unsigned bin, size_t size,
                                       size_t align) {
    kn__block *best = NULL, *block = bins->head[bin];
    size_t best_size = SIZE_MAX;
    for (int i = 0; i < KN__BIN_PROBE && block; i++, block = block->next) {
        bool fits =
            align > KN__BLOCK_GRAIN ? kn__block_fits(block, size, align) : block->size >= size;
        if (block->size >= best_size || !fits) continue;
        best = block;
        best_size = block->size;
        if (best_size == size) break;
    }
    return best;
}

/* Good fit; NULL: none of those that were looked at fits. */
static inline kn__block *kn__bins_find(const kn__bins *bins, size_t size, size_t align) {
    unsigned bin = kn__bin_of(size),
             sure = align > KN__BLOCK_GRAIN ? kn__bin_of(size + align) + 1 : bin + 1;
    if (sure > KN__BINS) sure = KN__BINS;
    for (; (bin = kn__bins_next(bins, bin)) < sure; bin++) {
        kn__block *block = kn__bin_probe(bins, bin, size, align);
        if (block) return block;
    }
    return bins->head[bin];
}

/* One step of a walk over free blocks; true: far enough. */
typedef bool (*kn__block_fn)(void *ctx, kn__block *block);
/* The smallest first, from those of least_bytes on, about: a bin's blocks are of about one size. fn
 * may take its block out. Returns whether fn did. */
bool kn__bins_visit(const kn__bins *bins, size_t least_bytes, kn__block_fn fn, void *ctx);
/* The largest first. fn leaves the bins as they are. */
bool kn__bins_visit_down(const kn__bins *bins, kn__block_fn fn, void *ctx);
uint64_t kn__bins_bytes(const kn__bins *bins);

#endif
