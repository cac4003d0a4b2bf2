#include "replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BESIDE_BYTES = PATH_MAX + 16 };

static kn_status fail(const char *path, const char *why) {
    return KN_FAIL(KN_ERR_IO, "kn_checkpoint_save: %s: %s", path, why);
}

/* The name of a file on disk, not only in the cache: without it a power cut may bring back an empty
 * file under the new name. */
static int sync_path(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return error;
}

static int sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *end = strrchr(path, '/');
    if (end == path)
        snprintf(folder, sizeof folder, "/");
    else
        snprintf(folder, sizeof folder, "%.*s", end ? (int)(end - path) : 1, end ? path : ".");
    return sync_path(folder, O_RDONLY | O_DIRECTORY);
}

/* PATH.1 becomes PATH.2 …; PATH gets the second name PATH.1, so that it never lacks its own. */
static void keep_older(const char *path, int keep) {
    char from[BESIDE_BYTES], to[BESIDE_BYTES];
    if (keep < 1 || access(path, F_OK) != 0) return;
    for (int i = keep - 1; i >= 1; i--) {
        snprintf(from, sizeof from, "%s.%d", path, i);
        snprintf(to, sizeof to, "%s.%d", path, i + 1);
        (void)rename(from, to);
    }
    snprintf(to, sizeof to, "%s.1", path);
    (void)unlink(to);
    if (link(path, to) != 0) (void)rename(path, to); /* file systems without hard links */
}

/* False: another process, or thread, has the file, or has given it another name since. File systems
 * without locks have none. */
static bool is_ours_alone(int fd, const char *path) {
    struct stat opened, named;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

/* An empty file is written in place: what a killed process leaves is always this one name. It is
 * ours until *out is closed. */
static kn_status beside_open(int *out, const char *beside) {
    int fd = open(beside, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return fail(beside, strerror(errno));
    *out = fd;
    bool is_ours = is_ours_alone(fd, beside);
    if (is_ours && ftruncate(fd, 0) == 0) return KN_OK;
    kn_status status =
        fail(beside, is_ours ? strerror(errno) : "another process is saving this checkpoint");
    close(fd);
    return status;
}

kn_status kn__replace_try(const char *path) {
    char beside[BESIDE_BYTES];
    int fd;
    snprintf(beside, sizeof beside, "%s.new", path);
    KN_TRY(beside_open(&fd, beside));
    (void)unlink(beside);
    close(fd);
    return KN_OK;
}

static kn_status write_synced(const char *beside, kn__replace_fn write_fn, void *ctx) {
    KN_TRY(write_fn(ctx, beside));
    int error = sync_path(beside, O_RDONLY);
    return error ? fail(beside, strerror(error)) : KN_OK;
}

static kn_status rename_synced(const char *beside, const char *path) {
    if (rename(beside, path) != 0) return fail(path, strerror(errno));
    int error = sync_folder(path);
    return error ? KN_FAIL(KN_ERR_IO, "kn_checkpoint_save: the folder of %s: %s", path,
                           strerror(error))
                 : KN_OK;
}

kn_status kn__replace(const char *path, int keep, kn__replace_fn write_fn, void *ctx) {
    char beside[BESIDE_BYTES];
    int fd;
    snprintf(beside, sizeof beside, "%s.new", path);
    KN_TRY(beside_open(&fd, beside));
    kn_status status = write_synced(beside, write_fn, ctx);
    if (status == KN_OK) {
        keep_older(path, keep);
        status = rename_synced(beside, path);
    } else {
        (void)unlink(beside);
    }
    close(fd);
    return status;
}
