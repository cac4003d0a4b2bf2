/* Softmax, losses, pooling to a size. ops20/nll: 32 rows of 1000 classes, from scores. */
#include "cases.h"

static kn_tensor *smoothed(kn_tensor *x, kn_tensor *labels) {
    const kn_cross_entropy_options o = {.smoothing = 0.1, .ignores = 1, .ignore_index = 0};
    return kn_cross_entropy_with(x, labels, &o);
}

static kn_tensor *thirds(kn_tensor *x) {
    return kn_avgpool(x, KN_SHAPE(3, 3),
                      &(kn_pooling_options){.stride = {2, 2}, .padding = {1, 1}});
}

/* clang-format off */
CASE(ops20, nll, kn_cross_entropy(x[0], x[1]), .in = {N(32, 1000), I(0, 1000, 32)}, .both = true)

CASE(ops20, bce,        kn_bce_logits(x[0], x[1], KN_REDUCE_MEAN), .in = {N(1000), W(0, 2, 1000)}, .both = true)
CASE(ops20, logistic,   kn_logistic(x[0], x[1], KN_REDUCE_MEAN),   .in = {N(1000), C(-1, 1, 1000)}, .both = true)
CASE(ops20, softmax,    kn_softmax(x[0], 1),     .in = {N(32, 1000)}, .both = true)
CASE(ops20, logsoftmax, kn_logsoftmax(x[0], 1),  .in = {N(32, 1000)}, .both = true)
CASE(ops20, accuracy,   kn_accuracy(x[0], x[1]), .in = {N(32, 1000), I(0, 1000, 32)}, .both = false)

CASE(nn, mse_1m,         kn_mse(x[0], x[1], KN_REDUCE_MEAN),           .in = {N(1000000), C(-1, 1, 1000000)}, .both = true)
CASE(nn, mae_1m,         kn_mae(x[0], x[1], KN_REDUCE_MEAN),           .in = {N(1000000), C(-1, 1, 1000000)}, .both = true)
CASE(nn, huber_1m,       kn_huber(x[0], x[1], 1, KN_REDUCE_MEAN),      .in = {N(1000000), C(-1, 1, 1000000)}, .both = true)
CASE(nn, smooth_l1_1m,   kn_smooth_l1(x[0], x[1], 1, KN_REDUCE_MEAN),  .in = {N(1000000), C(-1, 1, 1000000)}, .both = true)
CASE(nn, bce_1m,         kn_bce(x[0], x[1], KN_REDUCE_MEAN),           .in = {U(0.01, 0.99, 1000000), C(0, 1, 1000000)}, .both = true)
CASE(nn, bce_logits_1m,  kn_bce_logits(x[0], x[1], KN_REDUCE_MEAN),    .in = {N(1000000), C(0, 1, 1000000)}, .both = true)
CASE(nn, hinge_1m,       kn_hinge(x[0], x[1], 1, KN_REDUCE_MEAN),      .in = {N(1000000), C(-1, 1, 1000000)}, .both = true)
CASE(nn, kl_div_1m,      kn_kl_div(x[0], x[1], false, KN_REDUCE_MEAN), .in = {N(1000000), C(0.01, 1, 1000000)}, .both = true)
CASE(nn, cross_entropy_smoothed, smoothed(x[0], x[1]), .in = {N(1024, 1000), I(0, 1000, 1024)}, .both = true)
CASE(nn, topk_accuracy,  kn_topk_accuracy(x[0], x[1], 5), .in = {N(256, 1000), I(0, 1000, 256)}, .both = false)
CASE(nn, adaptive_avgpool,  kn_adaptive_avgpool(x[0], KN_SHAPE(7, 7)), .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, adaptive_uneven,   kn_adaptive_avgpool(x[0], KN_SHAPE(6, 6)), .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, adaptive_maxpool,  kn_adaptive_maxpool(x[0], KN_SHAPE(7, 7)), .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, adaptive_maxpool_one, kn_adaptive_maxpool(x[0], KN_SHAPE(1, 1)), .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, global_maxpool,    kn_global_maxpool(x[0]),                   .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, avgpool_2x2,       kn_avgpool(x[0], KN_SHAPE(2, 2), NULL),    .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, avgpool_3x3_s2,    thirds(x[0]),                              .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, global_avgpool,    kn_global_avgpool(x[0]),                   .in = {N(32, 512, 7, 7)}, .both = true)
CASE(nn, softmax_axis1,          kn_softmax(x[0], 1),           .in = {N(32, 256, 14, 14)}, .both = true)
CASE(nn, logsoftmax_axis1,       kn_logsoftmax(x[0], 1),        .in = {N(32, 256, 14, 14)}, .both = true)
CASE(nn, cross_entropy_8192x512, kn_cross_entropy(x[0], x[1]),  .in = {N(8192, 512), I(0, 512, 8192)}, .both = true)
CASE(nn, nll_narrow, kn_nll(x[0], x[1]),                         .in = {N(100000, 10), I(0, 10, 100000)}, .both = true)
