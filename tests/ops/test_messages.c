/* What errors say: the dimension, the function and the values that the caller knows. */
#include <knet/file.h>
#include <math.h>

#include "ops_test.h"

/* The op failed, with exactly this message. */
#define assert_says(expr, want, text)                                                              \
    do {                                                                                           \
        assert_null(expr);                                                                         \
        assert_int_equal(kn_check(), want);                                                        \
        assert_string_equal(kn_last_error()->message, text);                                       \
    } while (0)

static kn_tensor *ones_i64(kn_shape shape) { return kn_cast(kn_ones(shape), KN_I64); }

static void windows_name_the_dimension_of_the_image(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4, 6, 5)), *y = kn_ones(KN_SHAPE(2, 28, 1));
    assert_says(kn_unfold(x, KN_SHAPE(7, 1), NULL), KN_ERR_SHAPE,
                "kn_unfold: a window of 7 does not fit in 6 elements of dimension 2 (x [2,4,6,5])");
    assert_says(kn_fold(y, KN_SHAPE(6, 5), KN_SHAPE(6, 7), NULL), KN_ERR_SHAPE,
                "kn_fold: a window of 7 does not fit in 5 elements of dimension 3 (y [2,28,1])");
    assert_says(kn_fold(y, KN_SHAPE(6, -5), KN_SHAPE(6, 7), NULL), KN_ERR_SHAPE,
                "kn_fold: dimension 3 is -5 (y [2,28,1])");
}

#define RESIZED(x, size, ...) kn_resize(x, size, &(kn_resize_options){__VA_ARGS__})

static void resize_takes_a_size_or_a_scale(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4, 6, 5));
    assert_says(RESIZED(x, KN_SHAPE(3, 3), .scale = {2, 2}), KN_ERR_INVALID,
                "kn_resize: both a size and a scale are given: scale[0] is 2 (x [2,4,6,5])");
    assert_says(RESIZED(x, KN_SCALAR, .scale = {2, 2, 3}), KN_ERR_INVALID,
                "kn_resize: scale[2] is 3, but x has 2 spatial dimensions (x [2,4,6,5])");
    assert_says(kn_resize(x, KN_SCALAR, NULL), KN_ERR_INVALID,
                "kn_resize: neither a size nor a scale is given (x [2,4,6,5])");
    assert_says(kn_resize(x, KN_SHAPE(3), NULL), KN_ERR_SHAPE,
                "kn_resize: size has 1 entries, x has 2 spatial dimensions (x [2,4,6,5])");
}

static void pools_name_the_argument_that_is_wrong(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4, 6, 5)), *flat = kn_ones(KN_SHAPE(6, 5));
    const char *window = "window has 1 entries, x has 2 spatial dimensions (x [2,4,6,5])";
    assert_op_fails(kn_unpool(x, KN_SHAPE(2), NULL), KN_ERR_SHAPE, window);
    assert_op_fails(kn_maxpool(x, KN_SHAPE(2), NULL), KN_ERR_SHAPE, window);
    assert_op_fails(kn_maxunpool(x, kn_cast(x, KN_U8), KN_SHAPE(2, 2), KN_SHAPE(9), NULL),
                    KN_ERR_SHAPE, "size has 1 entries, x has 2 spatial dimensions");
    assert_says(kn_unpool(flat, KN_SHAPE(2), NULL), KN_ERR_SHAPE,
                "kn_unpool: x must be [B,C,spatial…] with one to three spatial dimensions (x "
                "[6,5])");
}

/* As kn_conv's. */
static void negative_options_of_pools_are_invalid(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(1, 2, 6, 5)), *w = kn_ones(KN_SHAPE(1, 2, 2, 2));
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.stride = {-1}}), KN_ERR_INVALID,
                    "stride[0] is -1; it must be at least 0");
    const kn_pooling_options bad[] = {{.stride = {-1}}, {.padding = {-1}}, {.dilation = {-1}}};
    for (int i = 0; i < 3; i++) {
        const char *text = "[0] is -1; it must be at least 0";
        assert_op_fails(kn_maxpool(x, KN_SHAPE(2, 2), &bad[i]), KN_ERR_INVALID, text);
        assert_op_fails(kn_avgpool(x, KN_SHAPE(2, 2), &bad[i]), KN_ERR_INVALID, text);
        assert_op_fails(kn_unpool(x, KN_SHAPE(2, 2), &bad[i]), KN_ERR_INVALID, text);
    }
    assert_op_fails(kn_maxpool(x, KN_SHAPE(-1, 2), NULL), KN_ERR_SHAPE, "window[0] is -1");
}

static void losses_of_no_classes_say_so(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *labels = ones_i64(KN_SHAPE(2));
    assert_says(kn_cross_entropy(kn_ones(KN_SHAPE(2, 0)), labels), KN_ERR_SHAPE,
                "kn_cross_entropy: there are no classes (logits [2,0], labels [2])");
    assert_says(kn_nll(kn_ones(KN_SHAPE(2, 0)), labels), KN_ERR_SHAPE,
                "kn_nll: there are no classes (log_probs [2,0], labels [2])");
    assert_op_fails(kn_cross_entropy(kn_ones(KN_SHAPE(0, 3)), ones_i64(KN_SHAPE(0))), KN_ERR_SHAPE,
                    "there are no elements to take the mean of");
}

static void the_size_of_recurrent_weights_names_its_function(void **state) {
    (void)state;
    assert_int_equal(kn_rnn_params(4, &(kn_rnn_options){.hidden = -1}), -1);
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_rnn_params: hidden is -1");
    assert_string_equal(kn_last_error()->op, "rnn_params");
}

static void products_show_the_shapes_that_were_given(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(2, 3)), *v = kn_ones(KN_SHAPE(3)), *number = kn_ones(KN_SCALAR);
    const kn_matmul_options trans_a = {.trans_a = 1};
    assert_says(kn_geam(a, v, 1, 1, NULL), KN_ERR_SHAPE,
                "kn_geam: a and b must be matrices (a [2,3], b [3])");
    assert_says(kn_geam(a, a, 1, 1, &trans_a), KN_ERR_SHAPE,
                "kn_geam: a transposed and b don't broadcast (a [2,3], b [2,3])");
    assert_says(kn_mv(a, number), KN_ERR_SHAPE,
                "kn_mv: x must have 1 to 7 dimensions (a [2,3], x [])");
    assert_says(kn_mv(ones_i64(KN_SHAPE(2, 3)), ones_i64(KN_SHAPE(3))), KN_ERR_DTYPE,
                "kn_mv: a is i64; it must be floating: f32, f64, f16 or bf16 (a [2,3], x [3])");
    assert_says(kn_outer(a, a), KN_ERR_SHAPE,
                "kn_outer: a and b must have one dimension (a [2,3], b [2,3])");
    assert_says(kn_outer(ones_i64(KN_SHAPE(3)), ones_i64(KN_SHAPE(4))), KN_ERR_DTYPE,
                "kn_outer: a is i64; it must be floating: f32, f64, f16 or bf16 (a [3], b [4])");
}

static void sums_of_products_show_their_operands(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(2, 3)), *i = ones_i64(KN_SHAPE(2, 3));
    assert_says(KN_EINSUM("ij,jk", a, a), KN_ERR_SHAPE,
                "kn_einsum: \"ij,jk\": j is 3 and 2 (x[0] [2,3], x[1] [2,3])");
    assert_says(KN_EINSUM("ijk", a), KN_ERR_SHAPE,
                "kn_einsum: \"ijk\": operand 0 has 2 dimensions and 3 letters (x[0] [2,3])");
    assert_says(KN_EINSUM("ij->iz", a), KN_ERR_INVALID,
                "kn_einsum: \"ij->iz\": no operand has the result's z (x[0] [2,3])");
    assert_says(KN_EINSUM("ij,jk", a), KN_ERR_INVALID,
                "kn_einsum: \"ij,jk\": 2 terms, 1 operands (x[0] [2,3])");
    assert_says(KN_EINSUM("ij,kj", i, i), KN_ERR_DTYPE,
                "kn_einsum: a is i64; it must be floating: f32, f64, f16 or bf16 (a [2,3], b "
                "[2,3])");
    assert_says(KN_EINSUM("ij,kj", a, i), KN_ERR_DTYPE,
                "kn_einsum: x[0] is f32, x[1] is i64; see kn_cast (x[0] [2,3], x[1] [2,3])");
    assert_int_equal(*(const int64_t *)kn_data(KN_EINSUM("ij,ij", i, i)), 6); /* no matmul */
}

static void lists_show_the_shapes_that_were_given(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(2, 3)), *b = kn_ones(KN_SHAPE(3, 2));
    assert_says(kn_stack((kn_tensor *[]){a, b}, 2, 0), KN_ERR_SHAPE,
                "kn_stack: x[1] does not have the shape of x[0] (x[0] [2,3], x[1] [3,2])");
    assert_says(kn_stack((kn_tensor *[]){a, ones_i64(KN_SHAPE(2, 3))}, 2, 0), KN_ERR_DTYPE,
                "kn_stack: x[0] is f32, x[1] is i64; see kn_cast (x[0] [2,3], x[1] [2,3])");
    assert_op_fails(kn_stack(&a, 0, 0), KN_ERR_INVALID, "n_x is 0; it must be 1 … 65535");
    kn_tensor *two = I64(KN_SHAPE(2), 0, 1), *three = I64(KN_SHAPE(3), 0, 1, 2);
    assert_says(kn_index(a, KN_ITEMS(KN_TAKE(two), KN_TAKE(three))), KN_ERR_SHAPE,
                "kn_index: shapes of indices don't broadcast (index[0] [2], index[1] [3])");
    assert_says(kn_repeat(a, -1, 0), KN_ERR_SHAPE,
                "kn_repeat: n is -1; it must be at least 0 (x [2,3])");
    kn_tensor *out[1];
    assert_fails(kn_chunk(out, a, 0, 0), KN_ERR_SHAPE,
                 "kn_chunk: n is 0; it must be at least 1 (x [2,3])");
}

static void wrong_numbers_stand_beside_the_shape(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(2, 3));
    assert_says(kn_one_hot(ones_i64(KN_SHAPE(4)), -1), KN_ERR_INVALID,
                "kn_one_hot: n is -1; it must be at least 0 (index [4])");
    assert_says(kn_one_hot(a, 3), KN_ERR_DTYPE,
                "kn_one_hot: index is f32; it must be i64, i32 or u8 (index [2,3])");
    assert_op_fails(kn_one_hot(NULL, 3), KN_ERR_INVALID, "kn_one_hot: index is NULL");
    assert_says(kn_quantile(a, 2, KN_ALL, false), KN_ERR_INVALID,
                "kn_quantile: q is 2; it must be in 0 … 1 (x [2,3])");
    assert_op_fails(kn_quantile(NULL, 2, KN_ALL, false), KN_ERR_INVALID, "kn_quantile: x is NULL");
    assert_op_fails(kn_histogram(a, -1, 0, 1), KN_ERR_INVALID, "hi - lo finite (x [2,3])");
    assert_says(kn_softshrink(a, -1), KN_ERR_INVALID,
                "kn_softshrink: p is -1; it must be at least 0 (x [2,3])");
    assert_says(kn_shuffle(a, 5, NULL), KN_ERR_INVALID,
                "kn_shuffle: axis is 5, x has 2 dimensions (x [2,3])");
    assert_says(kn_pinv(a, NAN), KN_ERR_INVALID,
                "kn_pinv: rtol is nan; it must be a number (a [2,3])");
    assert_says(kn_diff(a, -1, 0), KN_ERR_INVALID,
                "kn_diff: n is -1; it must be at least 0 (x [2,3])");
}

static void ranges_say_what_is_wrong(void **state) {
    (void)state;
    KN_FRAME();
    assert_says(kn_arange(0, 1, 0, KN_F32), KN_ERR_INVALID,
                "kn_arange: start is 0, stop 1, step 0: step must not be 0");
    assert_says(kn_arange(0, INFINITY, 1, KN_F32), KN_ERR_INVALID,
                "kn_arange: start is 0, stop inf, step 1: they must be finite");
    assert_says(kn_arange(0, 1e300, 1, KN_F32), KN_ERR_INVALID,
                "kn_arange: start is 0, stop 1e+300, step 1: too many elements");
    assert_says(kn_linspace(0, 1, -1), KN_ERR_INVALID,
                "kn_linspace: n is -1; it must be at least 0");
}

/* Whatever op computes the power. */
static void powers_have_their_name(void **state) {
    (void)state;
    KN_FRAME();
    static const double p[] = {0.5, -0.5, -1, 2};
    for (int i = 0; i < 4; i++) {
        assert_op_fails(kn_pow_scalar(ones_i64(KN_SHAPE(2)), p[i]), KN_ERR_DTYPE,
                        "kn_pow_scalar: x is i64");
        assert_string_equal(kn_last_error()->op, "pow_scalar");
    }
    assert_values(kn_pow_scalar(F32(KN_SHAPE(2), 4, 16), -0.5), 0.5, 0.25);
}

static void an_empty_path_is_named(void **state) {
    (void)state;
    KN_FRAME();
    assert_says(kn_npy_load(""), KN_ERR_INVALID, "kn_npy_load: path is empty");
    assert_says(kn_npy_load(NULL), KN_ERR_INVALID, "kn_npy_load: path is NULL");
    kn_file *f = NULL;
    assert_fails(kn_file_open(&f, ""), KN_ERR_INVALID, "kn_file_open: path is empty");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(windows_name_the_dimension_of_the_image), OPS_TEST(resize_takes_a_size_or_a_scale),
        OPS_TEST(pools_name_the_argument_that_is_wrong),
        OPS_TEST(negative_options_of_pools_are_invalid), OPS_TEST(losses_of_no_classes_say_so),
        OPS_TEST(the_size_of_recurrent_weights_names_its_function),
        OPS_TEST(products_show_the_shapes_that_were_given),
        OPS_TEST(sums_of_products_show_their_operands),
        OPS_TEST(lists_show_the_shapes_that_were_given),
        OPS_TEST(wrong_numbers_stand_beside_the_shape), OPS_TEST(ranges_say_what_is_wrong),
        OPS_TEST(powers_have_their_name), OPS_TEST(an_empty_path_is_named));
}
