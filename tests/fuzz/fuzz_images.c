/* Fuzzes the readers of images with labels: idx files, CIFAR's binary files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cifar.h"
#include "idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Every byte is read, for the sanitizers. */
static void read_all(const uint8_t *bytes, size_t n) {
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum ^= bytes[i];
    must(sum < 256, "sum");
}

#ifdef FUZZ_IDX
static void read_file(const char *path) {
    for (int n_dims = 1; n_dims <= KN__IDX_DIMS_MAX; n_dims++) {
        kn__idx idx = {.data = NULL};
        kn_status status = kn__idx_read(&idx, path, n_dims);
        must((status == KN_OK) == (idx.data != NULL), "neither read nor not");
        if (status < 0) continue;
        size_t n = 1;
        must(idx.n_dims == n_dims, "dimensions");
        for (int i = 0; i < n_dims; i++) n *= (size_t)idx.dim[i];
        must(n == idx.size_bytes, "size");
        read_all(idx.data, n);
        kn__idx_release(&idx);
    }
}
#else
static char dirs[2][256]; /* each with a link to the file, as the test of CIFAR-10 and CIFAR-100 */
static const char *const names[2] = {"test_batch.bin", "test.bin"};

static void dirs_remove(void) {
    char name[sizeof dirs + 32];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/%s", dirs[i], names[i]);
        unlink(name);
        rmdir(dirs[i]);
    }
}

static void dirs_make(const char *path) {
    char name[sizeof dirs + 32];
    const char *tmp = getenv("TMPDIR");
    for (int i = 0; i < 2; i++) {
        int n = snprintf(dirs[i], sizeof dirs[i], "%s/fuzz-cifar-XXXXXX", tmp ? tmp : "/tmp");
        must(n < (int)sizeof dirs[i] && mkdtemp(dirs[i]) != NULL, "mkdtemp");
        snprintf(name, sizeof name, "%s/%s", dirs[i], names[i]);
        must(symlink(path, name) == 0, "symlink");
    }
    atexit(dirs_remove);
}

static void read_file(const char *path) {
    if (!dirs[0][0]) dirs_make(path);
    for (int i = 0; i < 2; i++) {
        kn__images images = {.images = NULL};
        kn_status status = kn__cifar_read(&images, dirs[i], KN_TEST);
        must((status == KN_OK) == (images.images != NULL), "neither read nor not");
        if (status < 0) continue;
        must(images.n > 0 && images.n_classes == (i ? 100 : 10), "empty");
        for (int64_t k = 0; k < images.n; k++)
            must(images.labels[k] < images.n_classes, "a label beyond the classes");
        read_all(images.images,
                 (size_t)(images.n * images.channels * images.height * images.width));
        kn__images_release(&images);
    }
}
#endif

/* The file has the same descriptor, and so the same path, each time. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    char path[64];
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, 0) == 0, "memfd");
    must(pwrite(fd, data, size, 0) == (ssize_t)size, "pwrite");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_file(path);
    return 0;
}
