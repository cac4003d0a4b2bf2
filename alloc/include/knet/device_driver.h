/* For those who add a device: the table of functions behind kn_device, and how to register one.
 *
 * Contract, stated once. Every function gets the `impl` pointer of its registration. kn_status
 * functions return KN_OK or record an error with KN_FAIL; on failure outputs are untouched and
 * nothing was acquired. Sizes are > 0. Pointers and sizes of segments, ranges and handles are
 * multiples of the granularity (of 4096 where there is none). No function may call into a pool,
 * print, or wait for the device, except *_sync. Functions may be called from any thread. An
 * optional function may be NULL; the comment says what is done instead.
 *
 * Streams are CUDA's handles. NULL and 1 are the legacy default stream. 2 is the calling thread's
 * own default stream: the same handle is another stream in each thread, told apart by stream_id,
 * and only the thread itself can record an event on it or make it wait.
 */
#ifndef KNET_DEVICE_DRIVER_H
#define KNET_DEVICE_DRIVER_H

#include <knet/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_device_driver {
    kn_device_kind kind;
    bool host_access; /* the CPU may read and write this device's memory */
    bool ordered;     /* all streams are program order (the host): no foreign uses; what is below
                         for streams and events is never called */

    kn_status (*info_read)(void *impl, kn_device_info *out);

    /* Plain segments: memory at an address of the driver's choice, aligned to 2 MiB where it can
     * be, to 256 at least. */
    kn_status (*segment_alloc)(void *impl, void **out, size_t size_bytes);
    void (*segment_free)(void *impl, void *ptr, size_t size_bytes);

    /* The same of page-locked host memory, which copies of this device read and write. NULL: pages
     * that are not locked. */
    kn_status (*pinned_alloc)(void *impl, void **out, size_t size_bytes);
    void (*pinned_free)(void *impl, void *ptr, size_t size_bytes);

    /* Virtual memory; all NULL where it is missing: the pool then grows by plain segments.
     * reserve: addresses without memory. handle: physical memory, mapped and unmapped only whole.
     * What is mapped can't be used yet: range_access makes a run of whole handles readable and
     * writable, all of them or, after an error, none. It is called once for a run of maps, and
     * again wherever a handle is mapped anew. Until then handle_unmap fails only where the device
     * is lost, so that a pool can take its maps back. */
    kn_status (*range_reserve)(void *impl, void **out, size_t size_bytes);
    void (*range_release)(void *impl, void *ptr, size_t size_bytes);
    kn_status (*handle_create)(void *impl, uint64_t *out, size_t size_bytes);
    void (*handle_destroy)(void *impl, uint64_t handle, size_t size_bytes);
    kn_status (*handle_map)(void *impl, void *at, size_t size_bytes, uint64_t handle);
    kn_status (*range_access)(void *impl, void *at, size_t size_bytes);
    kn_status (*handle_unmap)(void *impl, void *at, size_t size_bytes);

    /* Copies within the device, to it and from it; which one `to_host` / `from_host` say (both
     * false: within). */
    kn_status (*copy)(void *impl, void *dst, const void *src, size_t size_bytes, bool from_host,
                      bool to_host, kn_stream stream);
    kn_status (*fill)(void *impl, void *dst, int byte, size_t size_bytes, kn_stream stream);

    kn_status (*stream_create)(void *impl, kn_stream *out); /* a non-blocking one */
    void (*stream_destroy)(void *impl, kn_stream stream);
    kn_status (*stream_sync)(void *impl, kn_stream stream);
    /* The host waits for all work of the device, that of destroyed streams too. Not while a stream
     * is being captured: it would end the capture. NULL: such work can't be waited for. */
    kn_status (*device_sync)(void *impl);
    /* A number that no other stream of this process ever has, while handles are used again. Never
     * fails, and is cheap: pools ask at each allocation. NULL: the driver has no such numbers;
     * pools then know a stream by its handle alone, and need kn_stream_retire before it goes. */
    uint64_t (*stream_id)(void *impl, kn_stream stream);
    /* INVALID, with a text for the user, for a stream of another context than the device's, where
     * events and memory of the device are of no use; pools ask when they first see a stream. NULL:
     * every stream will do. */
    kn_status (*stream_check)(void *impl, kn_stream stream);
    /* Whether the stream is being captured into a graph; NULL: never. */
    bool (*stream_capturing)(void *impl, kn_stream stream);

    /* Events without timing. */
    kn_status (*event_create)(void *impl, void **out);
    void (*event_destroy)(void *impl, void *event);
    kn_status (*event_record)(void *impl, void *event, kn_stream stream);
    kn_status (*event_query)(void *impl, void *event, bool *done);
    kn_status (*event_wait)(void *impl, void *event, kn_stream stream); /* the stream waits */
    kn_status (*event_sync)(void *impl, void *event);                   /* the host waits */

    /* Whether the driver can still be called; false once the process is unloading it. NULL: always.
     */
    bool (*alive)(void *impl);
} kn_device_driver;

/* Registers a device under a name such as "cuda:0". `driver` and `impl` are borrowed for the life
 * of the process. Errors: INVALID for a name that is taken, empty or longer than 15 characters. */
KN_API KN_MUST_CHECK kn_status kn_device_register(kn_device **out, const char *name,
                                                  const kn_device_driver *driver, void *impl);

/* The table and state of a registered device. */
KN_API const kn_device_driver *kn_device_driver_get(const kn_device *device, void **impl);

#ifdef __cplusplus
}
#endif
#endif
