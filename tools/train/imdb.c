/* Texts as numbers: films' reviews, and texts whose next word is to be predicted. */
#include <errno.h>
#include <inttypes.h>
#include <knet/file.h>
#include <knet/op.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checked.h"
#include "dataset.h"

/* --- a text --- */

static kn_status text_cut(kn_dataset *d, int64_t *index, int64_t n_index, int64_t length,
                          const char *path) {
    d->n = (n_index - 1) / length;
    if (d->n < 1)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: %" PRId64 " words or characters; samples of %" PRId64 " take one more",
                       path, n_index, length);
    size_t bytes = (size_t)(d->n * length) * sizeof *index;
    d->x_dtype = d->y_dtype = KN_I64;
    d->x_shape = d->y_shape = KN_SHAPE(length);
    d->x_bytes = d->y_bytes = (size_t)length * sizeof *index;
    d->y = malloc(bytes);
    d->x = malloc(bytes);
    if (!d->x || !d->y) return KN_FAIL(KN_ERR_OOM, "%s: no memory for its numbers", path);
    memcpy(d->x, index, bytes);
    memcpy(d->y, index + 1, bytes);
    return KN_OK;
}

static kn_status text_take(kn_dataset **out, kn_vocab *vocab, const char *text, size_t n_bytes,
                           int64_t length, const char *path) {
    int64_t *index = NULL, n = 0;
    KN_TRY(kn_vocab_encode(&index, &n, vocab, text, n_bytes));
    kn_dataset *d = kn__dataset_new();
    kn_status status = d ? text_cut(d, index, n, length, path) : KN_ERR_OOM;
    free(index);
    if (status == KN_OK && !(d->vocab = kn_vocab_text(vocab))) status = kn_check();
    return kn__dataset_give(out, d, status);
}

kn_status kn_dataset_read_text(kn_dataset **out, kn_vocab **vocab, const char *path, int64_t length,
                               const kn_vocab_options *options) {
    char *text = NULL;
    size_t n_bytes = 0;
    if (!vocab) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_text: vocab is NULL");
    if (length < 1)
        return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_text: length %" PRId64 " must be 1 or more",
                       length);
    if (!path) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_text: path is NULL");
    KN_TRY(kn__file_whole(&text, &n_bytes, path));
    size_t mark = kn__mark_bytes(text, n_bytes), n = n_bytes - mark;
    kn_vocab *made = NULL;
    kn_status status = kn__text_check(text, n_bytes, path);
    if (status == KN_OK && !*vocab) status = kn_vocab_create(&made, text + mark, n, options);
    if (status == KN_OK)
        status = text_take(out, *vocab ? *vocab : made, text + mark, n, length, path);
    if (status == KN_OK && made)
        *vocab = made;
    else
        kn_vocab_destroy(made);
    free(text);
    return status;
}

/* --- reviews as lists --- */

enum { UNKNOWN_KERAS = 2, UNKNOWN_VOCAB = 1 };

/* Cuts long reviews to their last words, and replaces words beyond the most frequent ones. */
static void reviews_cut(kn__lists *l, const kn_imdb_options *o, int64_t unknown) {
    int64_t to = 0;
    for (int64_t i = 0, from = 0; i < l->n; i++) {
        int64_t end = l->offset[i + 1];
        if (o->length && end - from > o->length) from = end - o->length;
        for (; from < end; from++, to++)
            l->value[to] = o->words && l->value[from] >= o->words ? unknown : l->value[from];
        l->offset[i + 1] = to;
    }
}

static kn_status reviews_give(kn_dataset **out, kn__lists *l, const int64_t *labels,
                              const kn_imdb_options *o, int64_t unknown) {
    reviews_cut(l, o, unknown);
    return kn_dataset_create_sequences(out, l->value, l->offset, l->n, labels);
}

/* --- Keras's file --- */

/* Its words get 3 added, after a start. */
static kn_status keras_words(kn__lists *to, const kn__lists *from, const char *path) {
    to->n = from->n;
    to->offset = malloc((size_t)(from->n + 1) * sizeof *to->offset);
    to->value = malloc((size_t)(from->offset[from->n] + from->n + 1) * sizeof *to->value);
    if (!to->offset || !to->value) return KN_FAIL(KN_ERR_OOM, "%s: no memory", path);
    int64_t at = 0;
    for (int64_t i = 0; i < from->n; i++) {
        to->offset[i] = at;
        to->value[at++] = 1;
        for (int64_t k = from->offset[i]; k < from->offset[i + 1]; k++) {
            if (from->value[k] < 0 || from->value[k] > INT32_MAX)
                return KN_FAIL(KN_ERR_FORMAT, "%s: review %" PRId64 " has a word %" PRId64, path, i,
                               from->value[k]);
            to->value[at++] = from->value[k] + 3;
        }
    }
    to->offset[from->n] = at;
    return KN_OK;
}

/* *label [n] of y [n] or [n,1], numbers of any type. */
static kn_status labels_take(const int64_t **label, kn_tensor *y, int64_t n, const char *path) {
    kn_shape shape = kn_tensor_shape(y);
    int64_t n_labels = kn_tensor_numel(y);
    char text[128];
    if (shape.n_dims == 1 && n_labels != n)
        return KN_FAIL(KN_ERR_FORMAT, "%s: %" PRId64 " reviews, %" PRId64 " labels", path, n,
                       n_labels);
    if (n_labels != n || shape.n_dims < 1 || shape.dim[0] != n)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: %" PRId64 " reviews, but labels %s; expected [%" PRId64 "]", path, n,
                       kn_shape_text(text, sizeof text, shape), n);
    const double *value = kn_data(kn_cast(y, KN_F64)); /* as it is: 0.5 and NaN are no classes */
    *label = kn_data(kn_cast(y, KN_I64));
    KN_TRY(kn_check());
    for (int64_t i = 0; i < n; i++)
        if (value[i] != 0 && value[i] != 1)
            return KN_FAIL(KN_ERR_FORMAT, "%s: label %g of review %" PRId64 "; it must be 0 or 1",
                           path, value[i], i);
    return KN_OK;
}

static kn_status keras_give(kn_dataset **out, const kn__lists *read, kn_tensor *y,
                            const kn_imdb_options *o, const char *path) {
    kn__lists words = {0};
    const int64_t *label = NULL;
    KN_TRY(labels_take(&label, y, read->n, path));
    kn_status status = keras_words(&words, read, path);
    if (status == KN_OK) status = reviews_give(out, &words, label, o, UNKNOWN_KERAS);
    kn__lists_release(&words);
    return status;
}

static kn_status keras_read(kn_dataset **out, kn_file *f, const char *path, kn_split split,
                            const kn_imdb_options *o) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    const char *x_name = split == KN_TEST ? "x_test" : "x_train";
    kn_tensor *x = kn_file_read_bytes(f, x_name);
    kn_tensor *y = x ? kn_file_read(f, split == KN_TEST ? "y_test" : "y_train") : NULL;
    kn_status status = kn_check();
    if (status < 0) return kn__dataset_read_failed(status, path); /* another file's arrays */
    kn__lists lists = {0};
    KN_TRY(kn__lists_read(&lists, kn_data(x), (size_t)kn_tensor_numel(x), path));
    status = keras_give(out, &lists, y, o, path);
    kn__lists_release(&lists);
    return status;
}

/* --- the raw folders --- */

typedef struct reviews {
    kn__lists lists;
    int64_t *label;
    int64_t room, value_room;
    kn_vocab *vocab; /* NULL: the texts are collected */
    char *text;      /* of all, each with a newline */
    size_t n_text, text_room;
} reviews;

static int is_text(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".txt") == 0;
}

static kn_status text_collect(reviews *r, const char *text, size_t n) {
    if (r->n_text + n + 1 > r->text_room) {
        size_t room = 2 * (r->n_text + n + 1);
        char *more = realloc(r->text, room);
        if (!more) return KN_FAIL(KN_ERR_OOM, "no memory for %zu bytes of reviews", room);
        r->text = more;
        r->text_room = room;
    }
    memcpy(r->text + r->n_text, text, n);
    r->n_text += n;
    r->text[r->n_text++] = '\n';
    return KN_OK;
}

static kn_status review_add(reviews *r, const char *text, size_t n_bytes, int64_t label) {
    int64_t *index = NULL, n = 0;
    if (!r->vocab) return text_collect(r, text, n_bytes);
    kn__lists *l = &r->lists;
    KN_TRY(kn_vocab_encode(&index, &n, r->vocab, text, n_bytes));
    int64_t at = l->n ? l->offset[l->n] : 0;
    if (l->n + 1 >= r->room) {
        r->room = 2 * r->room + 64;
        int64_t *offset = realloc(l->offset, (size_t)r->room * sizeof *offset);
        if (offset) l->offset = offset;
        int64_t *labels = realloc(r->label, (size_t)r->room * sizeof *labels);
        if (labels) r->label = labels;
        if (!offset || !labels) r->room = 0;
    }
    if (r->room && at + n > r->value_room) {
        r->value_room = 2 * (at + n);
        int64_t *value = realloc(l->value, (size_t)r->value_room * sizeof *value);
        if (value) l->value = value;
        if (!value) r->room = 0;
    }
    if (r->room) {
        if (n) memcpy(l->value + at, index, (size_t)n * sizeof *index);
        r->label[l->n] = label;
        l->offset[0] = 0;
        l->offset[++l->n] = at + n;
    }
    free(index);
    return r->room ? KN_OK : KN_FAIL(KN_ERR_OOM, "no memory for the reviews");
}

static kn_status folder_read(reviews *r, const char *dir, int64_t label) {
    struct dirent **files = NULL;
    char path[PATH_MAX + NAME_MAX + 1]; /* what the compiler can prove to suffice */
    int n = scandir(dir, &files, is_text, kn__by_name);
    if (n < 0) return KN_FAIL(KN_ERR_IO, "%s: %s", dir, strerror(errno));
    kn_status status = n ? KN_OK : KN_FAIL(KN_ERR_FORMAT, "%s: no .txt files", dir);
    for (int i = 0; i < n; i++) {
        char *text = NULL;
        size_t n_bytes = 0;
        bool fits = snprintf(path, sizeof path, "%s/%s", dir, files[i]->d_name) < PATH_MAX;
        free(files[i]);
        if (status < 0) continue;
        status = fits ? kn__file_whole(&text, &n_bytes, path)
                      : KN_FAIL(KN_ERR_INVALID, "%s: a path is too long", dir);
        if (status == KN_OK) status = kn__text_check(text, n_bytes, path);
        size_t mark = status == KN_OK ? kn__mark_bytes(text, n_bytes) : 0;
        if (status == KN_OK) status = review_add(r, text + mark, n_bytes - mark, label);
        free(text);
    }
    free(files);
    return status;
}

static kn_status split_read(reviews *r, const char *dir, const char *split) {
    static const char *const names[] = {"neg", "pos"};
    char path[PATH_MAX];
    for (int label = 0; label < 2; label++) {
        if (snprintf(path, sizeof path, "%s/%s/%s", dir, split, names[label]) >= PATH_MAX)
            return KN_FAIL(KN_ERR_INVALID, "%s: the path is too long", dir);
        KN_TRY(folder_read(r, path, label));
    }
    return KN_OK;
}

/* *made: of the training reviews. */
static kn_status vocab_make(kn_vocab **made, const char *dir, const kn_imdb_options *o) {
    reviews all = {.vocab = NULL};
    kn_status status = split_read(&all, dir, "train");
    if (status == KN_OK)
        status = kn_vocab_create(made, all.text, all.n_text,
                                 &(kn_vocab_options){.unit = KN_WORDS, .size = o->words});
    free(all.text);
    return status;
}

static kn_status raw_read(kn_dataset **out, const char *dir, kn_split split,
                          const kn_imdb_options *o) {
    kn_vocab *made = NULL;
    reviews r = {.vocab = o->vocab ? *o->vocab : NULL};
    kn_status status = r.vocab ? KN_OK : vocab_make(&made, dir, o);
    if (!r.vocab) r.vocab = made;
    if (status == KN_OK) status = split_read(&r, dir, split == KN_TEST ? "test" : "train");
    if (status == KN_OK) status = reviews_give(out, &r.lists, r.label, o, UNKNOWN_VOCAB);
    if (status == KN_OK && o->vocab && !*o->vocab)
        *o->vocab = made;
    else
        kn_vocab_destroy(made);
    kn__lists_release(&r.lists);
    free(r.label);
    return status;
}

static kn_status read_either(kn_dataset **out, const char *path, kn_split split,
                             const kn_imdb_options *o) {
    struct stat st;
    kn_file *f = NULL;
    if (stat(path, &st) != 0) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return raw_read(out, path, split, o);
    KN_TRY(kn_file_open(&f, path));
    kn_status status = keras_read(out, f, path, split, o);
    kn_file_close(f);
    return status;
}

kn_status kn_dataset_read_imdb(kn_dataset **out, const char *path, kn_split split,
                               const kn_imdb_options *options) {
    kn_imdb_options o = options ? *options : (kn_imdb_options){0};
    if (!path) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_imdb: path is NULL");
    for (int i = 0; i < 4; i++)
        if (o.reserved[i]) return KN_FAIL(KN_ERR_INVALID, "kn_imdb_options: reserved is not zero");
    if (o.words < 0 || o.length < 0 || (o.words && o.words < 3))
        return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_imdb: words %" PRId64 ", length %" PRId64,
                       o.words, o.length);
    return kn__dataset_where(read_either(out, path, split, &o), KN__FROM_IMDB);
}
