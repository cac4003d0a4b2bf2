/* Which scope was open when a node of a CUDA graph was captured.
 *
 * A captured kernel runs at every replay of its graph, long after its scope was left; its records
 * carry the node's number. Instantiating a graph copies its nodes under new numbers, and the copies
 * keep the scope. The table is bounded: what finds no room is counted, and its time then stands
 * beside that of graphs captured before the timer was on.
 */
#ifndef KN_PROFILER_GRAPH_H
#define KN_PROFILER_GRAPH_H

#include "tree.h"

enum { KN__GRAPH_NODES_MAX = 1 << 16 };

/* A node was made on this thread, in its innermost scope; `graph` is the address of its graph. */
void kn__graph_created(uint64_t id, const void *graph);
/* A node was made as a copy of another. */
void kn__graph_cloned(uint64_t id, uint64_t original, const void *graph);
/* The nodes noted under one graph are those of another: of the executable graph that they were
 * copied for, whose address was not known yet. */
void kn__graph_move(const void *from, const void *to);
/* A node, or all nodes of a graph, will not be launched again. Records of them that are still under
 * way find their scope until two more drains have passed. */
void kn__graph_node_destroyed(uint64_t id);
void kn__graph_destroyed(const void *graph);

/* The scope; NULL when the node isn't known. */
kn__tree_node *kn__graph_scope(uint64_t id);
/* Forgets graphs destroyed two calls ago; by the drain. */
void kn__graph_sweep(void);
/* Nodes there was no room for. */
uint64_t kn__graph_lost(void);

#endif
