/* Peers: devices that reach the memory of another's pools. */
#include "cancel.h"
#include "core/pool_state.h"
#include "device/registry.h"
#include "pool/pool_lock.h"
#include "pool/pools.h"

typedef struct opening {
    const kn_device *device;
    kn_status status;
} opening;

/* Runs of handles that are mapped already; those of paused memory are not. */
static kn_status access_again(kn_pool *pool) {
    const kn__range *range = &pool->range;
    const char *end = range->base + range->size;
    size_t bytes = 0;
    for (char *at = range->base; at < end; at += range->unit) {
        size_t span = kn__handle_bytes(range, at);
        bytes += span;
        if (span) at += span - range->unit;
        bool more = at + range->unit < end && kn__handle_bytes(range, at + range->unit);
        if (!bytes || more) continue;
        KN_TRY(pool->driver->range_access(pool->impl, at + range->unit - bytes, bytes));
        bytes = 0;
    }
    return KN_OK;
}

static void visit(void *ctx, kn_pool *pool) {
    opening *o = ctx;
    if (pool->device != o->device || !pool->range.base || o->status < 0) return;
    kn__pool_lock(pool);
    o->status = access_again(pool);
    kn__pool_unlock(pool);
}

kn_status kn_device_peer_open(kn_device *device, kn_device *peer) {
    KN_TRY(kn__device_usable(device, __func__));
    KN_TRY(kn__device_usable(peer, __func__));
    const kn_device_driver *driver = device->driver;
    if (device == peer) return KN_OK;
    if (!driver->peer_open || driver->peer_open != peer->driver->peer_open) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_device_peer_open: %s can't reach the memory of %s: both must be GPUs",
                       peer->name, device->name);
    }
    KN__CANCEL_LATER();
    KN_TRY(driver->peer_open(device->impl, peer->impl));
    opening o = {.device = device, .status = KN_OK};
    kn__registry_lock();
    kn__pools_visit(visit, &o);
    kn__registry_unlock();
    return o.status;
}
