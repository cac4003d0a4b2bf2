#include "pool/counts.h"

#include <stdlib.h>

int64_t kn__pool_live(const kn_pool *pool) {
    int64_t live = pool->live;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        live += KN__READ(cache->live);
    }
    return live > 0 ? live : 0;
}

/* --- tags --- */

bool kn__tags_create(kn__cache *cache) {
    kn__tag_counts *tags = calloc(KN__TAGS, sizeof *tags);
    if (tags) atomic_store_explicit(&cache->tags, tags, memory_order_release);
    return tags != NULL;
}

void kn__tag_count_locked(kn_pool *pool, unsigned tag, int64_t live) {
    kn__tag_total *total = &pool->tags[tag];
    total->live += live;
    total->n_allocs += live > 0;
    if (total->live > total->live_max) total->live_max = total->live;
}

static void fold_one(kn__tag_total *total, kn__tag_counts *counts) {
    int64_t high = total->live + KN__READ(counts->live_max);
    if (high > total->live_max) total->live_max = high;
    total->live += KN__READ(counts->live);
    total->n_allocs += KN__READ(counts->n_allocs);
    KN__WRITE(counts->live, 0);
    KN__WRITE(counts->live_max, 0);
    KN__WRITE(counts->n_allocs, 0);
}

static void tags_fold(kn_pool *pool, kn__cache *cache) {
    kn__tag_counts *tags = KN__READ(cache->tags);
    for (; cache->tags_used; cache->tags_used &= cache->tags_used - 1) {
        unsigned first = (unsigned)__builtin_ctzll(cache->tags_used);
        for (unsigned tag = first; tag < KN__TAGS; tag += 64) {
            if (KN__READ(tags[tag].live) || KN__READ(tags[tag].n_allocs)) {
                fold_one(&pool->tags[tag], &tags[tag]);
            }
        }
    }
}

void kn__cache_fold(kn_pool *pool, kn__cache *cache) {
    int64_t high = pool->live + KN__READ(cache->live_max);
    if (high > pool->live_max) pool->live_max = high;
    pool->live += KN__READ(cache->live);
    cache->settled += KN__READ(cache->live);
    pool->requested += KN__READ(cache->requested);
    pool->n_allocs += KN__READ(cache->n_allocs);
    KN__WRITE(cache->live, 0);
    KN__WRITE(cache->live_max, 0);
    KN__WRITE(cache->requested, 0);
    KN__WRITE(cache->n_allocs, 0);
    if (cache->tags_used) tags_fold(pool, cache);
}

/* --- high-water marks --- */

/* A cache's mark. Its owner may write it at the same time: then it writes the live bytes of this
 * moment. Returns the cache's live bytes. */
static int64_t mark(_Atomic int64_t *live_max, const _Atomic int64_t *live) {
    int64_t now = KN__READ(*live);
    KN__WRITE(*live_max, now);
    return now;
}

void kn__peaks_reset(kn_pool *pool) {
    pool->reserved_max = pool->reserved;
    pool->live_max = pool->live;
    for (unsigned tag = 0; tag < KN__TAGS; tag++) pool->tags[tag].live_max = pool->tags[tag].live;
    for (kn__cache *cache = pool->caches; cache; cache = cache->next) {
        pool->live_max += mark(&cache->live_max, &cache->live);
        kn__tag_counts *tags = atomic_load_explicit(&cache->tags, memory_order_acquire);
        for (unsigned tag = 0; tags && tag < KN__TAGS; tag++) {
            pool->tags[tag].live_max += mark(&tags[tag].live_max, &tags[tag].live);
        }
    }
}
