/* A file that stays open while the program runs. Daemons close all their descriptors, and the
 * number of this one may then be that of a file of the program's own: no function below writes to
 * that file or closes it; they fail with EBADF. */
#ifndef KN_BASE_KEPT_FILE_H
#define KN_BASE_KEPT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct kn__kept_file {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
} kn__kept_file;

/* Takes `fd`; -1: none. */
kn__kept_file kn__kept_file_of(int fd);
/* Whether it is open, and still the same file. */
bool kn__kept_file_is_open(const kn__kept_file *f);
/* As kn__write_all. */
int kn__kept_file_write(const kn__kept_file *f, const void *bytes, size_t length);
/* Returns 0 or an errno; the file has no descriptor afterwards. No-op without one. */
int kn__kept_file_close(kn__kept_file *f);

#endif
