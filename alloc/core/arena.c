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
