/* Memory from the device, back to it, and from one place of the range to another.
 *
 * With virtual memory a pool grows in its range; without, by plain segments. A handle of which
 * every byte is free, and whose streams are done with it, can be unmapped and mapped elsewhere
 * ("harvest") or destroyed ("shrink"). All under the pool's lock. */
#ifndef KN_ALLOC_GROW_H
#define KN_ALLOC_GROW_H

#include "core/reserve.h"

/* New memory where `size` bytes fit, free for the stream. Errors: OOM, or the driver's. */
kn_status kn__grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align);
/* Gives back free, finished memory until at most keep_bytes are reserved. */
void kn__shrink(kn_pool *pool, size_t keep_bytes);
/* Gives back all of it: the pool goes. */
void kn__memory_release(kn_pool *pool);

/* harvest.c */
/* Moves memory of free, finished handles to where `size` bytes then fit; the device gives the
 * rest. `waits`: the stream may wait, on the device, for a free neighbour that saves memory.
 */
bool kn__harvest(kn_pool *pool, kn__stream *stream, size_t size, size_t align, bool waits);
/* Bytes of the handles that could be moved. */
uint64_t kn__idle_handles(kn_pool *pool);
void kn__range_shrink(kn_pool *pool, size_t keep_bytes);

#endif
