#include "plan_cache.h"

#include <string.h>

#include "checked.h"

typedef struct place {
    uint64_t key; /* the hash of the plan's */
    kn__cached_plan *plan;
} place;

static const void *key_of(const kn__cached_plan *plan) { return plan + 1; }

/* --- the list by age --- */

static void list_remove(kn__plan_cache *cache, kn__cached_plan *plan) {
    *(plan->older ? &plan->older->newer : &cache->oldest) = plan->newer;
    *(plan->newer ? &plan->newer->older : &cache->newest) = plan->older;
}

static void list_append(kn__plan_cache *cache, kn__cached_plan *plan) {
    plan->newer = NULL, plan->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = plan;
    cache->newest = plan;
}

/* --- with the mutex held --- */

static uint64_t hash_of(const kn__plan_cache *cache, const void *key) {
    return kn__spread(kn__fnv_words(KN__FNV_START, key, cache->key_bytes)) | (uint64_t)1 << 63;
}

/* The place of this key, or the free one for it; NULL: there are no places yet. */
static place *find_place(const kn__plan_cache *cache, const void *key) {
    if (!cache->by_key.n_slots) return NULL;
    place *at = kn__hash_find(&cache->by_key, sizeof *at, hash_of(cache, key));
    while (at->key && memcmp(key_of(at->plan), key, cache->key_bytes) != 0) {
        at = kn__hash_after(&cache->by_key, sizeof *at, at);
    }
    return at;
}

static kn__cached_plan *find(kn__plan_cache *cache, const void *key) {
    const place *at = find_place(cache, key);
    if (!at || !at->key) return NULL;
    kn__cached_plan *plan = at->plan;
    if (plan != cache->newest) {
        list_remove(cache, plan);
        list_append(cache, plan);
    }
    plan->users++;
    return plan;
}

static void drop(kn__plan_cache *cache, kn__cached_plan *plan) {
    KN_ASSERT(plan->users > 0);
    if (--plan->users == 0) cache->destroy(plan);
}

static void evict(kn__plan_cache *cache, kn__cached_plan *plan) {
    place *at = find_place(cache, key_of(plan));
    KN_ASSERT(at && at->key && at->plan == plan);
    kn__hash_remove(&cache->by_key, sizeof *at, at);
    list_remove(cache, plan);
    drop(cache, plan);
}

static void insert(kn__plan_cache *cache, kn__cached_plan *plan) {
    place *at = find_place(cache, key_of(plan));
    KN_ASSERT(!at->key);
    kn__hash_use(&cache->by_key, at, hash_of(cache, key_of(plan)));
    at->plan = plan;
    plan->users++;
    list_append(cache, plan);
    if (cache->by_key.n_used > cache->most) evict(cache, cache->oldest);
}

static kn__cached_plan *put(kn__plan_cache *cache, kn__cached_plan *plan) {
    kn__cached_plan *first = find(cache, key_of(plan));
    if (first) {
        cache->destroy(plan);
        return first;
    }
    plan->users = 1;
    if (!kn__hash_is_full(&cache->by_key) || kn__hash_grow(&cache->by_key, sizeof(place), 64)) {
        insert(cache, plan);
    }
    return plan;
}

/* --- the calls --- */

kn__cached_plan *kn__plan_cache_get(kn__plan_cache *cache, const void *key) {
    pthread_mutex_lock(&cache->mutex);
    kn__cached_plan *plan = find(cache, key);
    pthread_mutex_unlock(&cache->mutex);
    return plan;
}

kn__cached_plan *kn__plan_cache_put(kn__plan_cache *cache, kn__cached_plan *plan) {
    pthread_mutex_lock(&cache->mutex);
    plan = put(cache, plan);
    pthread_mutex_unlock(&cache->mutex);
    return plan;
}

void kn__plan_cache_drop(kn__plan_cache *cache, kn__cached_plan *plan) {
    if (!plan) return;
    pthread_mutex_lock(&cache->mutex);
    drop(cache, plan);
    pthread_mutex_unlock(&cache->mutex);
}

size_t kn__plan_cache_count(kn__plan_cache *cache) {
    pthread_mutex_lock(&cache->mutex);
    size_t n = cache->by_key.n_used;
    pthread_mutex_unlock(&cache->mutex);
    return n;
}
