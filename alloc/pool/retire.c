/* Retires streams: their pools hear of it before the stream is destroyed. */
#include <stdlib.h>

#include "cancel.h"
#include "core/streams.h"
#include "device/drivers.h"
#include "device/registry.h"
#include "device/thread.h"
#include "pool/cache.h"
#include "pool/graph.h"
#include "pool/pool_lock.h"
#include "pool/pools.h"

static void pool_retire(kn_pool *pool, kn_stream handle) {
    kn__pool_lock(pool);
    uint64_t key = kn__stream_known_key(pool, handle);
    kn__graphs_stream_gone(pool, key);
    kn__stream *stream = kn__stream_lookup(pool, key, NULL);
    if (stream) {
        kn__stream_retire(pool, stream, false);
        kn__caches_flush(pool); /* no slab of the stream is held back by a thread that is idle */
    }
    kn__pool_unlock(pool);
}

static bool can_go(const kn_device *device, kn_stream stream, const char *function) {
    if (device->driver->ordered) return false;
    if (!kn__stream_is_default(stream)) return true;
    kn_log_write(0, "%s: %s: %p is a default stream, which can't be destroyed", function,
                 device->name, (void *)stream);
    return false;
}

void kn_stream_retire(kn_device *device, kn_stream stream) {
    if (!can_go(device, stream, "kn_stream_retire") || !kn__device_alive(device)) return;
    KN__CANCEL_LATER();
    kn__registry_lock();
    for (kn_pool *pool = device->pools; pool; pool = pool->link) {
        pool_retire(pool, stream);
    }
    kn__registry_unlock();
}

void kn_stream_destroy(kn_device *device, kn_stream stream) {
    if (!stream || !can_go(device, stream, "kn_stream_destroy")) return;
    KN__CANCEL_LATER();
    kn_stream_retire(device, stream);
    device->driver->stream_destroy(device->impl, stream);
}

/* --- streams of threads --- */

/* Streams of threads are never destroyed: tensors that were written on one may outlive its thread.
 */
static bool idle_put(kn_device *device, kn_stream stream) {
    if (device->n_idle_streams == device->idle_streams_cap) {
        int cap = device->idle_streams_cap ? 2 * device->idle_streams_cap : 16;
        kn_stream *all = realloc(device->idle_streams, (size_t)cap * sizeof *all);
        if (!all) return false;
        device->idle_streams = all;
        device->idle_streams_cap = cap;
    }
    device->idle_streams[device->n_idle_streams++] = stream;
    return true;
}

/* The thread's memory on the stream is for other streams to take, once its work is done; the pool
 * keeps its record of the stream for the next thread. */
static void pool_release(kn_pool *pool, kn_stream handle) {
    kn_pool_flush_thread(pool);
    kn__pool_lock(pool);
    kn__stream *stream = kn__stream_lookup(pool, kn__stream_known_key(pool, handle), NULL);
    if (stream) (void)kn__epoch_close(pool, stream); /* else whoever needs it tries again */
    kn__pool_unlock(pool);
}

/* No memory for the list: no thread will have the stream. */
static void stream_release(kn_device *device, kn_stream stream) {
    kn__registry_lock();
    for (kn_pool *pool = device->pools; pool; pool = pool->link) pool_release(pool, stream);
    bool kept = idle_put(device, stream);
    kn__registry_unlock();
    if (!kept) kn_stream_retire(device, stream);
}

static void end_streams(kn__thread *thread) {
    for (int i = 0; i < thread->n_streams; i++) {
        kn_device *device = thread->stream_devices[i];
        if (kn__device_alive(device)) stream_release(device, thread->streams[i]);
    }
    thread->n_streams = 0;
}

static kn_status idle_take(kn_stream *out, kn_device *device) {
    kn__registry_lock();
    bool found = device->n_idle_streams > 0;
    if (found) *out = device->idle_streams[--device->n_idle_streams];
    kn__registry_unlock();
    return found ? KN_OK : kn_stream_create(out, device);
}

kn_status kn_stream_of_thread(kn_stream *out, kn_device *device) {
    KN_TRY(kn__device_given(device, __func__));
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
    kn__thread_at_end(KN__END_STREAMS, end_streams);
    KN_TRY(idle_take(&stream, device));
    self->stream_devices[self->n_streams] = device;
    self->streams[self->n_streams++] = stream;
    *out = stream;
    return KN_OK;
}

static void retire_default(void *ctx, kn_pool *pool) {
    (void)ctx;
    if (kn__device_alive(pool->device)) {
        pool_retire(pool, (kn_stream)(uintptr_t)KN__STREAM_PER_THREAD);
    }
}

static void end_default_stream(kn__thread *thread) {
    if (!thread->has_default_stream) return;
    kn__registry_lock();
    kn__pools_visit(retire_default, NULL);
    kn__registry_unlock();
}

void kn__retire_at_end(void) { kn__thread_at_end(KN__END_DEFAULT_STREAM, end_default_stream); }
