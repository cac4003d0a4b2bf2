/* Quantiles, counts, searches, sets, scans of extremes and what linear algebra is made of: against
 * NumPy's and PyTorch's numbers, with odd input, and their errors. */
#include <float.h>
#include <math.h>

#include "golden/statistics.h"

#include "golden_values.h"

enum { D0 = 4, D1 = 5, D2 = 6, N = D0 * D1 * D2 };

static double element(int i) { return (i * 7 + 3) % 23 / 8.0 - 1.25; }

static kn_tensor *made(kn_dtype dtype, int first, kn_shape shape) {
    double x[N];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    for (int i = 0; i < n; i++) x[i] = element(first + i);
    return kn_cast(from_doubles(x, KN_F64, shape), dtype);
}

static kn_tensor *array(kn_dtype dtype) { return made(dtype, 0, KN_SHAPE(D0, D1, D2)); }

static kn_tensor *with_nan(kn_dtype dtype) {
    double x[N];
    for (int i = 0; i < N; i++) x[i] = element(i);
    x[D1 * D2 + 2 * D2 + 3] = NAN;
    x[3 * D1 * D2] = INFINITY;
    for (int i = 0; i < D1; i++) x[(2 * D1 + i) * D2 + 1] = NAN;
    return kn_cast(from_doubles(x, KN_F64, KN_SHAPE(D0, D1, D2)), dtype);
}

static void over_axes(kn_dtype dtype) {
    kn_tensor *x = array(dtype), *nan = with_nan(dtype);
    GOLDEN(kn_median(x, KN_SHAPE(1), false), median);
    GOLDEN(kn_median(x, KN_SHAPE(-1, 0), true), median_two);
    assert_shape(kn_median(x, KN_SHAPE(-1, 0), true), KN_SHAPE(1, D1, 1));
    assert_shape(kn_median(x, KN_ALL, false), KN_SCALAR);
    assert_shape(kn_median(x, KN_SCALAR, false), KN_SHAPE(D0, D1, D2));
    GOLDEN(kn_quantile(x, 0.3, KN_SHAPE(2), false), quantile);
    GOLDEN(kn_quantile(x, 0.77, KN_ALL, false), quantile_all);
    GOLDEN(kn_median(nan, KN_SHAPE(1), false), nan_median);
    GOLDEN(kn_nan_sum(nan, KN_SHAPE(1), false), nan_sum);
    GOLDEN(kn_nan_mean(nan, KN_SHAPE(1, 2), false), nan_mean);
    GOLDEN(kn_nan_max(nan, KN_SHAPE(0, 1), false), nan_max);
    GOLDEN(kn_nan_min(nan, KN_SHAPE(1), false), nan_min);
    GOLDEN(kn_nan_quantile(nan, 0.3, KN_SHAPE(2), false), nan_quantile);
    GOLDEN(kn_nan_median(nan, KN_SHAPE(1), false), nan_median_1);
    kn_tensor *finite = kn_slice(nan, KN_SHAPE(0, 0, 0), KN_SHAPE(2, D1, D2));
    GOLDEN(kn_nan_var(finite, KN_SHAPE(1, 2), false, false), nan_var);
    GOLDEN(kn_nan_std(nan, KN_SHAPE(1), false, true), nan_std);
    GOLDEN(kn_nan_to_num(nan, 7, 8, 9), nan_to_num);
    GOLDEN(kn_cummax(x, 1), cummax);
    GOLDEN(kn_cummin(x, -1), cummin);
    GOLDEN(kn_diff(x, 1, 1), diff);
    GOLDEN(kn_diff(x, 2, 0), diff_twice);
    GOLDEN(kn_move_axis(x, 0, -1), move_axis);
    GOLDEN(kn_move_axis(x, -1, 1), move_axis_back);
    GOLDEN(kn_swap_axes(x, 0, 2), swap_axes);
    GOLDEN(kn_histogram(x, 7, -1.25, 1.5), histogram);
    GOLDEN(kn_histogram(x, 5, -0.5, 0.75), histogram_narrow);
    kn_tensor *places = NULL, *values = NULL;
    assert_ok(kn_cummax_index(&values, &places, x, 1));
    GOLDEN(values, cummax);
    GOLDEN(places, cummax_places);
    assert_ok(kn_cummin_index(NULL, &places, x, 2));
    GOLDEN(places, cummin_places);
}

static void arrays_agree_with_numpy(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F64, KN_F32, KN_F16, KN_BF16};
    for (int t = 0; t < 4; t++)
        for (int threads = 1; threads <= 3; threads += 2) {
            KN_FRAME(.threads = threads);
            over_axes(dtypes[t]);
        }
}

static void sets_and_searches_agree_with_numpy(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *x = array(dtype), *line = kn_sort(kn_reshape(x, KN_SHAPE(N)), 0, false);
        line = kn_index(line, KN_ITEMS(KN_RANGE(KN_BEGIN, KN_END, 2)));
        kn_tensor *values = kn_arange(-1.5, 2, 0.125, dtype);
        GOLDEN(kn_search_sorted(line, values, false), search_left);
        GOLDEN(kn_search_sorted(line, values, true), search_right);
        static const double knots[] = {-1, -0.5, 0.25, 0.5, 1.25}, at[] = {2, -3, 0.5, 0.75, 4};
        kn_tensor *places = kn_cast(from_doubles(knots, KN_F64, KN_SHAPE(5)), dtype);
        kn_tensor *heights = kn_cast(from_doubles(at, KN_F64, KN_SHAPE(5)), dtype);
        GOLDEN(kn_interp(x, places, heights), interp);
        kn_tensor *unique, *inverse, *counts;
        assert_ok(kn_unique(&unique, &inverse, &counts, with_nan(dtype)));
        GOLDEN(unique, unique);
        GOLDEN(inverse, inverse);
        assert_shape(inverse, KN_SHAPE(D0, D1, D2));
        GOLDEN(counts, counts);
        const double wanted[] = {0, 0.25, -1.25, 9};
        GOLDEN(kn_is_in(x, from_doubles(wanted, dtype, KN_SHAPE(4))), is_in);
        GOLDEN(kn_logcumsumexp(kn_affine(x, 300, 0), 1), logcumsumexp);
    }
}

static void counts_agree_with_numpy(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_I64, KN_I32, KN_U8};
    for (int t = 0; t < 3; t++) {
        KN_FRAME();
        kn_tensor *line = kn_affine(kn_arange(0, 60, 1, KN_F64), 7, 3);
        kn_tensor *whole = kn_remainder(line, kn_full_like(line, 11));
        whole = kn_reshape(kn_cast(whole, dtypes[t]), KN_SHAPE(12, 5));
        kn_tensor *counts = kn_bincount(whole, 13, KN_NONE);
        GOLDEN(counts, bincount);
        assert_int_equal(kn_tensor_dtype(counts), KN_I64);
        kn_tensor *weights = kn_reshape(kn_arange(0, 7.5, 0.125, KN_F64), KN_SHAPE(12, 5));
        GOLDEN(kn_bincount(whole, 13, weights), bincount_weights);
    }
}

static void linear_algebra_agrees_with_numpy(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = array(dtype), *rows = kn_reshape(x, KN_SHAPE(D0, D1 * D2));
        GOLDEN(kn_cov(rows), cov);
        GOLDEN(kn_corrcoef(rows), corrcoef);
        kn_tensor *part = kn_slice(x, KN_SHAPE(0, 1, 0), KN_SHAPE(D0, 4, D2));
        GOLDEN(kn_tensordot(x, part, KN_SHAPE(2, 0), KN_SHAPE(-1, 0)), tensordot);
        assert_shape(kn_tensordot(x, part, KN_SHAPE(2, 0), KN_SHAPE(-1, 0)), KN_SHAPE(D1, 3));
        kn_tensor *a = kn_slice(x, KN_SHAPE(0, 0, 0), KN_SHAPE(D0, 3, D2));
        kn_tensor *b = kn_slice(x, KN_SHAPE(0, 2, 0), KN_SHAPE(D0, 5, D2));
        GOLDEN(kn_cross(a, b, 1), cross);
        kn_tensor *tall = kn_add(made(dtype, 0, KN_SHAPE(2, 6, 4)), kn_affine(kn_eye(6, 4), 3, 0));
        kn_tensor *right = made(dtype, 40, KN_SHAPE(2, 6, 3)), *wide = kn_swap_axes(tall, 1, 2);
        GOLDEN(kn_lstsq(tall, right), lstsq_tall);
        kn_tensor *upper = kn_slice(right, KN_SHAPE(0, 0, 0), KN_SHAPE(2, 4, 3));
        GOLDEN(kn_lstsq(wide, upper), lstsq_wide);
        kn_tensor *square = made(dtype, 0, KN_SHAPE(2, 5, 5));
        square = kn_add(square, kn_affine(kn_eye(5, 5), 2, 0));
        GOLDEN(kn_matrix_power(square, 5), power_5);
        GOLDEN(kn_matrix_power(square, -3), power_minus_3);
        GOLDEN(kn_logspace(-2, 3, 7, 2.5), logspace);
        if (dtype == KN_F32) {
            KN_FRAME(.dtype = KN_F64);
            kn_tensor *exact = kn_cast(kn_logspace(-2, 3, 70, 2.5), KN_F32);
            KN_FRAME(.dtype = KN_F32);
            assert_same_bits(kn_logspace(-2, 3, 70, 2.5), exact);
        }
        kn_tensor *p = from_doubles((double[]){-7.5, 7.5, -7.5, 7.5, 0, 1e-3}, dtype, KN_SHAPE(6));
        kn_tensor *q = from_doubles((double[]){2, -2, -2, 2, 3, -5}, dtype, KN_SHAPE(6));
        GOLDEN(kn_floor_div(p, q), floor_div);
    }
}

/* Where LAPACK is there. */
static void inverses_of_low_rank_agree_with_numpy(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *tall = kn_add(made(dtype, 0, KN_SHAPE(2, 6, 4)), kn_affine(kn_eye(6, 4), 3, 0));
        kn_tensor *y = kn_pinv(tall, -1);
        if (!y && kn_check() == KN_ERR_UNSUPPORTED) skip();
        GOLDEN(y, pinv);
        kn_tensor *of_second = kn_index(tall, KN_ITEMS(KN_AT(1)));
        kn_tensor *c0 = kn_select(of_second, 0, 1), *c1 = kn_select(of_second, 1, 1);
        kn_tensor *low =
            kn_set_at(tall, kn_axpby(c0, c1, 1, 2), KN_ITEMS(KN_AT(1), KN_EVERY, KN_AT(3)));
        GOLDEN(kn_pinv(low, dtype == KN_F64 ? 1e-10 : 1e-5), pinv_low);
        GOLDEN(kn_matrix_rank(low, -1), matrix_rank);
        assert_shape(kn_pinv(kn_zeros(KN_SHAPE(2, 3, 0)), -1), KN_SHAPE(2, 0, 3));
        VALUES(kn_matrix_rank(kn_zeros(KN_SHAPE(2, 3, 0)), -1), 0, 0);
        VALUES(kn_matrix_rank(kn_zeros(KN_SHAPE(3, 3)), -1), 0);
        VALUES(kn_sum(kn_pinv(kn_zeros(KN_SHAPE(3, 2)), -1), KN_ALL, false), 0);
    }
}

/* --- edges --- */

static void odd_numbers_have_places(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *nan = X(NAN, NAN);
    VALUES(kn_median(X(1, NAN), KN_ALL, false), NAN);
    VALUES(kn_median(X(7), KN_ALL, true), 7);
    VALUES(kn_median(X(1, INF, INF, INF), KN_ALL, false), INF);
    VALUES(kn_median(X(-3e38F, 3e38F), KN_ALL, false), 0);
    VALUES(kn_quantile(X(INF, INF, 1), 0.7, KN_ALL, false), INF);
    assert_shape(kn_median(kn_ones(KN_SHAPE(2, 1, 2, 1, 1, 1, 1, 1)), KN_SCALAR, false),
                 KN_SHAPE(2, 1, 2, 1, 1, 1, 1, 1));
    VALUES(kn_cov(kn_zeros(KN_SHAPE(0))), NAN);
    VALUES(kn_cov(X(3)), NAN);
    VALUES(kn_quantile(X(-INF, 3, INF), 0.5, KN_ALL, false), 3);
    VALUES(kn_quantile(X(2, 1), 0, KN_ALL, false), 1);
    VALUES(kn_quantile(X(2, 1), 1, KN_ALL, false), 2);
    VALUES(kn_quantile(X(1, 5), 0.25, KN_ALL, false), 2);
    for (int i = 1; i < 60; i++) /* equal neighbours stay as they are */
        assert_true(ops_at(kn_quantile(kn_full(KN_SHAPE(2), 0.7), i / 60.0, KN_ALL, false), 0) ==
                    (double)0.7F);
    VALUES(kn_median(kn_cast(X(3, 4), KN_U8), KN_ALL, false), 3.5);
    assert_int_equal(kn_tensor_dtype(kn_median(kn_cast(X(3, 4), KN_I64), KN_ALL, false)), KN_F64);
    VALUES(kn_nan_sum(nan, KN_ALL, false), 0);
    VALUES(kn_nan_mean(nan, KN_ALL, false), NAN);
    VALUES(kn_nan_max(nan, KN_ALL, false), NAN);
    VALUES(kn_nan_min(X(NAN, INF), KN_ALL, false), INF);
    VALUES(kn_nan_max(X(NAN, -INF), KN_ALL, false), -INF);
    VALUES(kn_nan_sum(kn_cast(X(3, 4), KN_I32), KN_ALL, false), 7);
    VALUES(kn_nan_mean(kn_cast(X(3, 4), KN_I32), KN_ALL, false), 3.5);
    VALUES(kn_nan_max(kn_cast(X(3, 4), KN_I32), KN_ALL, false), 4);
    VALUES(kn_nan_to_num(X(NAN, INF, -INF, 1), 0, DBL_MAX, -DBL_MAX), 0, FLT_MAX, -FLT_MAX, 1);
    VALUES(kn_nan_to_num(kn_cast(X(NAN, INF), KN_F16), INF, DBL_MAX, 0), INF, 65504);
    VALUES(kn_nan_to_num(kn_cast(X(3, 4), KN_I64), 9, 9, 9), 3, 4);
    kn_tensor *far = kn_cast(X(-60000, INF), KN_F16), *other = kn_cast(X(60000, 1), KN_F16);
    VALUES(kn_isclose(far, other, 0.1, 6e4), 0, 0);
    VALUES(kn_isclose(X(INF), X(1), 0, 1e300), 0);
}

static void searches_and_scans_of_odd_numbers_have_places(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *p, *q, *r;
    VALUES(kn_cummax(X(1, 1, 3, NAN, 9, NAN), 0), 1, 1, 3, NAN, NAN, NAN);
    assert_ok(kn_cummax_index(&p, &q, X(1, 1, 0, NAN, 9, NAN, 2), 0));
    VALUES(q, 0, 1, 1, 3, 3, 5, 5);
    VALUES(kn_cummin(X(INF, INF, -INF), 0), INF, INF, -INF);
    VALUES(kn_logcumsumexp(X(-INF, -INF, 2, 2), 0), -INF, -INF, 2, 2 + log(2));
    VALUES(kn_logcumsumexp(X(1, INF, -INF), 0), 1, INF, INF);
    VALUES(kn_logcumsumexp(X(1, NAN, 1), 0), 1, NAN, NAN);
    assert_true(golden_at(kn_logcumsumexp(X(1e-9F), 0), 0) == (double)1e-9F);
    VALUES(kn_logcumsumexp(X(1e4F, -1e4F, 1e4F), 0), 1e4, 1e4, 1e4 + log(2));
    VALUES(kn_search_sorted(X(1, 2, INF, NAN), X(NAN, INF, -INF, 2), false), 3, 2, 0, 1);
    VALUES(kn_search_sorted(X(1, 2, INF, NAN), X(NAN, INF, -INF, 2), true), 4, 3, 0, 2);
    VALUES(kn_search_sorted(kn_zeros(KN_SHAPE(0)), X(1, NAN), true), 0, 0);
    assert_true(signbit(golden_at(kn_floor_div(F64(KN_SHAPE(1), -0.0), F64(KN_SHAPE(1), 3)), 0)));
    VALUES(kn_is_in(X(NAN, 1, 5), X(NAN, 5, -INF)), 0, 0, 1);
    VALUES(kn_is_in(X(1, 2), kn_zeros(KN_SHAPE(0))), 0, 0);
    VALUES(kn_is_in(X(7, 1), X(1)), 0, 1);
    assert_ok(kn_unique(&p, &q, &r, X(NAN, 2, NAN, -0.0F, 0)));
    VALUES(p, 0, 2, NAN);
    VALUES(q, 2, 1, 2, 0, 0);
    VALUES(r, 2, 1, 2);
    assert_ok(kn_unique(&p, NULL, NULL, kn_gt(X(1, 2), X(2, 1))));
    VALUES(p, 0, 1);
    const int64_t far[] = {3, INT64_MAX, INT64_MIN, 3}, near[] = {-2, 5, -2, 4, 3, 4, 3, 3};
    assert_ok(kn_unique(&p, &q, &r, kn_tensor_from(far, KN_I64, KN_SHAPE(2, 2))));
    VALUES(p, -0x1p63, 3, 0x1p63);
    VALUES(q, 1, 2, 0, 1);
    VALUES(r, 1, 2, 1);
    kn_tensor *labels = kn_tensor_from(near, KN_I64, KN_SHAPE(2, 4));
    assert_ok(kn_unique(&p, &q, &r, kn_cast(labels, KN_I32)));
    VALUES(p, -2, 3, 4, 5);
    assert_int_equal(kn_tensor_dtype(p), KN_I32);
    VALUES(q, 0, 3, 0, 2, 1, 2, 1, 1);
    assert_shape(q, KN_SHAPE(2, 4));
    VALUES(r, 2, 3, 2, 1);
    VALUES(kn_histogram(X(0, 1, 2, 3, 4, NAN, INF, -INF, -1, 5), 2, 0, 4), 2, 3);
    VALUES(kn_histogram(kn_cast(X(0, 1, 4), KN_U8), 4, 0, 4), 1, 1, 0, 1);
    VALUES(kn_diff(kn_gt(X(1, 2, 2), X(2, 1, 1)), 1, 0), 1, 0);
    VALUES(kn_floor_div(X(5, -5, 0, 1), X(INF, INF, 0, 0)), 0, -1, NAN, INF);
    VALUES(
        kn_floor_div(I64(KN_SHAPE(5), 7, -7, 7, INT64_MIN, 5), I64(KN_SHAPE(5), 2, 2, -2, -1, 0)),
        3, -4, -4, -0x1p63, 0);
}

static void narrow_floats_are_summed_in_wide_ones(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_cast(kn_full(KN_SHAPE(3000), 1000), KN_F16), *last = NULL;
    VALUES(kn_nan_mean(x, KN_ALL, false), 1000);
    last = kn_select(kn_logcumsumexp(kn_zeros_like(x), 0), -1, 0);
    VALUES(last, log(3000));
    assert_int_equal(kn_tensor_dtype(last), KN_F16);
    kn_tensor *y = kn_histogram(kn_cast(X(0.1F, 0.3F, 0.9F), KN_BF16), 2, 0, 1);
    VALUES(y, 2, 1);
}

/* Of rows that are multiples of each other, in spite of rounding. */
static void correlations_stay_within_one(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        KN_FRAME();
        kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(1, 2 + i % 40));
        kn_tensor *rows[] = {x, kn_affine(x, -3.7, 0.1), kn_affine(x, 1.3, 2)};
        kn_tensor *c = kn_corrcoef(kn_concat(rows, 3, 0));
        for (int k = 0; k < 9; k++) {
            assert_true(fabs(golden_at(c, k)) <= 1);
            assert_true(fabs(golden_at(c, k)) > 0.999);
        }
    }
}

/* Of ranges narrower than the distance of floats. */
static void narrow_ranges_are_searched(void **state) {
    (void)state;
    enum { BINS = 1000, MANY = 4000 };
    KN_FRAME();
    float x[MANY];
    for (int i = 0; i < MANY; i++) x[i] = 1e6F + (float)i * 0x1p-9F;
    kn_tensor *values = kn_tensor_from(x, KN_F32, KN_SHAPE(MANY));
    kn_tensor *counts = kn_histogram(values, BINS, 1e6, 1e6 + 2);
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *ends = kn_linspace(1e6, 1e6 + 2, BINS + 1), *places;
    places = kn_search_sorted(ends, kn_cast(values, KN_F64), true);
    double total = 0, want[BINS] = {0};
    for (int i = 0; i < MANY; i++) {
        int k = (int)golden_at(places, i) - 1;
        if (k == BINS && (double)x[i] == 1e6 + 2) k--;
        if (k >= 0 && k < BINS) want[k]++, total++;
    }
    golden_check(counts, want, BINS, "counts of narrow ranges");
    assert_true(total > 1000);
    kn_tensor *first = kn_full(KN_SHAPE(1), 1.7e9), *in_f32 = kn_cast(first, KN_F32);
    VALUES(kn_select(kn_histogram(in_f32, 1000, 1.7e9, 1.7e9 + 1000), 0, 0), 1);
    VALUES(kn_histogram(X(INF, 1, -INF), 2, 0, 1e300), 1, 0);
    VALUES(kn_histogram(X(0.1F, 0), 1, 0, 0.1), 2);
}

/* Each end belongs to the range above it, the last one to the range below; the number before an end
 * to the range below. Of many widths, where an estimate of the range is one off. */
static void ends_belong_to_the_range_above(void **state) {
    (void)state;
    enum { RANGES_MAX = 60 };
    for (int round = 0; round < 400; round++) {
        KN_FRAME(.dtype = KN_F64);
        double lo = test_random_uniform(-3, 3), hi = lo + test_random_uniform(0.01, 5);
        double x[RANGES_MAX + 1], before[RANGES_MAX + 1], want[RANGES_MAX];
        int n = 1 + (int)test_random_below(RANGES_MAX);
        kn_tensor *ends = kn_linspace(lo, hi, n + 1);
        for (int i = 0; i <= n; i++) {
            x[i] = golden_at(ends, i), before[i] = nextafter(x[i], -INF);
            if (i < n) want[i] = 1;
        }
        kn_tensor *below = kn_tensor_from(before, KN_F64, KN_SHAPE(n + 1));
        golden_check(kn_histogram(below, n, lo, hi), want, (size_t)n, "before the ends");
        want[n - 1] = 2;
        kn_tensor *at = kn_tensor_from(x, KN_F64, KN_SHAPE(n + 1));
        golden_check(kn_histogram(at, n, lo, hi), want, (size_t)n, "at the ends");
    }
}

/* Sums in f64, which a million f32 terms need. */
static void weights_of_one_bin_keep_their_digits(void **state) {
    (void)state;
    enum { MANY = 1000000 };
    KN_FRAME();
    kn_tensor *zeros = kn_cast(kn_zeros(KN_SHAPE(MANY)), KN_U8);
    kn_tensor *sum = kn_bincount(zeros, 1, kn_full(KN_SHAPE(MANY), 0.1));
    assert_int_equal(kn_tensor_dtype(sum), KN_F32);
    assert_true(fabs(golden_at(sum, 0) / 1e5 - 1) < 1e-6);
}

/* As they do without .autocast. */
static void products_inside_keep_their_dtype(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        KN_FRAME(.autocast = i ? KN_F16 : KN_OFF);
        kn_tensor *x = kn_affine(made(KN_F32, 0, KN_SHAPE(4, 6)), 300, 0);
        kn_tensor *a = kn_add(made(KN_F32, 0, KN_SHAPE(3, 3)), kn_affine(kn_eye(3, 3), 3, 0));
        kn_tensor *y[] = {kn_cov(x),      kn_corrcoef(x),        kn_lstsq(a, a),
                          kn_lstsq(x, x), kn_matrix_power(a, 2), kn_matrix_power(a, -2)};
        for (size_t k = 0; k < sizeof y / sizeof *y; k++) {
            assert_non_null(y[k]);
            assert_int_equal(kn_tensor_dtype(y[k]), KN_F32);
            for (int e = 0; e < kn_tensor_numel(y[k]); e++)
                assert_true(isfinite(golden_at(y[k], e)));
        }
        kn_tensor *narrow = kn_cov(kn_cast(x, KN_F16)), *half = kn_cast(x, KN_F16);
        const kn_dtype sums = kn_tensor_dtype(kn_mean(half, KN_ALL, false)); /* f32, .autocast */
        assert_int_equal(kn_tensor_dtype(narrow), sums);
        assert_int_equal(kn_tensor_dtype(kn_nan_mean(half, KN_ALL, false)), sums);
        assert_int_equal(kn_tensor_dtype(kn_logcumsumexp(half, 0)), sums);
        assert_true(fabs(golden_at(narrow, 0) / golden_at(y[0], 0) - 1) < 2e-3);
    }
}

enum { MADE = 14, MADE_ROWS = 512 };
static kn_tensor *of_many_ops(int i, kn_tensor *x) {
    const kn_shape rows = KN_SHAPE(0), columns = KN_SHAPE(1);
    kn_tensor *y = NULL;
    if (i == 0 && kn_unique(&y, NULL, NULL, x) < 0) return NULL;
    return i == 0    ? y
           : i == 1  ? kn_diff(x, 30, 0)
           : i == 2  ? kn_median(x, rows, false)
           : i == 3  ? kn_corrcoef(x)
           : i == 4  ? kn_is_in(x, x)
           : i == 5  ? kn_nan_to_num(x, 0, 1, 2)
           : i == 6  ? kn_nan_mean(x, rows, false)
           : i == 7  ? kn_logcumsumexp(x, 0)
           : i == 8  ? kn_histogram(x, 10, 0, 9)
           : i == 9  ? kn_tensordot(x, x, columns, columns)
           : i == 10 ? kn_matrix_power(x, 5)
           : i == 11 ? kn_lstsq(x, x)
           : i == 12 ? kn_isclose(x, x, 0.1, 0.1)
                     : kn_sec(x);
}

/* What a function made on the way ends with it. */
static void intermediates_do_not_stay(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_arange(0, MADE_ROWS * MADE_ROWS, 1, KN_F32);
    x = kn_affine(kn_reshape(x, KN_SHAPE(MADE_ROWS, MADE_ROWS)), 1e-3, 0);
    for (int i = 0; i < MADE; i++) {
        kn_pool_stats before, after;
        kn_pool_stats_read(&before, sizeof before, kn_frame_pool());
        kn_tensor *y = of_many_ops(i, x);
        assert_non_null(y);
        kn_drop(y);
        kn_pool_stats_read(&after, sizeof after, kn_frame_pool());
        int64_t more = (int64_t)after.live_bytes - (int64_t)before.live_bytes;
        if (more > 4096) fail_msg("%d: %lld bytes stay", i, (long long)more);
    }
}

/* Their own frames are not the thread's outermost ones, whose end would clear errors. */
static void without_a_frame_errors_stay(void **state) {
    (void)state;
    kn_tensor *x = NULL, *y[2];
    {
        KN_FRAME();
        assert_ok(kn_hold(&x, F32(KN_SHAPE(2, 2), 1, 2, 3, 4)));
    }
    for (int i = 0; i < MADE; i++) {
        assert_null(of_many_ops(i, x));
        if (i == 0) continue; /* it has returned its error */
        assert_int_equal(kn_check(), KN_ERR_INVALID);
        assert_non_null(strstr(kn_last_error()->message, "no frame is open"));
    }
    assert_null(kn_pinv(x, -1));
    assert_string_equal(kn_last_error()->op, "pinv");
    assert_null(kn_logspace(0, 1, 2, 2)); /* the first error stays */
    assert_int_equal(kn_check(), KN_ERR_INVALID);
    assert_string_equal(kn_last_error()->op, "pinv");
    assert_fails(kn_unique(&y[0], NULL, NULL, x), KN_ERR_INVALID, "no frame is open");
    kn_unhold(&x);
}

static void empty_arrays_have_results(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *none = kn_zeros(KN_SHAPE(0)), *p, *q, *r;
    assert_ok(kn_unique(&p, &q, &r, kn_zeros(KN_SHAPE(2, 0))));
    assert_shape(p, KN_SHAPE(0));
    assert_shape(q, KN_SHAPE(2, 0));
    assert_shape(r, KN_SHAPE(0));
    assert_shape(kn_diff(none, 3, 0), KN_SHAPE(0));
    assert_shape(kn_diff(X(1), 2, 0), KN_SHAPE(0));
    assert_shape(kn_cummax(kn_zeros(KN_SHAPE(3, 0)), 1), KN_SHAPE(3, 0));
    assert_shape(kn_logcumsumexp(none, 0), KN_SHAPE(0));
    VALUES(kn_bincount(kn_cast(none, KN_I64), 2, KN_NONE), 0, 0);
    assert_shape(kn_bincount(kn_cast(none, KN_I64), 0, KN_NONE), KN_SHAPE(0));
    VALUES(kn_histogram(none, 2, 0, 1), 0, 0);
    VALUES(kn_nan_sum(none, KN_ALL, false), 0);
    VALUES(kn_tensordot(none, none, KN_SHAPE(0), KN_SHAPE(0)), 0);
    assert_shape(kn_tensordot(X(1, 2), X(1, 2, 3), KN_SCALAR, KN_SCALAR), KN_SHAPE(2, 3));
    VALUES(kn_matrix_power(F32(KN_SHAPE(2, 2), 5, NAN, 7, 8), 0), 1, 0, 0, 1);
    assert_shape(kn_zeros_like(kn_cast(none, KN_I32)), KN_SHAPE(0));
    assert_shape(kn_logspace(0, 1, 0, 10), KN_SHAPE(0));
}

static void results_like_others_keep_dtype_and_share_nothing(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_cast(X(1, 2), KN_I32), *y = kn_copy(x), *grid[2] = {NULL, NULL};
    assert_int_equal(kn_tensor_dtype(kn_full_like(x, 7)), KN_I32);
    VALUES(kn_full_like(x, 7), 7, 7);
    VALUES(kn_ones_like(kn_gt(x, y)), 1, 1);
    VALUES(kn_zeros_like(x), 0, 0);
    assert_ok(kn_fill_into(y, 5));
    VALUES(x, 1, 2);
    kn_tensor *same[] = {kn_nan_to_num(x, 0, 0, 0), kn_diff(x, 0, 0), grid[0]};
    assert_ok(kn_meshgrid(&same[2], &x, 1));
    for (int i = 0; i < 3; i++) assert_ok(kn_fill_into(same[i], 9));
    VALUES(x, 1, 2);
    assert_ok(kn_meshgrid(grid, (kn_tensor *const[]){x, kn_cast(X(3, 4, 5), KN_I32)}, 2));
    assert_shape(grid[0], KN_SHAPE(2, 3));
    VALUES(grid[0], 1, 1, 1, 2, 2, 2);
    VALUES(grid[1], 3, 4, 5, 3, 4, 5);
    VALUES(kn_cross(kn_cast(X(1, 2, 3), KN_I64), kn_cast(X(4, 5, 6), KN_I64), 0), -3, 6, -3);
    kn_tensor *three = F32(KN_SHAPE(3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 10);
    VALUES(kn_cross(three, X(1, 0, 0), 1), 0, 3, -2, 0, 6, -5, 0, 10, -8);
    VALUES(kn_cross(X(1, 0, 0), three, -1), 0, -3, 2, 0, -6, 5, 0, -10, 8);
    VALUES(kn_cov(X(1, 2, 6)), 7);
    VALUES(kn_corrcoef(X(1, 2, 6)), 1);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3)), *v = X(1, 2, 3), *i = I64(KN_SHAPE(2), 0, 1), *out[2];
    assert_op_fails(kn_quantile(x, 1.5, KN_ALL, false), KN_ERR_INVALID, "kn_quantile: q is 1.5");
    assert_op_fails(kn_nan_quantile(x, NAN, KN_ALL, false), KN_ERR_INVALID,
                    "kn_nan_quantile: q is nan");
    assert_op_fails(kn_nan_var(kn_cast(x, KN_I64), KN_ALL, false, false), KN_ERR_DTYPE,
                    "kn_nan_var: x is i64");
    assert_op_fails(kn_interp(x, x, kn_ones(KN_SHAPE(7))), KN_ERR_SHAPE,
                    "kn_interp: places and values must be [N]");
    assert_op_fails(kn_interp(x, kn_cast(x, KN_F64), x), KN_ERR_DTYPE,
                    "kn_interp: x is f32, places is f64");
    assert_op_fails(kn_median(kn_zeros(KN_SHAPE(0)), KN_ALL, false), KN_ERR_SHAPE,
                    "kn_median: there are no elements");
    assert_op_fails(kn_median(x, KN_SHAPE(2), false), KN_ERR_SHAPE, "kn_median");
    assert_op_fails(kn_nan_max(kn_zeros(KN_SHAPE(0)), KN_ALL, false), KN_ERR_SHAPE, "kn_nan_max");
    assert_op_fails(kn_bincount(I64(KN_SHAPE(2), 0, -1), 3, KN_NONE), KN_ERR_INVALID,
                    "kn_bincount: an element of x is -1");
    assert_op_fails(kn_bincount(i, 0, KN_NONE), KN_ERR_INVALID, "kn_bincount: n is 0");
    assert_op_fails(kn_bincount(i, 2, v), KN_ERR_SHAPE, "(x [2], weights [3])");
    assert_op_fails(kn_bincount(v, 2, KN_NONE), KN_ERR_DTYPE, "kn_bincount: x is f32");
    assert_op_fails(kn_bincount(i, -1, KN_NONE), KN_ERR_INVALID, "kn_bincount: n is -1");
    assert_op_fails(kn_bincount(i, 2, v), KN_ERR_SHAPE, "weights must have x's shape");
    assert_op_fails(kn_bincount(i, 1, KN_NONE), KN_ERR_INVALID, "kn_bincount");
    assert_op_fails(kn_bincount(NULL, 1, KN_NONE), KN_ERR_INVALID, "kn_bincount: x is NULL");
    assert_op_fails(kn_histogram(v, 0, 0, 1), KN_ERR_INVALID, "kn_histogram: bins is 0");
    assert_op_fails(kn_histogram(v, 3, 1, 1), KN_ERR_INVALID, "lo is 1, hi is 1");
    assert_op_fails(kn_search_sorted(x, v, false), KN_ERR_SHAPE, "kn_search_sorted: sorted must");
    assert_op_fails(kn_search_sorted(v, i, false), KN_ERR_DTYPE, "kn_search_sorted");
    assert_op_fails(kn_is_in(v, i), KN_ERR_DTYPE, "kn_is_in");
    assert_fails(kn_unique(NULL, NULL, NULL, v), KN_ERR_INVALID, "every result is NULL");
    assert_fails(kn_unique(&out[0], NULL, NULL, NULL), KN_ERR_INVALID, "kn_unique: x is NULL");
    assert_fails(kn_cummax_index(NULL, NULL, v, 0), KN_ERR_INVALID, "kn_cummax_index");
    assert_op_fails(kn_cummax(v, 1), KN_ERR_SHAPE, "kn_cummax");
    assert_op_fails(kn_logcumsumexp(i, 0), KN_ERR_DTYPE, "kn_logcumsumexp");
    assert_op_fails(kn_diff(v, -1, 0), KN_ERR_INVALID, "kn_diff: n is -1");
}

static void matrices_that_do_not_fit_are_refused(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3)), *v = X(1, 2, 3), *i = I64(KN_SHAPE(2), 0, 1), *out[2];
    assert_op_fails(kn_cov(kn_zeros(KN_SHAPE(2, 2, 2))), KN_ERR_SHAPE, "kn_cov: x must be [V,N]");
    assert_op_fails(kn_corrcoef(i), KN_ERR_DTYPE, "kn_corrcoef: x is i64");
    assert_op_fails(kn_tensordot(x, v, KN_SHAPE(1), KN_SHAPE(4)), KN_ERR_SHAPE,
                    "no axis 4 in 1 dimensions (a [2,3], b [3])");
    assert_op_fails(kn_tensordot(x, x, KN_SHAPE(1, 1), KN_SHAPE(0, 1)), KN_ERR_SHAPE,
                    "kn_tensordot: axis 1 is named twice");
    assert_op_fails(kn_tensordot(x, v, KN_SHAPE(0), KN_SHAPE(0)), KN_ERR_SHAPE,
                    "axes_a and axes_b don't pair");
    assert_op_fails(kn_tensordot(x, v, KN_ALL, KN_SHAPE(0)), KN_ERR_SHAPE, "kn_tensordot");
    kn_tensor *long_one = kn_zeros(KN_SHAPE(1, 1, 1, 1, 1));
    assert_op_fails(kn_tensordot(long_one, long_one, KN_SCALAR, KN_SCALAR), KN_ERR_SHAPE,
                    "kn_tensordot: the result has 10 dimensions; the limit is 8");
    assert_op_fails(kn_cross(x, v, 0), KN_ERR_SHAPE, "3 elements along axis 0 (a [2,3], b [3])");
    assert_op_fails(kn_cross(x, v, 2), KN_ERR_SHAPE, "no axis 2 in 2 dimensions (a [2,3], b [3])");
    assert_op_fails(kn_cross(x, NULL, 0), KN_ERR_INVALID, "kn_cross: b is NULL");
    assert_op_fails(kn_lstsq(x, v), KN_ERR_SHAPE,
                    "kn_lstsq: a must be [...,M,N], b [...,M,K] (a [2,3], b [3])");
    assert_op_fails(kn_matrix_power(x, 2), KN_ERR_SHAPE, "kn_matrix_power: a must be [...,N,N]");
    assert_op_fails(kn_logspace(0, 1, 3, -2), KN_ERR_INVALID, "kn_logspace: base is -2");
    assert_op_fails(kn_logspace(0, 1, -3, 2), KN_ERR_INVALID, "kn_logspace: n is -3");
    assert_op_fails(kn_swap_axes(x, 0, 2), KN_ERR_SHAPE, "kn_swap_axes");
    assert_op_fails(kn_move_axis(x, 5, 0), KN_ERR_SHAPE, "kn_move_axis");
    assert_op_fails(kn_copy(NULL), KN_ERR_INVALID, "kn_copy: x is NULL");
    assert_fails(kn_meshgrid(out, (kn_tensor *const[]){v, x}, 2), KN_ERR_SHAPE,
                 "kn_meshgrid: x[1] has 2 dimensions");
    assert_null(out[0]);
    assert_fails(kn_meshgrid(out, (kn_tensor *const[]){v, NULL}, 2), KN_ERR_INVALID,
                 "kn_meshgrid: x[1] is NULL");
    assert_fails(kn_meshgrid(out, &v, 0), KN_ERR_INVALID, "kn_meshgrid: n is 0");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(arrays_agree_with_numpy), OPS_TEST(sets_and_searches_agree_with_numpy),
        OPS_TEST(counts_agree_with_numpy), OPS_TEST(linear_algebra_agrees_with_numpy),
        OPS_TEST(inverses_of_low_rank_agree_with_numpy), OPS_TEST(odd_numbers_have_places),
        OPS_TEST(searches_and_scans_of_odd_numbers_have_places),
        OPS_TEST(matrices_that_do_not_fit_are_refused), OPS_TEST(empty_arrays_have_results),
        OPS_TEST(narrow_floats_are_summed_in_wide_ones), OPS_TEST(correlations_stay_within_one),
        OPS_TEST(narrow_ranges_are_searched), OPS_TEST(ends_belong_to_the_range_above),
        OPS_TEST(weights_of_one_bin_keep_their_digits), OPS_TEST(products_inside_keep_their_dtype),
        OPS_TEST(intermediates_do_not_stay), TEST(without_a_frame_errors_stay),
        OPS_TEST(results_like_others_keep_dtype_and_share_nothing),
        OPS_TEST(what_does_not_fit_is_refused));
}
