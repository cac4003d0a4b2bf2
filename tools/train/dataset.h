/* Labelled images in memory, as bytes: a quarter of what floats would take, and turning a batch
 * into floats costs less than reading those would. */
#ifndef KN_DATASET_H
#define KN_DATASET_H

#include <knet/data.h>

typedef struct kn__dataset {
    int64_t n, height, width, n_classes; /* n_classes: the largest label, plus one */
    uint8_t *images;                     /* [n,height,width]; owns */
    uint8_t *labels;                     /* [n]; owns */
} kn__dataset;

kn_status kn__dataset_read(kn__dataset *out, const char *dir, kn_split split);
/* Ten classes, each a coarse random pattern under noise. The same for the same n and split. */
kn_status kn__dataset_make(kn__dataset *out, int64_t n, kn_split split);
void kn__dataset_release(kn__dataset *data);

#endif
