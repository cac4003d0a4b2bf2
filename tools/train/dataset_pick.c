/* Data sets of other ones' samples, and samples as tensors. */
#include <inttypes.h>
#include <stdlib.h>

#include "dataset.h"
#include "mix.h"

/* --- copies of samples --- */

static int64_t numbers_of(const kn_dataset *d, int64_t i) {
    return d->offset[i + 1] - d->offset[i];
}

static kn_status sequences_pick(kn_dataset *d, const kn_dataset *from, const int64_t index[]) {
    int64_t all = 0, longest = 0;
    for (int64_t i = 0; i < d->n; i++) {
        int64_t n = numbers_of(from, index[i]);
        if (n > longest) longest = n;
        all += n; /* of numbers in memory, several times: can't overflow where malloc succeeds */
    }
    d->x = malloc((size_t)all * d->x_bytes + 1);
    d->offset = malloc((size_t)(d->n + 1) * sizeof *d->offset);
    if (!d->x || !d->offset)
        return KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " sequences", d->n);
    d->x_shape = KN_SHAPE(longest);
    d->offset[0] = 0;
    for (int64_t i = 0; i < d->n; i++) {
        int64_t n = numbers_of(from, index[i]);
        memcpy((char *)d->x + (size_t)d->offset[i] * d->x_bytes,
               (char *)from->x + (size_t)from->offset[index[i]] * d->x_bytes,
               (size_t)n * d->x_bytes);
        d->offset[i + 1] = d->offset[i] + n;
    }
    return KN_OK;
}

static kn_status rows_pick(void **out, const void *from, size_t bytes, const int64_t index[],
                           int64_t n) {
    size_t all;
    char *to = __builtin_mul_overflow((size_t)n, bytes, &all) ? NULL : malloc(all + 1);
    if (!to) return KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " samples", n);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * bytes, (const char *)from + (size_t)index[i] * bytes, bytes);
    *out = to;
    return KN_OK;
}

static kn_status names_copy(kn_dataset *d, const kn_dataset *from) {
    if (from->vocab && !(d->vocab = strdup(from->vocab)))
        return KN_FAIL(KN_ERR_OOM, "no memory for a vocabulary");
    if (!from->class_name) return KN_OK;
    d->class_name = calloc((size_t)d->n_classes + 1, sizeof *d->class_name);
    for (int64_t i = 0; d->class_name && i < d->n_classes; i++)
        if (!(d->class_name[i] = strdup(from->class_name[i])))
            return KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " classes", d->n_classes);
    return d->class_name ? KN_OK
                         : KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " classes", d->n_classes);
}

static kn_status pick(kn_dataset **out, const kn_dataset *from, const int64_t index[], int64_t n) {
    kn_dataset *d = kn__dataset_new();
    if (!d) return KN_ERR_OOM;
    d->n = n;
    d->n_classes = from->n_classes;
    d->x_dtype = from->x_dtype, d->y_dtype = from->y_dtype;
    d->x_shape = from->x_shape, d->y_shape = from->y_shape;
    d->x_bytes = from->x_bytes, d->y_bytes = from->y_bytes;
    d->is_bytes = from->is_bytes;
    kn_status status = names_copy(d, from);
    if (status == KN_OK)
        status = from->offset ? sequences_pick(d, from, index)
                              : rows_pick(&d->x, from->x, d->x_bytes, index, n);
    if (status == KN_OK && from->y) status = rows_pick(&d->y, from->y, d->y_bytes, index, n);
    return kn__dataset_give(out, d, status);
}

kn_status kn_dataset_pick(kn_dataset **out, kn_dataset *from, const int64_t index[], int64_t n) {
    if (!from || !index || n < 1)
        return KN_FAIL(KN_ERR_INVALID, "kn_dataset_pick: %" PRId64 " samples of %s", n,
                       !from    ? "NULL"
                       : !index ? "places that are NULL"
                                : "a set");
    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= from->n)
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_dataset_pick: sample %" PRId64 ", at place %" PRId64
                           ", is not in 0 … %" PRId64,
                           index[i], i, from->n - 1);
    return pick(out, from, index, n);
}

/* Fisher and Yates. */
kn_status kn_dataset_shuffle(kn_dataset **out, kn_dataset *from, uint64_t seed) {
    if (!from) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_shuffle: from is NULL");
    int64_t *index = malloc((size_t)from->n * sizeof *index);
    if (!index) return KN_FAIL(KN_ERR_OOM, "no memory to order %" PRId64 " samples", from->n);
    uint64_t state = kn__mix(seed + KN__GOLDEN);
    for (int64_t i = 0; i < from->n; i++) {
        int64_t j = (int64_t)(kn__splitmix(&state) % (uint64_t)(i + 1));
        index[i] = index[j];
        index[j] = i;
    }
    kn_status status = pick(out, from, index, from->n);
    free(index);
    return status;
}

/* --- other shapes --- */

static int64_t numel_of(const kn_shape *s) {
    int64_t n = s->n_dims >= 0 && s->n_dims < KN_DIMS_MAX ? 1 : -1;
    for (int i = 0; n > 0 && i < s->n_dims; i++)
        if (__builtin_mul_overflow(n, s->dim[i], &n)) n = -1;
    return n;
}

static kn_status shape_check(const char *name, const kn_shape *from, const kn_shape *to,
                             bool is_fixed, const char *why) {
    char a[128], b[128];
    if (!to) return KN_OK;
    if (is_fixed) return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_dataset_reshape: %s has %s", name, why);
    if (to->n_dims < 0 || to->n_dims >= KN_DIMS_MAX)
        return KN_FAIL(
            KN_ERR_SHAPE,
            "kn_dataset_reshape: %s of %d dimensions; at most %d are possible, beside the "
            "batch",
            name, to->n_dims, KN_DIMS_MAX - 1);
    if (numel_of(to) == numel_of(from)) return KN_OK;
    return KN_FAIL(KN_ERR_SHAPE, "kn_dataset_reshape: %s is %s; %s has another number of elements",
                   name, kn_shape_text(a, sizeof a, *from), kn_shape_text(b, sizeof b, *to));
}

kn_status kn_dataset_reshape(kn_dataset **out, kn_dataset *from, const kn_shape *x,
                             const kn_shape *y) {
    if (!from) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_reshape: from is NULL");
    KN_TRY(shape_check("x", &from->x_shape, x, from->offset != NULL, "lengths of its own"));
    KN_TRY(shape_check("y", &from->y_shape, y, !from->y || from->n_classes > 0,
                       from->y ? "the classes of samples" : "no elements"));
    kn_dataset *d = NULL;
    KN_TRY(kn_dataset_take(&d, from, 0, from->n));
    if (x) d->x_shape = *x;
    if (y) d->y_shape = *y;
    *out = d;
    return KN_OK;
}

/* --- as tensors --- */

static kn_shape shape_of_all(int64_t n, kn_shape sample) {
    kn_shape s = {.n_dims = sample.n_dims + 1, .dim = {n}};
    for (int i = 0; i < sample.n_dims; i++) s.dim[i + 1] = sample.dim[i];
    return s;
}

kn_tensor *kn_dataset_x(const kn_dataset *d) {
    if (kn_pending()) return NULL;
    if (!d) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_dataset_x: data is NULL");
    if (d->offset)
        return KN_FAIL_NULL(
            KN_ERR_UNSUPPORTED,
            "kn_dataset_x: sequences have lengths of their own: see kn_loader_next");
    kn_shape shape = shape_of_all(d->n, d->x_shape);
    if (!d->is_bytes) return kn_tensor_from(d->x, d->x_dtype, shape);
    return kn_affine(kn_cast(kn_tensor_from(d->x, KN_U8, shape), KN_F32), 1.0f / 255.0f, 0);
}

kn_tensor *kn_dataset_y(const kn_dataset *d) {
    if (kn_pending()) return NULL;
    if (!d) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_dataset_y: data is NULL");
    return d->y ? kn_tensor_from(d->y, d->y_dtype, shape_of_all(d->n, d->y_shape)) : NULL;
}
