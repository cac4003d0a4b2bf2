#include "pool/trim.h"

#include <time.h>

#include "cancel.h"
#include "core/grow.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/registry.h"
#include "now.h"
#include "pool/counts.h"

void kn__pool_sync(kn_pool *pool) {
    KN__CANCEL_LATER();
    kn__caches_flush(pool);
    kn__epochs_sync(pool);
}

/* Finished memory first: what caches return merges with it, and finishes later. */
void kn__trim(kn_pool *pool, size_t keep_bytes) {
    KN__CANCEL_LATER();
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
    pool->over_next_ns = 0;
    pool->on_unlock = true;
}

/* A try takes as long as the pool has blocks, and empties the caches of all threads: tries take at
 * most one part in TRY_REST of the time. One more follows the last free. */
void kn__limit_enforce(kn_pool *pool) {
    enum { TRY_REST = 100 };
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC), live = (uint64_t)kn__pool_live(pool);
    bool is_last = live == 0 && pool->over_live > 0;
    KN_ASSERT(pool->reserved > pool->limit);
    if (begin < pool->over_next_ns && !is_last) return;
    pool->over_live = live;
    KN__CANCEL_LATER();
    if (kn__trim_may(pool)) kn__trim(pool, pool->limit);
    uint64_t end = kn__now_ns(CLOCK_MONOTONIC);
    pool->over_next_ns = end + (end - begin) * TRY_REST;
}
