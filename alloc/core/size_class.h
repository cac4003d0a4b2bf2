/* Sizes: the grains of slots and blocks, and the size classes of slabs.
 *
 * Size classes: 8 per doubling, multiples of the grain; the class of a multiple of a power of two
 * is a multiple of it too, so that a class serves an alignment as it serves a size. */
#ifndef KN_ALLOC_SIZE_CLASS_H
#define KN_ALLOC_SIZE_CLASS_H

#include <stddef.h>

/* Most bytes of a request; the bins end at twice that. */
#define KN__SIZE_LIMIT ((size_t)1 << 43)

enum {
    /* Sizes of slots and of blocks are multiples of these, in bytes. */
    KN__GRAIN = 256,
    KN__BLOCK_GRAIN = 512,
    /* The page map's unit, in bytes; slabs are aligned to it. */
    KN__PAGE_SHIFT = 16,
    KN__PAGE = 1 << KN__PAGE_SHIFT,
    /* Segments and handles are multiples of it, in bytes. */
    KN__UNIT = 2 << 20,
    /* Bound and default of the option slab_max_bytes. */
    KN__SLAB_MAX = 1 << 20,
    KN__SLAB_DEFAULT = 1 << 16,
    /* Size classes up to KN__SLAB_MAX; as a class the number means: none, a block of its own. */
    KN__SIZE_CLASSES = 80,
    KN__NO_SIZE_CLASS = KN__SIZE_CLASSES
};

static inline unsigned kn__size_class_of(size_t bytes) {
    unsigned m = (unsigned)((bytes - 1) / KN__GRAIN);
    unsigned shift = 28u - (unsigned)__builtin_clz(m | 15); /* 0 below 16 grains */
    return (shift << 3) + (m >> shift);
}

static inline size_t kn__size_class_bytes(unsigned size_class) {
    unsigned shift = size_class < 16 ? 0 : (size_class >> 3) - 1;
    return ((size_t)(size_class - (shift << 3)) + 1) * KN__GRAIN << shift;
}

static inline size_t kn__block_round(size_t bytes) {
    return (bytes + KN__BLOCK_GRAIN - 1) & ~(size_t)(KN__BLOCK_GRAIN - 1);
}

#endif
