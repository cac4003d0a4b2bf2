#include "kernels_test.h"

typedef struct naive {
    long double sum; /* more digits than the sum under test */
    double max, min;
    int64_t n, argmax;
} naive;

/* One element at a time, into the outputs in their order. */
static int64_t reduce_naively(naive out[], kn_tensor *x, uint32_t mask) {
    kn_shape shape = kn_tensor_shape(x);
    int64_t outputs = 1, stride[KN_DIMS_MAX] = {0};
    for (int i = shape.n_dims - 1; i >= 0; i--) {
        if (mask >> i & 1) continue;
        stride[i] = outputs;
        outputs *= shape.dim[i];
    }
    for (int64_t o = 0; o < outputs; o++) out[o] = (naive){0, -INFINITY, INFINITY, 0, 0};
    for (int64_t e = 0; e < kn_tensor_numel(x); e++) {
        int64_t at = 0, rest = e;
        for (int i = shape.n_dims - 1; i >= 0; i--) {
            at += rest % shape.dim[i] * stride[i];
            rest /= shape.dim[i];
        }
        double v = ops_at(x, e);
        naive *o = &out[at];
        o->sum += (long double)v;
        if (v > o->max) o->max = v, o->argmax = o->n;
        if (v < o->min) o->min = v;
        o->n++;
    }
    return outputs;
}

static kn_shape axes_of(uint32_t mask) {
    kn_shape axes = KN_SCALAR;
    for (int i = 0; i < KN_DIMS_MAX; i++) {
        if (mask >> i & 1) axes.dim[axes.n_dims++] = i;
    }
    return axes;
}

static void check_all_reductions(kn_tensor *x, uint32_t mask) {
    naive *want = calloc((size_t)kn_tensor_numel(x) + 1, sizeof *want);
    bool f64 = kn_tensor_dtype(x) == KN_F64;
    int64_t outputs = reduce_naively(want, x, mask);
    kn_shape axes = axes_of(mask);
    kn_tensor *sum = kn_sum(x, axes, false), *mean = kn_mean(x, axes, true),
              *max = kn_max(x, axes, false), *min = kn_min(x, axes, false);
    assert_int_equal(kn_tensor_numel(sum), outputs);
    for (int64_t o = 0; o < outputs; o++) {
        double size = sqrt((double)want[o].n);
        assert_close(ops_at(sum, o), (double)want[o].sum, f64 ? 1e-14 : 1e-6,
                     size * (f64 ? 4e-15 : 4e-7));
        assert_close(ops_at(mean, o), (double)want[o].sum / (double)want[o].n, f64 ? 1e-14 : 1e-6,
                     f64 ? 1e-15 : 1e-7);
        assert_close(ops_at(max, o), want[o].max, 0, 0);
        assert_close(ops_at(min, o), want[o].min, 0, 0);
    }
    if (__builtin_popcount(mask) == 1) {
        kn_tensor *at = kn_argmax(x, KN_SHAPE(__builtin_ctz(mask)), false);
        for (int64_t o = 0; o < outputs; o++) {
            assert_int_equal(((const int64_t *)kn_data(at))[o], want[o].argmax);
        }
    }
    free(want);
}

static void random_shapes_reduce_as_one_element_at_a_time(void **state) {
    (void)state;
    for (int round = 0; round < 1000; round++) {
        KN_FRAME();
        kn_shape shape = {{0}, 1 + (int)test_random_below(5)};
        for (int i = 0; i < shape.n_dims; i++) shape.dim[i] = 1 + (int64_t)test_random_below(7);
        shape.dim[test_random_below((uint64_t)shape.n_dims)] = 1 + (int64_t)test_random_below(70);
        uint32_t mask = 1 + (uint32_t)test_random_below((1u << shape.n_dims) - 1);
        check_all_reductions(random_tensor(round % 2 ? KN_F32 : KN_F64, shape), mask);
    }
}

/* Small whole numbers, of which f64 makes exact results. */
static void assert_as_f64(kn_tensor *wide, kn_dtype dtype, kn_shape axes) {
    kn_tensor *x = kn_cast(wide, dtype);
    if (dtype == KN_BOOL) wide = kn_cast(x, KN_F64);
    kn_tensor *got[] = {kn_sum(x, axes, false),     kn_max(x, axes, false), kn_min(x, axes, false),
                        kn_max_abs(x, axes, false), kn_any(x, axes, false), kn_all(x, axes, false)};
    kn_tensor *want[] = {kn_sum(wide, axes, false), kn_max(wide, axes, false),
                         kn_min(wide, axes, false), kn_max_abs(wide, axes, false),
                         kn_any(wide, axes, false), kn_all(wide, axes, false)};
    for (int i = 0; i < 6; i++) assert_same_bits(got[i], kn_cast(want[i], kn_tensor_dtype(got[i])));
    if (axes.n_dims > 1) return;
    assert_same_bits(kn_argmax(x, axes, false), kn_argmax(wide, axes, false));
    kn_tensor *value, *place;
    assert_ok(kn_min_index(&value, &place, x, axes, false));
    assert_same_bits(value, got[2]);
    assert_same_bits(place, kn_argmin(wide, axes, false));
}

static void assert_all_as_f64(kn_shape shape, kn_shape axes, uint64_t below) {
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    kn_tensor *x = kn_zeros(shape), *wide = kn_cast(x, KN_F64);
    double *data = kn_data_mut(wide);
    for (int64_t i = 0; i < kn_tensor_numel(x); i++) data[i] = (double)test_random_below(below);
    for (int t = 0; t < 6; t++) assert_as_f64(wide, dtypes[t], axes);
}

static void other_dtypes_reduce_as_f64(void **state) {
    (void)state;
    static const kn_shape large[] = {{{3, 2500}, 2}, {{40, 1500}, 2}, {{2500, 3}, 2},
                                     {{1, 3000}, 2}, {{700, 5}, 2},   {{40, 1000}, 2},
                                     {{70000, 2}, 2}};
    for (int round = 0; round < 200; round++) {
        KN_FRAME();
        kn_shape shape = {{0}, 1 + (int)test_random_below(3)};
        for (int i = 0; i < shape.n_dims; i++) shape.dim[i] = 1 + (int64_t)test_random_below(7);
        int longest = (int)test_random_below((uint64_t)shape.n_dims);
        shape.dim[longest] = 1 + (int64_t)test_random_below(70);
        uint32_t mask = 1 + (uint32_t)test_random_below((1u << shape.n_dims) - 1);
        assert_all_as_f64(shape, axes_of(mask), round % 3 ? 3 : 2);
    }
    for (int i = 0; i < 14; i++) {
        KN_FRAME();
        assert_all_as_f64(large[i / 2], KN_SHAPE(i % 2), 3);
    }
}

static void large_shapes_of_every_kind_reduce_rightly(void **state) {
    (void)state;
    const struct {
        kn_shape shape;
        uint32_t mask;
    } cases[] = {
        {KN_SHAPE(300007), 1},         {KN_SHAPE(3, 100003), 2},
        {KN_SHAPE(100003, 3), 1},      {KN_SHAPE(257, 1031), 1},
        {KN_SHAPE(257, 1031), 2},      {KN_SHAPE(64, 20, 12, 12), 13},
        {KN_SHAPE(64, 20, 12, 12), 2}, {KN_SHAPE(2, 3000, 5, 11), 5},
        {KN_SHAPE(5000, 2, 13), 5},    {KN_SHAPE(70, 1300), 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KN_FRAME();
        check_all_reductions(random_tensor(KN_F32, cases[i].shape), cases[i].mask);
    }
}

static void third_and_fourth_norms(void **state) {
    (void)state;
    KN_FRAME();
    const kn_shape axes[] = {KN_SHAPE(0), KN_SHAPE(1)};
    for (int i = 0; i < 8; i++) {
        kn_dtype dtype = i & 1 ? KN_F32 : KN_F64;
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(40, 37));
        double p = i & 2 ? 3 : 4;
        kn_tensor *y = kn_norm(x, p, axes[i / 4], false);
        for (int64_t o = 0; o < kn_tensor_numel(y); o++) {
            double sum = 0;
            for (int64_t k = 0; k < (i / 4 ? 37 : 40); k++)
                sum += pow(fabs(ops_at(x, i / 4 ? o * 37 + k : k * 37 + o)), p);
            assert_close(ops_at(y, o), pow(sum, 1 / p), dtype == KN_F32 ? 1e-6 : 1e-14, 0);
        }
    }
    kn_tensor *huge = F64(KN_SHAPE(4), 1e100, NAN, -INFINITY, -1e-90);
    assert_values(kn_norm(kn_reshape(huge, KN_SHAPE(4, 1)), 3, KN_SHAPE(1), false), 1e100, NAN,
                  INFINITY, 1e-90);
}

static void a_long_f32_sum_keeps_its_digits(void **state) {
    (void)state;
    KN_FRAME();
    enum { N = 1 << 22 };
    kn_tensor *x = kn_full(KN_SHAPE(N / 64, 64), 0.1);
    double want = N * (double)0.1f;
    assert_close(ops_at(kn_sum(x, KN_ALL, false), 0), want, 5e-7, 0);
    assert_close(ops_at(kn_sum(x, KN_SHAPE(0), false), 5), want / 64, 5e-7, 0);
}

static void results_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    KN_FRAME();
    const kn_shape shapes[] = {KN_SHAPE(300007), KN_SHAPE(3, 100003), KN_SHAPE(100003, 3),
                               KN_SHAPE(257, 1031), KN_SHAPE(64, 20, 144)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        KN_FRAME();
        kn_tensor *x = random_tensor(KN_F32, shapes[i]);
        for (uint32_t mask = 1; mask < 1u << shapes[i].n_dims; mask++) {
            const void *want = NULL;
            for (int threads = 1; threads <= 3; threads++) {
                kn_frame frame = kn_frame_begin(&(kn_frame_options){.threads = threads});
                kn_tensor *sum = kn_sum(x, axes_of(mask), false);
                if (!want) want = kn_data(kn_keep(sum));
                assert_memory_equal(kn_data(sum), want, (size_t)kn_tensor_numel(sum) * 4);
                kn_frame_end(&frame);
            }
        }
    }
}

static void a_nan_wins_extremes_and_the_first_counts(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2, 3), 1, NAN, NAN, 3, 3, 2);
    assert_values(kn_max(x, KN_SHAPE(1), false), NAN, 3);
    assert_values(kn_min(x, KN_SHAPE(1), false), NAN, 2);
    assert_values(kn_max(x, KN_SHAPE(0), false), 3, NAN, NAN);
    assert_memory_equal(kn_data(kn_argmax(x, KN_SHAPE(1), false)), ((int64_t[]){1, 0}), 16);
    assert_memory_equal(kn_data(kn_argmax(x, KN_SHAPE(0), false)), ((int64_t[]){1, 0, 0}), 24);
    kn_tensor *equal = kn_zeros(KN_SHAPE(30000, 3)); /* searched in chunks */
    assert_memory_equal(kn_data(kn_argmax(equal, KN_SHAPE(0), false)), ((int64_t[]){0, 0, 0}), 24);
    assert_memory_equal(kn_data(kn_argmax(equal, KN_ALL, false)), ((int64_t[]){0}), 8);
    kn_tensor *low = kn_full(KN_SHAPE(40), -INFINITY);
    assert_values(kn_max(low, KN_ALL, false), -INFINITY);
}

static void shapes_of_results(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 4));
    assert_shape(kn_sum(x, KN_ALL, false), KN_SCALAR);
    assert_shape(kn_sum(x, KN_ALL, true), KN_SHAPE(1, 1, 1));
    assert_shape(kn_sum(x, KN_SHAPE(-1, 0), false), KN_SHAPE(3));
    assert_shape(kn_mean(x, KN_SHAPE(1), true), KN_SHAPE(2, 1, 4));
    assert_shape(kn_argmax(x, KN_SHAPE(-2), false), KN_SHAPE(2, 4));
    assert_values(kn_sum(kn_ones(KN_SCALAR), KN_ALL, false), 1);
    assert_values(kn_max(kn_full(KN_SCALAR, 3), KN_ALL, true), 3);
}

static void empty_sums_are_zero_and_empty_means_nan(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 0));
    assert_values(kn_sum(x, KN_SHAPE(1), false), 0, 0);
    assert_values(kn_mean(x, KN_SHAPE(1), false), NAN, NAN);
    assert_shape(kn_sum(x, KN_SHAPE(0), false), KN_SHAPE(0));
    assert_shape(kn_max(x, KN_SHAPE(0), false), KN_SHAPE(0));
    assert_op_fails(kn_max(x, KN_SHAPE(1), false), KN_ERR_SHAPE, "kn_max: axis 1 has no elements");
    assert_op_fails(kn_argmax(x, KN_SHAPE(1), false), KN_ERR_SHAPE,
                    "kn_argmax: axis 1 has no elements");
}

static void sums_into_a_destination_add(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *into = F32(KN_SHAPE(3), 1, 1, 1);
    kn_attr_axes rows = {.mask = 1};
    assert_ptr_equal(op_run_into(KN_OP_sum, &rows, &x, 1, into), into);
    assert_values(kn_sum_mask(x, 0xFF, false), 21); /* axes that x lacks */
    assert_values(into, 6, 8, 10);
}

/* Sixteen are joined in f32, those sums in f64. */
static void a_mean_of_large_halves_is_right_for_any_number_of_rows(void **state) {
    (void)state;
    for (int64_t rows = 1; rows <= 130; rows++) {
        KN_FRAME();
        kn_tensor *x = kn_cast(kn_full(KN_SHAPE(rows, 2), 0x1p123), KN_BF16);
        kn_tensor *y = kn_cast(kn_mean(x, KN_SHAPE(0), false), KN_F32);
        for (int i = 0; i < 2; i++) assert_close(ops_at(y, i), 0x1p123, 0x1p-8, 0);
    }
}

static void assert_equal_to(kn_tensor *y, double value) {
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) assert_close(ops_at(y, i), value, 0, 0);
}

/* Of numbers that stay exact, so that only the last step can round. */
static void check_exact_means(kn_dtype dtype, int64_t n) {
    kn_tensor *rows = kn_cast(kn_full(KN_SHAPE(5, n), 3), dtype);
    kn_tensor *columns = kn_cast(kn_full(KN_SHAPE(n, 5), 3), dtype);
    assert_equal_to(kn_mean(rows, KN_SHAPE(1), false), 3);
    assert_equal_to(kn_mean(columns, KN_SHAPE(0), false), 3);
    assert_equal_to(kn_mean(kn_flip(rows, KN_SHAPE(1)), KN_SHAPE(1), false), 3);
    assert_equal_to(kn_mean(kn_reshape(rows, KN_SHAPE(5 * n)), KN_ALL, false), 3);
    if (dtype == KN_I64) return;
    assert_equal_to(kn_mean(kn_mul(rows, rows), KN_SHAPE(1), false), 9);
    assert_equal_to(kn_mean(kn_mul(columns, columns), KN_SHAPE(0), false), 9);
    assert_equal_to(kn_sub(rows, kn_mean(kn_mul(rows, rows), KN_SHAPE(1), true)), -6);
}

static void means_of_equal_integers_are_exact(void **state) {
    (void)state;
    const kn_dtype dtypes[] = {KN_F64, KN_F32, KN_I64};
    for (int i = 0; i < 6; i++) {
        for (int64_t n = 1; n <= 300; n++) {
            KN_FRAME(.dtype = KN_F64, .fuse = i % 2 ? 1 : KN_OFF);
            check_exact_means(dtypes[i / 2], n);
        }
    }
}

static void variances_are_rounded_once(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    double signs[6];
    for (int i = 0; i < 6; i++) signs[i] = i % 2 ? 1 : -1;
    kn_tensor *x = kn_tensor_from(signs, KN_F64, KN_SHAPE(6));
    assert_close(ops_at(kn_var(x, KN_ALL, false, NULL), 0), 6.0 / 5, 0, 0);
    assert_close(ops_at(kn_std(x, KN_ALL, false, NULL), 0), sqrt(6.0 / 5), 0, 0);
}

static void bad_axes_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3));
    assert_op_fails(kn_sum(x, KN_SHAPE(2), false), KN_ERR_SHAPE,
                    "kn_sum: there is no axis 2 in 2 dimensions (x [2,3])");
    assert_op_fails(kn_mean(x, KN_SHAPE(0, -2), false), KN_ERR_SHAPE, "axis 0 is named twice");
    assert_op_fails(kn_argmax(x, KN_SHAPE(-3), false), KN_ERR_SHAPE, "no axis -3");
    assert_op_fails(kn_norm(I64(KN_SHAPE(1), 1), 2, KN_ALL, false), KN_ERR_DTYPE,
                    "kn_norm: x is i64; it must be floating");
    assert_op_fails(kn_norm(x, NAN, KN_ALL, false), KN_ERR_INVALID, "kn_norm: p is NaN (x [2,3])");
    assert_op_fails(kn_var(x, KN_SHAPE(1), false, &(kn_var_options){.mean = kn_ones(KN_SHAPE(3))}),
                    KN_ERR_SHAPE, "kn_var: mean doesn't fit the reduced shape (x [2,3], mean [3])");
    assert_op_fails(kn_argmin(kn_ones(KN_SHAPE(2, 3, 4)), KN_SHAPE(0, 1), false), KN_ERR_SHAPE,
                    "kn_argmin: axes must be one axis or KN_ALL (x [2,3,4])");
    assert_op_fails(kn_broadcast(x, KN_SHAPE(2, 4)), KN_ERR_SHAPE, "x can't be broadcast to [2,4]");
    assert_op_fails(kn_broadcast(x, KN_SHAPE(3)), KN_ERR_SHAPE, "[3]");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(random_shapes_reduce_as_one_element_at_a_time),
        OPS_TEST(other_dtypes_reduce_as_f64), OPS_TEST(large_shapes_of_every_kind_reduce_rightly),
        OPS_TEST(third_and_fourth_norms), OPS_TEST(a_long_f32_sum_keeps_its_digits),
        OPS_TEST(results_do_not_depend_on_the_number_of_threads),
        OPS_TEST(a_nan_wins_extremes_and_the_first_counts), OPS_TEST(shapes_of_results),
        OPS_TEST(empty_sums_are_zero_and_empty_means_nan), OPS_TEST(sums_into_a_destination_add),
        OPS_TEST(a_mean_of_large_halves_is_right_for_any_number_of_rows),
        OPS_TEST(means_of_equal_integers_are_exact), OPS_TEST(variances_are_rounded_once),
        OPS_TEST(bad_axes_are_errors));
}
