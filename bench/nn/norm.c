/* Normalization. */
#include "cases.h"

static kn_tensor *running(kn_tensor *x, kn_tensor *w, kn_tensor *b, bool training) {
    kn_shape channels = kn_tensor_shape(w);
    return kn_batchnorm(x, kn_zeros(channels), kn_ones(channels), w, b,
                        &(kn_batchnorm_options){.training = training});
}

static kn_tensor *each_activation(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    kn_shape shape = kn_tensor_shape(w);
    return kn_batchnorm(x, kn_zeros(shape), kn_ones(shape), w, b,
                        &(kn_batchnorm_options){.training = 1, .per_activation = 1});
}

/* clang-format off */
CASE(ops20, batchnorm, running(x[0], x[1], x[2], true), .in = {N(32, 256, 14, 14), N(256), N(256)}, .both = true)

CASE(nn, batchnorm_train,    running(x[0], x[1], x[2], true),  .in = {N(32, 64, 56, 56), N(64), N(64)}, .both = true)
CASE(nn, batchnorm_eval,     running(x[0], x[1], x[2], false), .in = {N(32, 64, 56, 56), N(64), N(64)}, .both = true)
CASE(nn, batchnorm_2d,       running(x[0], x[1], x[2], true),  .in = {N(1024, 512), N(512), N(512)}, .both = true)
CASE(nn, batchnorm_activation, each_activation(x[0], x[1], x[2]), .in = {N(128, 64, 14, 14), N(64, 14, 14), N(64, 14, 14)}, .both = true)
CASE(nn, layernorm_8192x512, kn_layernorm(x[0], x[1], x[2], 1, 1e-5), .in = {N(8192, 512), N(512), N(512)}, .both = true)
CASE(nn, layernorm_1024x768, kn_layernorm(x[0], x[1], x[2], 1, 1e-5), .in = {N(1024, 768), N(768), N(768)}, .both = true)
CASE(nn, rmsnorm_8192x512,   kn_rmsnorm(x[0], x[1], 1, 1e-5),         .in = {N(8192, 512), N(512)}, .both = true)
CASE(nn, lrn,                kn_lrn(x[0], 5, 1e-4, 0.75, 1),          .in = {N(32, 64, 28, 28)}, .both = true)
CASE(nn, groupnorm,          kn_groupnorm(x[0], x[1], x[2], 8, 1e-5), .in = {N(32, 64, 28, 28), N(64), N(64)}, .both = true)
CASE(nn, instancenorm,       kn_instancenorm(x[0], x[1], x[2], 1e-5), .in = {N(32, 64, 28, 28), N(64), N(64)}, .both = true)
/* clang-format on */
