#include "hash.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"

/* Where a key goes that is not there, or is there and not this one. */
static void *find_free(const kn__hash *table, size_t slot_bytes, uint64_t key) {
    for (size_t i = (size_t)key;; i++) {
        void *slot = kn__hash_at(table, slot_bytes, i & (table->n_slots - 1));
        if (!kn__hash_key(slot)) return slot;
    }
}

void *kn__hash_move(kn__hash *table, size_t slot_bytes, void *slots, size_t n_slots) {
    kn__hash old = *table;
    KN_ASSERT(n_slots && (n_slots & (n_slots - 1)) == 0 && 2 * old.n_used <= n_slots);
    table->slots = slots;
    table->n_slots = n_slots;
    for (size_t i = 0; i < old.n_slots; i++) {
        const void *slot = kn__hash_at(&old, slot_bytes, i);
        if (!kn__hash_key(slot)) continue;
        memcpy(find_free(table, slot_bytes, kn__hash_key(slot)), slot, slot_bytes);
    }
    return old.slots;
}

bool kn__hash_grow(kn__hash *table, size_t slot_bytes, size_t n_least) {
    size_t n_slots = kn__hash_next_size(table, n_least);
    void *slots = calloc(n_slots, slot_bytes);
    if (slots) free(kn__hash_move(table, slot_bytes, slots, n_slots));
    return slots != NULL;
}

void kn__hash_release(kn__hash *table) {
    free(table->slots);
    *table = (kn__hash){0};
}

/* A slot may fill the hole unless the search for it starts behind the hole. */
void kn__hash_remove(kn__hash *table, size_t slot_bytes, void *slot) {
    KN_ASSERT(kn__hash_key(slot) && table->n_used);
    size_t mask = table->n_slots - 1;
    size_t hole = (size_t)((char *)slot - (char *)table->slots) / slot_bytes;
    for (size_t i = hole + 1;; i++) {
        void *next = kn__hash_at(table, slot_bytes, i & mask);
        if (!kn__hash_key(next)) break;
        size_t from_home = (i - (size_t)kn__hash_key(next)) & mask;
        if (from_home < ((i - hole) & mask)) continue;
        memcpy(kn__hash_at(table, slot_bytes, hole), next, slot_bytes);
        hole = i & mask;
    }
    memset(kn__hash_at(table, slot_bytes, hole), 0, slot_bytes);
    table->n_used--;
}

void kn__hash_clear(kn__hash *table, size_t slot_bytes) {
    if (table->n_slots) memset(table->slots, 0, table->n_slots * slot_bytes);
    table->n_used = 0;
}
