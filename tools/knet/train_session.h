/* The inside of knet train. */
#ifndef KN_TRAIN_SESSION_H
#define KN_TRAIN_SESSION_H

#include <knet/progress.h>
#include <knet/train.h>

#include "optimizers.h"
#include "opts.h"
#include "output.h"
#include "stages.h"
#include "train_files.h"

typedef struct kn__train_options {
    kn__common common;
    const char *model[2];
    const char *optimizer, *device, *math, *dtype, *recompute, *data_dir, *checkpoint, *metrics,
        *tensorboard, *curves, *find_rate, *cut, *best;
    int64_t epochs, micro, batch, threads, limit_bytes, save_every, keep, accumulate, patience;
    kn__update update;
    double ema;
    uint64_t seed;
    bool synthetic, quiet, resume, prefetch, scale, augment, sync, shard, capture, carry;
} kn__train_options;

typedef struct kn__train_session {
    kn__train_options options;
    kn_device *device; /* of the data; the first one of stages */
    kn__stages stages;
    kn_pool *pool;
    kn_comm *comm; /* of all ranks; NULL: there is one */
    kn_parallel *parallel;
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_ema *ema;          /* NULL: not wanted */
    kn_loss_scale *scale; /* NULL: not wanted */
    kn_capture *capture;  /* NULL: not wanted */
    kn_loader *train, *test;
    kn__train_files files;
    kn_progress bar;
    int64_t n_steps; /* that the bar shows */
    kn__output report;
    kn_train_result result;
    kn_epoch *epochs; /* the finished ones */
    int64_t n_epochs;
} kn__train_session;

/* From now on a signal sets kn__interrupted, and ranks wait for each other no longer than the
 * signal allows; saves: there is a checkpoint. */
void kn__interrupt_attach(bool saves);
void kn__interrupt_detach(void);
/* In the search of a rate a rank may wait for a whole training of others. */
void kn__interrupt_search(bool begins);
/* Whether no two options write one file. Returns the exit code. */
int kn__train_paths_check(const kn__train_options *options);
/* Adds the result to the report, as text or JSON. message: why the training failed, or NULL. */
void kn__train_report(kn__train_session *s, const char *message);

#endif
