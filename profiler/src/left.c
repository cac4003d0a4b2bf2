#include "left.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "now.h"

static atomic_bool some_left;

bool kn__left_mine(pthread_mutex_t *lock) {
    int error = pthread_mutex_timedlock(lock, &(struct timespec){0});
    if (error == 0) pthread_mutex_unlock(lock);
    if (error == EDEADLK) atomic_store(&some_left, true);
    return error == EDEADLK;
}

bool kn__left_lock(pthread_mutex_t *lock) {
    enum { LOOK_EVERY_NS = 10000000 };
    int error = pthread_mutex_trylock(lock);
    while (error == EBUSY || (error == ETIMEDOUT && !atomic_load(&some_left))) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        struct timespec until = kn__time_after(now, LOOK_EVERY_NS);
        error = pthread_mutex_timedlock(lock, &until);
    }
    return error == 0;
}
