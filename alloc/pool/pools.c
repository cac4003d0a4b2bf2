#include "pool/pools.h"

#include <pthread.h>

#include "at_rest.h"
#include "device/observe.h"
#include "device/registry.h"
#include "pool/cache.h"
#include "pool/pool_lock.h"

/* Notifies the observer under the lock, so that one that attaches now hears of the pool once: here
 * or by replay. */
void kn__pool_enlist(kn_pool *pool) {
    kn__registry_lock();
    pool->link = pool->device->pools;
    pool->device->pools = pool;
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_pool_create) observer->on_pool_create(pool);
    kn__registry_unlock();
}

static const char *delist(kn_pool *pool) {
    for (kn_device *device = kn__devices; device; device = device->next) {
        kn_pool **link = &device->pools;
        while (*link && *link != pool) link = &(*link)->link;
        if (!*link) continue;
        if (pool == device->default_pool || pool == device->pinned_pool) {
            return "is a default pool of its device, which can't be destroyed";
        }
        *link = pool->link;
        return NULL;
    }
    return "is not a pool; was it destroyed before?";
}

const char *kn__pool_delist(kn_pool *pool) {
    kn__registry_lock();
    const char *why = delist(pool);
    kn__registry_unlock();
    return why;
}

void kn__pools_visit(void (*fn)(void *ctx, kn_pool *pool), void *ctx) {
    for (kn_device *device = kn__devices; device; device = device->next) {
        for (kn_pool *pool = device->pools; pool; pool = pool->link) fn(ctx, pool);
    }
}

bool kn__pool_at_rest(const kn_pool *pool) { return kn__lock_opens(&pool->lock, KN__AT_REST_MS); }

/* fork: behind the registry's lock come those of the caches and of all pools. */

static void lock_pool(void *ctx, kn_pool *pool) {
    (void)ctx;
    kn__lock_take(&pool->lock);
}

static void unlock_pool(void *ctx, kn_pool *pool) {
    (void)ctx;
    kn__lock_open(&pool->lock);
}

/* In a child that can't use the driver the pool refuses requests. */
static void kill_pool(void *ctx, kn_pool *pool) {
    (void)ctx;
    if (pool->device->driver->ordered) return;
    pool->dead = true;
    KN__WRITE(pool->decay_ns, 0);
    kn__pool_fast_set(pool);
    pool->size_max = 0;
}

static void fork_prepare(void) {
    kn__caches_lock();
    kn__pools_visit(lock_pool, NULL);
}

static void fork_parent(void) {
    kn__pools_visit(unlock_pool, NULL);
    kn__caches_unlock();
}

static void fork_child(void) {
    kn__pools_visit(kill_pool, NULL);
    fork_parent();
}

/* Before the registry's constructor, so that at a fork these locks are taken after its. */
__attribute__((constructor(300))) static void watch_forks(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}
