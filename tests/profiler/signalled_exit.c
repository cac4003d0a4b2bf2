/* A program that allocates until a signal comes, whose handler exits with code 9: signalled_exit
 * MICROSECONDS|FUNCTION. Most such signals come while a lock of the allocator or the timer is held;
 * one that comes in that function of the C library comes while the timer calls it. */
#include <ctype.h>
#include <dlfcn.h>
#include <knet/pool.h>
#include <knet/prof.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default"))) /* the libraries call it */

static _Thread_local const char *leave_in = ""; /* threads of the timer do not leave */

static void leave(int number) {
    (void)number;
    usleep(20000); /* a report that is due meanwhile meets the same locks */
    exit(9);
}

/* The next definition of this one, which leaves first if it is the one. */
static void *next_of(const char *name) {
    if (strcmp(leave_in, name) == 0) {
        leave_in = "";
        raise(SIGALRM);
    }
    return dlsym(RTLD_NEXT, name);
}

SHOWN int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *),
                         void *arg) {
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&next = next_of("pthread_create");
    return next(out, attr, run, arg);
}

SHOWN int pthread_cond_signal(pthread_cond_t *cond) {
    int (*next)(pthread_cond_t *);
    *(void **)&next = next_of("pthread_cond_signal");
    return next(cond);
}

SHOWN ssize_t write(int fd, const void *data, size_t n) {
    ssize_t (*next)(int, const void *, size_t);
    *(void **)&next = next_of("write");
    return next(fd, data, n);
}

static int allocate(kn_pool *pool) {
    enum { KEPT = 32 };
    void *kept[KEPT] = {NULL};
    for (size_t i = 0;; i++) {
        KN_SCOPE("work");
        void **x = &kept[i % KEPT];
        if (kn_free(pool, *x) < 0) return 1;
        if (kn_alloc(x, pool, 1 + i * 40503 % (256 << 10), NULL) < 0) return 1;
        if (*leave_in) kn_step();
    }
}

int main(int argc, char **argv) {
    const char *where = argc > 1 ? argv[1] : "20000";
    struct itimerval at = {.it_value.tv_usec = atoi(where)};
    if (signal(SIGALRM, leave) == SIG_ERR) return 1;
    if (!isdigit((unsigned char)*where)) leave_in = where; /* before the first scope */
    kn_pool *pool = kn_device_pool(kn_device_host());
    if (!pool || setitimer(ITIMER_REAL, &at, NULL) != 0) return 1;
    return allocate(pool);
}
