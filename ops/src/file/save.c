/* Writing files: a writer runs with the file open, and returns 0 or an errno. */
#include <errno.h>
#include <knet/prof.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "entries.h"
#include "file.h"
#include "run.h"
#include "text.h"
#include "utf8.h"

typedef struct saving {
    const kn_named *tensor;
    int n;
    bool compress;
    const kn__text *header; /* of safetensors */
    int *order;             /* of safetensors */
    kn_status status;       /* of failures without an errno */
} saving;

static const uint8_t nothing;

const void *kn__host_bytes(void **copied, kn_tensor *t) {
    *copied = NULL;
    if (!t->n) return &nothing;
    if (kn_tensor_compute(t) < 0) return NULL;
    if (kn_tensor_device(t) == kn_device_host()) return t->data;
    size_t bytes = (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
    *copied = malloc(bytes);
    if (!*copied) {
        (void)KN_FAIL(KN_ERR_OOM, "no host memory for %zu bytes of a tensor", bytes);
        return NULL;
    }
    if (kn_copy_out(*copied, bytes, t) == KN_OK) return *copied;
    free(*copied);
    return NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const kn_named *const *)a)->name, (*(const kn_named *const *)b)->name);
}

static kn_status check_one(const char *who, const kn_named *t, int i) {
    char what[160];
    if (!t->name) return KN_FAIL(KN_ERR_INVALID, "%s: the name of tensor %d is NULL", who, i);
    if (!kn__utf8_is_valid(t->name))
        return KN_FAIL(KN_ERR_INVALID, "%s: the name '%.100s' of tensor %d is not UTF-8", who,
                       t->name, i);
    snprintf(what, sizeof what, "%s: '%.100s'", who, t->name);
    return kn__is_whole(t->tensor) ? KN_OK : kn__fail_unreadable(what, t->tensor);
}

kn_status kn__named_check(const char *who, const kn_named tensors[], int n) {
    KN_TRY(kn_check());
    if (n < 0 || (n && !tensors)) return KN_FAIL(KN_ERR_INVALID, "%s: %d tensors", who, n);
    const kn_named **order = malloc((size_t)n * sizeof(void *) + 1);
    if (!order) return KN_FAIL(KN_ERR_OOM, "%s: no memory", who);
    kn_status status = KN_OK;
    for (int i = 0; i < n && status == KN_OK; i++) {
        order[i] = &tensors[i];
        status = check_one(who, &tensors[i], i);
    }
    if (status == KN_OK) qsort(order, (size_t)n, sizeof *order, by_name);
    for (int i = 1; i < n && status == KN_OK; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            status =
                KN_FAIL(KN_ERR_INVALID, "%s: the name '%.100s' occurs twice", who, order[i]->name);
    free(order);
    return status;
}

static int save_failed(saving *s, kn_status status) {
    s->status = status;
    return EIO;
}

static kn_status save(const char *who, const char *path, int (*write_fn)(void *ctx, int fd),
                      saving *s) {
    if (!path || !*path)
        return KN_FAIL(KN_ERR_INVALID, "%s: path is %s", who, path ? "empty" : "NULL");
    kn_scope scope = kn_scope_begin_static("file_write");
    int error = kn__file_write_by(path, write_fn, s);
    kn_scope_end(&scope);
    if (s->status < 0) return s->status; /* its message has been recorded */
    if (error == ENOMEM) return KN_FAIL(KN_ERR_OOM, "%s: %s: no memory", who, path);
    return error ? KN_FAIL(KN_ERR_IO, "%s: %s: %s", who, path, strerror(error)) : KN_OK;
}

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

static kn_status npy_dtype(const char *who, const kn_named *t) {
    char header[KN__NPY_HEADER_BYTES];
    kn_dtype dtype = kn_tensor_dtype(t->tensor);
    if (kn__npy_header_write(header, dtype, kn_tensor_shape(t->tensor))) return KN_OK;
    return KN_FAIL(KN_ERR_DTYPE, "%s: %s%.100s%sNumPy has no %s; kn_cast to f32", who,
                   t->name[0] ? "'" : "", t->name, t->name[0] ? "': " : "", kn_dtype_name(dtype));
}

/* --- NPY --- */

static int write_npy(void *ctx, int fd) {
    saving *s = ctx;
    kn_tensor *t = s->tensor->tensor;
    char header[KN__NPY_HEADER_BYTES];
    size_t n = kn__npy_header_write(header, kn_tensor_dtype(t), kn_tensor_shape(t));
    void *copied = NULL;
    const void *data = kn__host_bytes(&copied, t);
    if (!data) return save_failed(s, kn_last_error()->status);
    int error = kn__write_all(fd, header, n);
    if (!error) error = kn__write_all(fd, data, bytes_of(t));
    free(copied);
    return error;
}

kn_status kn_npy_save(const char *path, kn_tensor *t) {
    kn_named named = {"", t};
    KN_TRY(kn_check());
    if (!kn__is_whole(t)) return kn__fail_unreadable("kn_npy_save: t", t);
    KN_TRY(npy_dtype("kn_npy_save", &named));
    return save("kn_npy_save", path, write_npy, &(saving){.tensor = &named, .n = 1});
}

/* --- NPZ --- */

typedef struct zip_member {
    uint64_t at, packed, size;
    uint32_t crc;
    const char *name;
} zip_member;

typedef struct zip {
    int fd;
    bool compress;
    uint64_t at;
    zip_member *member;
} zip;

static void put(kn__text *text, uint64_t value, int bytes) {
    char out[8];
    for (int i = 0; i < bytes; i++) out[i] = (char)(value >> (8 * i) & 255);
    kn__text_add(text, out, (size_t)bytes);
}

static bool is_large(const zip_member *m) {
    return m->size >= UINT32_MAX || m->packed >= UINT32_MAX || m->at >= UINT32_MAX;
}

/* The header before a member's bytes, or its entry in the directory. */
static void put_member(kn__text *text, const zip_member *m, bool compress, bool central) {
    bool large = is_large(m);
    kn__text_add(text, central ? "PK\1\2" : "PK\3\4", 4);
    if (central) put(text, large ? 45 : 20, 2);
    put(text, large ? 45 : 20, 2);
    put(text, 1u << 11, 2); /* names are UTF-8 */
    put(text, compress ? 8 : 0, 2);
    put(text, 0, 2);
    put(text, 33, 2); /* 1980-01-01: equal tensors make equal files */
    put(text, m->crc, 4);
    put(text, large ? UINT32_MAX : m->packed, 4);
    put(text, large ? UINT32_MAX : m->size, 4);
    put(text, strlen(m->name) + 4, 2);
    put(text, large ? (central ? 28 : 20) : 0, 2);
    if (central) {
        put(text, 0, 2 + 2 + 2); /* comment, disk, attributes */
        put(text, 0644u << 16, 4);
        put(text, large ? UINT32_MAX : m->at, 4);
    }
    kn__text_puts(text, m->name);
    kn__text_puts(text, ".npy");
    if (!large) return;
    put(text, 1, 2);
    put(text, central ? 24 : 16, 2);
    put(text, m->size, 8);
    put(text, m->packed, 8);
    if (central) put(text, m->at, 8);
}

static int zip_write(zip *z, const void *bytes, size_t n) {
    z->at += n;
    return kn__write_all(z->fd, bytes, n);
}

static int zip_text(zip *z, kn__text *text) {
    int error = text->failed ? ENOMEM : zip_write(z, text->data, text->length);
    kn__text_release(text);
    return error;
}

/* Deflates both ranges as one stream into `out`. */
static int deflate_ranges(kn__text *out, const void *const at[2], const size_t bytes[2]) {
    static const size_t piece_bytes = 1u << 20;
    Bytef *room = malloc(piece_bytes);
    z_stream z = {0};
    if (!room || deflateInit2(&z, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(room);
        return ENOMEM;
    }
    for (int i = 0; i < 2; i++) {
        size_t left = bytes[i];
        z.next_in = (Bytef *)(uintptr_t)at[i];
        do {
            z.avail_in = left < 1u << 30 ? (uInt)left : 1u << 30;
            left -= z.avail_in;
            do {
                z.next_out = room;
                z.avail_out = (uInt)piece_bytes;
                deflate(&z, i == 1 && left == 0 ? Z_FINISH : Z_NO_FLUSH);
                kn__text_add(out, (char *)room, piece_bytes - z.avail_out);
            } while (z.avail_out == 0);
        } while (left);
    }
    deflateEnd(&z);
    free(room);
    return out->failed ? ENOMEM : 0;
}

static int write_member(zip *z, zip_member *m, const void *const at[2], const size_t bytes[2]) {
    kn__text packed = {0}, header = {0};
    int error = 0;
    m->at = z->at;
    m->size = m->packed = bytes[0] + bytes[1];
    m->crc = (uint32_t)crc32_z(crc32_z(0, at[0], bytes[0]), at[1], bytes[1]);
    if (z->compress) error = deflate_ranges(&packed, at, bytes);
    if (z->compress) m->packed = packed.length;
    put_member(&header, m, z->compress, false);
    if (!error) error = zip_text(z, &header);
    if (!error && z->compress) error = zip_write(z, packed.data, packed.length);
    for (int i = 0; i < 2 && !error && !z->compress; i++) error = zip_write(z, at[i], bytes[i]);
    kn__text_release(&header);
    kn__text_release(&packed);
    return error;
}

static int write_directory(zip *z, int n) {
    kn__text text = {0};
    uint64_t at = z->at;
    for (int i = 0; i < n; i++) put_member(&text, &z->member[i], z->compress, true);
    uint64_t bytes = text.length;
    if (at >= UINT32_MAX || bytes >= UINT32_MAX || n >= UINT16_MAX) {
        uint64_t end64 = at + bytes;
        kn__text_add(&text, "PK\6\6", 4);
        put(&text, 44, 8);
        put(&text, 45, 2);
        put(&text, 45, 2);
        put(&text, 0, 8); /* disks */
        put(&text, (uint64_t)n, 8);
        put(&text, (uint64_t)n, 8);
        put(&text, bytes, 8);
        put(&text, at, 8);
        kn__text_add(&text, "PK\6\7\0\0\0\0", 8);
        put(&text, end64, 8);
        put(&text, 1, 4);
    }
    uint64_t count = n < UINT16_MAX ? (uint64_t)n : UINT16_MAX;
    kn__text_add(&text, "PK\5\6\0\0\0\0", 8);
    put(&text, count, 2);
    put(&text, count, 2);
    put(&text, bytes < UINT32_MAX ? bytes : UINT32_MAX, 4);
    put(&text, at < UINT32_MAX ? at : UINT32_MAX, 4);
    put(&text, 0, 2);
    return zip_text(z, &text);
}

static int write_npz(void *ctx, int fd) {
    saving *s = ctx;
    zip z = {fd, s->compress, 0, calloc((size_t)s->n + 1, sizeof *z.member)};
    int error = z.member ? 0 : ENOMEM;
    for (int i = 0; i < s->n && !error; i++) {
        kn_tensor *t = s->tensor[i].tensor;
        char header[KN__NPY_HEADER_BYTES];
        size_t n = kn__npy_header_write(header, kn_tensor_dtype(t), kn_tensor_shape(t));
        void *copied = NULL;
        const void *data = kn__host_bytes(&copied, t);
        z.member[i].name = s->tensor[i].name;
        error = data ? write_member(&z, &z.member[i], (const void *[]){header, data},
                                    (size_t[]){n, bytes_of(t)})
                     : save_failed(s, kn_last_error()->status);
        free(copied);
    }
    if (!error) error = write_directory(&z, s->n);
    free(z.member);
    return error;
}

kn_status kn_npz_save(const char *path, const kn_named tensors[], int n,
                      const kn_npz_options *options) {
    int compress = options ? options->compress : 0;
    KN_TRY(kn__named_check("kn_npz_save", tensors, n));
    if (!kn__flag_read(&compress))
        return KN_FAIL(KN_ERR_INVALID, "kn_npz_save: compress is %d; it must be 0, 1 or KN_OFF",
                       compress);
    for (int i = 0; i < n; i++) {
        size_t length = strlen(tensors[i].name);
        if (length == 0 || length > 60000)
            return KN_FAIL(KN_ERR_INVALID, "kn_npz_save: the name of tensor %d has %zu bytes", i,
                           length);
        KN_TRY(npy_dtype("kn_npz_save", &tensors[i]));
    }
    return save("kn_npz_save", path, write_npz,
                &(saving){.tensor = tensors, .n = n, .compress = compress != 0});
}

/* --- safetensors --- */

static const char *const words[] = {
    [KN_F32] = "F32", [KN_F64] = "F64", [KN_F16] = "F16", [KN_BF16] = "BF16",
    [KN_I64] = "I64", [KN_I32] = "I32", [KN_U8] = "U8",   [KN_BOOL] = "BOOL"};

/* Large elements first, so that each tensor begins at a multiple of its elements' size. */
static bool comes_before(const kn_named *a, const kn_named *b) {
    size_t x = kn_dtype_bytes(kn_tensor_dtype(a->tensor));
    size_t y = kn_dtype_bytes(kn_tensor_dtype(b->tensor));
    return x != y ? x > y : strcmp(a->name, b->name) < 0;
}

static int by_place(const void *a, const void *b) {
    const kn_named *x = *(const kn_named *const *)a, *y = *(const kn_named *const *)b;
    return comes_before(x, y) ? -1 : comes_before(y, x);
}

static bool find_order(int order[], const kn_named tensors[], int n) {
    const kn_named **at = malloc((size_t)n * sizeof(void *) + 1);
    if (!at) return false;
    for (int i = 0; i < n; i++) at[i] = &tensors[i];
    qsort(at, (size_t)n, sizeof *at, by_place);
    for (int i = 0; i < n; i++) order[i] = (int)(at[i] - tensors);
    free(at);
    return true;
}

static void put_metadata(kn__text *text, const char *const metadata[][2], int n) {
    if (!n) return;
    kn__text_puts(text, "\"__metadata__\":{");
    for (int i = 0; i < n; i++) {
        if (i) kn__text_puts(text, ",");
        kn__text_json(text, metadata[i][0]);
        kn__text_puts(text, ":");
        kn__text_json(text, metadata[i][1]);
    }
    kn__text_puts(text, "}");
}

static void put_header(kn__text *text, const saving *s, const char *const metadata[][2],
                       int n_metadata) {
    size_t at = 0;
    kn__text_puts(text, "{");
    put_metadata(text, metadata, n_metadata);
    for (int i = 0; i < s->n; i++) {
        const kn_named *t = &s->tensor[s->order[i]];
        char shape[256] = "[]";
        if (t->tensor->n_dims) kn_shape_text(shape, sizeof shape, kn_tensor_shape(t->tensor));
        if (i || n_metadata) kn__text_puts(text, ",");
        kn__text_json(text, t->name);
        kn__text_printf(text, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                        words[t->tensor->dtype], shape, at, at + bytes_of(t->tensor));
        at += bytes_of(t->tensor);
    }
    kn__text_puts(text, "}");
    while (text->length % 8 && !text->failed) kn__text_puts(text, " ");
}

static int write_safetensors(void *ctx, int fd) {
    saving *s = ctx;
    uint64_t length = s->header->length;
    int error = kn__write_all(fd, &length, sizeof length);
    if (!error) error = kn__write_all(fd, s->header->data, s->header->length);
    for (int i = 0; i < s->n && !error; i++) {
        kn_tensor *t = s->tensor[s->order[i]].tensor;
        void *copied = NULL;
        const void *data = kn__host_bytes(&copied, t);
        error =
            data ? kn__write_all(fd, data, bytes_of(t)) : save_failed(s, kn_last_error()->status);
        free(copied);
    }
    return error;
}

/* Metadata i: a key that none before it has. */
static kn_status check_pair(const char *const metadata[][2], int i) {
    const char *key = metadata[i][0], *text = metadata[i][1];
    if (!key || !text)
        return KN_FAIL(KN_ERR_INVALID, "kn_safetensors_save: metadata %d is NULL", i);
    if (!kn__utf8_is_valid(key) || !kn__utf8_is_valid(text))
        return KN_FAIL(KN_ERR_INVALID, "kn_safetensors_save: metadata %d, '%.100s', is not UTF-8",
                       i, key);
    for (int k = 0; k < i; k++)
        if (strcmp(metadata[k][0], key) == 0)
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_safetensors_save: the metadata key '%.100s' occurs twice", key);
    return KN_OK;
}

static kn_status check_words(const kn_named tensors[], int n, const char *const metadata[][2],
                             int n_metadata) {
    for (int i = 0; i < n; i++)
        if (strcmp(tensors[i].name, "__metadata__") == 0)
            return KN_FAIL(KN_ERR_INVALID, "kn_safetensors_save: no tensor is named __metadata__");
    if (n_metadata < 0 || (n_metadata && !metadata))
        return KN_FAIL(KN_ERR_INVALID, "kn_safetensors_save: %d pairs of metadata", n_metadata);
    for (int i = 0; i < n_metadata; i++) KN_TRY(check_pair(metadata, i));
    return KN_OK;
}

kn_status kn_safetensors_save(const char *path, const kn_named tensors[], int n,
                              const char *const metadata[][2], int n_metadata) {
    kn__text header = {0};
    KN_TRY(kn__named_check("kn_safetensors_save", tensors, n));
    KN_TRY(check_words(tensors, n, metadata, n_metadata));
    saving s = {.tensor = tensors, .n = n, .header = &header};
    s.order = malloc((size_t)n * sizeof *s.order + 1);
    kn_status status = KN_OK;
    if (s.order && find_order(s.order, tensors, n))
        put_header(&header, &s, metadata, n_metadata);
    else
        header.failed = true;
    if (header.failed)
        status = KN_FAIL(KN_ERR_OOM, "kn_safetensors_save: no memory for the header");
    else
        status = save("kn_safetensors_save", path, write_safetensors, &s);
    kn__text_release(&header);
    free(s.order);
    return status;
}
