/* The simulated device: a GPU without memory, for tests and for the replay of traces.
 *
 * It allocates addresses up to a fixed capacity; nothing may read or write there. It returns no
 * address twice, so that stale pointers are found: after some 500 pools on a device of 64 GiB its
 * addresses are used up, and requests fail with OOM. Its streams are asynchronous: work runs when
 * the test calls kn_sim_step or kn_sim_drain, or when the host waits for it. kn_sim_fail makes
 * calls fail. kn_sim_work enqueues work that uses some bytes on behalf of a user. The device
 * reports a *violation* when
 *   - bytes are used for another user while earlier work may still run,
 *   - work uses bytes that are not allocated, or mapped without access,
 *   - memory is freed or unmapped under work,
 *   - a captured stream is used in a way that would invalidate the capture,
 *   - a segment, handle, range or stream is used against the contract of device_driver.h.
 *
 * Streams behave like CUDA's: the work of a destroyed stream continues, and a later stream gets the
 * same handle with another id. NULL and 1 are the legacy default stream; 2 is the default stream of
 * the calling thread.
 *
 *     kn_sim *sim = NULL; kn_device *dev = NULL;
 *     KN_TRY(kn_sim_create(&sim, &(kn_sim_options){.capacity_bytes = 1 << 30}));
 *     KN_TRY(kn_device_register(&dev, "sim:mine", kn_sim_driver(sim), sim));
 *     …
 *     if (kn_sim_violations(sim, text, sizeof text) > 0) …
 *
 * Once registered, a kn_sim lives as long as the process. Threads: any, any time. Where the host
 * has no memory for the simulator's own records the process traps; only kn_sim_create returns OOM.
 */
#ifndef KNET_SIM_H
#define KNET_SIM_H

#include <knet/device_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A simulated device. */
typedef struct kn_sim kn_sim;

/* Options of kn_sim_create. */
typedef struct kn_sim_options {
    uint64_t capacity_bytes; /* 0: 64 GiB */
    bool plain;              /* no virtual memory: pools grow by segments */
    bool instant;            /* an idle GPU: work runs as soon as it can; see kn_sim_hold */
    bool no_stream_ids;      /* like a CUDA driver before 12.0 */
    uint64_t reserved[4];    /* zero */
} kn_sim_options;

/* Calls that can be scripted to fail. */
typedef enum kn_sim_call {
    KN_SIM_ANY = 0,
    KN_SIM_SEGMENT_ALLOC,
    KN_SIM_RANGE_RESERVE,
    KN_SIM_HANDLE_CREATE,
    KN_SIM_HANDLE_MAP,
    KN_SIM_HANDLE_UNMAP,
    KN_SIM_RANGE_ACCESS,
    KN_SIM_COPY,
    KN_SIM_STREAM_CREATE,
    KN_SIM_STREAM_SYNC,
    KN_SIM_STREAM_CHECK,
    KN_SIM_DEVICE_SYNC,
    KN_SIM_EVENT_CREATE,
    KN_SIM_EVENT_RECORD,
    KN_SIM_EVENT_QUERY,
    KN_SIM_EVENT_WAIT,
    KN_SIM_EVENT_SYNC,
    KN_SIM_INFO_READ,
    KN_SIM_PINNED_ALLOC,
    KN_SIM_CALLS
} kn_sim_call;

/* Creates a device. Options may be NULL. Errors: INVALID if options.reserved is not zero; OOM. */
KN_API KN_MUST_CHECK kn_status kn_sim_create(kn_sim **out, const kn_sim_options *options);
/* Destroys a kn_sim that was never registered as a device. No-op on NULL. */
KN_API void kn_sim_destroy(kn_sim *sim);
/* The functions to register it with; `impl` is the kn_sim. */
KN_API const kn_device_driver *kn_sim_driver(const kn_sim *sim);

/* Makes the nth call of this kind from now on fail (n = 1: the next one) and, if `forever`, all
 * later ones. A new script replaces the old one; n = 0 ends it. */
KN_API void kn_sim_fail(kn_sim *sim, kn_sim_call call, uint64_t nth, bool forever);
/* Number of calls of this kind; for KN_SIM_ANY, of all calls that can fail. */
KN_API uint64_t kn_sim_calls(kn_sim *sim, kn_sim_call call);

/* Enqueues work that uses [ptr, ptr + size_bytes) for `user`, a number that the test chooses, such
 * as one for each allocation. */
KN_API void kn_sim_work(kn_sim *sim, kn_stream stream, const void *ptr, size_t size_bytes,
                        uint64_t user);
/* A handle of the calling thread's default stream that all threads can pass to the functions of
 * this header; handle 2 always means the stream of the thread that passes it. Thousands of threads
 * after the end of this one another gets the handle. */
KN_API kn_stream kn_sim_stream_of_thread(kn_sim *sim);
/* Begins or ends the capture of a stream into a graph. Until it ends, recording an event on the
 * stream, making it wait and waiting for it are violations. The test enqueues the captured work
 * with kn_sim_work where it launches the graph. */
KN_API void kn_sim_capture(kn_sim *sim, kn_stream stream, bool on);
/* Moves the stream to another context: stream_check rejects it. */
KN_API void kn_sim_foreign(kn_sim *sim, kn_stream stream);
/* Makes a stream of an instant device slow (`on`) or normal again. Work on a slow stream runs only
 * by kn_sim_step, by kn_sim_drain, or when the host waits for it. */
KN_API void kn_sim_hold(kn_sim *sim, kn_stream stream, bool on);
/* Runs the oldest item of the stream; returns false if the stream is empty or waits for another. */
KN_API bool kn_sim_step(kn_sim *sim, kn_stream stream);
/* Runs everything on every stream. */
KN_API void kn_sim_drain(kn_sim *sim);
/* Number of enqueued items of the stream (work, event records, waits) that have not run. */
KN_API size_t kn_sim_pending(kn_sim *sim, kn_stream stream);

/* Returns the number of violations so far; copies the text of the first one to `out`, or "". */
KN_API uint64_t kn_sim_violations(kn_sim *sim, char *out, size_t out_bytes);
/* Allocated bytes: segments and handles. */
KN_API uint64_t kn_sim_bytes(kn_sim *sim);
/* Number of live segments, ranges, handles, created streams and events. */
KN_API uint64_t kn_sim_objects(kn_sim *sim);

/* The clock, which only the test advances. */
KN_API uint64_t kn_sim_now_ns(kn_sim *sim);
KN_API void kn_sim_advance_ns(kn_sim *sim, uint64_t ns);

#ifdef __cplusplus
}
#endif
#endif
