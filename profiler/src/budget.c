#include "budget.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "checked.h"
#include "mute.h"

static _Atomic(uint64_t) used, limit = KN__BUFFER_BYTES;
static atomic_bool was_full;

void kn__budget_set(uint64_t bytes) { atomic_store(&limit, bytes); }

bool kn__budget_take(size_t bytes) {
    uint64_t before = atomic_load(&used);
    do {
        if (before + bytes > atomic_load(&limit)) {
            atomic_store(&was_full, true);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&used, &before, before + bytes));
    return true;
}

void kn__budget_return(size_t bytes) {
    KN_ASSERT(bytes <= atomic_load(&used));
    atomic_fetch_sub(&used, bytes);
}

void *kn__budget_alloc(size_t bytes) {
    kn__mute();
    void *made = aligned_alloc(64, (bytes + 63) / 64 * 64);
    kn__unmute();
    return made;
}

bool kn__budget_grow(kn__hash *hash, size_t slot_bytes, size_t n_least) {
    size_t more = (kn__hash_next_size(hash, n_least) - hash->n_slots) * slot_bytes;
    if (!kn__budget_take(more)) return false;
    kn__mute();
    bool grown = kn__hash_grow(hash, slot_bytes, n_least);
    kn__unmute();
    if (grown) return true;
    kn__budget_return(more);
    return false;
}

void kn__budget_note_full(void) { atomic_store(&was_full, true); }

uint64_t kn__budget_used(void) { return atomic_load(&used); }
uint64_t kn__budget_limit(void) { return atomic_load(&limit); }
bool kn__budget_was_full(void) { return atomic_load(&was_full); }
