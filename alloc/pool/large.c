#include "pool/large.h"

#include "core/arena.h"
#include "core/poison.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/observe.h"
#include "pool/counts.h"
#include "pool/fault.h"
#include "pool/graph.h"
#include "pool/ladder.h"
#include "pool/pause.h"
#include "pool/pool_lock.h"

/* Under the lock. `graph`: NULL, but for the graph's own memory. */
static inline kn_status find_block(kn__block **out, kn_pool *pool, size_t size, size_t align,
                                   kn_stream handle, uint64_t key, kn_pool_graph *graph) {
    size_t rounded = kn__large_bytes(pool, size);
    kn__stream *stream;
    if (graph) {
        KN_TRY(kn__graph_part(&stream, graph, handle));
    } else {
        KN_TRY(kn__stream_of(&stream, pool, handle, key));
    }
    kn__block *block = kn__arena_find(pool, stream, rounded, align);
    *out = block ? kn__arena_take(pool, block, stream, rounded, align) : NULL;
    return *out ? KN_OK : kn__ladder(out, pool, stream, rounded, align, KN__NO_SIZE_CLASS, size);
}

static inline kn_status large_alloc(void **out, kn_pool *pool, size_t size, size_t align,
                                    kn_stream handle, kn_pool_graph *graph) {
    kn__cache *cache = kn__cache_get(pool); /* so that a thread's counters are exact when folded */
    unsigned tag = kn__tag_now();
    uint64_t key = kn__stream_key(pool, handle);
    kn__block *block = NULL;
    kn__pool_lock(pool);
    kn_status status = find_block(&block, pool, size, align, handle, key, graph);
    if (KN__UNLIKELY(status < 0)) {
        kn__pool_unlock(pool);
        *out = NULL;
        return kn__alloc_failed(pool, status, size);
    }
    size_t rounded = block->size;
    char *ptr = *out = block->ptr;
    block->of_live = (uint64_t)(rounded - size) << 32 | (uint64_t)tag << 48;
    kn__page_set(&pool->pages, ptr, (uintptr_t)block);
    kn__count_locked(pool, cache, tag, (int64_t)rounded, (int64_t)size);
    kn__pool_unlock(pool);
    kn__poison_alloc(pool, ptr, size, rounded);
    const kn_observer *observer = kn__observer();
    if (KN__UNLIKELY(observer && observer->on_alloc)) {
        KN__WRITE(block->owner, observer->on_alloc(pool, ptr, rounded, handle));
    }
    return KN_OK;
}

kn_status kn__large_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle) {
    return large_alloc(out, pool, size, align, handle, NULL);
}

kn_status kn__large_alloc_graph(void **out, kn_pool_graph *graph, kn_pool *pool, size_t size,
                                kn_stream handle) {
    return large_alloc(out, pool, size, KN__BLOCK_GRAIN, handle, graph);
}

/* While the observer runs, with the lock open, the page map doesn't know the block. */
static void tell_free(kn_pool *pool, kn__block *block) {
    const kn_observer *observer = kn__observer();
    if (KN__LIKELY(!observer || !observer->on_free)) return;
    kn__page_set(&pool->pages, block->ptr, 0);
    kn__pool_unlock(pool);
    observer->on_free(pool, block->ptr, block->size, KN__READ(block->owner));
    kn__pool_lock(pool);
}

kn_status kn__large_free(kn_pool *pool, char *ptr) {
    __builtin_prefetch(
        (const void *)kn__page_get(&pool->pages, ptr)); /* of many it is not in the cache */
    kn__pool_lock(pool);
    uintptr_t page =
        kn__page_get(&pool->pages, ptr); /* again: it may have changed before the lock */
    kn__block *block = page & KN__PAGE_IS_SLAB ? NULL : (kn__block *)page;
    if (KN__UNLIKELY(!kn__block_is_live(block, ptr))) {
        const char *why = kn__block_misuse(block, ptr);
        kn__pool_unlock(pool);
        return kn__misuse(pool, "kn_free", ptr, why);
    }
    KN_ASSERT(block); /* a misuse otherwise */
    if (KN__UNLIKELY(pool->pauses && kn__pause_holds(pool, block))) {
        kn__pool_unlock(pool);
        return kn__misuse(pool, "kn_free", ptr, "is paused; kn_pool_resume brings its memory back");
    }
    tell_free(pool, block);
    kn__poison_free(pool, ptr, block->size - block->slack, block->size);
    kn__stream *home = block->stream;
    kn__count_locked(pool, kn__cache_of_thread(pool), block->tag, -(int64_t)block->size,
                     -(int64_t)(block->size - block->slack));
    if (KN__UNLIKELY(block->waiter)) {
        block->waiter->block = block;
        kn__waiter_enqueue(pool, block->waiter);
        kn__epochs_ask(pool);
    } else {
        kn__arena_put_home(pool, block, kn__stream_epoch(home));
    }
    kn__epoch_close_if_full(pool, home);
    kn__pool_unlock(pool);
    return KN_OK;
}
