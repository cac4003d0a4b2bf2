/* From the calls of ops of images to what both devices' kernels are given. */
#ifndef KN_IMAGE_CALL_H
#define KN_IMAGE_CALL_H

#include <knet/op.h>

#include "grid.h"
#include "resize.h"

static inline kn__resize kn__resize_of(const kn_attr_resize *attr) {
    kn__resize r = {.mode = attr->mode, .is_linear = attr->mode >= KN_RESIZE_LINEAR};
    for (int d = 0; d < 3; d++) {
        int s = d - (3 - attr->n_spatial);
        r.in[d] = s < 0 ? 1 : attr->in[s];
        r.out[d] = s < 0 ? 1 : attr->out[s];
        r.ratio[d] = s < 0 ? 0 : attr->ratio[s];
    }
    return r;
}

static inline kn__grid kn__grid_of(const kn_attr_grid *attr, const kn_tensor *x,
                                   const kn_tensor *grid) {
    kn__grid g = {.batch = x->dim[0],
                  .channels = x->dim[1],
                  .in = {x->dim[2], x->dim[3]},
                  .places = grid->dim[1] * grid->dim[2],
                  .nearest = attr->nearest,
                  .border = attr->border,
                  .align = attr->align};
    return g;
}

#endif
