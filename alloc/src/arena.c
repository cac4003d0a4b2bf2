/* Blocks: good fit, split and coalesce.
 *
 * Free blocks are binned by size, 16 bins per doubling; the last freed comes first, which is likely
 * in the cache and, on the traces that were tried, leaves less fragmentation than the lowest
 * address. A request looks at a few blocks of its own bin, which may be too small, then takes the
 * first of the next bin that has any. */
#include "pool_types.h"

enum { PROBE = 4 }; /* blocks of a bin that are looked at */

/* A free block of another stream's, or of nobody's, joins its neighbour only up to this size: the
 * join is then reusable by one stream alone, and the rest of a big one should stay for all. */
static const size_t ADOPT_MAX = (size_t)64 << 20;

static unsigned bin_of(size_t size) {
    size_t n = size / KN__BLOCK_GRAIN;
    unsigned e = 63u - (unsigned)__builtin_clzll(n | 16), shift = e - 4;
    unsigned bin = n < 32 ? (unsigned)n : (shift << 4) + (unsigned)(n >> shift);
    return bin < KN__BINS ? bin : KN__BINS - 1;
}

/* Bins. */

void kn__bins_insert(kn__bins *bins, kn__block *block) {
    unsigned bin = bin_of(block->size);
    block->prev = NULL;
    block->next = bins->head[bin];
    if (block->next) block->next->prev = block;
    bins->head[bin] = block;
    bins->words[bin / 64] |= 1ull << bin % 64;
    bins->summary |= 1u << bin / 64;
}

void kn__bins_remove(kn__bins *bins, kn__block *block) {
    if (block->next) block->next->prev = block->prev;
    if (block->prev) {
        block->prev->next = block->next;
        return;
    }
    unsigned bin = bin_of(block->size);
    KN_ASSERT(bins->head[bin] == block);
    bins->head[bin] = block->next;
    if (block->next) return;
    bins->words[bin / 64] &= ~(1ull << bin % 64);
    if (!bins->words[bin / 64]) bins->summary &= ~(1u << bin / 64);
}

/* The first bin from `bin` on that is not empty; KN__BINS: none. */
static unsigned next_bin(const kn__bins *bins, unsigned bin) {
    if (bin >= KN__BINS) return KN__BINS;
    uint64_t word = bins->words[bin / 64] >> bin % 64;
    if (word) return bin + (unsigned)__builtin_ctzll(word);
    uint32_t rest = bins->summary & ~((2u << bin / 64) - 1);
    if (!rest) return KN__BINS;
    unsigned i = (unsigned)__builtin_ctz(rest);
    return i * 64 + (unsigned)__builtin_ctzll(bins->words[i]);
}

static size_t aligning(const kn__block *block, size_t align) {
    return (0 - (uintptr_t)block->ptr) & (align - 1);
}

bool kn__block_fits(const kn__block *block, size_t size, size_t align) {
    return block->size >= size && block->size - size >= aligning(block, align);
}

static kn__block *probe_bin(const kn__bins *bins, unsigned bin, size_t size, size_t align) {
    kn__block *best = NULL, *block = bins->head[bin];
    for (int i = 0; i < PROBE && block; i++, block = block->next) {
        if (kn__block_fits(block, size, align) && (!best || block->size < best->size)) best = block;
    }
    return best;
}

kn__block *kn__bins_find(const kn__bins *bins, size_t size, size_t align) {
    unsigned own = bin_of(size), sure = own + 1;
    if (align > KN__BLOCK_GRAIN) sure = bin_of(size + align) + 1;
    if (sure > KN__BINS - 1) sure = KN__BINS - 1; /* the last bin has no upper bound */
    for (unsigned bin = next_bin(bins, own); bin < KN__BINS; bin = next_bin(bins, bin + 1)) {
        if (bin >= sure && bin < KN__BINS - 1) return bins->head[bin];
        kn__block *block = probe_bin(bins, bin, size, align);
        if (block) return block;
    }
    return NULL;
}

kn__block *kn__bins_find_usable(const kn_pool *pool, const kn__stream *by, const kn__bins *bins,
                                size_t size, size_t align) {
    for (unsigned bin = next_bin(bins, bin_of(size)); bin < KN__BINS;
         bin = next_bin(bins, bin + 1)) {
        kn__block *block = bins->head[bin];
        for (int i = 0; i < PROBE && block; i++, block = block->next) {
            if (kn__block_fits(block, size, align) && kn__epoch_usable(pool, by, block)) {
                return block;
            }
        }
    }
    return NULL;
}

/* Blocks. */

void kn__block_assign(kn__block *block, kn__stream *stream) {
    block->stream->refs--;
    block->stream = stream;
    stream->refs++;
}

kn__block *kn__block_new(kn_pool *pool, kn__stream *stream, char *ptr, size_t size) {
    kn__block *block = kn__meta_alloc(&pool->meta, sizeof *block);
    if (!block) return NULL;
    block->ptr = ptr;
    block->size = size;
    block->stream = stream;
    stream->refs++;
    return block;
}

void kn__block_drop(kn_pool *pool, kn__block *block) {
    block->stream->refs--;
    kn__meta_free(&pool->meta, block, sizeof *block);
}

kn__block *kn__block_split(kn_pool *pool, kn__block *block, size_t size) {
    kn__block *right = kn__block_new(pool, block->stream, block->ptr + size, block->size - size);
    if (!right) return NULL;
    block->size = size;
    right->word = block->word;
    right->left = block;
    right->right = block->right;
    if (right->right) right->right->left = right;
    block->right = right;
    return right;
}

void kn__block_absorb_right(kn_pool *pool, kn__block *block) {
    kn__block *right = block->right;
    KN_ASSERT(right && block->ptr + block->size == right->ptr);
    block->size += right->size;
    if (right->epoch > block->epoch) kn__block_set(block, block->state, right->epoch);
    block->right = right->right;
    if (block->right) block->right->left = block;
    kn__block_drop(pool, right);
}

/* Whether a free neighbour joins a block that becomes free for `stream`. */
static bool joins(const kn_pool *pool, const kn__stream *stream, const kn__block *neighbour) {
    if (!neighbour || neighbour->state != KN__FREE) return false;
    if (neighbour->stream == stream) return true;
    if (neighbour->stream != pool->idle) return false;
    return pool->n_streams <= 1 || neighbour->size <= ADOPT_MAX;
}

/* More than once: behind a joined block of nobody's there may be one of the stream's own. */
static void join_right(kn_pool *pool, kn__block *block, kn__stream *stream) {
    for (kn__block *right; right = block->right, joins(pool, stream, right);) {
        kn__bins_remove(&right->stream->bins, right);
        if (right->stream != stream) kn__block_set(right, KN__FREE, 0);
        kn__block_absorb_right(pool, block);
    }
}

static kn__block *join_left(kn_pool *pool, kn__block *block, kn__stream *stream) {
    for (kn__block *left; left = block->left, joins(pool, stream, left); block = left) {
        kn__bins_remove(&left->stream->bins, left);
        if (left->stream != stream) {
            kn__block_set(left, KN__FREE, 0);
            kn__block_assign(left, stream);
        }
        kn__block_absorb_right(pool, left);
    }
    return block;
}

kn__block *kn__block_free(kn_pool *pool, kn__block *block, kn__stream *stream, uint64_t epoch) {
    kn__block_set(block, KN__FREE, epoch);
    if (block->stream != stream) kn__block_assign(block, stream);
    if (epoch == stream->epoch) stream->dirty = true;
    join_right(pool, block, stream);
    block = join_left(pool, block, stream);
    kn__bins_insert(&stream->bins, block);
    return block;
}

void kn__block_release(kn_pool *pool, kn__block *block) {
    kn__stream *home = block->stream;
    uint64_t epoch = kn__stream_epoch(home);
    if (home->retired && kn__epoch_finished(pool, home, epoch)) {
        kn__block_free(pool, block, pool->idle, 0);
    } else {
        kn__block_free(pool, block, home, epoch);
    }
}

kn__block *kn__block_take(kn_pool *pool, kn__block *block, kn__stream *stream, size_t size,
                          size_t align) {
    KN_ASSERT(block->state == KN__FREE && kn__block_fits(block, size, align));
    kn__stream *from = block->stream;
    kn__bins_remove(&from->bins, block);
    size_t skip = aligning(block, align);
    if (skip) {
        kn__block *right = kn__block_split(pool, block, skip);
        kn__bins_insert(&from->bins, block);
        if (!right) return NULL;
        block = right;
    }
    if (block->size - size >= KN__BLOCK_GRAIN) {
        kn__block *rest = kn__block_split(pool, block, size);
        if (!rest) {
            kn__bins_insert(&from->bins, block);
            return NULL;
        }
        kn__bins_insert(&from->bins, rest);
    }
    kn__block_set(block, KN__LIVE, 0);
    block->waiter = NULL;
    if (from != stream) kn__block_assign(block, stream);
    return block;
}

kn__block *kn__arena_find(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    kn__block *own = kn__bins_find(&stream->bins, size, align);
    kn__block *idle =
        pool->idle->bins.summary ? kn__bins_find(&pool->idle->bins, size, align) : NULL;
    if (!own || !idle) return own ? own : idle;
    unsigned own_bin = bin_of(own->size), idle_bin = bin_of(idle->size);
    if (own_bin != idle_bin) return own_bin < idle_bin ? own : idle;
    return own->ptr < idle->ptr ? own : idle;
}

void kn__blocks_visit(kn_pool *pool, bool (*fn)(void *ctx, kn__block *block), void *ctx) {
    for (kn__block *block = pool->range.first; block; block = block->right) {
        if (!fn(ctx, block)) return;
    }
    for (kn__segment *segment = pool->segments; segment; segment = segment->next) {
        for (kn__block *block = segment->first; block; block = block->right) {
            if (!fn(ctx, block)) return;
        }
    }
}
