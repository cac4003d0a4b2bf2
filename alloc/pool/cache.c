#include "pool/cache.h"

#include <stdlib.h>
#include <string.h>

#include "mix.h"

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

static kn__rack **place_of(const kn__cache *cache, uint64_t key) {
    size_t mask = cache->n_places - 1, i = (size_t)((key * KN__GOLDEN) >> 32) & mask;
    while (cache->places[i] && cache->places[i]->key != key) i = (i + 1) & mask;
    return &cache->places[i];
}

kn__rack *kn__rack_enter(const kn_pool *pool, kn__cache *cache, uint64_t key) {
    kn__rack *rack = cache->n_places ? *place_of(cache, key) : NULL;
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
    for (size_t i = 0; i < cache->n_places; i++) cache->places[i] = NULL;
    for (kn__rack **link = &cache->racks; *link;) {
        kn__rack *rack = *link;
        rack->generation = generation;
        if (!rack->stream->retired && !rack->stream->hidden) {
            *place_of(cache, rack->key) = rack;
            link = &rack->next;
            continue;
        }
        *link = rack->next;
        rack->stream->refs--;
        free(rack);
    }
}

/* Room for one rack more in the table, at most half full. */
static bool racks_room(kn__cache *cache) {
    size_t n_racks = 0;
    for (const kn__rack *rack = cache->racks; rack; rack = rack->next) n_racks++;
    if (n_racks < cache->n_places / 2) return true;
    size_t n = cache->n_places ? 2 * cache->n_places : 4;
    kn__rack **places = calloc(n, sizeof *places);
    if (!places) return false;
    free(cache->places);
    cache->places = places;
    cache->n_places = n;
    for (kn__rack *rack = cache->racks; rack; rack = rack->next) *place_of(cache, rack->key) = rack;
    return true;
}

static kn__rack *rack_create(kn_pool *pool, kn__cache *cache, kn__stream *stream) {
    if (!racks_room(cache)) return NULL;
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
    *place_of(cache, rack->key) = rack;
    stream->refs++;
    return rack;
}

kn__rack *kn__rack_get(kn_pool *pool, kn__cache *cache, kn__stream *stream) {
    cache_renew(pool, cache);
    kn__rack *rack = cache->n_places ? *place_of(cache, stream->key) : NULL;
    if (!rack && !(rack = rack_create(pool, cache, stream))) return NULL;
    KN_ASSERT(rack->stream == stream);
    return cache->current = rack;
}
