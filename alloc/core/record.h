/* The records of blocks: created, split, merged, destroyed. They know no pool; all under its lock.
 */
#ifndef KN_ALLOC_RECORD_H
#define KN_ALLOC_RECORD_H

#include "core/meta.h"
#include "core/stream.h"

/* Where records come from. Hot: `spare`, which each split takes from and each merge gives to. */
typedef struct kn__records {
    kn__block *spare;
    kn__meta *meta;
} kn__records;

/* Adds unused records; returns the first unused one, NULL: no host memory. */
kn__block *kn__records_add(kn__records *records);
/* A free record, with no neighbours and in no bin, that counts as one of the stream's. NULL: no
 * host memory. */
kn__block *kn__block_create(kn__records *records, kn__stream *stream, char *ptr, size_t size);

/* Makes sure of a record for the next block. */
static inline bool kn__records_room(kn__records *records) {
    return (records->spare && records->spare->next) || kn__records_add(records);
}

/* Between two neighbours, which it doesn't tell. */
static inline kn__block *kn__record_take(kn__records *records, kn__stream *stream, char *ptr,
                                         size_t size) {
    kn__block *block = records->spare;
    if (KN__UNLIKELY(!block) && !(block = kn__records_add(records))) return NULL;
    records->spare = block->next;
    __builtin_prefetch(block->next, 1); /* of many it may have gone from the cache */
    block->ptr = ptr;
    block->size = size;
    block->stream = stream;
    stream->refs++;
    return block;
}

static inline void kn__block_destroy(kn__records *records, kn__block *block) {
    KN_ASSERT(block->ptr || block->size);
    block->stream->refs--;
    block->ptr = NULL; /* a stale pointer finds no block here */
    kn__block_set(block, KN__FREE, 0);
    block->next = records->spare;
    records->spare = block;
}

/* Makes it another stream's. */
static inline void kn__block_assign(kn__block *block, kn__stream *stream) {
    KN_ASSERT(block->stream->refs > 0);
    block->stream->refs--;
    block->stream = stream;
    stream->refs++;
}

/* Splits off the right part; NULL when there is no host memory. The part has the same state. */
static inline kn__block *kn__block_split(kn__records *records, kn__block *block, size_t size) {
    KN_ASSERT(size > 0 && size < block->size);
    kn__block *right =
        kn__record_take(records, block->stream, block->ptr + size, block->size - size);
    if (!right) return NULL;
    block->size = size;
    right->word = block->word;
    right->left = block;
    right->right = block->right;
    if (right->right) right->right->left = right;
    block->right = right;
    return right;
}

/* Both are out of the bins. */
static inline void kn__block_absorb_right(kn__records *records, kn__block *block) {
    kn__block *right = block->right;
    KN_ASSERT(right && block->ptr + block->size == right->ptr);
    block->size += right->size;
    if (right->epoch > block->epoch) kn__block_set(block, block->state, right->epoch);
    block->right = right->right;
    if (block->right) block->right->left = block;
    kn__block_destroy(records, right);
}

#endif
