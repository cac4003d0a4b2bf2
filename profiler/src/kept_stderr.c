#include "kept_stderr.h"

#include <fcntl.h>
#include <unistd.h>

#include "kept_file.h"

static kn__kept_file kept = {.fd = -1};

void kn__stderr_keep(void) {
    kept = kn__kept_file_of(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

void kn__stderr_reopen(void) {
    if (fcntl(STDERR_FILENO, F_GETFD) >= 0 || !kn__kept_file_is_open(&kept)) return;
    int fd = fcntl(kept.fd, F_DUPFD, STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd); /* another thread was faster */
}

void kn__stderr_forget(void) { (void)kn__kept_file_close(&kept); }
