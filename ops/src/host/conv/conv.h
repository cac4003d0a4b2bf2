/* The geometry of convolution, shared by its kernels and their inner loops. */
#ifndef KN_CONV_H
#define KN_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"

typedef enum kn__conv_pass { KN_PASS_FORWARD, KN_PASS_DATA, KN_PASS_WEIGHT } kn__conv_pass;

/* Spatial dimensions padded on the left to three. */
typedef struct kn__conv_sizes {
    int64_t batch, groups;
    int64_t channels, outputs; /* of one group */
    int64_t in[3], out[3], window[3], stride[3], padding[3], dilation[3];
    int64_t padding_end[3];                   /* behind the last element */
    int64_t in_plane, out_plane, window_size; /* elements */
    bool flip;
} kn__conv_sizes;

/* A product whose right side lies scattered in planes: to[row_at[i] + to[g] + lane] = (or +=) the
 * sum over l of packed[l][i] · from[offset[l] + from_at[g] + lane], for groups g of as many
 * neighbouring positions as 32 bytes hold. The last group of a row may overlap the one before it.
 */
typedef struct kn__direct {
    int64_t n_rows, n_steps, n_groups;
    const int64_t *row_at, *offset, *from_at, *to_at; /* elements */
    bool accumulate;
} kn__direct;

/* What conv_act does to the result of a convolution, piece by piece; nothing for other ops. */
typedef struct kn__conv_epilogue {
    kn_dtype dtype;
    kn_act act;
    const char *residual; /* NULL: none */
    char *y;
} kn__conv_epilogue;
kn__conv_epilogue kn__conv_finish_of(const kn_op_call *call);
/* Of n elements of y, from one on. */
void kn__conv_finish(const kn__conv_epilogue *f, int64_t first, int64_t n);
/* Of all. */
void kn__conv_finish_all(const kn__conv_epilogue *f, const kn_op_call *call);

/* Rows of the result: pairs (depth, height); each is out[2] elements long. */
static inline int64_t kn__conv_rows(const kn__conv_sizes *s) { return s->out[0] * s->out[1]; }

#endif
