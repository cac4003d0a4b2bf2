#include "core/waiter.h"

#include "core/arena.h"

static size_t waiter_bytes(const kn__waiter *waiter) {
    return waiter->block ? waiter->block->size : waiter->slab->slot_bytes;
}

kn_status kn__use_add(kn_pool *pool, kn__waiter **waiter, kn__stream *stream) {
    if (*waiter) {
        for (kn__use *use = (*waiter)->uses; use; use = use->next) {
            if (use->stream != stream) continue;
            use->is_new = true;
            return KN_OK;
        }
    }
    kn__use *use = kn__meta_alloc(&pool->meta, sizeof *use);
    if (use && !*waiter) {
        *waiter = kn__meta_alloc(&pool->meta, sizeof **waiter);
        if (*waiter) (*waiter)->home_is_new = true;
    }
    if (!use || !*waiter) {
        if (use) kn__meta_free(&pool->meta, use, sizeof *use);
        return KN_FAIL(KN_ERR_OOM, "kn_block_use: no host memory");
    }
    KN_ASSERT(!stream->retired);
    use->stream = stream;
    use->is_new = true;
    use->waiter = *waiter;
    use->next = (*waiter)->uses;
    (*waiter)->uses = use;
    stream->refs++;
    return KN_OK;
}

void kn__waiter_enqueue(kn_pool *pool, kn__waiter *waiter) {
    size_t bytes = waiter_bytes(waiter);
    KN_ASSERT(waiter->uses && !waiter->n_uses);
    KN_ASSERT(!waiter->block || waiter->block->state == KN__LIVE);
    KN__LIST_ADD(&pool->waiters, waiter);
    pool->waiting_bytes += bytes;
    pool->unasked_bytes += bytes;
    if (waiter->block) {
        kn__block *block = waiter->block;
        kn__block_set(block, KN__WAITING, kn__stream_epoch(block->stream));
        if (!block->stream->retired) block->stream->open_bytes += bytes;
    }
    for (kn__use *use = waiter->uses; use; use = use->next) {
        kn__stream *stream = use->stream;
        use->epoch = kn__stream_epoch(stream);
        if (stream->youngest_use) {
            stream->youngest_use->younger = use;
        } else {
            stream->oldest_use = use;
        }
        stream->youngest_use = use;
        waiter->n_uses++;
        if (stream->retired) continue;
        stream->open_bytes += bytes;
        kn__epoch_close_if_full(pool, stream);
    }
}

static void waiter_destroy(kn_pool *pool, kn__waiter *waiter) {
    for (kn__use *use = waiter->uses, *next; use; use = next) {
        next = use->next;
        use->stream->refs--;
        kn__meta_free(&pool->meta, use, sizeof *use);
    }
    kn__meta_free(&pool->meta, waiter, sizeof *waiter);
}

/* All uses are done: the block is its home stream's again. */
static void waiter_finish(kn_pool *pool, kn__waiter *waiter) {
    KN_ASSERT(!waiter->block || waiter->block->state == KN__WAITING);
    if (waiter->block || waiter->slab) {
        KN__LIST_REMOVE(&pool->waiters, waiter);
        pool->waiting_bytes -= waiter_bytes(waiter);
    }
    if (waiter->block) {
        kn__arena_put_home(pool, waiter->block, waiter->block->epoch); /* that of its free */
    } else if (waiter->slab) {
        kn__slab_set_waits(waiter->slab, waiter->slot, false);
        kn__slab_put(pool, waiter->slab, waiter->slot);
    }
    waiter_destroy(pool, waiter);
}

void kn__use_finish(kn_pool *pool, kn__use *use) {
    KN_ASSERT(use->waiter->n_uses > 0);
    if (--use->waiter->n_uses == 0) waiter_finish(pool, use->waiter);
}

kn_status kn__waiter_take(kn_pool *pool, kn__waiter *waiter, kn__stream *by) {
    kn__block *block = waiter->block;
    KN_ASSERT(block && block->state == KN__WAITING && block->waiter == waiter);
    KN_TRY(kn__epoch_wait(pool, by, block->stream, block->epoch));
    for (kn__use *use = waiter->uses; use; use = use->next) {
        KN_TRY(kn__epoch_wait(pool, by, use->stream, use->epoch));
    }
    KN__LIST_REMOVE(&pool->waiters, waiter);
    pool->waiting_bytes -= waiter_bytes(waiter);
    waiter->block = NULL; /* the record stays until its uses leave their streams' queues */
    kn__arena_put(pool, block, by, by->epoch);
    return KN_OK;
}
