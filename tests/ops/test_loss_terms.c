/* Losses with options and reductions, as PyTorch gives them. */
#include "golden/norm.h"

#include "golden_arrays.h"

enum { B = GOLDEN_B, N = GOLDEN_C * GOLDEN_S };

static kn_tensor *targets(kn_dtype dtype) {
    return golden_array(dtype, KN_SHAPE(B, N), 5, 1, 17, 0.25, -2);
}

static void of_numbers(kn_tensor *a, kn_tensor *t) {
    GOLDEN(kn_mse(a, t, KN_REDUCE_MEAN), mse_mean);
    GOLDEN(kn_mse(a, t, KN_REDUCE_SUM), mse_sum);
    GOLDEN(kn_mse(a, t, KN_REDUCE_NONE), mse_none);
    GOLDEN(kn_mae(a, t, KN_REDUCE_MEAN), mae);
    GOLDEN(kn_huber(a, t, 0.7, KN_REDUCE_MEAN), huber);
    GOLDEN(kn_smooth_l1(a, t, 0.7, KN_REDUCE_MEAN), smooth_l1);
    GOLDEN(kn_smooth_l1(a, t, 0, KN_REDUCE_MEAN), mae);
}

static void of_distributions(kn_tensor *a, kn_tensor *t) {
    kn_tensor *logs = kn_logsoftmax(a, 1), *to = kn_softmax(t, 1), *q = kn_sigm(t);
    GOLDEN(kn_bce(kn_sigm(a), q, KN_REDUCE_MEAN), bce);
    GOLDEN(kn_bce_logits(kn_affine(a, 40, 0), q, KN_REDUCE_MEAN), bce_logits);
    GOLDEN(kn_kl_div(logs, to, false, KN_REDUCE_BATCH), kl_div);
    GOLDEN(kn_kl_div(logs, kn_log(to), true, KN_REDUCE_SUM), kl_div_log);
}

static void terms_and_reductions_equal_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *a = golden_x(dtype, KN_SHAPE(B, N)), *t = targets(dtype);
        of_numbers(a, t);
        of_distributions(a, t);
        kn_tensor *zero = kn_zeros(KN_SCALAR), *one = kn_ones(KN_SCALAR);
        kn_tensor *sign = kn_where(kn_gt(t, zero), one, kn_neg(one));
        GOLDEN(kn_logistic(a, sign, KN_REDUCE_MEAN), logistic);
        GOLDEN(kn_hinge(a, sign, 0.8, KN_REDUCE_MEAN), hinge);
        kn_tensor *p = from_doubles((const double[]){0, 1, 0, 1}, dtype, KN_SHAPE(4));
        kn_tensor *q = from_doubles((const double[]){0, 1, 1, 0.25}, dtype, KN_SHAPE(4));
        GOLDEN(kn_bce(p, q, KN_REDUCE_NONE), bce_edge);
    }
}

static kn_tensor *entropy(kn_tensor *a, kn_cross_entropy_options o) {
    return kn_cross_entropy_with(a, I64(KN_SHAPE(B), 3, 0, 7), &o);
}
#define ENTROPY(...) entropy(a, (kn_cross_entropy_options){__VA_ARGS__})

static void cross_entropy_with_options_equals_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *a = golden_x(dtype, KN_SHAPE(B, N));
        kn_tensor *w = golden_array(dtype, KN_SHAPE(N), 3, 1, 7, 0.25, 0.5);
        GOLDEN(ENTROPY(.smoothing = 0.1), ce_smoothed);
        GOLDEN(ENTROPY(.ignores = 1, .ignore_index = 0), ce_ignored);
        GOLDEN(
            ENTROPY(.ignores = 1, .ignore_index = 7, .reduction = KN_REDUCE_NONE, .smoothing = 0.2),
            ce_ignored_none);
        GOLDEN(ENTROPY(.weight = w, .ignores = 1, .ignore_index = 3), ce_weighted);
        GOLDEN(ENTROPY(.weight = w, .smoothing = 0.3), ce_weighted_smoothed);
        GOLDEN(ENTROPY(.reduction = KN_REDUCE_SUM), ce_sum);
        const kn_cross_entropy_options nines = {.ignores = 1, .ignore_index = 9};
        kn_tensor *all = kn_cross_entropy_with(a, I64(KN_SHAPE(B), 9, 9, 9), &nines);
        assert_true(isnan(ops_at(all, 0)));
    }
}

static void cross_entropy_of_probabilities_equals_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *a = golden_x(dtype, KN_SHAPE(B, N));
        kn_tensor *t = golden_array(dtype, KN_SHAPE(B, N), 5, 1, 17, 0.25, 0);
        t = kn_div(t, kn_sum(t, KN_SHAPE(1), true));
        kn_tensor *w = golden_array(dtype, KN_SHAPE(N), 3, 1, 7, 0.25, 0.5);
        GOLDEN(kn_cross_entropy_with(a, t, NULL), ce_shares);
        kn_cross_entropy_options o = {.weight = w, .smoothing = 0.3};
        GOLDEN(kn_cross_entropy_with(a, t, &o), ce_shares_weighted);
        o = (kn_cross_entropy_options){.smoothing = 0.2, .reduction = KN_REDUCE_NONE};
        GOLDEN(kn_cross_entropy_with(a, t, &o), ce_shares_none);
        kn_shape places = KN_SHAPE(B, GOLDEN_C, GOLDEN_S);
        o = (kn_cross_entropy_options){.weight = kn_slice(w, KN_SHAPE(0), KN_SHAPE(GOLDEN_C))};
        GOLDEN(kn_cross_entropy_with(kn_reshape(a, places), kn_reshape(t, places), &o),
               ce_shares_places);
        o = (kn_cross_entropy_options){.ignores = 1, .ignore_index = 3};
        assert_op_fails(kn_cross_entropy_with(a, t, &o), KN_ERR_INVALID,
                        "ignore_index is 3, but labels are probabilities");
        kn_tensor *other = kn_cast(t, dtype == KN_F32 ? KN_F64 : KN_F32);
        assert_op_fails(kn_cross_entropy_with(a, other, NULL), KN_ERR_DTYPE,
                        "kn_cross_entropy_with: logits are f");
        o = (kn_cross_entropy_options){.smoothing = -1};
        assert_op_fails(kn_cross_entropy_with(a, t, &o), KN_ERR_INVALID, "smoothing is -1");
    }
}

static void probabilities_that_are_not_like_the_logits_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3)), *labels = kn_cast(x, KN_I64);
    assert_op_fails(kn_cross_entropy_with(x, kn_zeros(KN_SHAPE(2, 4)), NULL), KN_ERR_SHAPE,
                    "kn_cross_entropy_with: probabilities are [2,4], the logits [2,3]; they must "
                    "be alike");
    assert_op_fails(kn_cross_entropy_with(x, kn_zeros(KN_SHAPE(2)), NULL), KN_ERR_DTYPE,
                    "labels is f32; it must be i64, i32 or u8");
    assert_op_fails(kn_cross_entropy_with(x, labels, NULL), KN_ERR_DTYPE,
                    "labels [2,3] are i64; in the shape of the logits they are probabilities, "
                    "of dtype f32");
    assert_op_fails(kn_cross_entropy_with(x, kn_cast(kn_zeros(KN_SHAPE(3)), KN_I64), NULL),
                    KN_ERR_SHAPE, "the shapes must be [B,C] and [B]");
}

/* A number of a class is a target of one there; and 16 bits, in f32 on the way. */
static void probabilities_of_one_class_are_its_number(void **state) {
    (void)state;
    for (int dtype = KN_F32; dtype <= KN_BF16; dtype++) {
        KN_FRAME();
        kn_tensor *x = kn_cast(kn_affine(golden_x(KN_F64, KN_SHAPE(B, N)), 4, 0), (kn_dtype)dtype);
        kn_tensor *labels = I64(KN_SHAPE(B), 3, 0, 7);
        kn_tensor *t = kn_cast(kn_one_hot(labels, N), (kn_dtype)dtype);
        kn_tensor *y = kn_cross_entropy_with(x, t, NULL);
        assert_ok(kn_check());
        assert_int_equal(kn_tensor_dtype(y), dtype);
        double eps = dtype == KN_BF16 ? 8e-3 : dtype == KN_F16 ? 1e-3 : 1e-6;
        assert_close(ops_at(kn_cast(y, KN_F64), 0),
                     ops_at(kn_cast(kn_cross_entropy(x, labels), KN_F64), 0), eps, 0);
    }
}

/* The sum of 40000 rows, and their number weighted by 2, don't fit f16. */
static void sixteen_bit_losses_average_many_rows(void **state) {
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        kn_dtype dtype = bf16 ? KN_BF16 : KN_F16;
        KN_FRAME();
        kn_tensor *x = kn_cast(kn_zeros(KN_SHAPE(40000, 10)), dtype);
        kn_tensor *w = kn_cast(kn_full(KN_SHAPE(10), 2), dtype);
        kn_tensor *labels = kn_cast(kn_zeros(KN_SHAPE(40000)), KN_I64);
        const kn_cross_entropy_options of[] = {{.ignores = 1, .ignore_index = -100},
                                               {.weight = w},
                                               {.weight = w, .ignores = 1, .ignore_index = -100}};
        for (int i = 0; i < 3; i++) {
            kn_tensor *y = kn_cross_entropy_with(x, labels, &of[i]);
            assert_int_equal(kn_tensor_dtype(y), dtype);
            assert_close(ops_at(kn_cast(y, KN_F32), 0), log(10), bf16 ? 4e-3 : 5e-4, 0);
        }
    }
}

/* The sum of the terms doesn't fit f16, or the mean of all, but a row's share of it does. */
static void sixteen_bit_losses_join_rows(void **state) {
    (void)state;
    const double terms[] = {20000, 4, 0x1p-24};
    const int64_t rows[] = {7, 30000, 1}, columns[] = {1, 10, 4};
    for (int k = 0; k < 6; k++) {
        kn_dtype dtype = k % 2 ? KN_BF16 : KN_F16;
        KN_FRAME();
        kn_shape shape = KN_SHAPE(rows[k / 2], columns[k / 2]);
        kn_tensor *x = kn_cast(kn_full(shape, terms[k / 2]), dtype), *zero = kn_filled_like(x, 0);
        kn_tensor *y = kn_mae(x, zero, KN_REDUCE_BATCH);
        assert_int_equal(kn_tensor_dtype(y), dtype);
        double want = ops_at(kn_cast(x, KN_F32), 0) * (double)columns[k / 2];
        assert_close(ops_at(kn_cast(y, KN_F32), 0), want, k % 2 ? 4e-3 : 5e-4, 0);
    }
}

/* Divided, not multiplied by a rounded 1/n: the mean of n ones is 1. */
static void means_over_the_batch_are_quotients(void **state) {
    (void)state;
    for (int n = 1; n < 200; n++) {
        KN_FRAME(.dtype = n % 2 ? KN_F32 : KN_F64);
        kn_tensor *ones = kn_ones(KN_SHAPE(n)), *zeros = kn_zeros(KN_SHAPE(n));
        assert_true(ops_at(kn_mae(ones, zeros, KN_REDUCE_BATCH), 0) == 1);
    }
}

/* A label of probability 0, whose loss is infinite, or isn't asked for. */
static void smoothing_keeps_an_infinite_loss(void **state) {
    (void)state;
    const kn_dtype dtypes[] = {KN_F64, KN_F32, KN_F16, KN_BF16};
    const double smoothings[] = {0, 0.2, 1};
    for (int k = 0; k < 12; k++) {
        KN_FRAME();
        kn_tensor *x = kn_cast(F32(KN_SHAPE(1, 3), -INFINITY, 0.25f, 0), dtypes[k / 3]);
        for (int64_t label = 0; label < 2; label++) {
            for (int how = 0; how < 3; how++) {
                const kn_cross_entropy_options o = {.smoothing = smoothings[k % 3],
                                                    .reduction = (kn_reduction)how};
                kn_tensor *y = kn_cross_entropy_with(x, I64(KN_SHAPE(1), label), &o);
                bool is_finite = label == 1 && o.smoothing == 0;
                double loss = ops_at(kn_cast(y, KN_F64), 0);
                if (is_finite)
                    assert_close(loss, log(1 + exp(-0.25)), 1e-2, 0);
                else if (!how || o.smoothing < 1)
                    assert_true(loss == INFINITY);
            }
        }
    }
}

/* Terms of Huber's loss before the division by beta fit neither f16 nor, of a small beta, f32. */
static void smooth_l1_takes_any_beta(void **state) {
    (void)state;
    static const double betas[] = {0, 1e-39, 1e-6, 0.5, 1000, INFINITY};
    static const kn_dtype dtypes[] = {KN_F64, KN_F32, KN_F16, KN_BF16};
    static const double near[] = {1e-6, 1e-6, 1e-3, 8e-3};
    for (int i = 0; i < 4; i++)
        for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
            KN_FRAME();
            double beta = betas[b];
            kn_tensor *x = kn_cast(F32(KN_SHAPE(4), 0, 0.25f, -600, 1024), dtypes[i]);
            kn_tensor *y = kn_filled_like(x, 0);
            kn_tensor *got = kn_cast(kn_smooth_l1(x, y, beta, KN_REDUCE_NONE), KN_F64);
            x = kn_cast(x, KN_F64);
            for (int64_t k = 0; k < 4; k++) {
                double d = fabs(ops_at(x, k));
                assert_close(ops_at(got, k), d < beta ? d / beta * d / 2 : d - beta / 2, near[i],
                             1e-6);
            }
        }
}

static void an_ignored_label_may_be_outside_the_classes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2, 2), 1, 3, 5, 5), *labels = I64(KN_SHAPE(2), -100, 1);
    const kn_cross_entropy_options o = {.ignores = 1, .ignore_index = -100};
    assert_values(kn_cross_entropy_with(x, labels, &o), 0.69314718);
}

/* None is read as a class from the end. */
static void a_label_outside_the_classes_gives_nan(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(4, 2), 1, 3, 5, 5, 7, 8, 9, 9);
    kn_tensor *labels = I64(KN_SHAPE(4), -1, 1, 2, INT64_MIN), *w = F32(KN_SHAPE(2), 1, 2);
    const kn_cross_entropy_options each = {.reduction = KN_REDUCE_NONE};
    const kn_cross_entropy_options ways[] = {{.weight = w},
                                             {.ignores = 1, .ignore_index = 2},
                                             {.reduction = KN_REDUCE_SUM, .smoothing = 0.1}};
    kn_tensor *rows = kn_cross_entropy_with(x, labels, &each);
    for (int i = 0; i < 4; i++) assert_int_equal(isnan(ops_at(rows, i)), i != 1);
    for (int i = 0; i < 3; i++)
        assert_true(isnan(ops_at(kn_cross_entropy_with(x, labels, &ways[i]), 0)));
}

static void accuracy_takes_the_first_of_equals_and_nan_as_largest(void **state) {
    (void)state;
    const float n = NAN;
    const struct {
        float x[4];
        int64_t label;
        double hit;
    } rows[] = {{{1, 3, 3, 2}, 1, 1}, {{1, 3, 3, 2}, 2, 0}, {{1, 3, n, 2}, 1, 0},
                {{n, 3, 4, 2}, 2, 0}, {{1, n, n, 2}, 1, 1}, {{1, n, n, 2}, 2, 0},
                {{5, 5, 5, 5}, 0, 1}, {{5, 5, 5, 5}, 3, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        KN_FRAME();
        kn_tensor *x = kn_tensor_from(rows[i].x, KN_F32, KN_SHAPE(1, 4));
        assert_values(kn_accuracy(x, I64(KN_SHAPE(1), rows[i].label)), rows[i].hit);
    }
}

/* Every label of rows of equal scores and NaN, short and longer than a stretch, against topk. */
static void topk_accuracy_agrees_with_topk(void **state) {
    (void)state;
    static const int64_t sizes[] = {7, 40, 9000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        KN_FRAME();
        int64_t n = sizes[i], step = n > 100 ? 611 : 1;
        float *row = malloc((size_t)n * sizeof *row);
        for (int64_t j = 0; j < n; j++) row[j] = j % 5 == 3 ? NAN : (float)(j * 7 % 13);
        kn_tensor *x = kn_tensor_from(row, KN_F32, KN_SHAPE(1, n));
        free(row);
        for (int64_t k = 1; k <= n; k += n / 7) {
            kn_tensor *values, *places;
            assert_int_equal(kn_topk(&values, &places, x, k, 1, false), KN_OK);
            for (int64_t label = 0; label < n; label += step) {
                double want = 0;
                for (int64_t j = 0; j < k && want == 0; j++)
                    want = ((const int64_t *)kn_data(places))[j] == label;
                assert_values(kn_topk_accuracy(x, I64(KN_SHAPE(1), label), k), want);
            }
        }
    }
}

static void measures_count_rows(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(3, 4), 4, 3, 2, 1, 1, 2, 3, 4, 1, 4, 2, 3);
    kn_tensor *labels = I64(KN_SHAPE(3), 1, 3, 2);
    assert_values(kn_zero_one(x, labels), 2.0 / 3);
    assert_values(kn_topk_accuracy(x, labels, 1), 1.0 / 3);
    assert_values(kn_topk_accuracy(x, labels, 2), 2.0 / 3);
    assert_values(kn_topk_accuracy(x, labels, 4), 1);
    assert_true(isnan(ops_at(kn_topk_accuracy(x, I64(KN_SHAPE(3), 1, 3, 4), 2), 0)));
}

/* Not those of the rows that they become. */
static void errors_of_losses_of_places_show_the_given_shapes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 4)), *f = kn_zeros(KN_SHAPE(2, 4));
    kn_tensor *labels = kn_cast(f, KN_I64);
    const kn_cross_entropy_options smooth = {.smoothing = 2},
                                   weigh = {.weight = F32(KN_SHAPE(1), 1)};
    assert_op_fails(kn_cross_entropy(x, f), KN_ERR_DTYPE,
                    "kn_cross_entropy: labels is f32; it must be i64, i32 or u8 (logits [2,3,4], "
                    "labels [2,4])");
    assert_op_fails(kn_nll(x, f), KN_ERR_DTYPE, "kn_nll: labels is f32; it must be i64, i32 or u8");
    assert_op_fails(kn_nll(x, f), KN_ERR_DTYPE, "[2,3,4]");
    assert_op_fails(kn_accuracy(x, f), KN_ERR_DTYPE, "[2,3,4]");
    assert_op_fails(kn_zero_one(x, f), KN_ERR_DTYPE, "[2,3,4]");
    assert_op_fails(kn_topk_accuracy(x, labels, 4), KN_ERR_INVALID,
                    "k is 4; it must be in 1 … 3 (scores [2,3,4], labels [2,4])");
    assert_op_fails(kn_cross_entropy_with(x, f, NULL), KN_ERR_DTYPE, "[2,3,4]");
    assert_op_fails(kn_cross_entropy_with(x, labels, &smooth), KN_ERR_INVALID,
                    "smoothing is 2; it must be in 0 … 1 (logits [2,3,4], labels [2,4])");
    assert_op_fails(kn_cross_entropy_with(x, labels, &weigh), KN_ERR_SHAPE,
                    "one number a class (logits [2,3,4], labels [2,4])");
}

static void bad_input_gives_a_message(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(B, 9)), *w = kn_ones(KN_SHAPE(4));
    assert_op_fails(ENTROPY(.smoothing = 1.5), KN_ERR_INVALID, "smoothing is 1.5");
    assert_op_fails(ENTROPY(.weight = w), KN_ERR_SHAPE, "weight is [4]");
    assert_op_fails(ENTROPY(.reserved = {0, 2}), KN_ERR_INVALID, "reserved[1]");
    assert_op_fails(ENTROPY(.reduction = (kn_reduction)9, .smoothing = 0.1), KN_ERR_INVALID,
                    "invalid reduction 9");
    assert_op_fails(kn_cross_entropy_with(a, I64(KN_SHAPE(2), 0, 1), NULL), KN_ERR_SHAPE,
                    "[B,C] and [B]");
    kn_tensor *empty = kn_ones(KN_SHAPE(2, 0)), *labels = I64(KN_SHAPE(2), 0, 0);
    const kn_cross_entropy_options sum = {.reduction = KN_REDUCE_SUM},
                                   each = {.reduction = KN_REDUCE_NONE};
    assert_op_fails(kn_cross_entropy_with(empty, labels, &sum), KN_ERR_SHAPE,
                    "kn_cross_entropy_with: there are no classes (logits [2,0]");
    kn_tensor *no_places = kn_ones(KN_SHAPE(2, 3, 0)),
              *none = kn_cast(kn_ones(KN_SHAPE(2, 0)), KN_I64);
    assert_op_fails(kn_cross_entropy(no_places, none), KN_ERR_SHAPE,
                    "no elements to take the mean of (logits [2,3,0], labels [2,0])");
    assert_op_fails(kn_nll(no_places, none), KN_ERR_SHAPE, "[2,3,0]");
    assert_op_fails(kn_accuracy(no_places, none), KN_ERR_SHAPE, "[2,3,0]");
    assert_op_fails(kn_topk_accuracy(no_places, none, 2), KN_ERR_SHAPE, "[2,3,0]");
    assert_op_fails(kn_cross_entropy_with(no_places, none, NULL), KN_ERR_SHAPE, "[2,3,0]");
    assert_shape(kn_cross_entropy_with(no_places, none, &each), KN_SHAPE(2, 0));
    assert_op_fails(
        kn_cross_entropy_with(kn_ones(KN_SHAPE(2, 0, 1)), I64(KN_SHAPE(2, 1), 0, 0), &each),
        KN_ERR_SHAPE, "there are no classes (logits [2,0,1]");
    assert_values(kn_cross_entropy_with(kn_ones(KN_SHAPE(0, 0)), I64(KN_SHAPE(0), 0), &sum), 0);
    assert_op_fails(kn_huber(a, a, -1, KN_REDUCE_MEAN), KN_ERR_INVALID, "delta is -1");
    assert_op_fails(kn_smooth_l1(a, a, -1, KN_REDUCE_MEAN), KN_ERR_INVALID,
                    "kn_smooth_l1: beta is -1");
    assert_op_fails(kn_smooth_l1(a, a, NAN, KN_REDUCE_MEAN), KN_ERR_INVALID, "beta is nan");
    assert_op_fails(kn_mse(a, w, KN_REDUCE_MEAN), KN_ERR_SHAPE, "kn_mse: ");
    assert_op_fails(kn_topk_accuracy(a, w, 1), KN_ERR_DTYPE, "accuracy");
    assert_op_fails(kn_topk_accuracy(a, I64(KN_SHAPE(3), 0, 1, 2), 10), KN_ERR_INVALID,
                    "k is 10; it must be in 1");
    assert_op_fails(kn_topk_accuracy(a, I64(KN_SHAPE(3), 0, 1, 2), 0), KN_ERR_INVALID, "k is 0");
}

typedef kn_tensor *(*loss_fn)(kn_tensor *x, kn_tensor *y, kn_reduction reduction);
#define WITH(name, ...)                                                                            \
    static kn_tensor *name(kn_tensor *x, kn_tensor *y, kn_reduction reduction) {                   \
        return kn_##name(x, y, __VA_ARGS__, reduction);                                            \
    }
WITH(huber, 1)
WITH(smooth_l1, 1)
WITH(hinge, 1)
WITH(kl_div, reduction == KN_REDUCE_SUM)

static void a_column_and_its_targets_in_a_row_are_told(void **state) {
    (void)state;
    const struct {
        const char *name;
        loss_fn fn;
    } loss[] = {{"mse", (kn_mse)},           {"mae", (kn_mae)},
                {"bce", (kn_bce)},           {"bce_logits", (kn_bce_logits)},
                {"logistic", (kn_logistic)}, {"huber", huber},
                {"smooth_l1", smooth_l1},    {"hinge", hinge},
                {"kl_div", kl_div}};
    KN_FRAME();
    kn_tensor *column = kn_ones(KN_SHAPE(3, 1)), *row = kn_ones(KN_SHAPE(3));
    for (size_t i = 0; i < sizeof loss / sizeof loss[0]; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "kn_%s: together x and y are [3,3], the shape of neither; see kn_reshape "
                 "(x [3,1], y [3])",
                 loss[i].name);
        for (int how = KN_REDUCE_MEAN; how <= KN_REDUCE_BATCH; how++)
            assert_op_fails(loss[i].fn(column, row, (kn_reduction)how), KN_ERR_SHAPE, text);
        assert_non_null(loss[i].fn(column, kn_ones(KN_SHAPE(1)), KN_REDUCE_MEAN));
        assert_non_null(loss[i].fn(row, kn_ones(KN_SHAPE(2, 3)), KN_REDUCE_MEAN));
        assert_non_null(loss[i].fn(kn_ones(KN_SCALAR), column, KN_REDUCE_MEAN));
    }
    KN_FRAME(.autocast = KN_BF16, .fuse = 1);
    assert_op_fails(kn_mse(row, column, KN_REDUCE_MEAN), KN_ERR_SHAPE, "(x [3], y [3,1])");
    assert_op_fails(kn_mse(row, kn_ones(KN_SHAPE(4)), KN_REDUCE_MEAN), KN_ERR_SHAPE, "y [4]");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(terms_and_reductions_equal_pytorch),
        OPS_TEST(cross_entropy_with_options_equals_pytorch),
        OPS_TEST(cross_entropy_of_probabilities_equals_pytorch),
        OPS_TEST(probabilities_that_are_not_like_the_logits_are_errors),
        OPS_TEST(probabilities_of_one_class_are_its_number),
        OPS_TEST(accuracy_takes_the_first_of_equals_and_nan_as_largest),
        OPS_TEST(sixteen_bit_losses_average_many_rows), OPS_TEST(sixteen_bit_losses_join_rows),
        OPS_TEST(means_over_the_batch_are_quotients), OPS_TEST(smoothing_keeps_an_infinite_loss),
        OPS_TEST(smooth_l1_takes_any_beta), OPS_TEST(an_ignored_label_may_be_outside_the_classes),
        OPS_TEST(a_label_outside_the_classes_gives_nan), OPS_TEST(topk_accuracy_agrees_with_topk),
        OPS_TEST(measures_count_rows), OPS_TEST(errors_of_losses_of_places_show_the_given_shapes),
        OPS_TEST(a_column_and_its_targets_in_a_row_are_told), OPS_TEST(bad_input_gives_a_message));
}
