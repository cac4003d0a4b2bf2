/* Plain segments: what a pool grows by where the device has no virtual memory. All under the pool's
 * lock. */
#ifndef KN_ALLOC_SEGMENT_H
#define KN_ALLOC_SEGMENT_H

#include <knet/pool.h>

#include "core/block.h"

typedef struct kn__segment {
    struct kn__segment *next, *prev;
    char *ptr;
    size_t size;
    kn__block *first;
} kn__segment;

/* Takes a segment where `size` bytes fit; it is free for the stream. Errors: OOM, or the driver's.
 */
kn_status kn__segment_grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align);
/* Gives back segments that are free and finished, until at most keep_bytes are reserved. */
void kn__segments_shrink(kn_pool *pool, size_t keep_bytes);
void kn__segments_destroy(kn_pool *pool);

#endif
