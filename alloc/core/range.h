/* The range: a pool's one run of virtual addresses, into which handles of memory are mapped.
 *
 * Handles are mapped where the least is needed, lowest addresses first, and grow with what is
 * mapped. Addresses without memory are blocks too: holes. All under the pool's lock. */
#ifndef KN_ALLOC_RANGE_H
#define KN_ALLOC_RANGE_H

#include <knet/pool.h>

#include "core/block.h"

#define KN__RANGE_MAX ((size_t)1 << 40) /* bytes; what ThreadSanitizer bears */

/* One granule (range.unit bytes) of the range. */
typedef struct kn__granule {
    uint64_t handle;
    uint32_t span; /* granules of the handle that starts here; 0: none starts here */
} kn__granule;

typedef struct kn__range {
    char *base; /* NULL where virtual memory is missing */
    size_t size;
    kn__block *first;
    kn__block *holes; /* by address */
    kn__granule *granules;
    size_t unit; /* granularity of handles, in bytes */
} kn__range;

/* Where a request fits with the least new memory: the first `bytes` of a hole, together with the
 * free block before it, and the one after it when the hole is filled. */
typedef struct kn__fit {
    kn__block *hole;
    size_t bytes;
    const char *end; /* of the request: in the hole, or in the block after it */
} kn__fit;

/* Reserves addresses for a device of total_bytes. Errors: the driver's; OOM: no host memory. */
kn_status kn__range_create(kn_pool *pool, uint64_t total_bytes, uint64_t granularity_bytes);
/* Unmaps all memory and releases the addresses; `alive`: the driver can be called. */
void kn__range_destroy(kn_pool *pool, bool alive);
/* Maps memory where `size` bytes then fit. Errors: OOM, or the driver's. */
kn_status kn__range_grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align);

/* What harvest.c moves memory with. */

static inline kn__granule *kn__granule_of(const kn__range *range, const char *ptr) {
    return &range->granules[(size_t)(ptr - range->base) / range->unit];
}
static inline size_t kn__handle_bytes(const kn__range *range, const char *at) {
    return kn__granule_of(range, at)->span * range->unit;
}
static inline size_t kn__round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* Whether the block is free and `by` may use it with no further wait; the block may be NULL. */
bool kn__range_usable(const kn_pool *pool, const kn__stream *by, const kn__block *block);
/* `waits`: `by` may wait, on the device, for free neighbours. No hole: there is no such place. */
kn__fit kn__range_plan(const kn_pool *pool, const kn__stream *by, size_t size, size_t align,
                       bool waits);
/* Host memory for what mapping `bytes` from `at` on will need, so that nothing fails behind it. */
kn_status kn__range_room(kn_pool *pool, const char *at, size_t bytes);
/* Maps `bytes` of new memory at `at`; all or nothing. *mapped says how many bytes are mapped
 * afterwards: none after a failure, unless they can't be unmapped either. */
kn_status kn__range_map(kn_pool *pool, char *at, size_t bytes, size_t *mapped);
/* Makes the handles mapped in [at, at + *bytes) usable. After a failure they are given back, the
 * last first: *bytes says how many bytes stay, which can't be unmapped. */
kn_status kn__range_map_finish(kn_pool *pool, char *at, size_t *bytes, kn_status status);
/* Gives the handle at `at` back to the device. */
kn_status kn__range_unmap(kn_pool *pool, char *at);
/* The first `bytes` of the hole have memory now: makes them a free block, merged with its
 * neighbours. kn__range_room ensured a record for the rest of the hole. */
void kn__hole_fill(kn_pool *pool, kn__stream *stream, kn__block *hole, size_t bytes);
/* A block that just lost its memory, out of the bins, becomes a hole. */
void kn__hole_make(kn_pool *pool, kn__block *block);
kn__block *kn__range_last(const kn_pool *pool);

#endif
