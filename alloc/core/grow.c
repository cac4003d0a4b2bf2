#include "core/grow.h"

kn_status kn__grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    kn__device_free_read(pool);
    return pool->range.base ? kn__range_grow(pool, stream, size, align)
                            : kn__segment_grow(pool, stream, size, align);
}

/* Of a paused pool only blocks of a tag that was resumed have memory, so that handles in free
 * blocks are no part of its pause; segments may be. */
void kn__shrink(kn_pool *pool, size_t keep_bytes) {
    if (pool->half_paused) return;
    if (pool->range.base) kn__range_shrink(pool, keep_bytes);
    if (!pool->paused) kn__segments_shrink(pool, keep_bytes);
}

void kn__memory_release(kn_pool *pool) {
    KN_ASSERT(!pool->caches);
    bool alive = !pool->driver->alive || pool->driver->alive(pool->impl);
    kn__range_destroy(pool, alive);
    if (alive) kn__segments_destroy(pool);
}
