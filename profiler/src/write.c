#include "write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static const int raised[] = {SIGPIPE, SIGXFSZ};
enum { N_RAISED = sizeof raised / sizeof *raised };

static sigset_t raised_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < N_RAISED; i++) sigaddset(&set, raised[i]);
    return set;
}

void kn__quiet_begin(kn__quiet *quiet) {
    sigset_t set = raised_set();
    sigpending(&quiet->pending);
    pthread_sigmask(SIG_BLOCK, &set, &quiet->mask);
}

/* The signals are of this thread alone: takes those that came meanwhile. */
void kn__quiet_end(const kn__quiet *quiet) {
    int error = errno;
    sigset_t set = raised_set();
    for (int i = 0; i < N_RAISED; i++) {
        if (sigismember(&quiet->pending, raised[i])) sigdelset(&set, raised[i]);
    }
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &quiet->mask, NULL);
    errno = error;
}

int kn__open_output(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return higher;
}

static bool write_loudly(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

bool kn__write_all(int fd, const void *bytes, size_t n) {
    kn__quiet quiet;
    kn__quiet_begin(&quiet);
    bool ok = write_loudly(fd, bytes, n);
    kn__quiet_end(&quiet);
    return ok;
}
