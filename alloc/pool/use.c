/* kn_block_use: uses on other streams. */
#include "core/streams.h"
#include "device/observe.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

static kn_status slot_use(kn_pool *pool, kn__slab *slab, char *ptr, kn__stream *stream) {
    uint32_t i = kn__slab_index(slab, ptr);
    kn__waiter *waiter = slab->shared;
    while (waiter && waiter->slot != i) waiter = waiter->next;
    bool first = !waiter;
    KN_ASSERT(first == !(KN__READ(slab->slots[i].use) & KN__SLOT_SHARED));
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
    uintptr_t page = kn__page_get(&pool->pages, ptr);
    bool is_slot = page & KN__PAGE_IS_SLAB;
    kn__slab *slab = is_slot ? (kn__slab *)(page - KN__PAGE_IS_SLAB) : NULL;
    kn__block *block = is_slot ? slab->block : (kn__block *)page;
    bool live = is_slot ? kn__slot_is_live(slab, ptr) : kn__block_is_live(block, ptr);
    if (KN__UNLIKELY(!live)) {
        *why = is_slot ? kn__slot_misuse(slab, ptr) : kn__block_misuse(block, ptr);
        return KN_ERR_INVALID;
    }
    if (pool->ordered) return KN_OK; /* there is no other stream */
    kn__stream *stream;
    KN_TRY(kn__stream_get(&stream, pool, handle));
    if (stream == block->stream) return KN_OK;
    if (block->stream->graph) { /* its own part of the stream, if it has one */
        kn__stream *part = kn__stream_lookup(pool, stream->key, block->stream->graph);
        if (part == block->stream) return KN_OK;
        if (part) stream = part;
    }
    return is_slot ? slot_use(pool, slab, ptr, stream) : kn__use_add(pool, &block->waiter, stream);
}

kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream) {
    if (!ptr) return KN_OK;
    /* NULL is the CPU in a pinned pool: the legacy default stream has its other handle there. */
    if (pool->pinned && !stream) stream = (kn_stream)(uintptr_t)KN__STREAM_LEGACY;
    const char *why = NULL;
    kn__pool_lock(pool);
    kn_status status = use_locked(pool, ptr, stream, &why);
    kn__pool_unlock(pool);
    if (why) return kn__misuse(pool, "kn_block_use", ptr, why);
    const kn_observer *observer = pool->ordered ? NULL : kn__observer();
    if (status == KN_OK && observer && observer->on_use) observer->on_use(pool, ptr, stream);
    return status;
}
