/* Values at which a formula loses digits, overflows or spreads what isn't a number. */
#include "ops_test.h"

#include <math.h>

static void degrees_keep_their_digits(void **state) {
    (void)state;
    KN_FRAME();
    enum { N = 12 };
    kn_tensor *x = F32(KN_SHAPE(N), 359, 1e8f, 1e10f, 89.999f, 180, -90, 1e-10f, -181, 45.001f,
                       44.999f, -30, 360);
    kn_tensor *sine = kn_sind(x), *cosine = kn_cosd(x);
    const double pi = 3.14159265358979323846;
    for (int64_t i = 0; i < N; i++) {
        double angle = fmod(ops_at(x, i), 360) * pi / 180;
        assert_close(ops_at(sine, i), sin(angle), 2e-7, 1e-15);
        assert_close(ops_at(cosine, i), cos(angle), 2e-7, 1e-15);
    }
    assert_true(ops_at(sine, 4) == 0 && ops_at(cosine, 5) == 0 && ops_at(cosine, 4) == -1);
    assert_true(ops_at(cosine, 11) == 1);
    assert_close(ops_at(kn_tand(x), 3), tan(ops_at(x, 3) * pi / 180), 5e-7, 0);
    assert_close(ops_at(kn_sind(F64(KN_SHAPE(1), 1e15)), 0), sin(fmod(1e15, 360) * pi / 180), 1e-15,
                 0);
    assert_true(isnan(ops_at(kn_sind(F32(KN_SHAPE(1), INFINITY)), 0)));
}

static void digamma_just_below_a_pole(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F64(KN_SHAPE(5), -1e-8, -1e-12, -1e-20, -0.5, -1.5);
    kn_tensor *y = kn_digamma(x), *z = kn_trigamma(x);
    assert_close(ops_at(y, 0), 1e8 - 0.57721566490153286, 1e-15, 0);
    assert_close(ops_at(y, 1), 1e12, 1e-12, 0);
    assert_close(ops_at(y, 2), 1e20, 1e-15, 0);
    assert_close(ops_at(y, 3), 0.03648997397857652, 1e-14, 0);
    assert_close(ops_at(y, 4), 0.70315664064524319, 1e-14, 0);
    assert_close(ops_at(z, 2), 1e40, 1e-14, 0);
}

static void trigamma_is_infinite_at_its_poles(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(5), 0, -0.0f, -1, -2, -1e9f);
    kn_tensor *single = kn_trigamma(x), *twice = kn_trigamma(kn_cast(x, KN_F64));
    for (int64_t i = 0; i < 5; i++) {
        assert_true(ops_at(single, i) == INFINITY && ops_at(twice, i) == INFINITY);
    }
    assert_true(isnan(ops_at(kn_trigamma(F64(KN_SHAPE(1), -INFINITY)), 0)));
    assert_true(isnan(ops_at(kn_digamma(F64(KN_SHAPE(1), -1)), 0)));
}

/* All that f32 and f64 can represent, over the whole range of exponents. */
static void ldexp_is_exact(void **state) {
    (void)state;
    for (int from = -1074; from <= 1023; from += 3) {
        KN_FRAME(.dtype = KN_F64);
        double x = ldexp(1, from), n[2099], want[2099];
        int count = 0;
        for (int to = -1074; to <= 1023; to += 7, count++)
            n[count] = to - from, want[count] = ldexp(1, to);
        kn_tensor *y = kn_ldexp(kn_full(KN_SCALAR, x), kn_tensor_from(n, KN_F64, KN_SHAPE(count)));
        for (int i = 0; i < count; i++) assert_true(ops_at(y, i) == want[i]);
        if (from < -149 || from > 127) continue;
        float half[277];
        count = 0;
        for (int to = -149; to <= 127; to++) half[count++] = (float)(to - from);
        y = kn_ldexp(kn_cast(kn_full(KN_SCALAR, x), KN_F32),
                     kn_tensor_from(half, KN_F32, KN_SHAPE(count)));
        for (int i = 0; i < count; i++) assert_true(ops_at(y, i) == ldexp(1, i - 149));
    }
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *n = F64(KN_SHAPE(5), 2000, -2000, INFINITY, 5000, -1);
    assert_values(kn_ldexp(kn_zeros(KN_SCALAR), n), 0, 0, 0, 0, 0);
    assert_values(kn_ldexp(F64(KN_SHAPE(2), 3, 3), F64(KN_SHAPE(2), -5000, 0.5)), 0, 3 * sqrt(2));
    assert_true(ops_at(kn_ldexp(kn_ones(KN_SCALAR), n), 3) == INFINITY);
    const double odd = 0x1.fffffffffffffp-1; /* rounded once */
    assert_true(ops_at(kn_ldexp(F64(KN_SCALAR, odd), F64(KN_SCALAR, -1070)), 0) ==
                ldexp(odd, -1070));
    kn_tensor *f16 = kn_ldexp(kn_cast(F32(KN_SHAPE(2), 0x1p-24f, 0x1p15f), KN_F16),
                              kn_cast(F32(KN_SHAPE(2), 39, -39), KN_F16));
    assert_values(kn_cast(f16, KN_F32), 0x1p15, 0x1p-24);
}

static void limits_that_are_nan_are_none(void **state) {
    (void)state;
    KN_FRAME();
    const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32};
    for (int i = 0; i < 6; i++) {
        kn_tensor *x = kn_cast(F32(KN_SHAPE(3), -3, 1, 4), dtypes[i]);
        assert_values(kn_cast(kn_clamp(x, 0, NAN), KN_F32), 0, 1, 4);
        assert_values(kn_cast(kn_clamp(x, NAN, 2), KN_F32), -3, 1, 2);
        assert_values(kn_cast(kn_clamp(x, NAN, NAN), KN_F32), -3, 1, 4);
    }
}

/* As NumPy's and PyTorch's. */
static void the_upper_limit_wins_over_a_lower_one_above_it(void **state) {
    (void)state;
    KN_FRAME();
    const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8};
    for (int i = 0; i < 7; i++) {
        kn_tensor *x = kn_cast(F32(KN_SHAPE(5), 0, 1, 2, 3, 4), dtypes[i]);
        assert_values(kn_cast(kn_clamp(x, 3, 1), KN_F32), 1, 1, 1, 1, 1);
    }
    assert_true(isnan(ops_at(kn_clamp(F32(KN_SCALAR, NAN), 3, 1), 0)));
}

/* kn_abs of the least number is itself. */
static void sizes_of_the_least_integers_wrap(void **state) {
    (void)state;
    KN_FRAME();
    const int32_t narrow[] = {INT32_MIN, 5, -7, INT32_MIN + 1};
    const int64_t wide[] = {INT64_MIN, 5, -7, INT64_MIN + 1};
    kn_tensor *both[] = {kn_tensor_from(narrow, KN_I32, KN_SHAPE(2, 2)),
                         kn_tensor_from(wide, KN_I64, KN_SHAPE(2, 2))};
    for (int i = 0; i < 2; i++) {
        kn_tensor *x = both[i], *size = kn_abs(x);
        const kn_shape axes[] = {KN_ALL, KN_SHAPE(0), KN_SHAPE(1)};
        for (int a = 0; a < 3; a++) {
            kn_tensor *most = kn_eq(kn_max_abs(x, axes[a], false), kn_max(size, axes[a], false));
            kn_tensor *least = kn_eq(kn_min_abs(x, axes[a], false), kn_min(size, axes[a], false));
            assert_values(kn_cast(kn_all(most, KN_ALL, false), KN_F32), 1);
            assert_values(kn_cast(kn_all(least, KN_ALL, false), KN_F32), 1);
        }
    }
    assert_values(kn_cast(kn_sum_abs(both[0], KN_SHAPE(1), false), KN_F64), 2147483653.0,
                  2147483654.0);
}

/* Just above halves between neighbours, by digits that f32, or f64, has no room for. */
static void integers_are_rounded_once_to_sixteen_bits(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t wide = (INT64_C(1) << 62) + (INT64_C(1) << 54);
    kn_tensor *x =
        I64(KN_SHAPE(7), 16842753, -16842753, 16842752, wide, wide + 1, -wide - 1, INT64_MAX);
    const double digit = 0x1p55; /* of bf16 at 2^62 */
    assert_values(kn_cast(kn_cast(x, KN_BF16), KN_F64), 16908288, -16908288, 16777216, 0x1p62,
                  0x1p62 + digit, -0x1p62 - digit, 0x1p63);
    const int32_t narrow[] = {16842753, -16842753, 16842752};
    kn_tensor *y = kn_cast(kn_tensor_from(narrow, KN_I32, KN_SHAPE(3)), KN_BF16);
    assert_values(kn_cast(y, KN_F64), 16908288, -16908288, 16777216);
}

static void log_cosh_is_never_negative(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(6), 1e-5f, -1e-3f, 0, 0.99f, -1.01f, 200);
    kn_tensor *y = kn_log_cosh(x);
    for (int64_t i = 0; i < 5; i++) {
        double s = sinh(ops_at(x, i));
        assert_close(ops_at(y, i), log1p(s * s) / 2, 1e-6, 0);
    }
    assert_close(ops_at(y, 5), 200 - log(2), 1e-6, 0);
    assert_close(ops_at(kn_log_cosh(F64(KN_SHAPE(1), -1e-20)), 0), 5e-41, 1e-15, 0);
    kn_tensor *ends = kn_log_cosh(F32(KN_SHAPE(3), -INFINITY, INFINITY, NAN));
    assert_true(ops_at(ends, 0) == INFINITY && ops_at(ends, 1) == INFINITY);
    assert_true(isnan(ops_at(ends, 2)));
}

/* logit is a difference of logarithms, log_cosh a sum of terms that are larger. */
static void functions_of_16_bits_are_rounded_once(void **state) {
    (void)state;
    enum { N = 400 };
    double p[N], x[N];
    for (int i = 0; i < N; i++) p[i] = (i + 0.5) / N, x[i] = (i - 100) / 64.0;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        KN_FRAME();
        kn_dtype dtype = bf16 ? KN_BF16 : KN_F16;
        double near = bf16 ? 0x1.02p-8 : 0x1.02p-11;
        kn_tensor *of[] = {kn_cast(kn_tensor_from(p, KN_F64, KN_SHAPE(N)), dtype),
                           kn_cast(kn_tensor_from(x, KN_F64, KN_SHAPE(N)), dtype)};
        kn_tensor *y[] = {kn_logit(of[0]), kn_log_cosh(of[1])};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(kn_tensor_dtype(y[k]), dtype);
            kn_tensor *at = kn_cast(of[k], KN_F64), *got = kn_cast(y[k], KN_F64);
            for (int i = 0; i < N; i++) {
                double t = ops_at(at, i), want = k ? log(cosh(t)) : log(t / (1 - t));
                assert_close(ops_at(got, i), want, near, 3e-8);
            }
        }
    }
}

static void means_of_large_integers_do_not_wrap(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t time = INT64_C(1700000000000000000);
    kn_tensor *x = I64(KN_SHAPE(2, 3), time, time, time, time, time, time);
    kn_tensor *y = kn_mean(x, KN_ALL, false), *rows = kn_mean(x, KN_SHAPE(0), true);
    assert_int_equal(kn_tensor_dtype(y), KN_F64);
    assert_close(ops_at(y, 0), 1.7e18, 1e-15, 0);
    assert_shape(rows, KN_SHAPE(1, 3));
    assert_close(ops_at(rows, 2), 1.7e18, 1e-15, 0);
}

/* Halfway in 16 bits but for a digit that f32 has not. */
static void f64_is_rounded_to_16_bits_once(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F64(KN_SHAPE(7), 1 + 0x1p-11 + 0x1p-30, 1 + 0x1p-8 + 0x1p-30,
                       -1 - 0x1p-8 - 0x1p-30, 1 + 0x1p-11, 1e300, NAN, 1 + 0x1p-8 - 0x1p-30);
    kn_tensor *half = kn_cast(x, KN_F16), *brain = kn_cast(x, KN_BF16);
    half = kn_cast(half, KN_F64), brain = kn_cast(brain, KN_F64);
    assert_true(ops_at(half, 0) == 1 + 0x1p-10);
    assert_true(ops_at(half, 3) == 1);
    assert_true(ops_at(brain, 1) == 1 + 0x1p-7);
    assert_true(ops_at(brain, 2) == -1 - 0x1p-7);
    assert_true(ops_at(brain, 6) == 1);
    assert_true(isinf(ops_at(half, 4)) && isinf(ops_at(brain, 4)));
    assert_true(isnan(ops_at(half, 5)) && isnan(ops_at(brain, 5)));
    kn_tensor *filled = kn_cast(kn_full(KN_SHAPE(1), 1), KN_BF16);
    assert_ok(kn_fill_into(filled, 1 + 0x1p-8 + 0x1p-30));
    assert_true(ops_at(kn_cast(filled, KN_F64), 0) == 1 + 0x1p-7);
}

static void uniform_numbers_need_a_width(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    KN_FRAME();
    assert_op_fails(kn_uniform(KN_SHAPE(4), -3e38, 3e38, rng), KN_ERR_INVALID, "further than f32");
    assert_op_fails(kn_uniform(KN_SHAPE(4), 0, INFINITY, rng), KN_ERR_INVALID, "from 0 to inf");
    assert_non_null(kn_uniform(KN_SHAPE(4), -1e38, 1e38, rng));
    {
        KN_FRAME(.dtype = KN_F64);
        assert_non_null(kn_uniform(KN_SHAPE(4), -3e38, 3e38, rng));
    }
    kn_rng_destroy(rng);
}

static void averages_to_a_size_keep_infinities_apart(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 8), INFINITY, 1, 1, 1, 1, 1, 1, NAN);
    kn_tensor *y = kn_adaptive_avgpool(x, KN_SHAPE(3));
    assert_true(isinf(ops_at(y, 0)) && ops_at(y, 1) == 1 && isnan(ops_at(y, 2)));
    kn_tensor *brain = kn_adaptive_avgpool(kn_cast(x, KN_BF16), KN_SHAPE(3));
    assert_int_equal(kn_tensor_dtype(brain), KN_BF16);
    {
        KN_FRAME(.autocast = KN_BF16);
        assert_int_equal(kn_tensor_dtype(kn_adaptive_avgpool(x, KN_SHAPE(3))), KN_F32);
    }
}

static void unpooling_copies(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 3), 3e38f, 0.1f, -0.7f), *y = kn_unpool(x, KN_SHAPE(3), NULL);
    for (int64_t i = 0; i < 9; i++) assert_true(ops_at(y, i) == ops_at(x, i / 3));
    kn_tensor *half = kn_cast(F32(KN_SHAPE(1, 1, 1, 2), 40000, 60000), KN_F16);
    kn_tensor *large = kn_cast(kn_unpool(half, KN_SHAPE(2, 2), NULL), KN_F64);
    assert_true(ops_at(large, 0) == 40000 && ops_at(large, 7) == 60000);
    /* windows that overlap add up */
    kn_tensor *sums =
        kn_unpool(F32(KN_SHAPE(1, 1, 2), 1, 10), KN_SHAPE(3), &(kn_pooling_options){.stride = {2}});
    const double want[] = {1, 1, 11, 10, 10};
    for (int64_t i = 0; i < 5; i++) assert_true(ops_at(sums, i) == want[i]);
}

static void a_window_larger_than_x_is_one_by_ceil(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 4), 1, 2, 3, 6);
    const kn_pooling_options ceil = {.stride = {2}, .ceil = 1};
    kn_tensor *most = kn_maxpool(x, KN_SHAPE(5), &ceil), *mean = kn_avgpool(x, KN_SHAPE(5), &ceil);
    assert_shape(most, KN_SHAPE(1, 1, 1));
    assert_true(ops_at(most, 0) == 6 && ops_at(mean, 0) == 3);
    assert_op_fails(kn_maxpool(x, KN_SHAPE(6), &ceil), KN_ERR_SHAPE, "does not fit");
}

static void losses_of_no_rows(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *logits = kn_zeros(KN_SHAPE(0, 3));
    kn_tensor *labels = kn_cast(kn_zeros(KN_SHAPE(0)), KN_I64);
    kn_cross_entropy_options o = {.reduction = KN_REDUCE_SUM};
    assert_true(ops_at(kn_cross_entropy_with(logits, labels, &o), 0) == 0);
    o.reduction = KN_REDUCE_NONE;
    assert_shape(kn_cross_entropy_with(logits, labels, &o), KN_SHAPE(0));
    o.reduction = KN_REDUCE_MEAN;
    assert_op_fails(kn_cross_entropy_with(logits, labels, &o), KN_ERR_SHAPE, "no elements");
}

static void a_border_reaches_to_infinity(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1, 1, 6, 1), 0, 1, 2, 3, 4, 5);
    kn_tensor *at = F32(KN_SHAPE(1, 1, 2, 2), INFINITY, 0, 1e30f, 0);
    const kn_grid_options border = {.border = 1, .align_corners = 1};
    kn_tensor *y = kn_grid_sample(x, at, &border);
    assert_true(ops_at(y, 0) == 2.5 && ops_at(y, 1) == 2.5);
}

static void assert_bits(kn_tensor *y, int n, const uint8_t want[]) {
    const uint8_t *bits = kn_data(y);
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(y), n);
    assert_memory_equal(bits, want, (size_t)n);
}

/* Their distance is exact where f64 has it, and doesn't wrap. */
static void integers_may_be_close(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t big = (int64_t)1 << 53, top = INT64_MAX;
    kn_tensor *a = I64(KN_SHAPE(6), 3, big + 1, -1, top, top, INT64_MIN);
    kn_tensor *b = I64(KN_SHAPE(6), 4, big, top, top - 1, -top, top);
    assert_bits(kn_isclose(a, b, 0, 0), 6, (const uint8_t[]){0, 0, 0, 0, 0, 0});
    assert_bits(kn_isclose(a, b, 0, 1), 6, (const uint8_t[]){1, 1, 0, 1, 0, 0});
    assert_bits(kn_isclose(a, b, 0.25, 0), 6, (const uint8_t[]){1, 1, 0, 1, 0, 0});
    assert_bits(kn_isclose(a, a, 0, 0), 6, (const uint8_t[]){1, 1, 1, 1, 1, 1});
    assert_bits(kn_all_close(a, a, 0, 0), 1, (const uint8_t[]){1});
    assert_bits(kn_all_close(a, b, 0, 1), 1, (const uint8_t[]){0});
    const kn_dtype narrow[] = {KN_I32, KN_U8};
    for (int i = 0; i < 2; i++) {
        kn_tensor *x = kn_cast(F32(KN_SHAPE(3), 0, 200, 7), narrow[i]);
        kn_tensor *y = kn_cast(F32(KN_SHAPE(3), 1, 0, 7), narrow[i]);
        assert_bits(kn_isclose(x, y, 0, 1), 3, (const uint8_t[]){1, 0, 1});
    }
    kn_tensor *yes = kn_eq(a, a), *no = kn_ne(a, a);
    assert_bits(kn_all_close(yes, yes, 0, 0), 1, (const uint8_t[]){1});
    assert_bits(kn_all_close(yes, no, 0, 0.5), 1, (const uint8_t[]){0});
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(degrees_keep_their_digits), OPS_TEST(digamma_just_below_a_pole),
        OPS_TEST(trigamma_is_infinite_at_its_poles), OPS_TEST(ldexp_is_exact),
        OPS_TEST(limits_that_are_nan_are_none),
        OPS_TEST(the_upper_limit_wins_over_a_lower_one_above_it),
        OPS_TEST(sizes_of_the_least_integers_wrap),
        OPS_TEST(integers_are_rounded_once_to_sixteen_bits),
        OPS_TEST(functions_of_16_bits_are_rounded_once), OPS_TEST(log_cosh_is_never_negative),
        OPS_TEST(means_of_large_integers_do_not_wrap), OPS_TEST(f64_is_rounded_to_16_bits_once),
        OPS_TEST(uniform_numbers_need_a_width), OPS_TEST(averages_to_a_size_keep_infinities_apart),
        OPS_TEST(unpooling_copies), OPS_TEST(a_window_larger_than_x_is_one_by_ceil),
        OPS_TEST(losses_of_no_rows), OPS_TEST(a_border_reaches_to_infinity),
        OPS_TEST(integers_may_be_close));
}
