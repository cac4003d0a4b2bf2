/* Who may touch a thread's cache: its thread, without a lock, or a thread that holds the pool's
 * lock and calls all caches back.
 *
 * The owner marks its gate busy with a plain store, then compares the rack's generation with the
 * pool's. A caller-back changes the pool's generation, makes every thread of the process pass a
 * memory barrier (membarrier), then looks at each gate. Behind the barrier either the owner sees
 * the new generation and keeps out until it has taken the pool's lock, or its gate is seen to be
 * busy: then its cache is left alone, and the owner empties it when it next comes by. The owner
 * pays two plain stores; the barrier is paid where memory is wanted back.
 *
 * tests/alloc/test_gate.c runs this code in every order that the memory of x86 and of ARM allows;
 * it replaces the four accesses below. */
#ifndef KN_ALLOC_GATE_H
#define KN_ALLOC_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef KN__GATE_STORE
#define KN__GATE_STORE(at, value) atomic_store_explicit((at), (value), memory_order_release)
#define KN__GATE_LOAD(at) atomic_load_explicit((at), memory_order_acquire)
#define KN__GATE_ADD(at) atomic_fetch_add_explicit((at), 1, memory_order_seq_cst)
#define KN__GATE_FENCE() kn__threads_fence()
#include "device/thread.h"
#endif

typedef struct kn__gate {
    _Atomic uint32_t busy;
} kn__gate;

/* By the owner. True: the rack is its own until kn__gate_leave. False: it takes the pool's lock. */
static inline bool kn__gate_enter(kn__gate *gate, const _Atomic uint32_t *pool_generation,
                                  const uint32_t *rack_generation) {
    KN__GATE_STORE(&gate->busy, 1);
    atomic_signal_fence(memory_order_seq_cst); /* the real one is the caller-back's */
    return KN__GATE_LOAD(pool_generation) == *rack_generation;
}

static inline void kn__gate_leave(kn__gate *gate) { KN__GATE_STORE(&gate->busy, 0); }

/* Under the pool's lock. False: no cache but the thread's own may be touched. */
static inline bool kn__gates_call_back(_Atomic uint32_t *pool_generation) {
    KN__GATE_ADD(pool_generation);
    return KN__GATE_FENCE();
}

/* After kn__gates_call_back, under the same lock: the owner is outside, and stays there. */
static inline bool kn__gate_is_shut(const kn__gate *gate) {
    return KN__GATE_LOAD(&gate->busy) == 0;
}

#endif
