#include "pool/cache.h"

#include <stdlib.h>
#include <string.h>

kn__rack *kn__rack_none(void) {
    static const kn__rack none;
    return (kn__rack *)(uintptr_t)&none;
}

static inline uint32_t generation_of(const kn_pool *pool) {
    return atomic_load_explicit(&pool->generation, memory_order_acquire);
}

void kn__rack_flush(kn_pool *pool, kn__rack *rack, unsigned size_class, unsigned n) {
    kn__stack *stack = &rack->stacks[size_class];
    KN_ASSERT(n <= kn__stack_n(stack));
    unsigned gone = kn__stack_n(stack) - n;
    for (unsigned i = 0; i < gone; i++) {
        kn__slot_put(pool, rack->slots[size_class][i]);
    }
    memmove(rack->slots[size_class], rack->slots[size_class] + gone, n * sizeof(kn__slot_ref));
    kn__stack_set_n(stack, n);
}

void kn__cache_flush(kn_pool *pool, kn__cache *cache) {
    for (kn__rack *rack = cache->racks; rack; rack = rack->next) {
        for (unsigned size_class = 0; size_class < pool->n_size_classes; size_class++) {
            if (kn__stack_n(&rack->stacks[size_class])) kn__rack_flush(pool, rack, size_class, 0);
        }
    }
}

bool kn__caches_flush(kn_pool *pool) {
    bool all = kn__gates_call_back(&pool->generation);
    for (kn__cache *cache = all ? pool->caches : NULL; cache; cache = cache->next) {
        bool shut = kn__gate_is_shut(&cache->gate);
        if (shut) kn__cache_flush(pool, cache);
        all &= shut;
    }
    return all;
}

uint64_t kn__caches_bytes(const kn_pool *pool) {
    uint64_t bytes = 0;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        for (const kn__rack *rack = cache->racks; rack; rack = rack->next) {
            for (unsigned size_class = 0; size_class < pool->n_size_classes; size_class++) {
                bytes += (uint64_t)kn__stack_n(&rack->stacks[size_class]) *
                         kn__size_class_bytes(size_class);
            }
        }
    }
    return bytes;
}

typedef struct kn__rack_place {
    uint64_t key; /* kn__hash_of_stream */
    kn__rack *rack;
} kn__rack_place;

static kn__rack *rack_find(const kn__cache *cache, uint64_t key) {
    const kn__rack_place *place =
        kn__hash_get(&cache->by_key, sizeof *place, kn__hash_of_stream(key));
    return place ? place->rack : NULL;
}

static void rack_place(kn__cache *cache, kn__rack *rack) {
    kn__rack_place *place =
        kn__hash_put(&cache->by_key, sizeof *place, kn__hash_of_stream(rack->key));
    place->rack = rack;
}

kn__rack *kn__rack_enter(const kn_pool *pool, kn__cache *cache, uint64_t key) {
    kn__rack *rack = rack_find(cache, key);
    if (!rack) return NULL;
    if (kn__gate_enter(&cache->gate, &pool->generation, &rack->generation)) {
        return cache->current = rack;
    }
    kn__gate_leave(&cache->gate);
    return NULL;
}

/* Called back, or streams were retired or captured: all is flushed, and racks of streams that are
 * gone go. By the cache's thread, under the lock. */
static void cache_renew(kn_pool *pool, kn__cache *cache) {
    uint32_t generation = generation_of(pool);
    if (cache->generation == generation) return;
    cache->generation = generation;
    cache->current = kn__rack_none();
    kn__cache_flush(pool, cache);
    kn__hash_clear(&cache->by_key, sizeof(kn__rack_place));
    for (kn__rack **link = &cache->racks; *link;) {
        kn__rack *rack = *link;
        rack->generation = generation;
        if (!rack->stream->retired && !rack->stream->hidden) {
            rack_place(cache, rack);
            link = &rack->next;
            continue;
        }
        *link = rack->next;
        rack->stream->refs--;
        free(rack);
    }
}

static kn__rack *rack_create(kn_pool *pool, kn__cache *cache, kn__stream *stream) {
    kn__hash *table = &cache->by_key;
    if (kn__hash_is_full(table) && !kn__hash_grow(table, sizeof(kn__rack_place), 4)) return NULL;
    kn__rack *rack = calloc(1, sizeof *rack + pool->n_size_classes * sizeof rack->slots[0]);
    if (!rack) return NULL;
    for (unsigned size_class = 0; size_class < pool->n_size_classes; size_class++) {
        rack->stacks[size_class].top = size_class * KN__STACK_BYTES;
        rack->stacks[size_class].slot_bytes = (uint32_t)kn__size_class_bytes(size_class);
    }
    rack->key = stream->key;
    rack->stream = stream;
    rack->generation = generation_of(pool);
    rack->next = cache->racks;
    cache->racks = rack;
    rack_place(cache, rack);
    stream->refs++;
    return rack;
}

kn__rack *kn__rack_get(kn_pool *pool, kn__cache *cache, kn__stream *stream) {
    cache_renew(pool, cache);
    kn__rack *rack = rack_find(cache, stream->key);
    if (!rack && !(rack = rack_create(pool, cache, stream))) return NULL;
    KN_ASSERT(rack->stream == stream);
    return cache->current = rack;
}
