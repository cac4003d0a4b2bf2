#include "lock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 200, EARN_MIN = 256, EARN_MAX = 1 << 24 };
static const struct timespec SLEEP = {.tv_nsec = 1000000}; /* the most that a missed wake costs */

static _Atomic bool owners; /* the system knows of the barriers that ownership needs */

void kn__locks_init(void) {
    if (atomic_load_explicit(&owners, memory_order_relaxed)) return;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) {
        atomic_store_explicit(&owners, true, memory_order_relaxed);
    }
}

static inline void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool taken(kn__lock *lock) {
    return !atomic_load_explicit(&lock->held, memory_order_relaxed) &&
           !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire);
}

static void wait_for_others(kn__lock *lock) {
    for (int i = 0; i < SPINS; i++) {
        if (taken(lock)) return;
        pause_a_little();
    }
    atomic_fetch_add(&lock->n_sleepers, 1);
    while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire)) {
        syscall(SYS_futex, &lock->held, FUTEX_WAIT_PRIVATE, 1, &SLEEP, NULL, 0);
    }
    atomic_fetch_sub(&lock->n_sleepers, 1);
}

/* Every running thread of the process passes a memory barrier. */
static void barrier_for_all(void) {
    const struct timespec long_enough = {.tv_nsec = 10000000}; /* for a store to be seen by all */
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) < 0) {
        nanosleep(&long_enough, NULL); /* forbidden since it was asked for */
    }
}

/* By who holds it by an exchange. Behind the barrier the owner either sees that it is none any
 * more, or is seen to be inside. Its record stays, should the thread end; see thread.c. */
static void end_ownership(kn__lock *lock, const kn__thread *owner) {
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    barrier_for_all();
    for (int i = 0; atomic_load_explicit(&owner->inside, memory_order_acquire) == lock; i++) {
        if (i < SPINS) {
            pause_a_little();
        } else {
            nanosleep(&SLEEP, NULL);
        }
    }
    lock->last = NULL;
    if (lock->earn < EARN_MAX) lock->earn *= 2;
}

static void count(kn__lock *lock, kn__thread *self) {
    if (lock->last != self) {
        lock->last = self;
        lock->n_last = 0;
    }
    if (!lock->earn) lock->earn = EARN_MIN;
    if (++lock->n_last < lock->earn || !self) return;
    if (!atomic_load_explicit(&owners, memory_order_relaxed)) return;
    atomic_store_explicit(&lock->owner, self, memory_order_relaxed);
}

void kn__lock_take_slow(kn__lock *lock) {
    if (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire)) wait_for_others(lock);
    const kn__thread *owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);
    if (owner) end_ownership(lock, owner);
    count(lock, kn__self);
}

void kn__lock_open_slow(kn__lock *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_release);
    if (atomic_load_explicit(&lock->n_sleepers, memory_order_relaxed)) {
        syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}
