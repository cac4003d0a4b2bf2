/* A cache of plans by key, of bounded size: the one not asked for longest goes first. A plan in use
 * stays until it is released. Any thread. */
#ifndef KN_CUDA_CACHE_H
#define KN_CUDA_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KN__PLAN_CACHE_BUCKETS = 256, KN__PLAN_CACHE_MOST = 1024 };

typedef struct kn__cached_plan {  /* the first member of a cached object; the key's bytes follow it
                                   */
    struct kn__cached_plan *next; /* of its bucket */
    struct kn__cached_plan *older, *newer;
    uint32_t refs; /* the cache's own, and the users' */
} kn__cached_plan;

typedef struct kn__plan_cache {
    size_t key_bytes;
    void (*destroy)(kn__cached_plan *plan);
    pthread_mutex_t mutex;
    kn__cached_plan *bucket[KN__PLAN_CACHE_BUCKETS];
    kn__cached_plan *oldest, *newest;
    int n;
} kn__plan_cache;
#define KN__PLAN_CACHE(key_type, destroy_fn)                                                       \
    { .key_bytes = sizeof(key_type), .destroy = destroy_fn, .mutex = PTHREAD_MUTEX_INITIALIZER }

/* The plan of this key, retained, or NULL. */
kn__cached_plan *kn__plan_cache_get(kn__plan_cache *cache, const void *key);
/* Hands a new plan over, retained for the caller. Where another thread was faster, that thread's
 * plan comes back and this one is destroyed. */
kn__cached_plan *kn__plan_cache_put(kn__plan_cache *cache, kn__cached_plan *plan);
void kn__plan_cache_release(kn__plan_cache *cache, kn__cached_plan *plan);

#endif
