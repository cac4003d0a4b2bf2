#include "null_device.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t BASE = (uint64_t)1 << 44, GRANULE = (uint64_t)2 << 20;

static void count(_Atomic uint64_t *n) { atomic_fetch_add_explicit(n, 1, memory_order_relaxed); }

static uint64_t number(null_device *d) {
    return atomic_fetch_add_explicit(&d->next_number, 1, memory_order_relaxed);
}

/* Memory. */

static kn_status null_info_read(void *impl, kn_device_info *out) {
    null_device *d = impl;
    out->total_bytes = d->capacity_bytes;
    out->free_bytes = d->capacity_bytes - atomic_load(&d->held_bytes);
    out->granularity_bytes = GRANULE;
    return KN_OK;
}

static kn_status null_free_bytes(void *impl, uint64_t *out) {
    null_device *d = impl;
    *out = d->capacity_bytes - atomic_load(&d->held_bytes);
    return KN_OK;
}

static kn_status hold(null_device *d, size_t size_bytes) {
    uint64_t before = atomic_fetch_add(&d->held_bytes, size_bytes);
    if (before <= d->capacity_bytes && size_bytes <= d->capacity_bytes - before) return KN_OK;
    atomic_fetch_sub(&d->held_bytes, size_bytes);
    return KN_FAIL(KN_ERR_OOM, "%zu bytes asked for, the device holds %llu of %llu", size_bytes,
                   (unsigned long long)before, (unsigned long long)d->capacity_bytes);
}

static void *addresses(null_device *d, size_t size_bytes) {
    uint64_t size = (size_bytes + GRANULE - 1) / GRANULE * GRANULE + GRANULE;
    return (void *)(uintptr_t)atomic_fetch_add(&d->next_address, size);
}

static kn_status null_segment_alloc(void *impl, void **out, size_t size_bytes) {
    KN_TRY(hold(impl, size_bytes));
    *out = addresses(impl, size_bytes);
    return KN_OK;
}

static void null_segment_free(void *impl, void *ptr, size_t size_bytes) {
    (void)ptr;
    atomic_fetch_sub(&((null_device *)impl)->held_bytes, size_bytes);
}

static kn_status null_range_reserve(void *impl, void **out, size_t size_bytes) {
    *out = addresses(impl, size_bytes);
    return KN_OK;
}

static void null_range_release(void *impl, void *ptr, size_t size_bytes) {
    (void)impl, (void)ptr, (void)size_bytes;
}

static kn_status null_handle_create(void *impl, uint64_t *out, size_t size_bytes) {
    KN_TRY(hold(impl, size_bytes));
    *out = number(impl);
    return KN_OK;
}

static void null_handle_destroy(void *impl, uint64_t handle, size_t size_bytes) {
    (void)handle;
    atomic_fetch_sub(&((null_device *)impl)->held_bytes, size_bytes);
}

static kn_status null_handle_map(void *impl, void *at, size_t size_bytes, uint64_t handle) {
    (void)at, (void)size_bytes, (void)handle;
    count(&((null_device *)impl)->n_maps);
    return KN_OK;
}

static kn_status null_range_access(void *impl, void *at, size_t size_bytes) {
    (void)impl, (void)at, (void)size_bytes;
    return KN_OK;
}

static kn_status null_handle_unmap(void *impl, void *at, size_t size_bytes) {
    (void)at, (void)size_bytes;
    count(&((null_device *)impl)->n_unmaps);
    return KN_OK;
}

static kn_status null_copy(void *impl, void *dst, const void *src, size_t size_bytes,
                           bool from_host, bool to_host, kn_stream stream) {
    (void)impl, (void)dst, (void)src, (void)size_bytes, (void)from_host, (void)to_host,
        (void)stream;
    return KN_OK;
}

static kn_status null_fill(void *impl, void *dst, int byte, size_t size_bytes, kn_stream stream) {
    (void)impl, (void)dst, (void)byte, (void)size_bytes, (void)stream;
    return KN_OK;
}

/* Streams and events. */

static kn_status null_stream_create(void *impl, kn_stream *out) {
    *out = (kn_stream)(uintptr_t)(number(impl) * 16); /* as far apart as pointers are */
    return KN_OK;
}

static void null_stream_destroy(void *impl, kn_stream stream) { (void)impl, (void)stream; }

static uint64_t null_stream_id(void *impl, kn_stream stream) {
    (void)impl;
    return (uintptr_t)stream / 16;
}

static kn_status null_stream_sync(void *impl, kn_stream stream) {
    (void)impl, (void)stream;
    return KN_OK;
}

static kn_status null_event_create(void *impl, void **out) {
    *out = (void *)(uintptr_t)(number(impl) * 16);
    return KN_OK;
}

static void null_event_destroy(void *impl, void *event) { (void)impl, (void)event; }

static kn_status null_event_record(void *impl, void *event, kn_stream stream) {
    (void)event, (void)stream;
    count(&((null_device *)impl)->n_records);
    return KN_OK;
}

static kn_status null_event_query(void *impl, void *event, bool *done) {
    (void)event;
    count(&((null_device *)impl)->n_queries);
    *done = !atomic_load_explicit(&((null_device *)impl)->busy, memory_order_relaxed);
    return KN_OK;
}

static kn_status null_event_wait(void *impl, void *event, kn_stream stream) {
    (void)event, (void)stream;
    count(&((null_device *)impl)->n_waits);
    return KN_OK;
}

static kn_status null_event_sync(void *impl, void *event) {
    (void)impl, (void)event;
    return KN_OK;
}

static const kn_device_driver DRIVER = {
    .kind = KN_DEVICE_SIM,
    .info_read = null_info_read,
    .free_bytes = null_free_bytes,
    .segment_alloc = null_segment_alloc,
    .segment_free = null_segment_free,
    .range_reserve = null_range_reserve,
    .range_release = null_range_release,
    .handle_create = null_handle_create,
    .handle_destroy = null_handle_destroy,
    .handle_map = null_handle_map,
    .range_access = null_range_access,
    .handle_unmap = null_handle_unmap,
    .copy = null_copy,
    .fill = null_fill,
    .stream_create = null_stream_create,
    .stream_destroy = null_stream_destroy,
    .stream_sync = null_stream_sync,
    .stream_id = null_stream_id,
    .event_create = null_event_create,
    .event_destroy = null_event_destroy,
    .event_record = null_event_record,
    .event_query = null_event_query,
    .event_wait = null_event_wait,
    .event_sync = null_event_sync,
};

kn_status null_device_create(null_device **out, uint64_t capacity_bytes) {
    static _Atomic unsigned n_made;
    char name[16];
    null_device *d = calloc(1, sizeof *d);
    if (!d) return KN_FAIL(KN_ERR_OOM, "no memory for a device");
    d->capacity_bytes = capacity_bytes;
    d->next_address = BASE;
    d->next_number = 1;
    snprintf(name, sizeof name, "null:%u", (atomic_fetch_add(&n_made, 1) + 1) % 1000000);
    kn_status status = kn_device_register(&d->device, name, &DRIVER, d);
    if (status < 0) {
        free(d);
        return status;
    }
    *out = d;
    return KN_OK;
}
