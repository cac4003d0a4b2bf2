/* Compiled kernels, in the user's cache. A file is named after its key's hash and holds the key, so
 * that a hash that two keys share, a file cut short and one of another version are only misses.
 * Files are written beside and renamed: readers see a whole file or none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/pointwise/chain_kernel.h"
#include "file.h"
#include "mix.h"

typedef struct header {
    char magic[8];
    uint64_t key_bytes, code_bytes, checksum;
} header;
static const char magic[8] = "KNCHAIN1";

/* --- paths --- */

static const char suffix[] = ".chain";

static bool path_of(char *out, size_t out_bytes, const char *key) {
    char name[2 * 16 + sizeof suffix];
    size_t key_bytes = strlen(key);
    uint64_t high = kn__fnv(KN__FNV_START, key, key_bytes);
    uint64_t low = kn__fnv(KN__GOLDEN, key, key_bytes);
    snprintf(name, sizeof name, "%016llx%016llx%s", (unsigned long long)high,
             (unsigned long long)low, suffix);
    return kn__cache_path(out, out_bytes, name);
}

/* --- reading --- */

/* The whole file, from malloc. */
static char *read_all(size_t *bytes, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    struct stat st;
    char *data = NULL;
    bool fits = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
                st.st_size <= KN__CHAIN_DISK_BYTES;
    if (fits && (data = malloc((size_t)st.st_size))) {
        size_t at = 0;
        ssize_t n = 1;
        while (at < (size_t)st.st_size && n > 0) {
            n = read(fd, data + at, (size_t)st.st_size - at);
            if (n < 0 && errno == EINTR)
                n = 1;
            else if (n > 0)
                at += (size_t)n;
        }
        *bytes = at;
        (void)futimens(fd, NULL); /* by which the oldest ones are found */
    }
    close(fd);
    return data;
}

static bool is_whole(const char *file, size_t bytes, const char *key) {
    header h;
    size_t key_bytes = strlen(key);
    if (bytes < sizeof h) return false;
    memcpy(&h, file, sizeof h);
    return memcmp(h.magic, magic, sizeof magic) == 0 && h.key_bytes == key_bytes && h.code_bytes &&
           h.code_bytes == bytes - sizeof h - key_bytes &&
           memcmp(file + sizeof h, key, key_bytes) == 0 &&
           h.checksum == kn__fnv(0, file + sizeof h, bytes - sizeof h);
}

void *kn__chain_disk_read(size_t *bytes, const char *key) {
    char path[PATH_MAX];
    size_t file_bytes = 0;
    if (!path_of(path, sizeof path, key)) return NULL;
    char *file = read_all(&file_bytes, path);
    if (file && is_whole(file, file_bytes, key)) {
        size_t before = sizeof(header) + strlen(key);
        *bytes = file_bytes - before;
        memmove(file, file + before, *bytes);
        return file;
    }
    free(file);
    return NULL;
}

/* --- writing --- */

static bool is_kernel(const char *name) {
    size_t n = strlen(name), end = sizeof suffix - 1;
    return n > end && strcmp(name + n - end, suffix) == 0;
}

/* Bytes of all kernels; *oldest: the name of the one that was used longest ago. Other files of the
 * folder are not ours. */
static uint64_t look_through(int folder, DIR *dir, char oldest[NAME_MAX + 1]) {
    uint64_t total = 0;
    struct timespec least = {0};
    oldest[0] = 0;
    rewinddir(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        struct stat st;
        if (!is_kernel(d->d_name)) continue;
        if (fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        total += (uint64_t)st.st_size;
        bool older = st.st_mtim.tv_sec < least.tv_sec ||
                     (st.st_mtim.tv_sec == least.tv_sec && st.st_mtim.tv_nsec < least.tv_nsec);
        if (oldest[0] && !older) continue;
        least = st.st_mtim;
        snprintf(oldest, NAME_MAX + 1, "%s", d->d_name);
    }
    return total;
}

/* Another process may do the same: a file that is gone is no error. */
static void trim(void) {
    char path[PATH_MAX], oldest[NAME_MAX + 1];
    DIR *dir = kn__cache_path(path, sizeof path, "") ? opendir(path) : NULL;
    if (!dir) return;
    int folder = dirfd(dir);
    while (look_through(folder, dir, oldest) > KN__CHAIN_DISK_BYTES && oldest[0]) {
        if (unlinkat(folder, oldest, 0) != 0 && errno != ENOENT) break;
    }
    closedir(dir);
}

void kn__chain_disk_write(const char *key, const void *code, size_t bytes) {
    char path[PATH_MAX];
    size_t key_bytes = strlen(key);
    if (!path_of(path, sizeof path, key)) return;
    if (kn__make_parents(path, 0700)) return; /* for the user alone */
    kn__text file = {0};
    uint64_t sum = kn__fnv(kn__fnv(0, key, key_bytes), code, bytes);
    header h = {{0}, key_bytes, bytes, sum};
    memcpy(h.magic, magic, sizeof magic);
    kn__text_add(&file, (const char *)&h, sizeof h);
    kn__text_add(&file, key, key_bytes);
    kn__text_add(&file, code, bytes);
    if (!file.failed && kn__file_write(path, file.data, file.length) == 0) trim();
    kn__text_release(&file);
}
