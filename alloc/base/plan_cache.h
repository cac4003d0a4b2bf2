/* A cache of plans: what a library made for one shape, found again by its key. It keeps a bounded
 * number; the one not asked for longest goes first. A plan in use stays until it is dropped. Any
 * thread. */
#ifndef KN_BASE_PLAN_CACHE_H
#define KN_BASE_PLAN_CACHE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

/* The first member of a plan; the bytes of its key follow it. */
typedef struct kn__cached_plan {
    struct kn__cached_plan *older, *newer; /* of those in the cache */
    int64_t users;                         /* the cache is one */
} kn__cached_plan;

/* Static: KN__PLAN_CACHE. */
typedef struct kn__plan_cache {
    size_t key_bytes; /* whole words, without padding */
    size_t most;
    void (*destroy)(kn__cached_plan *plan);
    pthread_mutex_t mutex; /* protects all below, and the members above of each plan */
    kn__hash by_key;
    kn__cached_plan *oldest, *newest;
} kn__plan_cache;
#define KN__PLAN_CACHE(key_type, most_plans, destroy_fn)                                           \
    {                                                                                              \
        .key_bytes = sizeof(key_type), .most = (most_plans), .destroy = (destroy_fn),              \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                         \
    }

/* The plan of this key, or NULL; the caller's until kn__plan_cache_drop. */
kn__cached_plan *kn__plan_cache_get(kn__plan_cache *cache, const void *key);
/* Adds a new plan, whose key is set; it is the caller's until kn__plan_cache_drop. Where another
 * thread was faster, that thread's plan comes back and this one is destroyed. Without memory for
 * another place it comes back too, and is in no cache. */
kn__cached_plan *kn__plan_cache_put(kn__plan_cache *cache, kn__cached_plan *plan);
/* No-op on NULL. */
void kn__plan_cache_drop(kn__plan_cache *cache, kn__cached_plan *plan);
/* How many the cache keeps: at most `most`. */
size_t kn__plan_cache_count(kn__plan_cache *cache);

#endif
