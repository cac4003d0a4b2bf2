/* What the rest of the pool asks about memory that was dropped. */
#ifndef KN_ALLOC_PAUSE_H
#define KN_ALLOC_PAUSE_H

#include "core/pool_state.h"

/* Whether a part of the live block lost its memory with its tag. Under the lock. */
bool kn__pause_holds(const kn_pool *pool, const kn__block *block);
/* The error of an allocation while the whole pool is paused. */
kn_status kn__pause_refuses(const kn_pool *pool);
/* Called when the pool is destroyed: releases the records of paused memory. */
void kn__pauses_release(kn_pool *pool);

#endif
