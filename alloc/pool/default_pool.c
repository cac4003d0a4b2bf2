/* The pools that each device has of its own. */
#include <stdio.h>

#include "cancel.h"
#include "device/registry.h"
#include "pool/inspector.h"
#include "pool/options.h"

enum { NO_SOFT_LIMIT = 1, NO_LIMIT = 2, TRIES = 4 };

static kn_pool_options options_without(int lost) {
    kn_pool_options options = *kn__inspect_options();
    if (lost & NO_SOFT_LIMIT) options.soft_limit_bytes = 0;
    if (lost & NO_LIMIT) options.limit_bytes = 0;
    return options;
}

/* Says why one option is lost: with the others that are lost left out, it still doesn't fit. Found
 * anew, as stacks may have no room to keep the error of each try. */
static void say_misfit(kn_device *device, int lost, int which, const char *name) {
    if (!(lost & which)) return;
    kn_device_info info;
    kn_pool_options options = options_without(lost ^ which);
    kn_status status = kn__options_info(&info, device, false);
    if (status == KN_OK) status = kn__options_check(&options, &info, "kn_pool_create");
    if (status < 0) kn__inspect_options_misfit(device, kn_last_error(), name);
}

/* KNET_ALLOC's options, without the limits that don't fit the device. */
static kn_status make_fitting(kn_pool **out, kn_device *device) {
    kn_status status = KN_ERR_INVALID;
    int lost = 0;
    while (status == KN_ERR_INVALID && ++lost < TRIES) {
        kn_pool_options options = options_without(lost);
        status = kn_pool_create(out, device, &options);
    }
    if (status < 0) return status;
    say_misfit(device, lost, NO_LIMIT, "limit");
    say_misfit(device, lost, NO_SOFT_LIMIT, "soft_limit");
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
