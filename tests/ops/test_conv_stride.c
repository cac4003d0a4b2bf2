/* Winograd's way of windows that move by 2, and of 2x2 ones: whose phases are windows of 2 or 3
 * taps (conv_winograd.h). */
#include "conv_sizes.h"
#include "host/base/loops.h"

/* A convolution: x [batch,channels,in…], its window, stride and padding. */
typedef struct shape {
    int64_t batch, channels, outputs, in[2], window[2], stride, padding[4]; /* top, bottom, … */
} shape;

static kn_attr_conv attr_of(const shape *s) {
    return (kn_attr_conv){.stride = {s->stride, s->stride, 1},
                          .dilation = {1, 1, 1},
                          .padding = {s->padding[0], s->padding[2]},
                          .padding_end = {s->padding[1], s->padding[3]},
                          .groups = 1,
                          .n_spatial = 2};
}

/* x, w and dy. */
static void tensors_of(kn_tensor *out[3], const shape *s) {
    const kn_attr_conv attr = attr_of(s);
    out[0] = random_tensor(KN_F32, KN_SHAPE(s->batch, s->channels, s->in[0], s->in[1]));
    out[1] = random_tensor(KN_F32, KN_SHAPE(s->outputs, s->channels, s->window[0], s->window[1]));
    out[2] = random_tensor(KN_F32, kn_tensor_shape(op_conv_attr(out[0], out[1], KN_NONE, &attr)));
}

/* Windows of all sizes that have 2 or 3 taps; odd and even planes, some smaller than a tile, tiles
 * that begin before and end behind them, many units of an image; channels that fill no vector, and
 * more than have their numbers at a time. */
static const shape shapes[] = {
    {2, 16, 16, {16, 16}, {4, 4}, 2, {1, 1, 1, 1}}, {3, 9, 17, {15, 14}, {3, 3}, 2, {1, 1, 1, 1}},
    {1, 20, 8, {4, 3}, {3, 3}, 2, {0, 0, 0, 0}},    {2, 33, 40, {7, 30}, {3, 4}, 2, {0, 1, 2, 0}},
    {2, 12, 24, {9, 5}, {4, 3}, 2, {3, 2, 1, 1}},   {2, 24, 10, {13, 16}, {5, 5}, 2, {2, 2, 2, 2}},
    {1, 16, 16, {20, 11}, {6, 5}, 2, {2, 3, 0, 1}}, {3, 11, 31, {6, 6}, {5, 6}, 2, {2, 2, 2, 3}},
    {2, 300, 70, {8, 8}, {4, 4}, 2, {1, 1, 1, 1}},  {1, 70, 300, {9, 7}, {3, 3}, 2, {1, 1, 1, 1}},
    {17, 30, 21, {4, 4}, {4, 4}, 2, {1, 1, 1, 1}},  {4, 18, 50, {11, 12}, {2, 2}, 1, {0, 0, 0, 0}},
    {1, 16, 16, {70, 60}, {4, 4}, 2, {1, 1, 1, 1}}, {1, 9, 24, {61, 66}, {5, 5}, 2, {2, 2, 2, 2}},
    {1, 16, 9, {60, 61}, {3, 3}, 2, {0, 0, 0, 0}},  {1, 12, 16, {50, 62}, {2, 2}, 1, {1, 1, 0, 0}},
    {2, 40, 9, {5, 40}, {2, 2}, 1, {1, 0, 1, 2}}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void all_passes_are_right_on_any_threads(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        KN_FRAME();
        const kn_attr_conv attr = attr_of(&shapes[i]);
        kn_tensor *x[3];
        tensors_of(x, &shapes[i]);
        for (int which = 0; which < 3; which++) {
            double error = error_of(KN_CONV_WINOGRAD, which, x, &attr);
            if (!(error < 3e-12)) fail_msg("pass %d of shape %d: %g", which, i, error);
            kn__conv_prefer(KN_CONV_WINOGRAD);
            kn_tensor *one = conv_pass(which, x[0], x[1], x[2], &attr, 1);
            kn_tensor *three = conv_pass(which, x[0], x[1], x[2], &attr, 3);
            kn__conv_prefer(KN_CONV_OURS);
            kn_tensor *ours = conv_pass(which, x[0], x[1], x[2], &attr, 1);
            kn__conv_prefer(KN_CONV_TABLED);
            assert_same_bits(one, three);
            size_t bytes = (size_t)kn_tensor_numel(one) * sizeof(float);
            if (kn__loops(KN_F32)->tile_columns >= 16) /* these came by Winograd's way */
                assert_memory_not_equal(kn_data(one), kn_data(ours), bytes);
        }
    }
}

static void gradients_are_added(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        KN_FRAME(.threads = 2);
        const kn_attr_conv attr = attr_of(&shapes[i]);
        kn_tensor *x[3];
        tensors_of(x, &shapes[i]);
        const kn_shape w = kn_tensor_shape(x[1]);
        kn_tensor *into = random_tensor(KN_F32, w);
        kn__conv_prefer(KN_CONV_WINOGRAD);
        kn_tensor *want = kn_add(into, op_conv_weight(x[0], x[2], w, &attr, NULL));
        assert_non_null(kn_data(want));
        assert_ptr_equal(op_conv_weight(x[0], x[2], w, &attr, into), into);
        kn__conv_prefer(KN_CONV_TABLED);
        assert_same_bits(into, want);
    }
}

/* Bias, activation and residual; in planes, and in blocks whose weights are kept. */
static void results_are_finished_in_planes_and_blocks(void **state) {
    (void)state;
    const kn_conv_options half = {.padding = {1, 1}, .stride = {2, 2}, .act = KN_ACT_RELU};
    for (int side = 3; side <= 4; side++) {
        KN_FRAME(.threads = 2);
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(32, 64, 16, 16)), *want = NULL;
        kn_tensor *w = kn_affine(random_tensor(KN_F32, KN_SHAPE(64, 64, side, side)), 0.1, 0);
        kn_tensor *b = random_tensor(KN_F32, KN_SHAPE(64));
        kn_tensor *one = kn_reshape(kn_eye(64, 64), KN_SHAPE(64, 64, 1, 1));
        static const kn__conv_route ways[] = {KN_CONV_OURS, KN_CONV_WINOGRAD, KN_CONV_WINOGRAD,
                                              KN_CONV_WINOGRAD, KN_CONV_WINOGRAD};
        for (int i = 0; i < 5; i++) { /* layout 2 twice: made, and found again */
            KN_FRAME(.layout = i < 2 ? KN_OFF : i == 2 ? 1 : 2);
            kn__conv_prefer(ways[i]);
            kn_tensor *y = kn_conv(kn_conv(x, one, KN_NONE, NULL), w, b, &half);
            kn_tensor *z = kn_conv_add(y, w, b, kn_conv(y, w, KN_NONE, &half), &half);
            assert_non_null(kn_data(z));
            kn__conv_prefer(KN_CONV_TABLED);
            if (i == 0) want = kn_keep(z);
            for (int64_t k = 0; k < kn_tensor_numel(z); k++)
                assert_close(ops_at(z, k), ops_at(want, k), 1e-4, 1e-4);
        }
    }
}

/* Few frames, padded by 3 and more: oneDNN is not asked for these weights. */
static void weights_of_clips_are_right(void **state) {
    (void)state;
    static const int64_t cases[][4] = {
        /* depth, window, stride, padding */
        {4, 4, 2, 3}, {5, 5, 2, 3}, {7, 7, 2, 3}, {6, 6, 3, 4}, {8, 7, 3, 4}, {2, 7, 2, 5}};
    static const kn__conv_route ways[] = {KN_CONV_TABLED, KN_CONV_DNNL, KN_CONV_WINOGRAD,
                                          KN_CONV_MEASURED};
    for (size_t i = 0; i < 4 * sizeof cases / sizeof *cases; i++) {
        KN_FRAME(.threads = 2);
        const int64_t *n = cases[i / 4], out = (n[0] + 2 * n[3] - n[1]) / n[2] + 1;
        const kn_attr_conv attr = {.stride = {n[2], 1, 1},
                                   .dilation = {1, 1, 1},
                                   .padding = {n[3]},
                                   .padding_end = {n[3]},
                                   .groups = 1,
                                   .n_spatial = 3};
        kn_tensor *x[] = {random_tensor(KN_F32, KN_SHAPE(2, 3, n[0], 5, 7)),
                          random_tensor(KN_F32, KN_SHAPE(8, 3, n[1], 2, 3)),
                          random_tensor(KN_F32, KN_SHAPE(2, 8, out, 4, 5))};
        double error = error_of(ways[i % 4], 2, x, &attr);
        if (!(error < 1e-11)) fail_msg("case %d by way %d: %g", (int)i / 4, (int)i % 4, error);
    }
}

/* Steps and paddings that 31 bits hold, though not their sums, which oneDNN has in 32. */
static void the_largest_steps_are_right(void **state) {
    (void)state;
    const kn_attr_conv attr[] = {
        {{INT32_MAX, 1, 1}, {0}, {1}, {1, 1, 1}, 1, {0}, 1, 0, 0, 0},
        {{1 << 30, 1, 1}, {1 << 30}, {1 << 30}, {1, 1, 1}, 1, {0}, 1, 0, 0, 0}};
    for (int i = 0; i < 2; i++) {
        KN_FRAME();
        kn_tensor *x[3] = {random_tensor(KN_F32, KN_SHAPE(3, 16, 2)),
                           random_tensor(KN_F32, KN_SHAPE(16, 16, 3)),
                           random_tensor(KN_F32, KN_SHAPE(3, 16, 1 + i))};
        for (int which = 0; which < 3; which++) {
            assert_true(error_of(KN_CONV_DNNL, which, x, &attr[i]) < 1e-11);
            assert_true(error_of(KN_CONV_TABLED, which, x, &attr[i]) < 1e-11);
        }
    }
}

/* Windows as far apart as they are long, and others that differ in one thing. Ours copy them in two
 * ways, so they are compared with oneDNN's. */
static void patches_are_those_of_onednn(void **state) {
    (void)state;
    static const struct {
        int64_t in[2], window[2], stride[2], padding[3], dilation; /* padding: rows, left, right */
    } cases[] = {
        {{36, 72}, {4, 9}, {4, 9}, {0, 0}, 1},     {{64, 160}, {16, 16}, {16, 16}, {0, 0}, 1},
        {{20, 61}, {5, 10}, {2, 3}, {2, 0}, 1},    {{20, 60}, {5, 10}, {2, 3}, {2, 0}, 1},
        {{9, 100}, {1, 13}, {1, 2}, {0, 0}, 2},    {{1, 36}, {1, 8}, {1, 4}, {0, 0}, 1},
        {{12, 88}, {12, 11}, {12, 11}, {0, 0}, 1}, {{20, 61}, {5, 10}, {2, 3}, {2, 1}, 1},
        {{20, 60}, {5, 10}, {2, 3}, {2, 0, 2}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KN_FRAME(.threads = 2);
        const kn_attr_conv attr = {.stride = {cases[i].stride[0], cases[i].stride[1], 1},
                                   .dilation = {1, cases[i].dilation, 1},
                                   .padding = {cases[i].padding[0], cases[i].padding[1]},
                                   .padding_end = {cases[i].padding[0], cases[i].padding[2]},
                                   .groups = 1,
                                   .n_spatial = 2};
        kn_tensor *x[] = {
            random_tensor(KN_F32, KN_SHAPE(2, 3, cases[i].in[0], cases[i].in[1])),
            random_tensor(KN_F32, KN_SHAPE(9, 3, cases[i].window[0], cases[i].window[1])), NULL};
        x[2] = random_tensor(KN_F32, kn_tensor_shape(op_conv_attr(x[0], x[1], KN_NONE, &attr)));
        for (int which = 0; which < 3; which++) {
            kn__conv_prefer(KN_CONV_DNNL);
            kn_tensor *want = conv_pass(which, x[0], x[1], x[2], &attr, 2);
            kn__conv_prefer(KN_CONV_OURS);
            kn_tensor *got = conv_pass(which, x[0], x[1], x[2], &attr, 2);
            kn_tensor *wide = conv_pass(which, kn_cast(x[0], KN_F64), kn_cast(x[1], KN_F64),
                                        kn_cast(x[2], KN_F64), &attr, 2);
            kn__conv_prefer(KN_CONV_TABLED);
            for (int64_t k = 0; k < kn_tensor_numel(want); k++) {
                assert_close(ops_at(got, k), ops_at(want, k), 1e-4, 1e-4);
                assert_close(ops_at(wide, k), ops_at(want, k), 1e-4, 1e-4);
            }
        }
    }
}

static void patches_may_be_turned(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(2, 3, 20, 72));
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(4, 3, 4, 9));
    kn_conv_options options = {.stride = {4, 9}};
    kn_tensor *want = kn_conv(x, kn_flip(w, KN_SHAPE(2, 3)), KN_NONE, &options);
    options.flip = 1;
    kn_tensor *got = kn_conv(x, w, KN_NONE, &options);
    for (int64_t k = 0; k < kn_tensor_numel(want); k++)
        assert_close(ops_at(got, k), ops_at(want, k), 1e-4, 1e-4);
}

/* One filter bank that moves by 1, then by 2, and whose window is turned: its kept numbers differ.
 */
static void kept_weights_are_of_one_stride_and_window(void **state) {
    (void)state;
    static const kn_conv_options each = {.padding = {1, 1}},
                                 half = {.padding = {1, 1}, .stride = {2, 2}};
    for (int i = 0; i < 4; i++) {
        KN_FRAME(.threads = 2, .layout = 2);
        int64_t c = 64, tall = i < 2 ? 3 : 4;
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(32, c, 32, 32));
        kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(c, c, tall, 3)), *w_2 = w;
        if (i > 1) w_2 = kn_reshape(w, KN_SHAPE(c, c, 3, tall));
        kn__conv_prefer(KN_CONV_WINOGRAD);
        kn_tensor *one = kn_conv(x, i % 2 ? w_2 : w, KN_NONE, i == 0 ? &each : &half);
        kn_tensor *two = kn_conv(x, i % 2 ? w : w_2, KN_NONE, i == 1 ? &each : &half);
        assert_non_null(kn_data(one));
        assert_non_null(kn_data(two));
        kn__conv_prefer(KN_CONV_OURS);
        kn_tensor *want[] = {kn_conv(x, i % 2 ? w_2 : w, KN_NONE, i == 0 ? &each : &half),
                             kn_conv(x, i % 2 ? w : w_2, KN_NONE, i == 1 ? &each : &half)};
        kn__conv_prefer(KN_CONV_TABLED);
        for (int64_t k = 0; k < kn_tensor_numel(one); k++)
            assert_close(ops_at(one, k), ops_at(want[0], k), 1e-4, 1e-4);
        for (int64_t k = 0; k < kn_tensor_numel(two); k++)
            assert_close(ops_at(two, k), ops_at(want[1], k), 1e-4, 1e-4);
    }
}

static void work_space_is_some_mib_for_any_batch(void **state) {
    (void)state;
    if (kn__loops(KN_F32)->tile_columns < 16) skip();
    const shape s = {64, 64, 64, {64, 64}, {4, 4}, 2, {1, 1, 1, 1}}; /* 64 MiB */
    KN_FRAME(.threads = 2);
    const kn_attr_conv attr = attr_of(&s);
    kn_tensor *x[3];
    tensors_of(x, &s);
    kn_pool *pool = kn_frame_pool();
    kn__conv_prefer(KN_CONV_WINOGRAD);
    for (int which = 0; which < 3; which++) {
        kn_pool_stats before, after;
        kn_pool_stats_read(&before, sizeof before, pool);
        kn_pool_peaks_reset(pool);
        kn_tensor *y = conv_pass(which, x[0], x[1], x[2], &attr, 2);
        assert_non_null(y);
        kn_pool_stats_read(&after, sizeof after, pool);
        size_t own = (size_t)kn_tensor_numel(y) * sizeof(float);
        assert_in_range(after.live_bytes_max - before.live_bytes - own, 1 << 16, 12 << 20);
    }
    kn__conv_prefer(KN_CONV_TABLED);
}

/* DCGAN's layers, where a stride of 2 and a window of 4 save most sums. */
static void the_table_takes_windows_of_4(void **state) {
    (void)state;
    if (kn__loops(KN_F32)->tile_columns < 16) skip();
    kn__conv_sizes s = plain_sizes;
    s.batch = 64, s.channels = 128, s.outputs = 256;
    s.in[1] = s.in[2] = 16, s.out[1] = s.out[2] = 8, s.window[1] = s.window[2] = 4;
    s.stride[1] = s.stride[2] = 2;
    s.in_plane = 256, s.out_plane = 64, s.window_size = 16;
    for (int which = 0; which < 3; which++) {
        kn_tensor result = {.dtype = KN_F32};
        kn_op_call call = {.threads = 1, .out = {&result}};
        kn__conv_route way = KN_CONV_OURS;
        assert_int_equal(kn__conv_way(&way, &call, (kn__conv_pass)which, &s), KN_OK);
        assert_int_equal(way, KN_CONV_WINOGRAD);
    }
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(all_passes_are_right_on_any_threads), OPS_TEST(gradients_are_added),
        OPS_TEST(results_are_finished_in_planes_and_blocks), OPS_TEST(weights_of_clips_are_right),
        OPS_TEST(the_largest_steps_are_right), OPS_TEST(patches_are_those_of_onednn),
        OPS_TEST(patches_may_be_turned), OPS_TEST(kept_weights_are_of_one_stride_and_window),
        OPS_TEST(work_space_is_some_mib_for_any_batch), OPS_TEST(the_table_takes_windows_of_4));
}
