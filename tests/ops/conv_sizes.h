/* What tests of convolution share: sizes, and the three passes by number. */
#ifndef KN_CONV_SIZES_H
#define KN_CONV_SIZES_H

#include "host/conv/conv_route.h"
#include "kernels_test.h"

static const kn__conv_sizes plain_sizes = {.batch = 4,
                                           .groups = 1,
                                           .channels = 32,
                                           .outputs = 32,
                                           .in = {1, 6, 6},
                                           .out = {1, 6, 6},
                                           .window = {1, 3, 3},
                                           .stride = {1, 1, 1},
                                           .padding = {0, 1, 1},
                                           .padding_end = {0, 1, 1},
                                           .dilation = {1, 1, 1},
                                           .in_plane = 36,
                                           .out_plane = 36,
                                           .window_size = 9};

/* Forward, data, weight. */
static inline kn_tensor *conv_pass(int which, kn_tensor *x, kn_tensor *w, kn_tensor *dy,
                                   const kn_attr_conv *attr, int threads) {
    KN_FRAME(.threads = threads);
    if (which == 0) return kn_keep(op_conv_attr(x, w, KN_NONE, attr));
    if (which == 1) return kn_keep(op_conv_data(dy, w, kn_tensor_shape(x), attr));
    return kn_keep(op_conv_weight(x, dy, kn_tensor_shape(w), attr, NULL));
}

/* NMSE of one pass in f32 by a way, against f64. */
static inline double error_of(kn__conv_route way, int which, kn_tensor *const x[3],
                              const kn_attr_conv *attr) {
    kn__conv_prefer(way);
    kn_tensor *got = conv_pass(which, x[0], x[1], x[2], attr, 2);
    kn_tensor *want = conv_pass(which, kn_cast(x[0], KN_F64), kn_cast(x[1], KN_F64),
                                kn_cast(x[2], KN_F64), attr, 2);
    kn__conv_prefer(KN_CONV_TABLED);
    double error = 0, power = 0;
    for (int64_t i = 0; i < kn_tensor_numel(want); i++) {
        double y = ops_at(want, i), d = ops_at(got, i) - y;
        error += d * d, power += y * y;
    }
    return error / power;
}

#endif
