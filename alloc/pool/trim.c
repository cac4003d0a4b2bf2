#include "pool/trim.h"

#include "core/grow.h"
#include "core/progress.h"
#include "device/registry.h"
#include "pool/cache.h"
#include "pool/pool_lock.h"

/* Finished memory first: what caches return merges with it, and finishes later. */
void kn__trim(kn_pool *pool, size_t keep_bytes) {
    kn__epochs_settle(pool);
    kn__shrink(pool, keep_bytes);
    if (pool->reserved <= keep_bytes) return;
    kn__caches_flush(pool);
    kn__epochs_settle(pool);
    kn__shrink(pool, keep_bytes);
}

kn_status kn_pool_trim(kn_pool *pool, size_t keep_bytes) {
    KN_TRY(kn__device_usable(pool->device));
    kn__pool_lock(pool);
    if (pool->reserved > keep_bytes) kn__trim(pool, keep_bytes);
    kn__pool_unlock(pool);
    return KN_OK;
}

kn_status kn_pool_limit(kn_pool *pool, size_t limit_bytes) {
    KN_TRY(kn__device_usable(pool->device));
    kn__pool_lock(pool);
    pool->limit = limit_bytes ? limit_bytes : SIZE_MAX;
    if (pool->reserved > pool->limit) kn__trim(pool, pool->limit);
    kn__pool_unlock(pool);
    return KN_OK;
}
