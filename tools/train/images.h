/* Labelled images in memory, as bytes: a quarter of what floats would take, and turning a batch
 * into floats costs less than reading those would. */
#ifndef KN_IMAGES_H
#define KN_IMAGES_H

#include <knet/dataset.h>
#include <stdbool.h>

typedef struct kn__images {
    /* n_classes: the largest label, plus one, or what the data set says */
    int64_t n, channels, height, width, n_classes;
    uint8_t *images; /* [n,channels,height,width]; owns */
    uint8_t *labels; /* [n]; owns */
} kn__images;

/* Whether the folder has any file that kn__images_read looks for. */
bool kn__images_are_there(const char *dir);
kn_status kn__images_read(kn__images *out, const char *dir, kn_split split);
/* Ten classes, each a coarse random pattern under noise. The same for the same n and split. */
kn_status kn__images_make(kn__images *out, int64_t n, kn_split split);
void kn__images_release(kn__images *data);

#endif
