/* Memory of graphs, as the pool's own calls see it. */
#ifndef KN_ALLOC_GRAPH_H
#define KN_ALLOC_GRAPH_H

#include "core/pool_state.h"

void kn__graphs_orphan(kn_pool *pool); /* the pool goes */
/* A stream of that key goes. Under the lock. */
void kn__graphs_stream_gone(kn_pool *pool, uint64_t key);
/* The graph's own part of the stream, made at first use. Under the lock. */
kn_status kn__graph_part(kn__stream **out, kn_pool_graph *graph, kn_stream handle);
/* The graph's pool. Errors: INVALID if it is destroyed. */
kn_status kn__graph_pool(kn_pool **out, kn_pool_graph *graph, const char *function);
/* Logs, once, that a capture has not begun here. */
void kn__graph_missing(const kn_pool *pool);

#endif
