/* Devices: where memory lives and work runs. "cpu" (the host), "cuda:N", and "sim", a simulated GPU
 * for tests.
 *
 * A kn_device belongs to the registry and lives as long as the process. A kn_stream is the driver's
 * native handle (cudaStream_t, CUstream). It must belong to the device's primary context, which the
 * CUDA runtime uses, or to a green context made from it. NULL and cudaStreamLegacy are the legacy
 * default stream; cudaStreamPerThread is the calling thread's default stream. The host has one
 * stream, NULL: it works in program order.
 *
 *     kn_device *dev = NULL;
 *     KN_TRY(kn_device_find(&dev, "cuda:0"));
 *
 * Threads: every function here may be called from any thread. Stream: functions enqueue work and
 * don't wait for it, unless their comment says so. The caller's current CUDA device never changes.
 */
#ifndef KNET_DEVICE_H
#define KNET_DEVICE_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device: see the top of this file. */
typedef struct kn_device kn_device;
typedef struct CUstream_st *kn_stream; /* is cudaStream_t and CUstream, without their headers */
typedef struct kn_event kn_event;      /* a point in a stream */

/* The kinds of devices. */
typedef enum kn_device_kind {
    KN_DEVICE_HOST = 1, /* "cpu" */
    KN_DEVICE_CUDA = 2, /* "cuda:N" */
    KN_DEVICE_SIM = 3   /* "sim" */
} kn_device_kind;

/* What a device is, for reports. */
typedef struct kn_device_info {
    kn_device_kind kind;              /* host, CUDA or simulated */
    int index;                        /* N of "cuda:N"; 0 for the others */
    int compute_major, compute_minor; /* CUDA compute capability; 0 elsewhere */
    uint64_t total_bytes;             /* physical memory */
    uint64_t free_bytes;              /* as the driver reports it; all processes share it */
    uint64_t granularity_bytes;       /* of virtual memory mappings; 0: no virtual memory */
    char name[16];                    /* "cpu", "cuda:0", "sim" */
    char model[128];                  /* "NVIDIA H100 80GB HBM3", the CPU's model name, … */
    char driver[64];                  /* driver or backing store and its version */
    uint64_t overhead_bytes;          /* of the backing store, beyond the pools' own bytes */
} kn_device_info;

/* Finds a device by name: "cpu", "cuda" (= "cuda:0"), "cuda:N", "sim". "cuda:auto" is the device
 * with most free memory when a process asks first; later it stays that one. "cuda:GPU-8932f937…"
 * and "cuda:MIG-…" are devices by the UUID that nvidia-smi -L shows, or by its first digits.
 * "managed:N" is cuda:N with managed memory: the CPU and all GPUs use one address, pages move to
 * who touches them, and a pool may hold more than the GPU has.
 * Errors: DEVICE if the machine lacks it, with the reason and the remedy; INVALID for other names.
 */
KN_API KN_MUST_CHECK kn_status kn_device_find(kn_device **out, const char *name);

/* The host device; never NULL. */
KN_API kn_device *kn_device_host(void);

/* Number of CUDA devices; 0 without a driver. */
KN_API int kn_device_cuda_count(void);

/* The name that kn_device_find takes: "cpu", "cuda:0". */
KN_API const char *kn_device_name(const kn_device *device);
/* Host, CUDA or simulated; calls no driver. */
KN_API kn_device_kind kn_device_kind_get(const kn_device *device);

/* Fills `out` (of out_bytes = sizeof *out). Calls the driver to learn the free bytes. */
KN_API KN_MUST_CHECK kn_status kn_device_info_read(kn_device_info *out, size_t out_bytes,
                                                   kn_device *device);

/* Creates a non-blocking stream. */
KN_API KN_MUST_CHECK kn_status kn_stream_create(kn_stream *out, kn_device *device);
/* Retires and destroys a stream made by kn_stream_create. No-op on NULL. The other default streams
 * can't be destroyed: it logs an error and does nothing. Tensors and captured steps that were last
 * written or replayed on it must have ended: those that read them later wait for the stream. */
KN_API void kn_stream_destroy(kn_device *device, kn_stream stream);
/* Call it before you destroy a stream of your own: pools record events for the memory that still
 * waits for the stream. A default stream (NULL, cudaStreamLegacy, cudaStreamPerThread) can't be
 * destroyed: the function logs an error and does nothing. */
KN_API void kn_stream_retire(kn_device *device, kn_stream stream);
/* Waits on the host until all work enqueued on the stream is done. */
KN_API KN_MUST_CHECK kn_status kn_stream_sync(kn_device *device, kn_stream stream);
/* The calling thread's own non-blocking stream on this device, made at first use or left by a
 * thread that ended; NULL on the host. It is never destroyed: tensors that were written on it
 * outlive the thread. */
KN_API KN_MUST_CHECK kn_status kn_stream_of_thread(kn_stream *out, kn_device *device);

/* Creates an event: a point in a stream. A new event has no point and counts as reached. Errors:
 * DEVICE in a child of fork(), OOM, or the driver's. */
KN_API KN_MUST_CHECK kn_status kn_event_create(kn_event **out, kn_device *device);
/* Destroys the event. Streams that already wait keep waiting for the recorded point. No-op on NULL.
 */
KN_API void kn_event_destroy(kn_event *event);
/* Sets the point after all work that is enqueued on the stream now; replaces the earlier point. */
KN_API KN_MUST_CHECK kn_status kn_event_record(kn_event *event, kn_stream stream);
/* Makes the stream wait, on the device, for the recorded point. */
KN_API KN_MUST_CHECK kn_status kn_event_wait(kn_event *event, kn_stream stream);
/* Sets *done to whether the point was reached; never waits. */
KN_API KN_MUST_CHECK kn_status kn_event_query(bool *done, kn_event *event);
/* Waits on the host until the point was reached. */
KN_API KN_MUST_CHECK kn_status kn_event_sync(kn_event *event);

/* Copies within one device, between a device and the host, or between two GPUs. `stream` belongs to
 * the device that is not the host; between GPUs, to the source's. With pageable host memory the
 * call may wait until that memory can be reused. Errors: CUDA, UNSUPPORTED (devices of two
 * drivers). */
KN_API KN_MUST_CHECK kn_status kn_device_copy(kn_device *dst_device, void *dst,
                                              kn_device *src_device, const void *src,
                                              size_t size_bytes, kn_stream stream);
/* Lets kernels of `peer` read and write the memory of `device`: all that its pools hold and will
 * hold. It can't be taken back. Errors: UNSUPPORTED if the machine doesn't connect the two. */
KN_API KN_MUST_CHECK kn_status kn_device_peer_open(kn_device *device, kn_device *peer);
/* Sets size_bytes bytes to `byte`. */
KN_API KN_MUST_CHECK kn_status kn_device_fill(kn_device *device, void *dst, int byte,
                                              size_t size_bytes, kn_stream stream);

#ifdef __cplusplus
}
#endif
#endif
