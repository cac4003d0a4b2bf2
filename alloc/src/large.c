/* Blocks of their own: under the lock, from the arena, or by the ladder. */
#include "counts.h"
#include "observe.h"
#include "pool_types.h"

kn_status kn__no_stream(const kn_pool *pool) {
    return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a stream", pool->name);
}

void kn__tell_oom(kn_pool *pool, size_t wanted) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_oom) observer->on_oom(pool, wanted);
}

/* Not at hand: by the ladder. Under the lock. */
static __attribute__((noinline)) kn_status find_slow(kn__block **out, kn_pool *pool,
                                                     kn__stream *stream, size_t rounded,
                                                     size_t align, size_t requested) {
    kn__block *block = NULL;
    if (!stream) return kn__no_stream(pool);
    if (align > KN__BLOCK_GRAIN) block = kn__arena_find(pool, stream, rounded, align);
    if (block) block = kn__block_take(pool, block, stream, rounded, align);
    *out = block;
    if (block) return KN_OK;
    return kn__ladder(out, pool, stream, rounded, align, KN__NO_CLASS, requested);
}

kn_status kn__large_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle) {
    size_t rounded = kn__block_round(size);
    if (rounded < KN__PAGE) rounded = KN__PAGE; /* at most one block may start in a page */
    kn__cache *cache = kn__cache_get(pool); /* a thread's counters are exact when put together */
    kn__block *block = NULL;
    kn_status status = KN_OK;
    kn__pool_lock(pool);
    kn__stream *stream = kn__stream_get(pool, handle);
    if (KN__LIKELY(stream && align <= KN__BLOCK_GRAIN)) {
        block = kn__arena_alloc(pool, stream, rounded);
    }
    if (KN__UNLIKELY(!block)) status = find_slow(&block, pool, stream, rounded, align, size);
    if (KN__UNLIKELY(status < 0)) {
        kn__pool_unlock(pool);
        *out = NULL;
        kn__tell_oom(pool, size);
        return status;
    }
    char *ptr = block->ptr;
    unsigned tag = kn__tag_now();
    block->slack = (uint16_t)(rounded - size);
    block->tag = (uint16_t)tag;
    pool->handed_out += rounded;
    KN__WRITE(block->owner, 0);
    kn__page_put(pool, ptr, (uintptr_t)block);
    kn__count_locked(pool, cache, tag, (int64_t)rounded, (int64_t)size);
    kn__pool_unlock(pool);
    const kn_observer *observer = kn__observer();
    if (KN__UNLIKELY(observer && observer->on_alloc)) {
        KN__WRITE(block->owner, observer->on_alloc(pool, ptr, rounded, handle));
    }
    *out = ptr;
    return KN_OK;
}

static const char *const NOT_OURS =
    "is no live block of the pool: freed already, or another pool's";

/* A record that was dropped has no address; one that is not live was freed. */
const char *kn__block_misuse(const kn__block *block, const char *ptr) {
    if (!block || !block->ptr) return NOT_OURS;
    if (block->ptr == ptr) return block->state == KN__LIVE ? NULL : "was freed already";
    bool inside = block->state == KN__LIVE && ptr > block->ptr && ptr < block->ptr + block->size;
    return inside ? "points into a block, not to its start" : NOT_OURS;
}

/* While the observer is told, with the lock open, nobody finds the block. */
static void tell_free(kn_pool *pool, kn__block *block) {
    const kn_observer *observer = kn__observer();
    if (KN__LIKELY(!observer || !observer->on_free)) return;
    kn__page_put(pool, block->ptr, 0);
    kn__pool_unlock(pool);
    observer->on_free(pool, block->ptr, block->size, KN__READ(block->owner));
    kn__pool_lock(pool);
}

kn_status kn__large_free(kn_pool *pool, char *ptr) {
    kn__cache *cache = kn__cache_of_thread(pool);
    __builtin_prefetch((const void *)kn__page_get(pool, ptr));
    kn__pool_lock(pool);
    uintptr_t entry = kn__page_get(pool, ptr); /* nobody changes it now */
    kn__block *block = entry & KN__TAG_SLAB ? NULL : (kn__block *)entry;
    const char *why = kn__block_misuse(block, ptr);
    if (KN__UNLIKELY(why != NULL)) {
        kn__pool_unlock(pool);
        return kn__misuse(pool, "kn_free", ptr, why);
    }
    __builtin_prefetch(block->left, 1); /* the next call joins them */
    __builtin_prefetch(block->right, 1);
    tell_free(pool, block);
    kn__count_locked(pool, cache, block->tag, -(int64_t)block->size,
                     -(int64_t)(block->size - block->slack));
    if (KN__UNLIKELY(block->waiter != NULL)) {
        block->waiter->block = block;
        kn__waiter_enqueue(pool, block->waiter);
    } else {
        kn__arena_free(pool, block);
    }
    kn__pool_unlock(pool);
    return KN_OK;
}
