/* Saving and loading of what a training run consists of. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <knet/checkpoint.h>
#include <knet/op.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "loader.h"
#include "replace.h"
#include "text.h"

enum { NAME_BYTES = 320, KEYS_MAX = 13, LINKS_MAX = 40 };
#define OPTIMIZER "optimizer/"
#define AVERAGE "ema/"
#define VOCAB "knet.vocab"
#define DATA_HASH "knet.data_hash"

/* The tensors of a checkpoint, by the name that they have in files. */
typedef struct list {
    kn_named *at;
    int n, cap;
} list;

static void list_release(list *l) {
    for (int i = 0; i < l->n; i++) free((char *)(uintptr_t)l->at[i].name);
    free(l->at);
}

static kn_status list_add(list *l, const char *prefix, const char *name, kn_tensor *t) {
    KN_TRY(kn_check());
    if (!t) return KN_FAIL(KN_ERR_INVALID, "checkpoint: the tensor '%s%s' is NULL", prefix, name);
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 64;
        kn_named *at = realloc(l->at, (size_t)cap * sizeof *at);
        if (!at) return KN_FAIL(KN_ERR_OOM, "no memory for a list of %d tensors", cap);
        l->at = at;
        l->cap = cap;
    }
    size_t bytes = strlen(prefix) + strlen(name) + 1;
    char *own = malloc(bytes);
    if (!own) return KN_FAIL(KN_ERR_OOM, "no memory for the name %s", name);
    snprintf(own, bytes, "%s%s", prefix, name);
    l->at[l->n++] = (kn_named){own, t};
    return KN_OK;
}

typedef struct state_list {
    list *l;
    kn_status status;
} state_list;

/* Running means and the like, under the name that PyTorch's layers give them. */
static bool layer_add(void *ctx, kn_layer *layer) {
    state_list *s = ctx;
    char full[NAME_BYTES];
    const char *name = NULL;
    for (int i = 0; s->status == KN_OK; i++) {
        kn_tensor *t = kn_layer_state_at(layer, i, &name);
        if (!t) break;
        snprintf(full, sizeof full, "%s.%s", kn_layer_path(layer), name);
        s->status = list_add(s->l, "", full, t);
    }
    return s->status == KN_OK;
}

/* The first backward makes the order final, the first step the state: where steps were skipped, the
 * state is saved as the zeros that the step will begin with. */
static kn_status optimizer_settle(kn_checkpoint *c) {
    bool is_final = false;
    KN_TRY(kn__order_is_final(&is_final, c->params));
    return is_final ? kn_optim_prepare(c->optim) : KN_OK;
}

/* Views of the optimiser's state belong to the caller's frame. */
static kn_status list_fill(list *l, kn_checkpoint *c) {
    const char *name = NULL;
    char state[NAME_BYTES];
    bool swapped = kn_ema_is_swapped(c->ema);
    for (int i = 0; i < kn_params_count(c->params); i++) {
        kn_tensor *w = kn_params_at(c->params, i, &name);
        KN_TRY(list_add(l, "", name, swapped ? kn_ema_at(c->ema, i) : w));
    }
    state_list layers = {l, KN_OK};
    kn_layer *net = c->net ? c->net : c->state;
    if (net && !kn_layer_walk(net, layer_add, &layers)) return layers.status;
    for (int i = 0; c->optim; i++) {
        kn_tensor *t = kn_optim_state_at(c->optim, i, state, sizeof state);
        if (!t) break;
        KN_TRY(list_add(l, OPTIMIZER, state, t));
    }
    for (int i = 0; c->ema && i < kn_params_count(c->params); i++) {
        kn_tensor *w = kn_params_at(c->params, i, &name);
        KN_TRY(list_add(l, AVERAGE, name, swapped ? w : kn_ema_at(c->ema, i)));
    }
    KN_TRY(kn_check());
    for (int i = 0; i < c->n_extra; i++)
        KN_TRY(list_add(l, "", c->extra[i].name, c->extra[i].tensor));
    return KN_OK;
}

/* What the path is, if a checkpoint can't be saved there; NULL: a file, or nothing yet. */
static const char *other_kind(const char *path) {
    struct stat st;
    if (path[strlen(path) - 1] == '/') return "folder";
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return NULL;
    return S_ISDIR(st.st_mode)    ? "folder"
           : S_ISFIFO(st.st_mode) ? "FIFO"
           : S_ISSOCK(st.st_mode) ? "socket"
                                  : "device";
}

static kn_status path_check(const char *path, const char *who) {
    if (strlen(path) > PATH_MAX - 32)
        return KN_FAIL(KN_ERR_INVALID, "%s: the path has %zu bytes; the limit is %d", who,
                       strlen(path), PATH_MAX - 32);
    if (!*path) return KN_FAIL(KN_ERR_INVALID, "%s: the path is empty", who);
    const char *kind = other_kind(path);
    return kind ? KN_FAIL(KN_ERR_INVALID, "%s: %s is a %s, not a file", who, path, kind) : KN_OK;
}

/* Objects of other parameters would save, or load, a state that is not this run's. */
static kn_status sets_check(const kn_checkpoint *c, const char *who) {
    kn_params *of_optim = c->optim ? kn_optim_params(c->optim) : c->params;
    kn_params *of_ema = c->ema ? kn_ema_params(c->ema) : c->params;
    if (of_optim == c->params && of_ema == c->params) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: %s is of another parameter set than params", who,
                   of_optim != c->params ? "optim" : "ema");
}

/* A run that continues from averages is not the one that was saved; and each of several holds what
 * the weights were before its exchange, not what it averaged. */
static kn_status weights_check(const kn_checkpoint *c, const char *who) {
    int expected = kn_ema_is_swapped(c->ema), n = kn_params_swapped(c->params);
    if ((!c->optim && !c->ema) || n == expected) return KN_OK;
    if (c->ema)
        return KN_FAIL(
            KN_ERR_INVALID,
            "%s: the weights are averages, which kn_ema_swap put there: of %d exchanged, "
            "%s is ema: exchange the others again before, the last first",
            who, n, expected ? "one" : "none");
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: the weights are averages, which kn_ema_swap put there: with optim exchange "
                   "them again before, or set their ema",
                   who);
}

static kn_status extra_check(const kn_checkpoint *c, const char *who) {
    if (c->n_extra < 0 || (c->n_extra && !c->extra))
        return KN_FAIL(KN_ERR_INVALID, "%s: extra is %s, n_extra %d", who,
                       c->extra ? "set" : "NULL", c->n_extra);
    for (int i = 0; i < c->n_extra; i++) {
        const char *name = c->extra[i].name;
        if (!name || !c->extra[i].tensor)
            return KN_FAIL(KN_ERR_INVALID, "%s: the %s of extra[%d]%s%s is NULL", who,
                           name ? "tensor" : "name", i, name ? ", " : "", name ? name : "");
    }
    return KN_OK;
}

static kn_status options_check(const kn_checkpoint *c, const char *path, const char *who) {
    KN_TRY(kn_check());
    if (!c || !c->params || !path)
        return KN_FAIL(KN_ERR_INVALID, "%s: %s is NULL", who, path ? "params" : "path");
    if (c->keep_settings > 1)
        return KN_FAIL(KN_ERR_INVALID, "%s: keep_settings is %" PRIu64 "; 0 or 1 are possible", who,
                       c->keep_settings);
    if (c->reserved[0]) return KN_FAIL(KN_ERR_INVALID, "%s: a reserved field is not zero", who);
    KN_TRY(sets_check(c, who));
    KN_TRY(weights_check(c, who));
    KN_TRY(extra_check(c, who));
    return path_check(path, who);
}

/* --- metadata --- */

typedef struct metadata {
    const char *pair[KEYS_MAX][2];
    kn__text text[KEYS_MAX];
    int n;
} metadata;

static kn__text *key_add(metadata *m, const char *key) {
    m->pair[m->n][0] = key;
    return &m->text[m->n++];
}

static void metadata_release(metadata *m) {
    for (int i = 0; i < m->n; i++) kn__text_release(&m->text[i]);
}

static kn_status metadata_fill(metadata *m, kn_checkpoint *c) {
    kn_loader_place place = {0};
    uint64_t seed = 0, offset = 0;
    kn__text_puts(key_add(m, "format"), "pt"); /* what readers of PyTorch's world look for */
    kn__text_puts(key_add(m, "knet.math"), kn_math_mode_name(kn_frame_math()));
    if (c->optim) {
        kn__text_puts(key_add(m, KN__METHOD), kn_optim_name(c->optim));
        KN_TRY(kn__order_put(key_add(m, KN__ORDER), c->params));
        kn__settings_put(key_add(m, "knet.settings"), c->optim);
        kn__groups_put(key_add(m, "knet.groups"), c->optim);
    }
    if (c->ema) kn__decay_put(key_add(m, "knet.decay"), c->ema);
    if (c->net && kn_layer_rng(c->net)) {
        KN_TRY(kn_rng_state_get(&seed, &offset, kn_layer_rng(c->net)));
        kn__text_printf(key_add(m, "knet.random"), "%" PRIu64 " %" PRIu64, seed, offset);
    }
    if (c->train) {
        KN_TRY(kn_loader_place_get(&place, c->train));
        kn__text_printf(key_add(m, "knet.data"),
                        "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64, place.seed,
                        place.offset, place.index, place.n_images, place.batch);
        kn__text_printf(key_add(m, DATA_HASH), "%016" PRIx64, kn_dataset_hash(c->train->data));
    }
    if (c->train && c->train->data->vocab) kn__text_puts(key_add(m, VOCAB), c->train->data->vocab);
    if (c->scale) {
        kn_loss_scale_state scale = kn_loss_scale_state_get(c->scale);
        uint64_t bits;
        memcpy(&bits, &scale.factor, sizeof bits);
        kn__text_printf(key_add(m, "knet.scale"), "%" PRIu64 " %" PRId64 " %" PRId64, bits,
                        scale.n_good, scale.n_skipped);
    }
    kn__text *numbers = key_add(m, "knet.numbers");
    for (int i = 0; i < 8; i++) kn__text_printf(numbers, "%s%" PRIu64, i ? " " : "", c->number[i]);
    for (int i = 0; i < m->n; i++) {
        if (m->text[i].failed) return KN_FAIL(KN_ERR_OOM, "no memory for metadata");
        m->pair[i][1] = m->text[i].data ? m->text[i].data : "";
    }
    return KN_OK;
}

/* --- files --- */

/* The file that the path's links lead to, which may be missing: it is replaced, the links stay. */
static kn_status links_follow(char out[PATH_MAX], const char *path) {
    char link[PATH_MAX];
    snprintf(out, PATH_MAX, "%s", path);
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t n = readlink(out, link, sizeof link - 1);
        if (n < 0) return path_check(out, "kn_checkpoint_save"); /* no link */
        link[n] = '\0';
        const char *slash = *link == '/' ? NULL : strrchr(out, '/');
        size_t folder = slash ? (size_t)(slash - out) + 1 : 0;
        if (folder + (size_t)n >= PATH_MAX) break;
        memcpy(out + folder, link, (size_t)n + 1);
    }
    return KN_FAIL(KN_ERR_IO, "kn_checkpoint_save: %s: %s", path, strerror(ELOOP));
}

kn_status kn__checkpoint_can_save(const char *path) {
    char target[PATH_MAX];
    KN_TRY(path_check(path, "kn_checkpoint_save"));
    KN_TRY(links_follow(target, path));
    return kn__replace_try(target);
}

typedef struct contents {
    const list *list;
    metadata *metadata;
} contents;

static kn_status write_beside(void *ctx, const char *beside) {
    const contents *c = ctx;
    return kn_safetensors_save(beside, c->list->at, c->list->n,
                               (const char *const(*)[2])c->metadata->pair, c->metadata->n);
}

kn_status kn_checkpoint_save(const char *path, kn_checkpoint *c,
                             const kn_checkpoint_options *options) {
    KN_SCOPE("save checkpoint");
    KN_TRY(options_check(c, path, "kn_checkpoint_save"));
    if (options && options->keep < 0)
        return KN_FAIL(KN_ERR_INVALID, "kn_checkpoint_save: keep is %d; it may not be negative",
                       options->keep);
    for (int i = 0; options && i < 4; i++)
        if (options->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_checkpoint_save: a reserved option is not zero");
    char target[PATH_MAX];
    KN_TRY(links_follow(target, path));
    KN_FRAME(.record = KN_OFF);
    list l = {0};
    metadata m = {.n = 0};
    kn_status status = c->optim ? optimizer_settle(c) : KN_OK;
    if (status == KN_OK) status = list_fill(&l, c);
    if (status == KN_OK) status = metadata_fill(&m, c);
    if (status == KN_OK)
        status =
            kn__replace(target, options ? options->keep : 0, write_beside, &(contents){&l, &m});
    metadata_release(&m);
    list_release(&l);
    return status;
}

/* --- loading: first everything is checked --- */

/* The name in the file: torchvision's older files of DenseNet have "denselayer1.norm.1.weight" for
 * "denselayer1.norm1.weight". */
static const char *name_in(char out[NAME_BYTES], kn_file *f, const char *name) {
    const char *layer = strstr(name, "denselayer"), *dot = layer ? strchr(layer, '.') : NULL;
    const char *end = dot ? strchr(dot + 1, '.') : NULL;
    if (kn_file_find(f, name) >= 0 || !end) return name;
    int before = (int)(end - name) - 1; /* a digit ends the layer's name */
    snprintf(out, NAME_BYTES, "%.*s.%s", before, name, name + before);
    return kn_file_find(f, out) >= 0 ? out : name;
}

static bool begins_with(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* A parameter's own name, or that of another tensor, may begin as those of averages do. */
static bool is_average(const char *name, kn_params *params) {
    return begins_with(name, AVERAGE) && kn_params_find(params, name + strlen(AVERAGE)) &&
           !kn_params_find(params, name);
}

static bool has_averages(kn_file *f, kn_params *params) {
    bool has = false;
    for (int i = 0; i < kn_file_count(f) && !has; i++) has = is_average(kn_file_name(f, i), params);
    return has;
}

static kn_status tensor_check(const kn_checkpoint *c, kn_file *f, const char *path,
                              const kn_named *want) {
    char has[128], wants[128], other[NAME_BYTES];
    int i = kn_file_find(f, name_in(other, f, want->name));
    if (i < 0 && is_average(want->name, c->params) && !has_averages(f, c->params))
        return KN_FAIL(KN_ERR_INVALID,
                       "%s has no averages of the weights: it is of a run without them (--ema)",
                       path);
    if (i < 0) return KN_FAIL(KN_ERR_INVALID, "%s has no tensor '%s'", path, want->name);
    kn_shape shape = kn_file_shape(f, i), expected = kn_tensor_shape(want->tensor);
    if (shape.n_dims != expected.n_dims ||
        memcmp(shape.dim, expected.dim, (size_t)shape.n_dims * sizeof shape.dim[0]) != 0)
        return KN_FAIL(KN_ERR_INVALID, "%s: '%s' is %s; the program's is %s", path, want->name,
                       kn_shape_text(has, sizeof has, shape),
                       kn_shape_text(wants, sizeof wants, expected));
    return kn__cast_check(f, i, path, want);
}

/* n numbers of the key's text; false: other text. */
static bool numbers_read(uint64_t out[], int n, const char *text) {
    for (int i = 0; text && i < n; i++) {
        char *end = NULL;
        errno = 0;
        out[i] = strtoull(text, &end, 10);
        if (end == text || errno || (*end && *end != ' ') || text[0] == '-') return false;
        text = end + (*end == ' ');
    }
    return text && !*text;
}

kn_status kn__numbers_get(uint64_t out[], int n, kn_file *f, const char *path, const char *key) {
    const char *text = kn_file_metadata(f, key);
    if (text && numbers_read(out, n, text)) return KN_OK;
    if (text)
        return KN_FAIL(KN_ERR_INVALID, "%s: %s of the metadata is '%.60s'; %d numbers are needed",
                       path, key, text, n);
    return KN_FAIL(KN_ERR_INVALID,
                   "%s has no %s in its metadata, so no such training can continue from it; its "
                   "weights load with params and state alone",
                   path, key);
}

typedef struct state {
    uint64_t random[2], data[5], numbers[8];
    kn_loss_scale_state scale;
} state;

/* Tries the state: the scale refuses one that no scale has. */
static kn_status scale_check(kn_loss_scale *scale, const kn_loss_scale_state *wanted,
                             const char *path) {
    const kn_loss_scale_state now = kn_loss_scale_state_get(scale);
    kn_status status = kn_loss_scale_state_set(scale, wanted);
    if (status == KN_OK) return kn_loss_scale_state_set(scale, &now);
    kn_error why = *kn_last_error();
    return KN_FAIL(status, "%s: knet.scale of the metadata: %s", path, why.message);
}

static kn_status scale_read(state *s, kn_loss_scale *scale, kn_file *f, const char *path) {
    uint64_t numbers[3];
    if (!kn_file_metadata(f, "knet.scale"))
        return KN_FAIL(KN_ERR_INVALID, "%s has no loss scale: it is of a run without one", path);
    KN_TRY(kn__numbers_get(numbers, 3, f, path, "knet.scale"));
    s->scale = (kn_loss_scale_state){0, (int64_t)numbers[1], (int64_t)numbers[2]};
    memcpy(&s->scale.factor, &numbers[0], sizeof s->scale.factor);
    return scale_check(scale, &s->scale, path);
}

/* The data that the run was trained on so far. */
static kn_status data_check(state *s, kn_checkpoint *c, kn_file *f, const char *path) {
    const kn_loader *l = c->train;
    const char *vocab = kn_file_metadata(f, VOCAB), *own = l->data->vocab;
    KN_TRY(kn__numbers_get(s->data, 5, f, path, "knet.data"));
    if (s->data[3] != (uint64_t)l->data->n || s->data[4] != (uint64_t)l->options.batch)
        return KN_FAIL(KN_ERR_INVALID,
                       "%s is of %" PRIu64 " samples in batches of %" PRIu64
                       "; the loader has %" PRId64 " in batches of %" PRId64,
                       path, s->data[3], s->data[4], l->data->n, l->options.batch);
    if (kn__loader_batch_of(l, (int64_t)s->data[2]) < 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "%s is of batch %" PRIu64 " of its epoch; the loader's have %" PRId64
                       " on each of %d ranks",
                       path, s->data[2], l->n_batches, l->options.n_ranks);
    if (s->data[0] != l->options.seed)
        return KN_FAIL(KN_ERR_INVALID, "%s is of seed %" PRIu64 "; the loader's is %" PRIu64, path,
                       s->data[0], l->options.seed);
    if (vocab && own && strcmp(vocab, own) != 0)
        return KN_FAIL(KN_ERR_INVALID, "%s is of a text with another vocabulary", path);
    return KN_OK;
}

/* A run that continues without them would save a file that lacks them. */
static kn_status lost_check(const kn_checkpoint *c, kn_file *f, const char *path) {
    if (!c->ema && has_averages(f, c->params))
        return KN_FAIL(
            KN_ERR_INVALID,
            "%s has averages of the weights, which this run would lose: continue it with "
            "them (--ema)",
            path);
    if (!c->scale && kn_file_metadata(f, "knet.scale"))
        return KN_FAIL(KN_ERR_INVALID,
                       "%s has a loss scale, which this run would lose: continue it with one "
                       "(--loss-scale)",
                       path);
    return KN_OK;
}

static kn_status state_check(state *s, kn_checkpoint *c, kn_file *f, const char *path) {
    if (c->net && kn_layer_rng(c->net))
        KN_TRY(kn__numbers_get(s->random, 2, f, path, "knet.random"));
    if (c->train) KN_TRY(data_check(s, c, f, path));
    if (c->scale) KN_TRY(scale_read(s, c->scale, f, path));
    if (c->optim) KN_TRY(lost_check(c, f, path));
    bool whole = c->optim || c->train;
    if (whole || kn_file_metadata(f, "knet.numbers"))
        KN_TRY(kn__numbers_get(s->numbers, 8, f, path, "knet.numbers"));
    return KN_OK;
}

/* False: the file is of a run before its first backward. */
static bool has_order(const kn_checkpoint *c, kn_file *f) {
    const char *text = kn_file_metadata(f, KN__ORDER);
    return text && *text && kn_params_count(c->params);
}

/* Whether the file has more than the optimiser's "hyper": older versions saved an order without the
 * zeros of the state, where all steps so far were skipped. */
static bool has_state(kn_file *f) {
    bool has = false;
    for (int i = 0; i < kn_file_count(f); i++) {
        const char *name = kn_file_name(f, i);
        has |= begins_with(name, OPTIMIZER) && strcmp(name, OPTIMIZER "hyper") != 0;
    }
    return has;
}

/* Adds what the optimiser's state will be, to be checked: its order is final once it is made. */
static kn_status optimizer_plan(list *l, kn_checkpoint *c, kn_file *f, const char *path) {
    const char *method = kn_file_metadata(f, KN__METHOD), *name = kn_optim_name(c->optim);
    char part[NAME_BYTES];
    if (!method)
        return KN_FAIL(KN_ERR_INVALID, "%s has the state of no optimiser; the optimiser is %s",
                       path, name);
    if (strcmp(method, name) != 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "%s has the state of %s; the optimiser is %s: resume with the optimiser of "
                       "the first run (--optimizer)",
                       path, method, name);
    KN_TRY(kn__settings_check(c, f, path));
    bool whole = has_order(c, f) && has_state(f);
    for (int i = 0; i == 0 || whole; i++) {
        kn_tensor *t = kn_optim_state_like(c->optim, i, part, sizeof part);
        if (!t) return kn_check();
        KN_TRY(list_add(l, OPTIMIZER, part, t));
    }
    return KN_OK;
}

/* The order of the gradients comes first: the optimiser's state lies in the same one. */
static kn_status optimizer_ready(kn_checkpoint *c, kn_file *f, const char *path) {
    if (!has_order(c, f)) return KN_OK;
    KN_TRY(kn__order_load(c->params, f, path));
    return has_state(f) ? kn_optim_prepare(c->optim) : KN_OK;
}

static kn_status tensor_load(kn_file *f, const kn_named *to) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    char other[NAME_BYTES];
    kn_tensor *from = kn_file_read(f, name_in(other, f, to->name));
    if (from) from = kn_cast(from, kn_tensor_dtype(to->tensor));
    const void *data = from ? kn_data(from) : NULL;
    if (!data) return kn_check();
    return kn_copy_into(to->tensor, data,
                        (size_t)kn_tensor_numel(from) * kn_dtype_bytes(kn_tensor_dtype(from)));
}

static kn_status apply(kn_checkpoint *c, kn_file *f, const list *l, const state *s) {
    for (int i = 0; i < l->n; i++) KN_TRY(tensor_load(f, &l->at[i]));
    if (c->optim) kn_optim_state_written(c->optim);
    if (c->optim) KN_TRY(kn__groups_restore(c, f));
    if (c->net && kn_layer_rng(c->net))
        KN_TRY(kn_rng_state_set(kn_layer_rng(c->net), s->random[0], s->random[1]));
    if (c->train)
        KN_TRY(kn_loader_place_set(c->train, &(kn_loader_place){.seed = s->data[0],
                                                                .offset = s->data[1],
                                                                .index = (int64_t)s->data[2],
                                                                .n_images = (int64_t)s->data[3],
                                                                .batch = (int64_t)s->data[4]}));
    memcpy(c->number, s->numbers, sizeof c->number);
    return c->scale ? kn_loss_scale_state_set(c->scale, &s->scale) : KN_OK;
}

static kn_status partial_check(const kn_checkpoint *c) {
    bool is_alone = !c->optim && !c->ema;
    if (c->partial == 0 || (c->partial == 1 && is_alone)) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_checkpoint_load: partial is %d%s", c->partial,
                   c->partial == 1 ? ": it is for weights alone, without optim and ema"
                                   : "; 0 or 1 are possible");
}

/* Takes out what the file lacks. A file of other names altogether is a mistake. */
static kn_status lacking_drop(list *l, kn_checkpoint *c, kn_file *f, const char *path) {
    char other[NAME_BYTES];
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        kn_named found = l->at[i];
        if (kn_file_find(f, name_in(other, f, found.name)) < 0) continue;
        l->at[i] = l->at[n];
        l->at[n++] = found;
    }
    if (l->n && n == 0)
        return KN_FAIL(KN_ERR_INVALID, "%s has none of the program's %d tensors, such as '%s'",
                       path, l->n, l->at[0].name);
    c->n_lacking = l->n - n;
    while (l->n > n) free((char *)(uintptr_t)l->at[--l->n].name);
    return KN_OK;
}

static kn_status list_check(const kn_checkpoint *c, kn_file *f, const char *path, const list *l) {
    for (int i = 0; i < l->n; i++) KN_TRY(tensor_check(c, f, path, &l->at[i]));
    return KN_OK;
}

/* The optimiser's state is made, and listed, once all else fits. */
static kn_status load(kn_checkpoint *c, kn_file *f, const char *path, list *l) {
    state s = {.random = {0}};
    kn_checkpoint without = *c;
    without.optim = NULL;
    KN_TRY(partial_check(c));
    KN_TRY(list_fill(l, &without));
    c->n_lacking = 0;
    if (c->partial) KN_TRY(lacking_drop(l, c, f, path));
    KN_TRY(list_check(c, f, path, l));
    KN_TRY(state_check(&s, c, f, path));
    if (!c->optim) return apply(c, f, l, &s);
    KN_TRY(optimizer_plan(l, c, f, path));
    KN_TRY(list_check(c, f, path, l));
    KN_TRY(optimizer_ready(c, f, path));
    list_release(l);
    *l = (list){0};
    KN_TRY(list_fill(l, c));
    KN_TRY(list_check(c, f, path, l));
    return apply(c, f, l, &s);
}

kn_status kn_checkpoint_load(kn_checkpoint *c, const char *path) {
    KN_SCOPE("load checkpoint");
    KN_TRY(options_check(c, path, "kn_checkpoint_load"));
    KN_FRAME(.record = KN_OFF);
    kn_file *f = NULL;
    list l = {0};
    KN_TRY(kn_file_open(&f, path));
    kn_status status = load(c, f, path, &l);
    list_release(&l);
    kn_file_close(f);
    return status;
}
