#include "cuda/base/cache.h"

#include <string.h>

#include "mix.h"

static const void *key_of(const kn__cached_plan *plan) { return plan + 1; }

static unsigned bucket_of(const kn__plan_cache *cache, const void *key) {
    return (unsigned)(kn__fnv_words(KN__FNV_START, key, cache->key_bytes) % KN__PLAN_CACHE_BUCKETS);
}

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

static kn__cached_plan *find(kn__plan_cache *cache, const void *key) {
    kn__cached_plan *plan = cache->bucket[bucket_of(cache, key)];
    while (plan && memcmp(key_of(plan), key, cache->key_bytes) != 0) plan = plan->next;
    if (plan && plan != cache->newest) {
        list_remove(cache, plan);
        list_append(cache, plan);
    }
    return plan;
}

static void drop(kn__plan_cache *cache, kn__cached_plan *plan) {
    if (--plan->refs == 0) cache->destroy(plan);
}

static void evict(kn__plan_cache *cache, kn__cached_plan *plan) {
    kn__cached_plan **at = &cache->bucket[bucket_of(cache, key_of(plan))];
    while (*at != plan) at = &(*at)->next;
    *at = plan->next;
    list_remove(cache, plan);
    cache->n--;
    drop(cache, plan);
}

static void insert(kn__plan_cache *cache, kn__cached_plan *plan) {
    kn__cached_plan **bucket = &cache->bucket[bucket_of(cache, key_of(plan))];
    plan->refs = 1;
    plan->next = *bucket;
    *bucket = plan;
    list_append(cache, plan);
    if (++cache->n > KN__PLAN_CACHE_MOST) evict(cache, cache->oldest);
}

kn__cached_plan *kn__plan_cache_get(kn__plan_cache *cache, const void *key) {
    pthread_mutex_lock(&cache->mutex);
    kn__cached_plan *plan = find(cache, key);
    if (plan) plan->refs++;
    pthread_mutex_unlock(&cache->mutex);
    return plan;
}

kn__cached_plan *kn__plan_cache_put(kn__plan_cache *cache, kn__cached_plan *plan) {
    pthread_mutex_lock(&cache->mutex);
    kn__cached_plan *first = find(cache, key_of(plan));
    if (first) {
        cache->destroy(plan);
    } else {
        insert(cache, plan);
        first = plan;
    }
    first->refs++;
    pthread_mutex_unlock(&cache->mutex);
    return first;
}

void kn__plan_cache_release(kn__plan_cache *cache, kn__cached_plan *plan) {
    pthread_mutex_lock(&cache->mutex);
    drop(cache, plan);
    pthread_mutex_unlock(&cache->mutex);
}
