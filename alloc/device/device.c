#include <errno.h>
#include <knet/device.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/devices.h"
#include "device/observe.h"
#include "core/pool_types.h"

struct kn_device {
    struct kn_device *next; /* in the registry, which only grows */
    char name[16];
    const kn_device_driver *driver;
    void *impl;
    kn_pool *pools;                               /* guarded by registry_lock */
    _Atomic(kn_pool *) default_pool, pinned_pool; /* created once, under pool_lock */
    pthread_mutex_t pool_lock;
    bool forked; /* registered before a fork(); unusable in this child */
};

struct kn_event {
    kn_device *device;
    void *native;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* opens one device at a time */
static kn_device host_device = {
    .name = "cpu", .driver = &kn__host_driver, .pool_lock = PTHREAD_MUTEX_INITIALIZER};
static kn_device *const devices = &host_device; /* head of the list */

/* Registry. */

static kn_device *find_registered(const char *name) {
    kn_device *device = devices;
    while (device && strcmp(device->name, name) != 0) device = device->next;
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
    pthread_mutex_lock(&registry_lock);
    bool taken = find_registered(name) != NULL;
    if (!taken) {
        device->next = devices->next;
        devices->next = device;
    }
    pthread_mutex_unlock(&registry_lock);
    if (taken) {
        free(device);
        return KN_FAIL(KN_ERR_INVALID, "kn_device_register: %s is registered already", name);
    }
    *out = device;
    return KN_OK;
}

/* N of "cuda:N"; 0 for "cuda"; -1 for other names. */
static int cuda_index(const char *name) {
    if (strcmp(name, "cuda") == 0) return 0;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    char *end = NULL;
    errno = 0;
    long index = strtol(name + 5, &end, 10);
    return *end == '\0' && errno == 0 && index < 1000 ? (int)index : -1;
}

static bool find(kn_device **out, const char *name) {
    pthread_mutex_lock(&registry_lock);
    kn_device *device = find_registered(name);
    pthread_mutex_unlock(&registry_lock);
    if (device) *out = device;
    return device != NULL;
}

static kn_status open_locked(kn_device **out, const char *name, int cuda) {
    if (find(out, name)) return KN_OK; /* another thread opened it */
    if (cuda >= 0) return kn__cuda_open(out, name, cuda);
    if (strcmp(name, "sim") == 0) return kn__sim_open(out);
    return KN_FAIL(KN_ERR_INVALID,
                   "no device is named \"%s\"; there are \"cpu\", \"cuda\", \"cuda:N\" and \"sim\"",
                   name);
}

kn_status kn_device_find(kn_device **out, const char *name) {
    if (!name) return KN_FAIL(KN_ERR_INVALID, "kn_device_find: the name is NULL");
    char canonical[32];
    int cuda = cuda_index(name);
    if (cuda >= 0) snprintf(canonical, sizeof canonical, "cuda:%d", cuda);
    if (cuda >= 0) name = canonical;
    if (find(out, name)) return KN_OK;
    pthread_mutex_lock(&open_lock);
    kn_status status = open_locked(out, name, cuda);
    pthread_mutex_unlock(&open_lock);
    return status;
}

kn_device *kn_device_host(void) { return &host_device; }
int kn_device_cuda_count(void) { return kn__cuda_count(); }
const char *kn_device_name(const kn_device *device) { return device->name; }
kn_device_kind kn_device_kind_get(const kn_device *device) { return device->driver->kind; }

const kn_device_driver *kn_device_driver_get(const kn_device *device, void **impl) {
    if (impl) *impl = device->impl;
    return device->driver;
}

kn_status kn_device_info_read(kn_device_info *out, size_t out_bytes, kn_device *device) {
    kn_device_info info = {.kind = device->driver->kind};
    memcpy(info.name, device->name, sizeof info.name);
    KN_TRY(device->driver->info_read(device->impl, &info));
    memset(out, 0, out_bytes);
    memcpy(out, &info, out_bytes < sizeof info ? out_bytes : sizeof info);
    return KN_OK;
}

/* Pools of a device. */

void kn__registry_lock(void) { pthread_mutex_lock(&registry_lock); }
void kn__registry_unlock(void) { pthread_mutex_unlock(&registry_lock); }

/* Notifies the observer under the lock, so that one that attaches now hears of the pool once: here
 * or by replay. */
void kn__pool_enlist(kn_pool *pool, kn_device *device) {
    pthread_mutex_lock(&registry_lock);
    pool->link = device->pools;
    device->pools = pool;
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_pool_create) observer->on_pool_create(pool);
    pthread_mutex_unlock(&registry_lock);
}

static const char *delist(kn_pool *pool) {
    for (kn_device *device = devices; device; device = device->next) {
        kn_pool **link = &device->pools;
        while (*link && *link != pool) link = &(*link)->link;
        if (!*link) continue;
        if (pool == device->default_pool || pool == device->pinned_pool) {
            return "is a default pool of its device, which can't be destroyed";
        }
        *link = pool->link;
        return NULL;
    }
    return "is not a pool; was it destroyed before?";
}

const char *kn__pool_delist(kn_pool *pool) {
    pthread_mutex_lock(&registry_lock);
    const char *why = delist(pool);
    pthread_mutex_unlock(&registry_lock);
    return why;
}

void kn__pools_visit(void (*fn)(void *ctx, kn_pool *pool), void *ctx) {
    for (kn_device *device = devices; device; device = device->next) {
        for (kn_pool *pool = device->pools; pool; pool = pool->link) fn(ctx, pool);
    }
}

static kn_pool *pool_once(_Atomic(kn_pool *) *at, kn_device *device,
                          kn_status (*make)(kn_pool **out, kn_device *device)) {
    kn_pool *pool = atomic_load_explicit(at, memory_order_acquire);
    if (pool) return pool;
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
    return pool_once(&device->default_pool, device, kn__pool_create_default);
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

/* Streams. An ordered device has one, NULL. */

kn_status kn_stream_create(kn_stream *out, kn_device *device) {
    KN_TRY(kn__device_usable(device));
    if (!device->driver->ordered) return device->driver->stream_create(device->impl, out);
    *out = NULL;
    return KN_OK;
}

static bool can_go(const kn_device *device, kn_stream stream, const char *function) {
    if (device->driver->ordered) return false;
    if (!kn__stream_is_default(stream)) return true;
    kn_log_write(0, "%s: %s: %p is a default stream, which can't be destroyed", function,
                 device->name, (void *)stream);
    return false;
}

void kn_stream_retire(kn_device *device, kn_stream stream) {
    if (!can_go(device, stream, "kn_stream_retire")) return;
    pthread_mutex_lock(&registry_lock);
    for (kn_pool *pool = device->pools; pool; pool = pool->link) {
        kn__pool_stream_retire(pool, stream);
    }
    pthread_mutex_unlock(&registry_lock);
}

void kn_stream_destroy(kn_device *device, kn_stream stream) {
    if (!stream || !can_go(device, stream, "kn_stream_destroy")) return;
    kn_stream_retire(device, stream);
    device->driver->stream_destroy(device->impl, stream);
}

kn_status kn_stream_sync(kn_device *device, kn_stream stream) {
    return device->driver->ordered ? KN_OK : device->driver->stream_sync(device->impl, stream);
}

kn_status kn_stream_of_thread(kn_stream *out, kn_device *device) {
    if (device->driver->ordered) return kn_stream_create(out, device);
    kn__thread *self = kn__thread_get();
    if (!self) return KN_FAIL(KN_ERR_OOM, "kn_stream_of_thread: no host memory");
    for (int i = 0; i < self->n_streams; i++) {
        if (self->stream_devices[i] == device) {
            *out = self->streams[i];
            return KN_OK;
        }
    }
    if (self->n_streams == KN__THREAD_STREAMS) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_stream_of_thread: more than %d devices in a thread",
                       KN__THREAD_STREAMS);
    }
    kn_stream stream = NULL;
    KN_TRY(kn_stream_create(&stream, device));
    self->stream_devices[self->n_streams] = device;
    self->streams[self->n_streams++] = stream;
    *out = stream;
    return KN_OK;
}

kn_status kn__device_usable(const kn_device *device) {
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

void kn__thread_end_streams(kn__thread *thread) {
    for (int i = 0; i < thread->n_streams; i++) {
        kn_device *device = thread->stream_devices[i];
        if (kn__device_alive(device)) kn_stream_destroy(device, thread->streams[i]);
    }
    thread->n_streams = 0;
}

/* Events. On an ordered device they are reached when they are recorded. */

kn_status kn_event_create(kn_event **out, kn_device *device) {
    kn_event *event = calloc(1, sizeof *event);
    if (!event) return KN_FAIL(KN_ERR_OOM, "kn_event_create: no host memory");
    event->device = device;
    kn_status status = kn__device_usable(device);
    if (status == KN_OK && !device->driver->ordered) {
        status = device->driver->event_create(device->impl, &event->native);
    }
    if (status < 0) {
        free(event);
        return status;
    }
    *out = event;
    return KN_OK;
}

void kn_event_destroy(kn_event *event) {
    if (!event) return;
    kn_device *device = event->device;
    if (!device->driver->ordered && kn__device_alive(device)) {
        device->driver->event_destroy(device->impl, event->native);
    }
    free(event);
}

kn_status kn_event_record(kn_event *event, kn_stream stream) {
    kn_device *device = event->device;
    if (device->driver->ordered) return KN_OK;
    return device->driver->event_record(device->impl, event->native, stream);
}

kn_status kn_event_wait(kn_event *event, kn_stream stream) {
    kn_device *device = event->device;
    if (device->driver->ordered) return KN_OK;
    return device->driver->event_wait(device->impl, event->native, stream);
}

kn_status kn_event_query(bool *done, kn_event *event) {
    kn_device *device = event->device;
    if (device->driver->ordered) {
        *done = true;
        return KN_OK;
    }
    return device->driver->event_query(device->impl, event->native, done);
}

kn_status kn_event_sync(kn_event *event) {
    kn_device *device = event->device;
    if (device->driver->ordered) return KN_OK;
    return device->driver->event_sync(device->impl, event->native);
}

/* Copies. */

kn_status kn_device_copy(kn_device *dst_device, void *dst, kn_device *src_device, const void *src,
                         size_t size_bytes, kn_stream stream) {
    if (size_bytes == 0) return KN_OK;
    KN_TRY(kn__device_usable(dst_device));
    KN_TRY(kn__device_usable(src_device));
    bool dst_host = dst_device == &host_device, src_host = src_device == &host_device;
    if (dst_device != src_device && !dst_host && !src_host) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_device_copy: %s to %s: one of them must be the host",
                       src_device->name, dst_device->name);
    }
    kn_device *worker = dst_host ? src_device : dst_device;
    bool both = dst_device == src_device;
    return worker->driver->copy(worker->impl, dst, src, size_bytes, !both && src_host,
                                !both && dst_host, stream);
}

kn_status kn_device_fill(kn_device *device, void *dst, int byte, size_t size_bytes,
                         kn_stream stream) {
    if (size_bytes == 0) return KN_OK;
    return device->driver->fill(device->impl, dst, byte, size_bytes, stream);
}

/* fork: the parent locks the registry, the caches and the pools first, so that the child finds them
 * consistent. Other locks may belong to threads that the child lacks: it initializes them again.
 * The host device and its pools keep working in the child; other drivers don't. */

static void lock_pool(void *ctx, kn_pool *pool) {
    (void)ctx;
    kn__lock_take(&pool->lock);
}

static void unlock_pool(void *ctx, kn_pool *pool) {
    (void)ctx;
    kn__lock_open(&pool->lock);
}

static void fork_prepare(void) {
    pthread_mutex_lock(&registry_lock);
    kn__caches_lock();
    kn__pools_visit(lock_pool, NULL);
}

static void fork_parent(void) {
    kn__pools_visit(unlock_pool, NULL);
    kn__caches_unlock();
    pthread_mutex_unlock(&registry_lock);
}

static void fork_child(void) {
    kn__log_fork_child();
    kn__observer_fork_child();
    open_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (kn_device *device = devices; device; device = device->next) {
        device->pool_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        if (device->driver->ordered) continue;
        device->forked = true;
        for (kn_pool *pool = device->pools; pool; pool = pool->link) {
            kn__pool_fork_kill(pool);
        }
    }
    if (kn__self) kn__self->n_streams = 0;
    fork_parent();
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}
