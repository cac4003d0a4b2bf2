/* Times of convolutions by one route, for bench/nn/routes.py, which fits the model that chooses
 * routes (ops/src/host/conv/conv_route.c). KNET_CONV_ROUTE says which route. Each line:
 * batch groups channels outputs in[3] window[3] stride padding dilation pass us */
#include <knet/op.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

typedef struct shape {
    int64_t batch, groups, channels, outputs, in[3], window[3], stride, padding, dilation;
} shape;

#define S2(n, g, c, o, side, k, s)                                                                 \
    { n, g, c, o, {1, side, side}, {1, k, k}, s, (k) / 2, 1 }
#define S2P(n, g, c, o, side, k, p)                                                                \
    { n, g, c, o, {1, side, side}, {1, k, k}, 1, p, 1 }

/* clang-format off */
static const shape shapes[] = {
    /* residual nets */
    S2(8, 1, 3, 64, 224, 7, 2), S2(8, 1, 64, 64, 56, 3, 1), S2(32, 1, 64, 64, 56, 3, 1),
    S2(8, 1, 64, 64, 56, 1, 1), S2(8, 1, 64, 256, 56, 1, 1), S2(8, 1, 256, 64, 56, 1, 1),
    S2(8, 1, 128, 128, 56, 3, 2), S2(8, 1, 128, 128, 28, 3, 1), S2(32, 1, 128, 128, 28, 3, 1),
    S2(8, 1, 128, 512, 28, 1, 1), S2(8, 1, 512, 128, 28, 1, 1), S2(8, 1, 256, 512, 56, 1, 2),
    S2(8, 1, 256, 256, 28, 3, 2), S2(8, 1, 256, 256, 14, 3, 1), S2(32, 1, 256, 256, 14, 3, 1),
    S2(8, 1, 256, 1024, 14, 1, 1), S2(8, 1, 1024, 256, 14, 1, 1), S2(8, 1, 512, 512, 14, 3, 2),
    S2(8, 1, 512, 512, 7, 3, 1), S2(32, 1, 512, 512, 7, 3, 1), S2(8, 1, 512, 2048, 7, 1, 1),
    S2(32, 1, 256, 64, 14, 1, 1), S2(1, 1, 64, 64, 56, 3, 1), S2(1, 1, 256, 256, 14, 3, 1),
    S2(2, 1, 128, 128, 28, 3, 1),
    /* others' */
    S2P(32, 1, 256, 256, 14, 3, 0), S2P(32, 1, 256, 256, 16, 3, 0), S2(64, 1, 3, 64, 32, 3, 1),
    S2(64, 1, 64, 64, 32, 3, 1), S2(64, 1, 64, 128, 16, 3, 1), S2(64, 1, 128, 128, 16, 3, 1),
    S2(64, 1, 128, 256, 8, 3, 1), S2(64, 1, 256, 256, 8, 3, 1), S2(64, 1, 256, 256, 4, 3, 1),
    S2P(128, 1, 1, 20, 28, 5, 0), S2P(128, 1, 20, 50, 12, 5, 0), S2(64, 1, 16, 32, 16, 3, 1),
    S2(32, 1, 100, 100, 12, 3, 1), S2(32, 1, 50, 100, 20, 3, 1), S2(64, 1, 3, 32, 32, 5, 1),
    {128, 1, 3, 128, {1, 6, 7}, {1, 3, 3}, 1, 1, 1}, {128, 1, 128, 128, {1, 6, 7}, {1, 3, 3}, 1, 1, 1},
    {128, 1, 128, 32, {1, 6, 7}, {1, 1, 1}, 1, 0, 1}, {16, 1, 128, 128, {1, 6, 7}, {1, 3, 3}, 1, 1, 1},
    S2(8, 1, 128, 32, 56, 3, 1), S2(8, 1, 128, 32, 28, 3, 1), S2(8, 1, 128, 32, 14, 3, 1),
    S2(8, 1, 128, 32, 7, 3, 1), S2(8, 1, 512, 128, 14, 1, 1), S2(8, 1, 96, 128, 56, 1, 1),
    /* groups and planes each for itself */
    S2(32, 8, 8, 8, 28, 3, 1), S2(8, 32, 4, 4, 56, 3, 1), S2(8, 32, 16, 16, 14, 3, 1), S2(16, 4, 32, 32, 14, 3, 1),
    S2(32, 64, 1, 1, 28, 3, 1), S2(8, 96, 1, 1, 56, 3, 2), S2(8, 144, 1, 1, 56, 3, 1), S2(8, 384, 1, 1, 14, 3, 1),
    S2(8, 1, 3, 32, 224, 3, 2), S2(8, 1, 3, 64, 224, 3, 1), S2(8, 1, 16, 96, 112, 1, 1),
    /* other ranks and steps */
    {32, 1, 64, 64, {1, 1, 256}, {1, 1, 3}, 1, 1, 1}, {4, 1, 16, 32, {16, 16, 16}, {3, 3, 3}, 1, 1, 1},
    {8, 1, 64, 64, {1, 28, 28}, {1, 3, 3}, 1, 2, 2}, S2(16, 1, 64, 64, 28, 5, 1), S2(32, 1, 128, 128, 56, 3, 2),
    {64, 1, 64, 128, {1, 32, 32}, {1, 4, 4}, 2, 1, 1}, {64, 1, 128, 256, {1, 16, 16}, {1, 4, 4}, 2, 1, 1},
    {64, 1, 256, 512, {1, 8, 8}, {1, 4, 4}, 2, 1, 1}, S2(64, 1, 32, 64, 28, 5, 2), S2(32, 1, 64, 96, 20, 3, 2),
    S2(64, 1, 8, 256, 4, 5, 2), {16, 1, 256, 256, {1, 7, 7}, {1, 4, 4}, 2, 1, 1}, S2(4, 1, 128, 256, 7, 5, 2),
    {64, 1, 8, 16, {1, 28, 28}, {1, 4, 4}, 2, 1, 1}, {4, 1, 128, 256, {1, 16, 16}, {1, 4, 4}, 2, 1, 1},
    {64, 1, 128, 8, {1, 14, 14}, {1, 2, 2}, 1, 0, 1}, S2(64, 1, 128, 8, 14, 3, 1), S2(64, 1, 8, 128, 14, 3, 1),
    /* an image or two */
    S2(1, 1, 3, 64, 224, 7, 2), S2(2, 1, 3, 64, 224, 7, 2), S2(1, 1, 128, 128, 56, 3, 2), S2(1, 1, 512, 512, 14, 3, 2),
    S2(1, 1, 64, 256, 56, 1, 1), S2(1, 1, 256, 64, 56, 1, 1), S2(1, 1, 512, 128, 28, 1, 1), S2(1, 1, 128, 512, 28, 1, 1),
    S2(2, 1, 1024, 256, 14, 1, 1), S2(1, 1, 512, 2048, 7, 1, 1), S2(1, 1, 256, 512, 56, 1, 2), S2(1, 1, 960, 160, 7, 1, 1),
    S2(1, 1, 512, 512, 7, 3, 1), S2(1, 1, 128, 256, 56, 3, 1), S2(2, 1, 64, 128, 112, 3, 1), S2(1, 1, 3, 32, 32, 3, 1),
    S2(1, 1, 64, 64, 16, 3, 1), S2(2, 1, 64, 128, 8, 3, 1), S2(1, 1, 128, 128, 8, 3, 1), S2(1, 1, 128, 256, 4, 3, 1),
    S2(1, 1, 256, 256, 10, 3, 1), S2(1, 1, 256, 24, 10, 3, 1), S2(2, 1, 24, 256, 10, 3, 1), S2(1, 1, 32, 64, 7, 3, 1),
    S2(1, 1, 64, 64, 14, 5, 1), S2(2, 1, 16, 32, 28, 5, 1), S2(1, 1, 20, 50, 12, 5, 1), S2(3, 1, 16, 32, 28, 5, 1),
    S2(1, 1, 16, 16, 28, 3, 1), S2(2, 1, 8, 8, 56, 3, 2), S2(1, 1, 8, 16, 28, 3, 1), S2(1, 1, 1, 20, 28, 5, 1),
    S2(1, 1, 32, 8, 28, 1, 1), S2(1, 1, 24, 144, 56, 1, 1), S2(2, 1, 48, 192, 9, 3, 2), S2(3, 1, 64, 64, 56, 1, 1),
};
/* clang-format on */

static kn_attr_conv attr_of(const shape *s) {
    kn_attr_conv attr = {.groups = s->groups, .n_spatial = s->in[0] > 1 ? 3 : s->in[1] > 1 ? 2 : 1};
    for (int i = 0; i < attr.n_spatial; i++) {
        int from = 3 - attr.n_spatial + i;
        attr.stride[i] = s->stride, attr.dilation[i] = s->dilation, attr.size[i] = s->in[from];
        attr.padding[i] = attr.padding_end[i] = s->padding;
    }
    return attr;
}

static kn_shape dims(int64_t a, int64_t b, const int64_t tail[3], int n) {
    kn_shape all = {.n_dims = 2 + n, .dim = {a, b}};
    for (int i = 0; i < n; i++) all.dim[2 + i] = tail[3 - n + i];
    return all;
}

static kn_tensor *run_pass(int pass, const shape *s, kn_tensor *x, kn_tensor *w, kn_tensor *dy) {
    kn_attr_conv attr = attr_of(s);
    if (pass == 0) return KN_CALL(conv, &attr, x, w, KN_NONE);
    if (pass == 1) return KN_CALL(conv_data, &attr, dy, w);
    for (int i = 0; i < attr.n_spatial; i++) attr.size[i] = s->window[3 - attr.n_spatial + i];
    return KN_CALL(conv_weight, &attr, x, dy);
}

enum { ROUNDS = 4, ROUNDS_FEW = 12 }; /* small batches take little time */
static void time_shape(const shape *s, kn_rng *rng) {
    KN_FRAME();
    int n = attr_of(s).n_spatial;
    kn_tensor *x = kn_normal(dims(s->batch, s->groups * s->channels, s->in, n), 0, 1, rng);
    kn_tensor *w = kn_normal(dims(s->groups * s->outputs, s->channels, s->window, n), 0, 1, rng);
    kn_tensor *dy = run_pass(0, s, x, w, NULL);
    for (int pass = 0; pass < 3 && dy; pass++) {
        double least = INFINITY;
        for (int i = 0; i < (s->batch < 4 ? ROUNDS_FEW : ROUNDS); i++) {
            KN_FRAME();
            uint64_t start = bench_now_ns();
            if (!run_pass(pass, s, x, w, dy)) return;
            least = fmin(least, (double)(bench_now_ns() - start));
        }
        printf("%lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %d %.1f\n",
               (long long)s->batch, (long long)s->groups, (long long)s->channels,
               (long long)s->outputs, (long long)s->in[0], (long long)s->in[1], (long long)s->in[2],
               (long long)s->window[0], (long long)s->window[1], (long long)s->window[2],
               (long long)s->stride, (long long)s->padding, (long long)s->dilation, pass,
               least / 1e3);
    }
}

int main(int argc, char **argv) {
    kn_rng *rng = NULL;
    if (kn_rng_create(&rng, 1) < 0) return 1;
    KN_FRAME(.threads = argc > 1 ? atoi(argv[1]) : 2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) time_shape(&shapes[i], rng);
    kn_rng_destroy(rng);
    if (kn_check() < 0) fprintf(stderr, "routes: %s\n", kn_last_error()->message);
    return kn_check() < 0;
}
