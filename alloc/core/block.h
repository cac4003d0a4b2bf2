/* Blocks: records of runs of addresses, each beside the records of its neighbours.
 *
 * Records lie on the host, never in the memory that is managed, which may be on a GPU. They are
 * reused and not returned to the system before the pool goes, so a stale pointer reads an old
 * record, not a fault. All under the pool's lock. */
#ifndef KN_ALLOC_BLOCK_H
#define KN_ALLOC_BLOCK_H

#include <knet/status.h>

#include "checked.h"
#include "core/common.h"
#include "core/size_class.h"

typedef struct kn__stream kn__stream;
typedef struct kn__slab kn__slab;
typedef struct kn__waiter kn__waiter;

typedef enum kn__state {
    KN__FREE = 1, /* in its stream's bins */
    KN__LIVE,     /* handed out */
    KN__SLAB,     /* cut into slots */
    KN__WAITING,  /* freed; other streams may still use it */
    KN__HOLE      /* addresses of the range without memory */
} kn__state;

/* One cache line, and all of it hot: what moves between bins touches neighbours, and there are many
 * blocks. */
typedef struct kn__block {
    char *ptr;
    size_t size;
    /* Neighbours in address; NULL at the segment's ends. */
    struct kn__block *left, *right;
    union {
        /* Free: in the bin. A hole: in the range's list. */
        struct {
            struct kn__block *next, *prev;
        };
        struct {
            /* Live or waiting: uses on other streams; NULL: none. */
            kn__waiter *waiter;
            union {
                /* Of a slab. */
                kn__slab *slab;
                /* Live: the observer's number of who owns it; size - requested; 0: no tag. */
                struct {
                    _Atomic uint32_t owner;
                    uint16_t slack;
                    uint16_t tag;
                };
                /* These three, written together. */
                uint64_t of_live;
            };
        };
    };
    /* Home when live; who may reuse it at once when free. */
    kn__stream *stream;
    union {
        /* The epoch of its free on its stream, when free or waiting; a kn__state. */
        struct {
            uint64_t epoch : 56;
            uint64_t state : 8;
        };
        /* Both, written together: a read behind two narrow writes would stall. */
        uint64_t word;
    };
} kn__block;
_Static_assert(sizeof(kn__block) == 64, "a block record is one cache line");

static inline void kn__block_set(kn__block *block, kn__state state, uint64_t epoch) {
    block->word = (uint64_t)state << 56 | epoch;
}

static inline size_t kn__block_skip(const kn__block *block, size_t align) { /* to the alignment */
    return (0 - (uintptr_t)block->ptr) & (align - 1);
}

static inline bool kn__block_fits(const kn__block *block, size_t size, size_t align) {
    return block->size >= size && block->size - size >= kn__block_skip(block, align);
}

#endif
