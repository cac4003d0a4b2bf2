/* Ranges for tools that listen to NVTX (Nsight Systems and the like), and counters, in the domain
 * "knet".
 *
 * Compiled from nvtx.c where the headers of NVTX are, else from nvtx_none.c, whose functions do
 * nothing.
 */
#ifndef KN_PROFILER_NVTX_H
#define KN_PROFILER_NVTX_H

#include "tree.h"

/* Makes the domain. Whether a tool listens; without one nothing is loaded and no range is sent. */
bool kn__nvtx_start(void);

/* Opens the range of a scope; its name is registered with the tool at first sight. */
void kn__nvtx_push(kn__tree_node *node);
/* Closes the innermost range of this thread. */
void kn__nvtx_pop(void);
/* Live bytes of all pools have changed: a sample of the counter "live bytes". */
void kn__nvtx_live(int64_t bytes);

/* A heap of the tool's; NULL: it wants none. */
void *kn__nvtx_heap(const char *name);
void kn__nvtx_heap_end(void *heap);
/* A block of it, as a region, until it is freed. */
void kn__nvtx_block(void *heap, const void *ptr, size_t size_bytes);
void kn__nvtx_block_end(const void *ptr);

#endif
