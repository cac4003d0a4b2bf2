/* Counters of live memory. A thread counts in its own cache; under the pool's lock its counts are
 * added to the pool's, so that peaks of one thread are exact.
 *
 * Tags are counted here, and decay runs in decay.c, not in observers. An observer of tags would
 * take every call off the leaf path, untagged ones too, and would need a block's tag at its free:
 * the only word for it, the owner, belongs to the program's observer. Decay returns memory, and an
 * observer must not call into a pool. The trace and the call stacks need neither, so they are
 * observers. */
#ifndef KN_ALLOC_COUNTS_H
#define KN_ALLOC_COUNTS_H

#include "pool/cache.h"

/* Room for the thread's counts by tag; false: no host memory. */
bool kn__tags_create(kn__cache *cache);

/* Bytes that the thread has allocated less those that it freed, of its own and other threads'
 * blocks: no other thread changes the number. NULL: 0. */
static inline int64_t kn__cache_own(const kn__cache *cache) {
    return cache ? cache->settled + KN__READ(cache->live) : 0;
}

/* --- under the lock --- */

void kn__tag_count_locked(kn_pool *pool, unsigned tag, int64_t live); /* freed: below zero */
void kn__cache_fold(kn_pool *pool, kn__cache *cache);                 /* into the pool's */
void kn__peaks_reset(kn_pool *pool);        /* to the bytes live and reserved */
int64_t kn__pool_live(const kn_pool *pool); /* bytes, never below zero */

static inline void kn__count_alloc(kn__cache *cache, size_t live, size_t requested) {
    int64_t now = KN__READ(cache->live) + (int64_t)live;
    KN__WRITE(cache->live, now);
    if (now > KN__READ(cache->live_max)) KN__WRITE(cache->live_max, now);
    KN__BUMP(cache->requested, (int64_t)requested);
    KN__BUMP(cache->n_allocs, 1);
}

static inline void kn__count_free(kn__cache *cache, size_t live, size_t requested) {
    KN__BUMP(cache->live, -(int64_t)live);
    KN__BUMP(cache->requested, -(int64_t)requested);
}

/* The tag under which it is counted: none where there is no host memory for counts. */
static inline unsigned kn__tag_alloc(kn__cache *cache, unsigned tag, size_t live) {
    if (!KN__READ(cache->tags) && !kn__tags_create(cache)) return 0;
    kn__tag_counts *counts = KN__READ(cache->tags) + tag;
    int64_t now = KN__READ(counts->live) + (int64_t)live;
    KN__WRITE(counts->live, now);
    if (now > KN__READ(counts->live_max)) KN__WRITE(counts->live_max, now);
    KN__BUMP(counts->n_allocs, 1);
    cache->tags_used |= 1ull << tag % 64;
    return tag;
}

/* Under the lock, for what doesn't pass through a rack. Freed: both below zero. */
static inline void kn__count_locked(kn_pool *pool, kn__cache *cache, unsigned tag, int64_t live,
                                    int64_t requested) {
    if (cache && (KN__READ(cache->n_allocs) || KN__READ(cache->live))) kn__cache_fold(pool, cache);
    if (cache) cache->settled += live;
    pool->live += live;
    pool->requested += requested;
    pool->n_allocs += live > 0;
    if (pool->live > pool->live_max) pool->live_max = pool->live;
    if (KN__UNLIKELY(tag)) kn__tag_count_locked(pool, tag, live);
}

#endif
