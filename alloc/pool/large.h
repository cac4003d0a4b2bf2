/* Blocks of their own: too large for slabs, or aligned to more than a slab is. */
#ifndef KN_ALLOC_LARGE_H
#define KN_ALLOC_LARGE_H

#include <knet/pool_graph.h>

/* As kn_alloc and kn_free, of a pointer that no slab has. */
kn_status kn__large_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle);
/* The same, of a graph. */
kn_status kn__large_alloc_graph(void **out, kn_pool_graph *graph, kn_pool *pool, size_t size,
                                kn_stream handle);
kn_status kn__large_free(kn_pool *pool, char *ptr);

#endif
