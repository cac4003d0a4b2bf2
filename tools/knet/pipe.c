#include "pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

enum { WAIT_MS = 50, LATE_MAX = 20 }; /* between looks; looks after the interruption */

volatile sig_atomic_t kn__interrupted;

bool kn__is_pipe(const char *path) {
    struct stat file;
    return stat(path, &file) == 0 && S_ISFIFO(file.st_mode) && kn__standard_stream(path) < 0;
}

static int open_now(const char *path) { return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); }

/* No signal would end an open that waits: handlers restart calls, or another thread runs them. */
static int open_with_reader(const char *path) {
    for (int late = 0;; late += kn__interrupted != 0) {
        int fd = open_now(path);
        if (fd >= 0 || (errno != ENXIO && errno != EINTR) || late == LATE_MAX) return fd;
        (void)poll(NULL, 0, WAIT_MS);
    }
}

/* A pipe with room takes PIPE_BUF bytes at once. */
static int write_parts(int fd, const char *bytes, size_t length) {
    struct pollfd at = {.fd = fd, .events = POLLOUT};
    int error = 0;
    while (length > 0 && !error && !kn__interrupted) {
        if (poll(&at, 1, WAIT_MS) <= 0) continue;
        size_t part = length < PIPE_BUF ? length : PIPE_BUF;
        error = kn__write_all(fd, bytes, part);
        bytes += part;
        length -= part;
    }
    return error ? error : kn__write_all(fd, bytes, length);
}

int kn__pipe_write(const char *path, const char *bytes, size_t length) {
    int fd = open_with_reader(path);
    if (fd < 0) return errno;
    int error = write_parts(fd, bytes, length);
    return close(fd) != 0 && !error ? errno : error;
}

int kn__pipe_add(kn__pipe *pipe, const char *path, const char *bytes, size_t length) {
    if (!pipe->is_open) pipe->fd = pipe->had_reader ? open_now(path) : open_with_reader(path);
    if (pipe->fd < 0) return errno;
    pipe->is_open = pipe->had_reader = true;
    int error = write_parts(pipe->fd, bytes, length);
    if (error) kn__pipe_close(pipe);
    return error;
}

void kn__pipe_close(kn__pipe *pipe) {
    if (pipe->is_open) close(pipe->fd);
    pipe->is_open = false;
}

const char *kn__write_error(int error) {
    return error == ENXIO   ? "this pipe has no reader"
           : error == EPIPE ? "the reader of this pipe has gone"
                            : strerror(error);
}
