/* Bad input of the ops that others' tests give good input: every message names op, values and
 * shapes. And the shapes of good ones. */
#include <math.h>

#include "ops_test.h"

static kn_tensor *zeros(kn_shape shape) { return kn_zeros(shape); }

static void products_check_their_shapes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = zeros(KN_SHAPE(2, 3)), *b = zeros(KN_SHAPE(4, 5)), *v = zeros(KN_SHAPE(3));
    assert_op_fails(kn_matmul(a, b, NULL), KN_ERR_SHAPE,
                    "kn_matmul: a has 3 columns, b has 4 rows (a [2,3], b [4,5])");
    assert_op_fails(kn_matmul(a, v, NULL), KN_ERR_SHAPE, "both must have two dimensions");
    assert_op_fails(op_matmul_trans(a, b, true, false, NULL), KN_ERR_SHAPE,
                    "a transposed has 2 columns, b has 4 rows");
    assert_op_fails(op_matmul_trans(a, a, true, false, zeros(KN_SHAPE(2, 2))), KN_ERR_SHAPE,
                    "a result of 9 elements f32 does not fit into [2,2] f32");
    assert_op_fails(kn_linear(a, b, KN_NONE), KN_ERR_SHAPE,
                    "kn_linear: x has 3 features, w expects 5 (x [2,3], w [4,5])");
    assert_op_fails(kn_linear(a, a, v), KN_ERR_SHAPE, "b must be [2]");
    assert_op_fails(kn_linear(a, v, KN_NONE), KN_ERR_SHAPE, "x must be [...,I] and w [O,I]");
    assert_op_fails(kn_linear(a, a, NULL), KN_ERR_INVALID, "kn_linear: b is NULL");
    assert_shape(kn_linear(zeros(KN_SHAPE(7, 2, 3)), a, KN_NONE), KN_SHAPE(7, 2, 2));
    assert_shape(kn_matmul(a, zeros(KN_SHAPE(3, 0)), NULL), KN_SHAPE(2, 0));
}

static void a_result_beyond_64_bits_names_its_op(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t wide = (int64_t)1 << 40;
    kn_tensor *a = zeros(KN_SHAPE(wide, 0)), *b = zeros(KN_SHAPE(0, wide));
    assert_null(kn_matmul(a, b, NULL));
    assert_int_equal(kn_check(), KN_ERR_SHAPE);
    assert_string_equal(kn_last_error()->op, "matmul");
}

static void a_given_result_must_have_the_dtype(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = zeros(KN_SHAPE(2, 2)), *into = kn_cast(a, KN_F64);
    assert_op_fails(op_matmul_trans(a, a, false, false, into), KN_ERR_DTYPE,
                    "a result of 4 elements f32 does not fit into [2,2] f64");
}

static void the_gradient_of_a_row_must_have_the_shape_of_its_result(void **state) {
    (void)state;
    KN_FRAME();
    kn_op_call call;
    kn_tensor *x = zeros(KN_SHAPE(2, 3)), *in[] = {zeros(KN_SHAPE(3)), x, x, KN_NONE};
    kn_op_call_init(&call, KN_OP_mul_back, NULL, in, 4);
    call.want = 3;
    assert_op_fails(kn_op_run(&call), KN_ERR_SHAPE, "shapes don't broadcast to g's");
}

/* Of functions that are made of ops, whose inputs have other names. */
static void errors_name_the_function_and_input_of_the_caller(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(2, 3)), *labels = kn_cast(zeros(KN_SHAPE(2)), KN_I64);
    kn_tensor *image = zeros(KN_SHAPE(1, 2, 4, 4)), *whole = kn_cast(image, KN_I32);
    assert_op_fails(kn_embedding(NULL, labels), KN_ERR_INVALID, "kn_embedding: w is NULL");
    assert_op_fails(kn_embedding(x, x), KN_ERR_DTYPE, "(w [2,3], index [2,3])");
    assert_op_fails(kn_deconv(NULL, image, KN_NONE, NULL), KN_ERR_INVALID, "kn_deconv: x is NULL");
    assert_op_fails(kn_deconv(whole, image, KN_NONE, NULL), KN_ERR_DTYPE, "kn_deconv: x is i32");
    assert_op_fails(kn_conv_add(image, image, KN_NONE, NULL, NULL), KN_ERR_INVALID,
                    "kn_conv_add: residual is NULL");
    assert_op_fails(kn_unpool(whole, KN_SHAPE(2, 2), NULL), KN_ERR_DTYPE, "kn_unpool: x is i32");
    assert_op_fails(kn_maxunpool(NULL, image, KN_SHAPE(2, 2), KN_SCALAR, NULL), KN_ERR_INVALID,
                    "kn_maxunpool: x is NULL");
    assert_op_fails(kn_mse(x, NULL, KN_REDUCE_MEAN), KN_ERR_INVALID, "kn_mse: y is NULL");
    assert_op_fails(kn_huber(x, x, 0, KN_REDUCE_MEAN), KN_ERR_INVALID, "kn_huber: delta is 0");
    assert_op_fails(kn_kl_div(x, image, false, KN_REDUCE_SUM), KN_ERR_SHAPE, "kn_kl_div: shapes");
    assert_op_fails(kn_zero_one(NULL, labels), KN_ERR_INVALID, "kn_zero_one: scores is NULL");
    assert_op_fails(kn_topk_accuracy(x, labels, 4), KN_ERR_INVALID, "kn_topk_accuracy: k is 4");
    assert_op_fails(kn_cross_entropy_with(x, NULL, NULL), KN_ERR_INVALID,
                    "kn_cross_entropy_with: labels is NULL");
    assert_op_fails(kn_ctc_loss(NULL, labels, NULL), KN_ERR_INVALID,
                    "kn_ctc_loss: log_probs is NULL");
    assert_op_fails(kn_instancenorm(NULL, x, x, 1e-5), KN_ERR_INVALID,
                    "kn_instancenorm: x is NULL");
    assert_op_fails(kn_lrn(whole, 3, 1, 1, 1), KN_ERR_DTYPE, "kn_lrn: x is i32");
    assert_op_fails(kn_pixel_shuffle(image, 2), KN_ERR_SHAPE,
                    "kn_pixel_shuffle: r is 2; it must divide C twice");
    assert_op_fails(kn_masked_select(x, NULL), KN_ERR_INVALID, "kn_masked_select: mask is NULL");
    assert_op_fails(kn_argsort(NULL, 0, false), KN_ERR_INVALID, "kn_argsort: x is NULL");
    assert_op_fails(kn_logdet(NULL), KN_ERR_INVALID, "kn_logdet: a is NULL");
    assert_op_fails(kn_mv(x, NULL), KN_ERR_INVALID, "kn_mv: x is NULL");
    assert_op_fails(kn_sind(NULL), KN_ERR_INVALID, "kn_sind: x is NULL");
    assert_op_fails(kn_ldexp(x, NULL), KN_ERR_INVALID, "kn_ldexp: n is NULL");
    const kn_rnn_options options = {.hidden = 2};
    assert_op_fails(kn_rnn_param(NULL, 2, &options, 0, 0, 0, KN_RNN_INPUT_WEIGHT), KN_ERR_INVALID,
                    "kn_rnn_param: w is NULL");
    assert_op_fails(kn_add(NULL, x), KN_ERR_INVALID, "kn_add: a is NULL"); /* the name has ended */
}

/* The condition has a dtype of its own. */
static void inputs_of_two_dtypes_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = zeros(KN_SHAPE(2)), *b = kn_cast(a, KN_F64);
    assert_op_fails(kn_where(kn_eq(a, a), a, b), KN_ERR_DTYPE, "a is f32, b is f64; see kn_cast");
}

static void products_over_an_empty_dimension_are_zero(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = zeros(KN_SHAPE(2, 0)), *b = F32(KN_SHAPE(2), 3, 4);
    assert_values(kn_matmul(a, zeros(KN_SHAPE(0, 2)), NULL), 0, 0, 0, 0);
    assert_values(kn_linear(a, zeros(KN_SHAPE(2, 0)), b), 3, 4, 3, 4);
    assert_values(kn_linear(a, zeros(KN_SHAPE(2, 0)), KN_NONE), 0, 0, 0, 0);
    kn_tensor *y = kn_linear(zeros(KN_SHAPE(0)), zeros(KN_SHAPE(2, 0)), b);
    assert_values(y, 3, 4);
    ((float *)kn_data_mut(y))[0] = 9; /* b is not its result */
    assert_values(b, 3, 4);
    kn_tensor *into = F32(KN_SHAPE(1, 1), 5);
    assert_ptr_equal(
        op_matmul_trans(zeros(KN_SHAPE(1, 0)), zeros(KN_SHAPE(0, 1)), false, false, into), into);
    assert_values(into, 5);
}

static void convolution_checks_shapes_and_options(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(64, 3, 32, 32)), *w = zeros(KN_SHAPE(50, 16, 3, 3)),
              *ok = zeros(KN_SHAPE(4, 3, 5, 3)), *b = zeros(KN_SHAPE(4));
    assert_op_fails(kn_conv(x, w, KN_NONE, NULL), KN_ERR_SHAPE,
                    "kn_conv: x has 3 channels, w expects 16 (x [64,3,32,32], w [50,16,3,3])");
    assert_op_fails(kn_conv(x, ok, zeros(KN_SHAPE(5)), NULL), KN_ERR_SHAPE, "b must be [4]");
    assert_op_fails(kn_conv(x, b, KN_NONE, NULL), KN_ERR_SHAPE, "x must be [B,C,spatial…]");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.groups = 3}), KN_ERR_SHAPE,
                    "4 outputs can't be cut in 3 groups");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.groups = 2}), KN_ERR_SHAPE,
                    "x has 3 channels, w expects 6 in 2 groups");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.groups = -1}), KN_ERR_INVALID,
                    "groups is -1");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.stride = {1, -2}}), KN_ERR_INVALID,
                    "stride[1] is -2");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.padding = {1, 1, 1}}), KN_ERR_INVALID,
                    "padding[2] is given, x has 2 spatial dimensions");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.reserved = {1}}), KN_ERR_INVALID,
                    "reserved[0]");
    assert_op_fails(kn_var(x, KN_ALL, false, &(kn_var_options){.unused = 1}), KN_ERR_INVALID,
                    "unused");
    assert_op_fails(kn_var(x, KN_ALL, false, &(kn_var_options){.reserved = {0, 0, 0, 1}}),
                    KN_ERR_INVALID, "reserved[3]");
    assert_op_fails(kn_maxpool(x, KN_SHAPE(2, 2), &(kn_pooling_options){.unused = 1}),
                    KN_ERR_INVALID, "unused");
    assert_op_fails(kn_conv(x, ok, b, &(kn_conv_options){.dilation = {8, 1}}), KN_ERR_SHAPE,
                    "a window of 33 does not fit in 32 elements of dimension 2");
    kn_conv_options o = {.stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 1}};
    assert_shape(kn_conv(x, ok, b, &o), KN_SHAPE(64, 4, 13, 12));
    assert_shape(kn_conv(zeros(KN_SHAPE(0, 3, 8, 8)), ok, b, NULL), KN_SHAPE(0, 4, 4, 6));
}

static void windows_too_large_to_count_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(1, 3, 8, 8)), *w = zeros(KN_SHAPE(4, 3, 5, 3)),
              *none = zeros(KN_SHAPE(0, 3, 5, 3));
    const int64_t most = INT64_MAX, huge = ((int64_t)1 << 61) + 1;
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {most, 0}}), KN_ERR_SHAPE,
                    "padding 9223372036854775807");
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {0, most / 2}}),
                    KN_ERR_SHAPE, "too large for dimension 3");
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.dilation = {huge, 1}}), KN_ERR_SHAPE,
                    "dilation 2305843009213693953");
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.stride = {most, 1}}), KN_ERR_SHAPE,
                    "stride 9223372036854775807");
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.groups = most}), KN_ERR_SHAPE,
                    "can't be cut in 9223372036854775807 groups");
    assert_op_fails(kn_conv(x, none, KN_NONE, &(kn_conv_options){.groups = huge * 2}), KN_ERR_SHAPE,
                    "4611686018427387906 groups are too many");
    /* The largest values that have an effect: beyond them all is padding. */
    kn_conv_options o = {.stride = {INT32_MAX}, .padding = {INT32_MAX}, .dilation = {INT32_MAX}};
    kn_tensor *line = F32(KN_SHAPE(1, 1, 1), 3), *three = F32(KN_SHAPE(1, 1, 3), 5, 7, 11);
    assert_values(kn_conv(line, three, KN_NONE, &o), 21);
}

static void a_stride_beyond_the_input_takes_one_window(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 4), 1, 5, 3, 9);
    kn_shape window = KN_SHAPE(2);
    kn_pooling_options stride = {.stride = {INT64_MAX}};
    assert_values(kn_maxpool(x, window, &stride), 5);
    assert_values(kn_avgpool(x, window, &stride), 3);
    kn_tensor *empty = zeros(KN_SHAPE(0, 1, (int64_t)1 << 58));
    assert_op_fails(kn_maxpool(empty, KN_SHAPE(INT32_MAX), &(kn_pooling_options){.stride = {1}}),
                    KN_ERR_UNSUPPORTED, "more than 256 elements");
}

static void an_average_counts_more_elements_than_64_bits_hold(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t most = INT32_MAX, half = most / 2;
    kn_pooling_options padded = {.padding = {half, half, half}};
    kn_tensor *y =
        kn_avgpool(kn_ones(KN_SHAPE(1, 1, 4, 4, 4)), KN_SHAPE(most, most, most), &padded);
    assert_close(ops_at(y, 0), 64 / (double)most / (double)most / (double)most, 1e-6, 0);
}

static void gradients_of_an_empty_batch_are_zero(void **state) {
    (void)state;
    KN_FRAME();
    kn_attr_conv attr = {.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .n_spatial = 1};
    kn_tensor *x = zeros(KN_SHAPE(0, 1, 4)), *dy = zeros(KN_SHAPE(0, 1, 3));
    assert_values(op_conv_weight(x, dy, KN_SHAPE(1, 1, 2), &attr, NULL), 0, 0);
    kn_tensor *into = F32(KN_SHAPE(1, 1, 2), 1, 2);
    assert_ptr_equal(op_conv_weight(x, dy, KN_SHAPE(1, 1, 2), &attr, into), into);
    assert_values(into, 1, 2);
}

static void pooling_checks_windows(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(2, 3, 8, 9));
    assert_shape(kn_maxpool(x, KN_SHAPE(2, 2), NULL), KN_SHAPE(2, 3, 4, 4));
    assert_shape(kn_avgpool(x, KN_SHAPE(3, 2), &(kn_pooling_options){.stride = {1, 2}}),
                 KN_SHAPE(2, 3, 6, 4));
    assert_op_fails(kn_maxpool(x, KN_SHAPE(2), NULL), KN_ERR_SHAPE, "window has 1");
    assert_op_fails(kn_avgpool(x, KN_SHAPE(9, 2), NULL), KN_ERR_SHAPE,
                    "kn_avgpool: a window of 9 with stride 9 does not fit in dimension 2");
    assert_op_fails(kn_avgpool(x, KN_SHAPE(3, 2), &(kn_pooling_options){.dilation = {4, 1}}),
                    KN_ERR_SHAPE,
                    "a window of 9 with stride 3 does not fit in dimension 2, dilated");
    assert_op_fails(kn_maxpool(x, KN_SHAPE(2, 2), &(kn_pooling_options){.stride = {-1, 1}}),
                    KN_ERR_INVALID, "kn_maxpool: stride[0] is -1; it must be at least 0");
    assert_op_fails(kn_avgpool(x, KN_SHAPE(3, 3), &(kn_pooling_options){.padding = {0, -1}}),
                    KN_ERR_INVALID, "padding[1] is -1; it must be at least 0");
    assert_op_fails(kn_maxpool(x, KN_SHAPE(3, 3), &(kn_pooling_options){.dilation = {-2}}),
                    KN_ERR_INVALID, "dilation[0] is -2; it must be at least 0");
    kn_pooling_options o = {.padding = {1, 1}, .stride = {2, 2}};
    assert_shape(kn_maxpool(x, KN_SHAPE(3, 3), &o), KN_SHAPE(2, 3, 4, 5));
    o.ceil = 1;
    assert_shape(kn_maxpool(x, KN_SHAPE(3, 3), &o), KN_SHAPE(2, 3, 5, 5));
    o.dilation[1] = 3;
    assert_shape(kn_avgpool(x, KN_SHAPE(3, 3), &o), KN_SHAPE(2, 3, 5, 3));
    assert_op_fails(kn_maxpool(x, KN_SHAPE(2, 2), &(kn_pooling_options){.padding = {2}}),
                    KN_ERR_SHAPE, "padding[0] is 2; it must be at most half the window's 2");
    assert_op_fails(kn_maxpool(x, KN_SHAPE(2, 2), &(kn_pooling_options){.padding = {0, 0, 1}}),
                    KN_ERR_INVALID, "x has 2 spatial dimensions");
    kn_pooling_options gaps = {.dilation = {3}, .padding = {2}};
    assert_op_fails(kn_maxpool(zeros(KN_SHAPE(1, 1, 1)), KN_SHAPE(2), &gaps), KN_ERR_SHAPE,
                    "a window could miss them all");
    kn_tensor *wide = zeros(KN_SHAPE(1, 1, 300));
    assert_op_fails(kn_maxpool(wide, KN_SHAPE(257), NULL), KN_ERR_UNSUPPORTED,
                    "more than 256 elements");
    assert_shape(kn_avgpool(wide, KN_SHAPE(257), NULL), KN_SHAPE(1, 1, 1));
}

/* Not the op, or the part, that found it. */
static void assert_site(int line) {
    kn_status pending = kn_check();
    assert_true(pending == KN_OK || pending == kn_last_error()->status);
    assert_non_null(strstr(kn_last_error()->file, "test_checks.c"));
    assert_int_equal(kn_last_error()->line, line);
}

/* Of a function made of ops, of rows of each kind, and of functions that return a status, also one
 * that another function of the library calls. */
static void errors_have_the_line_of_the_call(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3)), *out[2];
    double value;
    kn_kron(x, NULL), assert_site(__LINE__);
    kn_relu(NULL), assert_site(__LINE__);
    kn_atan2(x, NULL), assert_site(__LINE__);
    kn_besselj(NULL, 1), assert_site(__LINE__);
    kn_lt(x, NULL), assert_site(__LINE__);
    kn_pinv(NULL, 0), assert_site(__LINE__);
    assert_int_not_equal(kn_item(&value, x), KN_OK), assert_site(__LINE__);
    assert_int_not_equal(kn_topk(&out[0], NULL, x, 9, 0, false), KN_OK), assert_site(__LINE__);
    assert_int_not_equal(kn_unbind(out, x, 1, 0), KN_OK), assert_site(__LINE__);
    assert_int_not_equal(kn_copy_out(&value, 1, x), KN_OK), assert_site(__LINE__);
    kn_matmul(x, x, NULL);
    assert_int_not_equal(kn_item(&value, x), KN_OK), assert_site(__LINE__ - 1);
}

static void errors_name_the_function_that_was_called(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *square = zeros(KN_SHAPE(2, 2));
    assert_op_fails(kn_pinv(square, NAN), KN_ERR_INVALID, "kn_pinv: rtol is nan");
    assert_op_fails(kn_matrix_rank(square, NAN), KN_ERR_INVALID, "kn_matrix_rank: rtol is nan");
    assert_op_fails(kn_softshrink(square, -1), KN_ERR_INVALID, "kn_softshrink: p is -1");
    kn_tensor *x = zeros(KN_SHAPE(2, 3, 8)), *values = NULL, *offsets = NULL;
    kn_shape wide = KN_SHAPE(0, 0, 9);
    assert_op_fails(kn_pad(x, wide, wide, KN_PAD_REFLECT, 0), KN_ERR_SHAPE, "kn_pad: ");
    assert_op_fails(kn_mse(x, x, (kn_reduction)9), KN_ERR_INVALID, "kn_mse: invalid reduction 9");
    assert_fails(kn_maxpool_index(&values, &offsets, x, KN_SHAPE(9), NULL), KN_ERR_SHAPE,
                 "kn_maxpool_index: a window of 9");
}

static void losses_check_scores_and_labels(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(2, 3)), *labels = I64(KN_SHAPE(2), 0, 2);
    assert_op_fails(kn_cross_entropy(x, x), KN_ERR_DTYPE,
                    "kn_cross_entropy: labels is f32; it must be i64, i32 or u8 (logits [2,3], "
                    "labels [2,3])");
    assert_op_fails(kn_nll(x, I64(KN_SHAPE(3), 0, 0, 0)), KN_ERR_SHAPE, "must be [B,C] and [B]");
    assert_op_fails(kn_accuracy(labels, labels), KN_ERR_DTYPE, "scores is i64");
    assert_op_fails(kn_cross_entropy(zeros(KN_SHAPE(0, 3)), kn_cast(zeros(KN_SHAPE(0)), KN_I64)),
                    KN_ERR_SHAPE, "no elements to take the mean of");
    assert_op_fails(kn_softmax(x, 2), KN_ERR_SHAPE, "there is no axis 2");
    assert_op_fails(op_softmax_back(x, zeros(KN_SHAPE(3)), 0), KN_ERR_SHAPE, "shapes differ");
    assert_shape(kn_cross_entropy(x, labels), KN_SCALAR);
}

static void random_ops_check_their_numbers(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    {
        KN_FRAME();
        kn_tensor *x = zeros(KN_SHAPE(3));
        assert_op_fails(kn_uniform(KN_SHAPE(2), 1, 0, rng), KN_ERR_INVALID, "lo is 1, hi is 0");
        assert_op_fails(kn_normal(KN_SHAPE(2), 0, -1, rng), KN_ERR_INVALID, "stddev is -1");
        assert_op_fails(kn_normal(KN_SHAPE(-2), 0, 1, rng), KN_ERR_SHAPE, "[-2]");
        assert_op_fails(kn_uniform(KN_SHAPE(2), 0, 1, NULL), KN_ERR_INVALID,
                        "kn_uniform: rng is NULL");
        assert_op_fails(kn_dropout(x, 0.5, NULL), KN_ERR_INVALID, "kn_dropout: rng is NULL");
        assert_op_fails(kn_dropout(x, 1.5, rng), KN_ERR_INVALID, "kn_dropout: p is 1.5");
        assert_op_fails(op_dropout_state(x, 0.5, x), KN_ERR_DTYPE, "state is f32");
        assert_op_fails(op_dropout_state(x, 0.5, I64(KN_SHAPE(1), 1)), KN_ERR_SHAPE,
                        "state must be i64 [2]");
        assert_ptr_equal(kn_data(kn_dropout(x, 0, rng)), kn_data(x));
        uint64_t seed, offset;
        assert_ok(kn_rng_state_get(&seed, &offset, rng));
        assert_int_equal(seed, 1);
        assert_int_equal(offset, 0); /* failures and p = 0 draw nothing */
        assert_non_null(kn_normal(KN_SHAPE(3), 0, 1, rng));
        assert_ok(kn_rng_state_get(&seed, &offset, rng));
        assert_true(offset > 0);
        assert_ok(kn_rng_state_set(rng, 5, 77));
        assert_ok(kn_rng_state_get(&seed, &offset, rng));
        assert_int_equal(offset, 77);
    }
    kn_rng_destroy(rng);
    kn_rng_destroy(NULL);
}

static void optimiser_steps_check_their_parts(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *w = zeros(KN_SHAPE(2, 2)), *grad = zeros(KN_SHAPE(4)),
              *hyper = F64(KN_SHAPE(4), 0.1, 0, 1, 0);
    kn_optim_part part = {w, 1, 4, 1, 1};
    kn_attr_optim attr = {.part = &part, .n_parts = 1};
    assert_fails(
        kn_optim_run(KN_OP_sgd_step, &attr, grad, KN_NONE, KN_NONE, hyper), KN_ERR_SHAPE,
        "kn_sgd_step: part 0 has 4 elements at 1 of the flat gradient (grad [4], hyper [4])");
    part.offset = 0;
    assert_fails(kn_optim_run(KN_OP_sgd_step, &attr, grad, KN_NONE, KN_NONE, grad), KN_ERR_DTYPE,
                 "hyper is f32; it must be f64");
    assert_fails(kn_optim_run(KN_OP_sgd_step, &attr, grad, KN_NONE, KN_NONE, F64(KN_SHAPE(1), 1)),
                 KN_ERR_SHAPE, "hyper f64 [4]");
    uint32_t version = w->storage->version;
    assert_ok(kn_optim_run(KN_OP_sgd_step, &attr, grad, KN_NONE, KN_NONE, hyper));
    assert_int_equal(w->storage->version, version + 1);
}

static void shapes_are_written_as_text(void **state) {
    (void)state;
    char text[64], tiny[4];
    assert_string_equal(kn_shape_text(text, sizeof text, KN_SCALAR), "[]");
    assert_string_equal(kn_shape_text(text, sizeof text, KN_SHAPE(64, 3, 32)), "[64,3,32]");
    assert_string_equal(kn_shape_text(tiny, sizeof tiny, KN_SHAPE(64, 3)), "[64");
    assert_string_equal(kn_dtype_name(KN_BF16), "bf16");
    assert_string_equal(kn_dtype_name((kn_dtype)99), "no dtype");
    assert_int_equal(kn_dtype_bytes(KN_I64), 8);
    assert_shape(KN_NONE, KN_SCALAR);
    assert_int_equal(kn_tensor_numel(NULL), 0);
    assert_null(kn_tensor_device(KN_NONE));
}

/* Lists and places of results. */
static void null_arguments_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(2, 3)), *out[3], *held = NULL;
    const int64_t sizes[] = {1, 1};
    assert_fails(kn_split_axis(out, x, NULL, 2, 0), KN_ERR_INVALID, "kn_split_axis: sizes is NULL");
    assert_fails(kn_split_axis(NULL, x, sizes, 2, 0), KN_ERR_INVALID, "kn_split_axis: out is NULL");
    assert_fails(kn_split_rows(out, x, NULL, 2), KN_ERR_INVALID, "kn_split_rows: sizes is NULL");
    assert_fails(kn_split_rows(NULL, x, sizes, 2), KN_ERR_INVALID, "kn_split_rows: out is NULL");
    assert_fails(kn_chunk(NULL, x, 2, 0), KN_ERR_INVALID, "kn_chunk: out is NULL");
    assert_fails(kn_unbind(NULL, x, 2, 0), KN_ERR_INVALID, "kn_unbind: out is NULL");
    assert_op_fails(kn_concat(NULL, 2, 0), KN_ERR_INVALID, "kn_concat: x is NULL");
    assert_op_fails(kn_stack(NULL, 2, 0), KN_ERR_INVALID, "x is NULL");
    assert_op_fails(kn_block_diag(NULL, 2), KN_ERR_INVALID, "kn_block_diag: x is NULL");
    assert_op_fails(kn_einsum("ij", NULL, 1), KN_ERR_INVALID, "kn_einsum: x is NULL");
    assert_op_fails(kn_einsum(NULL, &x, 1), KN_ERR_INVALID, "kn_einsum: spec is NULL");
    assert_fails(kn_topk(NULL, NULL, x, 1, 0, false), KN_ERR_INVALID,
                 "kn_topk: values and indices are NULL");
    assert_fails(kn_sort_index(NULL, NULL, x, 0, false), KN_ERR_INVALID, "kn_sort_index");
    assert_fails(kn_max_index(NULL, NULL, x, KN_ALL, false), KN_ERR_INVALID, "kn_max_index");
    assert_fails(kn_lq(NULL, NULL, x), KN_ERR_INVALID, "kn_lq: every result is NULL");
    assert_fails(kn_copy_out(NULL, 24, x), KN_ERR_INVALID, "kn_copy_out: out is NULL");
    assert_fails(kn_item(NULL, kn_sum(x, KN_ALL, false)), KN_ERR_INVALID, "kn_item: out is NULL");
    assert_fails(kn_rng_create(NULL, 1), KN_ERR_INVALID, "kn_rng_create: out is NULL");
    assert_fails(kn_hold(NULL, x), KN_ERR_INVALID, "kn_hold: slot is NULL");
    assert_fails(kn_hold(&held, NULL), KN_ERR_INVALID, "kn_hold: t is NULL");
    assert_fails(kn_compute(NULL, 2), KN_ERR_INVALID, "kn_compute: t is NULL");
    assert_ok(kn_compute(NULL, 0));
    assert_ok(kn_copy_out(NULL, 0, zeros(KN_SHAPE(0))));
    assert_ok(kn_unbind(NULL, zeros(KN_SHAPE(0, 2)), 0, 0));
}

/* Not the name of an op that they use. */
static void functions_made_of_ops_have_their_own_names_in_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(2, 3)), *i = I64(KN_SHAPE(2), 0, 1), *out[2], *l, *q;
    kn_tensor *cube = zeros(KN_SHAPE(2, 2, 2)), *v = zeros(KN_SHAPE(4));
    const kn_index_item unknown = {.kind = (kn_index_kind)9};
    assert_op_fails(kn_one_hot(i, -1), KN_ERR_INVALID, "kn_one_hot: n is -1");
    assert_op_fails(kn_eye(-1, 2), KN_ERR_SHAPE, "kn_eye: rows is -1, columns is 2");
    assert_op_fails(kn_block_diag(&(kn_tensor *){kn_full(KN_SCALAR, 1)}, 1), KN_ERR_SHAPE,
                    "kn_block_diag: x[0] has 0 dimensions, not 2");
    assert_op_fails(kn_repeat(x, -1, 0), KN_ERR_SHAPE,
                    "kn_repeat: n is -1; it must be at least 0 (x [2,3])");
    assert_op_fails(kn_index(x, KN_ITEMS(KN_AT(9))), KN_ERR_SHAPE, "kn_index: index 9 is outside");
    assert_op_fails(kn_set_at(x, v, KN_ITEMS(KN_AT(0))), KN_ERR_SHAPE,
                    "kn_set_at: y [4] can't be broadcast to the part [3] (x [2,3])");
    assert_op_fails(kn_add_at(x, v, KN_ITEMS(KN_TAKE(i))), KN_ERR_SHAPE,
                    "kn_add_at: y [4] can't be broadcast to the part [2,3]");
    assert_fails(kn_set_into(x, v, KN_ITEMS(KN_AT(0))), KN_ERR_SHAPE, "kn_set_into: y [4]");
    assert_op_fails(kn_index(x, 1, &unknown), KN_ERR_INVALID,
                    "kn_index: item 0 is of the unknown kind 9 (x [2,3])");
    assert_op_fails(kn_unsqueeze(x, 7), KN_ERR_SHAPE, "kn_unsqueeze: a new axis can't be at 7");
    assert_op_fails(kn_diag(cube, 0), KN_ERR_SHAPE, "kn_diag: x must have one or two dimensions");
    assert_fails(kn_chunk(out, x, 0, 0), KN_ERR_SHAPE, "kn_chunk: n is 0");
    assert_op_fails(kn_sech(i), KN_ERR_DTYPE, "kn_sech: x is i64; it must be floating");
    assert_string_equal(kn_last_error()->op, "sech");
    assert_op_fails(kn_logit(i), KN_ERR_DTYPE, "kn_logit: x is i64");
    assert_op_fails(kn_tand(i), KN_ERR_DTYPE, "kn_tand: x is i64");
    assert_op_fails(kn_log_cosh(i), KN_ERR_DTYPE, "kn_log_cosh: x is i64");
    assert_op_fails(kn_embedding(x, x), KN_ERR_DTYPE, "kn_embedding: index is f");
    assert_op_fails(kn_conv_add(i, x, KN_NONE, KN_NONE, NULL), KN_ERR_DTYPE,
                    "kn_conv_add: x is i64");
    assert_op_fails(kn_conv(i, x, KN_NONE, NULL), KN_ERR_DTYPE, "kn_conv: x is i64");
    assert_op_fails(kn_deconv(i, x, KN_NONE, NULL), KN_ERR_DTYPE, "kn_deconv: x is i64");
    assert_op_fails(kn_maxunpool(i, i, KN_SHAPE(2), KN_SCALAR, NULL), KN_ERR_DTYPE,
                    "kn_maxunpool: x is i64");
    assert_op_fails(kn_unpool(i, KN_SHAPE(2), NULL), KN_ERR_DTYPE, "kn_unpool: x is i64");
    assert_string_equal(kn_last_error()->op, "unpool");
    assert_op_fails(kn_adaptive_avgpool(i, KN_SHAPE(2)), KN_ERR_DTYPE, "kn_adaptive_avgpool: x is");
    assert_op_fails(
        kn_adaptive_maxpool(cube, KN_SHAPE(2, 2)), KN_ERR_SHAPE,
        "kn_adaptive_maxpool: size has 2 entries, x has 1 spatial dimensions (x [2,2,2])");
    assert_op_fails(kn_adaptive_maxpool(cube, KN_SHAPE(0)), KN_ERR_SHAPE,
                    "kn_adaptive_maxpool: size[0] is 0 of 2 elements");
    assert_op_fails(kn_global_avgpool(x), KN_ERR_SHAPE, "kn_global_avgpool: x must be [B,C");
    assert_op_fails(kn_outer(x, v), KN_ERR_SHAPE, "kn_outer: a and b must have one dimension");
    assert_op_fails(kn_einsum("i", &x, 1), KN_ERR_SHAPE, "kn_einsum: \"i\": operand 0");
    assert_fails(kn_lq(&l, &q, v), KN_ERR_SHAPE, "kn_lq: a must be [...,M,N] (a [4])");
    assert_fails(kn_qr(&l, &q, v), KN_ERR_SHAPE, "kn_qr: a must be [...,M,N] (a [4])");
    assert_op_fails(kn_cosh(i), KN_ERR_DTYPE, "kn_cosh: x is i64"); /* the name is over */
}

/* Of shapes that no tensor has, in functions made of ops, the functions' names too. */
static void shapes_that_are_too_large_are_errors_of_the_function(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t large = (int64_t)1 << 40;
    kn_tensor *i = I64(KN_SHAPE(2), 0, 1), *x = zeros(KN_SHAPE(2));
    assert_op_fails(kn_zeros(KN_SHAPE(-1)), KN_ERR_SHAPE, "kn_zeros: shape [-1] is negative");
    assert_string_equal(kn_last_error()->op, "zeros");
    assert_op_fails(kn_ones(KN_SHAPE(-1)), KN_ERR_SHAPE, "kn_ones: shape [-1] is negative");
    assert_op_fails(kn_full(KN_SHAPE(large, large), 1), KN_ERR_SHAPE, "kn_full: shape [10995");
    assert_op_fails(kn_eye(large, large), KN_ERR_SHAPE, "kn_eye: rows is 1099511627776, columns");
    assert_op_fails(kn_one_hot(i, (int64_t)1 << 62), KN_ERR_SHAPE, "kn_one_hot: shape [4611");
    assert_string_equal(kn_last_error()->op, "one_hot");
    assert_op_fails(kn_diag(x, large), KN_ERR_SHAPE, "kn_diag: shape [10995");
    assert_string_equal(kn_last_error()->op, "diag");
    kn_tensor *a = zeros(KN_SHAPE(large, 0)), *b = zeros(KN_SHAPE(0, large));
    assert_op_fails(kn_matmul(a, b, NULL), KN_ERR_SHAPE, "kn_matmul: shape [10995");
}

static void messages_name_the_operands_that_were_given(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = zeros(KN_SHAPE(3, 4)), *x = zeros(KN_SHAPE(3)), *wide = kn_cast(x, KN_F64);
    assert_op_fails(kn_mv(a, x), KN_ERR_SHAPE,
                    "kn_mv: a has 4 columns, x has 3 elements (a [3,4], x [3])");
    assert_op_fails(kn_mv(x, x), KN_ERR_SHAPE, "kn_mv: a must be [...,M,N] (a [3], x [3])");
    assert_op_fails(kn_all_close(x, wide, 0, 0), KN_ERR_DTYPE, "kn_all_close: a is f32, b is f64");
    assert_op_fails(kn_isclose(x, NULL, 0, 0), KN_ERR_INVALID, "kn_isclose: b is NULL");
}

static void lists_and_data_that_are_null_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = zeros(KN_SHAPE(3));
    assert_fails(kn_copy_into(x, NULL, 12), KN_ERR_INVALID, "kn_copy_into: data is NULL");
    assert_ok(kn_copy_into(zeros(KN_SHAPE(0)), NULL, 0));
    assert_op_fails(kn_index(x, 1, NULL), KN_ERR_INVALID, "kn_index: items is NULL (x [3])");
    assert_op_fails(kn_add_at(x, x, 1, NULL), KN_ERR_INVALID, "kn_add_at: items is NULL");
    assert_fails(kn_set_into(x, x, 1, NULL), KN_ERR_INVALID, "kn_set_into: items is NULL");
}

static void results_that_are_not_wanted_may_be_null(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = F64(KN_SHAPE(4), 3, 1, 4, 1), *v = NULL, *i = NULL;
    assert_ok(kn_topk(&v, NULL, x, 2, 0, false));
    assert_values(v, 4, 3);
    assert_ok(kn_topk(NULL, &i, x, 2, 0, false));
    assert_values(kn_cast(i, KN_F64), 2, 0);
    assert_ok(kn_sort_index(&v, NULL, x, 0, true));
    assert_values(v, 4, 3, 1, 1);
    assert_ok(kn_max_index(&v, NULL, x, KN_ALL, false));
    assert_values(v, 4);
    assert_ok(kn_min_index(NULL, &i, x, KN_ALL, false));
    assert_values(kn_cast(i, KN_F64), 1);
    kn_tensor *a = F64(KN_SHAPE(2, 2), 2, 0, 1, 3), *l, *q, *one_l, *one_q;
    assert_ok(kn_lq(&l, &q, a));
    assert_ok(kn_lq(&one_l, NULL, a));
    assert_ok(kn_lq(NULL, &one_q, a));
    assert_values(kn_cast(kn_eq(l, one_l), KN_F64), 1, 1, 1, 1);
    assert_values(kn_cast(kn_eq(q, one_q), KN_F64), 1, 1, 1, 1);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(null_arguments_are_named), OPS_TEST(results_that_are_not_wanted_may_be_null),
        OPS_TEST(functions_made_of_ops_have_their_own_names_in_errors),
        OPS_TEST(shapes_that_are_too_large_are_errors_of_the_function),
        OPS_TEST(messages_name_the_operands_that_were_given),
        OPS_TEST(lists_and_data_that_are_null_are_named), OPS_TEST(products_check_their_shapes),
        OPS_TEST(a_result_beyond_64_bits_names_its_op),
        OPS_TEST(a_given_result_must_have_the_dtype),
        OPS_TEST(the_gradient_of_a_row_must_have_the_shape_of_its_result),
        OPS_TEST(errors_name_the_function_and_input_of_the_caller),
        OPS_TEST(inputs_of_two_dtypes_are_named),
        OPS_TEST(products_over_an_empty_dimension_are_zero),
        OPS_TEST(convolution_checks_shapes_and_options),
        OPS_TEST(windows_too_large_to_count_are_errors),
        OPS_TEST(a_stride_beyond_the_input_takes_one_window),
        OPS_TEST(an_average_counts_more_elements_than_64_bits_hold),
        OPS_TEST(gradients_of_an_empty_batch_are_zero), OPS_TEST(pooling_checks_windows),
        TEST(errors_name_the_function_that_was_called), OPS_TEST(errors_have_the_line_of_the_call),
        OPS_TEST(losses_check_scores_and_labels), OPS_TEST(random_ops_check_their_numbers),
        OPS_TEST(optimiser_steps_check_their_parts), OPS_TEST(shapes_are_written_as_text));
}
