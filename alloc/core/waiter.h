/* Waiters: freed blocks and slots that other streams may still use. All under the pool's lock. */
#ifndef KN_ALLOC_WAITER_H
#define KN_ALLOC_WAITER_H

#include "core/slab.h"

/* A use of a block or slot on a stream that is not its own. */
struct kn__use {
    kn__stream *stream;
    kn__waiter *waiter;
    uint64_t epoch;          /* set when the block is freed */
    bool is_new;             /* no writer has waited for it: kn_block_await */
    struct kn__use *next;    /* of the same waiter */
    struct kn__use *younger; /* on the same stream, in order of the frees */
};

struct kn__waiter {
    struct kn__waiter *next, *prev; /* in the pool's list, once freed; in the slab's before */
    kn__block *block;               /* NULL when it is a slot, or when the block was taken early */
    kn__slab *slab;
    uint32_t slot;
    uint32_t n_uses;  /* not finished yet */
    bool home_is_new; /* as of a use, for the block's own stream */
    kn__use *uses;
};

/* Adds a use of the stream, and makes the waiter where *waiter is NULL. Errors: OOM: no host
 * memory; nothing has changed then. */
kn_status kn__use_add(kn_pool *pool, kn__waiter **waiter, kn__stream *stream);
/* Its block or slot was freed: it waits for its uses from now on. */
void kn__waiter_enqueue(kn_pool *pool, kn__waiter *waiter);
/* One of its uses is finished. After the last one its block is its home stream's again. */
void kn__use_finish(kn_pool *pool, kn__use *use);
/* Frees its block for `by` now, which waits on the device for all uses. */
kn_status kn__waiter_take(kn_pool *pool, kn__waiter *waiter, kn__stream *by);

#endif
