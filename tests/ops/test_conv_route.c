/* Who convolves, by shape; and what Winograd's way costs in precision and memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conv_sizes.h"
#include "host/base/loops.h"

static kn__conv_route way_of(const kn__conv_sizes *s, kn_dtype dtype, kn__conv_pass which) {
    kn_tensor result = {.dtype = (uint8_t)dtype};
    kn_op_call call = {.threads = 1};
    kn__conv_route way = KN_CONV_OURS;
    call.out[0] = &result;
    assert_int_equal(kn__conv_way(&way, &call, which, s), KN_OK);
    return way;
}

/* Whether a pass is by our direct sums. */
static bool is_ours(const kn__conv_sizes *s, kn_dtype dtype, kn__conv_pass which) {
    return way_of(s, dtype, which) == KN_CONV_OURS;
}

static void flips_and_doubles_stay_ours(void **state) {
    (void)state;
    kn__conv_sizes s = plain_sizes;
    kn__conv_prefer(KN_CONV_DNNL);
    for (int pass_i = KN_PASS_FORWARD; pass_i <= KN_PASS_WEIGHT; pass_i++) {
        assert_false(is_ours(&s, KN_F32, (kn__conv_pass)pass_i));
        assert_true(is_ours(&s, KN_F64, (kn__conv_pass)pass_i));
        s.flip = true;
        assert_true(is_ours(&s, KN_F32, (kn__conv_pass)pass_i));
        s.flip = false;
    }
    kn__conv_prefer(KN_CONV_TABLED);
}

/* A batch of squares without padding or steps. */
static kn__conv_sizes squares(int64_t batch, int64_t channels, int64_t outputs, int64_t in,
                              int64_t window) {
    kn__conv_sizes s = plain_sizes;
    int64_t out = in - window + 1;
    s.batch = batch, s.channels = channels, s.outputs = outputs;
    s.padding[1] = s.padding[2] = s.padding_end[1] = s.padding_end[2] = 0;
    s.in[1] = s.in[2] = in, s.out[1] = s.out[2] = out, s.window[1] = s.window[2] = window;
    s.in_plane = in * in, s.out_plane = out * out, s.window_size = window * window;
    return s;
}

static void many_channels_are_not_summed_by_us_and_few_are(void **state) {
    (void)state;
    kn__conv_sizes many = squares(32, 256, 256, 14, 3), first = squares(128, 1, 20, 28, 5),
                   second = squares(128, 20, 50, 12, 5); /* LeNet's */
    for (int pass_i = KN_PASS_FORWARD; pass_i <= KN_PASS_WEIGHT; pass_i++) {
        assert_false(is_ours(&many, KN_F32, (kn__conv_pass)pass_i));
        assert_true(is_ours(&first, KN_F32, (kn__conv_pass)pass_i));
        assert_true(is_ours(&second, KN_F32, (kn__conv_pass)pass_i));
    }
}

/* The library spreads images over threads, our product of a window of one spreads anything, our
 * sums straight from the planes spread images too: of one image each way counts with its threads.
 */
static void one_image_takes_the_way_that_uses_threads(void **state) {
    (void)state;
    kn__conv_sizes product = squares(1, 512, 128, 28, 1), direct = squares(1, 64, 64, 20, 5);
    assert_true(is_ours(&product, KN_F32, KN_PASS_DATA));
    assert_false(is_ours(&direct, KN_F32, KN_PASS_DATA));
}

static void one_way_is_measured_and_kept(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    const kn_conv_options same = {.padding = {1, 1}};
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(16, 32, 12, 12)),
              *w = random_tensor(KN_F32, KN_SHAPE(32, 32, 3, 3)), *y[3];
    for (int i = 0; i < 3; i++) {
        kn__conv_prefer((kn__conv_route)(KN_CONV_OURS + i));
        y[i] = kn_conv(x, w, KN_NONE, &same);
    }
    size_t bytes = (size_t)kn_tensor_numel(y[0]) * sizeof(float);
    assert_memory_not_equal(kn_data(y[0]), kn_data(y[1]), bytes); /* their sums round otherwise */
    kn__conv_prefer(KN_CONV_MEASURED);
    kn_tensor *first = kn_conv(x, w, KN_NONE, &same);
    int fastest = 0;
    while (fastest < 2 && memcmp(kn_data(first), kn_data(y[fastest]), bytes) != 0) fastest++;
    for (int i = 0; i < 20; i++) assert_same_bits(kn_conv(x, w, KN_NONE, &same), y[fastest]);
    kn__conv_prefer(KN_CONV_TABLED);
}

static void winograd_errs_by_2e_12_at_most(void **state) {
    (void)state;
    static const int64_t sides[] = {7, 14, 33};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        KN_FRAME();
        int64_t side = sides[i];
        const kn_attr_conv attr = {.stride = {1, 1, 1},
                                   .dilation = {1, 1, 1},
                                   .padding = {1, 1},
                                   .padding_end = {1, 1},
                                   .groups = 1,
                                   .n_spatial = 2};
        kn_tensor *x[] = {random_tensor(KN_F32, KN_SHAPE(32, 64, side, side)),
                          random_tensor(KN_F32, KN_SHAPE(48, 64, 3, 3)),
                          random_tensor(KN_F32, KN_SHAPE(32, 48, side, side))};
        for (int which = 0; which < 3; which++) {
            double error = error_of(KN_CONV_WINOGRAD, which, x, &attr);
            if (error >= 1.5e-12) fail_msg("pass %d of side %d: %g", which, (int)side, error);
        }
    }
}

static void uneven_padding_is_right_by_each_way(void **state) {
    (void)state;
    static const int64_t shapes[][5] = {
        {4, 16, 16, 8, 9}, {5, 17, 32, 13, 6}, {16, 32, 64, 28, 28}};
    static const int64_t paddings[][4] = {{0, 1},       {1, 0},       {0, 2},       {2, 1},
                                          {0, 0, 0, 1}, {1, 1, 1, 0}, {0, 1, 1, 0}, {0, 0, 2, 1},
                                          {9, 1},       {1, 14},      {0, 0, 9, 1}, {11, 9, 1, 13}};
    for (size_t i = 0; i < 3 * sizeof paddings / sizeof *paddings; i++) {
        KN_FRAME();
        const int64_t *n = shapes[i % 3], *pad = paddings[i / 3]; /* top, bottom, left, right */
        const kn_attr_conv attr = {.stride = {1, 1, 1},
                                   .dilation = {1, 1, 1},
                                   .padding = {pad[0], pad[2]},
                                   .padding_end = {pad[1], pad[3]},
                                   .groups = 1,
                                   .n_spatial = 2};
        kn_tensor *x[] = {random_tensor(KN_F32, KN_SHAPE(n[0], n[1], n[3], n[4])),
                          random_tensor(KN_F32, KN_SHAPE(n[2], n[1], 3, 3)),
                          random_tensor(KN_F32, KN_SHAPE(n[0], n[2], n[3] + pad[0] + pad[1] - 2,
                                                         n[4] + pad[2] + pad[3] - 2))};
        for (int which = 0; which < 6; which++) {
            kn__conv_route way = which < 3 ? KN_CONV_WINOGRAD : KN_CONV_TABLED;
            double error = error_of(way, which % 3, x, &attr);
            if (error >= 1e-11)
                fail_msg("pass %d by way %d, shape %d, padding %d: %g", which % 3, way,
                         (int)(i % 3), (int)(i / 3), error);
        }
    }
}

static kn_attr_conv window_of_3(int64_t padding) {
    return (kn_attr_conv){.stride = {1, 1, 1},
                          .dilation = {1, 1, 1},
                          .padding = {padding, padding},
                          .padding_end = {padding, padding},
                          .groups = 1,
                          .n_spatial = 2};
}

/* Channels that fill no vector, more than a unit takes at once, and more than have their weights'
 * numbers at a time; planes smaller than a tile, images that share a unit, and long rows. */
static void winograd_takes_all_sizes(void **state) {
    (void)state;
    static const int64_t shapes[][6] = {/* batch, channels, outputs, sides, padding */
                                        {2, 16, 16, 8, 8, 1},   {1, 9, 11, 1, 1, 1},
                                        {3, 17, 33, 13, 6, 0},  {19, 40, 24, 4, 4, 1},
                                        {2, 300, 260, 7, 7, 1}, {1, 12, 20, 5, 100, 2},
                                        {4, 33, 48, 9, 40, 1},  {9, 140, 30, 3, 2, 2},
                                        {1, 8, 16, 3, 3, 0},    {2, 20, 64, 30, 31, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        KN_FRAME();
        const int64_t *n = shapes[i], pad = n[5];
        const kn_attr_conv attr = window_of_3(pad);
        kn_tensor *x[] = {
            random_tensor(KN_F32, KN_SHAPE(n[0], n[1], n[3], n[4])),
            random_tensor(KN_F32, KN_SHAPE(n[2], n[1], 3, 3)),
            random_tensor(KN_F32, KN_SHAPE(n[0], n[2], n[3] + 2 * pad - 2, n[4] + 2 * pad - 2))};
        for (int which = 0; which < 3; which++) {
            double error = error_of(KN_CONV_WINOGRAD, which, x, &attr);
            if (error >= 5e-12) fail_msg("pass %d of shape %d: %g", which, (int)i, error);
            kn__conv_prefer(KN_CONV_WINOGRAD);
            kn_tensor *one = conv_pass(which, x[0], x[1], x[2], &attr, 1);
            kn_tensor *three = conv_pass(which, x[0], x[1], x[2], &attr, 3);
            kn__conv_prefer(KN_CONV_TABLED);
            assert_same_bits(one, three);
        }
    }
}

/* 3x3 windows of some channels; other steps and groups stay direct, and few tiles of many
 * channels, whose weights cost more than they save. */
static void winograd_is_for_windows_of_3(void **state) {
    (void)state;
    if (kn__loops(KN_F32)->tile_columns < 16) skip();
    kn__conv_sizes s = plain_sizes;
    s.batch = 32, s.channels = s.outputs = 64;
    s.in[1] = s.in[2] = s.out[1] = s.out[2] = 28;
    s.in_plane = s.out_plane = 28 * 28;
    for (int which = 0; which < 3; which++) {
        assert_int_equal(way_of(&s, KN_F32, (kn__conv_pass)which), KN_CONV_WINOGRAD);
        kn__conv_sizes other = s;
        other.batch = 1;
        assert_int_equal(way_of(&other, KN_F32, (kn__conv_pass)which), KN_CONV_WINOGRAD);
        other = s, other.dilation[1] = other.dilation[2] = 2;
        assert_int_not_equal(way_of(&other, KN_F32, (kn__conv_pass)which), KN_CONV_WINOGRAD);
        other = s, other.groups = 2;
        assert_int_not_equal(way_of(&other, KN_F32, (kn__conv_pass)which), KN_CONV_WINOGRAD);
        other = s, other.channels = 3;
        assert_int_not_equal(way_of(&other, KN_F32, (kn__conv_pass)which), KN_CONV_WINOGRAD);
        other = s, other.batch = 1, other.channels = other.outputs = 1024;
        other.in[1] = other.in[2] = other.out[1] = other.out[2] = 4;
        other.in_plane = other.out_plane = 16;
        assert_int_not_equal(way_of(&other, KN_F32, (kn__conv_pass)which), KN_CONV_WINOGRAD);
    }
}

/* NMSE of all three passes of x [B,C,in…] by a way. */
static void assert_passes(kn__conv_route way, const kn_attr_conv *attr, kn_shape in,
                          kn_shape window, const char *name) {
    KN_FRAME(.threads = 2);
    kn_tensor *x[3] = {random_tensor(KN_F32, in), random_tensor(KN_F32, window), NULL};
    x[2] = random_tensor(KN_F32, kn_tensor_shape(op_conv_attr(x[0], x[1], KN_NONE, attr)));
    for (int which = 0; which < 3; which++) {
        double error = error_of(way, which, x, attr);
        if (!(error < 1e-11)) fail_msg("pass %d of %s: %g", which, name, error);
    }
}

/* Convolutions that differ in one size, stride or dilation from those of 3x3 windows. */
static void other_windows_are_right_by_winograd(void **state) {
    (void)state;
    const kn_shape in = KN_SHAPE(2, 16, 12, 11), window = KN_SHAPE(16, 16, 3, 3);
    static const kn__conv_route way = KN_CONV_WINOGRAD;
    kn_attr_conv attr = window_of_3(1);
    attr.stride[0] = 2;
    assert_passes(way, &attr, in, window, "steps down");
    attr = window_of_3(1), attr.stride[1] = 2;
    assert_passes(way, &attr, in, window, "steps to the right");
    attr = window_of_3(1), attr.dilation[0] = 2;
    assert_passes(way, &attr, in, window, "dilation down");
    attr = window_of_3(1), attr.dilation[1] = 2;
    assert_passes(way, &attr, in, window, "dilation to the right");
    attr = window_of_3(1), attr.flip = 1;
    assert_passes(way, &attr, in, window, "a flip");
    attr = window_of_3(1);
    assert_passes(way, &attr, in, KN_SHAPE(16, 16, 1, 3), "1x3");
    assert_passes(way, &attr, in, KN_SHAPE(16, 16, 3, 1), "3x1");
    assert_passes(way, &attr, in, KN_SHAPE(16, 16, 2, 3), "2x3");
    attr.groups = 2;
    assert_passes(way, &attr, in, KN_SHAPE(16, 8, 3, 3), "groups");
    kn_attr_conv deep = {.stride = {1, 1, 1},
                         .dilation = {1, 1, 1},
                         .padding = {0, 1, 1},
                         .padding_end = {0, 1, 1},
                         .groups = 1,
                         .n_spatial = 3};
    assert_passes(way, &deep, KN_SHAPE(2, 16, 3, 7, 6), KN_SHAPE(16, 16, 1, 3, 3), "three planes");
    assert_passes(way, &deep, KN_SHAPE(2, 16, 1, 7, 6), KN_SHAPE(16, 16, 1, 3, 3), "one plane");
    deep.padding[0] = 1;
    assert_passes(way, &deep, KN_SHAPE(2, 16, 1, 7, 6), KN_SHAPE(16, 16, 1, 3, 3),
                  "padding before");
    deep.padding[0] = 0, deep.padding_end[0] = 1;
    assert_passes(way, &deep, KN_SHAPE(2, 16, 1, 7, 6), KN_SHAPE(16, 16, 1, 3, 3), "padding after");
    deep.padding[0] = deep.padding_end[0] = 1;
    assert_passes(way, &deep, KN_SHAPE(2, 16, 3, 7, 6), KN_SHAPE(16, 16, 3, 3, 3), "3x3x3");
}

/* act(conv + b + residual), of channels and outputs that fill no vector, a panel, two parts. */
static void winograd_finishes_as_direct_sums_do(void **state) {
    (void)state;
    static const int64_t shapes[][5] = {/* batch, channels, outputs, sides */
                                        {2, 9, 11, 5, 7},
                                        {3, 16, 48, 9, 6},
                                        {2, 20, 37, 13, 13},
                                        {1, 300, 260, 6, 5}};
    for (size_t i = 0; i < 16 * sizeof shapes / sizeof *shapes; i++) {
        KN_FRAME(.threads = 2);
        const int64_t *n = shapes[i / 16];
        const kn_conv_options o = {.padding = {1, 1}, .act = (kn_act)(i % 4 >> 1)};
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(n[0], n[1], n[3], n[4]));
        kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(n[2], n[1], 3, 3));
        kn_tensor *b = i % 2 ? random_tensor(KN_F32, KN_SHAPE(n[2])) : KN_NONE;
        kn_tensor *r = random_tensor(KN_F32, KN_SHAPE(n[0], n[2], n[3], n[4]));
        kn_tensor *b64 = b == KN_NONE ? b : kn_cast(b, KN_F64);
        r = i % 16 & 4 ? r : KN_NONE;
        kn_tensor *r64 = r == KN_NONE ? r : kn_cast(r, KN_F64);
        kn__conv_prefer(KN_CONV_WINOGRAD);
        kn_tensor *y = kn_conv_add(x, w, b, r, &o);
        kn__conv_prefer(KN_CONV_TABLED);
        kn_tensor *want = kn_conv_add(kn_cast(x, KN_F64), kn_cast(w, KN_F64), b64, r64, &o);
        double tol = 1e-5 * sqrt(9.0 * (double)n[1]);
        for (int64_t j = 0; j < kn_tensor_numel(want); j++)
            assert_close(ops_at(y, j), ops_at(want, j), tol, tol);
    }
}

/* Whether the tile of 4x4 results at (r, q) reads element (at_r, at_q) with padding 1. */
static bool tile_reads(int64_t r, int64_t q, int64_t at_r, int64_t at_q) {
    int64_t row = r / 4 * 4, column = q / 4 * 4;
    return at_r >= row - 1 && at_r <= row + 4 && at_q >= column - 1 && at_q <= column + 4;
}

/* y of x, or dx of dy: element (r, q) of image 1 is not finite. Others than the tiles that read it
 * are, and its neighbours are not. */
static void assert_stays_in_tiles(kn_tensor *y, int64_t r, int64_t q) {
    const kn_shape s = kn_tensor_shape(y);
    int64_t image = s.dim[1] * s.dim[2] * s.dim[3];
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) {
        int64_t at_r = i / s.dim[3] % s.dim[2], at_q = i % s.dim[3];
        bool finite = isfinite(ops_at(y, i));
        if (i / image != 1 || !tile_reads(at_r, at_q, r, q)) assert_true(finite);
        if (i / image == 1 && llabs(at_r - r) <= 1 && llabs(at_q - q) <= 1) assert_false(finite);
    }
}

/* 1 and 3 vectors of 16 outputs, so that panels have lanes beyond them. */
static void what_is_not_finite_stays_in_its_tiles(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {
        {3, 9, 13, 17}, {3, 12, 4, 4}, {4, 40, 3, 30}, {3, 16, 9, 9}};
    for (size_t i = 0; i < 4 * sizeof shapes / sizeof *shapes; i++) {
        KN_FRAME(.threads = 2);
        const int64_t *n = shapes[i / 4], c = n[1], r = n[2] / 2, q = (int64_t)(i % 2) * (n[3] - 1);
        const kn_attr_conv attr = window_of_3(1);
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(n[0], c, n[2], n[3]));
        kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(c, c, 3, 3));
        kn_tensor *dy = random_tensor(KN_F32, kn_tensor_shape(x));
        float bad = i % 4 > 1 ? NAN : INFINITY;
        float *at = x->data;
        at[((c + c - 1) * n[2] + r) * n[3] + q] = bad; /* the last channel of image 1 */
        kn__conv_prefer(KN_CONV_WINOGRAD);
        kn_tensor *y = conv_pass(0, x, w, dy, &attr, 2), *dx = conv_pass(1, dy, w, x, &attr, 2);
        kn_tensor *dw = conv_pass(2, x, w, dy, &attr, 2);
        kn__conv_prefer(KN_CONV_TABLED);
        assert_stays_in_tiles(y, r, q);
        assert_stays_in_tiles(dx, r, q);
        for (int64_t j = 0; j < c * c * 9; j++)
            if (j / 9 % c != c - 1) assert_true(isfinite(ops_at(dw, j)));
    }
}

/* One more sum into a gradient, of outputs in several parts and of few. */
static void winograd_adds_to_gradients(void **state) {
    (void)state;
    static const int64_t shapes[][5] = {{2, 9, 11, 5, 7}, {2, 300, 260, 6, 5}, {40, 20, 37, 9, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        KN_FRAME(.threads = 2);
        const int64_t *n = shapes[i];
        const kn_attr_conv attr = window_of_3(1);
        const kn_shape w_shape = KN_SHAPE(n[2], n[1], 3, 3);
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(n[0], n[1], n[3], n[4]));
        kn_tensor *dy = random_tensor(KN_F32, KN_SHAPE(n[0], n[2], n[3], n[4]));
        kn_tensor *into = random_tensor(KN_F32, w_shape);
        kn__conv_prefer(KN_CONV_WINOGRAD);
        kn_tensor *want = kn_add(into, op_conv_weight(x, dy, w_shape, &attr, NULL));
        assert_non_null(kn_data(want));
        assert_ptr_equal(op_conv_weight(x, dy, w_shape, &attr, into), into);
        kn__conv_prefer(KN_CONV_TABLED);
        assert_same_bits(into, want);
    }
}

/* Bytes beyond the result that a call needs; dx goes over dy if `over`. */
static size_t work_bytes(int which, kn_tensor *const x[3], const kn_attr_conv *attr, bool over) {
    kn_pool *pool = kn_frame_pool();
    kn_pool_stats before, after;
    kn_op_call call;
    kn_attr_conv sized = *attr;
    sized.size[0] = x[0]->dim[2], sized.size[1] = x[0]->dim[3];
    kn_pool_stats_read(&before, sizeof before, pool);
    kn_pool_peaks_reset(pool);
    kn_op_call_init(&call, KN_OP_conv_data, &sized, KN_LIST_(x[2], x[1]), 2);
    call.out[0] = x[2];
    call.given = 1;
    kn_tensor *y = over ? kn_op_run(&call) : conv_pass(which, x[0], x[1], x[2], attr, 2);
    assert_non_null(y);
    kn_pool_stats_read(&after, sizeof after, pool);
    size_t own = over ? 0 : (size_t)kn_tensor_numel(y) * sizeof(float);
    if (!over) kn_drop(y);
    return after.live_bytes_max - before.live_bytes - own;
}

static void winograd_takes_little_memory(void **state) {
    (void)state;
    if (kn__loops(KN_F32)->tile_columns < 16) skip();
    KN_FRAME(.threads = 2);
    const kn_attr_conv attr = window_of_3(1);
    kn_tensor *x[] = {random_tensor(KN_F32, KN_SHAPE(64, 64, 32, 32)),
                      random_tensor(KN_F32, KN_SHAPE(64, 64, 3, 3)),
                      random_tensor(KN_F32, KN_SHAPE(64, 64, 32, 32))}; /* 16 MiB */
    kn__conv_prefer(KN_CONV_WINOGRAD);
    for (int which = 0; which < 4; which++)
        assert_in_range(work_bytes(which % 3, x, &attr, which == 3), 1 << 16, 6 << 20);
    kn__conv_prefer(KN_CONV_TABLED);
}

/* dx over dy has the bits of dx in a place of its own: of each way, with slots and without. What is
 * measured is not run twice. */
static void dx_may_go_over_dy(void **state) {
    (void)state;
    static const struct {
        kn_dtype dtype;
        int64_t batch, channels, side, window, groups;
    } cases[] = {{KN_F32, 3, 5, 11, 3, 1},  {KN_F64, 3, 5, 11, 3, 1},   {KN_F32, 5, 32, 6, 3, 1},
                 {KN_F32, 2, 32, 12, 1, 1}, {KN_F32, 3, 3, 5, 1, 1},    {KN_F64, 2, 16, 4, 5, 2},
                 {KN_F32, 4, 16, 12, 3, 4}, {KN_F32, 8, 12, 9, 3, 12},  {KN_F32, 32, 32, 16, 3, 1},
                 {KN_F32, 2, 96, 28, 1, 1}, {KN_F32, 1, 160, 13, 3, 1}, {KN_F32, 17, 1, 8, 3, 1},
                 {KN_F32, 2, 272, 9, 3, 1}, {KN_F32, 2, 16, 90, 3, 1}};
    static const kn__conv_route ways[][2] = {{KN_CONV_OURS, KN_CONV_OURS},
                                             {KN_CONV_DNNL, KN_CONV_DNNL},
                                             {KN_CONV_WINOGRAD, KN_CONV_WINOGRAD},
                                             {KN_CONV_TABLED, KN_CONV_MEASURED}};
    for (size_t i = 0; i < 4 * sizeof cases / sizeof *cases; i++) {
        KN_FRAME(.threads = 2);
        const kn__conv_route *way = ways[i % 4];
        kn_dtype dtype = cases[i / 4].dtype;
        int64_t n = cases[i / 4].channels, side = cases[i / 4].side, window = cases[i / 4].window;
        int64_t groups = cases[i / 4].groups;
        kn_attr_conv attr = {.stride = {1, 1, 1},
                             .dilation = {1, 1, 1},
                             .padding = {window / 2, window / 2},
                             .padding_end = {window / 2, window / 2},
                             .groups = groups,
                             .n_spatial = 2};
        kn_tensor *w = random_tensor(dtype, KN_SHAPE(n, n / groups, window, window));
        kn_tensor *dy = random_tensor(dtype, KN_SHAPE(cases[i / 4].batch, n, side, side));
        kn__conv_prefer(way[0]);
        kn_tensor *apart = op_conv_data(dy, w, kn_tensor_shape(dy), &attr);
        attr.size[0] = attr.size[1] = side;
        kn_op_call over;
        kn_op_call_init(&over, KN_OP_conv_data, &attr, KN_LIST_(dy, w), 2);
        over.out[0] = dy;
        over.given = 1;
        kn__conv_prefer(way[1]);
        bool ran = kn_op_run(&over) != NULL;
        kn__conv_prefer(KN_CONV_TABLED);
        assert_true(ran);
        assert_same_bits(dy, apart);
    }
}

/* Fewer tiles of rows than blocks of them, and no whole number: the last blocks are empty. */
static void gradients_of_few_channels_and_many_outputs_are_right(void **state) {
    (void)state;
    kn__conv_prefer(KN_CONV_OURS);
    for (int64_t channels = 1; channels <= 24; channels += 11) {
        KN_FRAME(.threads = 2);
        const kn_attr_conv attr = window_of_3(1);
        kn_tensor *x = random_tensor(KN_F64, KN_SHAPE(18, channels, 5, 5));
        kn_tensor *dy = random_tensor(KN_F64, KN_SHAPE(18, 8192 / channels, 5, 5));
        kn_tensor *dw =
            conv_pass(2, x, kn_zeros(KN_SHAPE(8192 / channels, channels, 3, 3)), dy, &attr, 2);
        kn_tensor *last = op_conv_weight(
            x, kn_slice(dy, KN_SHAPE(0, 8192 / channels - 8, 0, 0), kn_tensor_shape(dy)),
            KN_SHAPE(8, channels, 3, 3), &attr, NULL); /* in parts */
        int64_t n = kn_tensor_numel(last), first = kn_tensor_numel(dw) - n;
        for (int64_t i = 0; i < n; i++)
            assert_close(ops_at(dw, first + i), ops_at(last, i), 1e-10, 1e-10);
    }
    kn__conv_prefer(KN_CONV_TABLED);
}

/* Not one part of 9 MiB an image. */
static void gradients_of_large_weights_take_few_parts(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_pool *pool = kn_frame_pool();
    kn_tensor *x = kn_zeros(KN_SHAPE(8, 512, 7, 7)), *w = kn_zeros(KN_SHAPE(512, 512, 3, 3));
    kn_tensor *dy = kn_zeros(KN_SHAPE(8, 512, 7, 7));
    const kn_attr_conv attr = {.stride = {1, 1, 1},
                               .dilation = {1, 1, 1},
                               .padding = {1, 1},
                               .padding_end = {1, 1},
                               .groups = 1,
                               .n_spatial = 2};
    size_t bytes = 512 * 512 * 9 * sizeof(float);
    for (int way = KN_CONV_OURS; way <= KN_CONV_DNNL; way++) {
        kn_pool_stats before, after;
        kn__conv_prefer((kn__conv_route)way);
        kn_pool_stats_read(&before, sizeof before, pool);
        kn_pool_peaks_reset(pool);
        kn_tensor *dw = conv_pass(KN_PASS_WEIGHT, x, w, dy, &attr, 2);
        kn__conv_prefer(KN_CONV_TABLED);
        assert_non_null(dw);
        kn_pool_stats_read(&after, sizeof after, pool);
        assert_in_range(after.live_bytes_max - before.live_bytes, bytes, 4 * bytes);
        kn_drop(dw);
    }
}

static void the_environment_chooses_the_route(void **state) {
    (void)state;
    static const struct {
        const char *word;
        bool many, few; /* who are by our direct sums */
    } cases[] = {{"table", false, true},
                 {"onednn", false, false},
                 {"winograd", false, false},
                 {"ours", true, true}};
    kn__conv_sizes many = squares(32, 256, 256, 14, 3), few = squares(128, 1, 20, 28, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn__conv_prefer((kn__conv_route)-1);
        setenv("KNET_CONV_ROUTE", cases[i].word, 1);
        assert_int_equal(is_ours(&many, KN_F32, KN_PASS_FORWARD), cases[i].many);
        assert_int_equal(is_ours(&few, KN_F32, KN_PASS_FORWARD), cases[i].few);
    }
    kn__conv_prefer((kn__conv_route)-1);
    setenv("KNET_CONV_ROUTE", "fast", 1);
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(1, 1, 3, 3)), *w = kn_ones(KN_SHAPE(1, 1, 3, 3));
    assert_null(kn_conv(x, w, KN_NONE, NULL));
    assert_int_equal(kn_check(), KN_ERR_INVALID);
    assert_non_null(strstr(kn_last_error()->message, "KNET_CONV_ROUTE is 'fast'; it must be"));
    unsetenv("KNET_CONV_ROUTE");
    assert_close(ops_at(kn_conv(x, w, KN_NONE, NULL), 0), 9, 0, 0);
    kn__conv_prefer(KN_CONV_TABLED);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(flips_and_doubles_stay_ours),
        OPS_TEST(many_channels_are_not_summed_by_us_and_few_are),
        OPS_TEST(one_image_takes_the_way_that_uses_threads), OPS_TEST(one_way_is_measured_and_kept),
        OPS_TEST(winograd_errs_by_2e_12_at_most), OPS_TEST(uneven_padding_is_right_by_each_way),
        OPS_TEST(winograd_takes_all_sizes), OPS_TEST(other_windows_are_right_by_winograd),
        OPS_TEST(winograd_finishes_as_direct_sums_do),
        OPS_TEST(what_is_not_finite_stays_in_its_tiles), OPS_TEST(winograd_adds_to_gradients),
        OPS_TEST(gradients_of_few_channels_and_many_outputs_are_right),
        OPS_TEST(winograd_is_for_windows_of_3), OPS_TEST(winograd_takes_little_memory),
        OPS_TEST(dx_may_go_over_dy), OPS_TEST(gradients_of_large_weights_take_few_parts),
        OPS_TEST(the_environment_chooses_the_route));
}
