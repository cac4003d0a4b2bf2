#include "kernels_test.h"

static kn_tensor *labels_of(const int64_t *labels, int64_t n, kn_dtype dtype) {
    int32_t narrow[512];
    uint8_t bytes[512];
    assert_true(n <= 512);
    for (int64_t i = 0; i < n; i++) narrow[i] = (int32_t)labels[i], bytes[i] = (uint8_t)labels[i];
    const void *data =
        dtype == KN_I64 ? (const void *)labels : (dtype == KN_I32 ? (const void *)narrow : bytes);
    return kn_tensor_from(data, dtype, KN_SHAPE(n));
}

/* Runs cross_entropy with the gradient it makes for its recording. */
static kn_tensor *with_gradient(kn_tensor **d, kn_tensor *logits, kn_tensor *labels) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_cross_entropy, &(kn_attr_scalars){0, 0}, KN_LIST_(logits, labels),
                    2);
    call.want = 3;
    kn_tensor *loss = kn_op_run(&call);
    *d = call.out[1];
    return loss;
}

static void check(kn_dtype dtype, kn_dtype label_dtype, int64_t rows, int64_t n) {
    KN_FRAME();
    kn_tensor *x = random_scaled(dtype, KN_SHAPE(rows, n), 5), *d = NULL;
    int64_t label[512];
    for (int64_t r = 0; r < rows; r++) label[r] = (int64_t)test_random_below((uint64_t)n);
    kn_tensor *labels = labels_of(label, rows, label_dtype);
    double loss = 0, tol = 10 * tolerance(dtype);
    int64_t right = 0;
    kn_tensor *got = with_gradient(&d, x, labels);
    assert_non_null(got);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        int64_t best = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += exp(ops_at(x, r * n + i));
            if (ops_at(x, r * n + i) > ops_at(x, r * n + best)) best = i;
        }
        loss += log(sum) - ops_at(x, r * n + label[r]);
        right += best == label[r];
        for (int64_t i = 0; i < n; i++)
            assert_close(ops_at(d, r * n + i),
                         (exp(ops_at(x, r * n + i)) / sum - (i == label[r])) / (double)rows, tol,
                         tol / (double)rows);
    }
    assert_close(ops_at(got, 0), loss / (double)rows, tol, tol);
    assert_close(ops_at(kn_cross_entropy(x, labels), 0), loss / (double)rows, tol, tol);
    assert_close(ops_at(kn_nll(kn_logsoftmax(x, 1), labels), 0), loss / (double)rows, tol, tol);
    assert_close(ops_at(kn_accuracy(x, labels), 0), (double)right / (double)rows, 1e-6, 0);
}

static void losses_and_their_gradients_match_the_reference(void **state) {
    (void)state;
    static const kn_dtype label_dtypes[] = {KN_I64, KN_I32, KN_U8};
    FOR_BOTH_DTYPES(dtype)
    for (int l = 0; l < 3; l++) {
        check(dtype, label_dtypes[l], 100, 10);
        check(dtype, label_dtypes[l], 1, 1);
        check(dtype, label_dtypes[l], 300, odd_size());
        check(dtype, label_dtypes[l], 7, 251);
    }
}

static void nll_back_puts_minus_g_over_b_at_the_labels(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *g = from_doubles((double[]){3}, dtype, KN_SCALAR);
        kn_tensor *labels = labels_of((int64_t[]){2, 0}, 2, KN_I64);
        assert_values(op_nll_back(labels, g, 3), 0, 0, -1.5, -1.5, 0, 0);
    }
}

static void a_label_out_of_range_gives_nan(void **state) {
    (void)state;
    static const int64_t wrong[] = {-1, 3, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 4; i++) FOR_BOTH_DTYPES(dtype) {
            KN_FRAME();
            kn_tensor *x = random_tensor(dtype, KN_SHAPE(2, 3)), *d = NULL;
            kn_tensor *labels = labels_of((int64_t[]){1, wrong[i]}, 2, KN_I64);
            assert_true(isnan(ops_at(with_gradient(&d, x, labels), 0)));
            assert_true(ops_at(d, 0) == ops_at(d, 0));
            assert_true(isnan(ops_at(d, 3)));
            assert_true(isnan(ops_at(kn_nll(x, labels), 0)));
            assert_true(isnan(ops_at(kn_accuracy(x, labels), 0)));
            kn_tensor *g = from_doubles((double[]){1}, dtype, KN_SCALAR);
            assert_true(isnan(ops_at(op_nll_back(labels, g, 3), 5)));
        }
}

/* torch 1.13.1: F.cross_entropy(torch.tensor([[1., 2., 3.], [1., 1., 1.]]), torch.tensor([2, 0]))
 */
static void known_value(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2, 3), 1, 2, 3, 1, 1, 1);
    assert_close(ops_at(kn_cross_entropy(x, I64(KN_SHAPE(2), 2, 0)), 0), 0.7531091570854187, 1e-6,
                 0);
}

/* torch 1.13.1's F.cross_entropy and F.nll_loss of x [2,3,2,4] and labels [2,2,4]. */
static void each_place_has_a_label(void **state) {
    (void)state;
    enum { B = 2, C = 3, H = 2, W = 4, N = B * H * W };
    static const double terms[N] = {
        2.73567721105955,  1.61039900246301,  1.61039900246301,  0.809847389508613,
        0.975058460389221, 0.975058460389221, 0.609996905627751, 0.609996905627751,
        4.13454835727034,  4.13454835727034,  3.01807998806308,  0.8560800866106,
        0.809847389508613, 1.61039900246301,  1.61039900246301,  0};
    double value[B * C * H * W];
    int64_t label[N];
    KN_FRAME();
    for (int i = 0; i < B * C * H * W; i++)
        value[i] = (i / 24 * 7 + i / 8 % 3 * 5 + i / 4 % 2 * 3 + i % 4 * 2) % 11 / 4.0;
    for (int i = 0; i < N; i++) label[i] = (i / 8 + i / 4 % 2 * 2 + i % 4 * 3) % 3;
    label[N - 1] = 0;
    kn_tensor *x = kn_tensor_from(value, KN_F64, KN_SHAPE(B, C, H, W));
    kn_tensor *labels = kn_tensor_from(label, KN_I64, KN_SHAPE(B, H, W));
    assert_close(ops_at(kn_cross_entropy(x, labels), 0), 1.53669861345542, 1e-13, 0);
    assert_close(ops_at(kn_nll(x, labels), 0), -1.046875, 1e-13, 0);
    label[N - 1] = -100;
    labels = kn_tensor_from(label, KN_I64, KN_SHAPE(B, H, W));
    kn_cross_entropy_options o = {.weight = F64(KN_SHAPE(C), 1, 2, 0.5),
                                  .smoothing = 0.1,
                                  .ignores = 1,
                                  .ignore_index = -100};
    assert_close(ops_at(kn_cross_entropy_with(x, labels, &o), 0), 1.53590208948101, 1e-13, 0);
    o.reduction = KN_REDUCE_SUM;
    assert_close(ops_at(kn_cross_entropy_with(x, labels, &o), 0), 26.1103355211771, 1e-13, 0);
    o.reduction = KN_REDUCE_BATCH;
    assert_close(ops_at(kn_cross_entropy_with(x, labels, &o), 0), 26.1103355211771 / B, 1e-13, 0);
    o.reduction = KN_REDUCE_NONE;
    kn_tensor *each = kn_cross_entropy_with(x, labels, &o);
    assert_shape(each, KN_SHAPE(B, H, W));
    for (int i = 0; i < N; i++) assert_close(ops_at(each, i), terms[i], 1e-13, 0);
    kn_tensor *best = kn_argmax(x, KN_SHAPE(1), false);
    assert_close(ops_at(kn_accuracy(x, best), 0), 1, 0, 0);
    assert_close(ops_at(kn_zero_one(x, best), 0), 0, 0, 0);
    assert_close(ops_at(kn_topk_accuracy(x, kn_argmin(x, KN_SHAPE(1), false), 2), 0), 0, 0, 0);
    assert_op_fails(kn_cross_entropy(x, kn_select(labels, 0, 1)), KN_ERR_SHAPE,
                    "kn_cross_entropy: the shapes must be [B,C] and [B], or [B,C,…] and [B,…]");
    assert_op_fails(
        kn_cross_entropy(kn_zeros(KN_SHAPE(0, 3, 4)), kn_cast(kn_zeros(KN_SHAPE(0, 4)), KN_I64)),
        KN_ERR_SHAPE, "no elements");
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(500, 100)), *one, *four;
    int64_t label[500];
    for (int i = 0; i < 500; i++) label[i] = i % 100;
    kn_tensor *labels = labels_of(label, 500, KN_I32);
    {
        KN_FRAME(.threads = 1);
        one = kn_keep(kn_cross_entropy(x, labels));
    }
    {
        KN_FRAME(.threads = 4);
        four = kn_keep(kn_cross_entropy(x, labels));
    }
    assert_same_bits(one, four);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(losses_and_their_gradients_match_the_reference),
                     OPS_TEST(nll_back_puts_minus_g_over_b_at_the_labels),
                     OPS_TEST(a_label_out_of_range_gives_nan), OPS_TEST(known_value),
                     OPS_TEST(each_place_has_a_label),
                     OPS_TEST(the_number_of_threads_changes_no_bit));
}
