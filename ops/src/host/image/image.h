/* What the inner loops of images are given. */
#ifndef KN_HOST_IMAGE_H
#define KN_HOST_IMAGE_H

#include "grid.h"
#include "resize.h"

/* A resize, with the sources of its planes and rows, and of its columns; weight is of the loop's
 * real type. */
typedef struct kn__resize_work {
    kn__resize r;
    const kn__taps *plane, *row;
    const int32_t *at, *next;
    const void *weight;
    bool doubles; /* along rows: elements 2·i and 2·i + 1 are element i */
} kn__resize_work;

enum { KN_GRID_RUN = 256 }; /* most places that a loop takes at once */

#endif
