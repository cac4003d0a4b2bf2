/* A cache of plans by key, of bounded size: the one not asked for longest goes first. A plan in use
 * stays until it is released. Any thread. */
#ifndef KN_CUDA_CACHE_H
#define KN_CUDA_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KN__CACHE_BUCKETS = 256, KN__CACHE_MOST = 1024 };

typedef struct kn__cached {  /* the first member of a cached object; the key's bytes follow it */
    struct kn__cached *next; /* of its bucket */
    struct kn__cached *older, *newer;
    uint32_t refs; /* the cache's own, and the users' */
} kn__cached;

typedef struct kn__cache {
    size_t key_bytes;
    void (*destroy)(kn__cached *plan);
    pthread_mutex_t mutex;
    kn__cached *bucket[KN__CACHE_BUCKETS];
    kn__cached *oldest, *newest;
    int n;
} kn__cache;
#define KN__CACHE(key_type, destroy_fn)                                                            \
    { .key_bytes = sizeof(key_type), .destroy = destroy_fn, .mutex = PTHREAD_MUTEX_INITIALIZER }

/* The plan of this key, retained, or NULL. */
kn__cached *kn__cache_get(kn__cache *cache, const void *key);
/* Hands a new plan over, retained for the caller. Where another thread was faster, that thread's
 * plan comes back and this one is destroyed. */
kn__cached *kn__cache_put(kn__cache *cache, kn__cached *plan);
void kn__cache_release(kn__cache *cache, kn__cached *plan);

#endif
