/* What knet train writes about its epochs while it runs. */
#ifndef KN_TRAIN_FILES_H
#define KN_TRAIN_FILES_H

#include <knet/param.h>
#include <knet/train.h>

#include "text.h"

typedef struct kn__train_files {
    const char *metrics, *tensorboard, *curves; /* paths; NULL: not wanted */
    const char *title;                          /* of the curves */
    char events[4096];                          /* the event file; "" before the first epoch */
} kn__train_files;

/* Writes the last of n epochs. A file that can't be written is a warning: it doesn't end the
 * training. */
void kn__train_files_add(kn__train_files *files, const kn_epoch epochs[], int64_t n);
void kn__epoch_json(kn__text *out, const kn_epoch *epoch);
/* FNV-1a over the bytes of all parameters: equal exactly when training went the same way. */
kn_status kn__weights_hash(uint64_t *out, kn_params *params);

#endif
