/* Racks: one thread's free slots of one stream, by size class.
 *
 * A rack has a stack of slots per size class. It belongs to its thread, behind the cache's gate
 * (gate.h). */
#ifndef KN_ALLOC_RACK_H
#define KN_ALLOC_RACK_H

#include "core/slab.h"

enum { KN__RACK_DEPTH = 127 }; /* most slots of a class: frames of 64 blocks stay in a rack */

/* A stack's slots lie in the rack at a multiple of KN__STACK_BYTES, so that where its top is says
 * how many there are. */
enum { KN__STACK_BYTES = (KN__RACK_DEPTH + 1) * sizeof(kn__slot_ref) };
typedef struct kn__stack {
    _Atomic uint32_t top; /* offset of the first unused slot from the rack's first */
    uint32_t slot_bytes;
} kn__stack;

/* Hot: all of it, by every alloc and free of a slot. */
typedef struct kn__rack {
    uint64_t key; /* the stream's */
    kn__stream *stream;
    uint32_t generation; /* of the pool when the cache was renewed; see gate.h */
    struct kn__rack *next;
    kn__stack stacks[KN__SIZE_CLASSES];
    kn__slot_ref slots[][KN__RACK_DEPTH + 1];
} kn__rack;

/* Most slots of the class that a rack keeps. */
static inline unsigned kn__rack_depth(unsigned size_class) {
    size_t depth = ((size_t)256 << 10) / kn__size_class_bytes(size_class);
    return depth > KN__RACK_DEPTH ? KN__RACK_DEPTH : depth < 4 ? 4 : (unsigned)depth;
}

static inline unsigned kn__stack_bytes(const kn__stack *stack) {
    return KN__READ(stack->top) % KN__STACK_BYTES;
}
static inline unsigned kn__stack_n(const kn__stack *stack) {
    return kn__stack_bytes(stack) / (unsigned)sizeof(kn__slot_ref);
}
static inline void kn__stack_set_n(kn__stack *stack, unsigned n) {
    KN_ASSERT(n <= KN__RACK_DEPTH);
    uint32_t top = KN__READ(stack->top);
    KN__WRITE(stack->top, top + n * (uint32_t)sizeof(kn__slot_ref) - kn__stack_bytes(stack));
}

static inline kn__slot_ref *kn__rack_at(kn__rack *rack, uint32_t top) {
    return (kn__slot_ref *)(void *)((char *)rack->slots + top);
}

static inline kn__slot_ref kn__stack_pop(kn__rack *rack, kn__stack *stack) {
    uint32_t top = KN__READ(stack->top) - (uint32_t)sizeof(kn__slot_ref);
    KN__WRITE(stack->top, top);
    return *kn__rack_at(rack, top);
}

/* n slots, the last of them first: the first is on top. */
static inline void kn__stack_fill(kn__rack *rack, kn__stack *stack, const kn__slot_ref slots[],
                                  unsigned n) {
    kn__slot_ref *to = kn__rack_at(rack, KN__READ(stack->top));
    for (unsigned i = 0; i < n; i++) to[i] = slots[n - 1 - i];
    kn__stack_set_n(stack, kn__stack_n(stack) + n);
}

static inline void kn__stack_push(kn__rack *rack, kn__stack *stack, kn__slot_ref slot) {
    uint32_t top = KN__READ(stack->top);
    *kn__rack_at(rack, top) = slot;
    KN__WRITE(stack->top, top + (uint32_t)sizeof(kn__slot_ref));
}

#endif
