/* Memory of other streams. */
#ifndef KN_ALLOC_STEAL_H
#define KN_ALLOC_STEAL_H

#include "core/pool_state.h"

/* Neighbours that are free or waiting, of any streams, and large enough together: makes them one
 * free block of the stream, which waits on the device for all who had a part of it. NULL: there are
 * none, or a wait failed. Under the lock. */
kn__block *kn__steal_run(kn_pool *pool, kn__stream *by, size_t size, size_t align);

#endif
