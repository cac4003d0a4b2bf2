/* What a pool gives back to its device: trim, limits, decay. */
#ifndef KNET_ALLOC_TRIM_H
#define KNET_ALLOC_TRIM_H

#include "core/pool_state.h"

/* trim.c: gives back what is free until at most keep_bytes are reserved. Under the lock. */
void kn__trim(kn_pool *pool, size_t keep_bytes);

/* decay.c: what was idle for long goes back. Under the lock. */
void kn__decay(kn_pool *pool);

#endif
