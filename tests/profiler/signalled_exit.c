/* A program that allocates until a signal comes, whose handler exits with code 9: signalled_exit
 * MICROSECONDS. Most such signals come while a lock of the allocator or the timer is held. */
#include <knet/pool.h>
#include <knet/prof.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

static void leave(int number) {
    (void)number;
    exit(9);
}

static int allocate(kn_pool *pool) {
    enum { KEPT = 32 };
    void *kept[KEPT] = {NULL};
    for (size_t i = 0;; i++) {
        KN_SCOPE("work");
        void **x = &kept[i % KEPT];
        if (kn_free(pool, *x) < 0) return 1;
        if (kn_alloc(x, pool, 1 + i * 40503 % (256 << 10), NULL) < 0) return 1;
    }
}

int main(int argc, char **argv) {
    struct itimerval at = {.it_value.tv_usec = argc > 1 ? atoi(argv[1]) : 20000};
    kn_pool *pool = kn_device_pool(kn_device_host());
    if (!pool || signal(SIGALRM, leave) == SIG_ERR) return 1;
    if (setitimer(ITIMER_REAL, &at, NULL) != 0) return 1;
    return allocate(pool);
}
