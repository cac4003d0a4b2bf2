/* Images in a folder of each class. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "checked.h"
#include "dataset.h"

typedef struct reading {
    kn_dataset *d;
    kn_folder_options o; /* the sizes once they are known */
    int64_t *label;
    int64_t room;
} reading;

static int is_image(const struct dirent *e) {
    const char *end = strrchr(e->d_name, '.');
    return end && e->d_name[0] != '.' &&
           (strcasecmp(end, ".png") == 0 || strcasecmp(end, ".jpg") == 0 ||
            strcasecmp(end, ".jpeg") == 0);
}
static int is_visible(const struct dirent *e) { return e->d_name[0] != '.'; }

static void names_free(struct dirent **names, int n) {
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
}

/* --- one image --- */

/* Bilinear, of a plane; the edges of both images lie on each other. */
static void plane_scale(uint8_t *to, int64_t height, int64_t width, const uint8_t *from,
                        int64_t from_height, int64_t from_width) {
    double sy = (double)from_height / (double)height, sx = (double)from_width / (double)width;
    for (int64_t i = 0; i < height * width; i++) {
        int64_t row = i / width, column = i % width;
        double y = ((double)row + 0.5) * sy - 0.5;
        double x = ((double)column + 0.5) * sx - 0.5;
        if (y < 0) y = 0;
        if (x < 0) x = 0;
        int64_t y0 = (int64_t)y, x0 = (int64_t)x;
        int64_t y1 = y0 + 1 < from_height ? y0 + 1 : y0, x1 = x0 + 1 < from_width ? x0 + 1 : x0;
        double fy = y - (double)y0, fx = x - (double)x0;
        const uint8_t *a = from + y0 * from_width, *b = from + y1 * from_width;
        double above = a[x0] + fx * (a[x1] - a[x0]), below = b[x0] + fx * (b[x1] - b[x0]);
        to[i] = (uint8_t)(above + fy * (below - above) + 0.5);
    }
}

static kn_status image_reserve(reading *r) {
    if (r->d->n < r->room) return KN_OK;
    int64_t room = r->room ? 2 * r->room : 64;
    void *x = realloc(r->d->x, (size_t)room * r->d->x_bytes);
    if (x) r->d->x = x;
    int64_t *label = realloc(r->label, (size_t)room * sizeof *label);
    if (label) r->label = label;
    if (!x || !label) return KN_FAIL(KN_ERR_OOM, "no memory for %" PRId64 " images", room);
    r->room = room;
    return KN_OK;
}

/* The first image decides what the options leave open. */
static void sizes_take(reading *r, const kn__picture *p) {
    if (!r->o.channels) r->o.channels = p->channels;
    if (!r->o.height) r->o.height = p->height;
    if (!r->o.width) r->o.width = p->width;
}

static kn_status picture_add(reading *r, const kn__picture *p, int64_t label) {
    const kn_folder_options *o = &r->o;
    sizes_take(r, p);
    r->d->x_bytes = (size_t)(o->channels * o->height * o->width);
    KN_TRY(image_reserve(r));
    uint8_t *to = (uint8_t *)r->d->x + (size_t)r->d->n * r->d->x_bytes;
    int64_t plane = o->height * o->width;
    for (int64_t c = 0; c < o->channels; c++)
        plane_scale(to + c * plane, o->height, o->width, p->pixels + c * p->height * p->width,
                    p->height, p->width);
    r->label[r->d->n++] = label;
    return KN_OK;
}

static kn_status picture_read(kn__picture *out, const reading *r, const char *path) {
    char *bytes = NULL;
    size_t n_bytes = 0;
    KN_TRY(kn__file_whole(&bytes, &n_bytes, path));
    kn_status status =
        kn__picture_decode(out, (const uint8_t *)bytes, n_bytes, path, (int)r->o.channels);
    free(bytes);
    return status;
}

static kn_status image_read(reading *r, const char *path, int64_t label) {
    kn__picture picture = {.pixels = NULL};
    KN_TRY(picture_read(&picture, r, path));
    kn_status status = KN_OK;
    if (label < 0)
        sizes_take(r, &picture);
    else
        status = picture_add(r, &picture, label);
    free(picture.pixels);
    return status;
}

/* --- folders --- */

static kn_status path_join(char out[PATH_MAX], const char *dir, const char *name) {
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: a path is too long", dir);
}

/* The images of a class; label -1: only the first one, for its size. */
static kn_status class_read(reading *r, const char *dir, int64_t label) {
    struct dirent **names = NULL;
    char path[PATH_MAX];
    kn_status status = KN_OK;
    int n = scandir(dir, &names, is_image, kn__by_name);
    if (n < 0) return KN_FAIL(KN_ERR_IO, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < (label < 0 && n ? 1 : n) && status == KN_OK; i++) {
        status = path_join(path, dir, names[i]->d_name);
        if (status == KN_OK) status = image_read(r, path, label);
    }
    names_free(names, n);
    return status;
}

static kn_status folder_find(bool *is_folder, const char *path) {
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    *is_folder = is_there && S_ISDIR(st.st_mode);
    if (is_there || errno == ENOENT || errno == ENOTDIR) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
}

static bool has_class(const kn_dataset *d, const char *name) {
    for (int64_t i = 0; i < d->n_classes; i++)
        if (strcmp(d->class_name[i], name) == 0) return true;
    return false;
}

/* A folder in dir: a class, whose name is the set's then. With `from` the set has those of that
 * folder already. */
static kn_status class_add(reading *r, const char *dir, const char *name, const char *from) {
    char path[PATH_MAX];
    bool is_folder = false;
    KN_TRY(path_join(path, dir, name));
    KN_TRY(folder_find(&is_folder, path));
    if (!is_folder || (from && has_class(r->d, name))) return KN_OK;
    if (from) return KN_FAIL(KN_ERR_FORMAT, "%s: %s has no class '%s'", path, from, name);
    char *own = strdup(name);
    if (!own) return KN_FAIL(KN_ERR_OOM, "no memory for the classes");
    r->d->class_name[r->d->n_classes++] = own;
    return KN_OK;
}

/* Lists the classes of dir, or checks that they are among those of `from`. */
static kn_status classes_list(reading *r, const char *dir, const char *from) {
    struct dirent **names = NULL;
    kn_status status = KN_OK;
    int n = scandir(dir, &names, is_visible, kn__by_name);
    if (n < 0)
        return KN_FAIL(KN_ERR_IO, "%s: %s; images lie in it as CLASS/IMAGE.png or .jpg", dir,
                       strerror(errno));
    if (!from) r->d->class_name = calloc((size_t)n + 1, sizeof *r->d->class_name);
    if (!r->d->class_name) status = KN_FAIL(KN_ERR_OOM, "no memory for the classes");
    for (int i = 0; i < n && status == KN_OK; i++)
        status = class_add(r, dir, names[i]->d_name, from);
    names_free(names, n);
    return status;
}

static kn_status classes_read(reading *r, const char *dir) {
    char path[PATH_MAX];
    for (int64_t i = 0; i < r->d->n_classes; i++) {
        bool is_folder = false;
        KN_TRY(path_join(path, dir, r->d->class_name[i]));
        KN_TRY(folder_find(&is_folder, path));
        if (is_folder) KN_TRY(class_read(r, path, i));
    }
    if (r->d->n) return KN_OK;
    return KN_FAIL(KN_ERR_FORMAT, "%s: no images; they lie in it as CLASS/IMAGE.png or .jpg", dir);
}

/* The classes and sizes of another folder. */
static kn_status classes_take(reading *r, const char *from) {
    char path[PATH_MAX];
    KN_TRY(classes_list(r, from, NULL));
    for (int64_t i = 0; i < r->d->n_classes && !r->o.width; i++) {
        KN_TRY(path_join(path, from, r->d->class_name[i]));
        KN_TRY(class_read(r, path, -1));
    }
    return KN_OK;
}

static kn_status folder_read(reading *r, const char *dir, const char *from) {
    if (from) KN_TRY(classes_take(r, from));
    KN_TRY(classes_list(r, dir, from));
    KN_TRY(classes_read(r, dir));
    kn_dataset *d = r->d;
    d->x_dtype = KN_F32;
    d->x_shape = KN_SHAPE(r->o.channels, r->o.height, r->o.width);
    d->is_bytes = true;
    return kn__dataset_label(d, r->label, d->n_classes);
}

static kn_status folder_give(kn_dataset **out, reading *r, const char *dir, const char *from) {
    r->d = kn__dataset_new();
    if (!r->d) return KN_ERR_OOM;
    kn_status status = folder_read(r, dir, from);
    free(r->label);
    return kn__dataset_give(out, r->d, status);
}

kn_status kn__folders_read(kn_dataset **out, const char *dir, kn_split split) {
    char path[PATH_MAX], train[PATH_MAX];
    reading r = {.d = NULL};
    bool has_train = false;
    KN_TRY(path_join(train, dir, "train"));
    KN_TRY(path_join(path, dir, split == KN_TEST ? "test" : "train"));
    KN_TRY(folder_find(&has_train, train));
    return folder_give(out, &r, path, split == KN_TEST && has_train ? train : NULL);
}

bool kn__folders_are_there(const char *dir) {
    char train[PATH_MAX], test[PATH_MAX];
    if (path_join(train, dir, "train") < 0 || path_join(test, dir, "test") < 0) return false;
    bool has_train = false, has_test = false;
    if (folder_find(&has_train, train) < 0 || folder_find(&has_test, test) < 0) return false;
    return has_train || has_test;
}

kn_status kn_dataset_read_folder(kn_dataset **out, const char *dir,
                                 const kn_folder_options *options) {
    reading r = {.d = NULL};
    if (!dir) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_folder: dir is NULL");
    if (options) r.o = *options;
    for (int i = 0; i < 4; i++)
        if (r.o.reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_folder_options: reserved is not zero");
    bool fits = r.o.channels == 0 || r.o.channels == 1 || r.o.channels == 3;
    if (!fits || r.o.height < 0 || r.o.width < 0 || r.o.height > KN__PICTURE_SIDE_MAX ||
        r.o.width > KN__PICTURE_SIDE_MAX)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_folder_options: channels %" PRId64 " (0, 1 or 3), %" PRId64 "x%" PRId64
                       " pixels (0 to %d)",
                       r.o.channels, r.o.height, r.o.width, KN__PICTURE_SIDE_MAX);
    return folder_give(out, &r, dir, NULL);
}
