#include "lock.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 200 };
static const long SLEEP_NS = 1000000; /* a wake that was missed costs at most this */

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

void kn__lock_wait(kn__lock *lock) {
    for (int i = 0; i < SPINS; i++) {
        if (taken(lock)) return;
        pause_a_little();
    }
    const struct timespec sleep = {.tv_nsec = SLEEP_NS};
    atomic_fetch_add(&lock->n_sleepers, 1);
    while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire)) {
        syscall(SYS_futex, &lock->held, FUTEX_WAIT_PRIVATE, 1, &sleep, NULL, 0);
    }
    atomic_fetch_sub(&lock->n_sleepers, 1);
}

void kn__lock_wake(kn__lock *lock) {
    syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
