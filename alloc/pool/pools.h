/* The pools of each device: for retirement of streams, forks and the observer. */
#ifndef KN_ALLOC_POOLS_H
#define KN_ALLOC_POOLS_H

#include <knet/pool.h>

/* Adds a new pool to its device's list, and tells the observer. */
void kn__pool_enlist(kn_pool *pool);
/* Removes it. Returns NULL, or the reason why it can't be destroyed; doesn't read a pool that is
 * not in the list. */
const char *kn__pool_delist(kn_pool *pool);
/* Calls fn for every pool; the registry's lock is held. */
void kn__pools_visit(void (*fn)(void *ctx, kn_pool *pool), void *ctx);

/* retire.c: from now on pools hear of the end of each thread that used its own default stream. */
void kn__retire_at_end(void);

#endif
