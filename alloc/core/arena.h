/* The arena: takes blocks from the bins and puts them back, splits and merges. All under the pool's
 * lock. What each allocation of a large block needs is inline, so that it is compiled as one. */
#ifndef KN_ALLOC_ARENA_H
#define KN_ALLOC_ARENA_H

#include "core/epoch.h"

/* A block that is put back merges with an idle neighbour only up to this size, in bytes: the result
 * belongs to one stream, and a large idle block should stay usable by all. */
#define KN__ADOPT_MAX ((size_t)64 << 20)

/* Whether a free neighbour joins a block that becomes free for `stream`. */
static inline bool kn__arena_joins(const kn_pool *pool, const kn__stream *stream,
                                   const kn__block *neighbour) {
    if (!neighbour || neighbour->state != KN__FREE) return false;
    if (neighbour->stream == stream) return true;
    if (neighbour->stream != pool->idle) return false;
    return pool->n_streams <= 1 || neighbour->size <= KN__ADOPT_MAX;
}

/* Takes a free neighbour out of its bin, for the stream. */
static inline void kn__arena_join(kn__stream *stream, kn__block *neighbour) {
    kn__bins_remove(&neighbour->stream->bins, neighbour);
    if (neighbour->stream == stream) return;
    kn__block_set(neighbour, KN__FREE, 0);
    kn__block_assign(neighbour, stream);
}

/* The free block, in no bin, merges with neighbours of its epoch alone. */
kn__block *kn__arena_put_apart(kn_pool *pool, kn__block *block);

/* Puts a block that is in no bin back: free for `stream` in its epoch `epoch`, merged with its
 * neighbours. Loops: a block of the idle stream may have one of the stream's own as its next
 * neighbour. */
static inline kn__block *kn__arena_put(kn_pool *pool, kn__block *block, kn__stream *stream,
                                       uint64_t epoch) {
    KN_ASSERT(block->size && epoch <= stream->epoch);
    KN_ASSERT_SLOW(!block->left || block->left->right == block);
    KN_ASSERT_SLOW(!block->right || block->right->left == block);
    pool->n_changes++;
    if (epoch == stream->epoch) stream->open_bytes += block->size;
    if (block->stream != stream) kn__block_assign(block, stream);
    kn__block_set(block, KN__FREE, epoch);
    if (KN__UNLIKELY(pool->apart)) return kn__arena_put_apart(pool, block);
    while (kn__arena_joins(pool, stream, block->right)) {
        kn__arena_join(stream, block->right);
        kn__block_absorb_right(&pool->records, block);
    }
    while (kn__arena_joins(pool, stream, block->left)) {
        kn__arena_join(stream, block->left);
        block = block->left;
        kn__block_absorb_right(&pool->records, block);
    }
    kn__bins_insert(&stream->bins, block);
    return block;
}

/* The same for its home stream, in its epoch `epoch`, or for all if that is over. */
static inline void kn__arena_put_home(kn_pool *pool, kn__block *block, uint64_t epoch) {
    kn__stream *home = block->stream;
    if (home->retired && kn__epoch_finished(pool, home, epoch)) {
        kn__arena_put(pool, block, pool->idle, 0);
    } else {
        kn__arena_put(pool, block, home, epoch);
    }
}

/* Cuts the requested bytes out of a free block that `stream` may use, live from now on. NULL, with
 * nothing changed: no host memory. */
static inline kn__block *kn__arena_take(kn_pool *pool, kn__block *block, kn__stream *stream,
                                        size_t size, size_t align) {
    KN_ASSERT(block->state == KN__FREE && kn__block_fits(block, size, align));
    size_t skip = kn__block_skip(block, align), rest = block->size - skip - size;
    kn__bins *bins = &block->stream->bins;
    if ((skip || rest) && !kn__records_room(&pool->records)) return NULL;
    kn__bins_remove(bins, block);
    if (skip) {
        kn__block *right = kn__block_split(&pool->records, block, skip);
        kn__bins_insert(bins, block);
        block = right;
    }
    if (rest) kn__bins_insert(bins, kn__block_split(&pool->records, block, size));
    if (block->stream != stream) kn__block_assign(block, stream);
    block->waiter = NULL;
    kn__block_set(block, KN__LIVE, 0);
    return block;
}

/* The better fit of a stream's own block and an idle one, either of which may be NULL. */
static inline kn__block *kn__arena_better(kn__block *own, kn__block *idle) {
    if (!own || !idle) return own ? own : idle;
    unsigned own_bin = kn__bin_of(own->size), idle_bin = kn__bin_of(idle->size);
    if (own_bin != idle_bin) return own_bin < idle_bin ? own : idle;
    return own->ptr < idle->ptr ? own : idle;
}

/* Good fit among what the stream may use with no wait; NULL: none. */
static inline kn__block *kn__arena_find(kn_pool *pool, kn__stream *stream, size_t size,
                                        size_t align) {
    kn__block *own = kn__bins_find(&stream->bins, size, align);
    if (KN__LIKELY(!pool->idle->bins.n_used)) return own;
    return kn__arena_better(own, kn__bins_find(&pool->idle->bins, size, align));
}

/* The free block, usable by `by`, becomes its own and merges with its neighbours. */
void kn__arena_adopt(kn_pool *pool, kn__block *block, kn__stream *by);
/* Moves the stream's free blocks of epochs up to `last` to another stream's epoch. */
void kn__arena_move(kn_pool *pool, kn__stream *from, uint64_t last, kn__stream *to, uint64_t epoch);
/* Merges neighbouring free blocks of the stream that were kept apart; of all streams if it is NULL.
 */
void kn__arena_merge(kn_pool *pool, const kn__stream *stream);
/* Calls fn for every block in address order, until it returns true; fn may not change the list. */
void kn__arena_visit(kn_pool *pool, kn__block_fn fn, void *ctx);

#endif
