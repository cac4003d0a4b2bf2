/* kn_alloc and kn_free: a thread's own slots first, with no lock; then the slabs; then the arena.
 *
 * A thread has a cache per pool, a cache has a rack per stream, a rack has a stack of slots per
 * size class. A cache belongs to its thread, but whoever holds the pool's lock can call all caches
 * back; see gate.h. A rack whose generation is not the pool's was called back, or streams were
 * retired or captured since: its thread takes the lock and renews its cache. */
#include <stdlib.h>
#include <string.h>

#include "core/counts.h"
#include "device/devices.h"
#include "mix.h"
#include "device/observe.h"
#include "core/pool_types.h"

static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER; /* who has caches of which pool */
static uint64_t slots_taken[KN__POOL_SLOTS / 64];
static bool fenced; /* threads can be made to pass a barrier: without it there are no caches */
static const kn__rack no_rack; /* of generation 0, which no pool has */

void kn__caches_lock(void) { pthread_mutex_lock(&caches_lock); }
void kn__caches_unlock(void) { pthread_mutex_unlock(&caches_lock); }

/* Counters. */

static inline uint32_t generation_of(const kn_pool *pool) {
    return atomic_load_explicit(&pool->generation, memory_order_acquire);
}

void kn__cache_fold(kn_pool *pool, kn__cache *cache) {
    int64_t high = pool->live + KN__READ(cache->live_max);
    if (high > pool->live_max) pool->live_max = high;
    pool->live += KN__READ(cache->live);
    pool->requested += KN__READ(cache->requested);
    pool->n_allocs += KN__READ(cache->n_allocs);
    KN__WRITE(cache->live, 0);
    KN__WRITE(cache->live_max, 0);
    KN__WRITE(cache->requested, 0);
    KN__WRITE(cache->n_allocs, 0);
    if (cache->tags_used) kn__tags_fold(pool, cache);
}

/* Racks. */

static kn__slab *slab_of(const kn_pool *pool, const void *ptr) {
    uintptr_t entry = kn__page_get(pool, ptr);
    KN_ASSERT(entry & KN__TAG_SLAB);
    return (kn__slab *)(entry - KN__TAG_SLAB);
}

/* Puts the oldest slots of a stack back into their slabs, until n are left. */
static void rack_flush_class(kn_pool *pool, kn__rack *rack, unsigned class, unsigned n) {
    kn__stack *stack = &rack->stacks[class];
    unsigned gone = kn__stack_n(stack) - n;
    for (unsigned i = 0; i < gone; i++) {
        kn__slab *slab = slab_of(pool, rack->entries[class][i].ptr);
        kn__slab_put(pool, slab, (uint32_t)(rack->entries[class][i].slot - slab->slots));
    }
    memmove(rack->entries[class], rack->entries[class] + gone, n * sizeof(kn__entry));
    kn__stack_set_n(stack, n);
}

void kn__cache_flush(kn_pool *pool, kn__cache *cache) {
    for (kn__rack *rack = cache->racks; rack; rack = rack->next) {
        for (unsigned class = 0; class < pool->n_classes; class ++) {
            if (kn__stack_n(&rack->stacks[class])) rack_flush_class(pool, rack, class, 0);
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
            for (unsigned class = 0; class < pool->n_classes; class ++) {
                bytes += (uint64_t)kn__stack_n(&rack->stacks[class]) * kn__class_bytes(class);
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

/* The rack of the key, made the current one, when it may be used with no lock: then this thread is
 * inside its gate. NULL: it is outside. */
static kn__rack *rack_enter(const kn_pool *pool, kn__cache *cache, uint64_t key) {
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
    cache->current = (kn__rack *)(uintptr_t)&no_rack;
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

/* The rack of the stream, made if need be; NULL: no host memory. Under the lock. */
static kn__rack *rack_get(kn_pool *pool, kn__cache *cache, kn__stream *stream) {
    cache_renew(pool, cache);
    kn__rack *rack = cache->n_places ? *place_of(cache, stream->key) : NULL;
    if (!rack) {
        if (!racks_room(cache)) return NULL;
        rack = calloc(1, sizeof *rack + pool->n_classes * sizeof rack->entries[0]);
        if (!rack) return NULL;
        for (unsigned class = 0; class < pool->n_classes; class ++) {
            rack->stacks[class].top = class * KN__STACK_BYTES;
            rack->stacks[class].slot_bytes = (uint32_t)kn__class_bytes(class);
        }
        rack->key = stream->key;
        rack->stream = stream;
        rack->generation = generation_of(pool);
        rack->next = cache->racks;
        cache->racks = rack;
        *place_of(cache, rack->key) = rack;
        stream->refs++;
    }
    KN_ASSERT(rack->stream == stream);
    return cache->current = rack;
}

/* Caches. */

kn__cache *kn__cache_make(kn_pool *pool) {
    if (pool->slot >= KN__POOL_SLOTS) return NULL;
    kn__cache *cache = NULL;
    kn__thread *self = kn__thread_get();
    if (!self || !(cache = calloc(1, sizeof *cache))) return NULL;
    cache->current = (kn__rack *)(uintptr_t)&no_rack;
    cache->pool = pool;
    cache->thread = self;
    kn__caches_lock();
    kn__pool_lock(pool);
    cache->next = pool->caches;
    pool->caches = cache;
    kn__pool_unlock(pool);
    self->caches[pool->slot] = cache;
    kn__caches_unlock();
    return cache;
}

/* Under both locks. */
static void cache_destroy(kn_pool *pool, kn__cache *cache) {
    kn__cache_fold(pool, cache);
    kn__cache_flush(pool, cache);
    kn__cache **link = &pool->caches;
    while (*link != cache) link = &(*link)->next;
    *link = cache->next;
    cache->thread->caches[pool->slot] = NULL;
    for (kn__rack *rack = cache->racks, *next; rack; rack = next) {
        next = rack->next;
        rack->stream->refs--;
        free(rack);
    }
    free(cache->places);
    free(KN__READ(cache->tags));
    free(cache);
}

void kn__caches_attach(kn_pool *pool) {
    kn__caches_lock();
    if (!fenced) fenced = kn__threads_fence_init();
    uint32_t word = 0;
    while (word < KN__POOL_SLOTS / 64 && !~slots_taken[word]) word++;
    pool->slot = KN__POOL_SLOTS;
    if (fenced && word < KN__POOL_SLOTS / 64) {
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

void kn__thread_end_caches(kn__thread *thread) {
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

/* Allocation. */

static inline kn__entry *entry_at(kn__rack *rack, uint32_t top) {
    return (kn__entry *)(void *)((char *)rack->entries + top);
}

static inline kn__entry stack_pop(kn__rack *rack, kn__stack *stack) {
    uint32_t top = KN__READ(stack->top) - (uint32_t)sizeof(kn__entry);
    KN__WRITE(stack->top, top);
    return *entry_at(rack, top);
}

static inline void stack_push(kn__rack *rack, kn__stack *stack, kn__entry entry) {
    uint32_t top = KN__READ(stack->top);
    *entry_at(rack, top) = entry;
    KN__WRITE(stack->top, top + (uint32_t)sizeof(kn__entry));
}

/* Counted already. */
static void slot_hand_out(void **out, kn_pool *pool, kn__entry entry, unsigned tag, size_t live,
                          size_t requested, kn_stream stream) {
    KN__WRITE(entry.slot->use, (uint32_t)requested | tag << KN__SLOT_TAG_SHIFT);
    const kn_observer *observer = kn__observer();
    uint32_t owner = 0;
    if (observer && observer->on_alloc) owner = observer->on_alloc(pool, entry.ptr, live, stream);
    KN__WRITE(entry.slot->owner, owner);
    *out = entry.ptr;
}

/* Of a new slab: where memory is short and no block is large enough, of one that has a slot. */
static size_t slab_size(kn_pool *pool, kn__stream *stream, unsigned class) {
    size_t bytes = kn__slab_bytes(stream, class), slot = kn__class_bytes(class);
    if (!kn__pool_pressed(pool, bytes) || kn__arena_find(pool, stream, bytes, KN__PAGE)) {
        return bytes;
    }
    return (slot + KN__PAGE - 1) / KN__PAGE * KN__PAGE;
}

/* At least one free slot, at most n. Under the lock. */
static kn_status slots_take(kn__entry *out, unsigned *n, kn_pool *pool, kn__stream *stream,
                            unsigned class, size_t requested) {
    unsigned taken;
    while (!(taken = kn__slab_take(stream, class, out, *n))) {
        kn__block *block = NULL;
        size_t bytes = slab_size(pool, stream, class);
        KN_TRY(kn__ladder(&block, pool, stream, bytes, KN__PAGE, class, requested));
        if (block && !kn__slab_new(pool, block, class)) {
            kn__block_release(pool, block, kn__stream_epoch(stream));
            return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a slab", pool->name);
        }
    }
    *n = taken;
    return KN_OK;
}

/* One slot for the caller, and half a stack for its rack, which is empty: else the caller had a
 * slot with no lock. Under the lock; the ladder may open it, so the rack is looked for afterwards.
 */
static kn_status slot_refill(kn__entry *out, kn_pool *pool, kn__cache *cache, unsigned class,
                             size_t requested, kn_stream handle) {
    kn__entry taken[KN__RACK_DEPTH];
    kn__stream *stream;
    unsigned n = cache ? (kn__class_depth(class) + 1) / 2 : 1;
    KN_TRY(kn__stream_get(&stream, pool, handle));
    KN_TRY(slots_take(taken, &n, pool, stream, class, requested));
    *out = taken[--n];
    kn__rack *rack = cache ? rack_get(pool, cache, stream) : NULL;
    kn__stack *stack = rack ? &rack->stacks[class] : NULL;
    KN_ASSERT(!stack || !kn__stack_n(stack));
    for (; n; n--) {
        if (stack) {
            stack_push(rack, stack, taken[n - 1]);
        } else {
            kn__slab *slab = slab_of(pool, taken[n - 1].ptr);
            kn__slab_put(pool, slab, (uint32_t)(taken[n - 1].slot - slab->slots));
        }
    }
    return KN_OK;
}

static kn_status alloc_small(void **out, kn_pool *pool, size_t size, unsigned class,
                             kn_stream handle) {
    unsigned tag = kn__tag_now();
    size_t live = kn__class_bytes(class);
    kn__entry entry = {0};
    kn__cache *cache = kn__cache_get(pool);
    kn__rack *rack = cache ? rack_enter(pool, cache, kn__stream_key(pool, handle)) : NULL;
    if (rack) {
        if (kn__stack_n(&rack->stacks[class])) entry = stack_pop(rack, &rack->stacks[class]);
        kn__gate_leave(&cache->gate);
    }
    if (entry.ptr) {
        kn__count_alloc(cache, live, size);
        if (tag) tag = kn__tag_alloc(cache, tag, live);
    } else {
        kn__pool_lock(pool);
        kn_status status = slot_refill(&entry, pool, cache, class, size, handle);
        if (status == KN_OK) {
            kn__count_locked(pool, cache, tag, (int64_t)live, (int64_t)size);
        }
        kn__pool_unlock(pool);
        if (status < 0) {
            if (status != KN_ERR_INVALID) kn__tell_oom(pool, size);
            return status;
        }
    }
    slot_hand_out(out, pool, entry, tag, live, size, handle);
    return KN_OK;
}

/* The class whose slots are large enough and aligned: the class of a multiple of a power of two is
 * a multiple of it too. n_classes: too large for a slab. */
static unsigned aligned_class(const kn_pool *pool, size_t size, size_t align) {
    if (size > pool->slab_max || align > KN__PAGE) return pool->n_classes;
    return kn__class_of((size + align - 1) & ~(align - 1));
}

static __attribute__((noinline)) kn_status alloc_slow(void **out, kn_pool *pool, size_t size,
                                                      size_t align, kn_stream stream) {
    *out = NULL;
    if (size == 0) return KN_OK;
    if (KN__UNLIKELY(pool->dead)) {
        return KN_FAIL(
            KN_ERR_DEVICE,
            "pool %s: this process is a child of fork(), where the driver of %s can't be "
            "used; start it with exec",
            pool->name, kn_device_name(pool->device));
    }
    if (size > KN__SIZE_LIMIT || align > KN__SIZE_LIMIT) {
        kn__pool_lock(pool);
        pool->n_ooms++;
        kn__pool_unlock(pool);
        kn__tell_oom(pool, size);
        return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes aligned to %zu are more than any device has",
                       pool->name, size, align);
    }
    if (pool->decay_ns) kn__decay_tick(pool);
    unsigned class = aligned_class(pool, size, align);
    return class < pool->n_classes ? alloc_small(out, pool, size, class, stream)
                                   : kn__block_alloc(out, pool, size, align, stream);
}

kn_status kn_alloc_aligned(void **out, kn_pool *pool, size_t size_bytes, size_t align,
                           kn_stream stream) {
    if (align == 0 || (align & (align - 1))) {
        *out = NULL;
        return KN_FAIL(KN_ERR_INVALID, "kn_alloc_aligned: align is %zu, not a power of two", align);
    }
    stream = (kn_stream)((uintptr_t)stream & pool->stream_mask);
    return alloc_slow(out, pool, size_bytes, align > KN__GRAIN ? align : KN__GRAIN, stream);
}

/* Under a tag, or observed. */
static __attribute__((noinline)) kn_status hand_out_rare(void **out, kn_pool *pool,
                                                         kn__cache *cache, kn__entry entry,
                                                         size_t size, kn_stream stream) {
    size_t live = kn__class_bytes(kn__class_of(size));
    unsigned tag = kn__tag_now();
    kn__count_alloc(cache, live, size);
    if (tag) tag = kn__tag_alloc(cache, tag, live);
    slot_hand_out(out, pool, entry, tag, live, size, stream);
    return KN_OK;
}

/* What the branches below lead to is called last, so that this needs no stack of its own. */
static inline kn_status alloc_of_key(void **out, kn_pool *pool, size_t size, kn_stream stream,
                                     uint64_t key) {
    kn__thread *self = kn__self;
    if (KN__UNLIKELY(!self || size - 1 >= pool->fast_max)) {
        return size > pool->slab_max && size <= pool->size_max
                   ? kn__block_alloc(out, pool, size, KN__BLOCK_GRAIN, stream)
                   : alloc_slow(out, pool, size, KN__GRAIN, stream);
    }
    kn__cache *cache = self->caches[pool->slot];
    if (KN__UNLIKELY(!cache)) return alloc_slow(out, pool, size, KN__GRAIN, stream);
    kn__rack *rack = cache->current;
    kn__stack *stack = &rack->stacks[kn__class_of(size)];
    bool inside = kn__gate_enter(&cache->gate, &pool->generation, &rack->generation);
    if (KN__UNLIKELY(!inside || rack->key != key || !kn__stack_bytes(stack))) {
        kn__gate_leave(&cache->gate);
        return alloc_slow(out, pool, size, KN__GRAIN, stream);
    }
    kn__entry entry = stack_pop(rack, stack);
    kn__gate_leave(&cache->gate);
    if (KN__UNLIKELY(self->tag || kn__observer())) {
        return hand_out_rare(out, pool, cache, entry, size, stream);
    }
    kn__count_alloc(cache, stack->slot_bytes, size);
    KN__WRITE(entry.slot->both, size); /* no tag, no owner */
    *out = entry.ptr;
    return KN_OK;
}

static __attribute__((noinline)) kn_status alloc_of_id(void **out, kn_pool *pool, size_t size,
                                                       kn_stream stream) {
    return alloc_of_key(out, pool, size, stream, kn__stream_key(pool, stream));
}

kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    stream = (kn_stream)((uintptr_t)stream & pool->stream_mask);
    if (KN__UNLIKELY(stream && pool->has_ids)) return alloc_of_id(out, pool, size_bytes, stream);
    return alloc_of_key(out, pool, size_bytes, stream, (uintptr_t)stream);
}

/* Freeing. */

kn_status kn__misuse(kn_pool *pool, const char *call, const void *ptr, const char *why) {
    kn__pool_lock(pool);
    pool->n_misuses++;
    kn__pool_unlock(pool);
    kn_log_write(0, "%s: %p %s (pool %s)", call, ptr, why, pool->name);
    return KN_FAIL(KN_ERR_INVALID, "%s: %p %s (pool %s)", call, ptr, why, pool->name);
}

static const char *const FREED = "was freed already";
static const char *const INSIDE = "points into a block, not to its start";

/* Why the pointer is no live slot of the slab; NULL: it is one. */
static const char *slot_misuse(const kn__slab *slab, const char *ptr) {
    uint32_t i;
    if (!kn__slab_find(&i, slab, ptr) || i >= slab->n_slots) return INSIDE;
    return KN__READ(slab->slots[i].use) ? NULL : FREED;
}

/* A slot that other streams use: it waits for them. Under the lock. */
static void slot_wait(kn_pool *pool, kn__slab *slab, uint32_t i) {
    kn__waiter **link = &slab->shared;
    while (*link && (*link)->slot != i) link = &(*link)->next;
    KN_ASSERT(*link);
    kn__waiter *waiter = *link;
    *link = waiter->next;
    slab->n_waiting++;
    kn__waiter_enqueue(pool, waiter);
}

/* Into the thread's rack of the stream, or into the slab where there is none: the slot has foreign
 * uses, its stream is gone, or there is no cache. Under the lock. */
static void slot_put(kn_pool *pool, kn__cache *cache, kn__slab *slab, kn__slot *slot, void *ptr,
                     bool shared) {
    uint32_t i = (uint32_t)(slot - slab->slots);
    unsigned class = slab->class, depth = kn__class_depth(class);
    bool gone = slab->stream->retired || slab->stream->hidden;
    kn__rack *rack = cache && !shared && !gone ? rack_get(pool, cache, slab->stream) : NULL;
    if (shared) {
        slot_wait(pool, slab, i);
    } else if (!rack) {
        kn__slab_put(pool, slab, i);
    } else {
        kn__stack *stack = &rack->stacks[class];
        if (kn__stack_n(stack) >= depth) rack_flush_class(pool, rack, class, depth / 2);
        stack_push(rack, stack, (kn__entry){ptr, slot});
    }
}

static kn_status free_slot(kn_pool *pool, kn__slab *slab, char *ptr) {
    const char *why = slot_misuse(slab, ptr);
    if (why) return kn__misuse(pool, "kn_free", ptr, why);
    kn__slot *slot = &slab->slots[kn__slab_index(slab, ptr)];
    uint32_t use = KN__READ(slot->use);
    size_t live = slab->slot_bytes, requested = kn__slot_requested(use);
    bool shared = use & KN__SLOT_SHARED, pushed = false;
    unsigned tag = kn__slot_tag(use);
    const kn_observer *observer = kn__observer(); /* hears of it before another can have it */
    if (observer && observer->on_free) observer->on_free(pool, ptr, live, KN__READ(slot->owner));
    kn__cache *cache = kn__cache_get(pool);
    kn__rack *rack = cache && !shared ? rack_enter(pool, cache, slab->stream->key) : NULL;
    if (rack) {
        kn__stack *stack = &rack->stacks[slab->class];
        pushed = rack->stream == slab->stream && kn__stack_bytes(stack) < slab->depth_bytes;
        if (pushed) {
            KN__WRITE(slot->use, 0);
            stack_push(rack, stack, (kn__entry){ptr, slot});
        }
        kn__gate_leave(&cache->gate);
    }
    if (pushed) {
        kn__count_free(cache, live, requested);
        if (tag) kn__tag_free(cache, tag, live);
        return KN_OK;
    }
    kn__pool_lock(pool);
    kn__count_locked(pool, cache, tag, -(int64_t)live, -(int64_t)requested);
    KN__WRITE(slot->use, 0);
    slot_put(pool, cache, slab, slot, ptr, shared);
    kn__pool_unlock(pool);
    return KN_OK;
}

static __attribute__((noinline)) kn_status free_slow(kn_pool *pool, void *ptr) {
    uintptr_t entry = kn__page_get(pool, ptr);
    return free_slot(pool, (kn__slab *)(entry - KN__TAG_SLAB), ptr);
}

static __attribute__((noinline)) kn_status count_tagged(kn__cache *cache, size_t live,
                                                        uint32_t use) {
    kn__count_free(cache, live, kn__slot_requested(use));
    kn__tag_free(cache, kn__slot_tag(use), live);
    return KN_OK;
}

kn_status kn_free(kn_pool *pool, void *ptr) {
    uintptr_t entry = kn__page_get(pool, ptr);
    kn__cache *cache = kn__cache_of_thread(pool);
    if (!(entry & KN__TAG_SLAB)) return ptr ? kn__block_dealloc(pool, ptr) : KN_OK;
    if (KN__UNLIKELY(!cache || kn__observer())) return free_slow(pool, ptr);
    kn__slab *slab = (kn__slab *)(entry - KN__TAG_SLAB);
    uint32_t i;
    bool starts = kn__slab_find(&i, slab, ptr);
    kn__slot *slot = &slab->slots[i];
    uint32_t use = KN__READ(slot->use);
    kn__rack *rack = cache->current;
    kn__stack *stack = &rack->stacks[slab->class];
    /* Free, or used on other streams. */
    if (KN__UNLIKELY((int32_t)use <= 0 || !starts ||
                     !kn__gate_enter(&cache->gate, &pool->generation, &rack->generation) ||
                     rack->stream != slab->stream || kn__stack_bytes(stack) >= slab->depth_bytes)) {
        kn__gate_leave(&cache->gate);
        return free_slow(pool, ptr);
    }
    size_t live = slab->slot_bytes; /* outside the gate the slab may be gone */
    KN__WRITE(slot->use, 0);
    stack_push(rack, stack, (kn__entry){ptr, slot});
    kn__gate_leave(&cache->gate);
    if (KN__UNLIKELY(kn__slot_tag(use))) return count_tagged(cache, live, use);
    kn__count_free(cache, live, use);
    return KN_OK;
}

/* Uses on other streams. */

static kn_status slot_use(kn_pool *pool, kn__slab *slab, char *ptr, kn__stream *stream) {
    uint32_t i = kn__slab_index(slab, ptr);
    kn__waiter *waiter = slab->shared;
    while (waiter && waiter->slot != i) waiter = waiter->next;
    bool first = !waiter;
    KN_TRY(kn__use_add(pool, &waiter, stream));
    if (!first) return KN_OK;
    waiter->slab = slab;
    waiter->slot = i;
    waiter->next = slab->shared;
    slab->shared = waiter;
    KN__WRITE(slab->slots[i].use, KN__READ(slab->slots[i].use) | KN__SLOT_SHARED);
    return KN_OK;
}

static kn_status use_locked(kn_pool *pool, char *ptr, kn_stream handle, const char **why) {
    uintptr_t entry = kn__page_get(pool, ptr);
    bool is_slot = entry & KN__TAG_SLAB;
    kn__slab *slab = is_slot ? (kn__slab *)(entry - KN__TAG_SLAB) : NULL;
    kn__block *block = is_slot ? slab->block : (kn__block *)entry;
    *why = is_slot ? slot_misuse(slab, ptr) : kn__block_misuse(block, ptr);
    if (*why) return KN_ERR_INVALID;
    kn__stream *stream;
    KN_TRY(kn__stream_get(&stream, pool, handle));
    if (stream == block->stream) return KN_OK;
    return is_slot ? slot_use(pool, slab, ptr, stream) : kn__use_add(pool, &block->waiter, stream);
}

kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream) {
    if (!ptr || pool->ordered) return KN_OK;
    /* NULL is the CPU in a pinned pool: the legacy default stream has its other handle there. */
    if (pool->pinned && !stream) stream = (kn_stream)(uintptr_t)KN__STREAM_LEGACY;
    const char *why = NULL;
    kn__pool_lock(pool);
    kn_status status = use_locked(pool, ptr, stream, &why);
    kn__pool_unlock(pool);
    if (why) return kn__misuse(pool, "kn_block_use", ptr, why);
    const kn_observer *observer = kn__observer();
    if (status == KN_OK && observer && observer->on_use) observer->on_use(pool, ptr, stream);
    return status;
}
