#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "mute.h"

typedef struct start {
    void *(*run)(void *);
    void *arg;
} start;

/* What such a thread allocates is the timer's. */
static void *run_muted(void *at) {
    kn__mute();
    kn__helper_enter();
    start what = *(start *)at;
    free(at);
    return what.run(what.arg);
}

static int create(pthread_t *out, void *(*run)(void *), void *arg) {
    start *what = malloc(sizeof *what);
    if (!what) return ENOMEM;
    *what = (start){run, arg};
    int error = pthread_create(out, NULL, run_muted, what);
    if (error) free(what);
    return error;
}

int kn__thread_start(pthread_t *out, void *(*run)(void *), void *arg) {
    KN__SIGNALS_LATER();
    kn__mute();
    int error = create(out, run, arg);
    kn__unmute();
    return error;
}

sigset_t kn__handlers_hold(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    return before;
}

void kn__handlers_restore(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

void kn__thread_name(char *out, size_t out_bytes, long tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, out_bytes - 1) : 0;
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}
