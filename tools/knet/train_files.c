#include "train_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <knet/file.h>
#include <knet/op.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "curves.h"
#include "events.h"
#include "fail.h"
#include "file.h"
#include "mix.h"
#include "output.h"
#include "pipe.h"

void kn__epoch_json(kn__text *out, const kn_epoch *e) {
    kn__text_printf(out, "{\"epoch\":%" PRId64 ",\"loss\":", e->index);
    kn__output_number(out, e->loss);
    kn__text_puts(out, ",\"test_accuracy\":");
    kn__output_number(out, e->accuracy);
    kn__text_puts(out, ",\"test_loss\":");
    kn__output_number(out, e->test_loss);
    kn__text_printf(out, ",\"train_seconds\":%.6f,\"test_seconds\":%.6f}", e->train_seconds,
                    e->test_seconds);
}

kn_status kn__weights_hash(uint64_t *out, kn_params *params) {
    uint64_t hash = KN__FNV_START;
    for (int i = 0; i < kn_params_count(params); i++) {
        kn_tensor *w = kn_params_at(params, i, NULL);
        size_t n = (size_t)kn_tensor_numel(w) * kn_dtype_bytes(kn_tensor_dtype(w));
        unsigned char *bytes = malloc(n);
        if (!bytes) return KN_FAIL(KN_ERR_OOM, "no memory to read %zu bytes of parameters", n);
        kn_status status = kn_copy_out(bytes, n, w);
        if (status == KN_OK) hash = kn__fnv(hash, bytes, n);
        free(bytes);
        KN_TRY(status);
    }
    *out = hash;
    return KN_OK;
}

static void epoch_csv(kn__text *out, const kn_epoch *e) {
    kn__text_printf(out, "%" PRId64 ",%.9g,%.9g,%.9g,%.6f,%.6f", e->index, e->loss, e->accuracy,
                    e->test_loss, e->train_seconds, e->test_seconds);
}

static bool is_csv(const char *path) {
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".csv") == 0;
}

/* *first: the first error of this file. Later ones, often the same in each epoch, say nothing. */
static void note(int *first, const char *path, int error) {
    if (!error || *first) return;
    kn__warn("%s: %s", path, kn__write_error(error));
    *first = error;
}

/* The last byte of a regular file; '\n' if it can't be read; -1: the file is empty or no such one.
 */
static int last_byte(const char *path) {
    unsigned char last = '\n';
    struct stat file;
    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size == 0) return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return last;
    if (pread(fd, &last, 1, file.st_size - 1) != 1) last = '\n';
    close(fd);
    return last;
}

static int line_add(kn__train_files *f, const kn__text *line) {
    if (line->failed) return ENOMEM;
    if (f->pipe.is_open || kn__is_pipe(f->metrics))
        return kn__pipe_add(&f->pipe, f->metrics, line->data, line->length);
    return kn__file_append(f->metrics, line->data, line->length);
}

/* A line that a run can be watched by. */
static void metrics_add(kn__train_files *f, const kn_epoch *epoch) {
    const char *path = f->metrics;
    kn__text line = {0};
    int last = last_byte(path);
    if (last >= 0 && last != '\n') kn__text_puts(&line, "\n"); /* of a run that was killed */
    if (is_csv(path)) {
        if (last < 0 && !f->pipe.is_open)
            kn__text_puts(&line,
                          "epoch,loss,test_accuracy,test_loss,train_seconds,"
                          "test_seconds\n");
        epoch_csv(&line, epoch);
    } else {
        kn__epoch_json(&line, epoch);
    }
    kn__text_puts(&line, "\n");
    note(&f->metrics_error, path, line_add(f, &line));
    kn__text_release(&line);
}

/* The place from which the last epochs of a file are trained again. Other runs may have written
 * epochs too: those of the run that continues are the last ones, one by one, from the last epoch
 * that it saved, which has the loss of the checkpoint. A run that saved none wrote one at most: the
 * last line, with the loss that epoch 1 has again. */
typedef struct metrics_tail {
    int64_t first; /* the epoch to be added */
    int64_t known; /* the epoch whose loss is known: the one before, or epoch 1 itself */
    double loss;
    int64_t last; /* epoch of the line before; -1: no epoch */
    bool is_ours; /* the lines since one with that loss count up from it */
    off_t keep;   /* -1: all */
} metrics_tail;

static void tail_add(metrics_tail *t, const char *line, off_t at) {
    int64_t index = -1;
    double loss = (double)NAN;
    if (sscanf(line, "{\"epoch\":%" SCNd64 ",\"loss\":%lf", &index, &loss) < 1)
        (void)sscanf(line, "%" SCNd64 ",%lf", &index, &loss);
    t->is_ours = index == t->known ? fabs(loss - t->loss) <= 1e-8 * fabs(t->loss)
                                   : t->is_ours && t->first > 1 && index == t->last + 1;
    if (!t->is_ours || index < t->first) t->keep = -1;
    if (t->is_ours && index == t->first) t->keep = at;
    t->last = index;
}

/* Cuts off the epochs of this run from `epoch` on; 0 or an errno. */
static int metrics_cut(const char *path, const kn_epoch *epoch, double saved_loss) {
    metrics_tail tail = {.first = epoch->index, .last = -1, .keep = -1};
    tail.known = tail.first > 1 ? tail.first - 1 : tail.first;
    tail.loss = tail.first > 1 ? saved_loss : epoch->loss;
    struct stat file;
    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) return 0;
    FILE *in = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    off_t at = 0;
    for (ssize_t n; in && (n = getline(&line, &room, in)) >= 0; at += n) tail_add(&tail, line, at);
    free(line);
    bool failed = !in || ferror(in);
    if (in) fclose(in);
    return failed || (tail.keep >= 0 && truncate(path, tail.keep) != 0) ? errno : 0;
}

static void events_add(kn__train_files *f, const kn_epoch *e) {
    const kn__scalar values[] = {{"loss/train", e->loss},
                                 {"loss/test", e->test_loss},
                                 {"accuracy/test", e->accuracy},
                                 {"seconds/train", e->train_seconds}};
    note(&f->events_error, f->tensorboard,
         kn__events_add(f->events, e->index, values, sizeof values / sizeof *values));
}

/* Adds the epoch to those that are drawn; 0 or an errno code. */
static int curves_add(kn__train_files *f, const kn_epoch *epoch) {
    kn_epoch *more = realloc(f->drawn, (size_t)(f->n_drawn + 1) * sizeof *more);
    if (!more) return ENOMEM;
    f->drawn = more;
    f->drawn[f->n_drawn++] = *epoch;
    return 0;
}

static int text_write(const char *path, const kn__text *text) {
    if (text->failed) return ENOMEM;
    return (kn__is_pipe(path) ? kn__pipe_write : kn__file_write)(path, text->data, text->length);
}

/* One that was moved away, or that others wrote since, has no picture that a line could follow. */
static bool is_as_left(const kn__train_files *f) {
    struct stat file;
    return stat(f->curves, &file) == 0 && file.st_dev == f->left.st_dev &&
           file.st_ino == f->left.st_ino && file.st_size == f->left.st_size;
}

/* It has all epochs: a failure of an earlier one doesn't matter any more. */
static void curves_write(kn__train_files *f) {
    kn__text svg = {0};
    kn__curves_svg(&svg, f->title, f->drawn, f->n_drawn);
    int error = text_write(f->curves, &svg);
    note(&f->curves_error, f->curves, error);
    if (!error) f->curves_error = 0;
    if (!error) f->n_written = f->n_drawn;
    if (!error) (void)stat(f->curves, &f->left);
    kn__text_release(&svg);
}

/* What a pipe, a device or a standard stream has taken can't be drawn anew: it gets one picture. */
static bool is_redrawn(const char *path) {
    struct stat file;
    return stat(path, &file) != 0 || (S_ISREG(file.st_mode) && kn__standard_stream(path) < 0);
}

/* Behind the picture, for a run that continues after this one was killed. 0 or an errno. */
static int curves_append(kn__train_files *f, const kn_epoch *epoch) {
    kn__text line = {0};
    kn__curves_note(&line, epoch);
    int error = line.failed ? ENOMEM : kn__file_append(f->curves, line.data, line.length);
    if (!error) (void)stat(f->curves, &f->left);
    kn__text_release(&line);
    return error;
}

/* A picture has all epochs: of a long training not each epoch makes a new one. */
static void curves_draw(kn__train_files *f, const kn_epoch *epoch) {
    enum { GROWTH = 32 };
    note(&f->curves_error, f->curves, curves_add(f, epoch));
    if (!is_redrawn(f->curves)) return;
    if ((f->n_drawn - f->n_written) * GROWTH >= f->n_drawn || !is_as_left(f))
        curves_write(f);
    else
        note(&f->curves_error, f->curves, curves_append(f, epoch));
}

/* Whether the file can be written later; 0 or an errno. A new one is removed again: a training that
 * can't begin leaves none. Pipes and devices are not opened. */
static int file_try(const char *path) {
    struct stat file;
    bool is_new = lstat(path, &file) != 0;
    if (!is_new && stat(path, &file) == 0 && !S_ISREG(file.st_mode))
        return S_ISDIR(file.st_mode) ? EISDIR : access(path, W_OK) == 0 ? 0 : errno;
    int error = kn__file_append(path, "", 0);
    if (!error && is_new) (void)unlink(path);
    return error;
}

kn_status kn__train_files_begin(kn__train_files *f) {
    const char *path = f->metrics;
    int error = path ? file_try(path) : 0;
    if (!error && f->curves) error = file_try(path = f->curves);
    if (!error && f->tensorboard)
        error = kn__events_begin(f->events, sizeof f->events, path = f->tensorboard);
    return error ? KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(error)) : KN_OK;
}

/* Of a run that was killed, or couldn't save, the files may have epochs that are trained again. */
static void files_continue(kn__train_files *f, const kn_epoch *first) {
    if (f->metrics)
        note(&f->metrics_error, f->metrics, metrics_cut(f->metrics, first, f->saved_loss));
    if (f->curves) f->n_drawn = kn__curves_read(&f->drawn, f->curves, first->index);
    f->continues = false;
}

void kn__train_files_add(kn__train_files *f, const kn_epoch *epoch) {
    if (f->continues) files_continue(f, epoch);
    f->has_epochs = true;
    if (f->metrics) metrics_add(f, epoch);
    if (f->tensorboard) events_add(f, epoch);
    if (f->curves) curves_draw(f, epoch);
}

void kn__train_files_release(kn__train_files *f) {
    if (f->tensorboard && !f->has_epochs) (void)unlink(f->events);
    if (f->n_written < f->n_drawn) curves_write(f);
    kn__pipe_close(&f->pipe);
    free(f->drawn);
    f->drawn = NULL;
    f->n_drawn = f->n_written = 0;
}

const char *kn__train_files_lost(const kn__train_files *f, int *error) {
    *error = f->metrics_error  ? f->metrics_error
             : f->events_error ? f->events_error
                               : f->curves_error;
    return f->metrics_error  ? f->metrics
           : f->events_error ? f->tensorboard
           : f->curves_error ? f->curves
                             : NULL;
}

double kn__rate_saved(const char *checkpoint) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    kn_file *f = NULL;
    double rate = 0;
    if (kn_file_open(&f, checkpoint) < 0) return 0; /* whoever loads it names the error */
    int i = kn_file_find(f, "optimizer/hyper");
    bool fits = i >= 0 && kn_file_dtype(f, i) == KN_F64 && kn_file_shape(f, i).n_dims == 1 &&
                kn_file_shape(f, i).dim[0] > 0;
    kn_tensor *hyper = fits ? kn_file_read(f, "optimizer/hyper") : NULL;
    const double *values = hyper ? kn_data(hyper) : NULL;
    if (values) rate = values[0];
    kn_file_close(f);
    return kn_check() == KN_OK && rate > 0 ? rate : 0;
}

bool kn__data_is_other(const char *checkpoint, kn_loader *loader) {
    kn_file *f = NULL;
    uint64_t hash = 0;
    int64_t n = 0;
    if (kn_file_open(&f, checkpoint) < 0) return false;
    const char *data = kn_file_metadata(f, "knet.data"), *text;
    text = kn_file_metadata(f, "knet.data_hash"); /* older ones have none */
    bool is_known = data && text && sscanf(data, "%*u %*u %*d %" SCNd64, &n) == 1 &&
                    n == kn_loader_images(loader) && sscanf(text, "%" SCNx64, &hash) == 1;
    kn_file_close(f);
    return is_known && hash != kn_dataset_hash(kn_loader_dataset(loader));
}

double kn__loss_saved(const char *checkpoint) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    kn_file *f = NULL;
    uint64_t bits = 0;
    double loss = (double)NAN;
    if (kn_file_open(&f, checkpoint) < 0) return loss;
    const char *text = kn_file_metadata(f, "knet.numbers");
    if (text && sscanf(text, "%*u %*u %*u %*u %*u %" SCNu64, &bits) == 1)
        memcpy(&loss, &bits, sizeof loss);
    kn_file_close(f);
    return loss;
}
