/* Pooling to a size, over everything, and back from windows, as PyTorch does it. */
#include "golden/pool.h"

#include "golden_arrays.h"

enum { N = 2 * 3 * 7 * 5 };

static kn_tensor *x_of(kn_dtype dtype, kn_shape shape) {
    return golden_array(dtype, shape, 37, 11, 211, 1.0 / 8, -13);
}

static void pooling_to_a_size_equals_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = x_of(dtype, KN_SHAPE(2, 3, 7, 5));
        GOLDEN(kn_adaptive_avgpool(x, KN_SHAPE(3, 2)), adaptive_avg);
        GOLDEN(kn_adaptive_avgpool(x, KN_SHAPE(7, 1)), adaptive_avg_even);
        GOLDEN(kn_adaptive_avgpool(x, KN_SHAPE(9, 5)), adaptive_avg_more);
        GOLDEN(kn_adaptive_maxpool(x, KN_SHAPE(3, 2)), adaptive_max);
        kn_tensor *line = kn_reshape(x, KN_SHAPE(2, 3, 35));
        kn_tensor *cube = kn_reshape(x, KN_SHAPE(1, 2, 3, 7, 5));
        GOLDEN(kn_adaptive_avgpool(line, KN_SHAPE(4)), adaptive_line);
        GOLDEN(kn_adaptive_maxpool(cube, KN_SHAPE(2, 3, 5)), adaptive_cube);
        GOLDEN(kn_global_avgpool(x), global_avg);
        GOLDEN(kn_global_maxpool(x), global_max);
        assert_shape(kn_global_maxpool(x), KN_SHAPE(2, 3, 1, 1));
        assert_shape(kn_adaptive_maxpool(x, KN_SHAPE(7, 5)), KN_SHAPE(2, 3, 7, 5));
    }
}

/* Lines longer than those that the host adds up once for all windows of a row. */
static void wide_lines_are_averaged_too(void **state) {
    (void)state;
    enum { WIDE = 3001, PARTS = 7 };
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *line = kn_cast(kn_arange(0, 10 * WIDE, 1, KN_F64), dtype);
        kn_tensor *x = kn_reshape(kn_sin(line), KN_SHAPE(1, 2, 5, WIDE));
        kn_tensor *y = kn_adaptive_avgpool(x, KN_SHAPE(2, PARTS));
        for (int64_t i = 0; i < kn_tensor_numel(y); i++) {
            int64_t at = i % PARTS, row = i / PARTS % 2, from = at * WIDE / PARTS;
            int64_t end = ((at + 1) * WIDE + PARTS - 1) / PARTS;
            double sum = 0;
            for (int64_t h = row * 5 / 2; h < (row * 5 + 6) / 2; h++)
                for (int64_t w = from; w < end; w++)
                    sum += ops_at(x, (i / PARTS / 2 * 5 + h) * WIDE + w);
            assert_close(ops_at(y, i), sum / 3 / (double)(end - from), 1e-5, 1e-5);
        }
    }
}

static void check_ones(kn_tensor *y) {
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) assert_close(ops_at(y, i), 1, 0, 0);
}

/* Planes alone and, of 16 channels, those that stand side by side in blocks. */
static void averages_of_ones_are_one(void **state) {
    (void)state;
    const kn_pooling_options dense = {.stride = {1, 1}};
    FOR_BOTH_DTYPES(dtype) {
        for (int64_t n = 1; n <= 53; n++) {
            KN_FRAME(.dtype = dtype);
            kn_tensor *x = kn_ones(KN_SHAPE(1, 1, n, 2 * n + 20)),
                      *wide = kn_ones(KN_SHAPE(1, 16, 7, n));
            check_ones(kn_avgpool(x, KN_SHAPE(n, n), NULL));
            check_ones(kn_avgpool(x, KN_SHAPE(1, n), &dense));
            check_ones(kn_avgpool(wide, KN_SHAPE(7, n), NULL));
            check_ones(kn_adaptive_avgpool(x, KN_SHAPE(1, 2)));
            check_ones(kn_global_avgpool(x));
        }
    }
}

static void unpooling_puts_maxima_back_as_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = x_of(dtype, KN_SHAPE(2, 3, 7, 5)), *y, *offsets;
        const kn_pooling_options padded = {.stride = {3, 3}, .padding = {1, 1}};
        assert_ok(kn_maxpool_index(&y, &offsets, x, KN_SHAPE(2, 2), NULL));
        assert_int_equal(kn_tensor_dtype(offsets), KN_U8);
        GOLDEN(kn_maxunpool(y, offsets, KN_SHAPE(2, 2), KN_SHAPE(7, 5), NULL), maxunpool);
        assert_shape(kn_maxunpool(y, offsets, KN_SHAPE(2, 2), KN_SCALAR, NULL),
                     KN_SHAPE(2, 3, 6, 4));
        assert_ok(kn_maxpool_index(&y, &offsets, x, KN_SHAPE(3, 3), &padded));
        GOLDEN(kn_maxunpool(y, offsets, KN_SHAPE(3, 3), KN_SHAPE(7, 5), &padded), maxunpool_padded);
        kn_tensor *part = kn_slice(x, KN_SHAPE(0, 0, 0, 0), KN_SHAPE(2, 3, 3, 2));
        GOLDEN(kn_unpool(part, KN_SHAPE(2, 2), NULL), unpool);
    }
}

/* The longer lines have windows of more than 256 elements. */
static void windows_of_any_two_sizes_have_their_elements(void **state) {
    (void)state;
    KN_FRAME();
    for (int64_t n = 1; n <= 20; n++) {
        int64_t in = n < 18 ? n : 250 * n + 1;
        for (int64_t out = 1; out <= 19; out++) {
            kn_tensor *x = kn_reshape(kn_arange(0, (double)in, 1, KN_F32), KN_SHAPE(1, 1, in));
            kn_tensor *most = kn_adaptive_maxpool(x, KN_SHAPE(out));
            kn_tensor *mean = kn_adaptive_avgpool(x, KN_SHAPE(out));
            for (int64_t i = 0; i < out; i++) {
                double first = (double)(i * in / out), last = (double)(((i + 1) * in - 1) / out);
                assert_close(ops_at(most, i), last, 0, 0);
                assert_close(ops_at(mean, i), (first + last) / 2, in < 18 ? 1e-6 : 1e-5, 1e-6);
            }
        }
    }
}

static void long_windows_that_are_even_have_their_elements(void **state) {
    (void)state;
    enum { H = 40, W = 34 };
    KN_FRAME();
    kn_tensor *line = kn_sin(kn_affine(kn_arange(0, 2 * H * W, 1, KN_F32), 0.7, 0));
    kn_tensor *x = kn_reshape(line, KN_SHAPE(1, 2, H, W));
    for (int64_t out = 1; out <= 2; out++) {
        kn_tensor *y = kn_adaptive_maxpool(x, KN_SHAPE(2, out));
        assert_shape(y, KN_SHAPE(1, 2, 2, out));
        for (int64_t i = 0; i < 4 * out; i++) {
            double most = -INFINITY;
            int64_t row = i / out * (H / 2), column = i % out * (W / out);
            for (int64_t k = 0; k < H / 2 * (W / out); k++)
                most = fmax(most, ops_at(x, (row + k / (W / out)) * W + column + k % (W / out)));
            assert_close(ops_at(y, i), most, 0, 0);
        }
    }
}

/* A window larger than x is one, which ends beyond it. */
static void what_ceil_pools_is_put_back(void **state) {
    (void)state;
    KN_FRAME();
    const kn_pooling_options o = {.ceil = 1};
    kn_tensor *x = F32(KN_SHAPE(1, 1, 1, 5), 1, 3, 2, 5, 4), *y, *offsets;
    assert_ok(kn_maxpool_index(&y, &offsets, x, KN_SHAPE(3, 3), &o));
    assert_values(y, 3, 5);
    assert_values(kn_maxunpool(y, offsets, KN_SHAPE(3, 3), KN_SHAPE(1, 5), &o), 0, 3, 0, 5, 0);
    assert_op_fails(kn_maxunpool(y, offsets, KN_SHAPE(3, 3), KN_SHAPE(1, 5), NULL), KN_ERR_SHAPE,
                    "size[0] is 1; it doesn't have 1 windows");
    assert_op_fails(kn_maxunpool(y, offsets, KN_SHAPE(4, 3), KN_SHAPE(1, 5),
                                 &(kn_pooling_options){.ceil = 1, .stride = {3, 3}}),
                    KN_ERR_SHAPE, "size[0] is 1; it doesn't have 1 windows");
}

static void bad_input_gives_a_message(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 4, 4)), *flat = kn_ones(KN_SHAPE(3, 4));
    assert_op_fails(kn_adaptive_avgpool(x, KN_SHAPE(2)), KN_ERR_SHAPE, "size has 1");
    assert_op_fails(kn_adaptive_avgpool(x, KN_SHAPE(2, 0)), KN_ERR_SHAPE,
                    "kn_adaptive_avgpool: size[1] is 0 of 4 elements; both must be in 1");
    assert_op_fails(kn_adaptive_maxpool(kn_zeros(KN_SHAPE(1, 1, 0)), KN_SHAPE(2)), KN_ERR_SHAPE,
                    "size[0] is 2 of 0 elements");
    assert_op_fails(kn_global_avgpool(flat), KN_ERR_SHAPE,
                    "kn_global_avgpool: x must be [B,C,spatial…]");
    kn_tensor *vast = kn_zeros(KN_SHAPE(0, 1, 12884901889)); /* its product by the size wraps */
    assert_op_fails(kn_adaptive_avgpool(vast, KN_SHAPE(5726623061)), KN_ERR_SHAPE,
                    "size[0] is 5726623061 of 12884901889 elements");
    const uint8_t places[] = {0, 1, 2, 4};
    kn_tensor *small = kn_ones(KN_SHAPE(1, 1, 2, 2));
    kn_tensor *wrong = kn_tensor_from(places, KN_U8, KN_SHAPE(1, 1, 2, 2));
    assert_op_fails(kn_maxunpool(small, wrong, KN_SHAPE(2, 2), KN_SCALAR, NULL), KN_ERR_INVALID,
                    "kn_maxunpool: offset 4 of element 3 is outside");
    const kn_pooling_options padded = {.stride = {2, 2}, .padding = {1, 1}};
    assert_op_fails(kn_maxunpool(small, wrong, KN_SHAPE(3, 3), KN_SCALAR, &padded), KN_ERR_INVALID,
                    "offset 0 of element 0 is outside");
    assert_op_fails(kn_maxunpool(small, wrong, KN_SHAPE(2, 2), KN_SHAPE(9, 4), NULL), KN_ERR_SHAPE,
                    "size[0] is 9; it doesn't have 2 windows");
    assert_op_fails(kn_maxunpool(small, kn_cast(wrong, KN_I64), KN_SHAPE(2, 2), KN_SCALAR, NULL),
                    KN_ERR_DTYPE, "offsets must be u8");
    assert_op_fails(kn_unpool(small, KN_SHAPE(2), NULL), KN_ERR_SHAPE, "window has 1");
    assert_op_fails(kn_unpool(small, KN_SHAPE(0, 2), NULL), KN_ERR_SHAPE,
                    "kn_unpool: window[0] is 0; it must be at least 1");
    assert_op_fails(kn_unpool(small, KN_SHAPE(3, 3), &(kn_pooling_options){.padding = {5}}),
                    KN_ERR_SHAPE,
                    "kn_unpool: padding[0] is 5; it must be at most half the window's 3");
    kn_tensor *y, *offsets;
    assert_fails(kn_maxpool_index(&y, &offsets, x, KN_SHAPE(5, 5), NULL), KN_ERR_SHAPE,
                 "does not fit");
    assert_null(y);
}

static void values_or_offsets_alone_are_had(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 2, 4), 1, 2, 8, 3, 4, 0, 5, 6), *values = NULL,
              *offsets = NULL;
    assert_ok(kn_maxpool_index(&values, NULL, x, KN_SHAPE(2, 2), NULL));
    assert_values(values, 4, 8);
    assert_ok(kn_maxpool_index(NULL, &offsets, x, KN_SHAPE(2, 2), NULL));
    assert_values(kn_cast(offsets, KN_F32), 2, 0);
    assert_fails(kn_maxpool_index(NULL, NULL, x, KN_SHAPE(2, 2), NULL), KN_ERR_INVALID,
                 "kn_maxpool_index: values and offsets are NULL");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(pooling_to_a_size_equals_pytorch), OPS_TEST(wide_lines_are_averaged_too),
        OPS_TEST(averages_of_ones_are_one), OPS_TEST(unpooling_puts_maxima_back_as_pytorch),
        OPS_TEST(windows_of_any_two_sizes_have_their_elements),
        OPS_TEST(long_windows_that_are_even_have_their_elements),
        OPS_TEST(what_ceil_pools_is_put_back), OPS_TEST(values_or_offsets_alone_are_had),
        OPS_TEST(bad_input_gives_a_message));
}
