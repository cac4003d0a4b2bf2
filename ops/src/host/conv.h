/* The geometry of convolution, shared by its kernels and their inner loops. */
#ifndef KN_CONV_H
#define KN_CONV_H

#include <stdbool.h>
#include <stdint.h>

/* Spatial dimensions padded on the left to three. */
typedef struct kn_conv_sizes {
    int64_t batch, groups;
    int64_t channels, outputs; /* of one group */
    int64_t in[3], out[3], window[3], stride[3], padding[3], dilation[3];
    int64_t in_plane, out_plane, window_size; /* elements */
    bool flip;
} kn_conv_sizes;

/* Rows of the result: pairs (depth, height); each is out[2] elements long. */
static inline int64_t kn__conv_rows(const kn_conv_sizes *s) { return s->out[0] * s->out[1]; }

#endif
