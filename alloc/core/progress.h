/* Progress: asks the device, or waits for it, to learn which epochs are over. All under the pool's
 * lock. */
#ifndef KN_ALLOC_PROGRESS_H
#define KN_ALLOC_PROGRESS_H

#include "core/epoch.h"

/* Asks at most n_queries events; what became free is put back. */
void kn__epochs_poll(kn_pool *pool, int n_queries);
/* Closes those of streams that freed blocks wait for. */
void kn__epochs_close_used(kn_pool *pool);
/* Call it after a free whose block still waits for another stream. Closes and polls once such
 * blocks add up to a share of the reserved memory, because requests poll only when they find no
 * other memory. May merge the block. */
void kn__epochs_ask(kn_pool *pool);
/* Closes and polls all; merges the blocks of finished epochs. */
void kn__epochs_settle(kn_pool *pool);
/* The host waits for one epoch; false: none is left. */
bool kn__epochs_sync_one(kn_pool *pool);
/* The host waits for the device, for streams that are lost and epochs that no event can close;
 * false: nothing to wait for, or a stream is captured. */
bool kn__epochs_recover(kn_pool *pool);
/* Waits until nothing that was freed is in use; what can't be waited for stays aside. */
void kn__epochs_sync(kn_pool *pool);
/* The host waits for all; false: some stream can't be waited for. */
bool kn__epochs_finish(kn_pool *pool);

#endif
