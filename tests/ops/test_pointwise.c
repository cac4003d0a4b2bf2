#include <float.h>
#include <math.h>

#include "host/pointwise/rows.h"
#include "ops_test.h"

/* --- values --- */

static void arithmetic_of_two_vectors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = F32(KN_SHAPE(3), 1, -2, 3), *b = F32(KN_SHAPE(3), 4, 5, -6);
    assert_values(kn_add(a, b), 5, 3, -3);
    assert_values(kn_sub(a, b), -3, -7, 9);
    assert_values(kn_mul(a, b), 4, -10, -18);
    assert_values(kn_div(a, b), 0.25, -0.4, -0.5);
    assert_values(kn_maximum(a, b), 4, 5, 3);
    assert_values(kn_minimum(a, b), 1, -2, -6);
    assert_values(kn_pow(b, F32(KN_SHAPE(1), 2)), 16, 25, 36);
    assert_values(kn_affine(a, 2, 0.5), 2.5, -3.5, 6.5);
    for (int p = -3; p <= 3; p++) {
        assert_values(kn_pow_scalar(b, p), pow(4, p), pow(5, p), pow(-6, p));
    }
    kn_tensor *c = F32(KN_SHAPE(4), 2, 3, 0.125, 1048577);
    assert_memory_equal(kn_data(kn_pow_scalar(c, 0.5)), kn_data(kn_sqrt(c)), 4 * sizeof(float));
    assert_memory_equal(kn_data(kn_pow_scalar(c, -0.5)), kn_data(kn_rsqrt(c)), 4 * sizeof(float));
    assert_memory_equal(kn_data(kn_pow_scalar(c, -1)), kn_data(kn_reciprocal(c)),
                        4 * sizeof(float));
}

static void comparisons_give_bool(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = F32(KN_SHAPE(3), 1, 2, 3), *b = F32(KN_SHAPE(1), 2);
    struct {
        kn_tensor *(*op)(kn_tensor *, kn_tensor *);
        uint8_t want[3];
    } cases[] = {{kn_eq, {0, 1, 0}}, {kn_ne, {1, 0, 1}}, {kn_lt, {1, 0, 0}},
                 {kn_le, {1, 1, 0}}, {kn_gt, {0, 0, 1}}, {kn_ge, {0, 1, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_tensor *z = cases[i].op(a, b);
        assert_int_equal(kn_tensor_dtype(z), KN_BOOL);
        assert_memory_equal(kn_data(z), cases[i].want, 3);
    }
    assert_values(kn_where(kn_lt(a, b), a, F32(KN_SCALAR, 9)), 1, 9, 9);
    assert_values(kn_where(kn_lt(b, b), a, b), 2, 2, 2);
}

static void the_larger_or_smaller_of_a_nan_is_nan(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = F32(KN_SHAPE(3), NAN, 1, NAN), *b = F32(KN_SHAPE(3), 1, NAN, NAN);
    assert_values(kn_maximum(a, b), NAN, NAN, NAN);
    assert_values(kn_minimum(a, b), NAN, NAN, NAN);
}

/* Every place in a vector, and whatever is left at its end. */
static void relu_of_nan_is_nan_and_passes_its_gradient_on(void **state) {
    (void)state;
    enum { N = 37 };
    for (int at = 0; at < N; at++) {
        KN_FRAME();
        float x[N] = {0};
        for (int i = 0; i < N; i++) x[i] = i % 2 ? 1.5f : -1.5f;
        x[at] = NAN;
        kn_tensor *y = kn_relu(kn_tensor_from(x, KN_F32, KN_SHAPE(N)));
        kn_tensor *dx = op_row1_back(KN_OP_relu_back, kn_full(KN_SHAPE(N), 2), KN_NONE, y);
        for (int i = 0; i < N; i++) {
            assert_close(ops_at(y, i), i == at ? NAN : i % 2 ? 1.5 : 0, 0, 0);
            assert_close(ops_at(dx, i), i == at || i % 2 ? 2 : 0, 0, 0);
        }
    }
}

/* Op, its double reference, and the gradient's by value x and result y. */
typedef struct unary_case {
    const char *name;
    kn_tensor *(*op)(kn_tensor *);
    double (*fn)(double);
    kn_op back;
    double (*slope)(double x, double y);
    bool saves_y;
    double ulps;
} unary_case;

static double neg(double x) { return -x; }
static double sign(double x) { return (double)((x > 0) - (x < 0)); }
static double relu(double x) { return x < 0 ? 0 : x; }
static double sigm(double x) { return 1 / (1 + exp(-x)); }
static double d_neg(double x, double y) { return (void)x, (void)y, -1; }
static double d_abs(double x, double y) { return (void)y, sign(x); }
static double d_sign(double x, double y) { return (void)x, (void)y, 0; }
static double d_exp(double x, double y) { return (void)x, y; }
static double d_log(double x, double y) { return (void)y, 1 / x; }
static double d_sqrt(double x, double y) { return (void)x, 1 / (2 * y); }
static double d_relu(double x, double y) { return (void)y, x > 0; }
static double d_sigm(double x, double y) { return (void)x, y * (1 - y); }
static double d_tanh(double x, double y) { return (void)x, 1 - y * y; }

static const unary_case unary_cases[] = {
    {"neg", kn_neg, neg, KN_OP_neg_back, d_neg, false, 0},
    {"abs", kn_abs, fabs, KN_OP_abs_back, d_abs, false, 0},
    {"sign", kn_sign, sign, KN_OP_sign_back, d_sign, false, 0},
    {"exp", kn_exp, exp, KN_OP_exp_back, d_exp, true, 2},
    {"log", kn_log, log, KN_OP_log_back, d_log, false, 2},
    {"sqrt", kn_sqrt, sqrt, KN_OP_sqrt_back, d_sqrt, true, 0.5},
    {"relu", kn_relu, relu, KN_OP_relu_back, d_relu, true, 0},
    {"sigm", kn_sigm, sigm, KN_OP_sigm_back, d_sigm, true, 2},
    {"tanh", kn_tanh, tanh, KN_OP_tanh_back, d_tanh, true, 2},
};
enum { UNARY_CASES = sizeof unary_cases / sizeof *unary_cases };

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* |y - want| in units of want's last place as f32. */
static double ulps_off(double y, double want) {
    if (isnan(want)) return isnan(y) ? 0 : INFINITY;
    if ((float)want == (float)y) return 0;
    double size = fabs(want) < FLT_MIN ? FLT_MIN : fabs(want);
    return fabs(y - want) / exp2(floor(log2(size)) - 23);
}

static void functions_are_right_to_the_last_places_over_all_floats(void **state) {
    (void)state;
    enum { STEP = 4001, N = 0x7F800000u / STEP };
    static float x[2 * N + 8];
    size_t n = 0;
    const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, FLT_MIN, FLT_MAX, -FLT_MAX};
    for (size_t i = 0; i < 8; i++) x[n++] = special[i];
    for (uint32_t i = 0; i < N; i++) {
        x[n++] = float_of(i * STEP);
        x[n++] = -float_of(i * STEP);
    }
    for (int c = 0; c < UNARY_CASES; c++) {
        KN_FRAME();
        const float *y =
            kn_data(unary_cases[c].op(kn_tensor_from(x, KN_F32, KN_SHAPE((int64_t)n))));
        double worst = 0;
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            double off = ulps_off((double)y[i], unary_cases[c].fn((double)x[i]));
            if (off > worst) worst = off, at = i;
        }
        if (worst > unary_cases[c].ulps) {
            fail_msg("%s(%.9g) = %.9g is %.2f ulps off, at most %.1f are allowed",
                     unary_cases[c].name, (double)x[at], (double)y[at], worst, unary_cases[c].ulps);
        }
    }
}

/* --- the logistic function: below 2 ulp, the same bits for every instruction set --- */

/* |y - want| in units of want's last place, of numbers with `digits` bits, the smallest normal
 * one 2^lowest. */
static double ulps_of(double y, long double want, int digits, int lowest) {
    int exponent;
    frexpl(want, &exponent); /* want = m·2^exponent, m in [½, 1) */
    if (want == 0 || exponent - 1 < lowest) exponent = lowest + 1;
    return (double)(fabsl((long double)y - want) / exp2l(exponent - digits));
}

static long double sigm_exact(double x) {
    long double e = expl(-fabsl((long double)x));
    return (x < 0 ? e : 1) / (1 + e);
}

enum { SIGM_N = 1 << 16 };

static void sigm_f32_is_right_to_two_ulp(void **state) {
    (void)state;
    static float x[SIGM_N];
    for (int round = 0; round < 24; round++) {
        for (int i = 0; i < SIGM_N; i++) { /* results below 2^-126 too */
            double scale = round % 3 == 0 ? 4 : round % 3 == 1 ? 20 : 106;
            x[i] = (float)test_random_uniform(-scale, round % 2 ? scale / 4 : 0);
        }
        KN_FRAME();
        const float *y = kn_data(kn_sigm(kn_tensor_from(x, KN_F32, KN_SHAPE(SIGM_N))));
        for (int i = 0; i < SIGM_N; i++) {
            double off = ulps_of((double)y[i], sigm_exact((double)x[i]), 24, -126);
            if (off > 2) fail_msg("sigm(%.9g) is %.3f ulp off", (double)x[i], off);
        }
    }
}

static void sigm_f64_is_right_to_one_and_a_half_ulp(void **state) {
    (void)state;
    static double x[SIGM_N];
    for (int round = 0; round < 24; round++) {
        for (int i = 0; i < SIGM_N; i++) {
            double scale = round % 3 == 0 ? 4 : round % 3 == 1 ? 40 : 746;
            x[i] = test_random_uniform(-scale, round % 2 ? scale / 4 : 0);
            if (round == 23) x[i] = -test_random_uniform(708, 746); /* subnormal results */
        }
        KN_FRAME();
        const double *y = kn_data(kn_sigm(kn_tensor_from(x, KN_F64, KN_SHAPE(SIGM_N))));
        for (int i = 0; i < SIGM_N; i++) {
            double off = ulps_of(y[i], sigm_exact(x[i]), 53, -1022); /* as sigm.h says: 1.4 */
            if (off > 1.5) fail_msg("sigm(%.17g) is %.3f ulp off", x[i], off);
        }
    }
}

static void sigm_of_the_extremes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *y = kn_sigm(
        F64(KN_SHAPE(10), 0, -0.0, INFINITY, -INFINITY, NAN, DBL_MAX, -DBL_MAX, -746, DBL_MIN, 40));
    const double want[] = {0.5, 0.5, 1, 0, NAN, 1, 0, 0, 0.5, 1};
    for (int i = 0; i < 10; i++) assert_close(ops_at(y, i), want[i], 0, 0);
    y = kn_sigm(F32(KN_SHAPE(10), 0, -0.0f, INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, -105,
                    FLT_MIN, 40));
    for (int i = 0; i < 10; i++) assert_close(ops_at(y, i), want[i], 0, 0);
    /* the smallest results: 2^-149 and 2^-1074 */
    assert_close(ops_at(kn_sigm(F32(KN_SCALAR, -103.5f)), 0), 0x1p-149, 0, 0);
    assert_close(ops_at(kn_sigm(F64(KN_SCALAR, -744.5)), 0), 0x1p-1074, 0, 0);
}

static void sigm_has_the_same_bits_for_every_instruction_set(void **state) {
    (void)state;
    enum { N = 5003 };
    static double x[N], want[N], got[N];
    static float x32[N];
    for (int i = 0; i < N; i++) {
        x[i] = test_random_uniform(-110, 30);
        x32[i] = (float)x[i];
    }
    for (int wide = 0; wide < 2; wide++) {
        kn_dtype dtype = wide ? KN_F64 : KN_F32;
        const void *from = wide ? (const void *)x : x32;
        kn__row_isa(dtype, KN_OP_sigm, 2)->f(want, &from, N, 0, 0, false);
        for (int isa = 3; isa <= 4; isa++) {
            const kn__row_loops *row = kn__row_isa(dtype, KN_OP_sigm, isa);
            if (!row) continue;
            row->f(got, &from, N, 0, 0, false);
            assert_memory_equal(got, want, N * kn_dtype_bytes(dtype));
        }
    }
}

static void f64_functions_are_the_c_librarys(void **state) {
    (void)state;
    KN_FRAME();
    double x[1000];
    for (int i = 0; i < 1000; i++) x[i] = test_random_uniform(0.01, 20);
    for (int c = 0; c < UNARY_CASES; c++) {
        const double *y = kn_data(unary_cases[c].op(kn_tensor_from(x, KN_F64, KN_SHAPE(1000))));
        for (int i = 0; i < 1000; i++) assert_close(y[i], unary_cases[c].fn(x[i]), 1e-15, 0);
    }
}

static void slopes_match_their_formulas(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    double x[200], g[200];
    for (int i = 0; i < 200; i++) {
        x[i] = test_random_uniform(0.1, 3);
        g[i] = test_random_uniform(-1, 1);
    }
    kn_tensor *tx = kn_tensor_from(x, KN_F64, KN_SHAPE(200)),
              *tg = kn_tensor_from(g, KN_F64, KN_SHAPE(200));
    for (int c = 0; c < UNARY_CASES; c++) {
        const unary_case *u = &unary_cases[c];
        const double *dx = kn_data(op_row1_back(u->back, tg, tx, u->op(tx)));
        for (int i = 0; i < 200; i++) {
            assert_close(dx[i], g[i] * u->slope(x[i], u->fn(x[i])), 1e-13, 0);
        }
    }
}

/* --- broadcasting, against one index at a time --- */

static kn_shape random_shape(int n_dims) {
    kn_shape shape = {{0}, n_dims};
    for (int i = 0; i < n_dims; i++) shape.dim[i] = (int64_t)test_random_below(6);
    for (int i = 0; i < n_dims; i++) {
        if (!shape.dim[i] && test_random_below(8)) shape.dim[i] = 1; /* seldom empty */
    }
    return shape;
}

/* Drops leading dimensions and sets others to 1. */
static kn_shape broadcastable(kn_shape shape) {
    kn_shape out = KN_SCALAR;
    int drop = (int)test_random_below((uint64_t)shape.n_dims + 1);
    if (test_random_below(2)) drop = 0;
    for (int i = drop; i < shape.n_dims; i++) {
        out.dim[out.n_dims++] = test_random_below(3) ? shape.dim[i] : 1;
    }
    return out;
}

static kn_tensor *random_tensor(kn_shape shape, kn_dtype dtype) {
    kn_tensor *x = kn_tensor_new(kn_device_host(), dtype, shape);
    assert_non_null(x);
    for (int64_t i = 0; i < kn_tensor_numel(x); i++) {
        double value = test_random_uniform(0.5, 2);
        if (dtype == KN_F64)
            ((double *)kn_data_mut(x))[i] = value;
        else if (dtype == KN_F32)
            ((float *)kn_data_mut(x))[i] = (float)value;
        else
            ((uint8_t *)kn_data_mut(x))[i] = value > 1;
    }
    return x;
}

/* Where element `index` of a result of `shape` is in an operand. */
static int64_t place(kn_shape shape, int64_t index, kn_tensor *operand) {
    kn_shape own = kn_tensor_shape(operand);
    int64_t at = 0, stride = 1;
    for (int i = shape.n_dims - 1, j = own.n_dims - 1; i >= 0; i--, j--) {
        int64_t c = index % shape.dim[i];
        index /= shape.dim[i];
        if (j < 0) continue;
        at += (own.dim[j] == 1 ? 0 : c) * stride;
        stride *= own.dim[j];
    }
    return at;
}

static kn_shape joined(kn_shape a, kn_shape b) {
    kn_shape out = a.n_dims > b.n_dims ? a : b;
    for (int i = 0; i < out.n_dims; i++) {
        int p = a.n_dims - 1 - i, q = b.n_dims - 1 - i, o = out.n_dims - 1 - i;
        int64_t da = p >= 0 ? a.dim[p] : 1, db = q >= 0 ? b.dim[q] : 1;
        out.dim[o] = da == 1 ? db : da;
    }
    return out;
}

static void random_shapes_broadcast_as_one_index_at_a_time(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        KN_FRAME();
        kn_dtype dtype = round % 2 ? KN_F32 : KN_F64;
        kn_shape whole = random_shape((int)test_random_below(6));
        if (round % 7 == 0 && whole.n_dims) whole.dim[0] = 300; /* some rows repeat often */
        kn_tensor *a = random_tensor(broadcastable(whole), dtype),
                  *b = random_tensor(broadcastable(whole), dtype),
                  *c = random_tensor(broadcastable(whole), KN_BOOL);
        kn_shape shape = joined(kn_tensor_shape(a), kn_tensor_shape(b));
        kn_tensor *z = kn_sub(a, b), *less = kn_lt(a, b);
        assert_shape(z, shape);
        for (int64_t i = 0; i < kn_tensor_numel(z); i++) {
            double x = ops_at(a, place(shape, i, a)), y = ops_at(b, place(shape, i, b));
            assert_close(ops_at(z, i), x - y, 1e-6, 1e-7);
            assert_int_equal(((const uint8_t *)kn_data(less))[i], x < y);
        }
        kn_shape all = joined(shape, kn_tensor_shape(c));
        kn_tensor *w = kn_where(c, a, b), *wide = kn_broadcast(a, all);
        assert_shape(w, all);
        for (int64_t i = 0; i < kn_tensor_numel(w); i++) {
            bool take = ((const uint8_t *)kn_data(c))[place(all, i, c)];
            kn_tensor *from = take ? a : b;
            assert_close(ops_at(w, i), ops_at(from, place(all, i, from)), 0, 0);
            assert_close(ops_at(wide, i), ops_at(a, place(all, i, a)), 0, 0);
        }
    }
}

static void results_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = random_tensor(KN_SHAPE(301, 1001), KN_F32),
              *row = random_tensor(KN_SHAPE(1001), KN_F32),
              *column = random_tensor(KN_SHAPE(301, 1), KN_F32),
              *narrow = random_tensor(KN_SHAPE(43043, 7), KN_F32),
              *seven = random_tensor(KN_SHAPE(7), KN_F32),
              *tall = random_tensor(KN_SHAPE(43043, 1), KN_F32);
    size_t bytes = 301 * 1001 * sizeof(float);
    const void *want[6];
    for (int threads = 1; threads <= 4; threads++) {
        kn_frame frame = kn_frame_begin(&(kn_frame_options){.threads = threads});
        kn_tensor *y[] = {kn_exp(x),
                          kn_mul(x, row),
                          kn_mul(column, x),
                          kn_add(narrow, seven),
                          kn_mul(narrow, tall),
                          kn_sum(x, KN_SHAPE(1), false)};
        for (int i = 0; i < 6; i++) {
            if (threads == 1) want[i] = kn_data(kn_keep(y[i]));
            assert_memory_equal(kn_data(y[i]), want[i], i < 5 ? bytes : 301 * sizeof(float));
        }
        kn_frame_end(&frame);
    }
}

/* --- the edges --- */

static void no_dimensions_and_no_elements_are_fine(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *two = F32(KN_SCALAR, 2), *none = kn_zeros(KN_SHAPE(0, 3));
    assert_shape(kn_add(two, two), KN_SCALAR);
    assert_values(kn_add(two, two), 4);
    assert_shape(kn_exp(none), KN_SHAPE(0, 3));
    assert_shape(kn_add(none, two), KN_SHAPE(0, 3));
    assert_shape(kn_add(none, kn_zeros(KN_SHAPE(5, 1, 1))), KN_SHAPE(5, 0, 3));
    assert_shape(kn_eq(none, none), KN_SHAPE(0, 3));
    assert_null(kn_data(none));
    assert_ok(kn_check());
}

static void new_values_and_values_in_place(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = kn_full(KN_SHAPE(3), 1.5);
    assert_int_equal(kn_tensor_dtype(x), KN_F64);
    assert_values(kn_zeros(KN_SHAPE(2)), 0, 0);
    assert_values(kn_ones(KN_SCALAR), 1);
    assert_ok(kn_add_into(x, x));
    assert_values(x, 3, 3, 3);
    assert_ok(kn_add_into(x, F64(KN_SHAPE(3), 1, 2, 3)));
    assert_values(x, 4, 5, 6);
    assert_ok(kn_fill_into(x, -1));
    assert_values(x, -1, -1, -1);
    assert_int_equal(x->storage->version, 3);
}

static void bad_inputs_name_op_values_and_shapes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3)), *y = kn_zeros(KN_SHAPE(4)),
              *d = F64(KN_SHAPE(3), 1, 2, 3), *i = I64(KN_SHAPE(3), 1, 2, 3);
    assert_op_fails(kn_add(x, y), KN_ERR_SHAPE, "kn_add: shapes don't broadcast (a [2,3], b [4])");
    assert_op_fails(kn_mul(x, d), KN_ERR_DTYPE,
                    "kn_mul: a is f32, b is f64; see kn_cast (a [2,3], b [3])");
    assert_op_fails(kn_exp(i), KN_ERR_DTYPE,
                    "kn_exp: x is i64; it must be floating: f32, f64, f16 or bf16 (x [3])");
    assert_op_fails(kn_add(x, NULL), KN_ERR_INVALID, "kn_add: b is NULL");
    assert_op_fails(kn_add(KN_NONE, x), KN_ERR_INVALID, "kn_add: a is KN_NONE");
    assert_op_fails(kn_where(x, x, x), KN_ERR_DTYPE, "condition is f32; it must be bool");
    assert_op_fails(op_row1_back(KN_OP_relu_back, y, KN_NONE, x), KN_ERR_SHAPE,
                    "kn_relu_back: shapes don't broadcast to g's (g [4], z [2,3])");
    assert_op_fails(kn_zeros(KN_SHAPE(2, -3)), KN_ERR_SHAPE, "[2,-3]");
    assert_op_fails(kn_zeros(KN_SHAPE(1ll << 40, 1ll << 40)), KN_ERR_SHAPE, "too large");
    assert_op_fails(kn_zeros(KN_SHAPE(1ll << 62)), KN_ERR_SHAPE, "too large"); /* in bytes */
    assert_fails(kn_add_into(y, x), KN_ERR_SHAPE, "(a [4], b [2,3])");
    assert_fails(kn_fill_into(NULL, 1), KN_ERR_INVALID, "kn_fill_into: x is NULL");
    kn_tensor_consume(x);
    assert_op_fails(kn_relu(x), KN_ERR_INVALID, "was consumed by kn_backward or kn_gradients");
    assert_ok(kn_check());
}

static kn_tensor *relu_bias_back(kn_tensor *y, kn_tensor *g, uint32_t reduced, kn_tensor *db,
                                 bool accumulate) {
    kn_attr_axes attr = {reduced, 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_relu_bias_back, &attr, KN_LIST_(y, g), 2);
    call.want = 3;
    call.given = 2;
    call.accumulate = accumulate ? 2 : 0;
    call.out[1] = db;
    return kn_op_run(&call);
}

static void relu_and_the_bias_before_it_have_one_gradient_op(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *y = F32(KN_SHAPE(2, 3), 1, 0, 2, 3, 4, 0);
    kn_tensor *g = F32(KN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    kn_tensor *rows = F32(KN_SHAPE(2), 100, 200), *columns = F32(KN_SHAPE(3), 7, 7, 7);
    uint32_t version = rows->storage->version;
    assert_values(relu_bias_back(y, g, 1, columns, false), 1, 0, 3, 4, 5, 0);
    assert_values(columns, 5, 5, 3);
    assert_values(relu_bias_back(y, g, 2, rows, true), 1, 0, 3, 4, 5, 0);
    assert_values(rows, 104, 209);
    assert_int_equal(rows->storage->version, version + 1); /* it was written */
    assert_op_fails(relu_bias_back(y, g, 1, rows, false), KN_ERR_SHAPE,
                    "a result of 3 elements f32 does not fit into [2] f32");
    assert_op_fails(relu_bias_back(y, g, 3, rows, false), KN_ERR_SHAPE, "one axis is kept");
    assert_op_fails(relu_bias_back(y, rows, 1, columns, false), KN_ERR_SHAPE, "g [2]");
    kn_tensor *none = kn_zeros(KN_SHAPE(0, 3));
    assert_op_fails(relu_bias_back(none, none, 1, columns, false), KN_ERR_SHAPE, "not empty");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(arithmetic_of_two_vectors), OPS_TEST(comparisons_give_bool),
        OPS_TEST(the_larger_or_smaller_of_a_nan_is_nan),
        OPS_TEST(functions_are_right_to_the_last_places_over_all_floats),
        OPS_TEST(relu_of_nan_is_nan_and_passes_its_gradient_on),
        OPS_TEST(relu_and_the_bias_before_it_have_one_gradient_op),
        OPS_TEST(sigm_f32_is_right_to_two_ulp), OPS_TEST(sigm_f64_is_right_to_one_and_a_half_ulp),
        OPS_TEST(sigm_of_the_extremes), OPS_TEST(sigm_has_the_same_bits_for_every_instruction_set),
        OPS_TEST(f64_functions_are_the_c_librarys), OPS_TEST(slopes_match_their_formulas),
        OPS_TEST(random_shapes_broadcast_as_one_index_at_a_time),
        OPS_TEST(results_do_not_depend_on_the_number_of_threads),
        OPS_TEST(no_dimensions_and_no_elements_are_fine), OPS_TEST(new_values_and_values_in_place),
        OPS_TEST(bad_inputs_name_op_values_and_shapes));
}
