/* A pool's lock: one atomic exchange to take it, a plain store to open it, where nobody waits.
 *
 * Who finds it held spins a little, then sleeps. The one who opens it looks for sleepers after the
 * store, with no fence between the two: in a rare race it misses one, which then wakes by itself
 * after a millisecond. A fence would cost every call what half an uncontended mutex costs. */
#ifndef KNET_ALLOC_LOCK_H
#define KNET_ALLOC_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct kn__lock { /* zero: open */
    _Atomic uint32_t held, n_sleepers;
} kn__lock;

void kn__lock_wait(kn__lock *lock); /* lock.c */
void kn__lock_wake(kn__lock *lock);

static inline void kn__lock_take(kn__lock *lock) {
    if (__builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire), 0)) {
        kn__lock_wait(lock);
    }
}

static inline void kn__lock_open(kn__lock *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_release);
    if (__builtin_expect(atomic_load_explicit(&lock->n_sleepers, memory_order_relaxed), 0)) {
        kn__lock_wake(lock);
    }
}

#endif
