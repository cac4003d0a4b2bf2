#include "core/lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "relax.h"

enum { SPINS = 200 }; /* about the longest a pool's own work holds the lock */

/* A thread that slept leaves the state at 2: others may still sleep. */
void kn__lock_wait(kn__lock *lock) {
    for (int i = 0; i < SPINS; i++) {
        uint32_t open = 0;
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->state, &open, 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            return;
        }
        kn__relax();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0) {
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

bool kn__lock_opens(const kn__lock *lock, int ms) {
    for (int i = 0; i <= ms; i++) {
        for (int n = 0; n < SPINS; n++) {
            if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0) return true;
            kn__relax();
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

void kn__lock_wake(kn__lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
