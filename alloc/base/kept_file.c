#include "kept_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cancel.h"
#include "file.h"

kn__kept_file kn__kept_file_of(int fd) {
    struct stat s = {0};
    if (fd >= 0) (void)fstat(fd, &s);
    return (kn__kept_file){fd, s.st_dev, s.st_ino};
}

bool kn__kept_file_is_open(const kn__kept_file *f) {
    struct stat now;
    return f->fd >= 0 && fstat(f->fd, &now) == 0 && now.st_dev == f->device &&
           now.st_ino == f->inode;
}

int kn__kept_file_write(const kn__kept_file *f, const void *bytes, size_t length) {
    return kn__kept_file_is_open(f) ? kn__write_all(f->fd, bytes, length) : EBADF;
}

int kn__kept_file_close(kn__kept_file *f) {
    KN__CANCEL_LATER();
    int error = 0;
    if (f->fd >= 0 && !kn__kept_file_is_open(f)) {
        error = EBADF;
    } else if (f->fd >= 0 && close(f->fd) != 0) {
        error = errno;
    }
    f->fd = -1;
    return error;
}
