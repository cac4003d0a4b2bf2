#include "live.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "live_page.h"
#include "now.h"

enum { PATH_BYTES = 64, STAT_BYTES = 128, READ_TRIES = 200, COPY_US = 5000 };
#define TURN_NS 50000000u     /* between two looks whether the program still is */
#define STOPPED_NS 1000000000 /* so long a stopped program is waited for */

/* --- finding the page --- */

static bool is_page(const char *path) {
    static const char name[] = "/memfd:" KN__LIVE_NAME;
    char link[sizeof name + 16];
    ssize_t n = readlink(path, link, sizeof link - 1);
    if (n < (ssize_t)sizeof name - 1) return false;
    link[n] = '\0';
    return strncmp(link, name, sizeof name - 1) == 0;
}

/* The mapping is safe: its file is sealed against a change of size. */
static bool map_page(kn__live *out, const char *path) {
    struct stat file;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return false;
    void *at = MAP_FAILED;
    if (fstat(fd, &file) == 0 && file.st_size == KN__LIVE_BYTES &&
        fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) {
        at = mmap(NULL, KN__LIVE_TEXT_AT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    kn__live_page *page = at;
    if (at != MAP_FAILED && atomic_load(&page->version) == KN__LIVE_VERSION &&
        memcmp(page->magic, kn__live_magic, sizeof page->magic) == 0 &&
        (long)page->pid == out->pid) {
        out->fd = fd;
        out->page = page;
        return true;
    }
    if (at != MAP_FAILED) munmap(at, KN__LIVE_TEXT_AT);
    close(fd);
    return false;
}

/* The path of a process's "fd" or "cmdline": a thread's that runs. The initial one has none where
 * main has ended by pthread_exit. False: no thread runs, or all are another user's. */
static bool find_path(char out[PATH_BYTES], long pid, const char *name) {
    char tasks[PATH_BYTES], exe[PATH_BYTES + 32], link[1];
    snprintf(tasks, sizeof tasks, "/proc/%ld/task", pid);
    snprintf(out, PATH_BYTES, "/proc/%ld/%s", pid, name);
    DIR *all = opendir(tasks);
    bool found = false;
    for (struct dirent *at; all && !found && (at = readdir(all));) {
        long thread = strtol(at->d_name, NULL, 10); /* 0: "." and ".." */
        snprintf(exe, sizeof exe, "%s/%ld/exe", tasks, thread);
        found = thread && readlink(exe, link, sizeof link) > 0;
        if (found) snprintf(out, PATH_BYTES, "/proc/%ld/task/%ld/%s", pid, thread, name);
    }
    if (all) closedir(all);
    return found;
}

/* Whether the process has a page; with `open_it`: one of its own, which is mapped. */
static bool find_page(kn__live *out, bool open_it) {
    char folder[PATH_BYTES], path[PATH_BYTES + 32];
    find_path(folder, out->pid, "fd");
    DIR *all = opendir(folder);
    bool found = false;
    for (struct dirent *at; all && !found && (at = readdir(all));) {
        snprintf(path, sizeof path, "%s/%.24s", folder, at->d_name);
        found = is_page(path) && (!open_it || map_page(out, path));
    }
    if (all) closedir(all);
    return found;
}

void kn__live_command(char *out, size_t out_bytes, long pid) {
    char path[PATH_BYTES];
    find_path(path, pid, "cmdline");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, out_bytes - 1) : 0;
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = '\0';
    for (ssize_t i = 0; i < n - 1; i++) {
        if (!out[i]) out[i] = ' ';
    }
}

static void find_names(kn__live *out) {
    kn__live_command(out->command, sizeof out->command, out->pid);
    if (out->command[0])
        snprintf(out->name, sizeof out->name, "process %ld (%s)", out->pid, out->command);
    else
        snprintf(out->name, sizeof out->name, "process %ld", out->pid);
}

/* What the file "stat" says: 'T' or 't' of one that is stopped, 'Z' or 'X' of one that has ended,
 * as where there is no such file. */
static char read_state(const char *path) {
    char text[STAT_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] ? name_end[2] : 'X';
}

/* Its parent has not asked for its exit code yet. A process whose main has ended by pthread_exit
 * has the same state, and threads that run. */
static bool is_zombie(long pid) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    char state = read_state(path);
    return (state == 'Z' || state == 'X') && !find_path(path, pid, "fd");
}

static kn_status ended(const kn__live *live, kn_status status) {
    return KN_FAIL(status, "%s has ended", live->name);
}

kn_status kn__live_open(kn__live *out, long pid) {
    char path[PATH_BYTES];
    struct stat process;
    *out = (kn__live){.pid = pid, .fd = -1};
    snprintf(path, sizeof path, "/proc/%ld", pid);
    if (stat(path, &process) != 0) return KN_FAIL(KN_ERR_INVALID, "there is no process %ld", pid);
    find_names(out);
    if (process.st_uid != geteuid()) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s belongs to user %u, and you are user %u: look at it as that user",
                       out->name, (unsigned)process.st_uid, (unsigned)geteuid());
    }
    if (find_page(out, true)) return KN_OK;
    if (is_zombie(pid)) return ended(out, KN_ERR_INVALID);
    return KN_FAIL(KN_ERR_INVALID,
                   "%s is not timed, or has opened no scope yet: start it with KNET_TIMER=1 or by "
                   "knet run",
                   out->name);
}

void kn__live_close(kn__live *live) {
    if (live->page) munmap(live->page, KN__LIVE_TEXT_AT);
    if (live->fd >= 0) close(live->fd);
    live->page = NULL;
    live->fd = -1;
}

/* A child of fork() has its parent's descriptor, but no page of its own. */
static bool is_timed(long pid) {
    kn__live live = {.pid = pid, .fd = -1};
    bool timed = find_page(&live, true);
    kn__live_close(&live);
    return timed;
}

int kn__live_find(long *pids, int n) {
    int found = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *at; all && (at = readdir(all));) {
        char path[PATH_BYTES];
        struct stat process;
        char *end = NULL;
        long pid = strtol(at->d_name, &end, 10);
        if (*end || pid <= 0) continue;
        snprintf(path, sizeof path, "/proc/%ld", pid);
        if (stat(path, &process) != 0 || process.st_uid != geteuid() || !is_timed(pid)) continue;
        if (found < n) pids[found] = pid;
        found++;
    }
    if (all) closedir(all);
    return found;
}

/* --- asking --- */

/* Of the thread that answers, as in /proc: 'T' or 't' if it is stopped, 'X' if it is gone. */
static char state_of(const kn__live *live) {
    char path[PATH_BYTES];
    unsigned thread = atomic_load(&live->page->thread);
    if (!thread) return kill((pid_t)live->pid, 0) == 0 ? 'R' : 'X';
    snprintf(path, sizeof path, "/proc/%ld/task/%u/stat", live->pid, thread);
    return read_state(path);
}

static bool has_ended(const kn__live *live) {
    return atomic_load(&live->page->ended) || state_of(live) == 'X';
}

/* However long a slow program takes. */
static kn_status wait_for_answer(const kn__live *live, uint32_t asked) {
    uint64_t running_at = kn__now_ns(CLOCK_MONOTONIC);
    for (;;) {
        uint32_t answered = atomic_load(&live->page->answered);
        if ((int32_t)(answered - asked) >= 0) return KN_OK;
        if (has_ended(live)) return ended(live, KN_ERR_UNSUPPORTED);
        uint64_t now = kn__now_ns(CLOCK_MONOTONIC);
        if (toupper(state_of(live)) != 'T') running_at = now;
        if (now - running_at > STOPPED_NS) {
            return KN_FAIL(KN_ERR_IO, "%s is stopped: continue it with kill -CONT %ld", live->name,
                           live->pid);
        }
        const struct timespec turn = {.tv_nsec = TURN_NS};
        syscall(SYS_futex, &live->page->answered, FUTEX_WAIT, answered, &turn, NULL, 0);
    }
}

/* The program wrote no other report meanwhile, as it does for another reader. */
static bool copy_text(kn__text *out, const kn__live *live) {
    uint32_t version = atomic_load(&live->page->version_of_text);
    uint64_t left = atomic_load(&live->page->length);
    off_t at = KN__LIVE_TEXT_AT;
    out->length = 0;
    if (version % 2 || left > KN__LIVE_BYTES - KN__LIVE_TEXT_AT) return false;
    while (left > 0) {
        char part[16384];
        ssize_t n = pread(live->fd, part, left < sizeof part ? left : sizeof part, at);
        if (n <= 0) return false;
        kn__text_add(out, part, (size_t)n);
        at += n;
        left -= (uint64_t)n;
    }
    return atomic_load(&live->page->version_of_text) == version;
}

kn_status kn__live_read(kn__text *out, const kn__live *live) {
    if (has_ended(live)) return ended(live, KN_ERR_UNSUPPORTED);
    uint32_t asked = atomic_fetch_add(&live->page->asked, 1) + 1;
    syscall(SYS_futex, &live->page->asked, FUTEX_WAKE, 1, NULL, NULL, 0);
    KN_TRY(wait_for_answer(live, asked));
    for (int i = 0; i < READ_TRIES; i++) {
        if (!copy_text(out, live)) {
            usleep(COPY_US);
            continue;
        }
        if (out->failed) return KN_FAIL(KN_ERR_OOM, "no memory for a report");
        if (out->length) return KN_OK;
        break;
    }
    return KN_FAIL(KN_ERR_IO,
                   "%s could not make its report: it has no memory for it, or the report is larger "
                   "than %d MiB",
                   live->name, KN__LIVE_BYTES >> 20);
}
