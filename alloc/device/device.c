/* Devices, their streams and events: calls of the driver's table. */
#include <knet/device.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "device/registry.h"

struct kn_event {
    kn_device *device;
    void *native;
};

const char *kn_device_name(const kn_device *device) { return device->name; }
kn_device_kind kn_device_kind_get(const kn_device *device) { return device->driver->kind; }

const kn_device_driver *kn_device_driver_get(const kn_device *device, void **impl) {
    if (impl) *impl = device->impl;
    return device->driver;
}

kn_status kn_device_info_read(kn_device_info *out, size_t out_bytes, kn_device *device) {
    KN_TRY(kn__device_given(device, __func__));
    kn_device_info info = {.kind = device->driver->kind};
    memcpy(info.name, device->name, sizeof info.name);
    KN__CANCEL_LATER();
    KN_TRY(device->driver->info_read(device->impl, &info));
    memset(out, 0, out_bytes);
    memcpy(out, &info, out_bytes < sizeof info ? out_bytes : sizeof info);
    return KN_OK;
}

/* Streams. An ordered device has one, NULL. */

kn_status kn_stream_create(kn_stream *out, kn_device *device) {
    KN_TRY(kn__device_usable(device, __func__));
    if (!device->driver->ordered) return device->driver->stream_create(device->impl, out);
    *out = NULL;
    return KN_OK;
}

kn_status kn_stream_sync(kn_device *device, kn_stream stream) {
    KN_TRY(kn__device_given(device, __func__));
    return device->driver->ordered ? KN_OK : device->driver->stream_sync(device->impl, stream);
}

/* Events. On an ordered device they are reached when they are recorded. */

kn_status kn_event_create(kn_event **out, kn_device *device) {
    kn_event *event = calloc(1, sizeof *event);
    if (!event) return KN_FAIL(KN_ERR_OOM, "kn_event_create: no host memory");
    event->device = device;
    kn_status status = kn__device_usable(device, __func__);
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

/* --- copies --- */

/* Their `impl` pointers are of one type. */
static bool same_driver(const kn_device *a, const kn_device *b) {
    return a->driver->copy_peer && a->driver->copy_peer == b->driver->copy_peer;
}

kn_status kn_device_copy(kn_device *dst_device, void *dst, kn_device *src_device, const void *src,
                         size_t size_bytes, kn_stream stream) {
    if (size_bytes == 0) return KN_OK;
    KN_TRY(kn__device_usable(dst_device, __func__));
    KN_TRY(kn__device_usable(src_device, __func__));
    bool dst_host = dst_device == kn_device_host(), src_host = src_device == kn_device_host();
    if (dst_device != src_device && !dst_host && !src_host) {
        if (!same_driver(src_device, dst_device)) {
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "kn_device_copy: %s to %s: one of them must be the host, or both GPUs",
                           src_device->name, dst_device->name);
        }
        return src_device->driver->copy_peer(src_device->impl, dst_device->impl, dst, src,
                                             size_bytes, stream);
    }
    kn_device *worker = dst_host ? src_device : dst_device;
    bool both = dst_device == src_device;
    return worker->driver->copy(worker->impl, dst, src, size_bytes, !both && src_host,
                                !both && dst_host, stream);
}

kn_status kn_device_fill(kn_device *device, void *dst, int byte, size_t size_bytes,
                         kn_stream stream) {
    if (size_bytes == 0) return KN_OK;
    KN_TRY(kn__device_given(device, __func__));
    return device->driver->fill(device->impl, dst, byte, size_bytes, stream);
}
