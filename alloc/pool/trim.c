#include "pool/trim.h"

#include "core/grow.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/registry.h"
#include "pool/counts.h"

void kn__pool_sync(kn_pool *pool) {
    kn__caches_flush(pool);
    kn__epochs_sync(pool);
}

/* Finished memory first: what caches return merges with it, and finishes later. */
void kn__trim(kn_pool *pool, size_t keep_bytes) {
    kn__epochs_settle(pool);
    kn__shrink(pool, keep_bytes);
    if (pool->reserved <= keep_bytes) return;
    kn__caches_flush(pool);
    kn__epochs_settle(pool);
    kn__shrink(pool, keep_bytes);
}

/* While a stream is captured nothing may be asked of the device. */
bool kn__trim_may(const kn_pool *pool) {
    if (!kn__device_alive(pool->device)) return false;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        const kn__stream *stream = pool->streams[i];
        if (!stream->retired && kn__stream_capturing(pool, stream->handle)) return false;
    }
    return true;
}

/* --- the limit --- */

void kn__limit_apply(kn_pool *pool) {
    if (pool->reserved <= pool->limit) return;
    kn__trim(pool, pool->limit);
    pool->over_live = (uint64_t)kn__pool_live(pool);
    pool->over_tries = 0;
    pool->on_unlock = true;
}

/* Each time that as much was freed as the smallest handle has; and, for what streams still use and
 * for slots in threads' caches, at the 1st, 2nd, 4th, 8th … call since any went back: to empty the
 * caches costs all threads. */
void kn__limit_enforce(kn_pool *pool) {
    uint64_t live = (uint64_t)kn__pool_live(pool), before = pool->reserved;
    uint64_t tries = pool->over_tries++;
    bool all = (tries & (tries - 1)) == 0;
    KN_ASSERT(pool->reserved > pool->limit);
    if (live > pool->over_live) pool->over_live = live;
    if (!all && pool->over_live - live < KN__UNIT) return;
    pool->over_live = live;
    if (!kn__trim_may(pool)) return;
    if (all) {
        kn__trim(pool, pool->limit);
    } else {
        kn__epochs_settle(pool);
        if (!pool->range.base || kn__idle_handles(pool)) kn__shrink(pool, pool->limit);
    }
    if (pool->reserved < before) pool->over_tries = 0;
}
