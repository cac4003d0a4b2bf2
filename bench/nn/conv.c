/* Convolutions of the record's nets, and their rate beside this run's own product. */
#include "conv.h"

#include <knet/op.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "cases.h"

static kn_tensor *same(kn_tensor *x, kn_tensor *w, int64_t groups) {
    int64_t p = w->dim[2] / 2;
    return kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {p, p}, .groups = groups});
}

/* Planes of half the size, or twice. */
static kn_tensor *strided(kn_tensor *x, kn_tensor *w) {
    int64_t p = (w->dim[2] - 1) / 2;
    return kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {p, p}, .stride = {2, 2}});
}

static kn_tensor *doubled(kn_tensor *x, kn_tensor *w) {
    return kn_deconv(x, w, KN_NONE, &(kn_conv_options){.padding = {1, 1}, .stride = {2, 2}});
}

static kn_tensor *line(kn_tensor *x, kn_tensor *w) {
    return kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {2}});
}

static kn_tensor *cube(kn_tensor *x, kn_tensor *w) {
    return kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {1, 1, 1}});
}

static kn_tensor *dilated(kn_tensor *x, kn_tensor *w) {
    const kn_conv_options o = {.padding = {2, 2}, .dilation = {2, 2}};
    return kn_conv(x, w, KN_NONE, &o);
}

static kn_tensor *residual(kn_tensor *x, kn_tensor *w, kn_tensor *r) {
    return kn_conv_add(x, w, KN_NONE, r, &(kn_conv_options){.padding = {1, 1}, .act = KN_ACT_RELU});
}

/* Patches of a vision transformer. */
static kn_tensor *patches(kn_tensor *x, kn_tensor *w) {
    return kn_conv(x, w, KN_NONE, &(kn_conv_options){.stride = {16, 16}});
}

/* clang-format off */
CASE(nn, conv_1d,       line(x[0], x[1]),    .in = {N(32, 64, 1000), N(64, 64, 5)}, .both = true)
CASE(nn, conv_3d,       cube(x[0], x[1]),    .in = {N(4, 16, 16, 28, 28), N(32, 16, 3, 3, 3)}, .both = true)
CASE(nn, conv_dilated,  dilated(x[0], x[1]), .in = {N(32, 64, 28, 28), N(64, 64, 3, 3)}, .both = true)
CASE(nn, conv_add,      residual(x[0], x[1], x[2]), .in = {N(32, 64, 28, 28), N(64, 64, 3, 3), N(32, 64, 28, 28)}, .both = true)
CASE(nn, conv_patches,  patches(x[0], x[1]), .in = {N(8, 3, 224, 224), N(192, 3, 16, 16)}, .both = true)
CASE(nn, conv64,        same(x[0], x[1], 1), .in = {N(32, 64, 56, 56), N(64, 64, 3, 3)}, .both = true)
CASE(nn, conv_group8,   same(x[0], x[1], 8), .in = {N(32, 64, 28, 28), N(64, 8, 3, 3)}, .both = true)
CASE(nn, conv_512_7,    same(x[0], x[1], 1), .in = {N(32, 512, 7, 7), N(512, 512, 3, 3)}, .both = true)
CASE(nn, conv_first,    same(x[0], x[1], 1), .in = {C(0, 1, 32, 3, 32, 32), N(64, 3, 3, 3)}, .both = true)
CASE(nn, conv_first_s2, strided(x[0], x[1]), .in = {C(0, 1, 8, 3, 224, 224), N(64, 3, 7, 7)}, .both = true)
CASE(nn, conv_3x3_s2,   strided(x[0], x[1]), .in = {N(32, 128, 56, 56), N(128, 128, 3, 3)}, .both = true)
CASE(nn, conv_4x4_s2,   strided(x[0], x[1]), .in = {N(64, 128, 16, 16), N(256, 128, 4, 4)}, .both = true)
CASE(nn, deconv_4x4_s2, doubled(x[0], x[1]), .in = {N(64, 256, 8, 8), N(256, 128, 4, 4)}, .both = true)
CASE(nn, conv_1x1,      same(x[0], x[1], 1), .in = {N(32, 256, 14, 14), N(64, 256, 1, 1)}, .both = true)
CASE(nn, conv_each,     same(x[0], x[1], 64), .in = {N(32, 64, 28, 28), N(64, 1, 3, 3)}, .both = true)
/* clang-format on */

/* --- the rate: multiplications and additions a ns, beside those of a 1024 x 1024 product --- */

static const bench_case rate_case = {.run = run_nn_conv64,
                                     .in = {N(32, 64, 56, 56), N(64, 64, 3, 3)}};

static kn_tensor *product(kn_tensor *const x[]) { return kn_matmul(x[0], x[1], NULL); }
static const bench_case product_case = {.run = product, .in = {N(1024, 1024), N(1024, 1024)}};

void conv_rate(int n_rounds, double budget_ns, const char *only) {
    if (!strstr("nn/conv64_rate", only)) return;
    KN_FRAME();
    kn_rng *rng = cases_rng();
    kn_tensor *x[2] = {kn_uniform(KN_SHAPE(32, 64, 56, 56), -1, 1, rng),
                       kn_uniform(KN_SHAPE(64, 64, 3, 3), -1, 1, rng)};
    kn_tensor *m[2] = {kn_uniform(KN_SHAPE(1024, 1024), -1, 1, rng),
                       kn_uniform(KN_SHAPE(1024, 1024), -1, 1, rng)};
    double conv_flops = 2.0 * 32 * 64 * 64 * 9 * 56 * 56, product_flops = 2.0 * 1024 * 1024 * 1024;
    double forward = INFINITY, both = INFINITY, ours = INFINITY;
    for (int i = 0; i < n_rounds; i++) {
        forward = fmin(forward, cases_forward(&rate_case, x, budget_ns));
        both = fmin(both, cases_both(&rate_case, x, budget_ns));
        ours = fmin(ours, cases_forward(&product_case, m, budget_ns));
    }
    if (kn_check() < 0 || forward <= 0 || both <= 0 || ours <= 0) {
        fprintf(stderr, "conv64_rate: %s\n", kn_last_error()->message);
        return;
    }
    double rate = product_flops / ours;
    bench_emit("nn", "conv64_rate", conv_flops / forward, "GFLOP/s", rate);
    bench_emit("nn", "conv64_rate_both", 3 * conv_flops / both, "GFLOP/s", rate);
}
