/* A hash table: open addressing, a power of two of slots, at most half of them used.
 *
 * Slots are the caller's structs, in an array. A slot starts with its key, a uint64_t that is never
 * 0; a slot of zeros is free. The low bits of the key choose where the search starts, so keys that
 * are not spread by themselves (addresses, say) go through kn__spread() first, and keys that come
 * in a row stay neighbours if they don't. Where several entries may share a key (a hash of a text)
 * the caller compares them, and continues with kn__hash_after().
 *
 *     typedef struct block { uint64_t key, bytes; } block;
 *     kn__hash blocks = {0};
 *
 *     if (kn__hash_is_full(&blocks) && !kn__hash_grow(&blocks, sizeof(block), 64)) return NULL;
 *     block *b = kn__hash_put(&blocks, sizeof *b, kn__spread(address));
 *
 * Lookups are inline, and `slot_bytes` is a constant in each: the same code as written by hand. The
 * table takes no lock. Slots move when it grows and when another one is removed.
 */
#ifndef KN_BASE_HASH_H
#define KN_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mix.h"

/* Zero-initialised, it is empty and has no memory. */
typedef struct kn__hash {
    void *slots;
    size_t n_slots; /* 0 or a power of two */
    size_t n_used;
} kn__hash;

/* One number to another, each to its own, and 0 to 0: the low bits depend on all. */
static inline uint64_t kn__spread(uint64_t n) {
    uint64_t h = n * KN__GOLDEN;
    return h ^ h >> 32;
}

/* The key of a text under something else, such as a parent's address; never 0. */
static inline uint64_t kn__hash_text(uint64_t of, const char *text) {
    return kn__spread(kn__fnv_text(of * KN__GOLDEN, text)) | (uint64_t)1 << 63;
}

/* The same of n bytes. */
static inline uint64_t kn__hash_bytes(uint64_t of, const void *bytes, size_t n) {
    return kn__spread(kn__fnv(of * KN__GOLDEN, bytes, n)) | (uint64_t)1 << 63;
}

/* The key of two numbers; never 0. */
static inline uint64_t kn__hash_pair(uint64_t a, uint64_t b) {
    return kn__spread(a * KN__GOLDEN ^ b) | (uint64_t)1 << 63;
}

/* --- slots --- */

/* Slot number i, of n_slots. */
static inline void *kn__hash_at(const kn__hash *table, size_t slot_bytes, size_t i) {
    return (char *)table->slots + i * slot_bytes;
}

static inline uint64_t kn__hash_key(const void *slot) { return *(const uint64_t *)slot; }

/* From slot i on: the slot of the key, or the free one that ends the search. */
static inline void *kn__hash_search(const kn__hash *table, size_t slot_bytes, uint64_t key,
                                    size_t i) {
    for (;; i++) {
        void *slot = kn__hash_at(table, slot_bytes, i & (table->n_slots - 1));
        uint64_t found = kn__hash_key(slot);
        if (found == key || !found) return slot;
    }
}

/* --- find --- */

/* The slot of the key, or the free one where it belongs. The table has slots. */
static inline void *kn__hash_find(const kn__hash *table, size_t slot_bytes, uint64_t key) {
    return kn__hash_search(table, slot_bytes, key, (size_t)key);
}

/* The same beyond a slot that has the key but is another one. */
static inline void *kn__hash_after(const kn__hash *table, size_t slot_bytes, const void *slot) {
    size_t i = (size_t)((const char *)slot - (const char *)table->slots) / slot_bytes;
    return kn__hash_search(table, slot_bytes, kn__hash_key(slot), i + 1);
}

/* The slot of the key, or NULL. The table may be without memory. */
static inline void *kn__hash_get(const kn__hash *table, size_t slot_bytes, uint64_t key) {
    if (!table->n_slots) return NULL;
    void *slot = kn__hash_find(table, slot_bytes, key);
    return kn__hash_key(slot) ? slot : NULL;
}

/* --- add --- */

/* Whether it must grow before another slot is used. */
static inline bool kn__hash_is_full(const kn__hash *table) {
    return 2 * table->n_used >= table->n_slots;
}

/* Uses a slot that a search returned: gives it the key, if it was free. */
static inline void kn__hash_use(kn__hash *table, void *slot, uint64_t key) {
    table->n_used += !kn__hash_key(slot);
    *(uint64_t *)slot = key;
}

/* The slot of the key; one that is new is zero but for its key. The table is not full. */
static inline void *kn__hash_put(kn__hash *table, size_t slot_bytes, uint64_t key) {
    void *slot = kn__hash_find(table, slot_bytes, key);
    kn__hash_use(table, slot, key);
    return slot;
}

/* --- room --- */

/* Moves all slots to `slots`, zeroed memory for `n_slots` of them: a power of two, twice as many as
 * are used or more. Returns the old memory, which is the caller's again, or NULL. */
void *kn__hash_move(kn__hash *table, size_t slot_bytes, void *slots, size_t n_slots);

/* The slots that kn__hash_grow makes: twice as many as there are, at least `n_least`. */
static inline size_t kn__hash_next_size(const kn__hash *table, size_t n_least) {
    return table->n_slots ? 2 * table->n_slots : n_least;
}

/* Makes that many, a power of two at first, with malloc's memory. False: it is out, and nothing has
 * changed. */
bool kn__hash_grow(kn__hash *table, size_t slot_bytes, size_t n_least);

/* Frees malloc's memory, and empties the table. */
void kn__hash_release(kn__hash *table);

/* --- remove --- */

/* Removes a used slot: later ones of the same run move up. Remove in a walk over all slots by
 * looking at the same slot again. */
void kn__hash_remove(kn__hash *table, size_t slot_bytes, void *slot);

/* Frees all slots and keeps the memory. */
void kn__hash_clear(kn__hash *table, size_t slot_bytes);

#endif
