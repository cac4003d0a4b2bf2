/* Gradients of recurrent networks, attention, the CTC loss and images: against PyTorch, and the
 * same bits for any number of threads. */
#include <knet/op.h>
#include "../ops/golden/image.h"
#include "../ops/golden_ctc.h"
#include "autograd_test.h"

static const int threads[] = {1, 2, 7};

static void check_each(kn_tensor *t, const double *want, double most) {
    assert_non_null(t);
    for (int64_t i = 0; i < kn_tensor_numel(t); i++)
        assert_close(ops_at(t, i), want[i], most, most);
}

static void gradients_of_the_ctc_loss_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        ctc_case cases[5];
        ctc_cases(cases);
        for (int i = 0; i < 5; i++) {
            const ctc_case *c = &cases[i];
            kn_tensor *x = kn_watch(ctc_logits(dtype)), *dx = NULL;
            kn_tensor *y =
                kn_ctc_loss(kn_logsoftmax(x, 2), ctc_labels(KN_U8, c->shift), &c->options);
            assert_ok(kn_gradients(&dx, sum_all(y), &x, 1, &(kn_gradients_options){.keep = 1}));
            check_each(dx, c->want + c->n, dtype == KN_F64 ? 1e-10 : 2e-6);
        }
    }
}

static void an_infinite_loss_has_a_gradient_of_nan(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(ctc_logits(KN_F32)), *dx = NULL;
    const kn_ctc_options o = {.lengths = CTC_LENGTHS(KN_I64, 2, 9, 9, 9)};
    kn_tensor *y = kn_ctc_loss(x, ctc_labels(KN_I64, 0), &o);
    assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
    assert_true(isnan(ops_at(dx, 0)) && isfinite(ops_at(dx, CTC_C)));
    assert_true(ops_at(dx, 2 * CTC_B * CTC_C) == 0); /* beyond the sequence */
}

static void the_ctc_loss_has_no_second_derivative(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(ctc_logits(KN_F32)), *dx = NULL;
    kn_tensor *y = kn_ctc_loss(x, ctc_labels(KN_I64, 0), NULL);
    assert_fails(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}),
                 KN_ERR_UNSUPPORTED, "kn_ctc_loss: its gradient can't be differentiated again");
}

/* What image.py's made() makes. */
static kn_tensor *made(kn_dtype dtype, kn_shape shape, int a, int b, int m, double scale,
                       double shift) {
    double x[64];
    for (int i = 0; i < 64; i++) x[i] = (i * a + b) % m * scale + shift;
    return kn_watch(from_doubles(x, dtype, shape));
}

/* The gradients of Σ y·(1 … n). */
static void check_image(kn_tensor *y, kn_tensor *x[], int n_x, const double *want) {
    assert_non_null(y);
    int64_t n = kn_tensor_numel(y);
    kn_tensor *weights =
        kn_reshape(kn_arange(1, (double)n + 1, 1, kn_tensor_dtype(y)), kn_tensor_shape(y));
    kn_tensor *d[2];
    kn_tensor *sum = sum_all(kn_mul(y, weights));
    assert_ok(kn_gradients(d, sum, x, n_x, &(kn_gradients_options){.keep = 1}));
    for (int i = 0; i < n_x; i++) {
        check_each(d[i], want, kn_tensor_dtype(y) == KN_F64 ? 1e-10 : 2e-5);
        want += kn_tensor_numel(d[i]);
    }
}

static void gradients_of_images_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        kn_tensor *x = made(dtype, KN_SHAPE(2, 2, 3, 4), 7, 3, 23, 0.125, -1.25);
#define RESIZED(size, ...) kn_resize(x, size, &(kn_resize_options){__VA_ARGS__}), &x, 1
        check_image(RESIZED(KN_SHAPE(5, 3), .mode = KN_RESIZE_NEAREST), golden_nearest_d);
        check_image(RESIZED(KN_SHAPE(5, 3), .mode = KN_RESIZE_EXACT), golden_exact_d);
        check_image(RESIZED(KN_SHAPE(5, 7), .mode = KN_RESIZE_LINEAR), golden_linear_d);
        check_image(RESIZED(KN_SHAPE(2, 7), .mode = KN_RESIZE_CORNERS), golden_corners_d);
        check_image(RESIZED(KN_SCALAR, .mode = KN_RESIZE_LINEAR, .scale = {1.6, 0.7}),
                    golden_scaled_d);
        kn_tensor *grid = made(dtype, KN_SHAPE(2, 3, 2, 2), 11, 5, 37, 0.0703125, -1.2);
        kn_tensor *in[] = {x, grid};
#define SAMPLES(...) kn_grid_sample(x, grid, &(kn_grid_options){__VA_ARGS__}), in, 2
        check_image(SAMPLES(.border = 0), golden_bilinear_zeros_0_d);
        check_image(SAMPLES(.align_corners = 1), golden_bilinear_zeros_1_d);
        check_image(SAMPLES(.border = 1), golden_bilinear_border_0_d);
        check_image(SAMPLES(.border = 1, .align_corners = 1), golden_bilinear_border_1_d);
        check_image(SAMPLES(.nearest = 1), golden_nearest_zeros_0_d);
        check_image(SAMPLES(.nearest = 1, .border = 1), golden_nearest_border_0_d);
    }
}

static void nearest_samples_have_no_slope_by_the_grid(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 1, 2), INFINITY, 3);
    KN_TAPE();
    kn_tensor *grid = kn_watch(F32(KN_SHAPE(1, 1, 2, 2), -0.5f, 0.1f, 0.5f, 0.1f)), *d;
    kn_tensor *y = kn_grid_sample(x, grid, &(kn_grid_options){.nearest = 1});
    assert_ok(kn_gradients(&d, kn_sum(y, KN_ALL, false), &grid, 1, NULL));
    assert_values(d, 0, 0, 0, 0);
}

/* softmax(q·kᵀ + mask)·v */
static kn_tensor *small_attention(kn_tensor *const x[]) {
    kn_tensor *scores = kn_matmul(x[0], x[1], &(kn_matmul_options){.trans_b = 1});
    return kn_matmul(kn_softmax(kn_add(scores, x[3]), 3), x[2], NULL);
}

/* Scores have no rounding, so that they are those of small ops; masked ones are all alike. */
static void gradients_of_large_scores_equal_those_of_small_ops(void **state) {
    (void)state;
    static const double masks[] = {0, -1e4, -1e9, -1e20, -3e38};
    for (size_t i = 0; i < 2 * sizeof masks / sizeof *masks; i++) {
        kn_dtype dtype = i % 2 ? KN_F64 : KN_F32;
        KN_TAPE(.dtype = dtype);
        double mask = masks[i / 2];
        const double q[] = {100, 101, 99, 100.5}, k[] = {100, 100.125, 99.875, 100, 100.25};
        kn_tensor *x[] = {kn_watch(from_doubles(q, dtype, KN_SHAPE(1, 1, 4, 1))),
                          kn_watch(from_doubles(k, dtype, KN_SHAPE(1, 1, 5, 1))),
                          kn_watch(random_tensor(dtype, KN_SHAPE(1, 1, 5, 3))),
                          kn_watch(kn_full(KN_SHAPE(4, 5), mask))};
        kn_tensor *w = random_tensor(dtype, KN_SHAPE(1, 1, 4, 3)), *got[4], *want[4];
        kn_tensor *y =
            kn_attention(x[0], x[1], x[2], &(kn_attention_options){.scale = 1, .mask = x[3]});
        const kn_gradients_options o = {.dy = w, .keep = 1};
        assert_ok(kn_gradients(got, y, x, 4, &o));
        assert_ok(kn_gradients(want, small_attention(x), x, 4, &o));
        for (int t = 0; t < 4; t++) {
            double most = (dtype == KN_F64 ? 1e-12 : 1e-5) * (t < 2 ? 100 : 1);
            for (int64_t j = 0; j < kn_tensor_numel(x[t]); j++)
                assert_close(ops_at(got[t], j), ops_at(want[t], j), most, most);
        }
    }
}

/* Scores are 0 with any scale. 1/1e-40 is infinite in f32. */
/* Up to three queries read keys and values without packing them; these keys are two blocks. */
static void gradients_of_few_queries_equal_those_of_small_ops(void **state) {
    (void)state;
    for (int64_t queries = 1; queries <= 4; queries++) {
        KN_TAPE(.dtype = KN_F64);
        const kn_shape shapes[] = {KN_SHAPE(2, 3, queries, 20), KN_SHAPE(2, 3, 300, 20),
                                   KN_SHAPE(2, 3, 300, 9), KN_SHAPE(queries, 300)};
        kn_tensor *x[4], *got[4], *want[4];
        for (int i = 0; i < 4; i++) x[i] = kn_watch(random_tensor(KN_F64, shapes[i]));
        kn_tensor *g = random_tensor(KN_F64, KN_SHAPE(2, 3, queries, 9));
        const kn_gradients_options o = {.dy = g, .keep = 1};
        const kn_attention_options attention = {.scale = 1, .mask = x[3]};
        assert_ok(kn_gradients(got, kn_attention(x[0], x[1], x[2], &attention), x, 4, &o));
        assert_ok(kn_gradients(want, small_attention(x), x, 4, &o));
        for (int i = 0; i < 4; i++)
            for (int64_t at = 0; at < kn_tensor_numel(got[i]); at++)
                assert_close(ops_at(got[i], at), ops_at(want[i], at), 1e-10, 1e-10);
    }
}

static void the_gradient_of_a_mask_does_not_depend_on_the_scale(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        const double scale[] = {1, dtype == KN_F64 ? 1e-310 : 1e-40,
                                dtype == KN_F64 ? 1e308 : 3e38};
        kn_tensor *mask = kn_watch(random_tensor(dtype, KN_SHAPE(4, 5))), *d[3];
        kn_tensor *k = kn_zeros(KN_SHAPE(1, 1, 5, 2)), *q = kn_zeros(KN_SHAPE(1, 1, 4, 2));
        kn_tensor *v = random_tensor(dtype, KN_SHAPE(1, 1, 5, 3));
        kn_tensor *dy = random_tensor(dtype, KN_SHAPE(1, 1, 4, 3));
        const kn_gradients_options o = {.dy = dy, .keep = 1};
        for (int i = 0; i < 3; i++) {
            const kn_attention_options attention = {.scale = scale[i], .mask = mask};
            assert_ok(kn_gradients(&d[i], kn_attention(q, k, v, &attention), &mask, 1, &o));
            assert_same_bits(d[i], d[0]);
        }
    }
}

/* f's gradients of the sum of its squares, with 1, 2 and 7 threads. */
static void check_threads(kn_tensor *(*f)(kn_tensor *const x[]), kn_tensor *const x[], int n_x) {
    kn_tensor *d[3][4];
    for (int i = 0; i < 3; i++) {
        KN_TAPE(.threads = threads[i]);
        kn_tensor *in[4];
        for (int k = 0; k < n_x; k++) in[k] = kn_watch(x[k]);
        kn_tensor *loss = sum_all(kn_square(f(in)));
        assert_ok(kn_gradients(d[i], loss, in, n_x, NULL));
        for (int k = 0; k < n_x; k++) d[i][k] = kn_keep(d[i][k]);
    }
    for (int i = 1; i < 3; i++)
        for (int k = 0; k < n_x; k++) assert_same_bits(d[0][k], d[i][k]);
}

static kn_tensor *lstm(kn_tensor *const x[]) {
    return kn_rnn(x[0], x[1], &(kn_rnn_options){.hidden = 17, .layers = 2, .bidirectional = 1});
}
static kn_tensor *gru(kn_tensor *const x[]) {
    static const int64_t lengths[] = {3, 9, 1, 5, 7, 9, 2, 0, 4, 6, 8};
    const kn_rnn_options o = {.hidden = 13, .mode = KN_RNN_GRU, .lengths = lengths};
    return kn_rnn(x[0], x[1], &o);
}
static kn_tensor *attention(kn_tensor *const x[]) {
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 5));
    const kn_attention_options o = {
        .mask = x[3], .dropout = 0.2, .rng = rng, .causal = 1, .offset = 3};
    kn_tensor *y = kn_attention(x[0], x[1], x[2], &o);
    kn_rng_destroy(rng);
    return y;
}
static kn_tensor *samples(kn_tensor *const x[]) {
    return kn_resize(kn_grid_sample(x[0], x[1], NULL), KN_SHAPE(31, 17), NULL);
}
static kn_tensor *ctc(kn_tensor *const x[]) {
    return kn_ctc_loss(x[0], ctc_labels(KN_I64, 0), NULL);
}

static void any_number_of_threads_gives_the_same_gradients(void **state) {
    (void)state;
    KN_FRAME();
    int64_t n = kn_rnn_params(5, &(kn_rnn_options){.hidden = 17, .layers = 2, .bidirectional = 1});
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(6, 37, 5));
    check_threads(lstm, KN_LIST_(x, random_scaled(KN_F32, KN_SHAPE(n), 0.3)), 2);
    n = kn_rnn_params(5, &(kn_rnn_options){.hidden = 13, .mode = KN_RNN_GRU});
    x = random_tensor(KN_F32, KN_SHAPE(9, 11, 5));
    check_threads(gru, KN_LIST_(x, random_scaled(KN_F32, KN_SHAPE(n), 0.3)), 2);
    kn_tensor *q = random_tensor(KN_F32, KN_SHAPE(2, 4, 130, 16));
    kn_tensor *k = random_tensor(KN_F32, KN_SHAPE(2, 2, 290, 16));
    kn_tensor *v = random_tensor(KN_F32, KN_SHAPE(2, 2, 290, 9));
    check_threads(attention, KN_LIST_(q, k, v, random_tensor(KN_F32, KN_SHAPE(4, 130, 1))), 4);
    x = random_tensor(KN_F32, KN_SHAPE(3, 19, 20, 21));
    check_threads(samples, KN_LIST_(x, random_tensor(KN_F32, KN_SHAPE(3, 17, 19, 2))), 2);
    check_threads(ctc, KN_LIST_(ctc_logits(KN_F32)), 1);
}

enum { LONG_STEPS = 70, LONG_BATCH = 40, LONG_INPUTS = 5 };

/* dx and dw of Σ y², y of these sequences. */
static void long_gradients(kn_tensor *d[2], kn_tensor *x, kn_tensor *w, kn_rnn_options o) {
    kn_tensor *in[] = {kn_watch(x), kn_watch(w)};
    kn_tensor *y = kn_rnn(in[0], in[1], &o);
    assert_non_null(y);
    assert_ok(kn_gradients(d, sum_all(kn_mul(y, y)), in, 2, &(kn_gradients_options){.keep = 1}));
}

/* The batch has more rows than one block of backward; a sequence alone has fewer. */
static void check_long(kn_rnn_options o, bool is_packed) {
    KN_TAPE(.dtype = KN_F64);
    int64_t lengths[LONG_BATCH];
    for (int b = 0; b < LONG_BATCH; b++) lengths[b] = (b * 29 + 7) % (LONG_STEPS + 1);
    int64_t n = kn_rnn_params(LONG_INPUTS, &o);
    kn_tensor *x = random_tensor(KN_F64, KN_SHAPE(LONG_STEPS, LONG_BATCH, LONG_INPUTS));
    kn_tensor *w = random_scaled(KN_F64, KN_SHAPE(n), 0.4), *sum = kn_zeros(KN_SHAPE(n)), *d[2];
    o.lengths = is_packed ? lengths : NULL;
    long_gradients(d, x, w, o);
    for (int b = 0; b < LONG_BATCH; b++) {
        kn_tensor *one = kn_reshape(kn_select(x, b, 1), KN_SHAPE(LONG_STEPS, 1, LONG_INPUTS));
        kn_tensor *alone[2], *dx = kn_select(d[0], b, 1);
        o.lengths = is_packed ? &lengths[b] : NULL;
        long_gradients(alone, one, w, o);
        for (int64_t i = 0; i < kn_tensor_numel(dx); i++)
            assert_close(ops_at(dx, i), ops_at(alone[0], i), 1e-10, 1e-10);
        sum = kn_add(sum, alone[1]);
    }
    for (int64_t i = 0; i < n; i++) assert_close(ops_at(d[1], i), ops_at(sum, i), 1e-9, 1e-9);
}

static void gradients_of_a_long_batch_are_sums_of_its_sequences(void **state) {
    (void)state;
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        check_long((kn_rnn_options){.hidden = 6, .layers = 3}, is_packed);
        check_long((kn_rnn_options){.hidden = 6, .layers = 3, .bidirectional = 1}, is_packed);
        check_long((kn_rnn_options){.hidden = 7, .mode = KN_RNN_GRU, .layers = 2}, is_packed);
        check_long(
            (kn_rnn_options){
                .hidden = LONG_INPUTS, .mode = KN_RNN_GRU, .bidirectional = 1, .skip_input = 1},
            is_packed);
    }
}

/* Of the sum of y, of w. */
static kn_tensor *dw_of(kn_tensor *x, kn_tensor *w, const kn_rnn_options *o) {
    kn_tensor *d = NULL, *watched = kn_watch(w);
    kn_drop(kn_full(kn_tensor_shape(w), 7)); /* memory that is used again */
    assert_ok(kn_gradients(&d, sum_all(kn_rnn(x, watched, o)), &watched, 1, NULL));
    return d;
}

static void networks_without_steps_or_sequences_have_gradients_of_zero(void **state) {
    (void)state;
    for (int mode = KN_RNN_LSTM; mode <= KN_RNN_RELU; mode++)
        for (int64_t steps = 0; steps <= 5; steps += 5) {
            KN_TAPE();
            kn_rnn_options o = {
                .hidden = 4, .layers = 2, .bidirectional = 1, .mode = (kn_rnn_mode)mode};
            kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(kn_rnn_params(3, &o)));
            kn_tensor *d = dw_of(kn_zeros(KN_SHAPE(steps, steps ? 0 : 2, 3)), w, &o);
            for (int64_t i = 0; i < kn_tensor_numel(w); i++) assert_close(ops_at(d, i), 0, 0, 0);
        }
}

/* As of one input that is always 0. */
static void a_network_without_inputs_has_the_gradients_of_its_states(void **state) {
    (void)state;
    for (int mode = KN_RNN_LSTM; mode <= KN_RNN_RELU; mode++) {
        KN_TAPE();
        kn_rnn_options o = {.hidden = 4, .mode = (kn_rnn_mode)mode};
        int64_t n = kn_rnn_params(0, &o), more = kn_rnn_params(1, &o) - n;
        kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(n));
        kn_tensor *wide = kn_concat(KN_LIST_(kn_zeros(KN_SHAPE(more)), w), 2, 0);
        kn_tensor *d = dw_of(kn_zeros(KN_SHAPE(5, 2, 0)), w, &o);
        kn_tensor *want = dw_of(kn_zeros(KN_SHAPE(5, 2, 1)), wide, &o);
        for (int64_t i = 0; i < n; i++)
            assert_close(ops_at(d, i), ops_at(want, more + i), 1e-6, 1e-6);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(gradients_of_the_ctc_loss_equal_those_of_pytorch),
                     OPS_TEST(an_infinite_loss_has_a_gradient_of_nan),
                     OPS_TEST(the_ctc_loss_has_no_second_derivative),
                     OPS_TEST(gradients_of_images_equal_those_of_pytorch),
                     OPS_TEST(nearest_samples_have_no_slope_by_the_grid),
                     OPS_TEST(gradients_of_large_scores_equal_those_of_small_ops),
                     OPS_TEST(gradients_of_few_queries_equal_those_of_small_ops),
                     OPS_TEST(the_gradient_of_a_mask_does_not_depend_on_the_scale),
                     OPS_TEST(any_number_of_threads_gives_the_same_gradients),
                     OPS_TEST(gradients_of_a_long_batch_are_sums_of_its_sequences),
                     OPS_TEST(networks_without_steps_or_sequences_have_gradients_of_zero),
                     OPS_TEST(a_network_without_inputs_has_the_gradients_of_its_states));
}
