/* Blocks of their own: too large for slabs, or aligned to more than a slab is. */
#ifndef KN_ALLOC_LARGE_H
#define KN_ALLOC_LARGE_H

#include <knet/pool_graph.h>

#include "core/poison.h"

/* Of the block for a request. At most one block may start in a page. */
static inline size_t kn__large_bytes(const kn_pool *pool, size_t size) {
    size_t rounded = kn__block_round(size + kn__red_zone(pool));
    return rounded < KN__PAGE ? KN__PAGE : rounded;
}
/* As kn_alloc and kn_free, of a pointer that no slab has. */
kn_status kn__large_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle);
/* The same, of a graph. */
kn_status kn__large_alloc_graph(void **out, kn_pool_graph *graph, kn_pool *pool, size_t size,
                                kn_stream handle);
kn_status kn__large_free(kn_pool *pool, char *ptr);

#endif
