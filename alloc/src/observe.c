#include "observe.h"

#include <stdio.h>

#include "pool_types.h"

_Atomic(const kn_observer *) kn__observer_table;

static void replay_pool(void *ctx, kn_pool *pool) {
    const kn_observer *observer = ctx;
    observer->on_pool_create(pool);
}

kn_status kn_observer_attach(const kn_observer *observer) {
    if (!observer) {
        atomic_store(&kn__observer_table, NULL);
        return KN_OK;
    }
    const kn_observer *none = NULL;
    if (!atomic_compare_exchange_strong(&kn__observer_table, &none, observer) && none != observer) {
        return KN_FAIL(KN_ERR_INVALID, "kn_observer_attach: another observer is attached already");
    }
    if (observer->on_pool_create) kn__pools_visit(replay_pool, (void *)(uintptr_t)observer);
    return KN_OK;
}

void kn__owner_name(uint32_t owner, char *out, size_t out_bytes) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->owner_name && observer->owner_name(owner, out, out_bytes)) return;
    snprintf(out, out_bytes, "owner %u", owner);
}
