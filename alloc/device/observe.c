#include "device/observe.h"

#include <pthread.h>
#include <stdio.h>

#include "core/pool_types.h"

_Atomic(const kn_observer *) kn__observer_table;
_Atomic(const kn_observer *) kn__observer_attached;
static const kn_observer *tap_alone, *tap_in_front;
static pthread_mutex_t tap_lock = PTHREAD_MUTEX_INITIALIZER;

static void table_set(void) {
    const kn_observer *attached = atomic_load(&kn__observer_attached);
    const kn_observer *tap = attached ? tap_in_front : tap_alone;
    atomic_store(&kn__observer_table, tap ? tap : attached);
}

void kn__observer_tap(const kn_observer *alone, const kn_observer *in_front) {
    pthread_mutex_lock(&tap_lock);
    tap_alone = alone;
    tap_in_front = in_front;
    table_set();
    pthread_mutex_unlock(&tap_lock);
}

void kn__observer_fork_child(void) { tap_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void kn__observer_untap_child(void) {
    kn__observer_fork_child();
    kn__observer_tap(NULL, NULL);
}

static void replay_pool(void *ctx, kn_pool *pool) {
    const kn_observer *observer = ctx;
    observer->on_pool_create(pool);
}

/* False: another one is attached. */
static bool publish(const kn_observer *observer) {
    pthread_mutex_lock(&tap_lock);
    const kn_observer *before = atomic_load(&kn__observer_attached);
    bool taken = observer && before && before != observer;
    if (!taken) atomic_store(&kn__observer_attached, observer);
    table_set();
    pthread_mutex_unlock(&tap_lock);
    return !taken;
}

/* Holds the registry's lock, as the creation of pools does: each pool is reported once. */
kn_status kn_observer_attach(const kn_observer *observer) {
    kn__registry_lock();
    bool published = publish(observer);
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
