/* A CUDA driver for machines that have none: a shared library with the real one's name, whose
 * "device memory" is host memory and whose streams run at once, unless a test holds them.
 *
 * It is strict where the real driver forgives or crashes: wrong or missing context, a handle
 * unmapped in part, a range released while mapped, calls after shutdown, unsafe calls during
 * another thread's graph capture are *violations*, kept for the test to assert on. Link a test with
 * fake_cuda: the loader then finds this library as libcuda.so.1.
 */
#ifndef KNET_FAKE_CUDA_H
#define KNET_FAKE_CUDA_H

#include "cuda_api.h"

#define FAKE_API __attribute__((visibility("default")))

typedef struct fake_cuda_counts {
    uint64_t n_calls; /* of any function since the reset */
    int n_segments, n_ranges, n_handles, n_mapped, n_streams, n_events;
    uint64_t used_bytes; /* of physical memory */
    int n_contexts;      /* on the calling thread's stack */
    int n_violations;
} fake_cuda_counts;

/* What the machine is like; to be set before the driver is loaded. */
typedef struct fake_cuda_machine {
    int n_devices;
    int driver_version; /* 13000 */
    cu_result init_result;
    bool is_stub; /* the toolkit's library for linking */
    bool has_virtual_memory;
    uint64_t capacity_bytes; /* of each device */
} fake_cuda_machine;
FAKE_API fake_cuda_machine *fake_cuda_machine_get(void);

FAKE_API fake_cuda_counts fake_cuda_count(void);
/* Calls of one function. */
FAKE_API uint64_t fake_cuda_calls(const char *function);
/* The first violation; "" when there is none. */
FAKE_API const char *fake_cuda_violation(void);
/* Forgets violations and calls counted and ends scripts; what is allocated stays. */
FAKE_API void fake_cuda_reset(void);

/* From now, the n-th (1, 2, …) call of `function` (NULL: of any) fails with `result` and does
 * nothing; n_times of them, -1: all from then on. */
FAKE_API void fake_cuda_fail(const char *function, int nth, int n_times, cu_result result);

/* Whether a call failed so since the last script. */
FAKE_API bool fake_cuda_has_failed(void);

/* Work enqueued on a held stream waits for its release. */
FAKE_API void fake_cuda_hold(cu_stream stream);
FAKE_API void fake_cuda_release(cu_stream stream);
/* Begins or ends a graph capture in global mode, as by another thread. */
FAKE_API void fake_cuda_capture(cu_stream stream, bool on);

/* A stream as the program itself makes it, in a context of its choice, `green`: in a green context
 * made from that one. Destroyed like any other. */
FAKE_API cu_stream fake_cuda_stream(cu_context context, bool green);

/* The context stack of this thread, as another library would use it. */
FAKE_API cu_context fake_cuda_foreign_context(void);
FAKE_API cu_context fake_cuda_primary_context(int device);
FAKE_API void fake_cuda_context_push(cu_context context);
FAKE_API cu_context fake_cuda_context_pop(void);

#endif
