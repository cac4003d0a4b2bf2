/* Resizing, pixel shuffles, windows and samples at the places of a grid: against PyTorch, threads,
 * bad arguments. */
#include "golden/image.h"

#include "golden_arrays.h"

static kn_tensor *x_of(kn_dtype dtype, kn_shape shape) {
    return golden_array(dtype, shape, 7, 3, 23, 0.125, -1.25);
}

#define RESIZED(x, size, ...) kn_resize(x, size, &(kn_resize_options){__VA_ARGS__})

static void resized_images_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = x_of(dtype, KN_SHAPE(2, 2, 3, 4));
        GOLDEN(kn_resize(x, KN_SHAPE(5, 3), NULL), nearest);
        GOLDEN(RESIZED(x, KN_SHAPE(5, 3), .mode = KN_RESIZE_EXACT), exact);
        GOLDEN(RESIZED(x, KN_SHAPE(5, 7), .mode = KN_RESIZE_LINEAR), linear);
        GOLDEN(RESIZED(x, KN_SHAPE(2, 7), .mode = KN_RESIZE_CORNERS), corners);
        GOLDEN(RESIZED(x, KN_SCALAR, .mode = KN_RESIZE_LINEAR, .scale = {1.6, 0.7}), scaled);
        kn_tensor *line = kn_reshape(x, KN_SHAPE(2, 2, 12));
        GOLDEN(RESIZED(line, KN_SHAPE(7), .mode = KN_RESIZE_LINEAR), line);
        kn_tensor *cube = kn_reshape(x, KN_SHAPE(1, 2, 2, 3, 4));
        GOLDEN(RESIZED(cube, KN_SHAPE(3, 2, 5), .mode = KN_RESIZE_LINEAR), cube);
    }
}

/* Element i of n takes element ⌊i·S/n⌋ of S; with a scale ⌊i/scale⌋. */
static void nearest_elements_are_those_of_the_formula(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{5, 3, 4}, {4, 6, 20}, {5, 3, 20}, {3, 7, 31}, {1, 1, 5}};
    for (int k = 0; k < 6; k++) {
        KN_FRAME();
        kn_tensor *x = x_of(KN_F32, KN_SHAPE(1, 1, 2, 3, 10)), *y;
        const double scale[3] = {2, 1, 2.05};
        const int64_t scaled[] = {4, 3, 20}, *n = k < 5 ? sizes[k] : scaled;
        if (k < 5)
            y = kn_resize(x, KN_SHAPE(n[0], n[1], n[2]), NULL);
        else
            y = RESIZED(x, KN_SCALAR, .scale = {scale[0], scale[1], scale[2]});
        assert_shape(y, KN_SHAPE(1, 1, n[0], n[1], n[2]));
        for (int64_t i = 0; i < n[0] * n[1] * n[2]; i++) {
            int64_t d = i / n[2] / n[1] * 2 / n[0], h = i / n[2] % n[1] * 3 / n[1];
            int64_t w = k < 5 ? i % n[2] * 10 / n[2] : (int64_t)((double)(i % n[2]) / scale[2]);
            assert_true(ops_at(y, i) == ops_at(x, (d * 3 + h) * 10 + w));
        }
    }
}

/* Their gradients are each other: fold(1 … n) is unfold's of the sum of y·(1 … n). */
static void windows_equal_those_of_pytorch(void **state) {
    (void)state;
    const kn_unfold_options o = {.stride = {1, 2}, .padding = {1, 2}, .dilation = {2, 1}};
    const kn_shape window = KN_SHAPE(2, 3), size = KN_SHAPE(3, 4);
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = x_of(dtype, KN_SHAPE(2, 2, 3, 4));
        GOLDEN(kn_unfold(x, window, &o), unfold);
        GOLDEN(kn_unfold(x, KN_SHAPE(3, 2), NULL), unfold_plain);
        kn_tensor *steps = kn_reshape(kn_arange(1, 2 * 12 * 9 + 1, 1, dtype), KN_SHAPE(2, 12, 9));
        GOLDEN(kn_fold(steps, size, window, &o), unfold_d);
        GOLDEN(kn_fold(x_of(dtype, KN_SHAPE(2, 12, 9)), size, window, &o), fold);
        kn_tensor *image = kn_reshape(kn_arange(1, 2 * 2 * 12 + 1, 1, dtype), KN_SHAPE(2, 2, 3, 4));
        GOLDEN(kn_unfold(image, window, &o), fold_d);
    }
    KN_FRAME();
    kn_tensor *cube = kn_reshape(kn_arange(0, 2 * 3 * 4 * 5, 1, KN_I32), KN_SHAPE(1, 2, 3, 4, 5));
    kn_tensor *columns = kn_unfold(cube, KN_SHAPE(3, 4, 5), NULL);
    assert_shape(columns, KN_SHAPE(1, 120, 1));
    assert_same_bits(kn_fold(columns, KN_SHAPE(3, 4, 5), KN_SHAPE(3, 4, 5), NULL), cube);
    assert_shape(kn_unfold(kn_zeros(KN_SHAPE(0, 2, 7)), KN_SHAPE(3), NULL), KN_SHAPE(0, 6, 5));
    kn_tensor *far = kn_unfold(kn_full(KN_SHAPE(1, 1, 3), INFINITY), KN_SHAPE(2), NULL);
    assert_true(isinf(ops_at(far, 0)) && isinf(ops_at(far, 3)));
}

static void affine_places_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *theta = golden_array(dtype, KN_SHAPE(2, 2, 3), 11, 5, 37, 0.0703125, -1.2);
        GOLDEN(kn_affine_grid(theta, 3, 4, false), affine_0);
        GOLDEN(kn_affine_grid(theta, 3, 4, true), affine_1);
        GOLDEN(kn_affine_grid(theta, 1, 4, true), affine_one);
    }
    KN_FRAME();
    kn_tensor *half = kn_affine_grid(kn_cast(kn_ones(KN_SHAPE(1, 2, 3)), KN_F16), 1, 2, false);
    assert_int_equal(kn_tensor_dtype(half), KN_F16);
    assert_close(ops_at(kn_cast(half, KN_F32), 0), 0.5, 0, 0);
    assert_close(ops_at(kn_cast(half, KN_F32), 2), 1.5, 0, 0);
}

static void pixel_shuffles_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        GOLDEN(kn_pixel_shuffle(x_of(dtype, KN_SHAPE(1, 8, 3, 2)), 2), shuffle);
        GOLDEN(kn_pixel_unshuffle(x_of(dtype, KN_SHAPE(2, 1, 4, 6)), 2), unshuffle);
    }
}

static void samples_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = x_of(dtype, KN_SHAPE(2, 2, 3, 4));
        kn_tensor *grid = golden_array(dtype, KN_SHAPE(2, 3, 2, 2), 11, 5, 37, 0.0703125, -1.2);
#define SAMPLES(...) kn_grid_sample(x, grid, &(kn_grid_options){__VA_ARGS__})
        GOLDEN(kn_grid_sample(x, grid, NULL), bilinear_zeros_0);
        GOLDEN(SAMPLES(.align_corners = 1), bilinear_zeros_1);
        GOLDEN(SAMPLES(.border = 1), bilinear_border_0);
        GOLDEN(SAMPLES(.border = 1, .align_corners = 1), bilinear_border_1);
        GOLDEN(SAMPLES(.nearest = 1), nearest_zeros_0);
        GOLDEN(SAMPLES(.nearest = 1, .align_corners = 1), nearest_zeros_1);
        GOLDEN(SAMPLES(.nearest = 1, .border = 1), nearest_border_0);
        GOLDEN(SAMPLES(.nearest = 1, .border = 1, .align_corners = 1), nearest_border_1);
    }
}

static void places_that_are_no_numbers_or_far_away_are_safe(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 1, 2), 3, 5);
    kn_tensor *grid = F32(KN_SHAPE(1, 1, 4, 2), INFINITY, 0, -1e30f, 0, 1e30f, 1e30f, NAN, NAN);
    const kn_grid_options border = {.border = 1, .align_corners = 1};
    assert_values(kn_grid_sample(x, grid, &border), 5, 3, 5, 3);
    kn_tensor *y = kn_grid_sample(x, grid, NULL);
    assert_true(ops_at(y, 0) == 0 && ops_at(y, 1) == 0 && ops_at(y, 2) == 0);
}

static void nearest_of_two_is_the_even_element(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 1, 5), 1, 2, 3, 4, 5);
    kn_tensor *grid = F32(KN_SHAPE(1, 1, 4, 2), -0.75f, 0, -0.25f, 0, 0.25f, 0, 0.75f, 0);
    const kn_grid_options o = {.nearest = 1, .align_corners = 1};
    assert_values(kn_grid_sample(x, grid, &o), 1, 3, 3, 5);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(3, 13, 29, 31));
    kn_tensor *grid = random_tensor(KN_F32, KN_SHAPE(3, 40, 17, 2)), *y[3], *z[3];
    static const int threads[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.threads = threads[i]);
        y[i] = kn_keep(RESIZED(x, KN_SHAPE(50, 60), .mode = KN_RESIZE_LINEAR));
        z[i] = kn_keep(kn_grid_sample(x, grid, NULL));
    }
    for (int i = 1; i < 3; i++) {
        assert_same_bits(y[0], y[i]);
        assert_same_bits(z[0], z[i]);
    }
}

static void bad_arguments_are_errors_with_the_values(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 4, 5)), *flat = kn_ones(KN_SHAPE(3, 4));
    assert_op_fails(kn_resize(x, KN_SHAPE(4), NULL), KN_ERR_SHAPE, "size has 1");
    assert_op_fails(kn_resize(flat, KN_SHAPE(4), NULL), KN_ERR_SHAPE, "[B,C,spatial…]");
    assert_op_fails(kn_resize(x, KN_SHAPE(4, 0), NULL), KN_ERR_SHAPE,
                    "dimension 3 has 5 elements; it can't have 0 (x");
    assert_op_fails(kn_resize(x, KN_SCALAR, NULL), KN_ERR_INVALID, "neither a size");
    assert_op_fails(RESIZED(x, KN_SCALAR, .scale = {0.1, 1}), KN_ERR_SHAPE, "scaled by 0.1");
    assert_op_fails(RESIZED(x, KN_SCALAR, .scale = {1e300, NAN}), KN_ERR_SHAPE, "scaled by 1e+300");
    assert_op_fails(RESIZED(x, KN_SHAPE(2, 2), .scale = {2}), KN_ERR_INVALID,
                    "both a size and a scale are given: scale[0] is 2");
    assert_op_fails(RESIZED(x, KN_SHAPE(2, 2), .mode = (kn_resize_mode)9), KN_ERR_INVALID,
                    "invalid mode 9");
    assert_op_fails(RESIZED(x, KN_SHAPE(2, 2), .reserved = {1}), KN_ERR_INVALID, "reserved[0]");
    assert_op_fails(RESIZED(x, KN_SHAPE(2, 2), .unused = 7), KN_ERR_INVALID, "unused");
    assert_op_fails(kn_resize(kn_zeros(KN_SHAPE(2, 3, 0)), KN_SHAPE(2), NULL), KN_ERR_SHAPE,
                    "has 0 elements");
    assert_shape(kn_resize(kn_zeros(KN_SHAPE(0, 3, 2)), KN_SHAPE(5), NULL), KN_SHAPE(0, 3, 5));
    assert_op_fails(kn_pixel_shuffle(x, 2), KN_ERR_SHAPE,
                    "kn_pixel_shuffle: r is 2; it must divide C twice");
    assert_op_fails(kn_pixel_unshuffle(x, 3), KN_ERR_SHAPE,
                    "kn_pixel_unshuffle: r is 3; it must divide H and W");
    assert_op_fails(kn_pixel_shuffle(flat, 2), KN_ERR_SHAPE, "of x [B,C,H,W]");
    assert_op_fails(kn_pixel_shuffle(x, 0), KN_ERR_SHAPE, "r is 0");
    kn_tensor *grid = kn_ones(KN_SHAPE(2, 3, 3, 2));
    assert_op_fails(kn_grid_sample(x, kn_ones(KN_SHAPE(2, 3, 3, 3)), NULL), KN_ERR_SHAPE,
                    "grid [B,N,M,2]");
    assert_op_fails(kn_grid_sample(kn_zeros(KN_SHAPE(2, 3, 0, 4)), grid, NULL), KN_ERR_SHAPE,
                    "x has no elements");
    assert_op_fails(kn_grid_sample(x, grid, &(kn_grid_options){.reserved = {0, 1}}), KN_ERR_INVALID,
                    "reserved[1]");
    assert_op_fails(kn_grid_sample(x, grid, &(kn_grid_options){.unused = 1}), KN_ERR_INVALID,
                    "unused");
    assert_op_fails(kn_grid_sample(x, kn_cast(grid, KN_F64), NULL), KN_ERR_DTYPE, "grid is f64");
}

static void bad_windows_and_maps_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 3, 4)), *flat = kn_ones(KN_SHAPE(3, 4));
    assert_op_fails(kn_unfold(x, KN_SHAPE(4, 1), NULL), KN_ERR_SHAPE,
                    "kn_unfold: a window of 4 does not fit in 3 elements of dimension 2");
    assert_op_fails(kn_unfold(x, KN_SHAPE(0, 1), NULL), KN_ERR_SHAPE, "a window of 0");
    assert_op_fails(kn_unfold(x, KN_SHAPE(1), NULL), KN_ERR_SHAPE, "the window has 1 dimensions");
    assert_op_fails(kn_unfold(flat, KN_SHAPE(1), NULL), KN_ERR_SHAPE, "x must be [B,C,spatial…]");
    assert_op_fails(kn_unfold(x, KN_SHAPE(1, 1), &(kn_unfold_options){.stride = {0, -2}}),
                    KN_ERR_INVALID, "kn_unfold: stride[1] is -2");
    assert_op_fails(kn_unfold(x, KN_SHAPE(1, 1), &(kn_unfold_options){.padding = {0, 0, 1}}),
                    KN_ERR_INVALID, "padding[2] is given for 2 spatial dimensions");
    assert_op_fails(kn_unfold(x, KN_SHAPE(1, 1), &(kn_unfold_options){.dilation = {1LL << 40}}),
                    KN_ERR_INVALID, "dilation[0] is 1099511627776");
    assert_op_fails(kn_fold(flat, KN_SHAPE(4), KN_SHAPE(2), NULL), KN_ERR_SHAPE,
                    "kn_fold: y must be [B, C·2, 3] for windows of 2 elements");
    assert_op_fails(kn_fold(kn_ones(KN_SHAPE(1, 3, 3)), KN_SHAPE(4), KN_SHAPE(2), NULL),
                    KN_ERR_SHAPE, "[B, C·2, 3]");
    assert_op_fails(kn_fold(x, KN_SCALAR, KN_SHAPE(2), NULL), KN_ERR_SHAPE, "size has 0");
    assert_op_fails(kn_affine_grid(x, 2, 2, false), KN_ERR_SHAPE, "theta must be [B,2,3]");
    assert_op_fails(kn_affine_grid(kn_ones(KN_SHAPE(1, 2, 3)), 2, 0, false), KN_ERR_SHAPE,
                    "h is 2 and w 0");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(resized_images_equal_those_of_pytorch),
        OPS_TEST(nearest_elements_are_those_of_the_formula),
        OPS_TEST(pixel_shuffles_equal_those_of_pytorch), OPS_TEST(windows_equal_those_of_pytorch),
        OPS_TEST(affine_places_equal_those_of_pytorch), OPS_TEST(samples_equal_those_of_pytorch),
        OPS_TEST(places_that_are_no_numbers_or_far_away_are_safe),
        OPS_TEST(nearest_of_two_is_the_even_element),
        OPS_TEST(any_number_of_threads_gives_the_same_bits),
        OPS_TEST(bad_windows_and_maps_are_errors),
        OPS_TEST(bad_arguments_are_errors_with_the_values));
}
