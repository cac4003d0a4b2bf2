/* What went wrong in a call: misuse of a pointer, and out of memory. */
#ifndef KN_ALLOC_FAULT_H
#define KN_ALLOC_FAULT_H

#include "core/slab.h"

/* A record that was destroyed has no address; one that is not live was freed. The block may be
 * NULL. */
static inline bool kn__block_is_live(const kn__block *block, const char *ptr) {
    return block && block->ptr == ptr && ptr && block->state == KN__LIVE;
}
static inline bool kn__slot_is_live(const kn__slab *slab, const char *ptr) {
    uint32_t i;
    return kn__slab_find(&i, slab, ptr) && i < slab->n_slots && KN__READ(slab->slots[i].use);
}
/* Why the pointer is no live block, or no live slot of the slab. */
const char *kn__block_misuse(const kn__block *block, const char *ptr);
const char *kn__slot_misuse(const kn__slab *slab, const char *ptr);
/* Counts and logs the misuse `why` by the function `call`; returns INVALID. With the lock open. */
kn_status kn__misuse(kn_pool *pool, const char *call, const void *ptr, const char *why);
/* An allocation failed with this status: tells the observer and writes reports, if that was for
 * want of memory. With the lock open. */
kn_status kn__alloc_failed(kn_pool *pool, kn_status status, size_t wanted_bytes);
/* The error of a request beyond all limits. */
kn_status kn__too_large(kn_pool *pool, size_t size, size_t align, kn_stream stream);
kn_status kn__dead(const kn_pool *pool);
/* Errors: INVALID if `function` got no pool. */
static inline kn_status kn__pool_given(const kn_pool *pool, const char *function) {
    return pool ? KN_OK : KN_FAIL(KN_ERR_INVALID, "%s: pool is NULL", function);
}
/* Calls the user's callbacks with the lock open, which it takes again; returns how many. *freed:
 * whether one says that it freed anything. */
int kn__callbacks_call(bool *freed, kn_pool *pool, size_t wanted_bytes);

#endif
