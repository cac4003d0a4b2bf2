/* kn_alloc and kn_free: a thread's own slots first, with no lock; then the slabs; then the arena.
 *
 * A thread has a cache per pool, a cache has a rack per stream, a rack has a stack of slots per
 * size class. Racks of streams that were retired since are found by the pool's generation and
 * emptied by their thread when it next comes by. */
#include <stdlib.h>
#include <string.h>

#include "counts.h"
#include "devices.h"
#include "observe.h"
#include "pool_types.h"

static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER; /* who has caches of which pool */
static uint64_t slots_taken;
static const kn__rack no_rack; /* of generation 0, which no pool has */

void kn__caches_lock(void) { pthread_mutex_lock(&caches_lock); }
void kn__caches_unlock(void) { pthread_mutex_unlock(&caches_lock); }

/* Counters. */

static inline uint32_t generation_of(const kn_pool *pool) {
    return atomic_load_explicit(&pool->generation, memory_order_acquire);
}

void kn__cache_fold(kn_pool *pool, kn__cache *cache) {
    if (KN__READ(cache->n_allocs) == 0 && KN__READ(cache->live) == 0)
        return; /* nothing since the last */
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
        kn__slab_put(pool, slab, kn__slab_index(slab, rack->entries[class][i].ptr));
    }
    memmove(rack->entries[class], rack->entries[class] + gone, n * sizeof(kn__entry));
    kn__stack_set_n(stack, n);
}

static void rack_flush(kn_pool *pool, kn__rack *rack) {
    for (unsigned class = 0; class < pool->n_classes; class ++) {
        if (kn__stack_n(&rack->stacks[class])) rack_flush_class(pool, rack, class, 0);
    }
}

void kn__cache_flush(kn_pool *pool, kn__cache *cache) {
    for (kn__rack *rack = cache->racks; rack; rack = rack->next) rack_flush(pool, rack);
}

/* Streams were retired, or captured into a graph: their racks go. Under the lock. */
static void cache_renew(kn_pool *pool, kn__cache *cache) {
    uint32_t generation = generation_of(pool);
    cache->current = (kn__rack *)(uintptr_t)&no_rack;
    for (kn__rack **link = &cache->racks; *link;) {
        kn__rack *rack = *link;
        rack->generation = generation;
        if (!rack->stream->retired && !rack->stream->hidden) {
            link = &rack->next;
            continue;
        }
        rack_flush(pool, rack);
        *link = rack->next;
        rack->stream->refs--;
        free(rack);
    }
}

/* The rack of the stream, made if need be; NULL: no host memory. Under the lock. */
static kn__rack *rack_get(kn_pool *pool, kn__cache *cache, kn__stream *stream) {
    cache_renew(pool, cache);
    kn__rack *rack = cache->racks;
    while (rack && rack->stream != stream) rack = rack->next;
    if (!rack) {
        rack = calloc(1, sizeof *rack + pool->n_classes * sizeof rack->entries[0]);
        if (!rack) return NULL;
        for (unsigned class = 0; class < pool->n_classes; class ++) {
            rack->stacks[class] = (kn__stack){.top = class * KN__STACK_BYTES,
                                              .slot_bytes = (uint32_t)kn__class_bytes(class)};
        }
        rack->handle = stream->handle;
        rack->stream = stream;
        rack->generation = generation_of(pool);
        rack->next = cache->racks;
        cache->racks = rack;
        stream->refs++;
    }
    return cache->current = rack;
}

/* The rack that takes a stream's slots, when the thread has it already: no lock. */
static kn__rack *rack_known(const kn_pool *pool, kn__cache *cache, const kn__stream *stream,
                            kn_stream handle) {
    uint32_t generation = generation_of(pool);
    for (kn__rack *rack = cache->racks; rack; rack = rack->next) {
        if (rack->generation != generation) return NULL;
        if (stream ? rack->stream == stream : rack->handle == handle) return cache->current = rack;
    }
    return NULL;
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

static void cache_destroy(kn__cache *cache) {
    for (kn__rack *rack = cache->racks, *next; rack; rack = next) {
        next = rack->next;
        rack->stream->refs--;
        free(rack);
    }
    free(KN__READ(cache->tags));
    free(cache);
}

void kn__caches_attach(kn_pool *pool) {
    kn__caches_lock();
    pool->slot = ~slots_taken ? (uint32_t)__builtin_ctzll(~slots_taken) : KN__POOL_SLOTS;
    if (pool->slot < KN__POOL_SLOTS) slots_taken |= 1ull << pool->slot;
    kn__caches_unlock();
}

void kn__caches_detach(kn_pool *pool) {
    kn__caches_lock();
    kn__pool_lock(pool);
    while (pool->caches) {
        kn__cache *cache = pool->caches;
        pool->caches = cache->next;
        cache->thread->caches[pool->slot] = NULL;
        kn__cache_fold(pool, cache);
        kn__cache_flush(pool, cache);
        cache_destroy(cache);
    }
    kn__pool_unlock(pool);
    if (pool->slot < KN__POOL_SLOTS) slots_taken &= ~(1ull << pool->slot);
    kn__caches_unlock();
}

void kn__thread_end_caches(kn__thread *thread) {
    kn__caches_lock();
    for (int i = 0; i < KN__POOL_SLOTS; i++) {
        kn__cache *cache = thread->caches[i];
        if (!cache) continue;
        kn_pool *pool = cache->pool;
        kn__pool_lock(pool);
        kn__cache_fold(pool, cache);
        kn__cache_flush(pool, cache);
        kn__cache **link = &pool->caches;
        while (*link != cache) link = &(*link)->next;
        *link = cache->next;
        cache_destroy(cache);
        kn__pool_unlock(pool);
        thread->caches[i] = NULL;
    }
    kn__caches_unlock();
}

/* Allocation. */

static void *slot_hand_out(kn_pool *pool, kn__entry entry, unsigned tag, size_t live,
                           size_t requested, kn_stream stream) {
    KN__WRITE(entry.slot->use, (uint32_t)requested | tag << KN__SLOT_TAG_SHIFT);
    const kn_observer *observer = kn__observer();
    uint32_t owner = 0;
    if (observer && observer->on_alloc) owner = observer->on_alloc(pool, entry.ptr, live, stream);
    KN__WRITE(entry.slot->owner, owner);
    return entry.ptr;
}

static inline kn__entry *stack_top(kn__rack *rack, const kn__stack *stack) {
    return (kn__entry *)(void *)((char *)rack->entries + stack->top);
}

static inline kn__entry stack_pop(kn__rack *rack, kn__stack *stack) {
    stack->top -= (uint32_t)sizeof(kn__entry);
    return *stack_top(rack, stack);
}

static inline void stack_push(kn__rack *rack, kn__stack *stack, kn__entry entry) {
    *stack_top(rack, stack) = entry;
    stack->top += (uint32_t)sizeof(kn__entry);
}

/* Under a tag, or observed. */
static __attribute__((noinline)) kn_status rack_pop(void **out, kn_pool *pool, kn__cache *cache,
                                                    kn__rack *rack, kn__stack *stack,
                                                    size_t requested) {
    unsigned tag = kn__tag_now();
    size_t live = stack->slot_bytes;
    kn__entry entry = stack_pop(rack, stack);
    kn__count_alloc(cache, live, requested);
    if (tag) tag = kn__tag_alloc(cache, tag, live);
    *out = slot_hand_out(pool, entry, tag, live, requested, rack->handle);
    return KN_OK;
}

/* At least one free slot, at most n. Under the lock. */
static kn_status slots_take(kn__entry *out, unsigned *n, kn_pool *pool, kn__stream *stream,
                            unsigned class, size_t requested) {
    unsigned taken;
    while (!(taken = kn__slab_take(pool, stream, class, out, *n))) {
        kn__block *block = NULL;
        size_t bytes = kn__slab_bytes(stream, class);
        KN_TRY(kn__ladder(&block, pool, stream, bytes, KN__PAGE, class, requested));
        if (block && !kn__slab_new(pool, block, class)) {
            kn__block_release(pool, block);
            return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a slab", pool->name);
        }
    }
    *n = taken;
    return KN_OK;
}

/* Fills the rack's stack, if it is empty. Under the lock. */
static kn_status rack_fill(kn_pool *pool, kn__rack *rack, unsigned class, size_t requested) {
    kn__stack *stack = &rack->stacks[class];
    if (kn__stack_n(stack)) return KN_OK;
    kn__entry taken[KN__RACK_DEPTH];
    unsigned n = kn__class_depth(class) / 2;
    KN_TRY(slots_take(taken, &n, pool, rack->stream, class, requested));
    KN_ASSERT(!kn__stack_n(stack)); /* callbacks may have freed; the ladder flushed it */
    memcpy(rack->entries[class], taken, n * sizeof taken[0]);
    kn__stack_set_n(stack, n);
    return KN_OK;
}

static kn_status alloc_small(void **out, kn_pool *pool, size_t size, unsigned class,
                             kn_stream handle) {
    unsigned n = 1, tag = kn__tag_now();
    size_t live = kn__class_bytes(class);
    kn__cache *cache = kn__cache_get(pool);
    kn__rack *rack = cache ? rack_known(pool, cache, NULL, handle) : NULL;
    if (rack && kn__stack_n(&rack->stacks[class])) {
        return rack_pop(out, pool, cache, rack, &rack->stacks[class], size);
    }
    kn__entry one;
    kn__pool_lock(pool);
    kn__stream *stream = kn__stream_get(pool, handle);
    kn_status status = stream ? KN_OK : kn__no_stream(pool);
    if (cache) kn__cache_fold(pool, cache);
    rack = stream && cache ? rack_get(pool, cache, stream) : NULL;
    if (rack) {
        status = rack_fill(pool, rack, class, size);
    } else if (status == KN_OK) {
        status = slots_take(&one, &n, pool, stream, class, size);
        if (status == KN_OK) kn__count_locked(pool, NULL, tag, (int64_t)live, (int64_t)size);
    }
    kn__pool_unlock(pool);
    if (status < 0) {
        kn__tell_oom(pool, size);
        return status;
    }
    if (rack) return rack_pop(out, pool, cache, rack, &rack->stacks[class], size);
    *out = slot_hand_out(pool, one, tag, live, size, handle);
    return KN_OK;
}

enum { SPECIAL_STREAMS = 2 }; /* the handles 1 and 2 name no one stream */

static kn_status stream_check(const kn_pool *pool, kn_stream *stream) {
    if (pool->driver->kind != KN_DEVICE_CUDA) return KN_OK;
    if ((uintptr_t)*stream == 1) *stream = NULL; /* CU_STREAM_LEGACY */
    if ((uintptr_t)*stream != 2) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "pool %s: cudaStreamPerThread is another stream in every thread; use "
                   "kn_stream_of_thread",
                   pool->name);
}

/* The class whose slots are large enough and aligned; all of a slab's are where their size is a
 * multiple of the alignment. n_classes: none is. */
static unsigned aligned_class(const kn_pool *pool, size_t size, size_t align) {
    if (size > pool->slab_max || align > KN__PAGE) return pool->n_classes;
    size_t rounded = (size + align - 1) & ~(align - 1);
    if (kn__class_bytes(kn__class_of(rounded)) % align) {
        rounded = (size_t)1 << (64 - __builtin_clzll(rounded - 1));
    }
    return kn__class_of(rounded);
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
    KN_TRY(stream_check(pool, &stream));
    if (size > KN__SIZE_LIMIT || align > KN__SIZE_LIMIT) {
        kn__pool_lock(pool);
        pool->n_ooms++;
        kn__pool_unlock(pool);
        kn__tell_oom(pool, size);
        return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes aligned to %zu are more than any device has",
                       pool->name, size, align);
    }
    unsigned class = aligned_class(pool, size, align);
    return class < pool->n_classes ? alloc_small(out, pool, size, class, stream)
                                   : kn__large_alloc(out, pool, size, align, stream);
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

/* What the branches below lead to is called last, so that this needs no stack of its own. */
kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    stream = (kn_stream)((uintptr_t)stream & pool->stream_mask);
    kn__thread *self = kn__self;
    if (KN__LIKELY(self && size_bytes - 1 < pool->slab_max)) {
        kn__cache *cache = self->caches[pool->slot];
        if (KN__UNLIKELY(!cache)) return alloc_slow(out, pool, size_bytes, KN__GRAIN, stream);
        kn__rack *rack = cache->current;
        kn__stack *stack = &rack->stacks[kn__class_of(size_bytes)];
        if (KN__UNLIKELY(rack->handle != stream || rack->generation != generation_of(pool) ||
                         !kn__stack_bytes(stack))) {
            return alloc_slow(out, pool, size_bytes, KN__GRAIN, stream);
        }
        if (KN__UNLIKELY(self->tag || kn__observer())) {
            return rack_pop(out, pool, cache, rack, stack, size_bytes);
        }
        kn__count_alloc(cache, stack->slot_bytes, size_bytes);
        kn__entry entry = stack_pop(rack, stack);
        KN__WRITE(entry.slot->both, size_bytes); /* no tag, no owner */
        *out = entry.ptr;
        return KN_OK;
    }
    if (KN__LIKELY(size_bytes - 1 < pool->large_max && size_bytes > pool->slab_max &&
                   (uintptr_t)stream - 1 >= SPECIAL_STREAMS)) {
        return kn__block_alloc(out, pool, size_bytes, stream);
    }
    return alloc_slow(out, pool, size_bytes, KN__GRAIN, stream);
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
    uint32_t i = kn__slab_index(slab, ptr);
    if (i >= slab->n_slots || !kn__slab_starts(slab, ptr)) return INSIDE;
    return KN__READ(slab->slots[i].use) ? NULL : FREED;
}

static inline void slot_tell_free(kn_pool *pool, kn__slot *slot, void *ptr, size_t live) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_free) observer->on_free(pool, ptr, live, KN__READ(slot->owner));
}

/* Under a tag, or observed. */
static __attribute__((noinline)) kn_status rack_push(kn_pool *pool, kn__cache *cache,
                                                     kn__rack *rack, kn__slab *slab, kn__slot *slot,
                                                     void *ptr) {
    uint32_t use = KN__READ(slot->use);
    unsigned tag = kn__slot_tag(use);
    slot_tell_free(pool, slot, ptr, slab->slot_bytes); /* before another can have it */
    kn__count_free(cache, slab->slot_bytes, kn__slot_requested(use));
    if (tag) kn__tag_free(cache, tag, slab->slot_bytes);
    KN__WRITE(slot->use, 0);
    stack_push(rack, &rack->stacks[slab->class], (kn__entry){ptr, slot});
    return KN_OK;
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

/* Not through a rack: the slot has foreign uses, its stream is gone, or there is no cache. */
static void slot_free_locked(kn_pool *pool, kn__slab *slab, uint32_t i, void *ptr) {
    kn__slot *slot = &slab->slots[i];
    slot_tell_free(pool, slot, ptr, slab->slot_bytes);
    kn__pool_lock(pool);
    uint32_t use = KN__READ(slot->use);
    kn__count_locked(pool, kn__cache_of_thread(pool), kn__slot_tag(use), -(int64_t)slab->slot_bytes,
                     -(int64_t)kn__slot_requested(use));
    KN__WRITE(slot->use, 0);
    if (use & KN__SLOT_SHARED) {
        slot_wait(pool, slab, i);
    } else {
        kn__slab_put(pool, slab, i);
    }
    kn__pool_unlock(pool);
}

static kn_status free_slot(kn_pool *pool, kn__slab *slab, char *ptr) {
    const char *why = slot_misuse(slab, ptr);
    if (why) return kn__misuse(pool, "kn_free", ptr, why);
    uint32_t i = kn__slab_index(slab, ptr);
    unsigned class = slab->class, depth = kn__class_depth(class);
    kn__slot *slot = &slab->slots[i];
    kn__cache *cache = kn__cache_get(pool);
    kn__rack *rack = NULL;
    if (cache && !(KN__READ(slot->use) & KN__SLOT_SHARED)) {
        rack = rack_known(pool, cache, slab->stream, NULL);
        if (!rack || kn__stack_n(&rack->stacks[class]) >= depth) {
            kn__pool_lock(pool);
            kn__cache_fold(pool, cache);
            bool gone = slab->stream->retired || slab->stream->hidden;
            rack = gone ? NULL : rack_get(pool, cache, slab->stream);
            if (rack && kn__stack_n(&rack->stacks[class]) >= depth) {
                rack_flush_class(pool, rack, class, depth / 2);
            }
            kn__pool_unlock(pool);
        }
    }
    if (rack) return rack_push(pool, cache, rack, slab, slot, ptr);
    slot_free_locked(pool, slab, i, ptr);
    return KN_OK;
}

static __attribute__((noinline)) kn_status free_slow(kn_pool *pool, void *ptr) {
    if (!ptr) return KN_OK;
    uintptr_t entry = kn__page_get(pool, ptr);
    if (entry & KN__TAG_SLAB) return free_slot(pool, (kn__slab *)(entry - KN__TAG_SLAB), ptr);
    return entry ? kn__block_dealloc(pool, ptr, (kn__block *)entry)
                 : kn__misuse(pool, "kn_free", ptr, kn__block_misuse(NULL, ptr));
}

kn_status kn_free(kn_pool *pool, void *ptr) {
    uintptr_t entry = kn__page_get(pool, ptr);
    if (KN__UNLIKELY(!entry)) return free_slow(pool, ptr);
    if (!(entry & KN__TAG_SLAB)) return kn__block_dealloc(pool, ptr, (kn__block *)entry);
    kn__slab *slab = (kn__slab *)(entry - KN__TAG_SLAB);
    kn__cache *cache = kn__cache_of_thread(pool);
    kn__slot *slot = &slab->slots[kn__slab_index(slab, ptr)];
    uint32_t use = KN__READ(slot->use);
    if (KN__UNLIKELY(!cache || !kn__slab_starts(slab, ptr))) return free_slow(pool, ptr);
    kn__rack *rack = cache->current;
    kn__stack *stack = &rack->stacks[slab->class];
    if (KN__UNLIKELY(rack->stream != slab->stream || rack->generation != generation_of(pool) ||
                     kn__stack_bytes(stack) >= slab->depth_bytes || (int32_t)use <= 0)) {
        return free_slow(pool, ptr);
    }
    if (KN__UNLIKELY(kn__slot_tag(use) || kn__observer())) {
        return rack_push(pool, cache, rack, slab, slot, ptr);
    }
    kn__count_free(cache, slab->slot_bytes, use);
    KN__WRITE(slot->use, 0);
    stack_push(rack, stack, (kn__entry){ptr, slot});
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
    kn__stream *stream = kn__stream_get(pool, handle);
    if (!stream) return kn__no_stream(pool);
    if (stream == block->stream) return KN_OK;
    return is_slot ? slot_use(pool, slab, ptr, stream) : kn__use_add(pool, &block->waiter, stream);
}

kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream) {
    if (!ptr || kn__pool_ordered(pool)) return KN_OK;
    KN_TRY(stream_check(pool, &stream));
    /* NULL is the CPU in a pinned pool; 1 is what CUDA calls the legacy default stream too. */
    if (pool->pinned && !stream) stream = (kn_stream)(uintptr_t)1;
    const char *why = NULL;
    kn__pool_lock(pool);
    kn_status status = use_locked(pool, ptr, stream, &why);
    kn__pool_unlock(pool);
    if (why) return kn__misuse(pool, "kn_block_use", ptr, why);
    const kn_observer *observer = kn__observer();
    if (status == KN_OK && observer && observer->on_use) observer->on_use(pool, ptr, stream);
    return status;
}
