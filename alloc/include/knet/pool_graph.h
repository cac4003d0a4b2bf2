/* Memory of CUDA graphs: every launch of a graph uses the blocks again that were allocated while
 * the stream was captured, so the pool reserves them until the graph is destroyed.
 *
 *     kn_pool_graph *memory = NULL;
 *     KN_TRY(kn_pool_graph_create(&memory, pool));
 *     KN_TRY(kn_pool_graph_begin(memory, stream));  // from here on, what `pool` gives for `stream`
 *     cudaStreamBeginCapture(stream, mode);         //   is the graph's own
 *     step(pool, stream);                           // kn_alloc and kn_free as ever
 *     cudaStreamEndCapture(stream, &graph);
 *     KN_TRY(kn_pool_graph_end(memory, stream));
 *     …                                             // launch on `other`, as often as you like
 *     kn_pool_graph_destroy(memory, other);         // after the last launch
 *
 * Without it, what a captured graph uses is handed out again as soon as it is freed, and a launch
 * overwrites what others have there. The log is told so once, when such an allocation is not served
 * from what the stream has at hand: that is seen where it costs nothing, no sooner.
 *
 * Inside, a freed block is reused by later allocations of the same stream at once. No event is
 * recorded, asked or waited for while the stream is captured, and no memory moves: the pool takes
 * unused memory, or grows. Blocks that are live at the end stay live; freed later they remain the
 * graph's.
 *
 * A pinned pool knows no graphs: what a captured copy reads or writes there must stay allocated
 * until the graph is gone.
 *
 * A capture that failed is rolled back by kn_pool_graph_end, the frees that are missing and
 * kn_pool_graph_destroy. Several graphs may share one memory, one capture after the other, if no
 * two of them run at the same time. Several streams may be captured at once, into one memory or
 * several. The pool and the memory may be destroyed in any order.
 *
 * Threads: any, one at a time for one memory; no other thread allocates for the stream meanwhile.
 */
#ifndef KNET_POOL_GRAPH_H
#define KNET_POOL_GRAPH_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_pool_graph kn_pool_graph;

/* Errors: INVALID for a pool where no stream can be captured (the host's, a pinned one); OOM. */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_create(kn_pool_graph **out, kn_pool *pool);
/* What the pool gives for the stream belongs to the graph from now on. Errors: INVALID when the
 * stream has begun already; DEVICE in a child of fork(); OOM: no host memory. */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_begin(kn_pool_graph *graph, kn_stream stream);
/* Errors: INVALID when it has not begun. */
KN_API KN_MUST_CHECK kn_status kn_pool_graph_end(kn_pool_graph *graph, kn_stream stream);
/* All its memory is freed on `stream`, in its order, as by kn_free: others get it after what was
 * enqueued there until now. So it is the stream of the last launch, or one that waited for it.
 * Live blocks become the stream's. Ends the capture if it has begun. Ignores NULL. */
KN_API void kn_pool_graph_destroy(kn_pool_graph *graph, kn_stream stream);

#ifdef __cplusplus
}
#endif
#endif
