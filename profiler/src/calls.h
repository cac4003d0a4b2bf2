/* What a call of the CUDA runtime or driver does, told by its name: names outlive lists of numbers,
 * as each toolkit adds new forms of launches and copies.
 */
#ifndef KN_PROFILER_CALLS_H
#define KN_PROFILER_CALLS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum kn__cuda_call {
    KN__CUDA_CALL_QUIET, /* asked for so often, and so cheap, that a row would say nothing */
    KN__CUDA_CALL_PLAIN,
    KN__CUDA_CALL_GRAPH_LAUNCH,
    KN__CUDA_CALL_LAUNCH, /* a kernel, a copy, a set */
    KN__CUDA_CALL_ALLOC
} kn__cuda_call;

/* "cudaMemcpyAsync_ptsz_v7000" and the like. */
kn__cuda_call kn__cuda_call_kind(const char *name);

/* Whether the call's third argument is how many bytes or elements it copies or sets: with 0 the GPU
 * has nothing to do, and there is no record. */
bool kn__cuda_call_counts(const char *name);

/* The name without its version: "cudaMemcpyAsync_ptsz". Cut to fit. */
void kn__cuda_call_label(char *out, size_t out_bytes, const char *name);

#endif
