/* Fuzzes the reader of film reviews. The input is the two arrays of an NPZ file, x_train and, from
 * the last magic of an NPY file on, y_train: the file around them is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataset.h"
#include "stored_zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = sizeof magic - 1, UNKNOWN = 2 };

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Where the second array begins; size: nowhere. */
static size_t second_array(const uint8_t *data, size_t size) {
    for (size_t at = size; at-- > 1;)
        if (size - at >= MAGIC_BYTES && memcmp(data + at, magic, MAGIC_BYTES) == 0) return at;
    return size;
}

static void check_reviews(const kn_dataset *d, const kn_imdb_options *o) {
    const int64_t *word = d->x, *label = d->y;
    must(d->n > 0 && d->offset && d->offset[0] == 0 && d->n_classes <= 2, "no reviews");
    for (int64_t i = 0; i < d->n; i++) {
        int64_t length = d->offset[i + 1] - d->offset[i];
        must(length >= 0 && (!o->length || length <= o->length), "a review's length");
        must(label[i] == 0 || label[i] == 1, "a label");
    }
    for (int64_t i = 0; i < d->offset[d->n]; i++)
        must(word[i] > 0 && (!o->words || word[i] < o->words || word[i] == UNKNOWN), "a word");
}

static void read_file(const char *path, size_t size) {
    kn_dataset *d = NULL;
    const kn_imdb_options o = {.words = size % 2 ? 0 : 12, .length = size % 3 ? 0 : 2};
    kn_status status = kn_dataset_read_imdb(&d, path, KN_TRAIN, &o);
    must((status == KN_OK) == (d != NULL), "neither read nor not");
    must(kn_check() == KN_OK, "an error is pending");
    if (d) check_reviews(d, &o);
    kn_dataset_destroy(d);
}

/* The file has the same descriptor, and so the same path, each time. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    char path[64];
    size_t split = second_array(data, size);
    const stored_member arrays[] = {{"x_train.npy", data, split},
                                    {"y_train.npy", data + split, size - split}};
    uint8_t *npz = malloc(size + 512);
    must(npz != NULL, "malloc");
    size_t n = stored_zip(npz, arrays, 2);
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, 0) == 0, "memfd");
    must(pwrite(fd, npz, n, 0) == (ssize_t)n, "pwrite");
    free(npz);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_file(path, size);
    return 0;
}
