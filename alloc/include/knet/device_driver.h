/* How to add a device: the table of functions behind a kn_device, and how to register it.
 *
 * Contract of every function: it gets the `impl` pointer of its registration. kn_status functions
 * return KN_OK, or record an error with KN_FAIL; after an error the outputs are unchanged and
 * nothing is allocated. Sizes are > 0. Pointers and sizes of segments, ranges and handles are
 * multiples of the granularity, or of 4096 if the granularity is 0. Functions must not call a pool,
 * print, or wait for the device; only the *_sync functions wait. Any thread may call them.
 * "Optional" functions may be NULL; the comment says what happens then.
 *
 * Streams are CUDA handles. NULL and 1 are the legacy default stream. 2 is the default stream of
 * the calling thread: each thread has its own, with its own stream_id, so only that thread can
 * record an event on it or make it wait. Default streams are never destroyed.
 */
#ifndef KNET_DEVICE_DRIVER_H
#define KNET_DEVICE_DRIVER_H

#include <knet/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Properties of physical memory. */
typedef enum kn_handle_flags {
    KN_HANDLE_SHARED = 1, /* other processes can map it */
    KN_HANDLE_RDMA = 2    /* network cards can read and write it: GPUDirect RDMA */
} kn_handle_flags;

/* The functions of a device. */
typedef struct kn_device_driver {
    kn_device_kind kind; /* what kn_device_kind_get returns */
    bool host_access;    /* the CPU may read and write this device's memory */
    /* work runs in program order (the host): there are no streams and events, and the pools never
     * call their functions */
    bool ordered;

    /* Fills the description of the device. */
    kn_status (*info_read)(void *impl, kn_device_info *out);
    /* Bytes of the device that are free now, shared by all processes; pools call it at each growth.
     * Optional; without it only a pool's own limits count. */
    kn_status (*free_bytes)(void *impl, uint64_t *out);

    /* Plain segments. The driver chooses the address: aligned to 256 bytes at least, to 2 MiB if
     * possible. */
    kn_status (*segment_alloc)(void *impl, void **out, size_t size_bytes);
    void (*segment_free)(void *impl, void *ptr, size_t size_bytes);

    /* Segments of page-locked host memory, for copies to and from this device. Optional; without
     * them pinned pools use pages that are not locked. */
    kn_status (*pinned_alloc)(void *impl, void **out, size_t size_bytes);
    void (*pinned_free)(void *impl, void *ptr, size_t size_bytes);

    /* Virtual memory. Optional: if range_reserve is NULL, the others are ignored and pools grow by
     * plain segments. range_reserve reserves addresses. handle_create allocates physical memory; a
     * handle is mapped and unmapped as a whole. Mapped memory is not accessible yet: range_access
     * makes a run of mapped handles readable and writable, or fails for all of them. A pool calls
     * it once for each run, and again after it maps a handle elsewhere. Before range_access,
     * handle_unmap fails only on a lost device, so that a pool can always undo its maps. */
    kn_status (*range_reserve)(void *impl, void **out, size_t size_bytes);
    void (*range_release)(void *impl, void *ptr, size_t size_bytes);
    kn_status (*handle_create)(void *impl, uint64_t *out, size_t size_bytes);
    void (*handle_destroy)(void *impl, uint64_t handle, size_t size_bytes);
    kn_status (*handle_map)(void *impl, void *at, size_t size_bytes, uint64_t handle);
    kn_status (*range_access)(void *impl, void *at, size_t size_bytes);
    kn_status (*handle_unmap)(void *impl, void *at, size_t size_bytes);

    /* Copies host to device (from_host), device to host (to_host), or within the device (neither).
     */
    kn_status (*copy)(void *impl, void *dst, const void *src, size_t size_bytes, bool from_host,
                      bool to_host, kn_stream stream);
    kn_status (*fill)(void *impl, void *dst, int byte, size_t size_bytes, kn_stream stream);

    /* Streams: stream_create makes a non-blocking one; stream_sync makes the host wait for it. */
    kn_status (*stream_create)(void *impl, kn_stream *out);
    void (*stream_destroy)(void *impl, kn_stream stream);
    kn_status (*stream_sync)(void *impl, kn_stream stream);
    /* Makes the host wait for all work of the device, also that of destroyed streams. It would
     * invalidate a graph capture: the caller makes sure that no stream is being captured. Optional;
     * without it memory of a stream that was destroyed without kn_stream_retire stays unused. */
    kn_status (*device_sync)(void *impl);
    /* A number above 0 that is unique for the life of the process, while handles are reused; 0 if
     * the driver fails, or can't tell because the stream is captured. Must be cheap: pools call it
     * at each allocation on a created stream. Optional; without it pools identify a stream by its
     * handle, and the program must call kn_stream_retire before it destroys a stream. */
    uint64_t (*stream_id)(void *impl, kn_stream stream);
    /* Rejects a stream of another context than the device's with INVALID and a message for the
     * user. Pools call it when they see a stream for the first time. Optional; without it every
     * stream is accepted. */
    kn_status (*stream_check)(void *impl, kn_stream stream);
    /* True while the stream is being captured into a graph. Optional; without it: false. */
    bool (*stream_capturing)(void *impl, kn_stream stream);

    /* Events without timing. */
    kn_status (*event_create)(void *impl, void **out);
    void (*event_destroy)(void *impl, void *event);
    kn_status (*event_record)(void *impl, void *event, kn_stream stream);
    kn_status (*event_query)(void *impl, void *event, bool *done);
    kn_status (*event_wait)(void *impl, void *event, kn_stream stream); /* the stream waits */
    kn_status (*event_sync)(void *impl, void *event);                   /* the host waits */

    /* False once the process is unloading the driver; no other function is called then. Optional;
     * without it: true. */
    bool (*alive)(void *impl);

    /* Drops the memory of a part of a segment and keeps its addresses; reads then return any
     * bytes. Nothing uses it until kn_pool_resume. Optional; without it plain segments
     * can't pause. */
    kn_status (*segment_drop)(void *impl, void *ptr, size_t size_bytes);

    /* Handles with properties: `flags` are those of kn_handle_flags that the device has, others
     * fail. handle_export gives a file descriptor of a handle made with KN_HANDLE_SHARED;
     * handle_import a handle of one, which stays open. Optional: handle_flags 0. */
    unsigned handle_flags;
    kn_status (*handle_create_as)(void *impl, uint64_t *out, size_t size_bytes, unsigned flags);
    kn_status (*handle_export)(void *impl, int *out_file, uint64_t handle);
    kn_status (*handle_import)(void *impl, uint64_t *out, int file);

    /* Lets the device `peer` of the same driver read and write the memory of this one: plain
     * segments at once, mapped handles after the next range_access. Optional. */
    kn_status (*peer_open)(void *impl, void *peer);
    /* Copies from this device to the device `dst_impl` of the same driver; `stream` is this
     * device's. Optional. */
    kn_status (*copy_peer)(void *impl, void *dst_impl, void *dst, const void *src,
                           size_t size_bytes, kn_stream stream);
} kn_device_driver;

/* Registers a device under a name such as "cuda:0". Borrows `driver` and `impl` for the life of the
 * process. Errors: INVALID if the name is taken, empty or longer than 15 characters, or if the
 * driver has only some of the functions of virtual memory. */
KN_API KN_MUST_CHECK kn_status kn_device_register(kn_device **out, const char *name,
                                                  const kn_device_driver *driver, void *impl);

/* The table and the `impl` pointer of a registered device. */
KN_API const kn_device_driver *kn_device_driver_get(const kn_device *device, void **impl);

#ifdef __cplusplus
}
#endif
#endif
