/* kn_alloc and kn_free, and kn_pool_preallocate: a thread's own slots first, with no lock; then the
 * slabs; then the arena.
 */
#include "cancel.h"
#include "core/arena.h"
#include "core/poison.h"
#include "core/progress.h"
#include "core/reserve.h"
#include "core/streams.h"
#include "device/drivers.h"
#include "device/observe.h"
#include "pool/counts.h"
#include "pool/fault.h"
#include "pool/graph.h"
#include "pool/ladder.h"
#include "pool/large.h"
#include "pool/pause.h"
#include "pool/pool_lock.h"

/* --- allocation --- */

/* Counted already. */
static void slot_hand_out(void **out, kn_pool *pool, kn__slot_ref slot, unsigned tag, size_t live,
                          size_t requested, kn_stream stream) {
    KN__WRITE(slot.slot->both, (uint32_t)requested | tag << KN__SLOT_TAG_SHIFT); /* no owner yet */
    kn__poison_alloc(pool, slot.ptr, requested, live);
    const kn_observer *observer = kn__observer();
    uint32_t owner = 0;
    if (observer && observer->on_alloc) owner = observer->on_alloc(pool, slot.ptr, live, stream);
    KN__WRITE(slot.slot->owner, owner);
    *out = slot.ptr;
}

/* Of a new slab: where memory is short and no block is large enough, of one that has a slot. */
static size_t slab_size(kn_pool *pool, kn__stream *stream, unsigned size_class) {
    size_t bytes = kn__slab_bytes(stream, size_class), slot = kn__size_class_bytes(size_class);
    if (!kn__pool_pressed(pool, bytes) || kn__arena_find(pool, stream, bytes, KN__PAGE)) {
        return bytes;
    }
    return (slot + KN__PAGE - 1) / KN__PAGE * KN__PAGE;
}

/* At least one free slot, at most n. Under the lock. */
static kn_status slots_take(kn__slot_ref *out, unsigned *n, kn_pool *pool, kn__stream *stream,
                            unsigned size_class, size_t requested) {
    unsigned taken;
    while (!(taken = kn__slab_take(stream, size_class, out, *n))) {
        kn__block *block = NULL;
        size_t bytes = slab_size(pool, stream, size_class);
        KN_TRY(kn__ladder(&block, pool, stream, bytes, KN__PAGE, size_class, requested));
        if (block && !kn__slab_create(pool, block, size_class, kn__rack_depth(size_class))) {
            kn__arena_put_home(pool, block, kn__stream_epoch(stream));
            return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a slab", pool->name);
        }
    }
    *n = taken;
    return KN_OK;
}

/* One slot for the caller, and half a stack for its rack, which is empty: else the caller had a
 * slot with no lock. Under the lock; the ladder may open it, so the rack is looked for afterwards.
 */
static kn_status slot_refill(kn__slot_ref *out, kn_pool *pool, kn__cache *cache, kn__stream *stream,
                             unsigned size_class, size_t requested) {
    kn__slot_ref taken[KN__RACK_DEPTH];
    unsigned n = cache ? (kn__rack_depth(size_class) + 1) / 2 : 1;
    KN_TRY(slots_take(taken, &n, pool, stream, size_class, requested));
    *out = taken[--n];
    kn__rack *rack = cache ? kn__rack_get(pool, cache, stream) : NULL;
    kn__stack *stack = rack ? &rack->stacks[size_class] : NULL;
    KN_ASSERT(!stack || !kn__stack_n(stack));
    if (stack)
        kn__stack_fill(rack, stack, taken, n);
    else
        for (; n; n--) kn__slot_put(pool, taken[n - 1]);
    return KN_OK;
}

/* A stream that is captured has no id now, and the racks of the key that it had before. */
static uint64_t key_of_racks(kn_pool *pool, kn_stream handle, uint64_t key) {
    if (KN__LIKELY(!pool->has_ids || kn__key_is_id(key) || kn__stream_is_default(handle)))
        return key;
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    key = kn__stream_known_key(pool, handle);
    kn__pool_unlock(pool);
    return key;
}

static kn_status alloc_small(void **out, kn_pool *pool, size_t size, unsigned size_class,
                             kn_stream handle) {
    unsigned tag = kn__tag_now();
    size_t live = kn__size_class_bytes(size_class);
    uint64_t key = kn__stream_key(pool, handle);
    kn__slot_ref slot = {0};
    kn__cache *cache = kn__cache_get(pool);
    kn__rack *rack = cache ? kn__rack_enter(pool, cache, key_of_racks(pool, handle, key)) : NULL;
    if (rack) {
        if (kn__stack_n(&rack->stacks[size_class])) {
            slot = kn__stack_pop(rack, &rack->stacks[size_class]);
        }
        kn__gate_leave(&cache->gate);
    }
    if (slot.ptr) {
        kn__count_alloc(cache, live, size);
        if (tag) tag = kn__tag_alloc(cache, tag, live);
    } else {
        kn__stream *stream;
        kn__pool_lock(pool);
        kn_status status = kn__stream_of(&stream, pool, handle, key);
        if (status == KN_OK) {
            status = slot_refill(&slot, pool, cache, stream, size_class, size);
        }
        if (status == KN_OK) {
            kn__count_locked(pool, cache, tag, (int64_t)live, (int64_t)size);
        }
        kn__pool_unlock(pool);
        if (status < 0) return kn__alloc_failed(pool, status, size);
    }
    slot_hand_out(out, pool, slot, tag, live, size, handle);
    return KN_OK;
}

enum { WATCH_TICKS = 64 }; /* calls that take no lock between two looks at decay and the limit */

static void watch_tick(kn_pool *pool) {
    kn__cache *cache = kn__cache_of_thread(pool);
    if (!cache || ++cache->n_ticks % WATCH_TICKS) return;
    kn__pool_lock(pool);
    kn__pool_unlock(pool); /* looks at them */
}

/* The class whose slots are large enough and aligned: the class of a multiple of a power
 * of two is a multiple of it too. n_size_classes: too large for a slab. */
static unsigned aligned_class(const kn_pool *pool, size_t size, size_t align) {
    if (size > pool->slab_max || align > KN__PAGE) return pool->n_size_classes;
    return kn__size_class_of((size + align - 1) & ~(align - 1));
}

static __attribute__((noinline)) kn_status alloc_slow(void **out, kn_pool *pool, size_t size,
                                                      size_t align, kn_stream stream) {
    *out = NULL;
    if (size == 0) return KN_OK;
    if (KN__UNLIKELY(pool->dead)) return kn__dead(pool);
    if (KN__UNLIKELY(pool->paused)) return kn__pause_refuses(pool);
    if (size > KN__SIZE_LIMIT || align > KN__SIZE_LIMIT) {
        return kn__too_large(pool, size, align, stream);
    }
    if (!KN__READ(pool->fast_max)) watch_tick(pool);
    unsigned size_class = aligned_class(pool, size + kn__red_zone(pool), align);
    return size_class < pool->n_size_classes ? alloc_small(out, pool, size, size_class, stream)
                                             : kn__large_alloc(out, pool, size, align, stream);
}

/* What gave no pool left an error that is pending. */
static __attribute__((noinline, cold)) kn_status no_pool(void **out, const char *name) {
    *out = NULL;
    KN_TRY(kn_check());
    return KN_FAIL(KN_ERR_INVALID, "%s: pool is NULL", name);
}

kn_status kn_alloc_aligned(void **out, kn_pool *pool, size_t size_bytes, size_t align,
                           kn_stream stream) {
    if (align == 0 || (align & (align - 1))) {
        *out = NULL;
        return KN_FAIL(KN_ERR_INVALID, "kn_alloc_aligned: align is %zu, not a power of two", align);
    }
    if (!pool) return no_pool(out, "kn_alloc_aligned");
    stream = (kn_stream)((uintptr_t)stream & pool->stream_mask);
    return alloc_slow(out, pool, size_bytes, align > KN__GRAIN ? align : KN__GRAIN, stream);
}

/* Under a tag, or observed. */
static __attribute__((noinline)) kn_status hand_out_rare(void **out, kn_pool *pool,
                                                         kn__cache *cache, kn__slot_ref slot,
                                                         size_t size, kn_stream stream) {
    size_t live = kn__size_class_bytes(kn__size_class_of(size));
    unsigned tag = kn__tag_now();
    kn__count_alloc(cache, live, size);
    if (tag) tag = kn__tag_alloc(cache, tag, live);
    slot_hand_out(out, pool, slot, tag, live, size, stream);
    return KN_OK;
}

/* What the branches below lead to is called last, so that this needs no stack of its own. */
static inline kn_status alloc_of_key(void **out, kn_pool *pool, size_t size, kn_stream stream,
                                     uint64_t key) {
    kn__thread *self = kn__self;
    if (KN__UNLIKELY(!self || size - 1 >= KN__READ(pool->fast_max))) {
        return size > pool->slab_max && size <= pool->size_max
                   ? kn__large_alloc(out, pool, size, KN__BLOCK_GRAIN, stream)
                   : alloc_slow(out, pool, size, KN__GRAIN, stream);
    }
    kn__cache *cache = self->caches[pool->slot];
    if (KN__UNLIKELY(!cache)) return alloc_slow(out, pool, size, KN__GRAIN, stream);
    kn__rack *rack = cache->current;
    kn__stack *stack = &rack->stacks[kn__size_class_of(size)];
    bool inside = kn__gate_enter(&cache->gate, &pool->generation, &rack->generation);
    if (KN__UNLIKELY(!inside || rack->key != key || !kn__stack_bytes(stack))) {
        kn__gate_leave(&cache->gate);
        return alloc_slow(out, pool, size, KN__GRAIN, stream);
    }
    kn__slot_ref slot = kn__stack_pop(rack, stack);
    kn__gate_leave(&cache->gate);
    if (KN__UNLIKELY(self->tag || kn__observer())) {
        return hand_out_rare(out, pool, cache, slot, size, stream);
    }
    kn__count_alloc(cache, stack->slot_bytes, size);
    KN__WRITE(slot.slot->both, size); /* no tag, no owner */
    KN__POISON_FAST(kn__poison_alloc(pool, slot.ptr, size, stack->slot_bytes));
    *out = slot.ptr;
    return KN_OK;
}

static __attribute__((noinline)) kn_status alloc_of_id(void **out, kn_pool *pool, size_t size,
                                                       kn_stream stream) {
    return alloc_of_key(out, pool, size, stream, kn__stream_key(pool, stream));
}

kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    if (KN__UNLIKELY(!pool)) return no_pool(out, "kn_alloc");
    stream = (kn_stream)((uintptr_t)stream & pool->stream_mask);
    if (KN__UNLIKELY(stream && pool->has_ids)) return alloc_of_id(out, pool, size_bytes, stream);
    return alloc_of_key(out, pool, size_bytes, stream, (uintptr_t)stream);
}

/* --- of a graph, on demand --- */

/* The graph's part of a stream has no racks: its slots come from the slabs. */
static kn_status alloc_small_graph(void **out, kn_pool_graph *graph, kn_pool *pool, size_t size,
                                   unsigned size_class, kn_stream handle) {
    unsigned tag = kn__tag_now(), n = 1;
    size_t live = kn__size_class_bytes(size_class);
    kn__slot_ref slot;
    kn__stream *part;
    kn__pool_lock(pool);
    kn_status status = kn__graph_part(&part, graph, handle);
    if (status == KN_OK) status = slots_take(&slot, &n, pool, part, size_class, size);
    if (status == KN_OK) {
        kn__count_locked(pool, kn__cache_of_thread(pool), tag, (int64_t)live, (int64_t)size);
    }
    kn__pool_unlock(pool);
    if (status < 0) return kn__alloc_failed(pool, status, size);
    slot_hand_out(out, pool, slot, tag, live, size, handle);
    return KN_OK;
}

kn_status kn_pool_graph_alloc(void **out, kn_pool_graph *graph, size_t size, kn_stream handle) {
    kn_pool *pool;
    *out = NULL;
    KN_TRY(kn__graph_pool(&pool, graph, "kn_pool_graph_alloc"));
    if (size == 0) return KN_OK;
    if (KN__UNLIKELY(pool->dead)) return kn__dead(pool);
    if (KN__UNLIKELY(pool->paused)) return kn__pause_refuses(pool);
    if (size > KN__SIZE_LIMIT) return kn__too_large(pool, size, KN__GRAIN, handle);
    unsigned size_class = aligned_class(pool, size + kn__red_zone(pool), KN__GRAIN);
    return size_class < pool->n_size_classes
               ? alloc_small_graph(out, graph, pool, size, size_class, handle)
               : kn__large_alloc_graph(out, graph, pool, size, handle);
}

/* --- ahead of time --- */

/* Makes free memory of that size. No counter includes it, as no caller gets it; but decay counts it
 * as used now, so that it is kept for the decay time. Under the lock. */
static kn_status make_room(kn_pool *pool, size_t size, kn_stream handle) {
    kn__stream *stream;
    kn__block *block = NULL;
    KN_TRY(kn__stream_get(&stream, pool, handle));
    unsigned size_class = aligned_class(pool, size + kn__red_zone(pool), KN__GRAIN);
    bool small = size_class < pool->n_size_classes;
    size_t bytes = small ? slab_size(pool, stream, size_class) : kn__large_bytes(pool, size);
    KN_TRY(kn__ladder(&block, pool, stream, bytes, small ? KN__PAGE : KN__BLOCK_GRAIN,
                      small ? size_class : KN__NO_SIZE_CLASS, size));
    if (!block) return KN_OK; /* a slab has a slot */
    uint64_t peak = (uint64_t)kn__pool_live(pool) + block->size;
    if (peak > pool->window_peak) pool->window_peak = peak;
    kn__arena_put_home(pool, block, kn__stream_epoch(stream));
    kn__epoch_close_if_full(pool, stream);
    return KN_OK;
}

kn_status kn_pool_preallocate(kn_pool *pool, size_t size_bytes, kn_stream stream) {
    void *none;
    if (!pool) return no_pool(&none, "kn_pool_preallocate");
    if (size_bytes == 0) return KN_OK;
    if (pool->dead) return kn__dead(pool);
    if (pool->paused) return kn__pause_refuses(pool);
    stream = (kn_stream)((uintptr_t)stream & pool->stream_mask);
    if (size_bytes > KN__SIZE_LIMIT) return kn__too_large(pool, size_bytes, KN__GRAIN, stream);
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn_status status = make_room(pool, size_bytes, stream);
    kn__pool_unlock(pool);
    return status < 0 ? kn__alloc_failed(pool, status, size_bytes) : KN_OK;
}

/* --- freeing --- */

static inline void tag_add(kn__cache *cache, unsigned tag, int64_t live) {
    KN__BUMP(KN__READ(cache->tags)[tag].live, live);
    cache->tags_used |= 1ull << tag % 64;
}

/* Where the thread has no counts by tag yet. */
static __attribute__((noinline)) void tag_free_first(kn__cache *cache, unsigned tag, int64_t live) {
    if (kn__tags_create(cache)) {
        tag_add(cache, tag, -live);
        return;
    }
    kn__pool_lock(cache->pool);
    kn__tag_count_locked(cache->pool, tag, -live);
    kn__pool_unlock(cache->pool);
}

static inline void tag_free(kn__cache *cache, unsigned tag, size_t live) {
    if (KN__UNLIKELY(!KN__READ(cache->tags))) {
        tag_free_first(cache, tag, (int64_t)live);
    } else {
        tag_add(cache, tag, -(int64_t)live);
    }
}

/* A slot that other streams use: it waits for them. Under the lock. */
static void slot_wait(kn_pool *pool, kn__slab *slab, uint32_t i) {
    kn__waiter **link = &slab->shared;
    while (*link && (*link)->slot != i) link = &(*link)->next;
    KN_ASSERT(*link);
    kn__waiter *waiter = *link;
    *link = waiter->next;
    kn__slab_set_waits(slab, i, true);
    kn__waiter_enqueue(pool, waiter);
    kn__epochs_ask(pool);
}

/* Into the thread's rack of the stream; into the slab if the slot has foreign uses, if its stream
 * is gone, or if there is no cache. Under the lock. */
static void slot_put(kn_pool *pool, kn__cache *cache, kn__slab *slab, kn__slot *slot, void *ptr,
                     bool shared) {
    uint32_t i = (uint32_t)(slot - slab->slots);
    unsigned size_class = slab->size_class, depth = kn__rack_depth(size_class);
    bool gone = slab->stream->retired || slab->stream->hidden;
    kn__rack *rack = cache && !shared && !gone ? kn__rack_get(pool, cache, slab->stream) : NULL;
    if (shared) {
        slot_wait(pool, slab, i);
    } else if (!rack) {
        kn__slab_put(pool, slab, i);
    } else {
        kn__stack *stack = &rack->stacks[size_class];
        if (kn__stack_n(stack) >= depth) kn__rack_flush(pool, rack, size_class, depth / 2);
        kn__stack_push(rack, stack, (kn__slot_ref){ptr, slot});
    }
}

/* Ends a slot's life and returns its use; 0: it had none. Of two threads that free a block at the
 * same moment one gets 0 in checked builds. The exchange takes as long as the rest of kn_free:
 * where it is not checked, a few instructions are left in which both may get its use. */
static inline uint32_t slot_end(kn__slot *slot) {
#if KN_CHECKED >= 1
    return atomic_exchange_explicit(&slot->use, 0, memory_order_relaxed);
#else
    uint32_t use = KN__READ(slot->use);
    KN__WRITE(slot->use, 0);
    return use;
#endif
}

static kn_status free_slot(kn_pool *pool, kn__slab *slab, char *ptr) {
    kn__slot *slot = &slab->slots[kn__slab_index(slab, ptr)];
    uint32_t use = kn__slot_is_live(slab, ptr) ? slot_end(slot) : 0;
    if (KN__UNLIKELY(!use)) {
        return kn__misuse(pool, "kn_free", ptr, kn__slot_misuse(slab, ptr));
    }
    size_t live = slab->slot_bytes, requested = kn__slot_requested(use);
    bool shared = use & KN__SLOT_SHARED, pushed = false;
    unsigned tag = kn__slot_tag(use);
    const kn_observer *observer = kn__observer(); /* hears of it before another can have it */
    if (observer && observer->on_free) observer->on_free(pool, ptr, live, KN__READ(slot->owner));
    kn__poison_free(pool, ptr, requested, live);
    kn__cache *cache = kn__cache_get(pool);
    kn__rack *rack = cache && !shared ? kn__rack_enter(pool, cache, slab->stream->key) : NULL;
    if (rack) {
        kn__stack *stack = &rack->stacks[slab->size_class];
        pushed = rack->stream == slab->stream && kn__stack_bytes(stack) < slab->depth_bytes;
        if (pushed) kn__stack_push(rack, stack, (kn__slot_ref){ptr, slot});
        kn__gate_leave(&cache->gate);
    }
    if (pushed) {
        kn__count_free(cache, live, requested);
        if (tag) tag_free(cache, tag, live);
        return KN_OK;
    }
    kn__pool_lock(pool);
    kn__count_locked(pool, cache, tag, -(int64_t)live, -(int64_t)requested);
    slot_put(pool, cache, slab, slot, ptr, shared);
    kn__pool_unlock(pool);
    return KN_OK;
}

static __attribute__((noinline)) kn_status free_slow(kn_pool *pool, void *ptr) {
    uintptr_t page = kn__page_get(&pool->pages, ptr);
    return free_slot(pool, (kn__slab *)(page - KN__PAGE_IS_SLAB), ptr);
}

static __attribute__((noinline)) kn_status count_tagged(kn__cache *cache, size_t live,
                                                        uint32_t use) {
    kn__count_free(cache, live, kn__slot_requested(use));
    tag_free(cache, kn__slot_tag(use), live);
    return KN_OK;
}

static __attribute__((noinline, cold)) kn_status free_no_pool(const void *ptr) {
    return ptr ? KN_FAIL(KN_ERR_INVALID, "kn_free: pool is NULL") : KN_OK;
}

kn_status kn_free(kn_pool *pool, void *ptr) {
    if (KN__UNLIKELY(!pool)) return free_no_pool(ptr);
    uintptr_t page = kn__page_get(&pool->pages, ptr);
    kn__cache *cache = kn__cache_of_thread(pool);
    if (!(page & KN__PAGE_IS_SLAB)) return ptr ? kn__large_free(pool, ptr) : KN_OK;
    if (KN__UNLIKELY(!cache || kn__observer())) return free_slow(pool, ptr);
    kn__slab *slab = (kn__slab *)(page - KN__PAGE_IS_SLAB);
    uint32_t i;
    bool starts = kn__slab_find(&i, slab, ptr);
    kn__slot *slot = &slab->slots[i];
    uint32_t use = KN__READ(slot->use);
    kn__rack *rack = cache->current;
    kn__stack *stack = &rack->stacks[slab->size_class];
    /* Free, or used on other streams. */
    if (KN__UNLIKELY((int32_t)use <= 0 || !starts ||
                     !kn__gate_enter(&cache->gate, &pool->generation, &rack->generation) ||
                     rack->stream != slab->stream || kn__stack_bytes(stack) >= slab->depth_bytes)) {
        kn__gate_leave(&cache->gate);
        return free_slow(pool, ptr);
    }
    if (KN_CHECKED < 1) {
        KN__WRITE(slot->use, 0); /* read above */
    } else if (!slot_end(slot)) {
        const char *why = kn__slot_misuse(slab, ptr);
        kn__gate_leave(&cache->gate);
        return kn__misuse(pool, "kn_free", ptr, why);
    }
    size_t live = slab->slot_bytes; /* outside the gate the slab may be gone */
    KN__POISON_FAST(kn__poison_free(pool, ptr, kn__slot_requested(use), live));
    kn__stack_push(rack, stack, (kn__slot_ref){ptr, slot});
    kn__gate_leave(&cache->gate);
    if (KN__UNLIKELY(kn__slot_tag(use))) return count_tagged(cache, live, use);
    kn__count_free(cache, live, use);
    return KN_OK;
}
