/* A pool's lock. Before it is released decay runs, and memory beyond a lowered limit goes back; the
 * observer hears of reserved memory after. Without work to do all that costs one test of a flag. */
#ifndef KN_ALLOC_POOL_LOCK_H
#define KN_ALLOC_POOL_LOCK_H

#include "core/pool_state.h"

static inline void kn__pool_lock(kn_pool *pool) { kn__lock_take(&pool->lock); }

void kn__pool_unlock_act(kn_pool *pool);

/* Sends requests of any size the slow way, or no longer: while decay or a lowered limit is watched,
 * memory is marked, or none is handed out. Under the lock. */
void kn__pool_fast_set(kn_pool *pool);

static inline void kn__pool_unlock(kn_pool *pool) {
    if (KN__UNLIKELY(pool->on_unlock)) {
        kn__pool_unlock_act(pool);
    } else {
        kn__lock_open(&pool->lock);
    }
}

#endif
