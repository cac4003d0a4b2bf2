/* Work space for the threads of one parallel loop: as many pieces as threads, taken for the time of
 * one body and given back. What lies in a piece doesn't survive, so results can't depend on who got
 * which.
 *
 *     kn__slots slots;
 *     KN_TRY(kn__slots_create(&slots, call, n_items, bytes));
 *     kn__parallel_for(slots.n, n_items, body, …);      // body: take, use, give
 */
#ifndef KN_SLOTS_H
#define KN_SLOTS_H

#include <stdatomic.h>

#include "kernel.h"

enum { KN_SLOTS_MAX = 64 };

typedef struct kn__slots {
    _Atomic uint64_t taken; /* a bit a slot */
    int n;
    size_t bytes; /* of each, a multiple of a cache line */
    char *data;
} kn__slots;

static inline kn_status kn__slots_create(kn__slots *slots, kn_op_call *call, int64_t n_items,
                                         size_t bytes) {
    int n = call->threads < 1 ? 1 : (call->threads > KN_SLOTS_MAX ? KN_SLOTS_MAX : call->threads);
    if (n > n_items) n = (int)n_items;
    *slots = (kn__slots){.n = n, .bytes = (bytes + 63) / 64 * 64};
    void *data = NULL;
    KN_TRY(kn__work(&data, call, slots->bytes * (size_t)n));
    slots->data = data;
    return KN_OK;
}

/* There is one for every thread of the loop, so the search ends at once. */
static inline void *kn__slot_take(kn__slots *slots) {
    if (!slots->data) return NULL; /* no work space was wanted */
    uint64_t taken = atomic_load_explicit(&slots->taken, memory_order_relaxed);
    for (;;) {
        uint64_t bit = ~taken & (taken + 1);
        if (atomic_compare_exchange_weak_explicit(&slots->taken, &taken, taken | bit,
                                                  memory_order_acquire, memory_order_relaxed))
            return slots->data + slots->bytes * (size_t)__builtin_ctzll(bit);
    }
}

static inline void kn__slot_give(kn__slots *slots, const void *slot) {
    if (!slot) return;
    size_t index = (size_t)((const char *)slot - slots->data) / slots->bytes;
    atomic_fetch_and_explicit(&slots->taken, ~(UINT64_C(1) << index), memory_order_release);
}

#endif
