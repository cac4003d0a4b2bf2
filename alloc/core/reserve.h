/* How much a pool has reserved, and how much it may: its limits, and what the device has left. All
 * under the pool's lock. */
#ifndef KN_ALLOC_RESERVE_H
#define KN_ALLOC_RESERVE_H

#include "core/pool_state.h"

/* Memory came from the device, or (below zero) went back. */
void kn__reserve_add(kn_pool *pool, int64_t delta_bytes);
/* How much frees close an epoch, of a pool of this size. */
void kn__close_bytes_set(kn_pool *pool);
void kn__device_free_read(kn_pool *pool);
/* The most the pool may come to reserve: by its limit, and by what the device had free when it was
 * asked last. */
uint64_t kn__pool_capacity(const kn_pool *pool);
/* The rest of that capacity. */
uint64_t kn__pool_headroom(const kn_pool *pool);
/* Whether memory is short for this request: with it the pool would reserve more than a share
 * (kn_pool_options.pressure) of its capacity or of its soft limit. */
bool kn__pool_pressed(const kn_pool *pool, size_t size);
/* The error of a growth beyond the headroom. */
kn_status kn__over_limit(const kn_pool *pool, size_t bytes);

#endif
