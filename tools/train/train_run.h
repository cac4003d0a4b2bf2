/* The inside of kn_train. */
#ifndef KN_TRAIN_RUN_H
#define KN_TRAIN_RUN_H

#include <knet/train.h>

#include "best.h"

typedef struct kn__train_run {
    const kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
    kn_train_options options;
    kn_train_more more;
    kn_schedule schedule;           /* where more has one */
    kn_train_checkpoint checkpoint; /* path NULL: none */
    kn__best kept;                  /* the file of the best epoch */
    kn_tensor *losses;              /* slot: of the epoch, on the device */
    kn_tensor *carry;               /* slot: kn_model_carry; NULL: nothing is carried */
    double best;                    /* loss of all epochs */
    int64_t n_worse;                /* epochs since then */
    kn_epoch finished;              /* the last one that was */
    double begin;                   /* of the epoch's training, as if it had not been resumed */
    kn_train_result result;
} kn__train_run;

/* Steps of an epoch. */
int64_t kn__train_steps(const kn__train_run *r);
/* Seconds of the epoch's training so far. */
double kn__train_spent(const kn__train_run *r);
/* Writes the files that are due. Afterwards each rank has its own sums and statistics again: a save
 * changes no later result. */
kn_status kn__train_save(kn__train_run *r);
/* Continues from the checkpoint where that is wanted and there is one. *first: the epoch to
 * continue with. */
kn_status kn__train_resume(kn__train_run *r, int64_t *first);

#endif
