#include "cifar.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checked.h"

enum { SIDE = 32, CHANNELS = 3, IMAGE_BYTES = CHANNELS * SIDE * SIDE, FILES_MAX = 5 };

/* n_labels: bytes before an image; the last of them counts. */
typedef struct variant {
    int n_labels, n_classes;
    const char *files[2][FILES_MAX]; /* by split; NULL: no more */
} variant;
static const variant variants[] = {
    {1,
     10,
     {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
       "data_batch_5.bin"},
      {"test_batch.bin"}}},
    {2, 100, {{"train.bin"}, {"test.bin"}}},
};

static bool path_of(char out[PATH_MAX], const char *dir, const char *file) {
    return (size_t)snprintf(out, PATH_MAX, "%s/%s", dir, file) < PATH_MAX;
}

/* A folder in which one of its files is missing is of that kind too: the error then names it. */
static const variant *variant_find(const char *dir) {
    char path[PATH_MAX];
    for (int v = 0; v < 2; v++) {
        for (int split = 0; split < 2; split++) {
            for (int i = 0; i < FILES_MAX && variants[v].files[split][i]; i++) {
                if (path_of(path, dir, variants[v].files[split][i]) && access(path, F_OK) == 0)
                    return &variants[v];
            }
        }
    }
    return NULL;
}

bool kn__cifar_is_there(const char *dir) { return variant_find(dir) != NULL; }

/* The number of records in a file. */
static kn_status records_count(int64_t *out, const char *path, int64_t record_bytes) {
    struct stat st;
    if (stat(path, &st) != 0) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return KN_FAIL(KN_ERR_IO, "%s: not a regular file", path);
    if (st.st_size == 0 || st.st_size % record_bytes)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: %" PRId64 " bytes; the size must be a multiple of %" PRId64
                       ", a label and an image each",
                       path, (int64_t)st.st_size, record_bytes);
    *out = st.st_size / record_bytes;
    return KN_OK;
}

/* Appends the file's records to the images and labels, of which *n are there. */
static kn_status records_read(kn__images *data, int64_t n, const char *path, const variant *v) {
    uint8_t labels[2];
    kn_status status = KN_OK;
    FILE *file = fopen(path, "rbe");
    if (!file) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
    for (int64_t i = 0; i < n && status == KN_OK; i++, data->n++) {
        uint8_t *image = data->images + data->n * IMAGE_BYTES;
        if (fread(labels, (size_t)v->n_labels, 1, file) != 1 ||
            fread(image, IMAGE_BYTES, 1, file) != 1)
            status = KN_FAIL(KN_ERR_IO, "%s: record %" PRId64 " can't be read: %s", path, i,
                             ferror(file) ? strerror(errno) : "the file became shorter");
        else if (labels[v->n_labels - 1] >= v->n_classes)
            status = KN_FAIL(KN_ERR_FORMAT, "%s: record %" PRId64 " has label %d of %d classes",
                             path, i, labels[v->n_labels - 1], v->n_classes);
        else
            data->labels[data->n] = labels[v->n_labels - 1];
    }
    fclose(file);
    return status;
}

kn_status kn__cifar_read(kn__images *out, const char *dir, kn_split split) {
    const variant *v = variant_find(dir);
    char path[FILES_MAX][PATH_MAX];
    int64_t n[FILES_MAX], total = 0;
    int n_files = 0;
    KN_ASSERT(v);
    for (; n_files < FILES_MAX && v->files[split][n_files]; n_files++) {
        if (!path_of(path[n_files], dir, v->files[split][n_files]))
            return KN_FAIL(KN_ERR_INVALID, "the path of the data has %zu bytes", strlen(dir));
        KN_TRY(records_count(&n[n_files], path[n_files], v->n_labels + IMAGE_BYTES));
        total += n[n_files];
    }
    kn__images data = {.channels = CHANNELS, .height = SIDE, .width = SIDE};
    data.n_classes = v->n_classes;
    data.images = malloc((size_t)total * IMAGE_BYTES);
    data.labels = malloc((size_t)total);
    kn_status status = data.images && data.labels
                           ? KN_OK
                           : KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " images", total);
    for (int i = 0; i < n_files && status == KN_OK; i++)
        status = records_read(&data, n[i], path[i], v);
    if (status == KN_OK)
        *out = data;
    else
        kn__images_release(&data);
    return status;
}
