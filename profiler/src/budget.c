#include "budget.h"

#include <stdatomic.h>

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

void kn__budget_return(size_t bytes) { atomic_fetch_sub(&used, bytes); }

void kn__budget_note_full(void) { atomic_store(&was_full, true); }

uint64_t kn__budget_used(void) { return atomic_load(&used); }
uint64_t kn__budget_limit(void) { return atomic_load(&limit); }
bool kn__budget_was_full(void) { return atomic_load(&was_full); }
