/* Writing to files and pipes from inside somebody's program: a write that fails must not end it. */
#ifndef KNET_PROF_WRITE_H
#define KNET_PROF_WRITE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* While it is quiet, this thread gets neither SIGPIPE (the reader has gone) nor SIGXFSZ (the file
 * may not grow): calls fail with EPIPE and EFBIG. Keeps errno. */
typedef struct kn__quiet {
    sigset_t mask, pending; /* as they were */
} kn__quiet;
void kn__quiet_begin(kn__quiet *quiet);
void kn__quiet_end(const kn__quiet *quiet);

/* Opens a file to write from its start, for as long as the program runs: never as one of the three
 * standard streams, which may be closed. -1: errno says why. */
int kn__open_output(const char *path);

/* Writes all bytes, quietly; false: errno says why. */
bool kn__write_all(int fd, const void *bytes, size_t n);

#endif
