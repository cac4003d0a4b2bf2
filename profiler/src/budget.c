#include "budget.h"

#include <stdatomic.h>

static _Atomic(uint64_t) used, limit = KN__BUFFER_BYTES;

void kn__budget_set(uint64_t bytes) { atomic_store(&limit, bytes); }

bool kn__budget_take(size_t bytes) {
    uint64_t before = atomic_load(&used);
    do {
        if (before + bytes > atomic_load(&limit)) return false;
    } while (!atomic_compare_exchange_weak(&used, &before, before + bytes));
    return true;
}

uint64_t kn__budget_used(void) { return atomic_load(&used); }
