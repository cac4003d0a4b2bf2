/* The pools that each device has of its own. */
#include <stdio.h>

#include "cancel.h"
#include "device/registry.h"
#include "pool/inspector.h"

enum { NO_SOFT_LIMIT = 1, NO_LIMIT = 2, TRIES = 4 };

/* KNET_ALLOC's options, without the limits that don't fit the device. Why one of these does not is
 * what the try said that left out the others of them. Apart, as the errors take 9 KB of stack. */
__attribute__((noinline)) static kn_status make_fitting(kn_pool **out, kn_device *device) {
    kn_error why[TRIES] = {*kn_last_error()};
    kn_status status = KN_ERR_INVALID;
    int i = 0;
    while (status == KN_ERR_INVALID && ++i < TRIES) {
        kn_pool_options options = *kn__inspect_options();
        if (i & NO_SOFT_LIMIT) options.soft_limit_bytes = 0;
        if (i & NO_LIMIT) options.limit_bytes = 0;
        status = kn_pool_create(out, device, &options);
        why[i] = *kn_last_error();
    }
    if (status < 0) return status;
    if (i & NO_LIMIT) kn__inspect_options_misfit(device, &why[i ^ NO_LIMIT], "limit");
    if (i & NO_SOFT_LIMIT) {
        kn__inspect_options_misfit(device, &why[i ^ NO_SOFT_LIMIT], "soft_limit");
    }
    return KN_OK;
}

static kn_status make_default(kn_pool **out, kn_device *device) {
    kn_status status = kn_pool_create(out, device, kn__inspect_options());
    return status == KN_ERR_INVALID ? make_fitting(out, device) : status;
}

static kn_pool *pool_once(_Atomic(kn_pool *) *at, kn_device *device,
                          kn_status (*make)(kn_pool **out, kn_device *device)) {
    kn_pool *pool = atomic_load_explicit(at, memory_order_acquire);
    if (pool) return pool;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&device->pool_lock);
    pool = atomic_load(at);
    kn_status status = pool ? KN_OK : make(&pool, device);
    if (status == KN_OK) atomic_store_explicit(at, pool, memory_order_release);
    pthread_mutex_unlock(&device->pool_lock);
    return status == KN_OK ? pool : kn_error_defer(status);
}

static kn_pool *no_device(const char *function) {
    return kn_error_defer(KN_FAIL(KN_ERR_INVALID, "%s: the device is NULL", function));
}

kn_pool *kn_device_pool(kn_device *device) {
    if (!device) return no_device("kn_device_pool");
    return pool_once(&device->default_pool, device, make_default);
}

static kn_status make_pinned(kn_pool **out, kn_device *device) {
    char name[64];
    snprintf(name, sizeof name, "%s pinned", device->name);
    kn_pool_options options = {.pinned = true, .name = name};
    return kn_pool_create(out, device, &options);
}

kn_pool *kn_device_pinned_pool(kn_device *device) {
    if (!device) return no_device("kn_device_pinned_pool");
    return pool_once(&device->pinned_pool, device, make_pinned);
}
