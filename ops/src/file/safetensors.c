/* safetensors: the length of a header, the header in JSON, and the data. Its page describes the
 * format: huggingface.co/docs/safetensors. The header's offsets must cover the data exactly. */
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "json_scan.h"

enum { LENGTH_BYTES = 8, HEADER_MAX = 100000000 };

static const struct {
    const char *text;
    kn_dtype dtype; /* 0: we have none */
    uint8_t bytes;
} dtypes[] = {{"F32", KN_F32, 4}, {"F64", KN_F64, 8}, {"F16", KN_F16, 2}, {"BF16", KN_BF16, 2},
              {"I64", KN_I64, 8}, {"I32", KN_I32, 4}, {"U8", KN_U8, 1},   {"BOOL", KN_BOOL, 1},
              {"I8", KN_I32, 1},  {"I16", KN_I32, 2}, {"U16", KN_I32, 2}, {"U32", KN_I64, 4},
              {"U64", KN_I64, 8}, {"F8_E4M3", 0, 1},  {"F8_E5M2", 0, 1},  {"C64", 0, 8}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct reader {
    kn_file *f;
    kn__json_scan j;
} reader;

static kn_status bad(const reader *r, const char *wanted) {
    if (r->j.no_memory) return KN_FAIL(KN_ERR_OOM, "%s: no memory", r->f->path);
    return KN__BAD(r->f, "header: byte %zu: expected %s", (size_t)(r->j.at - r->j.begin), wanted);
}

/* "…, …, …}" with a callback for each key, which it takes. */
typedef kn_status (*pair_fn)(reader *r, void *ctx, char *key);
static kn_status read_object(reader *r, pair_fn pair, void *ctx) {
    if (!kn__json_take(&r->j, '{')) return bad(r, "'{'");
    if (kn__json_take(&r->j, '}')) return KN_OK;
    for (;;) {
        char *key = kn__json_string(&r->j);
        if (!key) return bad(r, "a name in quotes, in UTF-8");
        if (!kn__json_take(&r->j, ':')) {
            free(key);
            return bad(r, "':'");
        }
        KN_TRY(pair(r, ctx, key));
        if (kn__json_take(&r->j, '}')) return KN_OK;
        if (!kn__json_take(&r->j, ',')) return bad(r, "',' or '}'");
    }
}

/* --- one tensor --- */

typedef struct fields {
    char *dtype;
    kn_shape shape; /* if is_deep: the last size is the product of the rest */
    bool is_deep;   /* more sizes than a shape has */
    uint64_t offset[2];
    bool has_shape, has_offsets;
} fields;

/* "[1,2,3]": their count, at most n_max + 1; numbers past n_max are factors of the last one kept,
 * which ends at INT64_MAX. -1: it is no such list. */
static int read_list(reader *r, int64_t *out, int n_max) {
    int n = 0;
    if (!kn__json_take(&r->j, '[')) return -1;
    if (kn__json_take(&r->j, ']')) return 0;
    for (;;) {
        uint64_t value = 0;
        if (!kn__json_number(&r->j, &value) || value > INT64_MAX) return -1;
        int64_t *last = &out[n_max - 1];
        if (n < n_max)
            out[n] = (int64_t)value;
        else if (__builtin_mul_overflow(*last, (int64_t)value, last))
            *last = INT64_MAX;
        n += n <= n_max;
        if (kn__json_take(&r->j, ']')) return n;
        if (!kn__json_take(&r->j, ',')) return -1;
    }
}

static kn_status read_field(reader *r, void *ctx, char *key) {
    fields *t = ctx;
    int which = strcmp(key, "dtype") == 0          ? 0
                : strcmp(key, "shape") == 0        ? 1
                : strcmp(key, "data_offsets") == 0 ? 2
                                                   : 3;
    free(key);
    int64_t offset[2];
    if (which == 0 && !t->dtype) {
        t->dtype = kn__json_string(&r->j);
        return t->dtype ? KN_OK : bad(r, "a dtype in quotes");
    }
    if (which == 1 && !t->has_shape) {
        int n = read_list(r, t->shape.dim, KN_DIMS_MAX);
        t->is_deep = n > KN_DIMS_MAX;
        t->shape.n_dims = t->is_deep ? KN_DIMS_MAX : n;
        t->has_shape = true;
        return n >= 0 ? KN_OK : bad(r, "sizes in brackets");
    }
    if (which == 2 && !t->has_offsets) {
        if (read_list(r, offset, 2) != 2) return bad(r, "two offsets in brackets");
        for (int i = 0; i < 2; i++) t->offset[i] = (uint64_t)offset[i];
        t->has_offsets = true;
        return KN_OK;
    }
    return bad(r, "dtype, shape and data_offsets, each once");
}

static kn_status check_size(const kn_file *f, kn__entry *e, const fields *t, int which) {
    size_t bytes = 0;
    char shape[256] = "[more than 8 sizes]";
    if (!t->is_deep) kn_shape_text(shape, sizeof shape, t->shape);
    if (!kn__file_size(&bytes, t->shape, dtypes[which].bytes))
        return KN__BAD(f, "tensor '%.100s': shape %s is too large", e->name, shape);
    if (bytes != e->size_bytes)
        return KN__BAD(f,
                       "tensor '%.100s': data_offsets [%llu,%llu] hold %zu bytes; %s %s takes %zu",
                       e->name, (unsigned long long)t->offset[0], (unsigned long long)t->offset[1],
                       e->size_bytes, shape, t->dtype, bytes);
    return KN_OK;
}

static kn_status make_entry(reader *r, kn__entry *e, const fields *t) {
    size_t data_at = (size_t)(r->j.end - (const char *)r->f->bytes->at);
    size_t room = r->f->bytes->n - data_at;
    if (!t->dtype || !t->has_shape || !t->has_offsets)
        return KN__BAD(r->f, "tensor '%.100s': %s is missing", e->name,
                       !t->dtype       ? "dtype"
                       : !t->has_shape ? "shape"
                                       : "data_offsets");
    if (t->offset[0] > t->offset[1] || t->offset[1] > room)
        return KN__BAD(r->f, "tensor '%.100s': data_offsets [%llu,%llu] do not lie in %zu bytes",
                       e->name, (unsigned long long)t->offset[0], (unsigned long long)t->offset[1],
                       room);
    e->is_deep = t->is_deep;
    e->shape = t->is_deep ? KN_SCALAR : t->shape;
    e->offset = data_at + t->offset[0];
    e->size_bytes = e->stored_bytes = t->offset[1] - t->offset[0];
    strncpy(e->dtype_text, t->dtype, sizeof e->dtype_text - 1);
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtypes[i].text, t->dtype) != 0) continue;
        e->dtype = t->is_deep ? 0 : dtypes[i].dtype;
        e->element_bytes = dtypes[i].bytes;
        e->is_unsigned = t->dtype[0] == 'U';
        return check_size(r->f, e, t, i);
    }
    return KN_OK; /* its size is not known */
}

/* --- the header --- */

static kn_status read_text(reader *r, void *ctx, char *key) {
    (void)ctx;
    kn_file *f = r->f;
    char *value = kn__json_string(&r->j);
    char *(*more)[2] = realloc(f->metadata, (size_t)(f->n_metadata + 1) * sizeof *more);
    if (more) f->metadata = more;
    if (!value || !more) {
        free(key);
        free(value);
        return value ? KN_FAIL(KN_ERR_OOM, "%s: no memory", f->path) : bad(r, "a text in quotes");
    }
    more[f->n_metadata][0] = key;
    more[f->n_metadata++][1] = value;
    return KN_OK;
}

static kn_status read_tensor(reader *r, void *ctx, char *key) {
    bool *has_metadata = ctx;
    if (strcmp(key, "__metadata__") == 0) {
        free(key);
        if (*has_metadata) return bad(r, "one __metadata__");
        *has_metadata = true;
        return read_object(r, read_text, NULL);
    }
    kn__entry *e = kn__file_add(r->f, key);
    if (!e) return KN_FAIL(KN_ERR_OOM, "%s: no memory", r->f->path);
    fields t = {0};
    kn_status status = read_object(r, read_field, &t);
    if (status == KN_OK) status = make_entry(r, e, &t);
    free(t.dtype);
    return status;
}

static int by_offset(const void *a, const void *b) {
    const kn__entry *x = *(const kn__entry *const *)a, *y = *(const kn__entry *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes); /* empty ones first */
}

/* One after the other from the data's begin to the file's end. */
static kn_status check_cover(const kn_file *f, size_t data_at) {
    const kn__entry **order = malloc((size_t)f->n * sizeof(void *) + 1);
    if (!order) return KN_FAIL(KN_ERR_OOM, "%s: no memory", f->path);
    for (int i = 0; i < f->n; i++) order[i] = &f->entry[i];
    qsort(order, (size_t)f->n, sizeof *order, by_offset);
    size_t at = data_at;
    kn_status status = KN_OK;
    for (int i = 0; i < f->n && status == KN_OK; i++) {
        if (order[i]->offset != at)
            status =
                KN__BAD(f, "tensor '%.100s' begins at %zu, %s at %zu", order[i]->name,
                        order[i]->offset - data_at,
                        order[i]->offset < at ? "inside one that ends" : "after a gap that begins",
                        at - data_at);
        at = order[i]->offset + order[i]->size_bytes;
    }
    free(order);
    if (status == KN_OK && at != f->bytes->n)
        status = KN__BAD(f, "%zu bytes follow the last tensor", f->bytes->n - at);
    return status;
}

kn_status kn__safetensors_open(kn_file *f) {
    uint64_t length = kn__u64(f->bytes->at);
    size_t room = f->bytes->n - LENGTH_BYTES;
    if (length > HEADER_MAX || length > room)
        return KN__BAD(f, "a header of %llu bytes; %zu follow, and the limit is %d",
                       (unsigned long long)length, room, HEADER_MAX);
    const char *text = (const char *)f->bytes->at + LENGTH_BYTES;
    reader r = {f, {.begin = text, .at = text, .end = text + length}};
    bool has_metadata = false;
    KN_TRY(read_object(&r, read_tensor, &has_metadata));
    while (r.j.at < r.j.end && *r.j.at == ' ') r.j.at++;
    if (r.j.at < r.j.end) return bad(&r, "the end or spaces");
    return check_cover(f, LENGTH_BYTES + length);
}
