/* Memory of CUDA graphs: every launch of a graph uses the blocks that were allocated during its
 * capture, so the pool keeps them for the graph until the graph is destroyed.
 *
 *     kn_pool_graph *memory = NULL;
 *     KN_TRY(kn_pool_graph_create(&memory, pool));
 *     KN_TRY(kn_pool_graph_begin(memory, stream));  // blocks for `stream` now belong to the graph
 *     cudaStreamBeginCapture(stream, mode);
 *     step(pool, stream);                           // calls kn_alloc and kn_free
 *     cudaStreamEndCapture(stream, &graph);
 *     KN_TRY(kn_pool_graph_end(memory, stream));
 *     …                                             // launch on `other`, as often as you like
 *     kn_pool_graph_destroy(memory, other);         // after the last launch
 *
 * Without it the pool reuses a block of a captured graph as soon as it is freed, and a launch
 * overwrites the new owner's data. The pool logs this once, when it serves such an allocation from
 * outside the stream's free blocks; it does not check sooner, since that would cost time.
 *
 * During the capture later allocations of the same stream reuse a freed block at once. The pool
 * records, queries and awaits no event, and moves no memory: it takes unused memory, or grows.
 * Blocks that are live at the end stay live; freed later, they still belong to the graph.
 *
 * Pinned pools don't support graphs: memory that a captured copy reads or writes there must stay
 * allocated until the graph is destroyed.
 *
 * To undo a capture that failed, call kn_pool_graph_end, free the remaining blocks and call
 * kn_pool_graph_destroy. Several graphs may share one kn_pool_graph, captured one after the other,
 * if no two of them run at the same time. Several streams may be captured at once, into one
 * kn_pool_graph or several. The pool and the kn_pool_graph may be destroyed in any order.
 *
 * Threads: any, one at a time for one kn_pool_graph; meanwhile no other thread may allocate for the
 * stream. Only kn_pool_graph_alloc may be called by several threads at once, for all streams.
 */
#ifndef KNET_POOL_GRAPH_H
#define KNET_POOL_GRAPH_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The memory of one graph, or of several that never run at the same time. */
typedef struct kn_pool_graph kn_pool_graph;

/* Creates it, empty. Errors: INVALID for a pool where no stream can be captured (the host's, a
 * pinned one); OOM. */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_create(kn_pool_graph **out, kn_pool *pool);
/* Starts to allocate the stream's blocks for the graph. Errors: INVALID if the stream has begun
 * already; DEVICE in a child of fork(); OOM: no host memory. */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_begin(kn_pool_graph *graph, kn_stream stream);
/* Allocates the stream's blocks for the stream again. Errors: INVALID if the stream has not begun.
 */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_end(kn_pool_graph *graph, kn_stream stream);
/* Allocates a block of the graph for work on the stream, whether the stream has begun or not. For
 * programs that decide for each allocation whether it belongs to the graph. kn_free frees the
 * block: later allocations of the graph on the same stream reuse it at once. Errors: as kn_alloc;
 * INVALID if the pool is destroyed. */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_alloc(void **out, kn_pool_graph *graph,
                                                   size_t size_bytes, kn_stream stream);
/* Frees all its memory on `stream`, as kn_free does: the pool reuses it after the work that is
 * enqueued there now. Pass the stream of the last launch, or one that waited for it. Live blocks
 * then belong to that stream. Ends the capture if it has begun. No-op on NULL. */
KN_API void kn_pool_graph_destroy(kn_pool_graph *graph, kn_stream stream);
/* The same for a caller that doesn't know which streams the graph ran on: the pool reuses the
 * memory only after a wait for the device, which it makes before an allocation would fail, or in
 * kn_pool_sync. No-op on NULL. */
KN_API void kn_pool_graph_destroy_any(kn_pool_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
