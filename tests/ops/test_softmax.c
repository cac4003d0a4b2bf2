#include "kernels_test.h"

typedef struct lines { /* x as [outer, n, inner] */
    int64_t outer, n, inner;
} lines;

static lines lines_of(kn_tensor *x, int axis) {
    kn_shape shape = kn_tensor_shape(x);
    lines l = {1, shape.dim[axis], 1};
    for (int i = 0; i < axis; i++) l.outer *= shape.dim[i];
    for (int i = axis + 1; i < shape.n_dims; i++) l.inner *= shape.dim[i];
    return l;
}

static int64_t element(const lines *l, int64_t line, int64_t i) {
    return line / l->inner * l->n * l->inner + i * l->inner + line % l->inner;
}

static void check_forward(kn_tensor *x, int axis) {
    lines l = lines_of(x, axis);
    kn_tensor *y = kn_softmax(x, axis), *z = kn_logsoftmax(x, axis);
    assert_non_null(y);
    assert_non_null(z);
    double tol = tolerance(kn_tensor_dtype(x));
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        double most = -INFINITY, sum = 0, total = 0;
        for (int64_t i = 0; i < l.n; i++) most = fmax(most, ops_at(x, element(&l, line, i)));
        for (int64_t i = 0; i < l.n; i++) sum += exp(ops_at(x, element(&l, line, i)) - most);
        for (int64_t i = 0; i < l.n; i++) {
            int64_t at = element(&l, line, i);
            assert_close(ops_at(y, at), exp(ops_at(x, at) - most) / sum, tol, tol * 1e-3);
            assert_close(ops_at(z, at), ops_at(x, at) - most - log(sum), tol, tol);
            total += ops_at(y, at);
        }
        assert_close(total, 1, 1e-5, 0);
    }
}

static void check_backward(kn_tensor *x, int axis) {
    lines l = lines_of(x, axis);
    kn_dtype dtype = kn_tensor_dtype(x);
    double tol = 10 * tolerance(dtype);
    kn_tensor *y = kn_softmax(x, axis), *z = kn_logsoftmax(x, axis);
    kn_tensor *g = random_tensor(dtype, kn_tensor_shape(x));
    kn_tensor *dy = op_softmax_back(y, g, axis), *dz = op_logsoftmax_back(z, g, axis);
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        double weighed = 0, sum = 0;
        for (int64_t i = 0; i < l.n; i++) {
            int64_t at = element(&l, line, i);
            weighed += ops_at(y, at) * ops_at(g, at);
            sum += ops_at(g, at);
        }
        for (int64_t i = 0; i < l.n; i++) {
            int64_t at = element(&l, line, i);
            assert_close(ops_at(dy, at), ops_at(y, at) * (ops_at(g, at) - weighed), tol, tol);
            assert_close(ops_at(dz, at), ops_at(g, at) - exp(ops_at(z, at)) * sum, tol, tol);
        }
    }
}

static void every_axis_matches_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype)
    for (int round = 0; round < 6; round++)
        for (int axis = 0; axis < 3; axis++) {
            KN_FRAME();
            kn_tensor *x =
                random_scaled(dtype, KN_SHAPE(odd_size() / 4 + 1, odd_size(), odd_size()), 20);
            check_forward(x, axis);
            check_backward(x, axis);
        }
}

static void large_values_neither_overflow_nor_vanish(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *x = from_doubles((double[]){1e4, 1e4, -1e30, 1e4}, dtype, KN_SHAPE(1, 4));
        kn_tensor *y = kn_softmax(x, 1);
        double want[] = {1.0 / 3, 1.0 / 3, 0, 1.0 / 3};
        for (int i = 0; i < 4; i++) assert_close(ops_at(y, i), want[i], 1e-6, 0);
        kn_tensor *z = kn_logsoftmax(x, 1);
        assert_close(ops_at(z, 0), -log(3), 1e-3, 0);
    }
}

/* The logarithm of the sum is not rounded to the maximum's last place. */
static void a_large_maximum_costs_logsoftmax_no_digits(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype)
    for (int axis = 0; axis < 2; axis++) {
        KN_FRAME();
        enum { N = 40 };
        double large = dtype == KN_F32 ? 0x1p20 : 0x1p48, x[N * N];
        for (int i = 0; i < N * N; i++) x[i] = large - (double)(int64_t)test_random_below(4);
        kn_tensor *z = kn_logsoftmax(from_doubles(x, dtype, KN_SHAPE(N, N)), axis);
        for (int line = 0; line < N; line++) {
            int first = axis ? line * N : line, step = axis ? 1 : N;
            double most = -INFINITY, sum = 0;
            for (int i = 0; i < N; i++) most = fmax(most, x[first + i * step]);
            for (int i = 0; i < N; i++) sum += exp(x[first + i * step] - most);
            for (int i = 0; i < N; i++) {
                double want = x[first + i * step] - most - log(sum);
                assert_close(ops_at(z, first + i * step), want, dtype == KN_F32 ? 5e-7 : 1e-15, 0);
            }
        }
    }
}

/* Probabilities sum to 1, their slopes by equal numbers are 0, and slopes of logarithms sum to 0.
 */
static void long_lines_lose_no_digits(void **state) {
    (void)state;
    enum { N = 400000 };
    for (int axis = 0; axis < 2; axis++) {
        KN_FRAME();
        kn_shape shape = axis ? KN_SHAPE(2, N) : KN_SHAPE(N, 2), along = KN_SHAPE(axis);
        kn_tensor *x = random_scaled(KN_F32, shape, 2), *g = kn_full(shape, 1.1);
        kn_tensor *y = kn_softmax(x, axis), *z = kn_logsoftmax(x, axis);
        kn_tensor *dy = op_softmax_back(y, g, axis), *dz = op_logsoftmax_back(z, g, axis);
        kn_tensor *ones[] = {kn_sum(kn_cast(y, KN_F64), along, false),
                             kn_sum(kn_exp(kn_cast(z, KN_F64)), along, false)};
        kn_tensor *zeros[] = {kn_max_abs(kn_div(dy, y), along, false),
                              kn_mean(kn_cast(dz, KN_F64), along, false)};
        for (int i = 0; i < 4; i++) {
            assert_close(ops_at(ones[i / 2], i % 2), 1, i < 2 ? 1e-6 : 3e-6, 0);
            assert_close(ops_at(zeros[i / 2], i % 2), 0, 0, 5e-6);
        }
    }
}

/* Wherever it is: in a vector, at the end, alone or not. */
static void nan_spoils_its_line_only(void **state) {
    (void)state;
    enum { N = 43 };
    FOR_BOTH_DTYPES(dtype)
    for (int axis = 0; axis < 2; axis++)
        for (int at = 0; at <= N; at++) {
            KN_FRAME();
            double values[N * N] = {0};
            for (int i = 0; i < N; i++) { /* the last round: all of the line */
                if (i == at || at == N) values[axis ? 7 * N + i : i * N + 7] = (double)NAN;
            }
            kn_tensor *x = from_doubles(values, dtype, KN_SHAPE(N, N));
            kn_tensor *y = kn_softmax(x, axis), *z = kn_logsoftmax(x, axis);
            for (int i = 0; i < N * N; i++) {
                bool spoiled = (axis ? i / N : i % N) == 7;
                assert_close(ops_at(y, i), spoiled ? NAN : 1.0 / N, 1e-6, 0);
                assert_close(ops_at(z, i), spoiled ? NAN : -log(N), 1e-6, 0);
            }
        }
}

/* Computed with mpmath 1.3 at 50 digits: softmax of (1, 2, 3). */
static void known_values(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *y = kn_softmax(F64(KN_SHAPE(3), 1, 2, 3), 0);
    const double want[] = {0.090030573170380457998, 0.24472847105479765103, 0.66524095577482189097};
    for (int i = 0; i < 3; i++) assert_close(ops_at(y, i), want[i], 1e-15, 0);
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype)
    for (int axis = 0; axis < 2; axis++) {
        KN_FRAME();
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(500, 333)), *one, *four;
        {
            KN_FRAME(.threads = 1);
            one = kn_keep(kn_logsoftmax(x, axis));
        }
        {
            KN_FRAME(.threads = 4);
            four = kn_keep(kn_logsoftmax(x, axis));
        }
        assert_same_bits(one, four);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(every_axis_matches_the_reference),
                     OPS_TEST(large_values_neither_overflow_nor_vanish),
                     OPS_TEST(a_large_maximum_costs_logsoftmax_no_digits),
                     OPS_TEST(long_lines_lose_no_digits), OPS_TEST(nan_spoils_its_line_only),
                     OPS_TEST(known_values), OPS_TEST(the_number_of_threads_changes_no_bit));
}
