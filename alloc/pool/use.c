/* kn_block_use: uses on other streams; kn_block_await: writers wait for them. */
#include "cancel.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/observe.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

typedef struct live {
    kn__block *block;
    kn__slab *slab; /* whose slot it is; NULL: a block */
    uint32_t slot;
    kn__waiter *waiter; /* NULL: no other stream uses it */
} live;

static kn_status live_find(live *out, kn_pool *pool, char *ptr, const char **why) {
    uintptr_t page = kn__page_get(&pool->pages, ptr);
    bool is_slot = page & KN__PAGE_IS_SLAB;
    kn__slab *slab = is_slot ? (kn__slab *)(page - KN__PAGE_IS_SLAB) : NULL;
    kn__block *block = is_slot ? slab->block : (kn__block *)page;
    bool is_live = is_slot ? kn__slot_is_live(slab, ptr) : kn__block_is_live(block, ptr);
    if (KN__UNLIKELY(!is_live)) {
        *why = is_slot ? kn__slot_misuse(slab, ptr) : kn__block_misuse(block, ptr);
        return KN_ERR_INVALID;
    }
    *out = (live){.block = block, .slab = slab};
    if (!is_slot) {
        out->waiter = block->waiter;
        return KN_OK;
    }
    out->slot = kn__slab_index(slab, ptr);
    kn__waiter *waiter = slab->shared;
    while (waiter && waiter->slot != out->slot) waiter = waiter->next;
    KN_ASSERT(!waiter == !(KN__READ(slab->slots[out->slot].use) & KN__SLOT_SHARED));
    out->waiter = waiter;
    return KN_OK;
}

static kn_status slot_use(kn_pool *pool, live *found, kn__stream *stream) {
    kn__slab *slab = found->slab;
    bool first = !found->waiter;
    KN_TRY(kn__use_add(pool, &found->waiter, stream));
    if (!first) return KN_OK;
    kn__waiter *waiter = found->waiter;
    kn__slot *slot = &slab->slots[found->slot];
    waiter->slab = slab;
    waiter->slot = found->slot;
    waiter->next = slab->shared;
    slab->shared = waiter;
    KN__WRITE(slot->use, KN__READ(slot->use) | KN__SLOT_SHARED);
    return KN_OK;
}

/* The stream as uses of the block name it. */
static kn_status stream_for(kn__stream **out, kn_pool *pool, const kn__block *block,
                            kn_stream handle, uint64_t key) {
    KN_TRY(kn__stream_of(out, pool, handle, key));
    if (*out == block->stream || !block->stream->graph) return KN_OK;
    /* its own part of the stream, if it has one */
    kn__stream *part = kn__stream_lookup(pool, (*out)->key, block->stream->graph);
    if (part) *out = part;
    return KN_OK;
}

static kn_status use_locked(kn_pool *pool, char *ptr, kn_stream handle, uint64_t key,
                            const char **why) {
    live found;
    kn__stream *stream;
    KN_TRY(live_find(&found, pool, ptr, why));
    if (pool->ordered) return KN_OK; /* there is no other stream */
    KN_TRY(stream_for(&stream, pool, found.block, handle, key));
    if (stream == found.block->stream) {
        if (found.waiter) found.waiter->home_is_new = true;
        return KN_OK;
    }
    return found.slab ? slot_use(pool, &found, stream)
                      : kn__use_add(pool, &found.block->waiter, stream);
}

/* NULL is the CPU in a pinned pool: the legacy default stream has its other handle there. */
static kn_stream handle_in(const kn_pool *pool, kn_stream stream) {
    return pool->pinned && !stream ? (kn_stream)(uintptr_t)KN__STREAM_LEGACY : stream;
}

kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream) {
    if (!ptr) return KN_OK;
    KN_TRY(kn__pool_given(pool, __func__));
    stream = handle_in(pool, stream);
    uint64_t key = kn__stream_key(pool, stream);
    const char *why = NULL;
    kn__pool_lock(pool);
    kn_status status = use_locked(pool, ptr, stream, key, &why);
    kn__pool_unlock(pool);
    if (why) return kn__misuse(pool, "kn_block_use", ptr, why);
    const kn_observer *observer = pool->ordered ? NULL : kn__observer();
    if (status == KN_OK && observer && observer->on_use) observer->on_use(pool, ptr, stream);
    return status;
}

/* --- writers --- */

/* For all that the user has enqueued. UNSUPPORTED: no event can be recorded there. */
static kn_status await(kn_pool *pool, kn__stream *by, kn__stream *user) {
    if (user == by || user->lost) return KN_OK;
    if (!user->retired) user->open_bytes++; /* its epoch closes with an event */
    kn_status status = kn__epoch_wait(pool, by, user, kn__stream_epoch(user));
    return status == KN_ERR_UNSUPPORTED ? KN_OK : status;
}

static kn_status await_locked(kn_pool *pool, char *ptr, kn_stream handle, const char **why) {
    live found;
    kn__stream *by;
    KN_TRY(live_find(&found, pool, ptr, why));
    if (pool->ordered) return KN_OK;
    KN__CANCEL_LATER();
    KN_TRY(stream_for(&by, pool, found.block, handle, kn__stream_key(pool, handle)));
    if (kn__stream_capturing(pool, by->handle)) return KN_OK; /* nothing runs now */
    if (!found.waiter) return await(pool, by, found.block->stream);
    for (kn__use *use = found.waiter->uses; use; use = use->next) {
        if (!use->is_new) continue;
        KN_TRY(await(pool, by, use->stream));
        use->is_new = false;
    }
    if (found.waiter->home_is_new) KN_TRY(await(pool, by, found.block->stream));
    found.waiter->home_is_new = false;
    return KN_OK;
}

kn_status kn_block_await(kn_pool *pool, void *ptr, kn_stream stream) {
    if (!ptr) return KN_OK;
    KN_TRY(kn__pool_given(pool, __func__));
    const char *why = NULL;
    kn__pool_lock(pool);
    kn_status status = await_locked(pool, ptr, handle_in(pool, stream), &why);
    kn__pool_unlock(pool);
    return why ? kn__misuse(pool, "kn_block_await", ptr, why) : status;
}
