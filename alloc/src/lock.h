/* A pool's lock.
 *
 * Where one thread alone uses a pool, as most programs do, even an atomic exchange is a good part
 * of what an allocation costs. So a lock may have an owner: a thread that took it many times in a
 * row. The owner says with a plain store that it is inside, and goes on if it is the owner still.
 * Anybody else takes the lock by an exchange and, if it has an owner, ends that: takes the title
 * away, makes every thread of the process pass a memory barrier (membarrier), and waits until the
 * former owner is outside. Then the exchange is what counts, for all, until a thread has earned the
 * lock again; after each end it has to take it twice as often. A thread is inside one lock at a
 * time: another one, which a device's driver may take meanwhile, it takes as others do.
 *
 * Who finds the lock held spins a little, then sleeps. The one who opens it looks for sleepers
 * after the store, with no fence between the two: in a rare race it misses one, which then wakes by
 * itself after a millisecond. A fence would cost every call what half an uncontended mutex costs.
 */
#ifndef KNET_ALLOC_LOCK_H
#define KNET_ALLOC_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

typedef struct kn__lock { /* zero: open, and nobody's */
    _Atomic(kn__thread *) owner;
    _Atomic uint32_t held, n_sleepers;
    kn__thread *last;      /* who took it last by an exchange, and how often in a row */
    uint32_t n_last, earn; /* so many make it the owner */
} kn__lock;

void kn__locks_init(void); /* before any lock can have an owner */
void kn__lock_take_slow(kn__lock *lock);
void kn__lock_open_slow(kn__lock *lock);

/* `self` is kn__self: NULL, or the calling thread's. */
static inline void kn__lock_take(kn__lock *lock, kn__thread *self) {
    if (__builtin_expect(self && atomic_load_explicit(&lock->owner, memory_order_relaxed) == self &&
                             !atomic_load_explicit(&self->inside, memory_order_relaxed),
                         1)) {
        atomic_store_explicit(&self->inside, lock, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* who ends the ownership adds the real one */
        if (__builtin_expect(atomic_load_explicit(&lock->owner, memory_order_relaxed) == self, 1)) {
            return;
        }
        atomic_store_explicit(&self->inside, NULL, memory_order_release);
    }
    kn__lock_take_slow(lock);
}

static inline void kn__lock_open(kn__lock *lock, kn__thread *self) {
    if (__builtin_expect(self && atomic_load_explicit(&self->inside, memory_order_relaxed) == lock,
                         1)) {
        atomic_store_explicit(&self->inside, NULL, memory_order_release);
    } else {
        kn__lock_open_slow(lock);
    }
}

#endif
