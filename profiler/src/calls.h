/* What a call of the CUDA runtime or driver does, told by its name: names outlive lists of numbers,
 * as each toolkit adds new forms of launches and copies.
 */
#ifndef KNET_CALLS_H
#define KNET_CALLS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum kn__call {
    KN__CALL_QUIET, /* asked for so often, and so cheap, that a row would say nothing */
    KN__CALL_PLAIN,
    KN__CALL_GRAPH_LAUNCH,
    KN__CALL_LAUNCH, /* a kernel, a copy, a set */
    KN__CALL_ALLOC
} kn__call;

/* "cudaMemcpyAsync_ptsz_v7000" and the like. */
kn__call kn__call_kind(const char *name);

/* Whether the call's third argument is how many bytes or elements it copies or sets: with 0 the GPU
 * has nothing to do, and there is no record. */
bool kn__call_counts(const char *name);

/* The name without its version: "cudaMemcpyAsync_ptsz". Cut to fit. */
void kn__call_label(char *out, size_t out_bytes, const char *name);

#endif
