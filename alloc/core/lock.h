/* A pool's lock: a mutex over a futex, one atomic operation to take it and one to open it.
 *
 * 0 is open, 1 held, 2 held while threads may sleep. A thread that finds the lock held spins a
 * little, then sleeps; who opens a lock in state 2 wakes one. */
#ifndef KN_ALLOC_LOCK_H
#define KN_ALLOC_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "checked.h"

typedef struct kn__lock { /* zero: open */
    _Atomic uint32_t state;
} kn__lock;

void kn__lock_wait(kn__lock *lock); /* until this thread holds it */
void kn__lock_wake(kn__lock *lock); /* one of those that sleep */

/* Whether it is open, now or within `ms`; as at exit, which may be in a signal handler that
 * interrupted the thread that holds it. */
bool kn__lock_opens(const kn__lock *lock, int ms);

static inline void kn__lock_take(kn__lock *lock) {
    uint32_t open = 0;
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
                             &lock->state, &open, 1, memory_order_acquire, memory_order_relaxed),
                         0)) {
        kn__lock_wait(lock);
    }
}

static inline void kn__lock_open(kn__lock *lock) {
    KN_ASSERT(atomic_load_explicit(&lock->state, memory_order_relaxed) != 0);
    if (__builtin_expect(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2, 0)) {
        kn__lock_wake(lock);
    }
}

#endif
