/* A fake CUDA driver: a shared library with the real one's name, for machines without a GPU. Device
 * memory is host memory; streams run at once, unless a test holds them.
 *
 * It is strict where the real driver forgives or crashes. A wrong or missing context, a handle
 * unmapped in part, a range released while mapped, a call after shutdown, an unsafe call during
 * another thread's graph capture: each is a *violation*, for the test to assert on. Link a test
 * with fake_cuda: the loader then finds this library as libcuda.so.1.
 */
#ifndef KNET_FAKE_CUDA_H
#define KNET_FAKE_CUDA_H

#include "device/cuda_api.h"

#define FAKE_API __attribute__((visibility("default")))

typedef struct fake_cuda_counts {
    uint64_t n_calls; /* of any function since the reset */
    int n_segments, n_ranges, n_handles, n_mapped, n_streams, n_events;
    uint64_t used_bytes;       /* of physical memory */
    int n_contexts;            /* on the calling thread's stack */
    int n_retained;            /* primary contexts, as often as they are */
    unsigned int capture_mode; /* of the calling thread */
    int n_violations;
} fake_cuda_counts;

/* The machine. Set it before the driver is loaded. */
typedef struct fake_cuda_machine {
    int n_devices;
    int driver_version;    /* 13000 */
    cu_result init_result; /* of cuInit */
    bool is_stub;          /* the toolkit's library for linking */
    bool has_virtual_memory;
    const char *lacks;       /* a function that the driver doesn't have */
    unsigned int open_us;    /* cuDevicePrimaryCtxRetain takes this long */
    uint64_t capacity_bytes; /* of each device */
    uint64_t other_bytes[8]; /* of a device, in use by other processes */
    int compute_major;       /* 9; read when a device is opened */
    bool no_sharing;         /* no file descriptors for handles, no RDMA */
    bool no_peers;           /* no device reaches another's memory */
    bool no_managed;         /* no managed memory */
    bool skips_copies;       /* copies within a device are not done: for the CPU's time alone */
} fake_cuda_machine;
FAKE_API fake_cuda_machine *fake_cuda_machine_get(void);

FAKE_API fake_cuda_counts fake_cuda_count(void);
/* Number of calls of one function. */
FAKE_API uint64_t fake_cuda_calls(const char *function);
/* The text of the first violation, or "". */
FAKE_API const char *fake_cuda_violation(void);
/* Clears violations, call counts and scripts; keeps allocations. */
FAKE_API void fake_cuda_reset(void);

/* Makes the n-th call (1, 2, …) of `function` (NULL: of any) return `result` and do nothing, and so
 * n_times in all; -1: every later call. */
FAKE_API void fake_cuda_fail(const char *function, int nth, int n_times, cu_result result);

/* Whether the last script made a call fail. */
FAKE_API bool fake_cuda_has_failed(void);

/* Work of a kernel or of the runtime: moves or fills bytes in the stream's turn. */
FAKE_API void fake_cuda_copy(cu_stream stream, void *dst, const void *src, size_t size_bytes);
FAKE_API void fake_cuda_fill(cu_stream stream, void *dst, unsigned char byte, size_t size_bytes);
/* The device of the thread's current context; -1: there is no context, or another library made it.
 */
FAKE_API int fake_cuda_device(void);
/* Calls run(data) in the stream's turn, and frees data. It calls no function of the driver. */
FAKE_API void fake_cuda_run(cu_stream stream, void (*run)(void *data), void *data);
/* Work on a held stream runs when the stream is released. */
FAKE_API void fake_cuda_hold(cu_stream stream);
FAKE_API void fake_cuda_release(cu_stream stream);
/* Enqueues work that takes so long by a clock that nothing else advances: it begins once the work
 * before it on its stream, what that waits for, and the host's waits so far are over. */
FAKE_API void fake_cuda_work(cu_stream stream, uint64_t ns);
/* Waits for all streams, and returns the time. */
FAKE_API uint64_t fake_cuda_now_ns(void);
/* Begins or ends a graph capture in global mode, as by another thread. */
FAKE_API void fake_cuda_capture(cu_stream stream, bool on);

/* A stream that the program itself creates in `context` or, if `green`, in a green context made
 * from it. */
FAKE_API cu_stream fake_cuda_stream(cu_context context, bool green);

/* How many devices reach the mapping at `ptr`; and whether network cards do. */
FAKE_API int fake_cuda_access(const void *ptr);
FAKE_API bool fake_cuda_rdma(const void *ptr);

/* Contexts, and the calling thread's stack of them, for a test that stands for another library. */
FAKE_API cu_context fake_cuda_foreign_context(void);
FAKE_API cu_context fake_cuda_primary_context(int device);
FAKE_API void fake_cuda_context_push(cu_context context);
FAKE_API cu_context fake_cuda_context_pop(void);

#endif
