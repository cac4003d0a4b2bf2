#include "core/arena.h"

void kn__arena_adopt(kn_pool *pool, kn__block *block, kn__stream *by) {
    KN_ASSERT(block->state == KN__FREE && kn__epoch_usable(pool, by, block));
    uint64_t epoch = by->epoch; /* by's next event comes after its wait for the block's stream */
    if (block->stream == by) {
        epoch = block->epoch;
    } else if (kn__epoch_finished(pool, block->stream, block->epoch)) {
        epoch = 0;
    }
    kn__bins_remove(&block->stream->bins, block);
    kn__arena_put(pool, block, by, epoch);
}

void kn__arena_move(kn_pool *pool, kn__stream *from, uint64_t last, kn__stream *to,
                    uint64_t epoch) {
    for (unsigned bin = 0; bin < KN__BINS && from->bins.n_used; bin++) {
        for (kn__block *block = from->bins.head[bin], *next; block; block = next) {
            next = block->next;
            if (block->epoch > last) continue;
            kn__bins_remove(&from->bins, block);
            kn__arena_put(pool, block, to, epoch);
        }
    }
}

static bool is_like(const kn__block *neighbour, const kn__block *block) {
    return neighbour && neighbour->state == KN__FREE && neighbour->stream == block->stream &&
           neighbour->epoch == block->epoch;
}

kn__block *kn__arena_put_apart(kn_pool *pool, kn__block *block) {
    kn__bins *bins = &block->stream->bins;
    KN_ASSERT(block->state == KN__FREE);
    while (is_like(block->right, block)) {
        kn__bins_remove(bins, block->right);
        kn__block_absorb_right(&pool->records, block);
    }
    while (is_like(block->left, block)) {
        kn__bins_remove(bins, block->left);
        block = block->left;
        kn__block_absorb_right(&pool->records, block);
    }
    kn__bins_insert(bins, block);
    return block;
}

/* The free block and its neighbours, in the youngest of their epochs. */
static kn__block *merge_one(kn_pool *pool, kn__block *block) {
    kn__stream *stream = block->stream;
    uint64_t epoch = block->epoch;
    kn__bins_remove(&stream->bins, block);
    while (kn__arena_joins(pool, stream, block->right)) {
        if (block->right->epoch > epoch) epoch = block->right->epoch;
        kn__arena_join(stream, block->right);
        kn__block_absorb_right(&pool->records, block);
    }
    while (kn__arena_joins(pool, stream, block->left)) {
        if (block->left->epoch > epoch) epoch = block->left->epoch;
        kn__arena_join(stream, block->left);
        block = block->left;
        kn__block_absorb_right(&pool->records, block);
    }
    kn__block_set(block, KN__FREE, epoch);
    kn__bins_insert(&stream->bins, block);
    return block;
}

static void merge_from(kn_pool *pool, kn__block *block, const kn__stream *stream) {
    for (; block; block = block->right) {
        if (block->state == KN__FREE && (!stream || block->stream == stream)) {
            block = merge_one(pool, block);
        }
    }
}

void kn__arena_merge(kn_pool *pool, const kn__stream *stream) {
    pool->n_changes++;
    merge_from(pool, pool->range.first, stream);
    for (kn__segment *segment = pool->segments; segment; segment = segment->next) {
        merge_from(pool, segment->first, stream);
    }
}

void kn__arena_visit(kn_pool *pool, kn__block_fn fn, void *ctx) {
    for (kn__block *block = pool->range.first; block; block = block->right) {
        if (fn(ctx, block)) return;
    }
    for (kn__segment *segment = pool->segments; segment; segment = segment->next) {
        for (kn__block *block = segment->first; block; block = block->right) {
            if (fn(ctx, block)) return;
        }
    }
}
