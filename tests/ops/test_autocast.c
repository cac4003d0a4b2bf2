/* Products of 16 bits, and frames that cast for them. */
#include <knet/ops.h>

#include "ops_test.h"

static const kn_dtype halves[] = {KN_F16, KN_BF16};

static kn_tensor *noise(kn_shape shape, int seed) {
    static float x[1 << 16];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7 + seed * 5) % 31 - 15) / 16;
    return kn_tensor_from(x, KN_F32, shape);
}

static kn_tensor *wide(kn_tensor *x) { return x == KN_NONE ? x : kn_cast(x, KN_F32); }

/* The call's result has the bits of the same call in f32, rounded once. */
static void assert_rounds(kn_op op, void *attr, size_t bytes, kn_tensor *const in[], int n_in) {
    kn_tensor *in32[4];
    char copy[256];
    memcpy(copy, attr ? attr : "", attr ? bytes : 0);
    for (int i = 0; i < n_in; i++) in32[i] = wide(in[i]);
    kn_tensor *y = kn_op_call_run(op, attr, in, n_in);
    kn_tensor *y32 = kn_op_call_run(op, attr ? copy : NULL, in32, n_in);
    assert_ok(kn_check());
    kn_dtype half = kn_tensor_dtype(in[0]);
    assert_int_equal(kn_tensor_dtype(y), half);
    kn_tensor *want = kn_cast(y32, half);
    assert_int_equal(kn_tensor_numel(y), kn_tensor_numel(want));
    assert_memory_equal(kn_data(y), kn_data(want), 2 * (size_t)kn_tensor_numel(y));
}

#define ROUNDS(name, attr, ...)                                                                    \
    assert_rounds(KN_OP_##name, &(attr), sizeof(attr), KN_LIST_(__VA_ARGS__),                      \
                  KN_LIST_SIZE_(__VA_ARGS__))

static void products_of_halves_round_once(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        KN_FRAME();
        kn_tensor *x = kn_cast(noise(KN_SHAPE(9, 33), 1), halves[h]);
        kn_tensor *w = kn_cast(noise(KN_SHAPE(17, 33), 2), halves[h]);
        kn_tensor *b = kn_cast(noise(KN_SHAPE(17), 3), halves[h]);
        kn_attr_matmul transposed = {0, 1};
        kn_attr_act relu = {KN_ACT_RELU};
        ROUNDS(matmul, transposed, x, w);
        assert_rounds(KN_OP_linear, NULL, 0, KN_LIST_(x, w, b), 3);
        assert_rounds(KN_OP_linear, NULL, 0, KN_LIST_(x, w, KN_NONE), 3);
        kn_tensor *r = kn_cast(noise(KN_SHAPE(9, 17), 4), halves[h]);
        ROUNDS(linear_act, relu, x, w, b, KN_NONE);
        /* bf16 may round twice */
        for (int act = KN_ACT_RELU; halves[h] == KN_F16 && act < KN_ACTS; act++) {
            kn_attr_act any = {act};
            ROUNDS(linear_act, any, x, w, b, r);
        }
    }
}

static void convolutions_and_pools_of_halves_round_once(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        KN_FRAME();
        kn_tensor *x = kn_cast(noise(KN_SHAPE(2, 3, 9, 9), 1), halves[h]);
        kn_tensor *w = kn_cast(noise(KN_SHAPE(4, 3, 3, 3), 2), halves[h]);
        kn_tensor *b = kn_cast(noise(KN_SHAPE(4), 3), halves[h]);
        kn_tensor *x32 = wide(x), *w32 = wide(w), *b32 = wide(b);
        const kn_conv_options relu = {.act = KN_ACT_RELU};
        kn_tensor *pairs[][2] = {
            {kn_conv(x, w, b, NULL), kn_conv(x32, w32, b32, NULL)},
            {kn_conv_add(x, w, b, KN_NONE, &relu), kn_conv_add(x32, w32, b32, KN_NONE, &relu)},
            {kn_maxpool(x, KN_SHAPE(2, 2), NULL), kn_maxpool(x32, KN_SHAPE(2, 2), NULL)},
            {kn_avgpool(x, KN_SHAPE(3, 3), NULL), kn_avgpool(x32, KN_SHAPE(3, 3), NULL)}};
        assert_ok(kn_check());
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            kn_tensor *want = kn_cast(pairs[i][1], halves[h]);
            assert_int_equal(kn_tensor_dtype(pairs[i][0]), halves[h]);
            assert_memory_equal(kn_data(pairs[i][0]), kn_data(want),
                                2 * (size_t)kn_tensor_numel(want));
        }
    }
}

/* c += a·b: c is rounded once, not the product before. */
static void sums_into_halves_round_once(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_cast(noise(KN_SHAPE(5, 40), 1), KN_BF16);
    kn_tensor *b = kn_cast(noise(KN_SHAPE(40, 6), 2), KN_BF16);
    kn_tensor *c = kn_cast(noise(KN_SHAPE(5, 6), 3), KN_BF16);
    kn_tensor *want = kn_cast(kn_add(wide(c), kn_matmul(wide(a), wide(b), NULL)), KN_BF16);
    kn_attr_matmul attr = {0, 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_matmul, &attr, KN_LIST_(a, b), 2);
    call.out[0] = c;
    call.given = call.accumulate = 1;
    assert_non_null(kn_op_run(&call));
    assert_memory_equal(kn_data(c), kn_data(want), 2 * 30);
}

#define assert_dtype(t, want) assert_string_equal(kn_dtype_name(kn_tensor_dtype(t)), want)

/* One function that knows f32 alone, of x [4,6,6,6]; labels are those of 24 rows. */
typedef struct operands {
    kn_tensor *x, *rows, *labels, *w;
    kn_rng *rng;
} operands;

static kn_tensor *of_softmax(const operands *o) { return kn_softmax(o->x, 1); }
static kn_tensor *of_logsoftmax(const operands *o) { return kn_logsoftmax(o->x, -1); }
static kn_tensor *of_entropy(const operands *o) { return kn_cross_entropy(o->rows, o->labels); }
static kn_tensor *of_entropy_with(const operands *o) {
    const kn_cross_entropy_options options = {.ignores = 1, .ignore_index = 2};
    return kn_cross_entropy_with(o->rows, o->labels, &options);
}
static kn_tensor *of_nll(const operands *o) { return kn_nll(kn_logsoftmax(o->rows, 1), o->labels); }
static kn_tensor *of_accuracy(const operands *o) { return kn_accuracy(o->rows, o->labels); }
static kn_tensor *of_ctc(const operands *o) {
    const kn_ctc_options sum = {.reduction = KN_REDUCE_SUM};
    return kn_ctc_loss(kn_reshape(o->x, KN_SHAPE(6, 4, 36)),
                       kn_reshape(kn_slice(o->labels, KN_SHAPE(0), KN_SHAPE(4)), KN_SHAPE(4, 1)),
                       &sum);
}
static kn_tensor *of_rnn(const operands *o) {
    kn_tensor *h = NULL;
    const kn_rnn_options tanh = {.hidden = 6, .mode = KN_RNN_TANH, .h_n = &h};
    kn_tensor *y = kn_rnn(kn_reshape(o->x, KN_SHAPE(36, 4, 6)), o->w, &tanh);
    return y ? kn_concat((kn_tensor *[]){y, h}, 2, 0) : NULL;
}
static kn_tensor *of_attention(const operands *o) {
    kn_tensor *first = kn_slice(o->x, KN_SHAPE(0, 0, 0, 0), KN_SHAPE(1, 1, 6, 6));
    const kn_attention_options masked = {.mask = kn_reshape(first, KN_SHAPE(6, 6)), .causal = 1};
    return kn_attention(o->x, o->x, o->x, &masked);
}
static kn_tensor *of_rotary(const operands *o) { return kn_rotary(o->x, NULL); }
static kn_tensor *of_resize(const operands *o) {
    const kn_resize_options linear = {.mode = KN_RESIZE_LINEAR};
    return kn_resize(o->x, KN_SHAPE(9, 5), &linear);
}
static kn_tensor *of_grid(const operands *o) {
    kn_tensor *grid = kn_slice(o->x, KN_SHAPE(0, 0, 0, 0), KN_SHAPE(4, 6, 6, 2));
    return kn_grid_sample(o->x, grid, NULL);
}
static kn_tensor *of_dropout(const operands *o) {
    assert_ok(kn_rng_state_set(o->rng, 7, 0));
    return kn_dropout(o->x, 0.25, o->rng);
}

static const struct {
    const char *name;
    kn_tensor *(*f)(const operands *o);
} of_f32[] = {{"softmax", of_softmax},
              {"logsoftmax", of_logsoftmax},
              {"cross_entropy", of_entropy},
              {"cross_entropy_with", of_entropy_with},
              {"nll", of_nll},
              {"accuracy", of_accuracy},
              {"ctc_loss", of_ctc},
              {"rnn", of_rnn},
              {"attention", of_attention},
              {"rotary", of_rotary},
              {"resize", of_resize},
              {"grid_sample", of_grid},
              {"dropout", of_dropout}};

static operands operands_of(kn_dtype dtype, kn_rng *rng) {
    int64_t label[24];
    for (int i = 0; i < 24; i++) label[i] = i % 6 + (i % 6 == 0);
    kn_tensor *x = kn_cast(noise(KN_SHAPE(4, 6, 6, 6), 1), dtype);
    return (operands){x, kn_slice(kn_reshape(x, KN_SHAPE(144, 6)), KN_SHAPE(0, 0), KN_SHAPE(24, 6)),
                      kn_tensor_from(label, KN_I64, KN_SHAPE(24)),
                      kn_cast(noise(KN_SHAPE(84), 2), dtype), rng};
}

/* A result of 16 bits near that of f32; in frames with autocast one of f32, but for turned keys. */
static void functions_of_f32_take_16_bits(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 7));
    for (size_t i = 0; i < sizeof of_f32 / sizeof *of_f32; i++)
        for (int h = 0; h < 2; h++) {
            KN_FRAME();
            operands low = operands_of(halves[h], rng), o = operands_of(KN_F32, rng);
            kn_tensor *y = of_f32[i].f(&low), *want = of_f32[i].f(&o);
            if (!y) print_error("%s: %s\n", of_f32[i].name, kn_last_error()->message);
            assert_ok(kn_check());
            assert_int_equal(kn_tensor_dtype(y), halves[h]);
            for (int64_t k = 0; k < kn_tensor_numel(want); k++)
                assert_close(ops_at(wide(y), k), ops_at(want, k), 0x1p-7, 0x1p-7);
            KN_FRAME(.autocast = (int)halves[h]);
            kn_dtype got = kn_tensor_dtype(of_f32[i].f(&low));
            assert_int_equal(got, of_f32[i].f == of_rotary ? halves[h] : KN_F32);
        }
    kn_rng_destroy(rng);
}

/* Every loss of predictions in[0] and targets in[1], and of probabilities in[2] and in[3]. */
static int losses_of(kn_tensor *out[], kn_tensor *const in[4]) {
    const kn_reduction mean = KN_REDUCE_MEAN;
    kn_tensor *x = in[0], *y = in[1];
    kn_tensor *all[] = {kn_mse(x, y, mean),
                        kn_mse(x, y, KN_REDUCE_NONE),
                        kn_mae(x, y, mean),
                        kn_huber(x, y, 500, mean),
                        kn_smooth_l1(x, y, 0.5, mean),
                        kn_bce(in[2], in[3], mean),
                        kn_bce_logits(x, y, mean),
                        kn_logistic(x, y, mean),
                        kn_hinge(x, y, 1, mean),
                        kn_kl_div(x, in[3], false, mean),
                        kn_kl_div(x, y, true, mean)};
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof *all;
}

/* Terms such as (300 - 3)² don't fit f16. */
static void losses_of_16_bits_are_those_of_f32_with_autocast(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        KN_FRAME();
        kn_tensor *x = kn_cast(kn_affine(noise(KN_SHAPE(40), 1), 320, 0), halves[h]);
        kn_tensor *y = kn_cast(noise(KN_SHAPE(40), 2), halves[h]), *got[16], *want[16];
        kn_tensor *in[4] = {x, y, kn_sigm(x), kn_sigm(y)};
        int n = losses_of(want, (kn_tensor *[]){wide(x), wide(y), wide(in[2]), wide(in[3])});
        KN_FRAME(.autocast = (int)halves[h]);
        assert_int_equal(losses_of(got, in), n);
        for (int i = 0; i < n; i++) {
            assert_dtype(got[i], "f32");
            for (int64_t k = 0; k < kn_tensor_numel(want[i]); k++)
                assert_close(ops_at(got[i], k), ops_at(want[i], k), 0, 0);
        }
    }
}

static void autocast_chooses_dtypes_by_op(void **state) {
    (void)state;
    KN_FRAME(.autocast = KN_BF16);
    assert_int_equal(kn_frame_autocast(), KN_BF16);
    kn_tensor *x = noise(KN_SHAPE(4, 2, 6, 6), 1), *w = noise(KN_SHAPE(3, 2, 3, 3), 2);
    kn_tensor *b = noise(KN_SHAPE(3), 3), *v = noise(KN_SHAPE(5, 12), 4);
    assert_ok(kn_check());
    kn_tensor *y = kn_conv(x, w, b, NULL);
    assert_dtype(y, "bf16");
    assert_dtype(kn_relu(y), "bf16");
    kn_tensor *p = kn_maxpool(y, KN_SHAPE(2, 2), NULL);
    assert_dtype(p, "bf16");
    assert_dtype(kn_conv(p, noise(KN_SHAPE(2, 3, 2, 2), 5), KN_NONE, NULL), "bf16");
    assert_dtype(kn_deconv(p, noise(KN_SHAPE(3, 2, 2, 2), 5), KN_NONE, NULL), "bf16");
    assert_dtype(kn_groupnorm(y, b, KN_NONE, 3, 1e-5), "bf16");
    kn_tensor *z = kn_linear(kn_flatten(p), v, KN_NONE);
    assert_dtype(z, "bf16");
    assert_dtype(kn_matmul(v, v, &(kn_matmul_options){.trans_b = 1}), "bf16");
    assert_dtype(kn_sum(z, KN_ALL, false), "f32");
    assert_dtype(kn_mean(z, KN_ALL, false), "f32");
    assert_dtype(kn_softmax(z, 1), "f32");
    kn_tensor *labels = I64(KN_SHAPE(4), 0, 1, 2, 3);
    assert_dtype(kn_cross_entropy(z, labels), "f32");
    kn_tensor *shift = noise(KN_SHAPE(5), 1);
    assert_dtype(kn_add(z, shift), "f32"); /* of both */
    assert_dtype(kn_add(z, z), "bf16");
    assert_dtype(kn_concat(KN_LIST_(z, kn_cast(z, KN_F32)), 2, 0), "f32");
    assert_dtype(kn_tanh(noise(KN_SHAPE(3), 1)), "f32"); /* not a product */
    kn_tensor *d = kn_cast(v, KN_F64);
    assert_dtype(kn_matmul(d, d, &(kn_matmul_options){.trans_b = 1}), "f64");
    {
        KN_FRAME(.autocast = KN_OFF);
        assert_int_equal(kn_frame_autocast(), 0);
        assert_dtype(kn_conv(x, w, b, NULL), "f32");
    }
    {
        KN_FRAME(.autocast = KN_F16); /* another one casts anew */
        assert_dtype(kn_linear(z, noise(KN_SHAPE(2, 5), 1), KN_NONE), "f16");
    }
    assert_ok(kn_check());
}

static void autocast_is_the_same_as_casts_by_hand(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = noise(KN_SHAPE(7, 20), 1), *w = noise(KN_SHAPE(5, 20), 2);
    kn_tensor *b = noise(KN_SHAPE(5), 3);
    kn_tensor *want = kn_linear(kn_cast(x, KN_F16), kn_cast(w, KN_F16), kn_cast(b, KN_F16));
    KN_FRAME(.autocast = KN_F16);
    kn_tensor *y = kn_linear(x, w, b);
    assert_memory_equal(kn_data(y), kn_data(want), 2 * 35);
}

/* Without a tape nothing reads the cast weights again. */
static void casts_end_with_their_op(void **state) {
    (void)state;
    enum { N = 64 };
    KN_FRAME(.autocast = KN_BF16);
    kn_tensor *x = noise(KN_SHAPE(1, N), 1), *w = noise(KN_SHAPE(N, N), 2);
    uint64_t before = ops_live_bytes();
    for (int i = 0; i < 10; i++) assert_non_null(kn_linear(x, w, KN_NONE));
    assert_true(ops_live_bytes() - before < 10 * 2 * N * N / 4);
}

static void a_wrong_autocast_is_an_error(void **state) {
    (void)state;
    {
        KN_FRAME(.autocast = KN_F64);
        assert_fails(kn_check(), KN_ERR_DTYPE, "autocast is 2; it must be KN_F16, KN_BF16");
    }
    KN_FRAME(.autocast = KN_BF16);
    kn_tensor *x = noise(KN_SHAPE(4, 3), 1), *w = noise(KN_SHAPE(5, 4), 2);
    assert_op_fails(kn_linear(x, w, KN_NONE), KN_ERR_SHAPE, "x has 3 features, w expects 4");
    assert_int_equal(kn_frame_autocast(), KN_BF16); /* the frame is as before */
    kn_tensor *i = I64(KN_SHAPE(2), 1, 2);
    assert_op_fails(kn_add(i, x), KN_ERR_DTYPE, "see kn_cast");
    assert_op_fails(kn_add(NULL, x), KN_ERR_INVALID, "is NULL");
}

/* The kernel would write the new statistics into casts, and they were lost with them. */
static void what_an_op_writes_is_not_cast(void **state) {
    (void)state;
    KN_FRAME(.autocast = KN_BF16);
    const kn_batchnorm_options training = {.training = 1};
    kn_tensor *x = noise(KN_SHAPE(4, 3, 2), 1), *wide_mean = kn_zeros(KN_SHAPE(3));
    for (int h = 0; h < 2; h++) {
        kn_tensor *mean = kn_cast(wide_mean, halves[h]), *var = kn_cast(wide_mean, halves[h]);
        kn_tensor *weight = kn_cast(noise(KN_SHAPE(3), 2), halves[h]);
        char text[96];
        snprintf(text, sizeof text, "x is f32, running_mean is %s", kn_dtype_name(halves[h]));
        assert_op_fails(kn_batchnorm(x, mean, var, weight, KN_NONE, &training), KN_ERR_DTYPE, text);
        snprintf(text, sizeof text, "x is f32, running_var is %s", kn_dtype_name(halves[h]));
        assert_op_fails(kn_batchnorm(x, wide_mean, var, weight, KN_NONE, &training), KN_ERR_DTYPE,
                        text);
        /* what it only reads is cast */
        kn_tensor *new_mean = kn_zeros(KN_SHAPE(3)), *new_var = kn_ones(KN_SHAPE(3));
        assert_dtype(kn_batchnorm(x, new_mean, new_var, weight, KN_NONE, &training), "f32");
        assert_true(((float *)kn_data(new_mean))[0] != 0);
        assert_dtype(kn_batchnorm(x, mean, var, weight, KN_NONE, NULL), "f32");
        assert_ok(kn_check());
    }
}

static void many_inputs_are_cast_too(void **state) {
    (void)state;
    enum { MOST = 200 };
    static const int counts[] = {64, 65, MOST};
    for (int c = 0; c < 3; c++) {
        KN_FRAME(.autocast = KN_BF16);
        kn_tensor *x[MOST];
        int n = counts[c];
        for (int i = 0; i < n; i++) x[i] = kn_cast(kn_full(KN_SHAPE(2), i), i ? KN_BF16 : KN_F32);
        kn_tensor *joined[] = {kn_concat(x, n, 0), kn_stack(x, n, 0)};
        assert_ok(kn_check());
        for (int k = 0; k < 2; k++) {
            assert_dtype(joined[k], "f32");
            const float *y = kn_data(joined[k]);
            for (int i = 0; i < 2 * n; i++) assert_true(y[i] == (float)(i / 2));
        }
    }
}

/* A power of two of 16 bits would be cut off before it is cast. */
static void exponents_of_16_bits_scale_as_those_of_f32(void **state) {
    (void)state;
    KN_FRAME(.autocast = KN_BF16);
    kn_tensor *n = F32(KN_SHAPE(5), 100, -140, 127, 20, 0.5), *x = kn_ones(KN_SHAPE(5));
    for (int h = 0; h < 2; h++) {
        kn_tensor *low = kn_cast(n, halves[h]), *want = kn_ldexp(x, kn_cast(low, KN_F32));
        kn_tensor *y = kn_ldexp(x, low), *other = kn_ldexp(kn_cast(x, halves[!h]), low);
        assert_ok(kn_check());
        assert_dtype(y, "f32");
        assert_dtype(other, "f32");
        assert_memory_equal(kn_data(y), kn_data(want), 5 * sizeof(float));
        assert_memory_equal(kn_data(other), kn_data(want), 5 * sizeof(float));
        KN_FRAME(.autocast = KN_OFF);
        assert_op_fails(kn_ldexp(x, low), KN_ERR_DTYPE, "kn_ldexp: x is f32, n is");
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(products_of_halves_round_once),
                     OPS_TEST(convolutions_and_pools_of_halves_round_once),
                     OPS_TEST(sums_into_halves_round_once), OPS_TEST(functions_of_f32_take_16_bits),
                     OPS_TEST(losses_of_16_bits_are_those_of_f32_with_autocast),
                     OPS_TEST(autocast_chooses_dtypes_by_op),
                     OPS_TEST(autocast_is_the_same_as_casts_by_hand),
                     OPS_TEST(casts_end_with_their_op), OPS_TEST(a_wrong_autocast_is_an_error),
                     OPS_TEST(what_an_op_writes_is_not_cast), OPS_TEST(many_inputs_are_cast_too),
                     OPS_TEST(exponents_of_16_bits_scale_as_those_of_f32));
}
