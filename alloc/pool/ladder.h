/* The ladder: the steps for a request that the stream's own free blocks can't serve. */
#ifndef KN_ALLOC_LADDER_H
#define KN_ALLOC_LADDER_H

#include "core/pool_state.h"

/* A block of `size` for `stream`, by every means there is; or, for a size class, until the stream
 * has a slab with free slots: *out may be NULL then. `requested`: what the user asked for. Under
 * the lock; may open it and take it again. Errors: as kn_alloc. */
kn_status kn__ladder(kn__block **out, kn_pool *pool, kn__stream *stream, size_t size, size_t align,
                     unsigned size_class, size_t requested);

#endif
