/* Threads that pthread_cancel ends. One that ended inside would keep its locks for ever, and leave
 * files open and half written. So what holds a lock over calls that threads may end in, as of
 * files, waits, drivers and callbacks, lets them end only after it. */
#ifndef KN_BASE_CANCEL_H
#define KN_BASE_CANCEL_H

#include <pthread.h>

static inline int kn__cancel_hold(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void kn__cancel_restore(const int *before) { pthread_setcancelstate(*before, NULL); }

/* To the end of the block this thread isn't cancelled; it is at the next call after it where that
 * may be. They nest. */
#define KN__CANCEL_LATER()                                                                         \
    const int cancel_ __attribute__((cleanup(kn__cancel_restore), unused)) = kn__cancel_hold()

#endif
