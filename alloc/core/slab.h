/* Slabs: blocks cut into slots of one size class, for one stream. All under the pool's lock but the
 * slots of live and cached memory, which are their thread's. */
#ifndef KN_ALLOC_SLAB_H
#define KN_ALLOC_SLAB_H

#include <knet/pool.h>

#include "core/stream.h"

enum { KN__SLAB_SLOTS = 256, KN__SLOT_TAG_SHIFT = 21 }; /* most slots a slab has */

/* A slot is live when `use` is not zero: the bytes requested, and above them its tag. The top bit
 * says that other streams use it. Hot: written by every alloc and free. */
typedef union kn__slot {
    struct {
        _Atomic uint32_t use;
        _Atomic uint32_t owner; /* the observer's number of who owns it */
    };
    _Atomic uint64_t both;
} kn__slot;
#define KN__SLOT_SHARED 0x80000000u
#define KN__SLOT_NEW UINT32_MAX /* the owner, until the slot is handed out */

static inline uint32_t kn__slot_requested(uint32_t use) {
    return use & ((1u << KN__SLOT_TAG_SHIFT) - 1);
}
static inline unsigned kn__slot_tag(uint32_t use) { return use >> KN__SLOT_TAG_SHIFT & 0xff; }

/* A free slot, outside its slab. */
typedef struct kn__slot_ref {
    char *ptr;
    kn__slot *slot;
} kn__slot_ref;

/* Hot: the first line, read by every free. */
struct kn__slab {
    char *base;
    kn__stream *stream;
    uint64_t inverse; /* ceil(2^32 / grains of a slot); see kn__slab_find */
    uint32_t slot_bytes;
    uint16_t size_class, n_slots, n_free;
    uint16_t depth_bytes; /* of kn__slot_ref: the most slots of the class in a rack */
    kn__block *block;
    kn__slab *next, *prev; /* in the stream's partial list */
    kn__waiter *shared;    /* live slots that other streams use */
    uint64_t free[KN__SLAB_SLOTS / 64];
    uint64_t waiting[KN__SLAB_SLOTS / 64]; /* freed; other streams may still use them */
    kn__slot slots[];                      /* n_slots, and one that is never live behind them */
};

size_t kn__slab_bytes(const kn__stream *stream, unsigned size_class); /* of the next one */
/* Makes a live block a slab; racks keep at most `depth` slots of the class. NULL: no host memory.
 */
kn__slab *kn__slab_create(kn_pool *pool, kn__block *block, unsigned size_class, unsigned depth);
/* Takes free slots of the stream's slabs, at most n; returns how many. */
unsigned kn__slab_take(kn__stream *stream, unsigned size_class, kn__slot_ref *out, unsigned n);
/* Of a slab that got its first free slot, or its last. */
void kn__slab_put_edge(kn_pool *pool, kn__slab *slab);
/* Puts a slot back. A slab whose slots are all free becomes a free block. Hot: flushes of racks. */
static inline void kn__slab_put(kn_pool *pool, kn__slab *slab, uint32_t slot) {
    KN_ASSERT(slot < slab->n_slots && !(slab->free[slot / 64] >> slot % 64 & 1));
    slab->free[slot / 64] |= 1ull << slot % 64;
    unsigned n_free = ++slab->n_free;
    if (n_free == 1 || n_free == slab->n_slots) kn__slab_put_edge(pool, slab);
}
static inline bool kn__slab_waits(const kn__slab *slab, uint32_t slot) {
    return slab->waiting[slot / 64] >> slot % 64 & 1;
}
static inline void kn__slab_set_waits(kn__slab *slab, uint32_t slot, bool waits) {
    KN_ASSERT(slot < slab->n_slots && kn__slab_waits(slab, slot) != waits);
    uint64_t bit = 1ull << slot % 64, *word = &slab->waiting[slot / 64];
    *word = waits ? *word | bit : *word & ~bit;
}
unsigned kn__slab_n_waiting(const kn__slab *slab);
/* Makes it another stream's; its block is the caller's to move. */
void kn__slab_move(kn__slab *slab, kn__stream *stream);

/* The slot that the address lies in. False: it is not where the slot starts; only there the
 * product's lower half is small. Slots have at most 2^12 grains and a slab 2^14, so rounding the
 * inverse up adds less than it may. */
static inline bool kn__slab_find(uint32_t *slot, const kn__slab *slab, const void *ptr) {
    uint64_t product = (uint64_t)((const char *)ptr - slab->base) / KN__GRAIN * slab->inverse;
    *slot = (uint32_t)(product >> 32);
    return (uint32_t)product < slab->inverse && (uintptr_t)ptr % KN__GRAIN == 0;
}
static inline uint32_t kn__slab_index(const kn__slab *slab, const void *ptr) {
    uint32_t slot;
    (void)kn__slab_find(&slot, slab, ptr);
    return slot;
}

#endif
