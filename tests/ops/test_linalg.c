#include "golden/linalg.h"
#include "kernels_test.h"

/* The matrix that golden/linalg.py makes. */
static kn_tensor *numbers(kn_dtype dtype, kn_shape shape, int64_t m, int64_t k) {
    double x[64];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++) x[i] = (double)((i * i * m + i + k) % 37) / 37 - 0.5;
    return from_doubles(x, dtype, shape);
}

static void close_to(kn_tensor *t, const double *want, double tol) {
    assert_non_null(t);
    for (int64_t i = 0; i < kn_tensor_numel(t); i++) assert_close(ops_at(t, i), want[i], tol, tol);
}

static void near(kn_tensor *a, kn_tensor *b, double tol) {
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    for (int64_t i = 0; i < kn_tensor_numel(a); i++) {
        assert_close(ops_at(a, i), ops_at(b, i), tol, tol);
    }
}

static kn_tensor *swapped(kn_tensor *x) {
    kn_shape axes = {.n_dims = kn_tensor_shape(x).n_dims};
    for (int d = 0; d < axes.n_dims; d++) axes.dim[d] = d;
    axes.dim[axes.n_dims - 1] = axes.n_dims - 2, axes.dim[axes.n_dims - 2] = axes.n_dims - 1;
    return kn_transpose(x, axes);
}

static kn_tensor *identity_like(kn_tensor *x) {
    return kn_tri_scale(kn_filled_like(x, 1), 0, 1, 0);
}

/* Eigenvalues around 1 … 3. */
static kn_tensor *definite(kn_dtype dtype, kn_shape shape) {
    double n = (double)shape.dim[shape.n_dims - 1];
    kn_tensor *x = random_tensor(dtype, shape);
    return kn_add(kn_affine(kn_matmul(x, swapped(x), NULL), 1 / n, 0), identity_like(x));
}

static void results_equal_numpys(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        double tol = dtype == KN_F64 ? 1e-12 : 2e-4;
        kn_tensor *a = numbers(dtype, KN_SHAPE(5, 5), 7, 3),
                  *b = numbers(dtype, KN_SHAPE(5, 2), 5, 1);
        kn_tensor *sign, *logabs, *q, *r;
        close_to(kn_det(a), golden_det, tol);
        assert_ok(kn_slogdet(&sign, &logabs, a));
        close_to(sign, golden_slogdet, 0);
        close_to(logabs, golden_slogdet + 1, tol);
        close_to(kn_inverse(a), golden_inverse, tol);
        close_to(kn_solve(a, b, NULL), golden_solve, tol);
        close_to(kn_solve(a, b, &(kn_solve_options){.trans = 1}), golden_solve_trans, tol);
        close_to(kn_cholesky(kn_add(kn_matmul(a, swapped(a), NULL), identity_like(a))),
                 golden_cholesky, tol);
        assert_ok(kn_qr(&q, &r, numbers(dtype, KN_SHAPE(6, 4), 11, 2)));
        close_to(q, golden_qr_q, tol);
        close_to(r, golden_qr_r, tol);
        close_to(
            kn_kron(numbers(dtype, KN_SHAPE(2, 3), 3, 1), numbers(dtype, KN_SHAPE(3, 2), 5, 4)),
            golden_kron, 1e-6);
    }
}

static bool lacks_lapack(void) {
    KN_FRAME();
    kn_tensor *s;
    if (kn_svd(NULL, &s, NULL, kn_ones(KN_SHAPE(1, 1))) == KN_OK) return false;
    assert_non_null(strstr(kn_last_error()->message, "liblapack3"));
    return true;
}

static void spectra_equal_numpys(void **state) {
    (void)state;
    if (lacks_lapack()) skip();
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        double tol = dtype == KN_F64 ? 1e-12 : 1e-5;
        kn_tensor *a = numbers(dtype, KN_SHAPE(5, 5), 7, 3), *s, *w;
        assert_ok(kn_svd(NULL, &s, NULL, numbers(dtype, KN_SHAPE(6, 4), 11, 2)));
        close_to(s, golden_singular, tol);
        assert_ok(kn_eigh(&w, NULL, kn_add(a, swapped(a))));
        close_to(w, golden_eigenvalues, tol);
    }
}

static const int64_t sides[] = {1, 2, 7, 31, 63, 64, 65, 100, 130, 200};

static void cholesky_times_its_transpose_is_the_matrix(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
            KN_FRAME();
            kn_tensor *a = definite(dtype, KN_SHAPE(sides[i], sides[i])), *l = kn_cholesky(a);
            near(kn_matmul(l, swapped(l), NULL), a, 10 * tolerance(dtype));
            near(kn_tri_scale(l, 1, 1, 0), l, 0);
            kn_tensor *upper = kn_add(kn_tri_scale(a, 1, 1, 0),
                                      kn_tri_scale(kn_filled_like(a, (double)NAN), 0, 0, 1));
            near(kn_cholesky(upper), l, 0); /* the upper half isn't read */
        }
    }
}

static void solutions_solve(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
            KN_FRAME();
            int64_t n = sides[i];
            kn_tensor *a = kn_add(
                random_tensor(dtype, KN_SHAPE(n, n)),
                kn_affine(identity_like(random_tensor(dtype, KN_SHAPE(n, n))), (double)n, 0));
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(n, i % 2 ? 3 : 140));
            kn_solve_options trans = {.trans = 1};
            near(kn_matmul(a, kn_solve(a, b, NULL), NULL), b, 20 * tolerance(dtype));
            near(kn_matmul(swapped(a), kn_solve(a, b, &trans), NULL), b, 20 * tolerance(dtype));
            near(kn_matmul(a, kn_inverse(a), NULL), identity_like(a), 20 * tolerance(dtype));
        }
    }
}

/* With a permutation: no pivot is where it begins. */
static void rows_are_swapped_where_a_pivot_is_small(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *a = F64(KN_SHAPE(3, 3), 0, 2, 0, 0, 0, 4, 8, 0, 0);
    assert_values(kn_det(a), 64);
    assert_values(kn_inverse(a), 0, 0, 0.125, 0.5, 0, 0, 0, 0.25, 0);
    assert_values(kn_solve(a, F64(KN_SHAPE(3, 1), 2, 4, 8), NULL), 1, 1, 1);
    assert_values(kn_solve(a, F64(KN_SHAPE(3, 1), 2, 4, 8), &(kn_solve_options){.trans = 1}), 2, 2,
                  0.25);
}

/* Of more than one block of columns, and of a matrix whose every row has its pivot elsewhere. */
static void rows_of_any_length_are_swapped(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 64, 65, 300};
    const kn_shape rows = KN_SHAPE(0);
    FOR_BOTH_DTYPES(dtype) {
        for (int i = 0; i < 4; i++) {
            KN_FRAME();
            int64_t n = lengths[i];
            kn_tensor *one = identity_like(random_tensor(dtype, KN_SHAPE(n, n)));
            kn_tensor *a = kn_affine(kn_flip(one, rows), 2, 0), *half = kn_affine(one, 0.5, 0);
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(n, 333));
            kn_tensor *want = kn_flip(kn_affine(b, 0.5, 0), rows);
            near(kn_solve(a, b, NULL), want, 0);
            near(kn_solve(a, b, &(kn_solve_options){.trans = 1}), want, 0);
            near(kn_inverse(a), kn_flip(half, rows), 0);
        }
    }
}

static void triangular_solutions_solve(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        for (int way = 0; way < 8; way++) {
            KN_FRAME();
            int64_t n = sides[test_random_below(10)];
            kn_solve_options o = {.trans = way % 2, .upper = way / 2 % 2, .unit = way / 4};
            kn_tensor *a = kn_affine(random_tensor(dtype, KN_SHAPE(n, n)), 1.0 / (double)n, 0);
            a = kn_add(a, identity_like(a));
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(n, 150));
            kn_tensor *t = kn_tri_scale(a, !o.upper, !o.unit, o.upper);
            if (o.unit) t = kn_add(t, identity_like(t));
            kn_tensor *x = kn_triangular_solve(a, b, &o);
            near(kn_matmul(o.trans ? swapped(t) : t, x, NULL), b, 20 * tolerance(dtype));
        }
    }
}

static void check_qr(kn_dtype dtype, kn_shape shape) {
    KN_FRAME();
    kn_tensor *a = random_tensor(dtype, shape), *q, *r, *l;
    double tol = 20 * tolerance(dtype);
    assert_ok(kn_qr(&q, &r, a));
    near(kn_matmul(q, r, NULL), a, tol);
    kn_tensor *gram = kn_matmul(swapped(q), q, NULL);
    near(gram, identity_like(gram), tol);
    near(kn_tri_scale(r, 0, 1, 1), r, 0);
    assert_ok(kn_lq(&l, &q, a));
    near(kn_matmul(l, q, NULL), a, tol);
    gram = kn_matmul(q, swapped(q), NULL);
    near(gram, identity_like(gram), tol);
    near(kn_tri_scale(l, 1, 1, 0), l, 0);
}

static void qr_is_orthonormal_and_gives_the_matrix_back(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_qr(dtype, KN_SHAPE(1, 1));
        check_qr(dtype, KN_SHAPE(9, 4));
        check_qr(dtype, KN_SHAPE(4, 9));
        check_qr(dtype, KN_SHAPE(3, 2, 33, 20));
        check_qr(dtype, KN_SHAPE(150, 150));
        check_qr(dtype, KN_SHAPE(200, 70));
        check_qr(dtype, KN_SHAPE(70, 200));
        check_qr(dtype, KN_SHAPE(600, 65));
    }
}

/* LAPACK's signs: the diagonal of R is below 0 where the column starts with 0. */
static void qr_reflects_columns_that_start_with_zero(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *q, *r;
    assert_ok(kn_qr(&q, &r, F64(KN_SHAPE(3, 1), 0, 3, 4)));
    assert_values(q, 0, -0.6, -0.8);
    assert_values(r, -5);
}

static void qr_of_dependent_columns_stays_orthonormal(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *q, *r, *gram, *a = kn_zeros(KN_SHAPE(5, 3));
    assert_ok(kn_qr(&q, &r, a));
    gram = kn_matmul(swapped(q), q, NULL);
    near(gram, identity_like(gram), 1e-14);
    a = kn_matmul(kn_ones(KN_SHAPE(70, 1)), kn_ones(KN_SHAPE(1, 70)), NULL);
    assert_ok(kn_qr(&q, &r, a));
    near(kn_matmul(q, r, NULL), a, 1e-12);
}

/* Columns times powers of two whose squares overflow or underflow: every step is exact but for the
 * exponents. */
static void qr_keeps_columns_of_any_size(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        const double far = dtype == KN_F64 ? 1000 : 100;
        const double exponent[][2] = {{-far, -far}, {far, far}, {0, -far}, {far, 0}, {far, -far}};
        for (size_t i = 0; i < sizeof exponent / sizeof *exponent; i++) {
            KN_FRAME(.dtype = dtype);
            kn_tensor *a = random_tensor(dtype, KN_SHAPE(90, 70)), *q, *r, *l, *q1, *r1;
            double power[70];
            for (int j = 0; j < 70; j++) power[j] = ldexp(1, (int)exponent[i][j / 3 % 2]);
            kn_tensor *by = from_doubles(power, dtype, KN_SHAPE(70)), *scaled = kn_mul(a, by);
            assert_ok(kn_qr(&q, &r, a));
            assert_ok(kn_qr(&q1, &r1, scaled));
            near(q1, q, tolerance(dtype));
            near(kn_div(r1, by), r, tolerance(dtype));
            assert_ok(kn_lq(&l, &q1, swapped(scaled)));
            near(q1, swapped(q), tolerance(dtype));
            near(swapped(l), r1, 0);
        }
    }
}

/* 2^-126 is the least normal number of f32, and 2^-1022 of f64. */
static void qr_takes_subnormal_and_infinite_columns(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        double unit = dtype == KN_F64 ? 0x1p-1074 : 0x1p-149;
        kn_tensor *q, *r;
        assert_ok(
            kn_qr(&q, &r, from_doubles((double[]){3 * unit, 4 * unit}, dtype, KN_SHAPE(2, 1))));
        assert_values(q, -0.6, -0.8);
        assert_close(ops_at(r, 0), -5 * unit, 0, 0);
        assert_ok(kn_qr(&q, &r, from_doubles((double[]){INFINITY, 1}, dtype, KN_SHAPE(2, 1))));
        assert_true(isnan(ops_at(q, 0)));
    }
}

static void check_svd(kn_dtype dtype, kn_shape shape) {
    KN_FRAME();
    kn_tensor *a = random_tensor(dtype, shape), *u, *s, *vt, *alone;
    double tol = 20 * tolerance(dtype);
    assert_ok(kn_svd(&u, &s, &vt, a));
    kn_shape row = kn_tensor_shape(s);
    row.dim[row.n_dims] = row.dim[row.n_dims - 1];
    row.dim[row.n_dims - 1] = 1;
    row.n_dims++;
    near(kn_matmul(kn_mul(u, kn_reshape(s, row)), vt, NULL), a, tol);
    kn_tensor *gram = kn_matmul(swapped(u), u, NULL);
    near(gram, identity_like(gram), tol);
    gram = kn_matmul(vt, swapped(vt), NULL);
    near(gram, identity_like(gram), tol);
    assert_ok(kn_svd(NULL, &alone, NULL, a));
    near(alone, s, tol);
}

static void svd_gives_the_matrix_back(void **state) {
    (void)state;
    if (lacks_lapack()) skip();
    FOR_BOTH_DTYPES(dtype) {
        check_svd(dtype, KN_SHAPE(1, 1));
        check_svd(dtype, KN_SHAPE(7, 4));
        check_svd(dtype, KN_SHAPE(3, 4, 7));
        check_svd(dtype, KN_SHAPE(65, 40));
    }
}

static void eigenvectors_are_scaled_by_their_values(void **state) {
    (void)state;
    if (lacks_lapack()) skip();
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(3, 20, 20)), *a = kn_add(x, swapped(x)), *w,
                  *v;
        assert_ok(kn_eigh(&w, &v, a));
        near(kn_matmul(a, v, NULL), kn_mul(v, kn_reshape(w, KN_SHAPE(3, 1, 20))),
             50 * tolerance(dtype));
        for (int64_t i = 1; i < 20; i++) assert_true(ops_at(w, i - 1) <= ops_at(w, i));
        kn_tensor *below = kn_add(kn_tri_scale(a, 1, 1, 0),
                                  kn_tri_scale(kn_filled_like(a, (double)NAN), 0, 0, 1)),
                  *same;
        assert_ok(kn_eigh(&same, NULL, below)); /* the upper half isn't read */
        near(same, w, 50 * tolerance(dtype));
    }
}

/* The first matrix of two has `with` in it; the second is solved. */
static void check_spectra_of_broken(kn_dtype dtype, int64_t n, int64_t row, int64_t column,
                                    double with) {
    KN_FRAME();
    double x[2 * 5 * 5];
    for (int64_t i = 0; i < 2 * n * n; i++) x[i] = i / n % n == i % n ? 2 : 0.5;
    x[row * n + column] = x[column * n + row] = with;
    kn_tensor *a = from_doubles(x, dtype, KN_SHAPE(2, n, n)), *u, *s, *vt, *w, *v;
    assert_ok(kn_svd(&u, &s, &vt, a));
    assert_ok(kn_eigh(&w, &v, a));
    kn_tensor *results[] = {u, s, vt, w, v, NULL, NULL};
    assert_ok(kn_svd(NULL, &results[5], NULL, a));
    assert_ok(kn_eigh(&results[6], NULL, a));
    for (int r = 0; r < 7; r++) {
        int64_t size = kn_tensor_numel(results[r]) / 2;
        for (int64_t i = 0; i < size; i++) {
            assert_true(isnan(ops_at(results[r], i)));
            assert_true(isfinite(ops_at(results[r], size + i)));
        }
    }
}

static void spectra_of_what_is_not_finite_are_nan(void **state) {
    (void)state;
    if (lacks_lapack()) skip();
    FOR_BOTH_DTYPES(dtype) {
        for (int64_t n = 2; n <= 5; n += 3) {
            check_spectra_of_broken(dtype, n, n - 1, n - 1, (double)NAN);
            check_spectra_of_broken(dtype, n, n - 1, 0, (double)NAN);
            check_spectra_of_broken(dtype, n, 0, 0, (double)-INFINITY);
            check_spectra_of_broken(dtype, n, n - 1, 0, (double)INFINITY);
        }
    }
}

static void singular_matrices_give_infinities_or_nans_and_no_error(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *a = F64(KN_SHAPE(2, 2, 2), 1, 2, 2, 4, 2, 0, 0, 4), *sign, *logabs;
    assert_values(kn_det(a), 0, 8);
    assert_ok(kn_slogdet(&sign, &logabs, a));
    assert_values(sign, 0, 1);
    assert_true(isinf(ops_at(logabs, 0)) && ops_at(logabs, 0) < 0);
    kn_tensor *y = kn_inverse(a);
    for (int64_t i = 0; i < 4; i++) assert_true(!isfinite(ops_at(y, i)));
    assert_close(ops_at(y, 4), 0.5, 0, 0);
    kn_tensor *l = kn_cholesky(F64(KN_SHAPE(2, 2, 2), 1, 2, 2, 1, 4, 0, 0, 9));
    for (int64_t i = 0; i < 4; i++) assert_true(isnan(ops_at(l, i)));
    assert_close(ops_at(l, 4), 2, 0, 0);
    assert_close(ops_at(l, 7), 3, 0, 0);
    assert_values(kn_det(F64(KN_SHAPE(3, 3), 0, 1, 2, 0, 3, 4, 0, 5, 6)), 0);
}

static void nan_stays_nan(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *sign, *logabs, *l = kn_cholesky(F64(KN_SHAPE(2, 2), 4, 0, 0, (double)NAN));
    for (int64_t i = 0; i < 4; i++) assert_true(isnan(ops_at(l, i)));
    kn_tensor *a = F64(KN_SHAPE(1, 1), (double)NAN);
    assert_true(isnan(ops_at(kn_det(a), 0)));
    assert_ok(kn_slogdet(&sign, &logabs, a));
    assert_true(isnan(ops_at(sign, 0)) && isnan(ops_at(logabs, 0)));
}

static void matrices_of_nothing_give_nothing(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *none = kn_zeros(KN_SHAPE(3, 0, 0)), *few = kn_zeros(KN_SHAPE(0, 4, 4)), *q, *r, *s;
    assert_shape(kn_cholesky(none), KN_SHAPE(3, 0, 0));
    assert_shape(kn_inverse(few), KN_SHAPE(0, 4, 4));
    assert_values(kn_det(none), 1, 1, 1);
    assert_values(kn_logdet(none), 0, 0, 0);
    assert_shape(kn_det(few), KN_SHAPE(0));
    assert_ok(kn_qr(&q, &r, kn_zeros(KN_SHAPE(2, 5, 0))));
    assert_shape(q, KN_SHAPE(2, 5, 0));
    assert_shape(r, KN_SHAPE(2, 0, 0));
    assert_ok(kn_svd(NULL, &s, NULL, kn_zeros(KN_SHAPE(2, 0, 3))));
    assert_shape(s, KN_SHAPE(2, 0));
    assert_shape(kn_solve(none, kn_zeros(KN_SHAPE(3, 0, 2)), NULL), KN_SHAPE(3, 0, 2));
    assert_shape(kn_solve(kn_ones(KN_SHAPE(2, 2)), kn_zeros(KN_SHAPE(2, 0)), NULL), KN_SHAPE(2, 0));
}

/* One result alone equals that of a call for both. */
static void results_that_are_not_wanted_are_skipped(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *a = kn_add(kn_eye(3, 3), kn_ones(KN_SHAPE(3, 3))), *all[2], *one = NULL;
    assert_ok(kn_eigh(&all[0], &all[1], a));
    assert_ok(kn_eigh(NULL, &one, a));
    near(one, all[1], 0);
    assert_ok(kn_slogdet(&all[0], &all[1], a));
    assert_ok(kn_slogdet(&one, NULL, a));
    near(one, all[0], 0);
    assert_ok(kn_slogdet(NULL, &one, a));
    near(one, all[1], 0);
    assert_ok(kn_qr(&all[0], &all[1], a));
    assert_ok(kn_qr(NULL, &one, a));
    near(one, all[1], 0);
    assert_ok(kn_qr(&one, NULL, a));
    near(one, all[0], 0);
    assert_fails(kn_eigh(NULL, NULL, a), KN_ERR_INVALID, "kn_eigh: every result is NULL");
}

static void wrong_shapes_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(2, 3)), *square = kn_ones(KN_SHAPE(3, 3)), *q, *r;
    assert_op_fails(kn_cholesky(a), KN_ERR_SHAPE, "kn_cholesky: a must be [...,N,N] (a [2,3])");
    assert_op_fails(kn_det(kn_ones(KN_SHAPE(3))), KN_ERR_SHAPE,
                    "kn_det: a must be [...,N,N] (a [3])");
    assert_op_fails(kn_solve(square, a, NULL), KN_ERR_SHAPE, "kn_solve: b must be [...,N,K]");
    assert_op_fails(kn_solve(square, square, &(kn_solve_options){.upper = 1}), KN_ERR_INVALID,
                    "options of kn_triangular_solve");
    assert_op_fails(kn_solve(square, square, &(kn_solve_options){.reserved = {0, 1}}),
                    KN_ERR_INVALID, "reserved[1]");
    assert_op_fails(KN_CALL(inverse, NULL, square, square), KN_ERR_SHAPE,
                    "kn_inverse: factors must be [...,N+1,N] (a [3,3], factors [3,3])");
    assert_op_fails(KN_CALL(inverse, NULL, square, kn_ones(KN_SHAPE(1, 4, 3))), KN_ERR_SHAPE,
                    "factors must be [...,N+1,N]");
    assert_fails(kn_qr(&q, &r, kn_ones(KN_SHAPE(3))), KN_ERR_SHAPE,
                 "kn_qr: a must be [...,M,N] (a [3])");
    assert_null(q);
    assert_fails(kn_svd(NULL, NULL, NULL, a), KN_ERR_INVALID, "kn_svd: every result is NULL");
    assert_fails(kn_svd(&q, &r, NULL, a), KN_ERR_INVALID, "u and vt go together");
    assert_fails(kn_lq(&q, &r, NULL), KN_ERR_INVALID, "kn_lq: a is NULL");
    assert_op_fails(kn_inverse(kn_cast(square, KN_I64)), KN_ERR_DTYPE, "kn_inverse: a is i64");
}

static kn_tensor *all_of(kn_tensor *a, kn_tensor *b) {
    kn_tensor *q, *r, *part[8];
    int n = 0;
    part[n++] = kn_cholesky(kn_add(kn_matmul(a, swapped(a), NULL), identity_like(a)));
    part[n++] = kn_inverse(a);
    part[n++] = kn_solve(a, b, NULL);
    part[n++] = kn_triangular_solve(a, b, NULL);
    assert_ok(kn_qr(&q, &r, a));
    part[n++] = q, part[n++] = r;
    part[n++] = kn_reshape(kn_broadcast(kn_reshape(kn_det(a), KN_SHAPE(-1, 1, 1)),
                                        KN_SHAPE(kn_tensor_numel(kn_det(a)), 1, 1)),
                           KN_SHAPE(-1, 1));
    for (int i = 0; i < n; i++) part[i] = kn_reshape(part[i], KN_SHAPE(-1, 1));
    return kn_concat(part, n, 0);
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 230}, {12, 40}, {2, 513}};
    static const int threads[] = {1, 2, 7};
#ifdef __SANITIZE_THREAD__
    enum { N_SHAPES = 2 };
#else
    enum { N_SHAPES = 3 };
#endif
    FOR_BOTH_DTYPES(dtype) {
        for (int i = 0; i < N_SHAPES; i++) {
            KN_FRAME();
            int64_t batch = shapes[i][0], n = shapes[i][1];
            kn_tensor *a = random_tensor(dtype, KN_SHAPE(batch, n, n));
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(batch, n, 9)), *got[3];
            a = kn_add(a, kn_affine(identity_like(a), 0.3 * (double)n, 0));
            for (int t = 0; t < 3; t++) {
                KN_FRAME(.threads = threads[t]);
                got[t] = kn_keep(all_of(a, b));
            }
            assert_same_bits(got[0], got[1]);
            assert_same_bits(got[0], got[2]);
        }
    }
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(results_equal_numpys), OPS_TEST(spectra_equal_numpys),
        OPS_TEST(cholesky_times_its_transpose_is_the_matrix), OPS_TEST(solutions_solve),
        OPS_TEST(rows_are_swapped_where_a_pivot_is_small), OPS_TEST(rows_of_any_length_are_swapped),
        OPS_TEST(triangular_solutions_solve), OPS_TEST(qr_is_orthonormal_and_gives_the_matrix_back),
        OPS_TEST(qr_reflects_columns_that_start_with_zero),
        OPS_TEST(qr_of_dependent_columns_stays_orthonormal), OPS_TEST(qr_keeps_columns_of_any_size),
        OPS_TEST(qr_takes_subnormal_and_infinite_columns), OPS_TEST(svd_gives_the_matrix_back),
        OPS_TEST(eigenvectors_are_scaled_by_their_values),
        OPS_TEST(spectra_of_what_is_not_finite_are_nan),
        OPS_TEST(singular_matrices_give_infinities_or_nans_and_no_error), OPS_TEST(nan_stays_nan),
        OPS_TEST(matrices_of_nothing_give_nothing),
        OPS_TEST(results_that_are_not_wanted_are_skipped), OPS_TEST(wrong_shapes_are_named),
        OPS_TEST(the_number_of_threads_changes_no_bit));
}
