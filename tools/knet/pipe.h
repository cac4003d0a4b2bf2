/* Results that go to named pipes: who reads one may come late, or never. */
#ifndef KN_PIPE_H
#define KN_PIPE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* The signal after which the command ends as soon as its work is safe, set by its handlers; 0:
 * none. */
extern volatile sig_atomic_t kn__interrupted;

/* A pipe by its name. Not the one that is stdout or stderr: that is written through the stream. */
bool kn__is_pipe(const char *path);
/* Writes to a pipe once it has a reader, as fast as that takes it. Returns 0 or an errno. After
 * kn__interrupted a reader has a second to come, and seconds to take more: else ENXIO, ETIMEDOUT.
 */
int kn__pipe_write(const char *path, const char *bytes, size_t length);

/* A pipe that stays open between writes, so that its reader sees no end; zeros: not open. */
typedef struct kn__pipe {
    bool is_open, had_reader;
    int fd;
} kn__pipe;
/* Writes, the first time once the pipe has a reader; a later one is not waited for. Returns 0 or an
 * errno: EPIPE if the reader has gone, ENXIO if none has come since. */
int kn__pipe_add(kn__pipe *pipe, const char *path, const char *bytes, size_t length);
void kn__pipe_close(kn__pipe *pipe);

/* What an errno of a result's file means. */
const char *kn__write_error(int error);

#endif
