/* kn_gradients and kn_watch: targets, kept tapes, higher orders. */
#include <knet/tape.h>
#include <math.h>

#include "autograd_test.h"

static void gradients_leave_those_of_parameters_alone(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 3, 4));
    kn_tensor *unused = kn_watch(F32(KN_SHAPE(3), 1, 1, 1));
    kn_tensor *y = kn_mul(kn_mul(x, x), w), *dx[4];
    assert_ok(kn_gradients(dx, y, (kn_tensor *[]){x, w, unused, x}, 4, NULL));
    assert_values(dx[0], 6, 16);
    assert_values(dx[1], 9, 16);
    assert_values(dx[2], 0, 0, 0);
    assert_values(dx[3], 6, 16);
    assert_values(kn_grad(w), 0, 0);
    assert_fails(kn_gradients(dx, y, &x, 1, NULL), KN_ERR_INVALID, "consumed");
    kn_params_destroy(set);
}

static void values_of_a_used_tape_are_reported_as_such(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 3, 4)), *z = kn_sigm(x), *dx[1];
    assert_ok(kn_gradients(dx, sum_all(z), &x, 1, NULL));
    assert_op_fails(kn_exp(z), KN_ERR_INVALID, "was consumed by kn_backward or kn_gradients");
    kn_tensor *y = sum_all(kn_mul(x, x));
    assert_fails(kn_gradients(dx, y, &x, 1, NULL), KN_ERR_INVALID,
                 "kn_gradients: the tape of x[0] was consumed by kn_backward or kn_gradients; see "
                 "kn_watch");
    kn_tensor *other = F32(KN_SHAPE(1), 1);
    assert_fails(kn_gradients(dx, y, &other, 1, NULL), KN_ERR_INVALID,
                 "x[0] is neither a parameter nor a value of this tape; see kn_watch");
}

static void gradients_by_values_in_the_middle(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 2, 3));
    kn_tensor *h = kn_mul(x, x), *y = kn_mul(h, x), *dx[3];
    assert_ok(kn_gradients(dx, y, (kn_tensor *[]){h, x, y}, 3, NULL));
    assert_values(dx[0], 2, 3);
    assert_values(dx[1], 12, 27);
    assert_values(dx[2], 1, 1);
    assert_values(h, 4, 9); /* values that were asked about stay */
    assert_values(x, 2, 3);
}

static uint64_t allocations(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    return stats.n_allocs;
}

static void gradients_walk_only_towards_their_targets(void **state) {
    (void)state;
    uint64_t made[2];
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *h = kn_watch(F32(KN_SHAPE(1), 3)), *dx;
        for (int layer = 0; layer < (i ? 30 : 1); layer++) h = kn_tanh(h);
        kn_tensor *y = kn_mul(x, h);
        uint64_t before = allocations();
        assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
        made[i] = allocations() - before;
        assert_values(dx, ops_at(dx, 0));
    }
    assert_int_equal(made[0], made[1]);
}

static void a_watched_value_survives_backward(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 5, 7));
    assert_ok(kn_backward(sum_all(kn_mul(kn_mul(x, w), x))));
    assert_values(kn_grad(w), 25, 49);
    assert_values(x, 5, 7);
    kn_params_destroy(set);
}

static void a_watched_value_passes_its_gradient_on(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *x = kn_mul(w, w), *seen = kn_watch(x), *of_param = kn_watch(w), *dx[3];
    kn_tensor *y = kn_add(kn_mul(seen, x), of_param); /* w⁴ + w */
    kn_gradients_options keep = {.keep = 1};
    assert_ok(kn_gradients(dx, y, (kn_tensor *[]){seen, of_param, w}, 3, &keep));
    assert_values(dx[0], 4, 9);
    assert_values(dx[1], 1, 1);
    assert_values(dx[2], 4 * 8 + 1, 4 * 27 + 1);
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 4 * 8 + 1, 4 * 27 + 1);
    kn_params_destroy(set);
}

static void each_gradient_is_a_tensor_of_its_own(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        KN_TAPE();
        kn_tensor *a = kn_watch(F32(KN_SHAPE(1), 2)), *b = kn_watch(F32(KN_SHAPE(1), 3));
        kn_tensor *in[] = {a, b, a}, *dx[3], *dda = NULL, *y = kn_add(kn_mul(a, a), b);
        kn_tensor *square = kn_mul(y, y); /* by a: 4a·y, by b: 2y */
        assert_ok(kn_gradients(dx, square, in, 3, &(kn_gradients_options){.again = again}));
        kn_drop(dx[2]);
        assert_values(dx[0], 4 * 2 * 7);
        assert_values(dx[1], 2 * 7);
        if (again) {
            assert_ok(kn_gradients(&dda, dx[0], &a, 1, NULL));
            assert_values(dda, 4 * 7 + 4 * 2 * 2 * 2);
        }
    }
    KN_TAPE();
    kn_tensor *a = kn_watch(F32(KN_SHAPE(1), 2)), *b = kn_watch(F32(KN_SHAPE(1), 3)), *dx[2];
    kn_tensor *in[] = {a, b}; /* the sum gives both the same */
    assert_ok(kn_gradients(dx, kn_add(a, b), in, 2, &(kn_gradients_options){.again = 1}));
    kn_drop(dx[0]);
    assert_values(dx[1], 1);
}

static void a_kept_tape_answers_again(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_TAPE();
    kn_tensor *y = kn_mul(w, w), *dw = NULL;
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_gradients(&dw, y, &w, 1, &(kn_gradients_options){.keep = 1}));
        assert_values(dw, 6);
    }
    assert_ok(kn_backward(y));
    assert_values(kn_grad(w), 6);
    kn_params_destroy(set);
}

static void derivatives_of_third_order(void **state) {
    (void)state;
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x = kn_watch(F64(KN_SHAPE(1), 0.7)), *y = kn_tanh(x), *d = y;
    kn_gradients_options again = {.again = 1};
    for (int i = 0; i < 3; i++) assert_ok(kn_gradients(&d, d, &x, 1, &again));
    double t = 0.60436777711716349631, s = 1 - t * t; /* tanh 0.7 */
    assert_close(item_of(d), s * (6 * t * t - 2), 1e-12, 0);
}

static void a_gradient_penalty_reaches_the_parameters(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_mul(kn_mul(w, w), x); /* dy/dx = w² */
    assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
    assert_ok(kn_backward(kn_add(y, kn_mul(dx, dx)))); /* w²x + w⁴ */
    assert_values(kn_grad(w), 2 * 3 * 2 + 4 * 27);
    kn_params_destroy(set);
}

static void bad_calls_of_gradients_say_why(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3), *dw = NULL;
    {
        KN_FRAME();
        assert_fails(kn_gradients(&dw, w, &w, 1, NULL), KN_ERR_INVALID, "no tape");
    }
    KN_TAPE();
    kn_tensor *x = F32(KN_SHAPE(1), 1), *y = kn_mul(w, x);
    assert_fails(kn_gradients(&dw, y, &x, 1, NULL), KN_ERR_INVALID, "kn_watch");
    assert_fails(kn_gradients(&dw, y, &w, 0, NULL), KN_ERR_INVALID, "no x");
    assert_fails(kn_gradients(&dw, NULL, &w, 1, NULL), KN_ERR_INVALID, "y is NULL");
    assert_fails(kn_gradients(&dw, y, &w, 1, &(kn_gradients_options){.reserved = {1}}),
                 KN_ERR_INVALID, "reserved");
    assert_ok(kn_gradients(&dw, y, &w, 1, NULL));
    assert_values(dw, 1);
    kn_params_destroy(set);
}

/* --- third derivatives: rows whose second derivatives are made of ops when they are recorded ---
 */

enum { EXP, LOG, SQRT, SIGM, POW_SCALAR, CUBE, DIV, POW };

static kn_tensor *function(int f, kn_tensor *a, kn_tensor *b) {
    switch (f) {
        case EXP:
            return kn_exp(a);
        case LOG:
            return kn_log(a);
        case SQRT:
            return kn_sqrt(a);
        case SIGM:
            return kn_sigm(a);
        case POW_SCALAR:
            return kn_pow_scalar(a, 2.5);
        case CUBE:
            return kn_mul(kn_mul(a, a), a);
        case DIV:
            return kn_div(a, b);
        default:
            return kn_pow(a, b);
    }
}

/* Differentiates by the variables named in `by`, one after the other: "ab" is ∂²f/∂b∂a. The last
 * derivative is recorded too if `recorded`. */
static double derivative(int f, double a_value, double b_value, const char *by, bool recorded) {
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *a = kn_watch(F64(KN_SHAPE(1), a_value)), *b = kn_watch(F64(KN_SHAPE(1), b_value));
    kn_tensor *d = function(f, a, b);
    for (; *by; by++) {
        kn_gradients_options options = {.again = by[1] || recorded};
        assert_ok(kn_gradients(&d, d, *by == 'a' ? &a : &b, 1, &options));
    }
    return item_of(d);
}

static void third_derivatives_have_their_formulas(void **state) {
    (void)state;
    const double a = 0.7, b = 1.6, s = 1 / (1 + exp(-a)), p = pow(a, b), l = log(a);
    const struct {
        int function;
        const char *by;
        double want;
    } cases[] = {
        {EXP, "aaa", exp(a)},
        {LOG, "aaa", 2 / (a * a * a)},
        {SQRT, "aaa", 0.375 * pow(a, -2.5)},
        {SIGM, "aaa", s * (1 - s) * (1 - 6 * s + 6 * s * s)},
        {POW_SCALAR, "aaa", 2.5 * 1.5 * 0.5 * pow(a, -0.5)},
        {CUBE, "aaa", 6},
        {DIV, "bbb", -6 * a / (b * b * b * b)},
        {DIV, "abb", 2 / (b * b * b)},
        {DIV, "bab", 2 / (b * b * b)},
        {POW, "aaa", b * (b - 1) * (b - 2) * p / (a * a * a)},
        {POW, "bbb", p * l * l * l},
        {POW, "aab", p / (a * a) * (2 * b - 1 + b * (b - 1) * l)},
        {POW, "abb", p / a * l * (2 + b * l)},
        {POW, "bab", p / a * l * (2 + b * l)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_close(derivative(cases[i].function, a, b, cases[i].by, false), cases[i].want, 1e-12,
                     0);
    }
}

/* Where powers and logarithms are infinite a derivative takes its limit, made of ops or not. */
static void second_derivatives_are_the_same_when_they_are_recorded(void **state) {
    (void)state;
    static const double powers[] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 3; k++) {
            const char *by = k == 0 ? "aa" : k == 1 ? "ab" : "bb";
            double plain = derivative(POW, 0, powers[i], by, false);
            assert_true(isfinite(plain) || powers[i] == 0);
            if (isfinite(plain)) {
                assert_close(derivative(POW, 0, powers[i], by, true), plain, 0, 0);
            }
        }
    }
    for (int p = 0; p <= 3; p++) {
        for (int again = 0; again < 2; again++) {
            KN_TAPE(.dtype = KN_F64);
            kn_tensor *x = kn_watch(F64(KN_SHAPE(1), 0)), *d = kn_pow_scalar(x, p);
            kn_gradients_options recorded = {.again = 1}, last = {.again = again};
            assert_ok(kn_gradients(&d, d, &x, 1, &recorded));
            assert_ok(kn_gradients(&d, d, &x, 1, &last));
            assert_values(d, p == 2 ? 2 : 0);
        }
    }
    assert_close(derivative(POW, INFINITY, 1, "aa", false), 0, 0, 0);
    assert_close(derivative(POW, INFINITY, 1, "aa", true), 0, 0, 0);
}

/* Both first derivatives of a/b come from one node; one of the second derivatives is zero. */
static void derivatives_by_both_inputs_are_differentiated_together(void **state) {
    (void)state;
    KN_TAPE(.dtype = KN_F64);
    const double a = 0.7, b = 1.6;
    kn_tensor *x[] = {kn_watch(F64(KN_SHAPE(1), a)), kn_watch(F64(KN_SHAPE(1), b))}, *d[2], *dd[2];
    kn_gradients_options again = {.again = 1};
    assert_ok(kn_gradients(d, kn_div(x[0], x[1]), x, 2, &again));
    assert_ok(kn_gradients(dd, kn_add(d[0], d[1]), x, 2, &again));
    assert_close(item_of(dd[0]), -1 / (b * b), 1e-12, 0);
    assert_close(item_of(dd[1]), -1 / (b * b) + 2 * a / (b * b * b), 1e-12, 0);
}

/* relu of a watched value: its gradient has no derivative by it, and g is a constant. */
static void a_gradient_without_derivatives_is_a_constant(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 5, -7)), *dx = NULL, *y = sum_all(kn_relu(x));
    int64_t nodes = kn_tape_nodes();
    assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
    assert_values(dx, 1, 0);
    assert_null(dx->grad);
    assert_int_equal(kn_tape_nodes(), nodes);
}

/* The temporaries of a node's rule end with the node. */
static void a_passs_temporaries_end_with_their_node(void **state) {
    (void)state;
    enum { N = 1 << 16, NODES = 40 };
    kn_pool *pool = NULL;
    kn_pool_stats stats, after;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(N))), *y = kn_zeros(KN_SCALAR), *dx = NULL;
        for (int i = 0; i < NODES; i++) y = kn_add(y, kn_max(x, KN_ALL, false));
        kn_pool_stats_read(&stats, sizeof stats, pool);
        assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
        kn_pool_stats_read(&after, sizeof after, pool);
        assert_true(after.live_bytes_max <= stats.live_bytes_max + 10 * N * sizeof(float));
    }
    kn_pool_destroy(pool);
}

/* --- sums, whose gradient is one number in every place --- */

static kn_tensor *rolled(kn_tensor *x) { return kn_roll(x, 1, 1); }
static kn_tensor *flipped(kn_tensor *x) { return kn_flip(x, KN_ALL); }
static kn_tensor *squared(kn_tensor *x) { return kn_mul(kn_roll(x, 1, 1), kn_flip(x, KN_ALL)); }
static kn_tensor *tiled(kn_tensor *x) { return kn_tile(kn_repeat(x, 3, 1), KN_SHAPE(2, 2)); }
static kn_tensor *some(kn_tensor *x) {
    return kn_index(kn_tile(x, KN_SHAPE(2, 1)), KN_ITEMS(KN_EVERY, KN_RANGE(0, KN_END, 2)));
}
static kn_tensor *padded(kn_tensor *x) {
    x = kn_transpose(x, KN_SHAPE(1, 0));
    return kn_pad(x, KN_SHAPE(1, 0), KN_SHAPE(2, 1), KN_PAD_CONSTANT, 5);
}
static kn_tensor *shared(kn_tensor *x) { /* gradients meet */
    kn_tensor *y = kn_reshape(x, KN_SHAPE(3, 2));
    return kn_concat((kn_tensor *[]){rolled(y), y, kn_mul(y, y), flipped(y)}, 4, 0);
}
static kn_tensor *blocks(kn_tensor *x) { return kn_block_diag((kn_tensor *[]){x, x}, 2); }

/* The gradient by x, and by the moved x in the middle, of Σ fn(…), and of fn(…) with ones. */
static void gradients_of_sum(kn_tensor *dx[4], kn_tensor *(*fn)(kn_tensor *), kn_dtype dtype) {
    kn_tensor *x = kn_watch(kn_cast(F32(KN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), dtype));
    kn_tensor *middle = kn_reshape(rolled(x), KN_SHAPE(2, 3)), *y = fn(middle);
    kn_tensor *by[] = {x, middle};
    kn_gradients_options keep = {.keep = 1}, ones = {.dy = kn_filled_like(y, 1)};
    assert_ok(kn_gradients(dx, sum_all(y), by, 2, &keep));
    assert_ok(kn_gradients(dx + 2, y, by, 1, &ones));
}

static void a_sums_gradient_is_that_of_ones(void **state) {
    (void)state;
    kn_tensor *(*const fn[])(kn_tensor *) = {rolled, flipped, squared, tiled,
                                             some,   padded,  shared,  blocks};
    for (size_t i = 0; i < sizeof fn / sizeof *fn; i++) {
        for (int f64 = 0; f64 < 2; f64++) {
            KN_TAPE();
            kn_tensor *dx[4];
            gradients_of_sum(dx, fn[i], f64 ? KN_F64 : KN_F32);
            for (int k = 0; k < 2; k++) assert_int_equal(kn_tensor_numel(dx[k]), 6);
            for (int64_t j = 0; j < 6; j++) {
                assert_true(ops_at(dx[0], j) == ops_at(dx[2], j));
                assert_true(ops_at(dx[1], j) == ops_at(dx[2], j / 3 * 3 + (j + 2) % 3));
            }
        }
    }
}

static void a_sums_gradient_reaches_parameters(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 3), "w", 1, 2, 3, 4, 5, 6);
    for (int i = 1; i <= 2; i++) {
        KN_TAPE();
        assert_ok(kn_backward(kn_mean(tiled(rolled(w)), KN_ALL, false)));
        for (int j = 0; j < 6; j++) assert_close(ops_at(kn_grad(w), j), i / 6., 1e-6, 0);
    }
    kn_params_destroy(set);
}

/* In memory that held other numbers, beyond what one thread fills with zeros. */
static void a_large_gradient_is_zero_where_nothing_was_read(void **state) {
    (void)state;
    enum { N = 512 };
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(N, N));
    {
        KN_FRAME();
        for (int i = 0; i < 4; i++) kn_ones(KN_SHAPE(N, N));
    }
    KN_TAPE();
    kn_tensor *watched = kn_watch(x), *gradient = NULL;
    kn_tensor *loss = kn_sum(kn_diagonal(watched, 0, 0, 1), KN_ALL, false);
    assert_ok(kn_gradients(&gradient, loss, &watched, 1, NULL));
    const float *g = kn_data(gradient);
    int n_wrong = 0;
    for (int i = 0; i < N * N; i++) n_wrong += g[i] != (i % (N + 1) == 0);
    assert_int_equal(n_wrong, 0);
}

/* Rules that deliver all their gradients need one that is wanted. */
static void a_result_that_no_target_reaches_has_the_gradient_zero(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2),
              *a = PARAM(set, KN_SHAPE(2, 2), "a", 4, 1, 1, 3);
    for (int op = 0; op < 4; op++) {
        KN_TAPE();
        kn_tensor *u = kn_watch(F32(KN_SHAPE(1), 1)), *x = kn_watch(kn_ones(KN_SHAPE(3, 2)));
        kn_tensor *dx, *y = NULL, *second = NULL;
        if (op == 0) y = kn_layernorm(x, w, KN_NONE, 1, 1e-5);
        if (op == 1) y = kn_rmsnorm(x, w, 1, 1e-5);
        if (op == 2) assert_ok(kn_qr(&y, &second, a));
        if (op == 3) y = kn_exp(x);
        assert_ok(kn_gradients(&dx, y, &u, 1, &(kn_gradients_options){.keep = 1}));
        assert_values(dx, 0);
        assert_ok(kn_tape_check());
        assert_ok(kn_gradients(&dx, y, &u, 1, NULL)); /* which consumes the tape */
        assert_values(dx, 0);
        assert_int_equal(kn_tape_nodes(), 0);
    }
    kn_params_destroy(set);
}

/* The pass consumes the value, but not its gradient. */
static void dy_may_be_a_value_of_the_same_tape(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 1, 2)), *h = kn_affine(x, 2, 0);
        kn_tensor *y = kn_add(h, x), *dx;
        assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.dy = h, .keep = keep}));
        assert_values(dx, 6, 12);
    }
}

static void directions_are_like_their_inputs(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(2, 3))), *y = kn_square(x), *dy;
    kn_tensor *row = kn_ones(KN_SHAPE(3)), *wide = kn_cast(kn_ones(KN_SHAPE(2, 3)), KN_F64),
              *none = NULL;
    assert_fails(kn_jvp(&dy, y, &x, &row, 1), KN_ERR_SHAPE, "t[0] is [3], x[0] [2,3]");
    assert_fails(kn_jvp(&dy, y, &x, &wide, 1), KN_ERR_DTYPE, "t[0] is f64, x[0] f32");
    assert_fails(kn_jvp(&dy, y, &x, &none, 1), KN_ERR_INVALID, "t[0] is NULL");
}

typedef struct inner {
    kn_tensor *y, *x;
    int n;
} inner;
static void differentiate_inside(void *ctx, kn_tensor *gradient) {
    (void)gradient;
    inner *in = ctx;
    kn_tensor *dx;
    kn_gradients_options keep = {.keep = 1};
    assert_fails(kn_gradients(&dx, in->y, &in->x, 1, &keep), KN_ERR_INVALID,
                 "called inside a pass over the same tape");
    assert_fails(kn_backward(in->y), KN_ERR_INVALID, "called inside a pass");
    in->n++;
}
static void a_hook_starts_no_pass_over_its_tape(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    inner in = {0};
    KN_TAPE();
    in.x = kn_mul(w, w);
    in.y = sum_all(kn_square(in.x)); /* w⁴ */
    kn_tensor *seen = kn_on_grad(in.x, differentiate_inside, &in);
    assert_ok(kn_backward(kn_add(sum_all(seen), in.y)));
    assert_int_equal(in.n, 1);
    assert_values(kn_grad(w), 4 + 32, 6 + 108);
    kn_params_destroy(set);
}

/* d/dx and d²/dx² of cos, 1/cos and tan of degrees, also where |x| has no derivative. */
static void second_derivatives_of_degrees_have_their_formulas(void **state) {
    (void)state;
    static const double angles[] = {0, 360, -720, 30, -30, 44, 46, 135, 180, -180};
    enum { N = sizeof angles / sizeof angles[0] };
    const double unit = 3.14159265358979323846 / 180;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_tensor_from(angles, KN_F64, KN_SHAPE(N)));
    kn_tensor *y[] = {kn_cosd(x), kn_secd(x), kn_tand(x)}, *dx[3], *d2x[3];
    for (int f = 0; f < 3; f++) {
        assert_ok(kn_gradients(&dx[f], sum_all(y[f]), &x, 1, &(kn_gradients_options){.again = 1}));
        assert_ok(kn_gradients(&d2x[f], sum_all(dx[f]), &x, 1, &(kn_gradients_options){.keep = 1}));
        for (int i = 0; i < N; i++) {
            double c = cos(angles[i] * unit), t = tan(angles[i] * unit);
            const double first[] = {-sin(angles[i] * unit), t / c, 1 / (c * c)};
            const double second[] = {-c, (1 + 2 * t * t) / c, 2 * t / (c * c)};
            assert_close(ops_at(dx[f], i), first[f] * unit, 1e-12, 1e-14);
            assert_close(ops_at(d2x[f], i), second[f] * unit * unit, 1e-12, 1e-14);
        }
    }
}

/* Row 1 has a label that is no class; row 2 is ignored where rows are. */
static void a_label_outside_the_classes_makes_its_gradient_nan(void **state) {
    (void)state;
    KN_FRAME();
    const kn_cross_entropy_options ways[] = {
        {.smoothing = 0.1},
        {.weight = F32(KN_SHAPE(2), 1, 2)},
        {.ignores = 1, .ignore_index = -100},
        {.reduction = KN_REDUCE_SUM},
        {.reduction = KN_REDUCE_BATCH, .smoothing = 0.1},
        {.reduction = KN_REDUCE_NONE},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(3, 2), 1, 2, 3, 4, 5, 6)), *dx;
        kn_tensor *labels = I64(KN_SHAPE(3), 1, 2, ways[i].ignores ? -100 : 0);
        kn_tensor *loss = sum_all(kn_cross_entropy_with(x, labels, &ways[i]));
        assert_ok(kn_gradients(&dx, loss, &x, 1, NULL));
        assert_true(isnan(ops_at(loss, 0)));
        for (int64_t k = 0; k < 6; k++)
            assert_int_equal(isnan(ops_at(dx, k)) != 0, k == 2 || k == 3);
    }
}

/* Many pieces of work, which begin and end inside rows and columns. */
static void check_sorted(kn_rng *rng, kn_dtype dtype, kn_shape shape, int axis, int64_t k) {
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_cast(kn_normal(shape, 0, 1, rng), dtype)), *y, *index, *dx;
    if (k == shape.dim[axis])
        assert_ok(kn_sort_index(&y, &index, x, axis, true));
    else
        assert_ok(kn_topk(&y, &index, x, k, axis, true));
    kn_tensor *w = kn_cast(kn_uniform(kn_tensor_shape(y), 1, 2, rng), dtype);
    const kn_gradients_options keep = {.again = 1};
    assert_ok(kn_gradients(&dx, sum_all(kn_mul(y, w)), &x, 1, &keep));
    kn_tensor *back = kn_gather(dx, index, axis);
    assert_memory_equal(kn_data(back), kn_data(w),
                        (size_t)kn_tensor_numel(w) * kn_dtype_bytes(dtype));
    kn_tensor *count = kn_cast(kn_count_nonzero(dx, KN_ALL, false), KN_F64);
    assert_true(ops_at(count, 0) == (double)kn_tensor_numel(w));
}

static void gradients_of_sorted_elements_go_to_their_places(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16};
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    for (int i = 0; i < 3; i++) {
        check_sorted(rng, dtypes[i], KN_SHAPE(20011), 0, 20011);
        check_sorted(rng, dtypes[i], KN_SHAPE(70, 301), 0, 70);
        check_sorted(rng, dtypes[i], KN_SHAPE(70, 301), 1, 301);
        check_sorted(rng, dtypes[i], KN_SHAPE(9, 33, 70), 1, 33);
        check_sorted(rng, dtypes[i], KN_SHAPE(9, 400, 70), 1, 17);
        check_sorted(rng, dtypes[i], KN_SHAPE(5, 9001), 1, 8000);
    }
    kn_rng_destroy(rng);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(gradients_of_sorted_elements_go_to_their_places),
        OPS_TEST(a_large_gradient_is_zero_where_nothing_was_read),
        OPS_TEST(gradients_leave_those_of_parameters_alone),
        OPS_TEST(values_of_a_used_tape_are_reported_as_such),
        OPS_TEST(gradients_by_values_in_the_middle),
        OPS_TEST(gradients_walk_only_towards_their_targets),
        OPS_TEST(a_watched_value_survives_backward),
        OPS_TEST(a_watched_value_passes_its_gradient_on),
        OPS_TEST(each_gradient_is_a_tensor_of_its_own), OPS_TEST(a_kept_tape_answers_again),
        OPS_TEST(derivatives_of_third_order), OPS_TEST(a_gradient_penalty_reaches_the_parameters),
        OPS_TEST(bad_calls_of_gradients_say_why), OPS_TEST(third_derivatives_have_their_formulas),
        OPS_TEST(second_derivatives_are_the_same_when_they_are_recorded),
        OPS_TEST(derivatives_by_both_inputs_are_differentiated_together),
        OPS_TEST(a_gradient_without_derivatives_is_a_constant),
        OPS_TEST(a_passs_temporaries_end_with_their_node),
        OPS_TEST(a_sums_gradient_is_that_of_ones), OPS_TEST(a_sums_gradient_reaches_parameters),
        OPS_TEST(a_result_that_no_target_reaches_has_the_gradient_zero),
        OPS_TEST(dy_may_be_a_value_of_the_same_tape), OPS_TEST(directions_are_like_their_inputs),
        OPS_TEST(a_hook_starts_no_pass_over_its_tape),
        OPS_TEST(second_derivatives_of_degrees_have_their_formulas),
        OPS_TEST(a_label_outside_the_classes_makes_its_gradient_nan));
}
