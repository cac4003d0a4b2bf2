/* Captures into graphs on a simulated device, for the tests of graphs. */
#ifndef KNET_GRAPH_FIXTURE_H
#define KNET_GRAPH_FIXTURE_H

#include <knet/pool_graph.h>

#include "pool_fixture.h"

enum { BLOCKS = 64 };

typedef struct piece {
    char *ptr;
    size_t size;
} piece;

/* All blocks that a captured graph will use when it is launched. */
typedef struct captured {
    piece pieces[BLOCKS];
    int n;
} captured;

/* The stream is captured into a new graph from begin to end. */
kn_pool_graph *capture_begin(fixture *f, kn_stream stream);
void capture_end(fixture *f, kn_pool_graph *graph, kn_stream stream);
/* Allocates a block during the capture and adds it to the graph's. */
void *captured_alloc(fixture *f, captured *graph, size_t size, kn_stream stream);
/* Enqueues work on all blocks of the graph. */
void captured_launch(fixture *f, const captured *graph, kn_stream stream, uint64_t user);

bool bytes_overlap(const char *a, size_t a_size, const char *b, size_t b_size);
/* These bytes are in no block of the graph. */
void captured_assert_apart(const captured *graph, const char *ptr, size_t size);
/* No block that the pool can allocate, on any stream, belongs to the graph. */
void captured_exhaust(fixture *f, const captured *graph, kn_stream s, kn_stream other);
/* Nothing is live: all memory returns to the device, once its events have happened. */
void assert_all_goes(fixture *f);

#endif
