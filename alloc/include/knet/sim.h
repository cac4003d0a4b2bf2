/* The simulated device: a GPU without memory, for tests and for the replay of traces.
 *
 * It gives addresses, which must not be read or written, up to a fixed capacity. Its streams are
 * asynchronous: work is done only when the test lets it (kn_sim_step, kn_sim_drain) or when the
 * host waits for it. It fails where it is told to, and it checks: kn_sim_work says which bytes a
 * piece of work uses, and for which user; bytes used for another user while that work may still run
 * are a violation, and so are bytes without memory, mapped memory that was given no access, and
 * memory taken away under work.
 *
 * Streams are like CUDA's. The work of a destroyed stream goes on; its handle is soon another
 * stream's, with another id. NULL and 1 are the legacy default stream, 2 is the calling thread's
 * own one.
 *
 *     kn_sim *sim = NULL; kn_device *dev = NULL;
 *     KN_TRY(kn_sim_create(&sim, &(kn_sim_options){.capacity_bytes = 1 << 30}));
 *     KN_TRY(kn_device_register(&dev, "sim:mine", kn_sim_driver(sim), sim));
 *     …
 *     if (kn_sim_violations(sim, text, sizeof text) > 0) …
 *
 * Once registered a kn_sim lives as long as its device: for ever. Threads: any, any time.
 */
#ifndef KNET_SIM_H
#define KNET_SIM_H

#include <knet/device_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_sim kn_sim;

typedef struct kn_sim_options {
    uint64_t capacity_bytes; /* 0: 64 GiB */
    bool plain;              /* no virtual memory: the pool grows by segments */
    bool instant;            /* what is enqueued happens at once, as on an idle GPU that keeps up;
                                what a held stream delays waits (kn_sim_hold) */
    bool no_stream_ids;      /* as a CUDA driver before 12.0 */
    uint64_t reserved[4];    /* zero */
} kn_sim_options;

/* Calls that can be made to fail. */
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

/* Options may be NULL. Errors: INVALID where options.reserved is not zero; OOM. */
KN_API KN_MUST_CHECK kn_status kn_sim_create(kn_sim **out, const kn_sim_options *options);
/* Only for one that was never registered as a device. NULL is nothing. */
KN_API void kn_sim_destroy(kn_sim *sim);
KN_API const kn_device_driver *kn_sim_driver(const kn_sim *sim);

/* The nth call of this kind from now on fails (n = 1: the next one), and if `forever` every one
 * after it. One script at a time; n = 0 ends it. */
KN_API void kn_sim_fail(kn_sim *sim, kn_sim_call call, uint64_t nth, bool forever);
/* How many calls of this kind were made; of those that can fail, for KN_SIM_ANY. */
KN_API uint64_t kn_sim_calls(kn_sim *sim, kn_sim_call call);

/* Enqueues work on the stream that uses [ptr, ptr + size_bytes) for `user`, a number that the test
 * chooses, such as one for each allocation. */
KN_API void kn_sim_work(kn_sim *sim, kn_stream stream, const void *ptr, size_t size_bytes,
                        uint64_t user);
/* The calling thread's own stream by a name that every thread may use with the functions here; 2
 * means the caller's own. */
KN_API kn_stream kn_sim_stream_of_thread(kn_sim *sim);
/* The stream is being captured into a graph, or no longer: to record, to wait or to be waited for
 * is a violation meanwhile. The test enqueues the work of a captured stream where it launches the
 * graph. */
KN_API void kn_sim_capture(kn_sim *sim, kn_stream stream, bool on);
/* The stream belongs to another context from now on: stream_check refuses it. */
KN_API void kn_sim_foreign(kn_sim *sim, kn_stream stream);
/* On an instant device: this stream is slow, or no longer. What is enqueued on it happens only by
 * kn_sim_step and kn_sim_drain or when the host waits for it. */
KN_API void kn_sim_hold(kn_sim *sim, kn_stream stream, bool on);
/* Lets the oldest thing on the stream happen; false when it is empty or waits for another. */
KN_API bool kn_sim_step(kn_sim *sim, kn_stream stream);
/* Lets everything on every stream happen. */
KN_API void kn_sim_drain(kn_sim *sim);
/* Things enqueued on the stream that have not happened. */
KN_API size_t kn_sim_pending(kn_sim *sim, kn_stream stream);

/* How many rules were broken; the first one's text goes to `out`, "" when none was. */
KN_API uint64_t kn_sim_violations(kn_sim *sim, char *out, size_t out_bytes);
/* Bytes of segments and handles that exist; handles, segments, ranges, streams and events. */
KN_API uint64_t kn_sim_bytes(kn_sim *sim);
KN_API uint64_t kn_sim_objects(kn_sim *sim);

/* The clock: moved by the test alone. */
KN_API uint64_t kn_sim_now_ns(kn_sim *sim);
KN_API void kn_sim_advance_ns(kn_sim *sim, uint64_t ns);

#ifdef __cplusplus
}
#endif
#endif
