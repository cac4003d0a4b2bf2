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

int main(void) {
    return RUN_TESTS(
        OPS_TEST(windows_name_the_dimension_of_the_image), OPS_TEST(resize_takes_a_size_or_a_scale),
        OPS_TEST(pools_name_the_argument_that_is_wrong),
        OPS_TEST(negative_options_of_pools_are_invalid), OPS_TEST(losses_of_no_classes_say_so),
        OPS_TEST(the_size_of_recurrent_weights_names_its_function));
}
