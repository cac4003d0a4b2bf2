#include "core/segment.h"

#include "core/arena.h"
#include "core/poison.h"
#include "core/reserve.h"

static const size_t SEGMENT_MIN = (size_t)32 << 20, SEGMENT_MAX = (size_t)512 << 20;

static kn_status segment_create(kn_pool *pool, kn__stream *stream, size_t bytes) {
    if (bytes > kn__pool_headroom(pool)) return kn__over_limit(pool, bytes);
    kn__segment *segment = kn__meta_alloc(&pool->meta, sizeof *segment);
    kn__block *block = segment ? kn__block_create(&pool->records, pool->idle, NULL, bytes) : NULL;
    void *ptr = NULL;
    kn_status status = KN_ERR_OOM;
    if (!block) {
        status = KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
    } else {
        status = pool->driver->segment_alloc(pool->impl, &ptr, bytes);
    }
    if (status == KN_OK && (status = kn__pagemap_cover(&pool->pages, ptr, bytes, pool->name)) < 0) {
        pool->driver->segment_free(pool->impl, ptr, bytes);
    }
    if (status < 0) {
        if (block) kn__block_destroy(&pool->records, block);
        if (segment) kn__meta_free(&pool->meta, segment, sizeof *segment);
        return status;
    }
    KN_ASSERT(block && segment);
    block->ptr = ptr;
    if (pool->poison) kn__poison_segment(pool, ptr, bytes);
    *segment = (kn__segment){.ptr = ptr, .size = bytes, .first = block};
    KN__LIST_ADD(&pool->segments, segment);
    pool->n_device_allocs++;
    kn__reserve_add(pool, (int64_t)bytes);
    kn__arena_put(pool, block, stream, 0);
    return KN_OK;
}

static void segment_destroy(kn_pool *pool, kn__segment *segment) {
    if (pool->poison) kn__poison_segment_gone(pool, segment->ptr, segment->size);
    pool->driver->segment_free(pool->impl, segment->ptr, segment->size);
    kn__reserve_add(pool, -(int64_t)segment->size);
    KN__LIST_REMOVE(&pool->segments, segment);
    kn__meta_free(&pool->meta, segment, sizeof *segment);
}

kn_status kn__segment_grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    size_t exact = kn__round_up(size + (align > KN__BLOCK_GRAIN ? align : 0), KN__UNIT);
    size_t wide = kn__round_up(pool->reserved / 8, KN__UNIT);
    if (wide < SEGMENT_MIN) wide = SEGMENT_MIN;
    if (wide > SEGMENT_MAX) wide = SEGMENT_MAX;
    if (wide < exact) wide = exact;
    if (wide > exact && wide <= kn__pool_headroom(pool) &&
        segment_create(pool, stream, wide) == KN_OK) {
        return KN_OK;
    }
    return segment_create(pool, stream, exact);
}

void kn__segments_shrink(kn_pool *pool, size_t keep_bytes) {
    for (kn__segment *segment = pool->segments, *next; segment; segment = next) {
        next = segment->next;
        kn__block *block = segment->first;
        if (pool->reserved <= keep_bytes) return;
        if (block->right || block->state != KN__FREE) continue;
        if (!kn__epoch_finished(pool, block->stream, block->epoch)) continue;
        kn__bins_remove(&block->stream->bins, block);
        kn__block_destroy(&pool->records, block);
        segment_destroy(pool, segment);
    }
}

void kn__segments_destroy(kn_pool *pool) {
    while (pool->segments) segment_destroy(pool, pool->segments);
}
