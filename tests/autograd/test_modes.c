/* Detached values, products with Jacobians, hooks of parameters, anomaly mode. */
#include <knet/statistics.h>
#include <math.h>

#include "autograd_test.h"

static const kn_gradients_options again = {.again = 1};

/* --- detach --- */

static void a_detached_value_is_a_constant(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    {
        KN_TAPE();
        kn_tensor *y = kn_detach(kn_mul(w, w));
        assert_values(y, 4, 9);
        int64_t n = kn_tape_nodes();
        (void)kn_exp(y);
        assert_int_equal(kn_tape_nodes(), n);
        assert_ok(kn_backward(sum_all(kn_mul(y, w))));
        assert_values(kn_grad(w), 4, 9);
    }
    KN_FRAME();
    assert_op_fails(kn_detach(NULL), KN_ERR_INVALID, "kn_detach: x is NULL");
    kn_params_destroy(set);
}

/* --- perturbations of different derivatives are different --- */

static void an_inner_gradient_is_not_the_outer_ones(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_full(KN_SCALAR, 3)), *y = kn_watch(kn_full(KN_SCALAR, 5));
    kn_tensor *inner = NULL, *outer = NULL;
    /* d/dx (x · d(x + y)/dy) = d(x · 1)/dx = 1, and not 2 */
    assert_ok(kn_gradients(&inner, kn_add(x, y), &y, 1, &again));
    assert_ok(kn_gradients(&outer, kn_mul(x, inner), &x, 1, NULL));
    assert_values(outer, 1);
}

static void an_inner_gradient_at_the_outer_value_is_a_function_of_it(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_full(KN_SCALAR, 3));
    kn_tensor *y = kn_watch(x), *inner = NULL, *outer = NULL;
    /* d/dx (x · d(x·y)/dy) at y = x: d(x · x)/dx = 2x */
    assert_ok(kn_gradients(&inner, kn_mul(x, y), &y, 1, &again));
    assert_ok(kn_gradients(&outer, kn_mul(x, inner), &x, 1, NULL));
    assert_values(outer, 6);
}

/* --- products with the Jacobian: y = (x0·x1, x0²) has rows (x1, x0) and (2·x0, 0) --- */

static kn_tensor *pair(kn_tensor *x0, kn_tensor *x1) {
    return kn_stack((kn_tensor *const[]){kn_mul(x0, x1), kn_mul(x0, x0)}, 2, 0);
}

static void a_gradient_of_y_gives_the_vector_jacobian_product(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x[2] = {kn_watch(kn_full(KN_SCALAR, 3)), kn_watch(kn_full(KN_SCALAR, 5))}, *dx[2];
    kn_tensor *dy = kn_tensor_from((const float[]){10, 100}, KN_F32, KN_SHAPE(2));
    kn_tensor *y = pair(x[0], x[1]);
    kn_gradients_options options = {.keep = 1, .dy = dy};
    assert_ok(kn_gradients(dx, y, x, 2, &options));
    assert_values(dx[0], 10 * 5 + 100 * 6);
    assert_values(dx[1], 10 * 3);
    assert_ok(kn_gradients(dx, y, &y, 1, &options)); /* by itself: dy */
    assert_values(dx[0], 10, 100);
    options.dy = kn_zeros(KN_SHAPE(3));
    assert_fails(kn_gradients(dx, y, x, 2, &options), KN_ERR_SHAPE, "dy is [3], y [2]");
    options.dy = kn_cast(dy, KN_F64);
    assert_fails(kn_gradients(dx, y, x, 2, &options), KN_ERR_DTYPE, "dy is f64, y f32");
}

static void the_jacobian_vector_product_takes_all_directions_at_once(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x[2] = {kn_watch(kn_full(KN_SCALAR, 3)), kn_watch(kn_full(KN_SCALAR, 5))};
    kn_tensor *t[2] = {kn_full(KN_SCALAR, 10), kn_full(KN_SCALAR, 100)}, *dy = NULL;
    kn_tensor *y = pair(x[0], x[1]);
    assert_ok(kn_jvp(&dy, y, x, t, 2));
    assert_values(dy, 5 * 10 + 3 * 100, 6 * 10);
    assert_ok(kn_jvp(&dy, y, x, t, 1)); /* the tape is still there */
    assert_values(dy, 50, 60);
    kn_tensor *apart = kn_watch(kn_full(KN_SHAPE(2), 1));
    assert_ok(kn_jvp(&dy, y, &apart, &apart, 1)); /* y doesn't depend on it */
    assert_values(dy, 0, 0);
    assert_fails(kn_jvp(NULL, y, x, t, 2), KN_ERR_INVALID, "dy or t is NULL");
    assert_fails(kn_jvp(&dy, y, x, t, 0), KN_ERR_INVALID, "n_x < 1");
}

static void the_jacobian_vector_product_takes_inputs_of_several_dtypes(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x[2] = {kn_watch(F32(KN_SHAPE(2), 2, 3)), kn_watch(F64(KN_SHAPE(2), 5, 7))};
    kn_tensor *t[2] = {F32(KN_SHAPE(2), 1, 10), F64(KN_SHAPE(2), 100, 1000)}, *dy = NULL;
    assert_ok(kn_jvp(&dy, kn_mul(kn_cast(x[0], KN_F64), x[1]), x, t, 2));
    assert_int_equal(kn_tensor_dtype(dy), KN_F64);
    assert_close(ops_at(dy, 0), 5 * 1 + 2 * 100, 1e-6, 0);
    assert_close(ops_at(dy, 1), 7 * 10 + 3 * 1000, 1e-6, 0);
}

/* --- a function --- */

static kn_tensor *product(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return kn_mul(kn_mul(x[0], x[1]), x[0]);
}
static kn_tensor *nothing(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    (void)x;
    return NULL;
}

static kn_tensor *keeping_product(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *y = kn_mul(kn_keep(kn_affine(x[0], 2, 0)), x[1]);
    kn_drop(x[0]); /* of the frame around: no-op */
    return kn_keep(y);
}
static void functions_with_a_gradient_may_keep_and_drop(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x[] = {F32(KN_SHAPE(2), 0, 0), F32(KN_SHAPE(2), 3, 4)}, *y = NULL, *dx[2];
    assert_ok(kn_value_and_gradients(&y, dx, keeping_product, NULL, x, 2));
    assert_values(y, 0, 0);
    assert_values(dx[0], 6, 8);
    assert_values(dx[1], 0, 0);
}

static kn_tensor *last_use(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *y = kn_mul(x[0], x[1]);
    kn_drop(x[0]);
    (void)kn_keep(x[1]);
    return y;
}
static kn_tensor *same(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return x[0];
}
static void functions_whose_gradients_are_checked_may_keep_and_drop(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x[] = {F64(KN_SHAPE(2), 1, 2), F64(KN_SHAPE(2), 3, 4)};
    for (int order = 1; order <= 2; order++) {
        assert_ok(kn_gradcheck(keeping_product, NULL, x, 2, order, 1e-8, 1e-9));
        assert_ok(kn_gradcheck(last_use, NULL, x, 2, order, 1e-8, 1e-9));
        assert_ok(kn_gradcheck(same, NULL, x, 1, order, 1e-8, 1e-9));
    }
}

static void a_check_of_gradients_without_a_function_or_inputs_is_an_error(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x[] = {F64(KN_SHAPE(2), 1, 2), F64(KN_SHAPE(2), 3, 4)};
    assert_fails(kn_gradcheck(NULL, NULL, x, 2, 1, 1, 1), KN_ERR_INVALID,
                 "kn_gradcheck: f is NULL");
    assert_fails(kn_gradcheck(same, NULL, NULL, 2, 1, 1, 1), KN_ERR_INVALID,
                 "kn_gradcheck: x is NULL");
    assert_fails(kn_gradcheck(nothing, NULL, x, 2, 1, 1, 1), KN_ERR_INVALID,
                 "kn_gradcheck: f gave no tensor");
}

static void a_functions_value_and_gradients_are_the_callers(void **state) {
    (void)state;
    uint64_t live = ops_live_bytes();
    {
        KN_FRAME();
        kn_tensor *x[] = {F32(KN_SHAPE(2), 2, 3), F32(KN_SHAPE(2), 5, 7)}, *y = NULL, *dx[2];
        for (int i = 0; i < 2; i++) { /* one after the other */
            assert_ok(kn_value_and_gradients(&y, dx, product, NULL, x, 2));
            assert_values(y, 20, 63);
            assert_values(dx[0], 20, 42);
            assert_values(dx[1], 4, 9);
        }
        assert_fails(kn_value_and_gradients(&y, dx, nothing, NULL, x, 2), KN_ERR_INVALID,
                     "f gave no tensor");
        assert_fails(kn_value_and_gradients(&y, dx, product, NULL, x, 0), KN_ERR_INVALID,
                     "0 inputs");
        KN_TAPE();
        assert_fails(kn_value_and_gradients(&y, dx, product, NULL, x, 2), KN_ERR_INVALID, "tape");
    }
    assert_int_equal(ops_live_bytes(), live);
}

/* --- hooks --- */

typedef struct seen {
    kn_tensor *w[8];
    double value[8];
    int n;
} seen;

static void note(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    seen *s = ctx;
    assert_true(s->n < 8);
    s->w[s->n] = w;
    s->value[s->n++] = ops_at(gradient, 0);
}

static void a_hook_sees_each_gradient_once_when_it_is_complete(void **state) {
    (void)state;
    seen s = {.n = 0};
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 2), *b = PARAM(set, KN_SHAPE(1), "b", 3),
              *unused = PARAM(set, KN_SHAPE(1), "c", 4);
    kn_params_on_grad(set, note, &s);
    for (int i = 1; i <= 2; i++) {
        KN_TAPE();
        kn_tensor *y = kn_mul(kn_mul(a, b), a); /* a twice: a²b */
        (void)kn_exp(b);                        /* not part of the loss */
        assert_ok(kn_backward(sum_all(y)));
        assert_int_equal(s.n, 2 * i);
        for (int k = 0; k < 2; k++) { /* gradients add up: there is no step in between */
            bool is_a = s.w[2 * i - 2 + k] == a;
            assert_true(is_a || s.w[2 * i - 2 + k] == b);
            assert_close(s.value[2 * i - 2 + k], i * (is_a ? 12 : 4), 0, 0);
        }
        assert_ptr_not_equal(s.w[2 * i - 2], s.w[2 * i - 1]);
    }
    kn_params_on_grad(set, NULL, NULL);
    KN_TAPE();
    assert_ok(kn_backward(sum_all(kn_mul(unused, b))));
    assert_int_equal(s.n, 4);
    kn_params_destroy(set);
}

static void note_value(void *ctx, kn_tensor *gradient) { note(ctx, NULL, gradient); }
static void refuse(void *ctx, kn_tensor *gradient) {
    (void)ctx;
    (void)kn_cast(gradient, (kn_dtype)99);
}

static void a_hook_of_a_value_sees_its_whole_gradient(void **state) {
    (void)state;
    seen s = {.n = 0};
    kn_tensor *dx = NULL, *ddx = NULL;
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_full(KN_SHAPE(1), 3));
        kn_tensor *h = kn_on_grad(kn_mul(x, x), note_value, &s); /* h = x², y = h² + 2h */
        kn_tensor *y = kn_add(kn_mul(h, h), kn_affine(h, 2, 0));
        assert_values(h, 9);
        assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
        assert_int_equal(s.n, 1);
        assert_close(s.value[0], 2 * 9 + 2, 0, 0);
        assert_values(dx, 20 * 6);
        assert_ok(kn_gradients(&ddx, dx, &x, 1, NULL)); /* y = x⁴ + 2x² */
        assert_values(ddx, 12 * 9 + 4);
    }
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_full(KN_SHAPE(1), 3));
        kn_tensor *y = sum_all(kn_on_grad(x, refuse, NULL));
        assert_fails(kn_gradients(&dx, y, &x, 1, NULL), KN_ERR_DTYPE, "99");
        assert_values(kn_on_grad(kn_full(KN_SHAPE(1), 4), refuse, NULL), 4); /* has no gradient */
        assert_null(kn_on_grad(x, NULL, NULL));
        assert_fails(kn_check(), KN_ERR_INVALID, "fn is NULL");
        assert_op_fails(kn_on_grad(KN_NONE, refuse, NULL), KN_ERR_INVALID,
                        "kn_on_grad: x is KN_NONE");
    }
}

static void a_hook_sees_the_bias_that_relu_delivers(void **state) {
    (void)state;
    seen s = {.n = 0};
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1, 2), "w", 1, 1), *b = PARAM(set, KN_SHAPE(1), "b", 1);
    kn_params_on_grad(set, note, &s);
    KN_TAPE();
    kn_tensor *x = kn_tensor_from((const float[]){1, 2, 3, 4}, KN_F32, KN_SHAPE(2, 2));
    assert_ok(kn_backward(sum_all(kn_relu(kn_linear(x, w, b)))));
    assert_int_equal(s.n, 2);
    assert_ptr_equal(s.w[0], b);
    assert_close(s.value[0], 2, 0, 0);
    assert_ptr_equal(s.w[1], w);
    assert_close(s.value[1], 4, 0, 0);
    kn_params_destroy(set);
}

/* --- anomaly mode --- */

static void the_first_value_that_is_not_finite_names_op_place_and_line(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 2), "w", 1, 2, 0, 4);
    kn_anomaly_set(true);
    assert_true(kn_anomaly_get());
    {
        KN_TAPE();
        KN_TAPE_SCOPE("block");
        KN_TAPE_SCOPE("fc");
        kn_tensor *y = kn_mul(w, w);
        int line = __LINE__ + 1;
        kn_tensor *z = kn_log(y);
        assert_null(z);
        assert_fails(kn_check(), KN_ERR_INVALID,
                     "the result of log in block/fc has -inf at [1,0]; "
                     "its inputs are finite");
        assert_int_equal(kn_last_error()->line, line);
    }
    kn_anomaly_set(false);
    kn_tensor *bad = PARAM(set, KN_SHAPE(2), "bad", 1, NAN);
    {
        KN_TAPE();
        assert_non_null(kn_mul(bad, bad));
        kn_anomaly_set(true);
        assert_null(kn_mul(bad, bad));
        assert_fails(kn_check(), KN_ERR_INVALID, "mul has NaN at [1]; a has NaN at [1], b has NaN");
    }
    kn_anomaly_set(false);
    kn_params_destroy(set);
}

/* Where no number is: the infinity in its place was asked for. */
static void the_infinity_in_the_place_of_a_nan_is_none(void **state) {
    (void)state;
    kn_anomaly_set(true);
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(3), 1, NAN, 2)), *dx = NULL;
        kn_tensor *y = kn_nan_max(x, KN_ALL, false);
        assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
        assert_values(y, 2);
        assert_values(dx, 0, 0, 1);
        assert_null(kn_nan_max(kn_watch(F32(KN_SHAPE(1), NAN)), KN_ALL, false));
        assert_fails(kn_check(), KN_ERR_INVALID, "has -inf at []");
    }
    kn_anomaly_set(false);
}

static void the_slope_of_a_deviation_of_0_is_0(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(3), 2, NAN, 2)), *dx = NULL;
    assert_ok(kn_gradients(&dx, kn_nan_std(x, KN_ALL, false, false), &x, 1, NULL));
    assert_values(dx, 0, 0, 0);
}

/* Beside places, where no share of a neighbour's infinity may come. */
static void interpolation_has_a_gradient_beside_infinities(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x[] = {kn_watch(F32(KN_SHAPE(4), 0, 9, INFINITY, -INFINITY)),
                      kn_watch(F32(KN_SHAPE(2), 1, INFINITY))};
    kn_tensor *y = kn_interp(x[0], F32(KN_SHAPE(2), 0, 1), x[1]), *dx[2];
    assert_values(kn_slice(y, KN_SHAPE(0), KN_SHAPE(1)), 1);
    assert_ok(kn_gradients(dx, y, x, 2, NULL));
    assert_values(dx[0], 0, 0, 0, 0);
    assert_values(dx[1], 2, 2);
}

static kn_status log_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_log(x[0]);
    return KN_OK;
}
static kn_status log_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    dx[0] = dy;
    return KN_OK;
}

static void the_result_of_an_op_of_ones_own_is_looked_at_too(void **state) {
    (void)state;
    static const kn_rule rule = {
        .name = "my_log", .forward = log_forward, .backward = log_backward};
    kn_anomaly_set(true);
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 1, 0));
        assert_null(kn_apply(&rule, &x, 1, NULL, NULL));
        assert_fails(kn_check(), KN_ERR_INVALID,
                     "the result of my_log has -inf at [1]; its inputs are finite");
    }
    kn_anomaly_set(false);
}

static void the_first_gradient_that_is_not_finite_names_op_and_parameter(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "weights", 1, 0);
    kn_anomaly_set(true);
    {
        KN_TAPE();
        kn_tensor *y = sum_all(kn_sqrt(w));
        assert_fails(kn_backward(y), KN_ERR_INVALID, "the gradient of sqrt (");
        assert_non_null(
            strstr(kn_last_error()->message, "by x, the parameter weights has inf at [1]"));
    }
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_zeros(KN_SHAPE(2))), *dx = NULL;
        kn_tensor *y = kn_sqrt(kn_affine(x, 2, 0));
        assert_fails(kn_gradients(&dx, y, &x, 1, NULL), KN_ERR_INVALID, "the gradient of sqrt (");
    }
    kn_anomaly_set(false);
    kn_params_destroy(set);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(a_detached_value_is_a_constant),
                     OPS_TEST(an_inner_gradient_is_not_the_outer_ones),
                     OPS_TEST(an_inner_gradient_at_the_outer_value_is_a_function_of_it),
                     OPS_TEST(a_gradient_of_y_gives_the_vector_jacobian_product),
                     OPS_TEST(the_jacobian_vector_product_takes_all_directions_at_once),
                     OPS_TEST(the_jacobian_vector_product_takes_inputs_of_several_dtypes),
                     OPS_TEST(a_hook_sees_each_gradient_once_when_it_is_complete),
                     OPS_TEST(a_functions_value_and_gradients_are_the_callers),
                     OPS_TEST(functions_with_a_gradient_may_keep_and_drop),
                     OPS_TEST(functions_whose_gradients_are_checked_may_keep_and_drop),
                     OPS_TEST(a_check_of_gradients_without_a_function_or_inputs_is_an_error),
                     OPS_TEST(a_hook_of_a_value_sees_its_whole_gradient),
                     OPS_TEST(a_hook_sees_the_bias_that_relu_delivers),
                     OPS_TEST(the_first_value_that_is_not_finite_names_op_place_and_line),
                     OPS_TEST(the_infinity_in_the_place_of_a_nan_is_none),
                     OPS_TEST(the_slope_of_a_deviation_of_0_is_0),
                     OPS_TEST(interpolation_has_a_gradient_beside_infinities),
                     OPS_TEST(the_result_of_an_op_of_ones_own_is_looked_at_too),
                     OPS_TEST(the_first_gradient_that_is_not_finite_names_op_and_parameter));
}
