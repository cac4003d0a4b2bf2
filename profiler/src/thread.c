#include "thread.h"

#include <signal.h>

int kn__thread_start(pthread_t *out, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
