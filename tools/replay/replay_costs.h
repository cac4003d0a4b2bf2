/* What a policy's driver calls cost: a model, since a replay has no driver.
 *
 * A call takes a fixed time and a time for each MiB. Policies count their calls and the bytes of
 * them, so the sum needs no more. The published figures are of several machines and years: they
 * show which policy calls the driver how much, not what a card will take. Figures that
 * bench_gpu_costs measured on a card replace them. A call that waits takes the time of the call
 * alone: the length of a wait depends on the program's work, which isn't known.
 */
#ifndef KN_REPLAY_COSTS_H
#define KN_REPLAY_COSTS_H

#include <knet/status.h>
#include <stdbool.h>
#include <stdint.h>

/* X(name, driver's function, published fixed time, published time for each MiB): microseconds.
 * Sources:
 *   cuMemAlloc, cuMemFree   rapidsai/rmm issue 283 (2020): 7,595 ms for 100,000 cudaMalloc of up to
 *                           2 MiB and their cudaFree, the half each
 *   cuMemCreate … Release   vAttention, arXiv 2405.04437, table 3 (A100, 2 MiB)
 *   cuEvent…, cuStream…     pytorch/pytorch issue 78279 (2022): insert and poll of an event; a wait
 *                           is taken to cost as much as a record
 *   cuMem…Async             JuliaGPU/CUDA.jl pull request 746 (2021), at a warm pool
 * How the time depends on the size, and cuMemGetInfo: nothing published; measure. */
#define KN__CALLS_LIST(X)                                                                          \
    X(ALLOC, "cuMemAlloc", 38, 0)                                                                  \
    X(FREE, "cuMemFree", 38, 0)                                                                    \
    X(CREATE, "cuMemCreate", 29, 0)                                                                \
    X(MAP, "cuMemMap", 2, 0)                                                                       \
    X(ACCESS, "cuMemSetAccess", 38, 0)                                                             \
    X(UNMAP, "cuMemUnmap", 34, 0)                                                                  \
    X(RELEASE, "cuMemRelease", 23, 0)                                                              \
    X(INFO, "cuMemGetInfo", 0, 0)                                                                  \
    X(RECORD, "cuEventRecord", 2.8, 0)                                                             \
    X(QUERY, "cuEventQuery", 0.26, 0)                                                              \
    X(WAIT, "cuStreamWaitEvent", 2.8, 0)                                                           \
    X(ALLOC_ASYNC, "cuMemAllocAsync", 1.68, 0)                                                     \
    X(FREE_ASYNC, "cuMemFreeAsync", 1.19, 0)

typedef enum kn__driver_call {
#define X(name, text, fixed_us, mib_us) KN__CALL_##name,
    KN__CALLS_LIST(X)
#undef X
        KN__CALLS
} kn__driver_call;

typedef struct kn__driver_calls {
    uint64_t n[KN__CALLS], bytes[KN__CALLS];
} kn__driver_calls;

static inline void kn__calls_add(kn__driver_calls *calls, kn__driver_call call, uint64_t n,
                                 uint64_t bytes) {
    calls->n[call] += n;
    calls->bytes[call] += bytes;
}

typedef struct kn__costs {
    double fixed_us[KN__CALLS], mib_us[KN__CALLS];
    int n_measured; /* calls whose figures come from a file */
} kn__costs;

/* The driver's name of the call. */
const char *kn__call_name(kn__driver_call call);
kn__costs kn__costs_published(void);
/* Reads the JSON lines of bench_gpu_costs; lines of other benchmarks are passed over, and calls
 * that the file lacks keep their published figures. Where a call was measured at several sizes, its
 * time is the line through the smallest and the largest. Errors: IO; FORMAT: no figure in it. */
KN_MUST_CHECK kn_status kn__costs_read(kn__costs *out, const char *path);
/* Of all calls, in microseconds. */
double kn__costs_us(const kn__costs *costs, const kn__driver_calls *calls);

#endif
