#include <stdio.h>

#include "cancel.h"
#include "device/observe.h"
#include "device/registry.h"
#include "inspect/census.h"
#include "pool/pools.h"

static void replay_pool(void *ctx, kn_pool *pool) {
    const kn_observer *observer = ctx;
    observer->on_pool_create(pool);
}

/* Holds the registry's lock, as the creation of pools does: each pool is reported once. */
kn_status kn_observer_attach(const kn_observer *observer) {
    KN__CANCEL_LATER();
    kn__registry_lock();
    bool published = kn__observer_publish(observer);
    if (published && observer && observer->on_pool_create) {
        kn__pools_visit(replay_pool, (void *)(uintptr_t)observer);
    }
    kn__registry_unlock();
    if (published) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_observer_attach: another observer is attached already");
}

void kn__owner_name(uint32_t owner, char *out, size_t out_bytes) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->owner_name && observer->owner_name(owner, out, out_bytes)) return;
    snprintf(out, out_bytes, "owner %u", owner);
}
