/* The file of a run's best epoch. */
#ifndef KN_BEST_H
#define KN_BEST_H

#include <knet/train.h>

typedef struct kn__best {
    const char *path; /* NULL: not wanted */
    int64_t epoch;    /* the last one */
    double loss;      /* of it */
    double before;    /* the least loss of the epochs before */
    bool is_due;      /* the last epoch is better than those; the same on all ranks */
} kn__best;

/* Whether the options are possible. INVALID. */
kn_status kn__train_checkpoint_check(const kn_train_checkpoint *checkpoint);
/* path: NULL, or the file, which is tried. least: the least loss of the epochs so far, or infinite;
 * warns if the file lacks that epoch. INVALID, IO. */
kn_status kn__best_begin(kn__best *best, const char *path, double least, kn_parallel *parallel);
/* After an epoch with that loss; least: of those before. */
kn_status kn__best_judge(kn__best *best, int64_t epoch, double loss, double least,
                         kn_parallel *parallel);
/* On the rank that writes. */
kn_status kn__best_write(const kn__best *best, const kn_model *model, kn_loader *train,
                         kn_ema *ema);

#endif
