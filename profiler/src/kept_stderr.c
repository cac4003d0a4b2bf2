#include "kept_stderr.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static int kept = -1;
static struct stat file; /* the program may close `kept` and give its number to another file */

static bool is_kept(void) {
    struct stat now;
    return kept >= 0 && fstat(kept, &now) == 0 && now.st_dev == file.st_dev &&
           now.st_ino == file.st_ino;
}

void kn__stderr_keep(void) {
    kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept >= 0 && fstat(kept, &file) != 0) kn__stderr_forget();
}

void kn__stderr_reopen(void) {
    if (fcntl(STDERR_FILENO, F_GETFD) >= 0 || !is_kept()) return;
    int fd = fcntl(kept, F_DUPFD, STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd); /* another thread was faster */
}

void kn__stderr_forget(void) {
    if (is_kept()) close(kept);
    kept = -1;
}
