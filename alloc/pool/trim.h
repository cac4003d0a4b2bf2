/* What a pool gives back to its device: trim, limits, decay. */
#ifndef KN_ALLOC_TRIM_H
#define KN_ALLOC_TRIM_H

#include "core/pool_state.h"

/* trim.c: returns free memory until at most keep_bytes are reserved. Under the lock. */
void kn__trim(kn_pool *pool, size_t keep_bytes);

/* trim.c: whether the pool may do so on its own, in any call. Under the lock. */
bool kn__trim_may(const kn_pool *pool);

/* trim.c: to be called after the limit changed. Under the lock. */
void kn__limit_apply(kn_pool *pool);

/* trim.c: while more than the limit is reserved, returns memory that was freed. Under the lock. */
void kn__limit_enforce(kn_pool *pool);

/* trim.c: waits until all that was freed is out of use, slots in threads' caches too. Under the
 * lock. */
void kn__pool_sync(kn_pool *pool);

/* decay.c: returns memory that was idle for decay_ns. Under the lock. */
void kn__decay(kn_pool *pool);

#endif
