/* The file of a run's best epoch. */
#ifndef KN_BEST_H
#define KN_BEST_H

#include <knet/train.h>

typedef struct kn__best {
    const char *path; /* NULL: not wanted */
    int64_t epoch;    /* of the file */
    double loss;      /* of the file; of ranks that don't write it minus infinity */
    bool is_due;      /* the last epoch is better than the file's; the same on all ranks */
} kn__best;

/* Whether the options are possible. INVALID. */
kn_status kn__train_checkpoint_check(const kn_train_checkpoint *checkpoint);
/* path: NULL, or the file, which is tried. A run that continues, after as many steps, takes the
 * loss of the file. INVALID, IO. */
kn_status kn__best_begin(kn__best *best, const char *path, int64_t resumed, kn_parallel *parallel);
/* After an epoch with that loss. */
kn_status kn__best_judge(kn__best *best, int64_t epoch, double loss, kn_parallel *parallel);
/* On the rank that writes. */
kn_status kn__best_write(const kn__best *best, const kn_model *model, kn_loader *train,
                         kn_ema *ema);

#endif
