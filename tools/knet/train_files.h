/* What knet train writes about its epochs while it runs. */
#ifndef KN_TRAIN_FILES_H
#define KN_TRAIN_FILES_H

#include <knet/param.h>
#include <knet/train.h>
#include <sys/stat.h>

#include "pipe.h"
#include "text.h"

typedef struct kn__train_files {
    const char *metrics, *tensorboard, *curves; /* paths; NULL: not wanted */
    const char *title;                          /* of the curves */
    bool continues;    /* epochs of the files stay, up to the first that is added */
    double saved_loss; /* of the checkpoint's last epoch; NaN: none */
    bool has_epochs;   /* one was added */
    kn__pipe pipe;     /* metrics, where it is one */
    char events[4096]; /* the event file; "" before the training */
    kn_epoch *drawn;   /* [n_drawn]: of the curves; the file has n_written */
    int64_t n_drawn, n_written;
    struct stat left; /* the file of the curves, as this run wrote it last */
    /* An errno of each file that lacks an epoch; 0: it has all. */
    int metrics_error, events_error, curves_error;
} kn__train_files;

/* Before the training: makes the event file, and tries the others. IO with the path. */
kn_status kn__train_files_begin(kn__train_files *files);
/* Writes an epoch. A file that can't be written is a warning: it doesn't end the training. */
void kn__train_files_add(kn__train_files *files, const kn_epoch *epoch);
/* After the training: draws the last epochs, or all of them to a pipe, and removes an event file
 * that has no epoch. Once more it does nothing. */
void kn__train_files_release(kn__train_files *files);
/* Then: returns the path of a file that lacks an epoch, with an errno; NULL: none does. */
const char *kn__train_files_lost(const kn__train_files *files, int *error);
/* Returns the learning rate of a checkpoint; 0 if it has no rate. */
double kn__rate_saved(const char *checkpoint);
/* Whether a checkpoint is of other data than the loader's, though of as many samples. */
bool kn__data_is_other(const char *checkpoint, kn_loader *loader);
/* Returns the training loss of a checkpoint's last finished epoch; NaN if it has none. */
double kn__loss_saved(const char *checkpoint);
void kn__epoch_json(kn__text *out, const kn_epoch *epoch);
/* FNV-1a over the bytes of all parameters: equal exactly when training went the same way. */
kn_status kn__weights_hash(uint64_t *out, kn_params *params);

#endif
