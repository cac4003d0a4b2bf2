/* Normalization: what PyTorch gives, running statistics, threads, accuracy, bad input. Gradients
 * are those of tests/autograd. */
#include "golden/norm.h"

#include "golden_arrays.h"

enum { B = GOLDEN_B, C = GOLDEN_C, S = GOLDEN_S };

static kn_tensor *x_of(kn_dtype dtype) { return golden_x(dtype, KN_SHAPE(B, C, S)); }
static kn_tensor *weight_of(kn_dtype dtype) {
    return golden_array(dtype, KN_SHAPE(C), 3, 1, 7, 0.25, 0.5);
}
static kn_tensor *bias_of(kn_dtype dtype) {
    return golden_array(dtype, KN_SHAPE(C), 2, 1, 5, 0.5, -1);
}
static kn_tensor *wide_of(kn_dtype dtype, kn_shape shape) {
    return golden_array(dtype, shape, 3, 2, 7, 0.25, 0.5);
}
static kn_tensor *low_of(kn_dtype dtype, kn_shape shape) {
    return golden_array(dtype, shape, 2, 3, 5, 0.5, -1);
}
static kn_tensor *mean_of(kn_dtype dtype) {
    return golden_array(dtype, KN_SHAPE(C), 1, 0, 5, 0.25, -0.5);
}
static kn_tensor *var_of(kn_dtype dtype) {
    return golden_array(dtype, KN_SHAPE(C), 1, 0, 5, 0.25, 0.5);
}

static void batches_equal_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *mean = mean_of(dtype), *var = var_of(dtype), *w = weight_of(dtype);
        const kn_batchnorm_options train = {.training = 1, .momentum = 0.2, .eps = 1e-3};
        const kn_batchnorm_options eval = {.eps = 1e-3};
        GOLDEN(kn_batchnorm(x_of(dtype), mean, var, w, bias_of(dtype), &eval), batchnorm_eval);
        GOLDEN(kn_batchnorm(x_of(dtype), mean, var, w, bias_of(dtype), &train), batchnorm);
        GOLDEN(mean, running_mean);
        GOLDEN(var, running_var);
    }
}

static void activations_have_statistics_of_their_own(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        const kn_batchnorm_options each = {.training = 1, .per_activation = 1};
        kn_tensor *mean = kn_tile(mean_of(dtype), KN_SHAPE(S));
        kn_tensor *var = kn_tile(var_of(dtype), KN_SHAPE(S));
        kn_tensor *w = wide_of(dtype, KN_SHAPE(C, S)), *b = low_of(dtype, KN_SHAPE(C, S));
        GOLDEN(kn_batchnorm(x_of(dtype), mean, var, w, b, &each), batchnorm_activation);
        GOLDEN(var, activation_var);
        const kn_batchnorm_options eval = {.per_activation = 1};
        kn_tensor *y = kn_batchnorm(x_of(dtype), mean, var, w, b, &eval);
        double want = (ops_at(x_of(dtype), 30) - ops_at(mean, 6)) / sqrt(ops_at(var, 6) + 1e-5) *
                          ops_at(w, 6) +
                      ops_at(b, 6);
        assert_close(ops_at(y, 30), want, 1e-5, 1e-6);
    }
}

static void rows_equal_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *w = wide_of(dtype, KN_SHAPE(S)), *b = low_of(dtype, KN_SHAPE(S));
        kn_tensor *w2 = wide_of(dtype, KN_SHAPE(C, S)), *b2 = low_of(dtype, KN_SHAPE(C, S));
        GOLDEN(kn_layernorm(x_of(dtype), w, b, 1, 1e-3), layernorm);
        GOLDEN(kn_layernorm(x_of(dtype), w2, b2, 2, 1e-5), layernorm_two);
        GOLDEN(kn_rmsnorm(x_of(dtype), w, 1, 1e-3), rmsnorm);
        kn_tensor *x = x_of(dtype), *weight = weight_of(dtype), *bias = bias_of(dtype);
        GOLDEN(kn_groupnorm(x, weight, bias, 2, 1e-3), groupnorm);
        GOLDEN(kn_instancenorm(x, weight, bias, 1e-3), instancenorm);
        GOLDEN(kn_lrn(x, 3, 0.5, 0.75, 1.5), lrn);
        GOLDEN(kn_lrn(x, 2, 1e-4, 0.75, 1), lrn_even);
    }
}

/* Within half a unit in the last place of the 16-bit type. */
static void check_16_bit(kn_tensor *y, kn_tensor *want, kn_dtype dtype) {
    assert_non_null(y);
    assert_int_equal(kn_tensor_dtype(y), dtype);
    kn_tensor *wide = kn_cast(y, KN_F32);
    double most = dtype == KN_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t i = 0; i < kn_tensor_numel(y); i++)
        assert_close(ops_at(wide, i), ops_at(want, i), most, 1e-6);
}

static void floats_of_16_bits_are_normalized_in_f32(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        KN_FRAME();
        kn_dtype dtype = k ? KN_BF16 : KN_F16;
        kn_tensor *x = kn_cast(x_of(KN_F32), dtype), *w = kn_cast(weight_of(KN_F32), dtype);
        kn_tensor *wx = kn_cast(x, KN_F32), *ww = kn_cast(w, KN_F32), *row = kn_ones(KN_SHAPE(S));
        check_16_bit(kn_layernorm(x, kn_cast(row, dtype), KN_NONE, 1, 1e-3),
                     kn_layernorm(wx, row, KN_NONE, 1, 1e-3), dtype);
        check_16_bit(kn_rmsnorm(x, KN_NONE, 2, 1e-3), kn_rmsnorm(wx, KN_NONE, 2, 1e-3), dtype);
        check_16_bit(kn_groupnorm(x, w, w, 2, 1e-3), kn_groupnorm(wx, ww, ww, 2, 1e-3), dtype);
        check_16_bit(kn_instancenorm(x, ww, KN_NONE, 1e-3), kn_instancenorm(wx, ww, KN_NONE, 1e-3),
                     dtype);
        const kn_batchnorm_options training = {.training = 1};
        kn_tensor *mean = kn_zeros(KN_SHAPE(C)), *var = kn_ones(KN_SHAPE(C));
        kn_tensor *mean2 = kn_zeros(KN_SHAPE(C)), *var2 = kn_ones(KN_SHAPE(C));
        check_16_bit(kn_batchnorm(x, mean, var, w, KN_NONE, &training),
                     kn_batchnorm(wx, mean2, var2, ww, KN_NONE, &training), dtype);
        assert_same_bits(mean, mean2);
        check_16_bit(kn_batchnorm(x, mean, var, w, KN_NONE, NULL),
                     kn_batchnorm(wx, mean2, var2, ww, KN_NONE, NULL), dtype);
    }
}

/* The gradients of one call, all in one pass. */
static void back_of(kn_op op, kn_tensor *const in[5], kn_attr_normalize attr, kn_tensor *out[3]) {
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, in, 5);
    call.want = 7;
    assert_non_null(kn_op_run(&call));
    for (int r = 0; r < 3; r++) out[r] = call.out[r];
}

static void gradients_equal_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = x_of(dtype), *w = weight_of(dtype), *d[3];
        kn_tensor *g = golden_array(dtype, KN_SHAPE(B, C, S), 5, 1, 17, 0.25, -2);
        kn_attr_normalize attr = {1e-3, 0.1, B, 1, C, S, NULL, 0};
        kn_op_call call;
        kn_op_call_init(&call, KN_OP_batchnorm, &attr, KN_LIST_(x, KN_NONE, KN_NONE, w, KN_NONE),
                        5);
        call.want = 7;
        assert_non_null(kn_op_run(&call));
        back_of(KN_OP_batchnorm_back, KN_LIST_(g, x, w, call.out[1], call.out[2]), attr, d);
        GOLDEN(d[0], batchnorm_dx);
        GOLDEN(d[1], batchnorm_dw);
        GOLDEN(d[2], batchnorm_db);
        attr = (kn_attr_normalize){1e-3, 0, B, 2, C / 2, S, NULL, 0};
        kn_op_call_init(&call, KN_OP_groupnorm, &attr, KN_LIST_(x, w, KN_NONE), 3);
        call.want = 7;
        assert_non_null(kn_op_run(&call));
        back_of(KN_OP_rownorm_back, KN_LIST_(g, x, w, call.out[1], call.out[2]), attr, d);
        GOLDEN(d[0], groupnorm_dx);
        GOLDEN(d[1], groupnorm_dw);
        GOLDEN(d[2], groupnorm_db);
        w = wide_of(dtype, KN_SHAPE(S));
        attr = (kn_attr_normalize){1e-3, 0, B * C, 1, S, 1, NULL, 0};
        kn_op_call_init(&call, KN_OP_rmsnorm, &attr, KN_LIST_(x, w), 2);
        call.want = 3;
        assert_non_null(kn_op_run(&call));
        back_of(KN_OP_rownorm_back, KN_LIST_(g, x, w, KN_NONE, call.out[1]), attr, d);
        GOLDEN(d[0], rmsnorm_dx);
        GOLDEN(d[1], rmsnorm_dw);
    }
}

static kn_tensor *batch(kn_tensor *x) {
    return kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE,
                        &(kn_batchnorm_options){.training = 1});
}

/* Far from zero a variance as mean(x²) - mean(x)² has no right digit in f32. */
static void a_large_mean_costs_no_digits(void **state) {
    (void)state;
    const kn_shape shapes[] = {KN_SHAPE(40, 3, 700), KN_SHAPE(900, 20)};
    for (int i = 0; i < 2; i++) {
        KN_FRAME();
        kn_tensor *x = random_tensor(KN_F32, shapes[i]);
        kn_tensor *far = kn_cast(kn_affine(kn_cast(x, KN_F64), 1, 1000), KN_F32);
        kn_tensor *near = kn_cast(kn_affine(kn_cast(far, KN_F64), 1, -1000), KN_F32);
        assert_true(kn_tensor_numel(far) > 0);
        kn_tensor *diff = kn_max_abs(kn_sub(batch(far), batch(near)), KN_ALL, false);
        assert_true(ops_at(diff, 0) < 2e-3);
        diff = kn_sub(kn_layernorm(far, KN_NONE, KN_NONE, 1, 1e-5),
                      kn_layernorm(near, KN_NONE, KN_NONE, 1, 1e-5));
        assert_true(ops_at(kn_max_abs(diff, KN_ALL, false), 0) < 2e-3);
    }
}

static void a_nan_stays_in_its_channel(void **state) {
    (void)state;
    KN_FRAME();
    float values[2 * 3 * 4];
    for (int i = 0; i < 24; i++) values[i] = (float)(i % 5);
    values[4] = NAN; /* channel 1 */
    kn_tensor *y = batch(kn_tensor_from(values, KN_F32, KN_SHAPE(2, 3, 4)));
    for (int i = 0; i < 24; i++) assert_int_equal(isnan(ops_at(y, i)) != 0, i / 4 % 3 == 1);
}

static kn_tensor *every_norm(kn_tensor *x, kn_tensor *w, kn_tensor *row) {
    kn_tensor *y = kn_add(batch(x), kn_groupnorm(x, w, w, 3, 1e-5));
    y = kn_add(y, kn_layernorm(x, row, row, 1, 1e-5));
    return kn_add(y, kn_rmsnorm(x, KN_NONE, 2, 1e-5));
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    const kn_shape shapes[] = {KN_SHAPE(9, 24, 301), KN_SHAPE(40, 6, 513)};
    for (int i = 0; i < 2; i++) {
        KN_FRAME();
        kn_tensor *x = random_tensor(KN_F32, shapes[i]), *one, *four;
        kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(shapes[i].dim[1]));
        kn_tensor *row = random_tensor(KN_F32, KN_SHAPE(shapes[i].dim[2]));
        {
            KN_FRAME(.threads = 1);
            one = kn_keep(every_norm(x, w, row));
        }
        {
            KN_FRAME(.threads = 4);
            four = kn_keep(every_norm(x, w, row));
        }
        assert_same_bits(one, four);
    }
}

/* (1 + 0.5·Σ x²/size)^-1 over all four channels, whose squares f16 can't hold. */
static void neighbours_beyond_all_channels_count_as_zeros(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_full(KN_SHAPE(1, 4, 2), 1000);
    const int64_t sizes[] = {7, 8, 9, 10, INT64_MAX};
    for (int i = 0; i < 5; i++) {
        double want = 1000 / (1 + 0.5 * 4e6 / (double)sizes[i]);
        assert_close(ops_at(kn_lrn(x, sizes[i], 0.5, 1, 1), 0), want, 1e-6, 0);
        kn_tensor *half = kn_lrn(kn_cast(x, KN_F16), sizes[i], 0.5, 1, 1);
        check_16_bit(half, kn_full(KN_SHAPE(1, 4, 2), want), KN_F16);
    }
}

static void empty_batches_give_empty_results(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *none = kn_zeros(KN_SHAPE(0, 4, 3));
    assert_shape(kn_layernorm(none, KN_NONE, KN_NONE, 1, 1e-5), KN_SHAPE(0, 4, 3));
    assert_shape(kn_groupnorm(none, KN_NONE, KN_NONE, 2, 1e-5), KN_SHAPE(0, 4, 3));
    assert_shape(kn_lrn(none, 3, 1, 0.75, 1), KN_SHAPE(0, 4, 3));
    assert_shape(kn_lrn(kn_zeros(KN_SHAPE(2, 3, 0, 4)), 5, 1, 0.75, 1), KN_SHAPE(2, 3, 0, 4));
    kn_tensor *four = kn_ones(KN_SHAPE(4));
    assert_shape(kn_batchnorm(none, four, four, KN_NONE, KN_NONE, NULL), KN_SHAPE(0, 4, 3));
}

static void weights_have_the_dimensions_that_they_scale(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4, 3)), *none = KN_NONE, *four = kn_ones(KN_SHAPE(4));
    kn_tensor *square = kn_ones(KN_SHAPE(2, 2)), *turned = kn_ones(KN_SHAPE(3, 4));
    const kn_batchnorm_options each = {.training = 1, .per_activation = 1};
    assert_op_fails(kn_layernorm(x, turned, none, 2, 1e-5), KN_ERR_SHAPE,
                    "weight is [3,4]; it must be [4,3]");
    assert_op_fails(kn_rmsnorm(x, turned, 2, 1e-5), KN_ERR_SHAPE, "weight is [3,4]");
    assert_op_fails(kn_groupnorm(x, four, square, 2, 1e-5), KN_ERR_SHAPE,
                    "bias is [2,2]; it must be [4]");
    assert_op_fails(kn_batchnorm(x, square, square, none, none, NULL), KN_ERR_SHAPE,
                    "running_mean is [2,2]");
    assert_op_fails(kn_batchnorm(x, none, none, four, none, &each), KN_ERR_SHAPE,
                    "elements of a sample");
    kn_tensor *column = kn_reshape(four, KN_SHAPE(4, 1));
    assert_same_bits(kn_groupnorm(x, column, column, 2, 1e-5),
                     kn_groupnorm(x, four, four, 2, 1e-5));
}

static void bad_dtypes_of_16_bit_norms_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_cast(kn_ones(KN_SHAPE(2, 4)), KN_BF16), *none = KN_NONE;
    kn_tensor *four = kn_ones(KN_SHAPE(4)), *f16 = kn_cast(four, KN_F16);
    assert_op_fails(kn_layernorm(x, f16, none, 1, 1e-5), KN_ERR_DTYPE,
                    "kn_layernorm: weight is f16; beside x of bf16 it must be f32 or bf16");
    assert_op_fails(kn_groupnorm(x, none, kn_cast(four, KN_F64), 1, 1e-5), KN_ERR_DTYPE,
                    "bias is f64; beside x of bf16");
    assert_op_fails(kn_batchnorm(x, f16, four, none, none, NULL), KN_ERR_DTYPE,
                    "running_mean is f16; beside x of bf16 it must be f32 (");
    assert_op_fails(kn_batchnorm(x, four, four, none, f16, NULL), KN_ERR_DTYPE, "bias is f16");
}

static void bad_input_gives_a_message(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4, 3)), *three = kn_ones(KN_SHAPE(3));
    kn_tensor *four = kn_ones(KN_SHAPE(4)), *none = KN_NONE, *line = kn_ones(KN_SHAPE(5));
    const kn_batchnorm_options train = {.training = 1};
    assert_op_fails(kn_batchnorm(x, none, none, three, none, &train), KN_ERR_SHAPE,
                    "kn_batchnorm: weight is [3]; it must be [4]");
    assert_op_fails(kn_batchnorm(x, none, none, none, none, NULL), KN_ERR_INVALID,
                    "it takes the running mean and variance");
    assert_op_fails(kn_batchnorm(x, four, none, none, none, &train), KN_ERR_INVALID,
                    "one is KN_NONE");
    assert_op_fails(kn_batchnorm(line, none, none, none, none, &train), KN_ERR_SHAPE, "[B,C,…]");
    assert_op_fails(kn_batchnorm(kn_ones(KN_SHAPE(1, 4)), none, none, none, none, &train),
                    KN_ERR_SHAPE, "a channel has 1 elements");
    kn_batchnorm_options bad = {.momentum = 2};
    assert_op_fails(kn_batchnorm(x, four, four, none, none, &bad), KN_ERR_INVALID, "momentum 2");
    bad = (kn_batchnorm_options){.reserved = {1}};
    assert_op_fails(kn_batchnorm(x, four, four, none, none, &bad), KN_ERR_INVALID, "reserved[0]");
    assert_op_fails(kn_layernorm(x, four, none, 1, 1e-5), KN_ERR_SHAPE,
                    "kn_layernorm: weight is [4]; it must be [3]");
    assert_op_fails(kn_layernorm(x, none, none, 4, 1e-5), KN_ERR_SHAPE, "n_axes is 4");
    assert_op_fails(kn_layernorm(x, none, none, 1, -1), KN_ERR_INVALID, "eps is -1");
    assert_op_fails(kn_layernorm(kn_ones(KN_SHAPE(2, 0)), none, none, 1, 0), KN_ERR_SHAPE,
                    "no elements to normalize");
    assert_op_fails(kn_groupnorm(x, none, none, 3, 1e-5), KN_ERR_SHAPE, "don't make 3 groups");
    assert_op_fails(kn_groupnorm(x, none, none, 0, 1e-5), KN_ERR_SHAPE, "don't make 0 groups");
    assert_op_fails(kn_groupnorm(x, none, none, -1, 1e-5), KN_ERR_SHAPE, "don't make -1 groups");
    assert_op_fails(kn_rmsnorm(x, kn_cast(three, KN_F64), 1, 1e-5), KN_ERR_DTYPE, "kn_rmsnorm");
    assert_op_fails(kn_lrn(x, 0, 1, 1, 1), KN_ERR_SHAPE, "size (0)");
    assert_op_fails(kn_lrn(line, 3, 1, 1, 1), KN_ERR_SHAPE, "kn_lrn: x is [5]");
    assert_op_fails(kn_instancenorm(line, none, none, 1e-5), KN_ERR_SHAPE, "[B,C,…]");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(batches_equal_pytorch), OPS_TEST(activations_have_statistics_of_their_own),
        OPS_TEST(rows_equal_pytorch), OPS_TEST(gradients_equal_pytorch),
        OPS_TEST(floats_of_16_bits_are_normalized_in_f32), OPS_TEST(a_large_mean_costs_no_digits),
        OPS_TEST(a_nan_stays_in_its_channel), OPS_TEST(the_number_of_threads_changes_no_bit),
        OPS_TEST(neighbours_beyond_all_channels_count_as_zeros),
        OPS_TEST(empty_batches_give_empty_results),
        OPS_TEST(weights_have_the_dimensions_that_they_scale),
        OPS_TEST(bad_dtypes_of_16_bit_norms_are_named), OPS_TEST(bad_input_gives_a_message));
}
