/* Chains of convolutions and pools whose images stay in blocks of channels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conv_sizes.h"
#include "host/conv/conv_layout.h"

static const kn_conv_options same = {.padding = {1, 1}},
                             same_relu = {.padding = {1, 1}, .act = KN_ACT_RELU};

static bool in_blocks(const kn_tensor *t) {
    return t->layout == KN_LAYOUT_BLOCKS && t->state == KN_TENSOR_PENDING && !t->data;
}

static void assert_near(kn_tensor *got, kn_tensor *want) {
    assert_int_equal(kn_tensor_numel(got), kn_tensor_numel(want));
    for (int64_t i = 0; i < kn_tensor_numel(want); i++)
        assert_close(ops_at(got, i), ops_at(want, i), 2e-4, 2e-4);
}

typedef struct net {
    kn_tensor *x, *first, *w, *each, *b;
} net;

/* Weights that keep values near 1, so that rounding does not grow along the chain. */
static kn_tensor *weight(int64_t outputs, int64_t channels) {
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(outputs, channels, 3, 3));
    return kn_affine(w, 1 / sqrt(9.0 * (double)channels), 0);
}

static net net_of(int64_t batch, int64_t side) {
    return (net){random_tensor(KN_F32, KN_SHAPE(batch, 3, side, side)), weight(32, 3),
                 weight(32, 32), weight(32, 1), random_tensor(KN_F32, KN_SHAPE(32))};
}

/* A first layer, a residual block, a pool, planes each for itself, and what pools can't read. */
static kn_tensor *forward(const net *n) {
    const kn_pooling_options steps = {.stride = {2, 2}, .padding = {1, 1}};
    const kn_conv_options each = {.padding = {1, 1}, .groups = 32, .act = KN_ACT_GELU};
    kn_tensor *x = kn_conv(n->x, n->first, n->b, &same_relu);
    kn_tensor *y = kn_conv(x, n->w, n->b, &same_relu);
    y = kn_conv_add(y, n->w, n->b, x, &same_relu);
    y = kn_maxpool(y, KN_SHAPE(3, 3), &steps);
    y = kn_conv_add(kn_conv(y, n->w, KN_NONE, &same), n->w, KN_NONE, y, &same);
    y = kn_avgpool(y, KN_SHAPE(2, 3), &(kn_pooling_options){.stride = {1, 1}, .padding = {1, 1}});
    y = kn_conv(y, n->each, n->b, &each);
    return kn_mean(kn_tanh(y), KN_SHAPE(2, 3), false);
}

static void a_chain_gives_what_plain_layouts_give(void **state) {
    (void)state;
    for (int64_t batch = 1; batch <= 34; batch += 11)
        for (int64_t side = 7; side <= 21; side += 7) {
            KN_FRAME(.threads = 2);
            net n = net_of(batch, side);
            kn_tensor *want = forward(&n), *got = NULL;
            {
                KN_FRAME(.layout = 1);
                got = kn_keep(forward(&n));
            }
            assert_near(got, want);
        }
}

/* Every output of a pool whose windows meet the edges, infinities and NaN. */
static void pools_of_blocks_give_what_plain_pools_give(void **state) {
    (void)state;
    if (!kn__layout_block()) skip();
    static const kn_pooling_options ways[] = {{.stride = {2, 2}, .padding = {1, 1}},
                                              {.stride = {1, 3}, .dilation = {2, 1}},
                                              {.stride = {2, 1}, .padding = {1, 0}, .inside = 1},
                                              {.ceil = 1, .stride = {2, 2}}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        KN_FRAME(.threads = 2, .layout = 1);
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(3, 32, 9, 11));
        /* NaN in every channel of the result; and one of them is -inf everywhere */
        float ramp[32] = {[3] = -INFINITY}, bad = NAN;
        memcpy((char *)x->data + 20, &bad, sizeof bad);
        kn_tensor *w = kn_reshape(kn_eye(32, 32), KN_SHAPE(32, 32, 1, 1));
        kn_tensor *b = kn_zeros(KN_SHAPE(32));
        assert_int_equal(kn_copy_into(b, ramp, sizeof ramp), KN_OK);
        kn_tensor *blocked = kn_conv(x, w, b, NULL);
        assert_true(in_blocks(blocked));
        kn_tensor *max = kn_maxpool(blocked, KN_SHAPE(3, 2), &ways[i]);
        kn_tensor *mean = kn_avgpool(blocked, KN_SHAPE(3, 2), &ways[i]);
        kn_tensor *most = kn_adaptive_maxpool(blocked, KN_SHAPE(4, 11));
        kn_tensor *share = kn_adaptive_avgpool(blocked, KN_SHAPE(2, 3));
        assert_true(in_blocks(max) && in_blocks(mean) && in_blocks(most) && in_blocks(share));
        assert_non_null(kn_data(blocked));
        KN_FRAME(.layout = KN_OFF);
        assert_same_bits(most, kn_adaptive_maxpool(blocked, KN_SHAPE(4, 11)));
        assert_near(share, kn_adaptive_avgpool(blocked, KN_SHAPE(2, 3)));
        assert_same_bits(max, kn_maxpool(blocked, KN_SHAPE(3, 2), &ways[i]));
        assert_near(mean, kn_avgpool(blocked, KN_SHAPE(3, 2), &ways[i]));
    }
}

/* relu(batchnorm(x)·2 + x), NaN included, and what can't stay in blocks. */
static void pointwise_ops_and_batchnorm_stay_in_blocks(void **state) {
    (void)state;
    if (!kn__layout_block()) skip();
    KN_FRAME(.threads = 2);
    net n = net_of(8, 12);
    kn_tensor *mean = random_tensor(KN_F32, KN_SHAPE(32)), *var = kn_square(mean);
    float bad = NAN;
    memcpy(n.x->data, &bad, sizeof bad);
    kn_tensor *y[2];
    for (int i = 0; i < 2; i++) {
        KN_FRAME(.layout = i ? 1 : KN_OFF);
        kn_tensor *x = kn_conv(n.x, n.first, n.b, &same_relu);
        kn_tensor *z = kn_batchnorm(x, mean, var, n.b, mean, NULL);
        assert_int_equal(in_blocks(z), i);
        z = kn_relu(kn_add(kn_affine(z, 2, 0), kn_mul(x, kn_full(KN_SCALAR, 3))));
        assert_int_equal(in_blocks(z), i);
        assert_false(in_blocks(kn_add(z, kn_reshape(n.b, KN_SHAPE(32, 1, 1)))));
        assert_false(in_blocks(kn_gt(z, x)));
        y[i] = kn_keep(z);
    }
    for (int64_t i = 0; i < kn_tensor_numel(y[0]); i++) {
        double want = ops_at(y[0], i), got = ops_at(y[1], i);
        assert_int_equal(isnan(got), isnan(want));
        if (want == want) assert_close(got, want, 2e-4, 2e-4);
    }
}

/* As ops of their own after it, by the library and by Winograd's transforms. */
static void activations_run_inside_convolutions_of_blocks(void **state) {
    (void)state;
    if (!kn__layout_block()) skip();
    for (int winograd = 0; winograd < 2; winograd++)
        for (int act = KN_ACT_NONE; act < KN_ACTS; act++) {
            int64_t side = winograd ? 14 : 6, images = winograd ? 32 : 2;
            KN_FRAME(.threads = 2, .layout = 1);
            kn_conv_options acts = {.padding = {1, 1}, .act = (kn_act)act};
            kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(images, 64, side, side)),
                      *w = weight(64, 64);
            kn_tensor *b = random_tensor(KN_F32, KN_SHAPE(64));
            kn_tensor *first = kn_conv(x, w, b, &same),
                      *sum = kn_conv_add(first, w, b, first, &same);
            kn_tensor *got = kn_conv_add(first, w, b, first, &acts),
                      *want = ops_activated(sum, acts.act);
            assert_true(in_blocks(got) && in_blocks(want));
            assert_same_bits(got, want);
        }
}

/* Weights in Winograd's own layout, kept; and plain ones. */
static void winograd_convolves_in_blocks(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(32, 64, 14, 14)), *w = weight(64, 64);
    kn_tensor *b = random_tensor(KN_F32, KN_SHAPE(64));
    kn_tensor *want = kn_conv_add(kn_conv(x, w, b, &same_relu), w, b, x, &same_relu), *got = NULL;
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.layout = 1 + i % 2);
        kn_tensor *first = kn_conv(x, w, b, &same_relu);
        kn_tensor *around =
            kn_conv(x, kn_reshape(kn_eye(64, 64), KN_SHAPE(64, 64, 1, 1)), KN_NONE, NULL);
        got = kn_keep(kn_conv_add(first, w, b, around, &same_relu));
        assert_near(got, want);
    }
}

/* One NaN reaches its neighbours alone where the route is another: frame.h. */
static void other_routes_keep_winograd_from_blocks(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_tensor *x = kn_ones(KN_SHAPE(32, 64, 14, 14)), *w = weight(64, 64);
    float bad = NAN;
    memcpy(x->data, &bad, sizeof bad);
    for (int way = KN_CONV_OURS; way <= KN_CONV_DNNL; way++)
        for (int layout = 1; layout <= 2; layout++) {
            KN_FRAME(.layout = layout);
            kn__conv_prefer((kn__conv_route)way);
            kn_tensor *y = kn_conv(x, w, KN_NONE, &same);
            assert_non_null(kn_data(y));
            kn__conv_prefer(KN_CONV_TABLED);
            for (int64_t i = 0; i < kn_tensor_numel(y); i++)
                assert_int_equal(isnan(ops_at(y, i)) != 0,
                                 i < 64 * 196 && i % 196 / 14 < 2 && i % 14 < 2);
        }
}

static kn_tensor *wide(kn_tensor *t) { return t == KN_NONE ? t : kn_cast(t, KN_F64); }

/* conv(x, w), then with the same weights if they fit, in blocks; and the definition. */
static void assert_weights(kn_tensor *x, kn_tensor *w, int layout, const kn_conv_options *o) {
    KN_FRAME(.threads = 2, .layout = KN_OFF);
    kn_tensor *want = kn_conv(wide(x), wide(w), KN_NONE, o), *got;
    {
        KN_FRAME(.layout = layout);
        got = kn_keep(kn_conv(x, w, KN_NONE, o));
    }
    assert_near(got, want);
}

/* Views of one storage that begin at the same element: some outputs of more, and another shape. */
static void kept_weights_are_those_of_the_shape(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_tensor *all = weight(128, 64), *x = random_tensor(KN_F32, KN_SHAPE(16, 64, 14, 14));
    kn_tensor *half = kn_slice(x, KN_SHAPE(0, 0, 0, 0), KN_SHAPE(16, 32, 14, 14));
    for (int i = 0; i < 3; i++) {
        assert_weights(x, all, 2, &same);
        for (int64_t n = 16; n <= 64; n += 16)
            assert_weights(x, kn_slice(all, KN_SHAPE(0, 0, 0, 0), KN_SHAPE(n, 64, 3, 3)), 2, &same);
        assert_weights(half, kn_reshape(all, KN_SHAPE(256, 32, 3, 3)), 2, &same);
        kn_tensor *first = kn_slice(all, KN_SHAPE(0, 0, 0, 0), KN_SHAPE(64, 64, 3, 3));
        assert_weights(half, kn_reshape(first, KN_SHAPE(128, 32, 3, 3)), 2, &same);
        assert_weights(x, kn_slice(all, KN_SHAPE(32, 0, 0, 0), KN_SHAPE(96, 64, 3, 3)), 2, &same);
    }
}

/* More channels and outputs than a unit and a part take, and what Winograd's way can't do. */
static void all_sizes_convolve_in_blocks(void **state) {
    (void)state;
    static const int64_t shapes[][5] = {/* batch, channels, outputs, sides */
                                        {16, 300, 272, 9, 10},
                                        {8, 64, 48, 30, 17},
                                        {32, 48, 80, 14, 14},
                                        {16, 144, 256, 7, 7}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        KN_FRAME(.threads = 2);
        const int64_t *n = shapes[i / 2];
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(n[0], n[1], n[3], n[4]));
        kn_tensor *w = weight(n[2], n[1]);
        for (int again = 0; again < 2; again++) assert_weights(x, w, 1 + i % 2, &same);
        if (n[2] == 272) continue; /* slow in f64 */
        const kn_conv_options flipped = {.padding = {1, 1}, .flip = 1};
        const kn_conv_options steps = {.padding = {1, 1}, .stride = {1, 2}};
        assert_weights(x, w, 1 + i % 2, &flipped);
        assert_weights(x, w, 1 + i % 2, &steps);
    }
}

static void a_result_stays_in_blocks_until_it_is_read(void **state) {
    (void)state;
    if (!kn__layout_block()) skip();
    KN_FRAME(.layout = 1);
    net n = net_of(8, 12);
    kn_tensor *y = kn_conv(n.x, n.first, n.b, &same), *z = kn_conv(y, n.w, n.b, &same);
    assert_true(in_blocks(y) && in_blocks(z));
    assert_non_null(kn_data(z));
    assert_true(z->layout == KN_LAYOUT_PLAIN && z->state == KN_TENSOR_LIVE && in_blocks(y));
    assert_true(in_blocks(kn_conv(y, n.w, n.b, &same))); /* y was read as it is */
    assert_near(
        kn_conv(z, n.each, KN_NONE, &(kn_conv_options){.groups = 32}),
        kn_conv(kn_add(z, kn_zeros(KN_SCALAR)), n.each, KN_NONE, &(kn_conv_options){.groups = 32}));
    kn_tensor *flat = kn_flatten(y);
    assert_int_equal(kn_tensor_shape(flat).dim[1], 32 * 12 * 12);
    assert_true(y->layout == KN_LAYOUT_PLAIN);
    KN_FRAME(.layout = KN_OFF);
    assert_false(in_blocks(kn_conv(n.x, n.first, n.b, &same)));
}

static void threads_and_order_change_no_bit_in_blocks(void **state) {
    (void)state;
    KN_FRAME();
    net n = net_of(9, 14);
    kn_tensor *y[2];
    for (int i = 0; i < 2; i++) {
        KN_FRAME(.layout = 1, .threads = 1 + 2 * i);
        y[i] = kn_keep(forward(&n));
    }
    assert_same_bits(y[0], y[1]);
}

static void kept_weights_follow_a_change_of_the_weight(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    net n = net_of(8, 12);
    float *zeros = calloc((size_t)kn_tensor_numel(n.w), sizeof *zeros);
    kn_tensor *before, *after;
    {
        KN_FRAME(.layout = 2);
        for (int i = 0; i < 2; i++)
            before = kn_conv(kn_conv(n.x, n.first, n.b, &same), n.w, KN_NONE, &same);
        assert_true(fabs(ops_at(kn_max(kn_abs(before), KN_ALL, false), 0)) > 0);
        assert_int_equal(kn_copy_into(n.w, zeros, (size_t)kn_tensor_numel(n.w) * sizeof *zeros),
                         KN_OK);
        after = kn_conv(kn_conv(n.x, n.first, n.b, &same), n.w, KN_NONE, &same);
        assert_close(ops_at(kn_max(kn_abs(after), KN_ALL, false), 0), 0, 0, 0);
    }
    free(zeros);
}

/* A net that is evaluated between steps of training takes no more memory in these. */
static void weights_are_kept_for_layout_2_alone(void **state) {
    (void)state;
    if (!kn__layout_block()) skip();
    KN_FRAME(.threads = 2);
    net n = net_of(8, 12);
    for (int layout = 1; layout <= 2; layout++) {
        KN_FRAME(.layout = layout);
        assert_true(in_blocks(kn_conv(kn_conv(n.x, n.first, n.b, &same), n.w, KN_NONE, &same)));
        assert_int_equal(n.w->storage->owner != NULL, layout == 2);
    }
}

/* tanh(x)·x + 1 is a chain of blocked arrays, then one of plain arrays; the first product is
 * read by a convolution. */
static void chains_are_computed_together_beside_blocks(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    net n = net_of(9, 12);
    kn_tensor *y[3];
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.layout = i ? 1 : KN_OFF, .fuse = i == 1 ? KN_OFF : 1);
        kn_tensor *x = kn_conv(n.x, n.first, n.b, &same_relu);
        kn_tensor *z = kn_affine(kn_mul(kn_tanh(x), x), 1, 1);
        z = kn_conv_add(z, n.w, n.b, x, &same);
        z = kn_mul(kn_sigm(kn_add(z, kn_reshape(n.b, KN_SHAPE(32, 1, 1)))), z);
        kn_tensor *flat = kn_flatten(kn_conv(z, n.w, KN_NONE, &same));
        y[i] = kn_keep(kn_add(kn_tanh(flat), kn_square(flat)));
    }
    assert_near(y[1], y[0]);
    assert_near(y[2], y[0]);
    assert_same_bits(y[2], y[1]);
}

/* [2,2·block,3,5], its elements numbered, from blocks of channels. */
static void check_plain(kn_dtype dtype) {
    enum { B = 2, PLANE = 15 };
    int64_t block = kn__layout_block(), n = B * 2 * block * PLANE;
    const int64_t dim[4] = {B, 2 * block, 3, 5};
    size_t bytes = kn_dtype_bytes(dtype);
    char *from = malloc((size_t)n * bytes), *to = malloc((size_t)n * bytes);
    assert_true(from && to);
    for (uint16_t i = 0; i < n; i++) {
        int64_t c = i / PLANE, at = (c / block * PLANE + i % PLANE) * block + c % block;
        memset(from + (size_t)at * bytes, 0, bytes);
        memcpy(from + (size_t)at * bytes, &i, sizeof i);
    }
    kn__layout_plain(to, from, dtype, dim, 2);
    for (uint16_t i = 0; i < n; i++) assert_memory_equal(to + (size_t)i * bytes, &i, sizeof i);
    free(from);
    free(to);
}

static void blocks_of_any_width_become_plain(void **state) {
    (void)state;
    if (!kn__layout_block()) skip();
    check_plain(KN_F32);
    check_plain(KN_BF16);
}

static void an_unknown_layout_is_an_error(void **state) {
    (void)state;
    kn_frame_options bad = {.layout = 7};
    kn_frame frame = kn_frame_begin(&bad);
    assert_int_equal(kn_check(), KN_ERR_INVALID);
    assert_non_null(strstr(kn_last_error()->message, "layout is 7"));
    kn_frame_end(&frame);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_chain_gives_what_plain_layouts_give),
        OPS_TEST(pools_of_blocks_give_what_plain_pools_give),
        OPS_TEST(pointwise_ops_and_batchnorm_stay_in_blocks),
        OPS_TEST(activations_run_inside_convolutions_of_blocks),
        OPS_TEST(winograd_convolves_in_blocks), OPS_TEST(other_routes_keep_winograd_from_blocks),
        OPS_TEST(kept_weights_are_those_of_the_shape), OPS_TEST(all_sizes_convolve_in_blocks),
        OPS_TEST(a_result_stays_in_blocks_until_it_is_read),
        OPS_TEST(threads_and_order_change_no_bit_in_blocks),
        OPS_TEST(kept_weights_follow_a_change_of_the_weight),
        OPS_TEST(weights_are_kept_for_layout_2_alone),
        OPS_TEST(chains_are_computed_together_beside_blocks),
        OPS_TEST(blocks_of_any_width_become_plain), OPS_TEST(an_unknown_layout_is_an_error));
}
