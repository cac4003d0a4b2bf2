#include <pthread.h>
#include <stdlib.h>

#include "core/poison.h"
#include "pool/cache.h"
#include "pool/counts.h"
#include "pool/pool_lock.h"

static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER; /* of all lists of caches */
static uint64_t slots_taken[KN__POOL_SLOTS / 64];
static bool fenced; /* threads can be made to pass a barrier: without it there are no caches */

void kn__caches_lock(void) { pthread_mutex_lock(&caches_lock); }
void kn__caches_unlock(void) { pthread_mutex_unlock(&caches_lock); }

/* Under both locks. */
static void cache_destroy(kn_pool *pool, kn__cache *cache) {
    kn__cache_fold(pool, cache);
    kn__cache_flush(pool, cache);
    KN_ASSERT(!KN__READ(cache->live) && cache->thread->caches[pool->slot] == cache);
    kn__cache **link = &pool->caches;
    while (*link != cache) link = &(*link)->next;
    *link = cache->next;
    cache->thread->caches[pool->slot] = NULL;
    for (kn__rack *rack = cache->racks, *next; rack; rack = next) {
        next = rack->next;
        rack->stream->refs--;
        free(rack);
    }
    kn__hash_release(&cache->by_key);
    free(KN__READ(cache->tags));
    free(cache);
}

static void end_caches(kn__thread *thread) {
    kn__caches_lock();
    for (int i = 0; i < KN__POOL_SLOTS; i++) {
        kn__cache *cache = thread->caches[i];
        if (!cache) continue;
        kn_pool *pool = cache->pool;
        kn__pool_lock(pool);
        cache_destroy(pool, cache);
        kn__pool_unlock(pool);
    }
    kn__caches_unlock();
}

kn__cache *kn__cache_create(kn_pool *pool) {
    if (pool->slot >= KN__POOL_SLOTS) return NULL;
    kn__cache *cache = NULL;
    kn__thread *self = kn__thread_get();
    if (!self || !(cache = calloc(1, sizeof *cache))) return NULL;
    cache->current = kn__rack_none();
    cache->pool = pool;
    cache->thread = self;
    kn__thread_at_end(KN__END_CACHES, end_caches);
    kn__caches_lock();
    kn__pool_lock(pool);
    cache->next = pool->caches;
    pool->caches = cache;
    kn__pool_unlock(pool);
    self->caches[pool->slot] = cache;
    kn__caches_unlock();
    return cache;
}

void kn__caches_attach(kn_pool *pool) {
    kn__caches_lock();
    if (!fenced) fenced = kn__threads_fence_init();
    uint32_t word = 0;
    while (word < KN__POOL_SLOTS / 64 && !~slots_taken[word]) word++;
    pool->slot = KN__POOL_SLOTS;
    bool watched = pool->poison == KN__POISON_MEMCHECK; /* each call */
    if (fenced && !watched && word < KN__POOL_SLOTS / 64) {
        unsigned bit = (unsigned)__builtin_ctzll(~slots_taken[word]);
        slots_taken[word] |= 1ull << bit;
        pool->slot = word * 64 + bit;
    }
    kn__caches_unlock();
}

void kn__caches_detach(kn_pool *pool) {
    kn__caches_lock();
    kn__pool_lock(pool);
    while (pool->caches) cache_destroy(pool, pool->caches);
    kn__pool_unlock(pool);
    if (pool->slot < KN__POOL_SLOTS) slots_taken[pool->slot / 64] &= ~(1ull << pool->slot % 64);
    kn__caches_unlock();
}

void kn_pool_flush_thread(kn_pool *pool) {
    kn__cache *cache = kn__cache_of_thread(pool);
    if (!cache) return;
    kn__pool_lock(pool);
    kn__cache_fold(pool, cache);
    kn__cache_flush(pool, cache);
    kn__pool_unlock(pool);
}
