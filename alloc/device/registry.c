#include "device/registry.h"

#include <stdlib.h>
#include <string.h>

#include "device/drivers.h"
#include "device/observe.h"
#include "device/thread.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static kn_device host_device = {
    .name = "cpu", .driver = &kn__host_driver, .pool_lock = PTHREAD_MUTEX_INITIALIZER};
kn_device *const kn__devices = &host_device;

void kn__registry_lock(void) { pthread_mutex_lock(&registry_lock); }
void kn__registry_unlock(void) { pthread_mutex_unlock(&registry_lock); }

static kn_device *find_registered(const char *name) {
    kn_device *device = kn__devices;
    while (device && strcmp(device->name, name) != 0) device = device->next;
    return device;
}

kn_device *kn__device_registered(const char *name) {
    kn__registry_lock();
    kn_device *device = find_registered(name);
    kn__registry_unlock();
    return device;
}

kn_status kn_device_register(kn_device **out, const char *name, const kn_device_driver *driver,
                             void *impl) {
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof host_device.name) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_device_register: the name \"%s\" must have 1 to 15 "
                       "characters",
                       name);
    }
    bool whole = driver->range_release && driver->handle_create && driver->handle_destroy &&
                 driver->handle_map && driver->handle_unmap && driver->range_access;
    if (driver->range_reserve && !whole) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_device_register: %s has range_reserve, but not all functions of virtual "
                       "memory",
                       name);
    }
    kn_device *device = calloc(1, sizeof *device);
    if (!device) return KN_FAIL(KN_ERR_OOM, "kn_device_register: no host memory for %s", name);
    memcpy(device->name, name, length + 1);
    device->driver = driver;
    device->impl = impl;
    pthread_mutex_init(&device->pool_lock, NULL);
    kn__registry_lock();
    bool taken = find_registered(name) != NULL;
    if (!taken) {
        device->next = kn__devices->next;
        kn__devices->next = device;
    }
    kn__registry_unlock();
    if (taken) {
        free(device);
        return KN_FAIL(KN_ERR_INVALID, "kn_device_register: %s is registered already", name);
    }
    *out = device;
    return KN_OK;
}

kn_device *kn_device_host(void) { return &host_device; }

kn_status kn__device_given(const kn_device *device, const char *function) {
    return device ? KN_OK : KN_FAIL(KN_ERR_INVALID, "%s: the device is NULL", function);
}

kn_status kn__device_usable(const kn_device *device, const char *function) {
    KN_TRY(kn__device_given(device, function));
    if (!device->forked) return KN_OK;
    return KN_FAIL(
        KN_ERR_DEVICE,
        "%s: this process is a child of fork(), where the device's driver can't be used; "
        "start the child with exec, or use the device in the child only",
        device->name);
}

bool kn__device_alive(const kn_device *device) {
    return !device->forked && (!device->driver->alive || device->driver->alive(device->impl));
}

/* fork: the parent locks the registry first, then its pools (pools.c), so that the child finds them
 * consistent. Other locks may belong to threads that the child lacks: it initializes them again.
 * The host device and its pools keep working in the child; other drivers don't. */

static void fork_child(void) {
    kn__log_fork_child();
    kn__observer_fork_child();
    for (kn_device *device = kn__devices; device; device = device->next) {
        device->pool_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        device->forked = !device->driver->ordered;
    }
    if (kn__self) kn__self->n_streams = 0;
    kn__registry_unlock();
}

/* The last constructor that registers fork handlers: the last one registered locks first. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(kn__registry_lock, kn__registry_unlock, fork_child);
}
