#include "pool/fault.h"

#include <stdio.h>

#include "cancel.h"
#include "device/observe.h"
#include "device/thread.h"
#include "pool/inspector.h"
#include "pool/pool_lock.h"

static const char *const FREED = "was freed already";
static const char *const INSIDE = "points into a block, not to its start";
static const char *const NOT_OURS =
    "is no live block of the pool: freed already, never handed out, inside a block, or another "
    "pool's";

const char *kn__block_misuse(const kn__block *block, const char *ptr) {
    if (!block || !block->ptr) return NOT_OURS;
    if (block->ptr == ptr) return FREED;
    bool inside = block->state == KN__LIVE && ptr > block->ptr && ptr < block->ptr + block->size;
    return inside ? INSIDE : NOT_OURS;
}

const char *kn__slot_misuse(const kn__slab *slab, const char *ptr) {
    uint32_t i;
    bool starts = kn__slab_find(&i, slab, ptr);
    if (i >= slab->n_slots) return NOT_OURS;
    const kn__slot *slot = &slab->slots[i];
    if (!starts) return KN__READ(slot->use) ? INSIDE : NOT_OURS;
    return KN__READ(slot->owner) == KN__SLOT_NEW ? NOT_OURS : FREED;
}

kn_status kn__misuse(kn_pool *pool, const char *call, const void *ptr, const char *why) {
    kn__pool_lock(pool);
    pool->n_misuses++;
    kn__pool_unlock(pool);
    kn_log_write(0, "%s: %p %s (pool %s)", call, ptr, why, pool->name);
    return KN_FAIL(KN_ERR_INVALID, "%s: %p %s (pool %s)", call, ptr, why, pool->name);
}

static void tell_oom(kn_pool *pool, size_t wanted_bytes) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_oom) observer->on_oom(pool, wanted_bytes);
    kn__inspect_oom_report(pool);
}

kn_status kn__alloc_failed(kn_pool *pool, kn_status status, size_t wanted_bytes) {
    KN_ASSERT(status < 0);
    if (status != KN_ERR_INVALID) tell_oom(pool, wanted_bytes);
    return status;
}

kn_status kn__too_large(kn_pool *pool, size_t size, size_t align, kn_stream stream) {
    kn__oom_request oom = {.status = KN_ERR_OOM,
                           .requested_bytes = size,
                           .needed_bytes = size,
                           .align = align,
                           .stream = stream};
    snprintf(oom.device_said, sizeof oom.device_said,
             "%zu bytes aligned to %zu are more than any device has", size, align);
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    pool->n_ooms++;
    kn_status status = kn__inspect_oom(pool, &oom);
    kn__pool_unlock(pool);
    return kn__alloc_failed(pool, status, size);
}

kn_status kn__dead(const kn_pool *pool) {
    return KN_FAIL(KN_ERR_DEVICE,
                   "pool %s: this process is a child of fork(), where the driver of %s can't be "
                   "used; start it with exec",
                   pool->name, kn_device_name(pool->device));
}

/* --- the user's callbacks --- */

kn_status kn_pool_oom_attach(kn_pool *pool, kn_oom_fn fn, void *ctx) {
    KN_TRY(kn__pool_given(pool, __func__));
    if (!fn) return KN_FAIL(KN_ERR_INVALID, "kn_pool_oom_attach: the function is NULL");
    kn__pool_lock(pool);
    int i = 0;
    while (i < KN__OOM_CALLBACKS && pool->oom[i].fn) i++;
    if (i < KN__OOM_CALLBACKS) {
        pool->oom[i].fn = fn;
        pool->oom[i].ctx = ctx;
    }
    kn__pool_unlock(pool);
    if (i < KN__OOM_CALLBACKS) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_pool_oom_attach: pool %s has %d callbacks already",
                   pool->name, KN__OOM_CALLBACKS);
}

void kn_pool_oom_detach(kn_pool *pool, kn_oom_fn fn, void *ctx) {
    kn__pool_lock(pool);
    for (int i = 0; i < KN__OOM_CALLBACKS; i++) {
        if (pool->oom[i].fn != fn || pool->oom[i].ctx != ctx) continue;
        pool->oom[i].fn = NULL;
        break;
    }
    kn__pool_unlock(pool);
}

/* What a callback allocates itself calls none: it would call itself for ever. */
int kn__callbacks_call(bool *freed, kn_pool *pool, size_t wanted_bytes) {
    int n_called = 0;
    *freed = false;
    kn__thread *self = kn__self;
    if (self && self->in_callback) return 0;
    if (self) self->in_callback = true;
    for (int i = 0; i < KN__OOM_CALLBACKS; i++) {
        kn_oom_fn fn = pool->oom[i].fn;
        void *ctx = pool->oom[i].ctx;
        if (!fn) continue;
        kn__pool_unlock(pool);
        *freed |= fn(ctx, pool, wanted_bytes) > 0;
        kn__pool_lock(pool);
        n_called++;
    }
    if (self) self->in_callback = false;
    return n_called;
}
