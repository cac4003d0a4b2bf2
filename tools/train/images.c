#include "images.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cifar.h"
#include "dataset.h"
#include "idx.h"

static kn_status dir_check(const char *dir) {
    struct stat st;
    int error = 0;
    if (stat(dir, &st) != 0) {
        error = errno;
    } else if (!S_ISDIR(st.st_mode)) {
        error = ENOTDIR;
    } else if (faccessat(AT_FDCWD, dir, R_OK | X_OK, AT_EACCESS) != 0) {
        error = errno;
    }
    return error ? KN_FAIL(KN_ERR_IO, "data directory %s: %s", dir, strerror(error)) : KN_OK;
}

static int64_t classes_count(const uint8_t *labels, int64_t n) {
    int most = -1;
    for (int64_t i = 0; i < n; i++) most = labels[i] > most ? labels[i] : most;
    return most + 1;
}

static const char *const stems[2][2] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                        {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};

bool kn__images_are_there(const char *dir) {
    char path[PATH_MAX];
    for (int i = 0; i < 4; i++)
        if (kn__idx_find(path, PATH_MAX, dir, stems[i / 2][i % 2]) == KN_OK) return true;
    return kn__cifar_is_there(dir);
}

/* Finds both files first: the error differs for an empty directory and for one missing file. */
static kn_status pair_find(char images[PATH_MAX], char labels[PATH_MAX], const char *dir,
                           kn_split split) {
    KN_TRY(kn__idx_find(images, PATH_MAX, dir, stems[split][0]));
    kn_status status = kn__idx_find(labels, PATH_MAX, dir, stems[split][1]);
    if (status == KN_OK) return KN_OK;
    struct stat st;
    if (lstat(labels, &st) == 0) return status; /* there is one, which can't be read */
    kn_error why = *kn_last_error();
    return KN_FAIL(status, "%s has no file of labels: %.1024s", images, why.message);
}

/* Of a folder that has no file of any kind: which it may have. */
static kn_status none_found(kn_status status) {
    kn_error why = *kn_last_error();
    return KN_FAIL(status,
                   "%.1024s. A folder of images has idx files as of MNIST, CIFAR's "
                   "data_batch_1.bin ... or train.bin, or train/CLASS/IMAGE and test/CLASS/IMAGE, "
                   "which are PNG or JPEG",
                   why.message);
}

kn_status kn__images_read(kn__images *out, const char *dir, kn_split split) {
    char images_path[PATH_MAX], labels_path[PATH_MAX];
    kn__idx images = {0}, labels = {0};
    kn_status status = KN_OK;
    KN_TRY(dir_check(dir));
    if (kn__cifar_is_there(dir))
        return kn__dataset_where(kn__cifar_read(out, dir, split), KN__FROM_CIFAR);
    bool are_there = kn__images_are_there(dir);
    status = pair_find(images_path, labels_path, dir, split);
    if (status < 0)
        return are_there ? kn__dataset_where(status, KN__FROM_MNIST) : none_found(status);
    KN_TRY_GOTO(status, kn__idx_read(&images, images_path, 3));
    KN_TRY_GOTO(status, kn__idx_read(&labels, labels_path, 1));
    if (images.dim[0] != labels.dim[0]) {
        status = KN_FAIL(KN_ERR_FORMAT, "%s has %" PRId64 " images, but %s has %" PRId64 " labels",
                         images_path, images.dim[0], labels_path, labels.dim[0]);
        goto cleanup;
    }
    if (images.size_bytes == 0) {
        status =
            KN_FAIL(KN_ERR_FORMAT,
                    "%s holds no pixels: its dimensions are [%" PRId64 ",%" PRId64 ",%" PRId64 "]",
                    images_path, images.dim[0], images.dim[1], images.dim[2]);
        goto cleanup;
    }
    *out = (kn__images){.n = images.dim[0],
                        .channels = 1,
                        .height = images.dim[1],
                        .width = images.dim[2],
                        .n_classes = classes_count(labels.data, labels.dim[0]),
                        .images = images.data,
                        .labels = labels.data};
    return KN_OK;
cleanup:
    kn__idx_release(&images);
    kn__idx_release(&labels);
    return kn__dataset_where(status, KN__FROM_MNIST);
}

enum { SIDE = 28, CELL = 4, CELLS = SIDE / CELL, CLASSES = 10, CHUNK = 500 };

/* Images i … i+n-1 from noise [n,SIDE·SIDE] in 0 … 1: the class's pattern shows through at 70 %. */
static void images_make(uint8_t *images, const float *noise, const float *pattern, int64_t first,
                        int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float *p = pattern + (first + i) % CLASSES * CELLS * CELLS;
        for (int j = 0; j < SIDE * SIDE; j++) {
            float cell = p[j / SIDE / CELL * CELLS + j % SIDE / CELL];
            images[i * SIDE * SIDE + j] =
                (uint8_t)(255 * (0.7f * cell + 0.3f * noise[i * SIDE * SIDE + j]));
        }
    }
}

static kn_status images_fill(kn__images *data, kn_rng *pattern_rng, kn_rng *noise_rng) {
    KN_FRAME(.device = kn_device_host(), .dtype = KN_F32, .record = KN_OFF);
    const float *pattern = kn_data(kn_uniform(KN_SHAPE(CLASSES, CELLS, CELLS), 0, 1, pattern_rng));
    for (int64_t i = 0; i < data->n; i += CHUNK) {
        KN_FRAME();
        const float *noise = kn_data(kn_uniform(KN_SHAPE(CHUNK, SIDE * SIDE), 0, 1, noise_rng));
        if (!pattern || !noise) return kn_check();
        int64_t n = data->n - i < CHUNK ? data->n - i : CHUNK;
        images_make(data->images + i * SIDE * SIDE, noise, pattern, i, n);
    }
    return KN_OK;
}

kn_status kn__images_make(kn__images *out, int64_t n, kn_split split) {
    if (n < 1) return KN_FAIL(KN_ERR_INVALID, "%" PRId64 " made-up images: must be 1 or more", n);
    kn__images data = {.n = n, .channels = 1, .height = SIDE, .width = SIDE, .n_classes = CLASSES};
    kn_rng *pattern_rng = NULL, *noise_rng = NULL;
    kn_status status = KN_OK;
    KN_TRY_GOTO(status, kn_rng_create(&pattern_rng, 1));
    KN_TRY_GOTO(status, kn_rng_create(&noise_rng, 2 + (uint64_t)split));
    data.images = malloc((size_t)n * SIDE * SIDE);
    data.labels = malloc((size_t)n);
    if (!data.images || !data.labels) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " made-up images", n);
        goto cleanup;
    }
    for (int64_t i = 0; i < n; i++) data.labels[i] = (uint8_t)(i % CLASSES);
    KN_TRY_GOTO(status, images_fill(&data, pattern_rng, noise_rng));
    *out = data;
    data = (kn__images){0};
cleanup:
    kn__images_release(&data);
    kn_rng_destroy(noise_rng);
    kn_rng_destroy(pattern_rng);
    return status;
}

void kn__images_release(kn__images *data) {
    free(data->images);
    free(data->labels);
    *data = (kn__images){0};
}
