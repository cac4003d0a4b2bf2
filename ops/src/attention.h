/* What both devices' attention kernels share. */
#ifndef KN_ATTENTION_H
#define KN_ATTENTION_H

#include "kernel.h"

/* Elements between neighbours of the mask along the scores' [batch, heads, queries, keys]; 0 along
 * axes that it lacks, or has once. */
static inline void kn__mask_strides(int64_t stride[4], const kn_tensor *mask) {
    int64_t step = 1;
    for (int i = 0; i < 4; i++) {
        int64_t n = i < mask->n_dims ? mask->dim[mask->n_dims - 1 - i] : 1;
        stride[3 - i] = n == 1 ? 0 : step;
        step *= n;
    }
}

/* Dropout: the weight of row r = (b·H + h)·T + t and key s is element r·kn__dropout_row(S) + s of
 * philox.h's map, so that each row begins with a counter. */
static inline int64_t kn__dropout_row(int64_t keys) { return (keys + 31) / 32 * 32; }

#endif
