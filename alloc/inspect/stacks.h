/* The call stacks of live blocks, for snapshots and reports. They know no pool but its address, so
 * they may be asked with a pool's lock held; a pool's functions are never called from here with the
 * stacks' lock held. */
#ifndef KN_ALLOC_STACKS_H
#define KN_ALLOC_STACKS_H

#include <knet/stacks.h>

#include "inspect/writer.h"

enum { KN__STACKS_COPIED = 3 };
typedef struct kn__stack_copy {
    uint64_t bytes, n_live;
    char text[1024]; /* cut */
} kn__stack_copy;

/* The stacks that hold most live bytes of the pool; returns how many. Takes no host memory. */
size_t kn__stacks_copy(kn__stack_copy out[KN__STACKS_COPIED], const kn_pool *pool);
/* The number of the stack of the block at `ptr`; 0: none is known. */
uint32_t kn__stack_of(const kn_pool *pool, const void *ptr);
/* A member "stacks" of the open object: each stack that holds memory of the pool, by number.
 * Nothing if no stacks are kept. */
void kn__stacks_write(kn__writer *w, const kn_pool *pool);
/* A member "frames" of the open object: the frames of a text. */
void kn__stack_frames_write(kn__writer *w, const char *text);

#endif
