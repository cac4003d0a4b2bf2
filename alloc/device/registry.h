/* The registry of devices. Each device has the list of its pools, which the pool storey keeps. */
#ifndef KN_ALLOC_REGISTRY_H
#define KN_ALLOC_REGISTRY_H

#include <knet/device_driver.h>
#include <knet/pool.h>
#include <pthread.h>
#include <stdatomic.h>

struct kn_device {
    /* In the registry, which only grows. */
    struct kn_device *next;
    char name[16];
    const kn_device_driver *driver;
    void *impl;
    /* Guarded by the registry's lock. */
    kn_pool *pools;
    kn_stream *idle_streams; /* of threads that ended, for the next ones */
    int n_idle_streams, idle_streams_cap;
    /* Created once, under pool_lock. */
    _Atomic(kn_pool *) default_pool, pinned_pool;
    pthread_mutex_t pool_lock;
    /* Registered before a fork(); unusable in this child. */
    bool forked;
};

/* The first one, the host. */
extern kn_device *const kn__devices __attribute__((visibility("hidden")));

/* Taken before any lock of a pool. */
void kn__registry_lock(void);
void kn__registry_unlock(void);
kn_device *kn__device_registered(const char *name); /* NULL if not found */

/* Whether `function` can call the driver. Errors: INVALID if the device is NULL; DEVICE in a child
 * of fork(). */
kn_status kn__device_usable(const kn_device *device, const char *function);
kn_status kn__device_given(const kn_device *device, const char *function); /* it is not NULL */
/* False in a child of fork(), and while the process unloads the driver. */
bool kn__device_alive(const kn_device *device);

/* status.c */
void kn__log_fork_child(void);

#endif
