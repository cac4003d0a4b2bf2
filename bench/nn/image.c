/* Convolution, pooling, images, dropout; the CTC loss and rotary embedding. */
#include <knet/op.h>

#include "cases.h"

/* x [32,256,14,14] → [32,256,16,16] */
static kn_tensor *transposed(kn_tensor *x, kn_tensor *w) {
    kn_attr_conv attr = {
        .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .size = {16, 16}, .n_spatial = 2};
    return KN_CALL(conv_data, &attr, x, w);
}

static kn_tensor *resized(kn_tensor *x, int64_t size, kn_resize_mode mode) {
    return kn_resize(x, KN_SHAPE(size, size), &(kn_resize_options){.mode = mode});
}

/* Where the elements of kn_maxunpool's case lie in windows of 2 x 2. */
static kn_tensor *places;

static kn_status make_places(void) {
    kn_tensor *of_window = kn_integers(KN_SHAPE(32, 64, 28, 28), 0, 4, cases_rng());
    places = of_window ? kn_cast(of_window, KN_U8) : NULL;
    return places ? KN_OK : kn_check();
}

/* clang-format off */
CASE(ops20, conv4,   kn_conv(x[0], x[1], KN_NONE, NULL),     .in = {N(32, 256, 14, 14), N(256, 256, 3, 3)}, .both = true)
CASE(ops20, deconv4, transposed(x[0], x[1]),                 .in = {N(32, 256, 14, 14), N(256, 256, 3, 3)}, .both = true)
CASE(ops20, pool,    kn_maxpool(x[0], KN_SHAPE(2, 2), NULL), .in = {N(32, 256, 14, 14)}, .both = true)
CASE(ops20, unpool,  kn_unpool(x[0], KN_SHAPE(2, 2), NULL),  .in = {N(32, 256, 7, 7)}, .both = true)
CASE(ops20, dropout, kn_dropout(x[0], 0.5, cases_rng()),     .in = {N(32, 1000)}, .both = true)

CASE(nn, maxpool_3x3_s2,  kn_maxpool(x[0], KN_SHAPE(3, 3), &(kn_pooling_options){.stride = {2, 2}, .padding = {1, 1}}), .in = {N(32, 64, 56, 56)}, .both = true)
CASE(nn, maxpool_3x3_s1,  kn_maxpool(x[0], KN_SHAPE(3, 3), &(kn_pooling_options){.stride = {1, 1}, .padding = {1, 1}}), .in = {N(32, 64, 28, 28)}, .both = true)
CASE(nn, maxpool_line,    kn_maxpool(x[0], KN_SHAPE(2), NULL), .in = {N(32, 64, 1000)}, .both = true)
CASE(nn, maxunpool,       kn_maxunpool(x[0], places, KN_SHAPE(2, 2), KN_SCALAR, NULL), .in = {N(32, 64, 28, 28)}, .both = true, .setup = make_places)
CASE(nn, dropout_1m,      kn_dropout(x[0], 0.5, cases_rng()), .in = {N(1000000)}, .both = true)
CASE(nn, ctc_t150_b32,    kn_ctc_loss(kn_logsoftmax(x[0], 2), x[1], NULL), .in = {N(150, 32, 40), I(1, 40, 32, 30)}, .both = true)
CASE(nn, rotary_t1024,    kn_rotary(x[0], NULL), .in = {N(8, 8, 1024, 64)}, .both = true)
CASE(nn, resize_nearest,  kn_resize(x[0], KN_SHAPE(112, 112), NULL), .in = {N(32, 16, 56, 56)}, .both = true)
CASE(nn, resize_linear,   resized(x[0], 112, KN_RESIZE_LINEAR), .in = {N(32, 16, 56, 56)}, .both = true)
CASE(nn, resize_down,     resized(x[0], 40, KN_RESIZE_LINEAR),  .in = {N(32, 16, 56, 56)}, .both = true)
CASE(nn, resize_exact,    resized(x[0], 112, KN_RESIZE_EXACT),   .in = {N(32, 16, 56, 56)}, .both = true)
CASE(nn, resize_corners,  resized(x[0], 112, KN_RESIZE_CORNERS), .in = {N(32, 16, 56, 56)}, .both = true)
CASE(nn, pixel_shuffle,   kn_pixel_shuffle(x[0], 2), .in = {N(32, 64, 28, 28)}, .both = true)
CASE(nn, unfold,          kn_unfold(x[0], KN_SHAPE(3, 3), &(kn_unfold_options){.padding = {1, 1}}), .in = {N(16, 16, 56, 56)}, .both = true)
CASE(nn, fold,            kn_fold(x[0], KN_SHAPE(56, 56), KN_SHAPE(3, 3), &(kn_unfold_options){.padding = {1, 1}}), .in = {N(16, 144, 3136)}, .both = true)
CASE(nn, grid_sample,     kn_grid_sample(x[0], x[1], NULL), .in = {N(16, 16, 56, 56), U(-1, 1, 16, 56, 56, 2)}, .both = true)
CASE(nn, grid_sample_nearest, kn_grid_sample(x[0], x[1], &(kn_grid_options){.nearest = 1}), .in = {N(16, 3, 64, 64), U(-1, 1, 16, 64, 64, 2)}, .both = true)
