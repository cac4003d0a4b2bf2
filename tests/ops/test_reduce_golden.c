/* Reductions, scans and sorts against PyTorch's, on one thread and on three: the same bits. */

#include <math.h>

#include "golden/reduce.h"

#include "golden_values.h"

enum { D0 = 4, D1 = 5, D2 = 6, N = D0 * D1 * D2 };

static kn_tensor *array(kn_dtype dtype) {
    double x[N];
    for (int i = 0; i < N; i++) x[i] = (i * 7 + 3) % 23 / 8.0 - 1.25;
    return kn_cast(from_doubles(x, KN_F64, KN_SHAPE(D0, D1, D2)), dtype);
}

static kn_tensor *with_nan(kn_dtype dtype) {
    double x[N];
    for (int i = 0; i < N; i++) x[i] = (i * 7 + 3) % 23 / 8.0 - 1.25;
    x[D1 * D2 + 2 * D2 + 3] = NAN;
    x[3 * D1 * D2] = INFINITY;
    return kn_cast(from_doubles(x, KN_F64, KN_SHAPE(D0, D1, D2)), dtype);
}

static void reductions(kn_tensor *x) {
    const kn_var_options population = {.population = 1};
    GOLDEN(kn_sum(x, KN_SHAPE(0, 2), false), sum);
    GOLDEN(kn_prod(x, KN_SHAPE(1), true), prod);
    GOLDEN(kn_mean(x, KN_SHAPE(1, 2), false), mean);
    GOLDEN(kn_var(x, KN_SHAPE(1), false, NULL), var);
    GOLDEN(kn_var(x, KN_SHAPE(0, 2), false, &population), var_population);
    GOLDEN(kn_std(x, KN_SHAPE(0, 1), false, NULL), std);
    GOLDEN(kn_norm(x, 0, KN_SHAPE(0, 2), false), norm_0);
    GOLDEN(kn_norm(x, 1, KN_SHAPE(0, 2), false), norm_1);
    GOLDEN(kn_norm(x, 2, KN_SHAPE(0, 2), false), norm_2);
    GOLDEN(kn_norm(x, 3, KN_SHAPE(0, 2), false), norm_3);
    GOLDEN(kn_norm(x, INFINITY, KN_SHAPE(0, 2), false), norm_max);
    GOLDEN(kn_norm(x, -INFINITY, KN_SHAPE(0, 2), false), norm_min);
    GOLDEN(kn_logsumexp(x, KN_SHAPE(0, 1), false), logsumexp);
    GOLDEN(kn_count_nonzero(x, KN_SHAPE(0, 1), false), count_nonzero);
    kn_tensor *zero = kn_filled_like(x, 0);
    GOLDEN(kn_any(kn_eq(x, zero), KN_SHAPE(0), false), any);
    GOLDEN(kn_all(x, KN_SHAPE(0), false), all);
    GOLDEN(kn_argmax(x, KN_SHAPE(1), false), argmax);
    GOLDEN(kn_argmin(x, KN_SHAPE(2), true), argmin);
    GOLDEN(kn_argmax(x, KN_ALL, false), argmax_all);
}

static void along_an_axis(kn_tensor *x) {
    kn_tensor *values, *places;
    GOLDEN(kn_cumsum(x, 1), cumsum);
    GOLDEN(kn_cumprod(x, -1), cumprod);
    assert_ok(kn_sort_index(&values, &places, x, 2, false));
    GOLDEN(values, sorted);
    GOLDEN(places, sorted_places);
    GOLDEN(kn_sort(x, 1, true), falling);
    GOLDEN(kn_argsort(x, 1, true), falling_places);
    assert_ok(kn_topk(&values, &places, x, 3, 2, false));
    GOLDEN(values, topk);
}

static void results_equal_pytorch(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F64, KN_F32, KN_F16, KN_BF16};
    for (int t = 0; t < 4; t++) {
        KN_FRAME();
        reductions(array(dtypes[t]));
        along_an_axis(array(dtypes[t]));
    }
}

static void nan_and_infinity_go_where_pytorch_lets_them(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F64, KN_F32, KN_F16, KN_BF16};
    for (int t = 0; t < 4; t++) {
        KN_FRAME();
        kn_tensor *x = with_nan(dtypes[t]);
        GOLDEN(kn_max(x, KN_SHAPE(2), false), nan_max);
        GOLDEN(kn_min(x, KN_SHAPE(0, 1), false), nan_min);
        GOLDEN(kn_sum(x, KN_SHAPE(1, 2), false), nan_sum);
        GOLDEN(kn_argmax(x, KN_SHAPE(1), false), nan_argmax);
        GOLDEN(kn_sort(x, 0, false), nan_sorted);
        GOLDEN(kn_sort(x, 2, true), nan_falling);
        GOLDEN(kn_logsumexp(x, KN_SHAPE(1, 2), false), nan_logsumexp);
    }
}

static void integers_give_what_pytorch_gives(void **state) {
    (void)state;
    KN_FRAME();
    uint8_t bytes[200];
    int32_t ints[10];
    for (int i = 0; i < 200; i++) bytes[i] = (uint8_t)i;
    for (int i = 0; i < 10; i++) ints[i] = i + 1;
    kn_tensor *u = kn_tensor_from(bytes, KN_U8, KN_SHAPE(10, 20));
    kn_tensor *x = kn_tensor_from(ints, KN_I32, KN_SHAPE(10));
    kn_tensor *sum = kn_sum(u, KN_SHAPE(1), false), *product = kn_cumprod(x, 0);
    GOLDEN(sum, integer_sum);
    GOLDEN(product, integer_cumprod);
    assert_int_equal(kn_tensor_dtype(sum), KN_I64);
    assert_int_equal(kn_tensor_dtype(product), KN_I64);
    assert_int_equal(kn_tensor_dtype(kn_max(u, KN_ALL, false)), KN_U8);
    assert_int_equal(kn_tensor_dtype(kn_any(x, KN_ALL, false)), KN_BOOL);
    kn_tensor *mean = kn_mean(x, KN_ALL, false);
    assert_int_equal(kn_tensor_dtype(mean), KN_F64);
    assert_true(golden_at(mean, 0) == 5.5 && golden_at(kn_max(x, KN_ALL, false), 0) == 10);
    assert_true(golden_at(kn_prod(x, KN_ALL, false), 0) == 3628800);
    kn_tensor *wide = I64(KN_SHAPE(3), INT64_MIN, INT64_MAX, 5);
    const int64_t *total = kn_data(kn_sum(wide, KN_ALL, false)),
                  *most = kn_data(kn_max(wide, KN_ALL, false)),
                  *order = kn_data(kn_argsort(wide, 0, true));
    assert_true(*total == 4 && *most == INT64_MAX && order[0] == 1 && order[2] == 0);
}

/* --- large ones --- */

static void every_op(kn_tensor *out[], int *n, kn_tensor *x) {
    *n = 0;
    for (int axis = 0; axis < 2; axis++) {
        const kn_shape axes[] = {KN_SHAPE(axis), KN_ALL};
        for (int all = 0; all <= axis; all++) {
            out[(*n)++] = kn_var(x, axes[all], false, NULL);
            out[(*n)++] = kn_logsumexp(x, axes[all], false);
            out[(*n)++] = kn_prod(x, axes[all], false);
            out[(*n)++] = kn_norm(x, 3, axes[all], false);
            out[(*n)++] = kn_argmin(x, axes[all], false);
            out[(*n)++] = kn_count_nonzero(x, axes[all], false);
        }
        out[(*n)++] = kn_cumsum(x, axis);
        out[(*n)++] = kn_argsort(x, axis, false);
        int64_t k = kn_tensor_shape(x).dim[axis] < 5 ? 1 : 5;
        assert_ok(kn_topk(&out[*n], &out[*n + 1], x, k, axis, false));
        *n += 2;
    }
}

static void results_have_the_same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    const kn_shape shapes[] = {KN_SHAPE(300007, 1), KN_SHAPE(5, 40009), KN_SHAPE(40009, 5),
                               KN_SHAPE(257, 1031)};
    FOR_BOTH_DTYPES(dtype) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            KN_FRAME(.threads = 1);
            kn_tensor *x = random_tensor(dtype, shapes[s]), *want[64], *got[64];
            int n, n_got;
            every_op(want, &n, x);
            for (int threads = 2; threads <= 3; threads++) {
                KN_FRAME(.threads = threads);
                every_op(got, &n_got, x);
                for (int i = 0; i < n; i++) assert_same_bits(got[i], want[i]);
            }
        }
    }
}

static void a_sort_is_a_stable_order_of_all_elements(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 23, 24, 25, 300, 5000};
    FOR_BOTH_DTYPES(dtype) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int descending = 0; descending < 2; descending++) {
                KN_FRAME();
                int64_t n = sizes[s];
                kn_tensor *x = random_tensor(dtype, KN_SHAPE(n)), *values, *places;
                x = kn_cast(kn_cast(kn_affine(x, 100, 0), KN_I32), dtype); /* with ties */
                assert_ok(kn_sort_index(&values, &places, x, 0, descending));
                const int64_t *p = kn_data(places);
                for (int64_t i = 0; i < n; i++)
                    assert_true(golden_at(values, i) == golden_at(x, p[i]));
                for (int64_t i = 1; i < n; i++) {
                    double a = golden_at(values, i - 1), b = golden_at(values, i);
                    assert_true((descending ? a > b : a < b) || (a == b && p[i - 1] < p[i]));
                }
                static const int64_t wanted[] = {1, 3, 7, 40};
                for (int w = 0; w < 4; w++) {
                    int64_t k = n < wanted[w] ? n : wanted[w];
                    kn_tensor *best, *best_places;
                    assert_ok(kn_topk(&best, &best_places, x, k, 0, !descending));
                    assert_same_bits(best_places, kn_slice(places, KN_SHAPE(0), KN_SHAPE(k)));
                    assert_same_bits(best, kn_slice(values, KN_SHAPE(0), KN_SHAPE(k)));
                }
            }
        }
    }
}

static void zeros_are_equal_and_nans_above_all_whatever_their_signs(void **state) {
    (void)state;
    static const double rising[] = {4, 0, 2, 5, 6, 7, 1, 3}, falling[] = {1, 3, 7, 0, 2, 5, 6, 4};
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16};
    for (int t = 0; t < 4; t++) {
        KN_FRAME();
        kn_tensor *x = F32(KN_SHAPE(8), 0, -NAN, -0.0f, NAN, -1, 0, -0.0f, INFINITY);
        x = kn_cast(x, dtypes[t]);
        kn_tensor *up = kn_argsort(x, 0, false), *down = kn_argsort(x, 0, true);
        for (int i = 0; i < 8; i++) {
            assert_true(golden_at(up, i) == rising[i]);
            assert_true(golden_at(down, i) == falling[i]);
        }
    }
}

/* All but the last are as bad as can be: those that come first are taken. */
static void the_best_of_elements_that_are_all_worst(void **state) {
    (void)state;
    KN_FRAME();
    enum { LENGTH = 3000 };
    static int64_t x[LENGTH];
    for (int i = 0; i < LENGTH - 1; i++) x[i] = INT64_MIN;
    kn_tensor *values, *places;
    assert_ok(kn_topk(&values, &places, kn_tensor_from(x, KN_I64, KN_SHAPE(LENGTH)), 3, 0, false));
    static const int64_t value[] = {0, INT64_MIN, INT64_MIN}, place[] = {LENGTH - 1, 0, 1};
    assert_memory_equal(kn_data(values), value, sizeof value);
    assert_memory_equal(kn_data(places), place, sizeof place);
}

/* Three bytes differ: each sort ends in the other buffer. */
static void many_best_of_a_long_line(void **state) {
    (void)state;
    KN_FRAME();
    enum { LENGTH = 20000, COUNT = 200 };
    static int32_t x[LENGTH];
    for (int i = 0; i < LENGTH; i++) x[i] = (int32_t)test_random_below(1 << 24);
    kn_tensor *t = kn_tensor_from(x, KN_I32, KN_SHAPE(LENGTH)), *values, *places, *all, *order;
    for (int smallest = 0; smallest < 2; smallest++) {
        assert_ok(kn_topk(&values, &places, t, COUNT, 0, smallest));
        assert_ok(kn_sort_index(&all, &order, t, 0, !smallest));
        assert_same_bits(values, kn_slice(all, KN_SHAPE(0), KN_SHAPE(COUNT)));
        assert_same_bits(places, kn_slice(order, KN_SHAPE(0), KN_SHAPE(COUNT)));
    }
}

/* Lines that are cut into chunks; halves by way of f32, piece by piece. */
static void scans_of_long_lines_are_those_by_hand(void **state) {
    (void)state;
    enum { ROWS = 3, LENGTH = 70000, ALL = ROWS * LENGTH };
    static double signs[ALL];
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_I64};
    for (int i = 0; i < ALL; i++) signs[i] = test_random_below(2) ? 1 : -1;
    for (int way = 0; way < 32; way++) {
        KN_FRAME();
        bool sum = way & 1;
        kn_attr_scan attr = {.mask = 2, .reverse = way >> 1 & 1, .exclusive = way >> 2 & 1};
        kn_tensor *x = from_doubles(signs, KN_F64, KN_SHAPE(ROWS, LENGTH));
        x = kn_cast(x, dtypes[way / 8]);
        x = kn_op_call_run(sum ? KN_OP_cumsum : KN_OP_cumprod, &attr, &x, 1);
        const double *y = kn_data(kn_cast(x, KN_F64));
        double before = 0;
        for (int i = 0; i < ALL; i++) {
            int at = attr.reverse ? ALL - 1 - i : i;
            if (i % LENGTH == 0) before = sum ? 0 : 1;
            double after = sum ? before + signs[at] : before * signs[at];
            assert_true(y[at] == (attr.exclusive ? before : after));
            before = after;
        }
    }
}

/* In memory that held something else. */
static void elements_that_are_put_nowhere_are_zero(void **state) {
    (void)state;
    KN_FRAME();
    enum { LENGTH = 5000 };
    const kn_shape shape = KN_SHAPE(LENGTH);
    kn_attr_along attr = {.dim = {LENGTH}, .n_dims = 1, .mask = 1};
    kn_tensor *put[] = {F32(KN_SHAPE(1), 5), I64(KN_SHAPE(1), 3)};
    for (int i = 0; i < 2; i++) {
        KN_FRAME();
        assert_non_null(kn_data(kn_full(shape, 7)));
    }
    const float *y = kn_data(kn_op_call_run(KN_OP_put_along, &attr, put, 2));
    for (int i = 0; i < LENGTH; i++) assert_true(y[i] == (i == 3 ? 5 : 0));
}

/* 1e6 away from 0 an f32 has 4 bits behind the point; the mean has more. */
static void a_variance_far_from_zero_keeps_its_digits(void **state) {
    (void)state;
    KN_FRAME();
    enum { ROWS = 3000, COLUMNS = 40 };
    static float x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)(1e6 + i % 3);
    kn_tensor *t = kn_tensor_from(x, KN_F32, KN_SHAPE(ROWS, COLUMNS));
    const kn_var_options population = {.population = 1};
    assert_close(ops_at(kn_var(t, KN_ALL, false, &population), 0), 2.0 / 3, 1e-5, 0);
    assert_close(ops_at(kn_var(t, KN_SHAPE(0), false, &population), 7), 2.0 / 3, 1e-5, 0);
    assert_close(ops_at(kn_std(t, KN_SHAPE(1), false, &population), 7), sqrt(0.65), 2e-3, 0);
}

static void a_logarithm_of_sums_never_overflows(void **state) {
    (void)state;
    KN_FRAME();
    assert_values(kn_logsumexp(F32(KN_SHAPE(2), 1000, 1000), KN_ALL, false), 1000.693147);
    assert_values(kn_logsumexp(F32(KN_SHAPE(2), -INFINITY, -INFINITY), KN_ALL, false), -INFINITY);
    assert_values(kn_logsumexp(F32(KN_SHAPE(2), INFINITY, 1), KN_ALL, false), INFINITY);
}

static void results_of_no_elements(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 0));
    const kn_shape last = KN_SHAPE(1);
    assert_values(kn_prod(x, last, false), 1, 1);
    assert_values(kn_norm(x, 2, last, false), 0, 0);
    assert_values(kn_logsumexp(x, last, false), -INFINITY, -INFINITY);
    assert_values(kn_var(x, last, false, NULL), NAN, NAN);
    assert_values(kn_var(kn_ones(KN_SHAPE(1, 2)), KN_SHAPE(0), false, NULL), NAN, NAN);
    assert_true(golden_at(kn_all(x, last, false), 0) == 1 &&
                golden_at(kn_any(x, last, false), 0) == 0);
    assert_shape(kn_cumsum(x, 1), KN_SHAPE(2, 0));
    assert_shape(kn_sort(x, 1, false), KN_SHAPE(2, 0));
    assert_op_fails(kn_norm(x, INFINITY, last, false), KN_ERR_SHAPE,
                    "kn_norm: axis 1 has no elements (x [2,0])");
}

/* Of zeros that are equal but for their sign. */
static void check_extremes_of_zeros(kn_dtype dtype, int n, int axis, bool max) {
    KN_FRAME();
    double x[2 * 40];
    for (int i = 0; i < 2 * n; i++) {
        uint64_t kind = test_random_below(3);
        x[i] = kind == 0 ? 0.0 : kind == 1 ? -0.0 : max ? -1.0 : 1.0;
    }
    kn_tensor *values, *indices;
    kn_tensor *t = from_doubles(x, dtype, axis == 0 ? KN_SHAPE(n, 2) : KN_SHAPE(2, n));
    assert_ok((max ? kn_max_index : kn_min_index)(&values, &indices, t, KN_SHAPE(axis), false));
    const int64_t *at = kn_data(indices);
    for (int i = 0; i < 2; i++) {
        double picked = x[axis == 0 ? 2 * at[i] + i : i * n + at[i]];
        assert_int_equal(signbit(ops_at(values, i)) != 0, signbit(picked) != 0);
    }
}

/* Along a line that is cut into chunks. */
static void the_first_of_equal_extremes_is_taken(void **state) {
    (void)state;
    enum { LENGTH = 300000, FIRST = 70000, SECOND = 150001 };
    static double x[LENGTH];
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32};
    for (int t = 0; t < 18; t++) {
        KN_FRAME();
        const double with[] = {1, -1, NAN};
        if (t % 3 == 2 && t / 3 > 3) continue; /* an integer is no NaN */
        x[FIRST] = x[SECOND] = with[t % 3];
        kn_tensor *line = from_doubles(x, KN_F64, KN_SHAPE(LENGTH));
        line = kn_cast(line, dtypes[t / 3]);
        kn_tensor *columns = kn_reshape(line, KN_SHAPE(LENGTH / 3, 3));
        if (t % 3 != 1) {
            assert_true(golden_at(kn_argmax(line, KN_ALL, false), 0) == FIRST);
            assert_true(golden_at(kn_argmax(columns, KN_SHAPE(0), false), FIRST % 3) == FIRST / 3);
        }
        if (t % 3 != 0) {
            assert_true(golden_at(kn_argmin(line, KN_ALL, false), 0) == FIRST);
            assert_true(golden_at(kn_argmin(columns, KN_SHAPE(0), false), FIRST % 3) == FIRST / 3);
        }
    }
}

static void extremes_are_the_elements_at_their_places(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        for (int i = 0; i < 40 * 4; i++)
            check_extremes_of_zeros(dtype, i / 4 + 1, i % 2, i / 2 % 2);
    }
}

static void bad_arguments_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3)), *values = x, *indices = x;
    assert_fails(kn_topk(&values, &indices, x, 4, 1, false), KN_ERR_SHAPE,
                 "kn_topk: k is 4; axis 1 has 3 elements (x [2,3])");
    assert_true(!values && !indices);
    assert_fails(kn_max_index(&values, &indices, x, KN_SHAPE(2), false), KN_ERR_SHAPE,
                 "kn_max_index: there is no axis 2 in 2 dimensions (x [2,3])");
    assert_fails(kn_sort_index(&values, &indices, NULL, 0, false), KN_ERR_INVALID,
                 "kn_sort_index: x");
    assert_op_fails(kn_sum(x, ((kn_shape){.n_dims = -5}), false), KN_ERR_SHAPE,
                    "kn_sum: axes has -5 entries");
    assert_op_fails(kn_cumsum(x, 2), KN_ERR_SHAPE, "kn_cumsum: there is no axis 2");
    assert_op_fails(kn_argsort(kn_ones(KN_SCALAR), 0, false), KN_ERR_SHAPE,
                    "kn_argsort: there is no");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(results_equal_pytorch), OPS_TEST(nan_and_infinity_go_where_pytorch_lets_them),
        OPS_TEST(integers_give_what_pytorch_gives),
        OPS_TEST(results_have_the_same_bits_for_any_number_of_threads),
        OPS_TEST(a_sort_is_a_stable_order_of_all_elements),
        OPS_TEST(zeros_are_equal_and_nans_above_all_whatever_their_signs),
        OPS_TEST(a_variance_far_from_zero_keeps_its_digits),
        OPS_TEST(the_best_of_elements_that_are_all_worst), OPS_TEST(many_best_of_a_long_line),
        OPS_TEST(elements_that_are_put_nowhere_are_zero),
        OPS_TEST(scans_of_long_lines_are_those_by_hand),
        OPS_TEST(a_logarithm_of_sums_never_overflows), OPS_TEST(results_of_no_elements),
        OPS_TEST(the_first_of_equal_extremes_is_taken),
        OPS_TEST(extremes_are_the_elements_at_their_places), OPS_TEST(bad_arguments_are_errors));
}
