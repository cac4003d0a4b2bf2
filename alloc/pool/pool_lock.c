#include "pool/pool_lock.h"

#include "core/arena.h"
#include "core/poison.h"
#include "device/observe.h"
#include "pool/trim.h"

/* All cores read fast_max: it is written only when it changes. */
void kn__pool_fast_set(kn_pool *pool) {
    bool watched = KN__READ(pool->decay_ns) || pool->reserved > pool->limit;
    bool marked = kn__red_zone(pool) || pool->poison == KN__POISON_MEMCHECK;
    size_t most = watched || marked || pool->paused || pool->dead ? 0 : pool->slab_max;
    if (KN__READ(pool->fast_max) != most) KN__WRITE(pool->fast_max, most);
}

/* The observer hears of changes of reserved memory when the lock is open again. */
void kn__pool_unlock_act(kn_pool *pool) {
    if (KN__READ(pool->decay_ns)) kn__decay(pool);
    if (pool->reserved > pool->limit) kn__limit_enforce(pool);
    int64_t delta = pool->reserve_delta;
    uint64_t reserved = pool->reserved;
    bool above =
        reserved > pool->limit || (KN__READ(pool->decay_ns) && reserved > pool->decay_keep);
    bool apart = above && !pool->ordered; /* all that is free can go there, at any age */
    if (pool->apart && !apart) kn__arena_merge(pool, NULL);
    pool->apart = apart;
    pool->reserve_delta = 0;
    kn__pool_fast_set(pool);
    pool->on_unlock = KN__READ(pool->decay_ns) != 0 || reserved > pool->limit;
    kn__lock_open(&pool->lock);
    const kn_observer *observer = kn__observer();
    if (delta && observer && observer->on_reserve) observer->on_reserve(pool, delta, reserved);
}
