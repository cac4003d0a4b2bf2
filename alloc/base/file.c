#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cancel.h"

enum { ROOM_WAIT_MS = 5000 };

const char *kn__rank_text(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID", "RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        size_t n = rank ? strspn(rank, "0123456789") : 0;
        if (n > 0 && n < 12 && !rank[n]) return rank;
    }
    return "0";
}

bool kn__path_expand(char *out, size_t out_bytes, const char *path) {
    size_t at = 0;
    for (; *path && at + 24 < out_bytes; path++) {
        char what = path[0] == '%' ? path[1] : '\0';
        if (what == 'p') at += (size_t)snprintf(out + at, out_bytes - at, "%ld", (long)getpid());
        if (what == 'r') at += (size_t)snprintf(out + at, out_bytes - at, "%s", kn__rank_text());
        if (what == 'p' || what == 'r') {
            path++;
        } else {
            out[at++] = *path;
            if (what == '%') path++;
        }
    }
    out[at] = '\0';
    return !*path;
}

bool kn__path_has(const char *path, char what) {
    for (; (path = strchr(path, '%')) && path[1]; path += 2)
        if (path[1] == what) return true;
    return false;
}

static char start_folder[KN__PATH_EXPANDED_BYTES]; /* "": not known */
static bool started_without_stderr;

void kn__start_remember(void) {
    if (!getcwd(start_folder, sizeof start_folder)) start_folder[0] = '\0';
    started_without_stderr = fcntl(STDERR_FILENO, F_GETFD) < 0;
}

/* As of a program that gave up its rights since: from within, its folder can still be used. */
static bool only_from_within(const char *folder) {
    char here[KN__PATH_EXPANDED_BYTES];
    return faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) != 0 && getcwd(here, sizeof here) &&
           strcmp(here, folder) == 0;
}

const char *kn__path_from_start(char out[KN__PATH_EXPANDED_BYTES], const char *path) {
    if (*path == '/' || strcmp(path, "-") == 0 || !start_folder[0]) return path;
    if (only_from_within(start_folder)) return path;
    size_t at = 0;
    for (const char *c = start_folder; *c && at + 2 < KN__PATH_EXPANDED_BYTES; c++) {
        out[at++] = *c;
        if (*c == '%') out[at++] = '%'; /* the folder's name is no pattern */
    }
    size_t room = KN__PATH_EXPANDED_BYTES - at;
    return (size_t)snprintf(out + at, room, "/%s", path) < room ? out : path;
}

/* While it is quiet, this thread gets neither SIGPIPE (the reader has gone) nor SIGXFSZ (the file
 * may not grow): calls fail with EPIPE and EFBIG. */
typedef struct quiet {
    sigset_t mask, pending; /* as they were */
} quiet;

static const int raised[] = {SIGPIPE, SIGXFSZ};
enum { N_RAISED = sizeof raised / sizeof *raised };

static sigset_t raised_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < N_RAISED; i++) sigaddset(&set, raised[i]);
    return set;
}

static void quiet_begin(quiet *q) {
    sigset_t set = raised_set();
    sigpending(&q->pending);
    pthread_sigmask(SIG_BLOCK, &set, &q->mask);
}

/* The signals are of this thread alone: takes those that came meanwhile. */
static void quiet_end(const quiet *q) {
    sigset_t set = raised_set();
    for (int i = 0; i < N_RAISED; i++) {
        if (sigismember(&q->pending, raised[i])) sigdelset(&set, raised[i]);
    }
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &q->mask, NULL);
}

/* A pipe or terminal that others made non-blocking has no room now; a reader that reads nothing for
 * so long must not keep the program from ending. Returns 0 or an errno. */
static int wait_for_room(int fd) {
    struct pollfd at = {.fd = fd, .events = POLLOUT};
    int n;
    do n = poll(&at, 1, ROOM_WAIT_MS);
    while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : n < 0 ? errno : ETIMEDOUT;
}

static int write_loudly(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            int error = wait_for_room(fd);
            if (error) return error;
            continue;
        }
        if (n <= 0) return n < 0 ? errno : EIO;
        bytes += n;
        length -= (size_t)n;
    }
    return 0;
}

int kn__write_all(int fd, const void *bytes, size_t length) {
    KN__CANCEL_LATER();
    quiet q;
    quiet_begin(&q);
    int error = write_loudly(fd, bytes, length);
    quiet_end(&q);
    return error;
}

int kn__stderr_write(const void *bytes, size_t length) {
    return started_without_stderr ? EBADF : kn__write_all(STDERR_FILENO, bytes, length);
}

/* Returns 0 or an errno. */
static int allocate(int fd, size_t length) {
    quiet q;
    quiet_begin(&q);
    int error = length ? posix_fallocate(fd, 0, (off_t)length) : 0;
    quiet_end(&q);
    return error == EINVAL || error == EOPNOTSUPP ? 0 : error;
}

/* False: another process has the lock of a regular file. A lock ends with its process, and is no
 * child's; file systems without locks have none. */
static bool is_ours_alone(int fd) {
    struct stat s;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || fcntl(fd, F_SETLK, &whole) == 0) return true;
    return errno != EAGAIN && errno != EACCES;
}

int kn__above_streams(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return higher;
}

int kn__open_output(const char *path) {
    KN__CANCEL_LATER();
    int fd = kn__above_streams(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (fd < 0) return -1;
    if (is_ours_alone(fd)) {
        (void)!ftruncate(
            fd, 0); /* fails where the file is not a regular one, which has no end to move */
        return fd;
    }
    close(fd);
    errno = EWOULDBLOCK;
    return -1;
}

const char *kn__output_error(int error) {
    if (error != EWOULDBLOCK) return strerror(error);
    return "another process writes this file; put %p or %r into its name";
}

typedef struct contents {
    int (*write_fn)(void *ctx, int fd);
    void *ctx;
    size_t length; /* 0: not known before */
} contents;

typedef struct range {
    const char *bytes;
    size_t length;
} range;

static int write_range(void *ctx, int fd) {
    const range *r = ctx;
    return kn__write_all(fd, r->bytes, r->length);
}

static int write_and_close(int fd, const contents *c) {
    int error = c->write_fn(c->ctx, fd);
    return close(fd) != 0 && !error ? errno : error;
}

enum { OWN_BYTES = 64 };

/* The number in the name of one of the process's own files; NULL: another name. */
static const char *own_number(const char *path) {
    static const char *const names[][2] = {
        {"/dev/fd/", ""}, {"/proc/self/fd/", ""}, {"/dev/stdout", "1"}, {"/dev/stderr", "2"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *number = names[i][1];
        size_t n = strlen(names[i][0]);
        if (strncmp(path, names[i][0], n) != 0 || (*number && path[n])) continue;
        return *number ? number : path + n;
    }
    return NULL;
}

bool kn__path_is_descriptor(const char *path) { return own_number(path) != NULL; }

/* These names lead through the process's initial thread, which has none once main has ended by
 * pthread_exit: there, returns the name of this thread's, in `out`. */
static const char *own_path(char out[OWN_BYTES], const char *path) {
    const char *number = access(path, F_OK) == 0 ? NULL : own_number(path);
    if (!number) return path;
    snprintf(out, OWN_BYTES, "/proc/thread-self/fd/%s", number);
    return out;
}

int kn__standard_stream(const char *path) {
    struct stat file, other;
    if (stat(path, &file) != 0) return -1;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        int flags = fcntl(fd, F_GETFL);
        bool same = flags >= 0 && fstat(fd, &other) == 0 && file.st_dev == other.st_dev &&
                    file.st_ino == other.st_ino;
        if (same && (flags & O_ACCMODE) != O_RDONLY) return fd;
    }
    return -1;
}

static int write_with(int flags, const char *path, const contents *c) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    return fd < 0 ? errno : write_and_close(fd, c);
}

/* For folders in which no file can be made: allocates the room first, then writes in place. */
static int overwrite(const char *path, const contents *c) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    int error = allocate(fd, c->length);
    if (!error) error = c->write_fn(c->ctx, fd);
    if (!error && ftruncate(fd, lseek(fd, 0, SEEK_CUR)) != 0) error = errno;
    return close(fd) != 0 && !error ? errno : error;
}

static int replace(const char *path, const struct stat *old, const contents *c) {
    char beside[PATH_MAX + 32];
    snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)gettid());
    (void)unlink(beside); /* of a process that was killed */
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return overwrite(path, c);
    if (old) (void)fchmod(fd, old->st_mode & 07777);
    int error = write_and_close(fd, c);
    if (!error && rename(beside, path) != 0) error = errno;
    if (error) (void)unlink(beside);
    return error;
}

/* lstat alone says whether there is a file: between two looks another process may make one. */
static int write_contents(const char *path, const contents *c) {
    KN__CANCEL_LATER();
    char target[PATH_MAX], own[OWN_BYTES];
    struct stat file;
    path = own_path(own, path);
    int fd = kn__standard_stream(path);
    if (fd >= 0) return c->write_fn(c->ctx, fd);
    if (lstat(path, &file) != 0) return replace(path, NULL, c);
    bool is_link = S_ISLNK(file.st_mode), is_there = !is_link || stat(path, &file) == 0;
    bool in_place = !is_there || !S_ISREG(file.st_mode) || file.st_size == 0;
    if (!in_place && !is_link) return replace(path, &file, c);
    return !in_place && realpath(path, target) ? replace(target, &file, c)
                                               : write_with(O_TRUNC, path, c);
}

int kn__file_write(const char *path, const char *bytes, size_t length) {
    range r = {bytes, length};
    return write_contents(path, &(contents){write_range, &r, length});
}

int kn__file_write_by(const char *path, int (*write_fn)(void *ctx, int fd), void *ctx) {
    return write_contents(path, &(contents){write_fn, ctx, 0});
}

/* A write that fails, as on a full disk, leaves no part of it. */
static int append_range(void *ctx, int fd) {
    struct stat file;
    bool is_regular = fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
    int error = write_range(ctx, fd);
    return error && is_regular && ftruncate(fd, file.st_size) != 0 ? errno : error;
}

int kn__file_append(const char *path, const char *bytes, size_t length) {
    KN__CANCEL_LATER();
    range r = {bytes, length};
    char own[OWN_BYTES];
    path = own_path(own, path);
    int fd = kn__standard_stream(path);
    if (fd >= 0) return write_range(&r, fd);
    return write_with(O_APPEND, path, &(contents){append_range, &r, length});
}

/* A path that isn't absolute is invalid, by the XDG Base Directory Specification. */
bool kn__cache_path(char *out, size_t out_bytes, const char *name) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (getauxval(AT_SECURE)) return false;
    bool is_cache = cache && cache[0] == '/';
    if (!is_cache && !(home && home[0] == '/')) return false;
    int n = snprintf(out, out_bytes, "%s%s/knet/%s", is_cache ? cache : home,
                     is_cache ? "" : "/.cache", name);
    return n > 0 && (size_t)n < out_bytes;
}

int kn__make_parents(const char *path, unsigned mode) {
    char parent[PATH_MAX];
    for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        size_t n = (size_t)(end - path);
        if (n >= sizeof parent) return ENAMETOOLONG;
        memcpy(parent, path, n);
        parent[n] = '\0';
        if (mkdir(parent, (mode_t)mode) == 0 || errno == EEXIST) continue;
        int error = errno;
        if (access(parent, F_OK) != 0) return error;
    }
    return 0;
}
