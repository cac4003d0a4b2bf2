/* Opening files, whatever their format, and reading tensors of them. */
#include <errno.h>
#include <fcntl.h>
#include <knet/prof.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entries.h"
#include "run.h"

kn_status kn__file_bad(const char *file, int line, const kn_file *f, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return kn_fail_within_at(file, line, KN_ERR_FORMAT, "%s: %s", f->path, text);
}

/* --- the bytes --- */

static void bytes_drop(void *ctx) {
    kn__bytes *b = ctx;
    if (atomic_fetch_sub(&b->refs, 1) != 1) return;
    if (b->mapped && b->n) munmap((void *)(uintptr_t)b->at, b->n);
    free(b);
}

static kn_status no_file(void) { return errno == ENOMEM ? KN_ERR_OOM : KN_ERR_IO; }

static kn_status bytes_map(kn__bytes *b, const char *path) {
    struct stat file;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* of a pipe it would await a writer */
    kn_status status = KN_OK;
    if (fd < 0 || fstat(fd, &file) != 0) {
        status = KN_FAIL(no_file(), "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(file.st_mode)) {
        status = KN_FAIL(KN_ERR_IO, "%s: not a regular file", path);
    } else if (file.st_size > 0) {
        /* Writable and private: an op may write into a tensor; the file stays as it is. */
        void *at = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_NORESERVE, fd, 0);
        if (at == MAP_FAILED) status = KN_FAIL(no_file(), "%s: %s", path, strerror(errno));
        if (at != MAP_FAILED) *b = (kn__bytes){1, at, (size_t)file.st_size, true};
    }
    if (fd >= 0) close(fd);
    return status;
}

/* --- entries --- */

kn__entry *kn__file_add(kn_file *f, char *name) {
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 16;
        kn__entry *entry = realloc(f->entry, (size_t)cap * sizeof *entry);
        if (!entry) {
            free(name);
            (void)KN_FAIL(KN_ERR_OOM, "%s: no memory for %d entries", f->path, cap);
            return NULL;
        }
        f->entry = entry;
        f->cap = cap;
    }
    kn__entry *e = &f->entry[f->n++];
    *e = (kn__entry){.name = name};
    return e;
}

bool kn__file_size(size_t *out, kn_shape shape, size_t element_bytes) {
    int64_t n = kn__shape_numel(&shape);
    return n >= 0 && !__builtin_mul_overflow((size_t)n, element_bytes, out) &&
           *out <= INT64_MAX / 2;
}

static int by_name(const void *a, const void *b) {
    const kn__entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* For kn_file_find. A name that occurs twice is an error. */
static kn_status names_sort(kn_file *f) {
    if (f->n == 0) return KN_OK;
    f->by_name = malloc((size_t)f->n * sizeof *f->by_name);
    if (!f->by_name) return KN_FAIL(KN_ERR_OOM, "%s: no memory for %d names", f->path, f->n);
    for (int i = 0; i < f->n; i++) f->by_name[i] = &f->entry[i];
    qsort(f->by_name, (size_t)f->n, sizeof *f->by_name, by_name);
    for (int i = 1; i < f->n; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return KN__BAD(f, "tensor '%.100s' occurs twice", f->by_name[i]->name);
    return KN_OK;
}

static kn_status open_entries(kn_file *f) {
    const uint8_t *at = f->bytes->at;
    size_t n = f->bytes->n;
    if (n >= 6 && memcmp(at, "\x93NUMPY", 6) == 0) return kn__npy_open(f);
    f->is_zip = n >= 4 && (memcmp(at, "PK\3\4", 4) == 0 || memcmp(at, "PK\5\6", 4) == 0);
    if (f->is_zip) return kn__zip_open(f);
    if (n >= 9 && at[8] == '{') return kn__safetensors_open(f);
    return KN__BAD(f, "%zu bytes are neither NPY, NPZ nor safetensors", n);
}

static kn_status file_open(kn_file **out, const char *path, const kn__bytes *from) {
    kn_file *f = calloc(1, sizeof *f);
    kn__bytes *bytes = calloc(1, sizeof *bytes);
    char *name = strdup(path);
    if (!f || !bytes || !name) {
        free(f), free(bytes), free(name);
        return KN_FAIL(KN_ERR_OOM, "%s: no memory", path);
    }
    bytes->refs = 1;
    f->bytes = bytes, f->path = name;
    kn_status status = KN_OK;
    if (from)
        *bytes = *from;
    else
        status = bytes_map(bytes, path);
    if (status == KN_OK) status = open_entries(f);
    if (status == KN_OK) status = names_sort(f);
    if (status == KN_OK) f->is_mapped = !from && !f->is_zip;
    if (status == KN_OK)
        *out = f;
    else
        kn_file_close(f);
    return status;
}

static kn_status path_check(const char *who, const char *path) {
    if (path && *path) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: path is %s", who, path ? "empty" : "NULL");
}

kn_status kn_file_open(kn_file **out, const char *path) {
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_file_open: out is NULL");
    KN_TRY(path_check("kn_file_open", path));
    return file_open(out, path, NULL);
}

kn_status kn_file_open_bytes(kn_file **out, const void *bytes, size_t n_bytes, const char *name) {
    if (!out || (!bytes && n_bytes))
        return KN_FAIL(KN_ERR_INVALID, "kn_file_open_bytes: %s is NULL", out ? "bytes" : "out");
    return file_open(out, name ? name : "bytes", &(kn__bytes){1, bytes, n_bytes, false});
}

void kn_file_close(kn_file *f) {
    if (!f) return;
    for (int i = 0; i < f->n; i++) free(f->entry[i].name);
    for (int i = 0; i < f->n_metadata; i++) {
        free(f->metadata[i][0]);
        free(f->metadata[i][1]);
    }
    if (f->bytes) bytes_drop(f->bytes);
    free(f->metadata);
    free(f->by_name);
    free(f->entry);
    free(f->path);
    free(f);
}

static const kn__entry *entry_at(const kn_file *f, int i) {
    return f && i >= 0 && i < f->n ? &f->entry[i] : NULL;
}

int kn_file_count(const kn_file *f) { return f ? f->n : 0; }
const char *kn_file_name(const kn_file *f, int i) {
    const kn__entry *e = entry_at(f, i);
    return e ? e->name : NULL;
}
kn_shape kn_file_shape(const kn_file *f, int i) {
    const kn__entry *e = entry_at(f, i);
    return e ? e->shape : KN_SCALAR;
}
kn_dtype kn_file_dtype(const kn_file *f, int i) {
    const kn__entry *e = entry_at(f, i);
    return e ? e->dtype : (kn_dtype)0;
}

int kn_file_find(const kn_file *f, const char *name) {
    if (!f || !name || f->n == 0) return -1;
    const kn__entry wanted = {.name = (char *)(uintptr_t)name}, *key = &wanted;
    kn__entry *const *at = bsearch(&key, f->by_name, (size_t)f->n, sizeof *f->by_name, by_name);
    return at ? (int)(*at - f->entry) : -1;
}

const char *kn_file_metadata(const kn_file *f, const char *key) {
    for (int i = 0; f && key && i < f->n_metadata; i++)
        if (strcmp(f->metadata[i][0], key) == 0) return f->metadata[i][1];
    return NULL;
}

/* --- reading --- */

static kn_status fill(kn_tensor *t, const kn_file *f, const kn__entry *e) {
    size_t n_bytes = (size_t)t->n * kn_dtype_bytes(e->dtype);
    uint8_t *out = t->data, *tail = out + (n_bytes - e->size_bytes);
    if (f->is_zip) KN_TRY(kn__zip_read(tail, f, e));
    kn__elements_copy(out, n_bytes, f->is_zip ? tail : f->bytes->at + e->offset, e);
    return kn__elements_check(f, e, out);
}

static kn_shape reversed(kn_shape shape) {
    kn_shape out = shape;
    for (int i = 0; i < shape.n_dims; i++) out.dim[i] = shape.dim[shape.n_dims - 1 - i];
    return out;
}

/* A copy on the host, in the order of the file. */
static kn_tensor *read_copy(const kn_file *f, const kn__entry *e) {
    kn_shape shape = e->fortran ? reversed(e->shape) : e->shape;
    kn_tensor *t = kn_tensor_new(kn_device_host(), e->dtype, shape);
    if (!t) return NULL;
    kn_status status = t->n ? fill(t, f, e) : KN_OK;
    if (status == KN_OK) return t;
    kn_drop(t);
    return kn_error_defer(status);
}

/* On the file's own pages. */
static kn_tensor *read_mapped(const kn_file *f, const kn__entry *e) {
    void *at = (void *)(uintptr_t)(f->bytes->at + e->offset);
    kn_status status = kn__elements_check(f, e, at);
    if (status < 0) return kn_error_defer(status);
    atomic_fetch_add(&f->bytes->refs, 1);
    kn_owner owner = {bytes_drop, f->bytes};
    kn_tensor *t = kn_tensor_adopt(kn_device_host(), e->dtype, e->shape, at, owner);
    if (!t) bytes_drop(f->bytes);
    return t;
}

static kn_tensor *read_entry(const kn_file *f, const kn__entry *e) {
    if (e->is_deep)
        return KN_FAIL_NULL(KN_ERR_SHAPE, "%s: tensor '%.100s' has more than %d dimensions",
                            f->path, e->name, KN_DIMS_MAX);
    if (!e->dtype)
        return KN_FAIL_NULL(KN_ERR_DTYPE, "%s: tensor '%.100s' has dtype %s, which has no kn_dtype",
                            f->path, e->name, e->dtype_text);
    kn_device *device = kn_frame_device();
    size_t element = kn_dtype_bytes(e->dtype);
    bool plain =
        !e->fortran && !e->swapped && e->element_bytes == element && e->offset % element == 0;
    kn_tensor *t = f->is_mapped && plain && e->size_bytes ? read_mapped(f, e) : read_copy(f, e);
    if (t && e->fortran && e->shape.n_dims > 1) t = kn_transpose(t, KN_ALL);
    return !t || device == kn_device_host() ? t : kn_to(t, device);
}

static kn_tensor *read_raw(const kn_file *f, const kn__entry *e) {
    kn__entry raw = *e;
    raw.dtype = KN_U8;
    raw.shape = KN_SHAPE((int64_t)e->size_bytes);
    raw.element_bytes = 1;
    raw.fortran = raw.swapped = false;
    return read_copy(f, &raw);
}

static kn_tensor *read_by(kn_file *f, const char *name, const char *who,
                          kn_tensor *(*read_fn)(const kn_file *f, const kn__entry *e)) {
    if (kn_pending()) return NULL;
    if (!f || !name) return KN_FAIL_NULL(KN_ERR_INVALID, "%s: %s is NULL", who, f ? "name" : "f");
    int i = kn_file_find(f, name);
    if (i < 0 && f->n == 1 && !f->entry[0].name[0]) /* an NPY file */
        return KN_FAIL_NULL(KN_ERR_INVALID, "%s: no tensor '%.100s'; its only tensor has no name",
                            f->path, name);
    if (i < 0)
        return KN_FAIL_NULL(KN_ERR_INVALID, "%s: no tensor '%.100s' among %d%s%.100s", f->path,
                            name, f->n, f->n ? "; the first is " : "",
                            f->n ? f->entry[0].name : "");
    kn_scope scope = kn_scope_begin_static("file_read");
    kn_tensor *t = read_fn(f, &f->entry[i]);
    kn_scope_end(&scope);
    return t;
}

kn_tensor *kn_file_read(kn_file *f, const char *name) {
    return read_by(f, name, "kn_file_read", read_entry);
}

kn_tensor *kn_file_read_bytes(kn_file *f, const char *name) {
    return read_by(f, name, "kn_file_read_bytes", read_raw);
}

kn_tensor *kn_npy_load(const char *path) {
    kn_file *f = NULL;
    if (kn_pending()) return NULL;
    kn_status status = path_check("kn_npy_load", path);
    if (status == KN_OK) status = kn_file_open(&f, path);
    if (status != KN_OK) return kn_error_defer(status);
    kn_tensor *t = NULL;
    if (f->n == 1 && !f->entry[0].name[0])
        t = kn_file_read(f, "");
    else
        kn_error_defer(KN__BAD(f, "holds %d tensors with names; kn_file_open reads them", f->n));
    kn_file_close(f);
    return t;
}
