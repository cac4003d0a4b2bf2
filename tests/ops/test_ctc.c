/* The CTC loss: against PyTorch and against all paths, threads, bad lengths and labels. */
#include "golden_ctc.h"

static void losses_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *log_probs = kn_logsoftmax(ctc_logits(dtype), 2);
        ctc_case cases[5];
        ctc_cases(cases);
        for (int i = 0; i < 5; i++) {
            const ctc_case *c = &cases[i];
            kn_tensor *y = kn_ctc_loss(log_probs, ctc_labels(KN_I64, c->shift), &c->options);
            assert_non_null(y);
            double most = dtype == KN_F64 ? 1e-10 : 2e-6;
            for (int k = 0; k < c->n; k++) assert_close(ops_at(y, k), c->want[k], most, most);
        }
    }
}

/* Adds up the probabilities of all paths of 4 steps of 3 classes that make the target. */
static void the_loss_is_that_of_all_paths(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    enum { T = 4, C = 3, PATHS = 81 };
    kn_tensor *x = kn_logsoftmax(random_scaled(KN_F64, KN_SHAPE(T, 1, C), 3), 2);
    for (int32_t second = 1; second <= 2; second++) {
        const int32_t target[] = {1, second};
        double sum = 0;
        for (int path = 0; path < PATHS; path++) {
            int n = 0, before = 0, rest = path, same = 1;
            double log_prob = 0;
            for (int t = 0; t < T; t++, rest /= C) {
                int c = rest % C;
                log_prob += ops_at(x, t * C + c);
                if (c && c != before) same &= n < 2 && target[n] == c, n++;
                before = c;
            }
            if (same && n == 2) sum += exp(log_prob);
        }
        kn_tensor *labels = ctc_integers(target, KN_I32, KN_SHAPE(1, 2));
        kn_tensor *y = kn_ctc_loss(x, labels, &(kn_ctc_options){.reduction = KN_REDUCE_SUM});
        assert_close(ops_at(y, 0), -log(sum), 1e-12, 1e-12);
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_logsoftmax(random_tensor(KN_F32, KN_SHAPE(50, 19, 7)), 2), *y[3];
    int32_t label[19 * 20];
    for (int i = 0; i < 19 * 20; i++) label[i] = 1 + (int32_t)test_random_below(6);
    kn_tensor *targets = ctc_integers(label, KN_I32, KN_SHAPE(19, 20));
    static const int threads[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.threads = threads[i]);
        y[i] = kn_keep(kn_ctc_loss(x, targets, &(kn_ctc_options){.reduction = KN_REDUCE_NONE}));
    }
    assert_same_bits(y[0], y[1]);
    assert_same_bits(y[0], y[2]);
}

static double loss_of(kn_tensor *labels, kn_ctc_options o) {
    o.reduction = KN_REDUCE_NONE;
    kn_tensor *y = kn_ctc_loss(kn_logsoftmax(ctc_logits(KN_F32), 2), labels, &o);
    assert_non_null(y);
    assert_true(isfinite(ops_at(y, 3)));
    return ops_at(y, 0);
}

static void lengths_and_labels_out_of_range_give_nan(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *labels = ctc_labels(KN_I64, 0);
    assert_true(isfinite(loss_of(labels, (kn_ctc_options){.blank = 0})));
    kn_tensor *lengths = CTC_LENGTHS(KN_I64, 10, 9, 9, 9);
    assert_true(isnan(loss_of(labels, (kn_ctc_options){.lengths = lengths})));
    lengths = CTC_LENGTHS(KN_I64, -1, 9, 9, 9);
    assert_true(isnan(loss_of(labels, (kn_ctc_options){.lengths = lengths})));
    lengths = CTC_LENGTHS(KN_I64, 4, 3, 3, 3);
    assert_true(isnan(loss_of(labels, (kn_ctc_options){.target_lengths = lengths})));
    lengths = CTC_LENGTHS(KN_I64, 3, 9, 9, 9); /* 1 2 2 takes four steps */
    assert_true(isinf(loss_of(labels, (kn_ctc_options){.lengths = lengths})));
    assert_true(loss_of(labels, (kn_ctc_options){.lengths = lengths, .zero_infinity = 1}) == 0);
    lengths = CTC_LENGTHS(KN_I64, 0, 9, 9, 9);
    kn_tensor *none = CTC_LENGTHS(KN_I64, 0, 3, 3, 3);
    const kn_ctc_options empty = {.lengths = lengths, .target_lengths = none};
    assert_true(loss_of(labels, empty) == 0);
    int32_t wrong[] = {1, 5, 2, 3, 1, 3, 4, 4, 4, 2, 1, 1};
    labels = ctc_integers(wrong, KN_I32, KN_SHAPE(CTC_B, CTC_S));
    assert_true(isnan(loss_of(labels, (kn_ctc_options){.blank = 0})));
    wrong[1] = 0;
    labels = ctc_integers(wrong, KN_U8, KN_SHAPE(CTC_B, CTC_S));
    assert_true(isnan(loss_of(labels, (kn_ctc_options){.zero_infinity = 1})));
}

static void bad_arguments_are_errors_with_the_values(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = ctc_logits(KN_F32), *labels = ctc_labels(KN_I64, 0);
    assert_op_fails(kn_ctc_loss(x, CTC_LENGTHS(KN_I64, 1, 1, 1, 1), NULL), KN_ERR_SHAPE,
                    "the shapes must be [T,B,C] and [B,S]");
    assert_op_fails(kn_ctc_loss(x, labels, &(kn_ctc_options){.lengths = labels}), KN_ERR_SHAPE,
                    "lengths must be [4]");
    assert_op_fails(kn_ctc_loss(x, labels, &(kn_ctc_options){.blank = 5}), KN_ERR_INVALID,
                    "blank is 5; there are 5 classes");
    assert_op_fails(kn_ctc_loss(x, labels, &(kn_ctc_options){.reserved = {0, 0, 1}}),
                    KN_ERR_INVALID, "reserved[2]");
    assert_op_fails(kn_ctc_loss(x, labels, &(kn_ctc_options){.reduction = 9}), KN_ERR_INVALID,
                    "invalid reduction 9");
    assert_op_fails(kn_ctc_loss(x, x, NULL), KN_ERR_DTYPE, "targets is f32");
    kn_tensor *no_batch = kn_zeros(KN_SHAPE(3, 0, 3)), *no_labels = I64(KN_SHAPE(0, 2), 0);
    assert_op_fails(kn_ctc_loss(no_batch, no_labels, NULL), KN_ERR_SHAPE,
                    "kn_ctc_loss: there are no elements to take the mean of (log_probs [3,0,3], "
                    "targets [0,2])");
    assert_values(kn_ctc_loss(no_batch, no_labels, &(kn_ctc_options){.reduction = KN_REDUCE_SUM}),
                  0);
    kn_tensor *none = kn_zeros(KN_SHAPE(0, 2, 3));
    kn_tensor *y = kn_ctc_loss(none, ctc_integers((int32_t[]){1, 2}, KN_I32, KN_SHAPE(2, 1)),
                               &(kn_ctc_options){.reduction = KN_REDUCE_NONE});
    assert_true(isinf(ops_at(y, 0)));
}

int main(void) {
    return RUN_TESTS(OPS_TEST(losses_equal_those_of_pytorch),
                     OPS_TEST(the_loss_is_that_of_all_paths),
                     OPS_TEST(any_number_of_threads_gives_the_same_bits),
                     OPS_TEST(lengths_and_labels_out_of_range_give_nan),
                     OPS_TEST(bad_arguments_are_errors_with_the_values));
}
