#include "pool/trim.h"

#include "core/grow.h"
#include "core/progress.h"
#include "pool/cache.h"

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
