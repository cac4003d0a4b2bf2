/* Gradients at the edges of what a function takes, and of losses that something weighs. */
#include "autograd_test.h"

#include <float.h>
#include <math.h>

static void gradients_at_the_edges_take_the_limit_that_is_finite(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x[2] = {kn_watch(F32(KN_SHAPE(3), 0, 0, 2)), kn_watch(F32(KN_SHAPE(3), 0, -1, 1))};
    kn_tensor *dx[2];
    const kn_gradients_options keep = {.keep = 1};
    assert_ok(kn_gradients(dx, kn_xlogy(x[0], x[1]), x, 2, &keep));
    assert_values(dx[0], 0, 0, 0);
    kn_tensor *p[2] = {kn_watch(F32(KN_SHAPE(3), INFINITY, 0, 3)),
                       kn_watch(F32(KN_SHAPE(3), 0, -1, 2))};
    assert_ok(kn_gradients(dx, kn_pow(p[0], p[1]), p, 2, &keep));
    assert_true(ops_at(dx[0], 0) == 0 && ops_at(dx[0], 2) == 6);
    assert_true(ops_at(dx[1], 1) == -INFINITY);
    kn_tensor *m = kn_watch(F32(KN_SHAPE(5), 1e15f, 1e20f, 1e30f, 25, INFINITY)), *dm;
    assert_ok(kn_gradients(&dm, kn_mish(m), &m, 1, &keep));
    assert_values(dm, 1, 1, 1, 1, 1);
}

/* Knet's own rule for a loss that backward starts from must not hold for others. */
static void a_cross_entropy_is_weighed_by_what_comes_after(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 3), "w", 0.1f, 0.2f, 0.3f, 1, 2, 3);
    KN_TAPE();
    kn_tensor *labels = I64(KN_SHAPE(2), 0, 1), *dx[3];
    kn_tensor *y = kn_cross_entropy(w, labels);
    const double weight[] = {1, 3, 0};
    for (int i = 0; i < 3; i++) {
        kn_gradients_options o = {.keep = 1, .dy = kn_full(KN_SCALAR, weight[i])};
        assert_ok(kn_gradients(&dx[i], y, &w, 1, &o));
    }
    for (int64_t k = 0; k < 6; k++) {
        assert_close(ops_at(dx[1], k), 3 * ops_at(dx[0], k), 1e-6, 0);
        assert_true(ops_at(dx[2], k) == 0);
    }
    assert_ok(kn_backward(y));
    for (int64_t k = 0; k < 6; k++) assert_true(ops_at(kn_grad(w), k) == ops_at(dx[0], k));
    kn_params_destroy(set);
}

static void unpooling_and_averages_to_a_size_have_gradients(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1, 1, 7), 1, 2, 3, 4, 5, 6, 7)), *dx;
    const kn_gradients_options weighed = {.keep = 1, .dy = F32(KN_SHAPE(1, 1, 3), 3, 30, 300)};
    assert_ok(kn_gradients(&dx, kn_adaptive_avgpool(x, KN_SHAPE(3)), &x, 1, &weighed));
    assert_values(dx, 1, 1, 11, 10, 110, 100, 100);
    kn_tensor *ties = kn_watch(F32(KN_SHAPE(1, 1, 5), 2, 1, 2, 2, 2)), *d_ties;
    const kn_gradients_options two = {.keep = 1, .dy = F32(KN_SHAPE(1, 1, 2), 3, 30)};
    kn_tensor *most = kn_adaptive_maxpool(ties, KN_SHAPE(2)); /* of 0 to 2 and 2 to 4 */
    assert_ok(kn_gradients(&d_ties, most, &ties, 1, &two));
    assert_values(d_ties, 3, 0, 30, 0, 0); /* the first, as PyTorch's */
    kn_tensor *z = kn_watch(F32(KN_SHAPE(1, 1, 2), 1, 2)), *dz;
    const kn_gradients_options six = {.keep = 1, .dy = F32(KN_SHAPE(1, 1, 6), 1, 2, 3, 10, 20, 30)};
    assert_ok(kn_gradients(&dz, kn_unpool(z, KN_SHAPE(3), NULL), &z, 1, &six));
    assert_values(dz, 6, 60);
}

static void gradients_may_replace_their_targets(void **state) {
    (void)state;
    const kn_gradients_options kept[] = {{.keep = 1}, {.again = 1}};
    for (int i = 0; i < 2; i++) {
        kn_params *set = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 3, 4);
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 1, 2)), *h = kn_mul(x, w);
        kn_tensor *loss = sum_all(kn_square(h)), *v[2] = {h, x};
        assert_ok(kn_gradients(v, loss, v, 2, &kept[i]));
        assert_values(v[0], 6, 16);
        assert_values(v[1], 18, 64);
        assert_ok(kn_backward(loss));
        assert_values(kn_grad(w), 6, 32);
        kn_params_destroy(set);
    }
}

static kn_tensor *normalize(int which, kn_tensor *x, kn_tensor *weight, kn_tensor *bias) {
    const kn_batchnorm_options training = {.training = 1};
    switch (which) {
        case 0:
            return kn_layernorm(x, weight, bias, 1, 1e-5);
        case 1:
            return kn_groupnorm(x, weight, bias, 2, 1e-5);
        case 2:
            return kn_instancenorm(kn_reshape(x, KN_SHAPE(1, 4, 3)), weight, bias, 1e-5);
        default:
            return kn_batchnorm(x, KN_NONE, KN_NONE, weight, bias, &training);
    }
}

/* x and the weight are constants: the rule has the incoming gradient alone. */
static void a_bias_alone_of_a_normalization_has_a_gradient(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *p = PARAM(set, KN_SHAPE(4), "bias", 0, 1, 2, 3);
    for (int i = 0; i < 8; i++) {
        KN_TAPE();
        kn_tensor *x = F32(KN_SHAPE(3, 4), 4, 2, 3, 1, 5, 9, 7, 6, 8, 0, -1, -3), *db = NULL;
        kn_tensor *g = F32(KN_SHAPE(3, 4), 1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400);
        if (i / 2 == 2) g = kn_reshape(kn_transpose(g, KN_SHAPE(1, 0)), KN_SHAPE(1, 4, 3));
        kn_tensor *y = normalize(i / 2, x, i % 2 ? kn_ones(KN_SHAPE(4)) : KN_NONE, p);
        for (int again = 0; again < 2; again++) {
            const kn_gradients_options o = {.keep = 1, .again = again == 1, .dy = g};
            assert_ok(kn_gradients(&db, y, &p, 1, &o));
            assert_values(db, 111, 222, 333, 444);
        }
        assert_ok(kn_backward(sum_all(kn_mul(g, kn_add(y, y)))));
        assert_values(kn_grad(p), (i + 1) * 222, (i + 1) * 444, (i + 1) * 666, (i + 1) * 888);
    }
    kn_params_destroy(set);
}

/* Each element's share of the sum, with what rounds its logarithm; and of the lowest numbers. */
static void shares_of_a_logsumexp_sum_to_one(void **state) {
    (void)state;
    KN_TAPE();
    for (int k = 0; k < 6; k++) {
        kn_tensor *ones = kn_cast(kn_ones(KN_SHAPE(2, 500)), k % 2 ? KN_BF16 : KN_F16);
        kn_tensor *x = kn_watch(kn_affine(ones, (const double[]){10, 100, 1000}[k / 2], 0)), *dx;
        const kn_gradients_options again = {.again = 1, .keep = 1};
        assert_ok(kn_gradients(&dx, kn_logsumexp(x, KN_ALL, k / 2 == 1), &x, 1, &again));
        assert_int_equal(kn_tensor_dtype(dx), kn_tensor_dtype(x));
        assert_close(ops_at(kn_cast(sum_all(kn_cast(dx, KN_F32)), KN_F64), 0), 1, 0, 4e-3);
        kn_tensor *first = kn_slice(dx, KN_SHAPE(0, 0), KN_SHAPE(1, 1)), *ddx;
        assert_ok(kn_gradients(&ddx, first, &x, 1, NULL)); /* p·(1 - p) and -p² */
        assert_close(ops_at(kn_cast(ddx, KN_F64), 0), 1e-3 - 1e-6, 0, 1e-5);
        assert_close(ops_at(kn_cast(ddx, KN_F64), 1), -1e-6, 0, 1e-7);
    }
    kn_tensor *low = kn_watch(F32(KN_SHAPE(3), -3.3e38f, -FLT_MAX, -INFINITY)), *d_low;
    for (int half = 0; half < 2; half++) {
        kn_tensor *x = half ? kn_cast(low, KN_BF16) : low;
        kn_tensor *y = kn_logsumexp(kn_reshape(x, KN_SHAPE(3, 1)), KN_SHAPE(1), false);
        assert_ok(kn_gradients(&d_low, sum_all(y), &low, 1, &(kn_gradients_options){.keep = 1}));
        assert_true(ops_at(d_low, 0) == 1 && ops_at(d_low, 2) == 0);
        assert_true(half || ops_at(d_low, 1) == 1); /* to bf16 it is an infinity */
    }
}

/* Where |x|^(p-1) or y^(1-p) alone is beyond f16, or y, and by what f32 gains; 0 stays without
 * slope. */
static void slopes_of_norms_are_shares(void **state) {
    (void)state;
    const double orders[] = {3, 8, 1.5, 0.5}, scales[] = {1e-3, 1, 20, 300, 3e4};
    const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_F32};
    for (int k = 0; k < 4 * 5 * 3; k++) {
        double p = orders[k / 15], sum = 1 + pow(0.5, p), root = pow(sum, 1 / p);
        kn_dtype dtype = dtypes[k % 3];
        double near = dtype == KN_F32 ? 1e-5 : dtype == KN_F16 ? 3e-3 : 2e-2;
        KN_TAPE();
        kn_tensor *ones = kn_cast(F32(KN_SHAPE(3), 1, -0.5f, 0), dtype), *dx, *ddx;
        kn_tensor *x = kn_watch(kn_affine(ones, scales[k / 3 % 5], 0));
        const kn_gradients_options again = {.again = 1, .keep = 1};
        assert_ok(kn_gradients(&dx, kn_norm(x, p, KN_ALL, k % 2), &x, 1, &again));
        assert_int_equal(kn_tensor_dtype(dx), dtype);
        const double first = pow(root, 1 - p), second = -first * pow(0.5, p - 1);
        kn_tensor *got = kn_cast(dx, KN_F64);
        assert_close(ops_at(got, 0), first, near, 0);
        assert_close(ops_at(got, 1), second, near, 0);
        assert_true(ops_at(got, 2) == 0);
        if (scales[k / 3 % 5] > 300) continue;
        kn_tensor *one = kn_slice(dx, KN_SHAPE(0), KN_SHAPE(1)); /* times (p - 1)/x·(1 - share) */
        assert_ok(kn_gradients(&ddx, one, &x, 1, NULL));
        double by = (p - 1) * first / ops_at(kn_cast(x, KN_F64), 0) * (1 - 1 / sum);
        assert_close(ops_at(kn_cast(ddx, KN_F64), 0), by, 4 * near, 1e-5);
        assert_true(ops_at(kn_cast(ddx, KN_F64), 2) == 0);
    }
    KN_TAPE();
    kn_tensor *zeros = kn_watch(F32(KN_SHAPE(2), 0, 0)), *d_zeros, *dd_zeros;
    const kn_gradients_options again = {.again = 1, .keep = 1};
    assert_ok(kn_gradients(&d_zeros, kn_norm(zeros, 3, KN_ALL, false), &zeros, 1, &again));
    assert_ok(kn_gradients(&dd_zeros, sum_all(d_zeros), &zeros, 1, &again));
    assert_values(d_zeros, 0, 0);
    assert_values(dd_zeros, 0, 0);
}

/* The gradient of y by x in f64, of a result whose gradient is `of`. */
static kn_tensor *slope_by(kn_tensor *x, kn_tensor *y, double of) {
    kn_tensor *dx = NULL;
    const kn_gradients_options o = {.keep = 1, .again = 1, .dy = kn_filled_like(y, of)};
    assert_ok(kn_gradients(&dx, y, &x, 1, &o));
    assert_int_equal(kn_tensor_dtype(dx), kn_tensor_dtype(x));
    return kn_cast(dx, KN_F64);
}
#define ASSERT_NEAR(t, near, ...)                                                                  \
    do {                                                                                           \
        kn_tensor *got_ = (t);                                                                     \
        const double want_[] = {__VA_ARGS__};                                                      \
        for (int i_ = 0; i_ < (int)(sizeof want_ / sizeof *want_); i_++)                           \
            assert_close(ops_at(got_, i_), want_[i_], near, 1e-7);                                 \
    } while (0)

static kn_tensor *half_of(const float *values, int64_t n, kn_dtype dtype) {
    return kn_watch(kn_cast(kn_tensor_from(values, KN_F32, KN_SHAPE(n)), dtype));
}
#define HALF(dtype, n, ...) half_of((const float[]){__VA_ARGS__}, n, dtype)

/* What the gradient is computed from is beyond f16, or rounds away in it, but the gradient is not.
 */
static void slopes_of_norms_of_16_bits_survive_too(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        KN_TAPE();
        const double root_5 = sqrt(5), root_6 = sqrt(6);
        kn_tensor *tiny = HALF(KN_F16, 3, 0x1p-18f, 0, 0x1p-19f), *dd;
        kn_tensor *x = HALF(KN_F16, 4, 0.125f, 0.25f, 0.125f, 0);
        ASSERT_NEAR(slope_by(tiny, kn_norm(tiny, 2, KN_ALL, keep), 1), 1e-3, 2 / root_5, 0,
                    1 / root_5);
        kn_tensor *d = slope_by(x, kn_norm(x, 2, KN_ALL, keep), 30000);
        ASSERT_NEAR(d, 1e-3, 30000 / root_6, 60000 / root_6, 30000 / root_6, 0);
        kn_tensor *y = kn_norm(x, 2, KN_ALL, keep), *zeros = HALF(KN_F16, 2, 0, 0);
        kn_tensor *first = slope_by(x, y, 1);
        dd = slope_by(x, kn_slice(first, KN_SHAPE(3), KN_SHAPE(4)), 1); /* 1/y */
        ASSERT_NEAR(dd, 2e-3, 0, 0, 0, 8 / root_6);
        ASSERT_NEAR(slope_by(zeros, kn_norm(zeros, 2, KN_ALL, keep), 1), 0, 0, 0);
        kn_tensor *small = HALF(KN_F16, 2, 0x1p-10f, 0.25f);
        ASSERT_NEAR(slope_by(small, kn_sum_square(small, KN_ALL, keep), 40000), 1e-3, 78.125,
                    20000);
    }
}

/* Of more elements than f16 counts. */
static void ties_of_16_bits_get_equal_parts(void **state) {
    (void)state;
    enum { N = 70000 };
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_cast(kn_full(KN_SHAPE(N), -2), KN_F16));
    const double part = 1000.0 / N;
    ASSERT_NEAR(slope_by(x, kn_max(x, KN_ALL, false), 1000), 1e-3, part, part);
    ASSERT_NEAR(slope_by(x, kn_min(x, KN_ALL, true), 1000), 1e-3, part, part);
    ASSERT_NEAR(slope_by(x, kn_max_abs(x, KN_ALL, false), 1000), 1e-3, -part, -part);
    ASSERT_NEAR(slope_by(x, kn_norm(x, INFINITY, KN_ALL, false), 1000), 1e-3, -part, -part);
}

/* One over the number of elements is off by more in f16, where a term's slope times it is not. */
static void slopes_of_losses_of_16_bits_go_by_the_mean_itself(void **state) {
    (void)state;
    enum { N = 1500000 };
    for (int k = 0; k < 2; k++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_cast(kn_full(KN_SHAPE(N, 1), 100), KN_F16));
        kn_tensor *y = kn_mse(x, kn_filled_like(x, 0), k ? KN_REDUCE_BATCH : KN_REDUCE_MEAN);
        assert_int_equal(kn_tensor_dtype(y), KN_F16);
        ASSERT_NEAR(slope_by(x, y, 1), 1e-3, 200.0 / N, 200.0 / N);
    }
}

/* The mean of the first row, and the sum about a given one, don't fit 16 bits. */
static void slopes_of_deviations_of_16_bits_go_by_the_mean_itself(void **state) {
    (void)state;
    const struct {
        kn_dtype dtype;
        float low, high;
    } of[] = {{KN_F16, 800, 800.5f}, {KN_BF16, 50, 50.25f}};
    const kn_var_options all = {.population = 1};
    for (int k = 0; k < 4; k++) {
        KN_TAPE();
        kn_dtype dtype = of[k / 2].dtype;
        kn_tensor *x = HALF(dtype, 4, of[k / 2].low, of[k / 2].high, 3, 3);
        kn_tensor *rows = kn_reshape(x, KN_SHAPE(2, 2));
        const double half = (double)(of[k / 2].high - of[k / 2].low) / 2;
        ASSERT_NEAR(slope_by(x, kn_var(rows, KN_SHAPE(1), k % 2, &all), 1), 1e-3, -half, half, 0,
                    0);
        ASSERT_NEAR(slope_by(x, kn_std(rows, KN_SHAPE(1), k % 2, &all), 1), 4e-3, -0.5, 0.5, 0, 0);
        kn_tensor *many = kn_watch(kn_cast(kn_full(KN_SHAPE(1000), 300), dtype));
        kn_tensor *mean = kn_watch(kn_cast(kn_full(KN_SHAPE(1), 100), dtype));
        const kn_var_options about = {.population = 1, .mean = mean};
        ASSERT_NEAR(slope_by(mean, kn_var(many, KN_ALL, k % 2, &about), 1), 4e-3, -400);
        ASSERT_NEAR(slope_by(mean, kn_std(many, KN_ALL, k % 2, &about), 1), 4e-3, -1);
        ASSERT_NEAR(slope_by(many, kn_std(many, KN_ALL, k % 2, &about), 1), 4e-3, 1e-3);
    }
    KN_TAPE();
    kn_tensor *tiny = HALF(KN_F16, 2, 0x1p-20f, 0x1p-19f); /* its root is 2^-21 */
    ASSERT_NEAR(slope_by(tiny, kn_std(tiny, KN_ALL, false, &all), 3000), 1e-3, -1500, 1500);
}

/* The products of elements before, or after, are beyond f16 where the gradient is not. */
static void slopes_of_products_of_16_bits_survive_too(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        KN_TAPE();
        kn_tensor *x = HALF(KN_F16, 4, 512, 512, 0x1p-10f, 0x1p-7f), *square, *y;
        const double by[] = {0x1p-8, 0x1p-8, 2048, 256};
        ASSERT_NEAR(slope_by(x, kn_prod(x, KN_ALL, keep), 1), 0, by[0], by[1], by[2], by[3]);
        square = kn_reshape(x, KN_SHAPE(2, 2));
        ASSERT_NEAR(slope_by(x, kn_prod(square, KN_SHAPE(0, 1), keep), 1), 0, by[0], by[1], by[2],
                    by[3]);
        y = kn_slice(kn_cumprod(x, 0), KN_SHAPE(3), KN_SHAPE(4));
        ASSERT_NEAR(slope_by(x, y, 1), 0, by[0], by[1], by[2], by[3]);
        kn_tensor *first = slope_by(x, kn_prod(x, KN_ALL, keep), 4);
        first = kn_slice(first, KN_SHAPE(0), KN_SHAPE(1)); /* x[1]·x[2]·x[3]·4 */
        ASSERT_NEAR(slope_by(x, first, 1), 0, 0, 0x1p-15, 16, 2);
        kn_attr_scan scan = {.mask = 1};
        kn_tensor *a = HALF(KN_F16, 4, 1, 0x1p-10f, 512, 512),
                  *b = HALF(KN_F16, 4, 0.0625f, 0, 0, 0);
        y = kn_op_call_run(KN_OP_recur, &scan, (kn_tensor *[]){a, b}, 2);
        y = kn_slice(y, KN_SHAPE(3), KN_SHAPE(4));
        ASSERT_NEAR(slope_by(a, y, 1), 0, 0, 16384, 0x1p-5, 0x1p-5);
        ASSERT_NEAR(slope_by(b, y, 1), 0, 256, INFINITY, 512, 1);
    }
}

/* Of finite numbers with an infinite norm: a slope of 0 would stop a training silently. */
static void slopes_of_norms_that_overflow_are_no_numbers(void **state) {
    (void)state;
    const double orders[] = {1.5, 2, 3, 10};
    for (int k = 0; k < 8; k++) {
        KN_TAPE();
        const kn_gradients_options again = {.again = 1, .keep = 1};
        const float large = orders[k / 2] == 2 ? 3e38f : 1e30f;
        kn_tensor *rows = F32(KN_SHAPE(2, 3), large, -large, 0, 1, -0.5f, 0), *dx, *ddx;
        kn_tensor *x = kn_watch(kn_cast(rows, k % 2 ? KN_BF16 : KN_F32));
        kn_tensor *y = kn_norm(x, orders[k / 2], KN_SHAPE(1), false);
        assert_ok(kn_gradients(&dx, sum_all(y), &x, 1, &again));
        assert_ok(kn_gradients(&ddx, sum_all(dx), &x, 1, &again));
        for (int i = 0; i < 2; i++) {
            assert_true(isnan(ops_at(kn_cast(dx, KN_F32), i)));
            assert_true(isnan(ops_at(kn_cast(ddx, KN_F32), i)));
            assert_true(isfinite(ops_at(kn_cast(dx, KN_F32), 3 + i)));
            assert_true(isfinite(ops_at(kn_cast(ddx, KN_F32), 3 + i)));
        }
        if (orders[k / 2] != 2) assert_true(ops_at(kn_cast(dx, KN_F32), 2) == 0);
    }
}

/* As of numbers that grow without end. */
static void an_infinite_element_leaves_the_others_of_a_norm_no_slope(void **state) {
    (void)state;
    const double orders[] = {1.5, 2, 3, 10};
    const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_F32, KN_F64};
    for (int k = 0; k < 4 * 4 * 2; k++) {
        KN_TAPE();
        kn_tensor *rows = F32(KN_SHAPE(2, 3), INFINITY, 1, -2, 3, 0, 0);
        kn_tensor *x = kn_watch(kn_cast(rows, dtypes[k % 4]));
        kn_tensor *dx = slope_by(x, kn_norm(x, orders[k / 8], KN_SHAPE(1), k / 4 % 2), 1);
        assert_true(isnan(ops_at(dx, 0)));
        for (int i = 1; i < 6; i++) assert_true(ops_at(dx, i) == (i == 3));
        x = kn_watch(kn_cast(kn_zeros(KN_SHAPE(2, 0)), dtypes[k % 4]));
        dx = slope_by(x, kn_norm(x, orders[k / 8], KN_SHAPE(1), k / 4 % 2), 1);
        assert_int_equal(kn_tensor_numel(dx), 0);
    }
}

typedef kn_tensor *unary(kn_tensor *x);
/* The slope of f at each x, and the slope's. */
static void assert_slopes_of(kn_dtype dtype, unary *f, int n, const float *at, const double *slope,
                             const double *second) {
    double near = dtype == KN_F32 ? 1e-5 : dtype == KN_F16 ? 1e-3 : 8e-3;
    double least = dtype == KN_F16 ? 6e-8 : FLT_MIN;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_cast(kn_tensor_from(at, KN_F32, KN_SHAPE(n)), dtype)), *dx, *ddx;
    const kn_gradients_options again = {.again = 1, .keep = 1};
    assert_ok(kn_gradients(&dx, sum_all(f(x)), &x, 1, &again));
    assert_int_equal(kn_tensor_dtype(dx), dtype);
    if (second) assert_ok(kn_gradients(&ddx, sum_all(dx), &x, 1, &again));
    kn_tensor *first = kn_cast(dx, KN_F64), *next = second ? kn_cast(ddx, KN_F64) : KN_NONE;
    for (int i = 0; i < n; i++) {
        double got[] = {ops_at(first, i), second ? ops_at(next, i) : 0};
        double want[] = {slope[i], second ? second[i] : 0};
        for (int k = 0; k < 2; k++) {
            if (got[k] == want[k] || fabs(got[k] - want[k]) <= near * fabs(want[k]) + least)
                continue;
            fail_msg("at %g derivative %d of %s is %g, not %g", (double)at[i], k + 1,
                     kn_dtype_name(dtype), got[k], want[k]);
        }
    }
}

static void assert_slopes(unary *f, int n, const float *at, const double *slope,
                          const double *second) {
    assert_slopes_of(KN_F32, f, n, at, slope, second);
}

/* The values are finite, but an exponential, an inverse or a square on the way is not. */
static void slopes_survive_what_overflows_on_the_way(void **state) {
    (void)state;
    const double d50 = 2 * exp(-50), d85 = 2 * exp(-85);
    const float far[] = {50, 85, 180, INFINITY, -50, -180};
    const double odd[] = {-d50, -d85, 0, 0, d50, 0}, even[] = {d50, d85, 0, 0, d50, 0};
    assert_slopes(kn_sech, 6, far, odd, even);
    assert_slopes(kn_sech, 1, (const float[]){0}, (const double[]){0}, (const double[]){-1});
    for (int i = 0; i < 5; i += 4) { /* csch is odd */
        const double slope[] = {-d50, -d85, 0, 0}, second[] = {d50, d85, 0, 0};
        const double below[] = {-d50, 0}, second_below[] = {-d50, 0};
        assert_slopes(kn_csch, i ? 2 : 4, far + i, i ? below : slope, i ? second_below : second);
    }
    const float near[] = {0, -0.0f, 1e-39f, -1e-30f, 1, 1e10f, -INFINITY};
    assert_slopes(kn_acot, 7, near, (const double[]){-1, -1, -1, -1, -0.5, -1e-20, 0},
                  (const double[]){0, 0, 2e-39, -2e-30, 0.5, 2e-30, 0});
    const float tiny[] = {1e-30f, 1e-15f, 1e-10f};
    const double down[] = {-1e30, -1e15, -1e10}, up[] = {INFINITY, 1e30, 1e20};
    assert_slopes(kn_asech, 3, tiny, down, up);
    assert_slopes(kn_acsch, 3, tiny, down, up);
    const float large[] = {1e15f, 1e30f, INFINITY};
    const double inverse[] = {1e-15, 1e-30, 0}, its_slope[] = {-1e-30, 0, 0};
    assert_slopes(kn_acosh, 3, large, inverse, its_slope);
    assert_slopes(kn_asinh, 3, large, inverse, its_slope);
    const double leg = sqrt(0x1p-19 + 0x1p-40);
    assert_slopes(kn_acosh, 1, (const float[]){1 + 0x1p-20f}, (const double[]){1 / leg},
                  (const double[]){-(1 + 0x1p-20) / (leg * leg * leg)});
    const float any[] = {0, -0.0f, 1e-30f, -1, 1e10f, 1e12f, 2e19f, 3e38f, INFINITY, -INFINITY};
    assert_slopes(kn_atan, 10, any, (const double[]){1, 1, 1, 0.5, 1e-20, 1e-24, 0, 0, 0, 0},
                  (const double[]){0, 0, -2e-30, 0.5, -2e-30, -2e-36, 0, 0, 0, 0});
}

/* Far from 0 the slopes are differences of numbers that round alike. */
static void slopes_survive_what_cancels(void **state) {
    (void)state;
    const kn_dtype dtypes[] = {KN_F32, KN_F16, KN_BF16};
    for (int t = 0; t < 3; t++) {
        const float far[] = {5, -5, 40, INFINITY};
        double five = 1 / (sinh(5) * sinh(5)), forty = t == 1 ? 0 : 4 * exp(-80);
        assert_slopes_of(dtypes[t], kn_coth, 4, far, (const double[]){-five, -five, -forty, 0},
                         (const double[]){2 * five / tanh(5), -2 * five / tanh(5), 2 * forty, 0});
        const float at[] = {-1, 0, 1, 2, 3.75f, 4, 10, 256, 9984, INFINITY};
        const double slope[] = {
            -11.1463393,   -1.12837917,    -0.273212015,   -0.106796462,   -0.0364562575,
            -0.0323835061, -0.00555931222, -8.60865281e-6, -5.65999324e-9, 0};
        const double second[] = {32.3106388,     2,
                                 0.308743123,    0.0836055052,
                                 0.0177575111,   0.0149308665,
                                 0.00109574111,  6.72535608e-8,
                                 1.13381273e-12, 0};
        assert_slopes_of(dtypes[t], kn_erfcx, 10, at, slope, second);
    }
}

static kn_tensor *dot_of_itself(kn_tensor *x) { return kn_dot(x, x); }

/* The results fit into 16 bits; values on the way do not. */
static void slopes_of_16_bits_survive_too(void **state) {
    (void)state;
    assert_slopes_of(KN_F16, dot_of_itself, 3, (const float[]){300, -2, 0},
                     (const double[]){600, -4, 0}, (const double[]){2, 2, 2});
    const double turn = 3.14159265358979 / 180, csc = 1 / sin(turn), cot = 1 / tan(turn);
    const float degrees[] = {0.03125f, 1};
    const double second_csc = turn * turn * csc * (csc * csc + cot * cot);
    const double second_cot = 2 * turn * turn * csc * csc * cot;
    const double near_0 = -1024 / turn; /* -1/(turn·x²) */
    assert_slopes_of(KN_F16, kn_cscd, 2, degrees, (const double[]){near_0, -turn * csc * cot},
                     (const double[]){INFINITY, second_csc});
    assert_slopes_of(KN_F16, kn_cotd, 2, degrees, (const double[]){near_0, -turn * csc * csc},
                     (const double[]){INFINITY, second_cot});
    const float right[] = {300}; /* almost an odd multiple of π/2 */
    const double s = 1 / sin(300), c = 1 / tan(300);
    assert_slopes_of(KN_F16, kn_cot, 1, right, (const double[]){-s * s},
                     (const double[]){2 * s * s * c});
    const float small[] = {0x1p-7f, 0x1p-17f}; /* its inverse is beyond f16 */
    const double down[] = {-128, -INFINITY}, up[] = {16384, INFINITY};
    unary *const inverses[] = {kn_asech, kn_acsch};
    for (int i = 0; i < 2; i++) {
        assert_slopes_of(KN_F16, inverses[i], 2, small, down, up);
        KN_FRAME();
        kn_tensor *x = kn_cast(F32(KN_SHAPE(1), small[1]), KN_F16);
        assert_close(ops_at(kn_cast(inverses[i](x), KN_F32), 0), 18 * log(2), 1e-3, 0);
    }
}

/* Also where they are composed of ops, to be differentiated in turn. */
static void composed_slopes_of_16_bits_survive_too(void **state) {
    (void)state;
    const double x = 645.5, z = 9.5;
    assert_slopes_of(KN_F16, kn_log, 1, (const float[]){256}, (const double[]){0x1p-8},
                     (const double[]){-0x1p-16});
    assert_slopes_of(KN_F16, kn_sqrt, 1, (const float[]){(float)x}, (const double[]){0.5 / sqrt(x)},
                     (const double[]){-0.25 / (x * sqrt(x))});
    assert_slopes_of(KN_F16, kn_rsqrt, 1, (const float[]){(float)(1 / (z * z))},
                     (const double[]){-z * z * z / 2}, (const double[]){0.75 * pow(z, 5)});
    const float far[] = {-29040, 40000};
    const double none[] = {0, 0};
    assert_slopes_of(KN_F16, kn_erf, 2, far, none, none);
    assert_slopes_of(KN_F16, kn_erfc, 2, far, none, none);
    KN_TAPE();
    kn_tensor *by = HALF(KN_F16, 1, 16), *third = slope_by(by, kn_log(by), 1);
    third = slope_by(by, slope_by(by, third, 1), 1);
    ASSERT_NEAR(third, 1e-3, 0x1p-11);
    kn_tensor *in[] = {HALF(KN_F16, 1, 0x1p-10f), HALF(KN_F16, 1, 0x1p-9f)}, *dx[2];
    const kn_gradients_options again = {.again = 1};
    assert_ok(kn_gradients(dx, kn_div(in[0], in[1]), in, 2, &again));
    ASSERT_NEAR(slope_by(in[1], kn_add(dx[0], dx[1]), 1), 0, 0); /* 2^18 - 2^18 */
}

/* asec, acsc and acoth, and their derivatives, beside 1, where 1/x has lost digits. */
static void inverses_hold_near_one(void **state) {
    (void)state;
    unary *const inverses[] = {kn_asec, kn_acsc, kn_acoth};
    for (int k = 0; k < 3 * 4; k++) {
        float at[] = {1 + 0x1p-13f, -1 - 0x1p-13f, 1 + 0x1p-7f, -1 - 0x1p-7f};
        double a = fabs((double)at[k % 4]), leg = sqrt((a - 1) * (a + 1));
        bool turn = at[k % 4] < 0;
        double half = acos(0), angle = atan(leg), sign = turn ? -1 : 1;
        const double value[] = {turn ? 2 * half - angle : angle, sign * (half - angle),
                                sign * log1p(2 / (a - 1)) / 2};
        const double slope[] = {1 / (a * leg), -1 / (a * leg), -1 / (leg * leg)};
        double bend = sign * (2 * a * a - 1) / (a * a * leg * leg * leg);
        const double second[] = {-bend, bend, sign * 2 * a / (leg * leg * leg * leg)};
        KN_FRAME();
        for (int t = 0; t < 4; t++) {
            const kn_dtype dtype = (kn_dtype[]){KN_F32, KN_F64, KN_BF16, KN_F16}[t];
            if (t >= 2 && k % 4 < 2) continue; /* 16 bits don't have it */
            double near = t == 0 ? 3e-7 : t == 1 ? 1e-15 : t == 2 ? 4e-3 : 5e-4;
            kn_tensor *x = kn_cast(kn_tensor_from(at + k % 4, KN_F32, KN_SHAPE(1)), dtype);
            double got = ops_at(kn_cast(inverses[k / 4](x), KN_F64), 0), want = value[k / 4];
            assert_close(got, want, near, 0);
            assert_slopes_of(dtype, inverses[k / 4], 1, at + k % 4, slope + k / 4, second + k / 4);
        }
    }
}

/* A difference of numbers that are close, of 16 bits. */
static void tanhshrink_holds_near_zero(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        const kn_dtype dtype = t ? KN_F16 : KN_BF16;
        const float at[] = {0.0625f, 0.125f, -0.25f, 2, 0};
        double slope[5], second[5];
        KN_FRAME();
        kn_tensor *x = kn_cast(kn_tensor_from(at, KN_F32, KN_SHAPE(5)), dtype);
        kn_tensor *y = kn_cast(kn_tanhshrink(x), KN_F32);
        for (int i = 0; i < 5; i++) {
            double z = tanh((double)at[i]);
            slope[i] = z * z, second[i] = 2 * z * (1 - z * z);
            assert_close(ops_at(y, i), at[i] - z, t ? 1e-3 : 4e-3, 1e-7);
        }
        assert_slopes_of(dtype, kn_tanhshrink, 5, at, slope, second);
    }
}

/* As the values there. */
static void slopes_outside_the_domain_are_no_numbers(void **state) {
    (void)state;
    unary *const inverses[] = {kn_asech, kn_asec, kn_acsc, kn_acoth};
    for (int k = 0; k < 4; k++) {
        const float at[] = {k ? 0 : -0.0f, -0.3f, k ? 0.3f : -1, k ? 0.5f : -2, NAN};
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_tensor_from(at, KN_F32, KN_SHAPE(5))), *y, *dx, *ddx;
        const kn_gradients_options again = {.again = 1, .keep = 1};
        assert_ok(kn_gradients(&dx, sum_all(inverses[k](x)), &x, 1, &again));
        assert_ok(kn_gradients(&ddx, sum_all(dx), &x, 1, &again));
        y = kn_detach(inverses[k](x));
        for (int i = 0; i < 5; i++) {
            bool all = isnan(ops_at(y, i)) && isnan(ops_at(dx, i)) && isnan(ops_at(ddx, i));
            if (!all) fail_msg("function %d has a value or slope at %g", k, (double)at[i]);
        }
    }
    const float ends[] = {1, -1, INFINITY, -INFINITY};
    const double inf = INFINITY, up[] = {inf, inf, 0, 0}, down[] = {-inf, -inf, 0, 0};
    const double odd[] = {inf, -inf, 0, 0}, minus_odd[] = {-inf, inf, 0, 0};
    assert_slopes(kn_asec, 4, ends, up, minus_odd);
    assert_slopes(kn_acsc, 4, ends, down, odd);
    assert_slopes(kn_acoth, 4, ends, down, odd);
}

static kn_tensor *hardtanh(kn_tensor *x) { return kn_hardtanh(x, -1, 2); }
static kn_tensor *unlimited(kn_tensor *x) { return kn_hardtanh(x, NAN, 2); }
static kn_tensor *clamp(kn_tensor *x) { return kn_clamp(x, -1, 2); }

/* PyTorch's. */
static void slopes_at_the_ends_of_clamped_functions(void **state) {
    (void)state;
    const float six[] = {0, -0.0f, 6, 3, 7, -1, NAN};
    assert_slopes(kn_relu6, 7, six, (const double[]){0, 0, 0, 1, 0, 0, 1}, NULL);
    const float ends[] = {-1, 2, 0, 3, -INFINITY, NAN};
    assert_slopes(hardtanh, 6, ends, (const double[]){0, 0, 1, 0, 0, 1}, NULL);
    assert_slopes(unlimited, 4, ends, (const double[]){1, 0, 1, 0}, NULL);
    assert_slopes(clamp, 6, ends, (const double[]){1, 1, 1, 0, 0, 1}, NULL);
    const float threes[] = {-3, 3, 0, 4, -4, NAN};
    const double sixth = 1.0 / 6;
    assert_slopes(kn_hardsigmoid, 6, threes, (const double[]){0, 0, sixth, 0, 0, 0}, NULL);
    assert_slopes(kn_hardswish, 5, threes, (const double[]){-0.5, 1.5, 0.5, 1, 0}, NULL);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(slopes_survive_what_overflows_on_the_way), OPS_TEST(slopes_survive_what_cancels),
        OPS_TEST(inverses_hold_near_one), OPS_TEST(tanhshrink_holds_near_zero),
        OPS_TEST(composed_slopes_of_16_bits_survive_too),
        OPS_TEST(slopes_outside_the_domain_are_no_numbers), OPS_TEST(slopes_of_16_bits_survive_too),
        OPS_TEST(slopes_at_the_ends_of_clamped_functions),
        OPS_TEST(shares_of_a_logsumexp_sum_to_one), OPS_TEST(slopes_of_norms_are_shares),
        OPS_TEST(slopes_of_norms_of_16_bits_survive_too), OPS_TEST(ties_of_16_bits_get_equal_parts),
        OPS_TEST(slopes_of_losses_of_16_bits_go_by_the_mean_itself),
        OPS_TEST(slopes_of_deviations_of_16_bits_go_by_the_mean_itself),
        OPS_TEST(slopes_of_products_of_16_bits_survive_too),
        OPS_TEST(slopes_of_norms_that_overflow_are_no_numbers),
        OPS_TEST(an_infinite_element_leaves_the_others_of_a_norm_no_slope),
        OPS_TEST(gradients_at_the_edges_take_the_limit_that_is_finite),
        OPS_TEST(a_cross_entropy_is_weighed_by_what_comes_after),
        OPS_TEST(unpooling_and_averages_to_a_size_have_gradients),
        OPS_TEST(gradients_may_replace_their_targets),
        OPS_TEST(a_bias_alone_of_a_normalization_has_a_gradient));
}
