/* Data sets in memory. */
#include "dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <knet/op.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checked.h"
#include "images.h"
#include "mix.h"

/* --- life cycle --- */

kn_dataset *kn__dataset_new(void) {
    kn_dataset *d = calloc(1, sizeof *d);
    if (d)
        d->refs = 1;
    else
        (void)KN_FAIL(KN_ERR_OOM, "no memory for a data set");
    return d;
}

kn_dataset *kn__dataset_share(kn_dataset *d) {
    atomic_fetch_add(&d->refs, 1);
    return d;
}

void kn_dataset_destroy(kn_dataset *d) {
    if (!d || atomic_fetch_sub(&d->refs, 1) != 1) return;
    if (d->whole) {
        kn_dataset_destroy(d->whole);
    } else {
        for (int64_t i = 0; d->class_name && i < d->n_classes; i++) free(d->class_name[i]);
        free(d->class_name);
        free(d->vocab);
        free(d->x);
        free(d->y);
        free(d->offset);
    }
    free(d);
}

kn_status kn__dataset_give(kn_dataset **out, kn_dataset *d, kn_status status) {
    if (status == KN_OK)
        *out = d;
    else
        kn_dataset_destroy(d);
    return status;
}

/* The length of the longest of n sequences. */
static int64_t longest_of(const int64_t offset[], int64_t n) {
    int64_t longest = 0;
    for (int64_t i = 0; i < n; i++)
        if (offset[i + 1] - offset[i] > longest) longest = offset[i + 1] - offset[i];
    return longest;
}

kn_status kn__dataset_read_failed(kn_status status, const char *path) {
    const kn_error why = *kn_last_error();
    bool is_named = strncmp(why.message, path, strlen(path)) == 0;
    kn_status of_file = status == KN_ERR_INVALID ? KN_ERR_FORMAT : status;
    return is_named ? KN_FAIL(of_file, "%s", why.message)
                    : KN_FAIL(of_file, "%s: %s", path, why.message);
}

kn_status kn__dataset_where(kn_status status, const char *where) {
    bool is_of_file = status == KN_ERR_IO || status == KN_ERR_FORMAT || status == KN_ERR_DTYPE ||
                      status == KN_ERR_SHAPE;
    if (!where || !is_of_file) return status;
    const kn_error why = *kn_last_error();
    if (strstr(why.message, "https://")) return status;
    return KN_FAIL(status, "%.1400s; %s", why.message, where);
}

kn_status kn_dataset_take(kn_dataset **out, kn_dataset *from, int64_t first, int64_t n) {
    if (!from || first < 0 || n < 1 || first > from->n - n)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_dataset_take: %" PRId64 " samples from %" PRId64
                       " on; there are %" PRId64,
                       n, first, from ? from->n : 0);
    kn_dataset *d = kn__dataset_new();
    if (!d) return KN_ERR_OOM;
    *d = *from;
    d->refs = 1;
    d->whole = kn__dataset_share(from->whole ? from->whole : from);
    d->n = n;
    if (d->offset) {
        d->offset += first;
        d->x_shape = KN_SHAPE(longest_of(d->offset, n));
    } else {
        d->x = (char *)d->x + (size_t)first * d->x_bytes;
    }
    if (d->y) d->y = (char *)d->y + (size_t)first * d->y_bytes;
    *out = d;
    return KN_OK;
}

/* --- contents --- */

int64_t kn_dataset_size(const kn_dataset *d) { return d->n; }
int64_t kn_dataset_classes(const kn_dataset *d) { return d->n_classes; }
kn_shape kn_dataset_shape(const kn_dataset *d) { return d->x_shape; }
int kn_dataset_is_sequence(const kn_dataset *d) { return d->offset != NULL; }
const char *kn_dataset_class_name(const kn_dataset *d, int64_t i) {
    return d->class_name && i >= 0 && i < d->n_classes ? d->class_name[i] : NULL;
}

/* --- the hash --- */

enum { HASH_BLOCKS = 256, HASH_BLOCK_BYTES = 4096 };

/* All of it, or blocks of it with equal distances. */
static uint64_t bytes_hash(uint64_t h, const void *bytes, size_t n) {
    const char *at = bytes;
    if (n <= (size_t)HASH_BLOCKS * HASH_BLOCK_BYTES) return kn__fnv(h, at, n);
    size_t distance = (n - HASH_BLOCK_BYTES) / (HASH_BLOCKS - 1);
    for (size_t i = 0; i < HASH_BLOCKS; i++) h = kn__fnv(h, at + i * distance, HASH_BLOCK_BYTES);
    return h;
}

static uint64_t form_hash(uint64_t h, kn_dtype dtype, kn_shape shape) {
    h = kn__fnv_step(kn__fnv_step(h, (uint64_t)dtype), (uint64_t)shape.n_dims);
    for (int i = 0; i < shape.n_dims; i++) h = kn__fnv_step(h, (uint64_t)shape.dim[i]);
    return h;
}

static uint64_t labels_hash(uint64_t h, const kn_dataset *d) {
    size_t n = (size_t)d->n * d->y_bytes;
    bool is_class = d->y_dtype == KN_I64 && d->y_shape.n_dims == 0;
    h = form_hash(h, d->y_dtype, d->y_shape);
    return is_class ? kn__fnv_words(h, d->y, n) : bytes_hash(h, d->y, n);
}

uint64_t kn_dataset_hash(const kn_dataset *d) {
    size_t x_bytes = (size_t)d->n * d->x_bytes;
    const char *x = d->x;
    uint64_t h = kn__fnv_step(KN__FNV_START, (uint64_t)d->n);
    h = form_hash(h, d->x_dtype, d->x_shape);
    if (d->offset) { /* of a part they begin anywhere */
        for (int64_t i = 0; i < d->n; i++)
            h = kn__fnv_step(h, (uint64_t)(d->offset[i + 1] - d->offset[i]));
        x += (size_t)d->offset[0] * d->x_bytes;
        x_bytes = (size_t)(d->offset[d->n] - d->offset[0]) * d->x_bytes;
    }
    h = bytes_hash(h, x, x_bytes);
    if (d->y) h = labels_hash(h, d);
    return kn__mix(h);
}

/* --- labels --- */

static kn_status classes_find(int64_t *out, const int64_t labels[], int64_t n, int64_t least) {
    int64_t most = -1, limit = least ? least : INT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0 || labels[i] >= limit)
            return KN_FAIL(KN_ERR_INVALID,
                           "label %" PRId64 " of sample %" PRId64 "; it must be from 0 to %" PRId64,
                           labels[i], i, limit - 1);
        if (labels[i] > most) most = labels[i];
    }
    *out = least ? least : most + 1;
    return KN_OK;
}

kn_status kn__dataset_label(kn_dataset *d, const int64_t labels[], int64_t least) {
    KN_TRY(classes_find(&d->n_classes, labels, d->n, least));
    d->y = malloc((size_t)d->n * sizeof *labels);
    if (!d->y) return KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " labels", d->n);
    memcpy(d->y, labels, (size_t)d->n * sizeof *labels);
    d->y_dtype = KN_I64;
    d->y_shape = KN_SCALAR;
    d->y_bytes = sizeof *labels;
    return KN_OK;
}

/* --- arrays --- */

/* *out: a copy of t on the host; *shape and *bytes are of one of its n samples. */
static kn_status array_copy(void **out, kn_shape *shape, size_t *bytes, kn_tensor *t) {
    kn_shape s = kn_tensor_shape(t);
    size_t all = (size_t)kn_tensor_numel(t) * kn_dtype_bytes(kn_tensor_dtype(t));
    *shape = (kn_shape){.n_dims = s.n_dims - 1};
    for (int i = 1; i < s.n_dims; i++) shape->dim[i - 1] = s.dim[i];
    *bytes = all / (size_t)s.dim[0];
    *out = malloc(all + 1);
    if (!*out) return KN_FAIL(KN_ERR_OOM, "kn_dataset_create: no memory for %zu bytes", all);
    return kn_copy_out(*out, all, t);
}

static kn_status labels_take(kn_dataset *d, kn_tensor *y, int64_t n_classes) {
    void *copy = NULL;
    kn_status status = array_copy(&copy, &d->y_shape, &d->y_bytes, y);
    d->y_dtype = kn_tensor_dtype(y);
    if (status < 0 || d->y_dtype != KN_I64 || d->y_shape.n_dims) {
        d->y = copy;
        return status;
    }
    status = kn__dataset_label(d, copy, n_classes);
    free(copy);
    return status;
}

static kn_status arrays_check(kn_tensor *x, kn_tensor *y) {
    char a[128], b[128];
    kn_shape xs = kn_tensor_shape(x), ys = kn_tensor_shape(y);
    KN_TRY(kn_check());
    bool fits = x && xs.n_dims > 0 && kn_tensor_numel(x) > 0;
    if (fits && y) fits = ys.n_dims > 0 && ys.dim[0] == xs.dim[0] && kn_tensor_numel(y) > 0;
    if (fits) return KN_OK;
    return KN_FAIL(KN_ERR_SHAPE,
                   "kn_dataset_create: x %s, y %s; both are [n,...] with the same n and no empty "
                   "dimension",
                   x ? kn_shape_text(a, sizeof a, xs) : "NULL",
                   y ? kn_shape_text(b, sizeof b, ys) : "NULL");
}

kn_status kn_dataset_create(kn_dataset **out, kn_tensor *x, kn_tensor *y, int64_t n_classes) {
    KN_TRY(arrays_check(x, y));
    if (n_classes < 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_dataset_create: n_classes %" PRId64 ": must be 0 or more", n_classes);
    kn_dataset *d = kn__dataset_new();
    if (!d) return KN_ERR_OOM;
    d->n = kn_tensor_shape(x).dim[0];
    d->x_dtype = kn_tensor_dtype(x);
    kn_status status = array_copy(&d->x, &d->x_shape, &d->x_bytes, x);
    if (status == KN_OK && y) status = labels_take(d, y, n_classes);
    return kn__dataset_give(out, d, status);
}

/* --- sequences --- */

static kn_status offsets_check(const int64_t offset[], int64_t n) {
    if (!offset) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_create_sequences: offset is NULL");
    if (n < 1)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_dataset_create_sequences: n is %" PRId64 "; it must be 1 or more", n);
    if (offset[0] != 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_dataset_create_sequences: offset[0] is %" PRId64 "; it must be 0",
                       offset[0]);
    for (int64_t i = 0; i < n; i++) {
        if (offset[i + 1] < offset[i])
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_dataset_create_sequences: offset %" PRId64 " of sequence %" PRId64
                           " is before %" PRId64,
                           offset[i + 1], i + 1, offset[i]);
    }
    return KN_OK;
}

kn_status kn_dataset_create_sequences(kn_dataset **out, const int64_t values[],
                                      const int64_t offset[], int64_t n, const int64_t labels[]) {
    KN_TRY(offsets_check(offset, n));
    if (!values && offset[n])
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_dataset_create_sequences: values is NULL, but the offsets end with "
                       "%" PRId64,
                       offset[n]);
    kn_dataset *d = kn__dataset_new();
    if (!d) return KN_ERR_OOM;
    d->n = n;
    d->x_dtype = KN_I64;
    d->x_shape = KN_SHAPE(longest_of(offset, n));
    d->x_bytes = sizeof *values;
    size_t x_bytes = (size_t)offset[n] * sizeof *values;
    d->x = malloc(x_bytes + 1);
    d->offset = malloc((size_t)(n + 1) * sizeof *offset);
    kn_status status = KN_OK;
    if (!d->x || !d->offset) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " sequences", n);
    } else {
        if (x_bytes) memcpy(d->x, values, x_bytes);
        memcpy(d->offset, offset, (size_t)(n + 1) * sizeof *offset);
        if (labels) status = kn__dataset_label(d, labels, 0);
    }
    return kn__dataset_give(out, d, status);
}

/* --- images --- */

/* Takes the pixels of the images. */
static kn_status images_wrap(kn_dataset **out, kn__images *images) {
    kn_dataset *d = kn__dataset_new();
    if (!d) {
        kn__images_release(images);
        return KN_ERR_OOM;
    }
    d->n = images->n;
    d->x_dtype = KN_F32;
    d->x_shape = KN_SHAPE(images->channels, images->height, images->width);
    d->x_bytes = (size_t)(images->channels * images->height * images->width);
    d->is_bytes = true;
    d->x = images->images;
    images->images = NULL;
    kn_status status = KN_OK;
    int64_t *labels = malloc((size_t)d->n * sizeof *labels);
    if (!labels) status = KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " labels", d->n);
    for (int64_t i = 0; labels && i < d->n; i++) labels[i] = images->labels[i];
    if (labels) status = kn__dataset_label(d, labels, images->n_classes);
    free(labels);
    kn__images_release(images);
    return kn__dataset_give(out, d, status);
}

kn_status kn__dataset_images(kn_dataset **out, const char *dir, kn_split split) {
    kn__images images = {0};
    if (!kn__images_are_there(dir) && kn__folders_are_there(dir))
        return kn__folders_read(out, dir, split);
    KN_TRY(kn__images_read(&images, dir, split));
    return images_wrap(out, &images);
}

kn_status kn_dataset_read_images(kn_dataset **out, const char *dir, kn_split split) {
    struct stat st;
    if (!dir) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_images: dir is NULL");
    kn_status status = kn__dataset_images(out, dir, split);
    bool is_there = status == KN_OK || stat(dir, &st) == 0 || errno != ENOENT;
    return kn__dataset_where(status, is_there ? NULL : KN__FROM_DEBIAN);
}

/* --- made up --- */

static bool is_digits(const kn_synthetic_options *o) {
    return !o->words && !o->seed && o->n_classes == 10 && !o->reserved[0] && o->shape.n_dims == 3 &&
           o->shape.dim[0] == 1 && o->shape.dim[1] == 28 && o->shape.dim[2] == 28;
}

/* Sample i of class c: f32 that lie near the class's pattern; words that come from the class's own
 * tenth half of the time. u [numel] is uniform, and so is the pattern. */
static void sample_make(void *x, const float *u, const float *pattern, int64_t numel, int64_t c,
                        const kn_synthetic_options *o) {
    for (int64_t i = 0; i < numel; i++) {
        if (!o->words) {
            ((float *)x)[i] = 0.7f * pattern[c * numel + i] + 0.3f * u[i];
            continue;
        }
        double v = (double)u[i] * 2;
        double share = 1 / (double)o->n_classes;
        double at = v < 1 ? v : ((double)c + v - 1) * share;
        int64_t word = (int64_t)(at * (double)o->words);
        ((int64_t *)x)[i] = word < o->words ? word : o->words - 1;
    }
}

static kn_status samples_fill(kn_dataset *d, kn_rng *patterns, kn_rng *noise,
                              const kn_synthetic_options *o) {
    KN_FRAME(.device = kn_device_host(), .dtype = KN_F32, .record = KN_OFF);
    int64_t numel = (int64_t)(d->x_bytes / kn_dtype_bytes(d->x_dtype));
    int64_t met = d->n < o->n_classes ? d->n : o->n_classes; /* classes that have a sample */
    const float *pattern = kn_data(kn_uniform(KN_SHAPE(met, numel), 0, 1, patterns));
    for (int64_t i = 0; i < d->n; i++) {
        KN_FRAME();
        const float *u = kn_data(kn_uniform(KN_SHAPE(numel), 0, 1, noise));
        if (!pattern || !u) return kn_check();
        sample_make((char *)d->x + (size_t)i * d->x_bytes, u, pattern, numel, i % o->n_classes, o);
    }
    return KN_OK;
}

static kn_status synthetic_fill(kn_dataset *d, const kn_synthetic_options *o) {
    kn_rng *patterns = NULL, *noise = NULL;
    int64_t *labels = malloc((size_t)d->n * sizeof *labels);
    d->x = malloc((size_t)d->n * d->x_bytes);
    kn_status status = KN_OK;
    if (!labels || !d->x) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " made-up samples", d->n);
        goto cleanup;
    }
    for (int64_t i = 0; i < d->n; i++) labels[i] = i % o->n_classes;
    KN_TRY_GOTO(status, kn__dataset_label(d, labels, o->n_classes));
    KN_TRY_GOTO(status, kn_rng_create(&patterns, o->seed * 3 + 1));
    KN_TRY_GOTO(status, kn_rng_create(&noise, o->seed * 3 + 2 + (uint64_t)o->split));
    KN_TRY_GOTO(status, samples_fill(d, patterns, noise, o));
cleanup:
    kn_rng_destroy(noise);
    kn_rng_destroy(patterns);
    free(labels);
    return status;
}

static kn_status synthetic_check(const kn_synthetic_options *o, int64_t n, int64_t *numel) {
    char text[128];
    *numel = 1;
    if (o->shape.n_dims < 0 || o->shape.n_dims >= KN_DIMS_MAX)
        return KN_FAIL(KN_ERR_INVALID, "made-up samples of %d dimensions: 0 to %d are possible",
                       o->shape.n_dims, KN_DIMS_MAX - 1);
    bool fits = n > 0 && o->n_classes > 0 && o->words >= 0;
    for (int i = 0; fits && i < o->shape.n_dims; i++)
        fits = o->shape.dim[i] > 0 && !__builtin_mul_overflow(*numel, o->shape.dim[i], numel) &&
               *numel < INT64_MAX / 64 / n;
    for (int i = 0; i < 4; i++) fits = fits && !o->reserved[i];
    if (fits) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%" PRId64 " made-up samples of shape %s, %" PRId64 " classes, %" PRId64
                   " words: counts must be 1 or more, words 0 or more, reserved fields zero",
                   n, kn_shape_text(text, sizeof text, o->shape), o->n_classes, o->words);
}

kn_status kn_dataset_create_synthetic(kn_dataset **out, int64_t n,
                                      const kn_synthetic_options *options) {
    kn_synthetic_options o = options ? *options : (kn_synthetic_options){.shape = KN_SCALAR};
    int64_t numel = 1;
    if (!o.n_classes) o.n_classes = 10;
    if (o.split != KN_TRAIN && o.split != KN_TEST)
        return KN_FAIL(KN_ERR_INVALID, "split %d: must be KN_TRAIN or KN_TEST", (int)o.split);
    if (is_digits(&o)) {
        kn__images images = {0};
        KN_TRY(kn__images_make(&images, n, o.split));
        return images_wrap(out, &images);
    }
    KN_TRY(synthetic_check(&o, n, &numel));
    kn_dataset *d = kn__dataset_new();
    if (!d) return KN_ERR_OOM;
    d->n = n;
    d->x_dtype = o.words ? KN_I64 : KN_F32;
    d->x_shape = o.shape;
    d->x_bytes = (size_t)numel * kn_dtype_bytes(d->x_dtype);
    return kn__dataset_give(out, d, synthetic_fill(d, &o));
}

/* --- files --- */

int kn__by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads `size` bytes or to an earlier end; without a size, as files of /proc have none, to the end.
 * Returns an errno. */
static int bytes_read(char **out, size_t *n, int fd, size_t size) {
    size_t room = size;
    *n = 0;
    *out = malloc(room + 1);
    while (*out && (!size || *n < size)) {
        if (*n == room) {
            room = room ? 2 * room : 4096;
            char *more = realloc(*out, room + 1);
            if (!more) return ENOMEM;
            *out = more;
        }
        ssize_t got = read(fd, *out + *n, room - *n);
        if (got == 0) break;
        if (got > 0) *n += (size_t)got;
        if (got < 0 && errno != EINTR) return errno;
    }
    return *out ? 0 : ENOMEM;
}

kn_status kn__file_whole(char **out, size_t *n_bytes, const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int error = errno;
        if (fd >= 0) close(fd);
        return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(error));
    }
    size_t size = (size_t)st.st_size, n = 0;
    char *text = NULL;
    int error = S_ISREG(st.st_mode) ? bytes_read(&text, &n, fd, size) : EISDIR;
    close(fd);
    if (!error && n >= size) {
        text[n] = 0;
        *out = text;
        *n_bytes = n;
        return KN_OK;
    }
    free(text);
    if (!error)
        return KN_FAIL(KN_ERR_IO, "%s: the file became shorter: %zu of %zu bytes", path, n, size);
    return KN_FAIL(error == ENOMEM ? KN_ERR_OOM : KN_ERR_IO, "%s: %s", path,
                   error == EISDIR ? "not a regular file" : strerror(error));
}

kn_status kn__text_check(const char *text, size_t n_bytes, const char *name) {
    const char *zero = memchr(text, 0, n_bytes);
    if (!zero) return KN_OK;
    return KN_FAIL(KN_ERR_FORMAT, "%s: byte %zu is zero: not a text", name, (size_t)(zero - text));
}
