/* Every function of arrays with odd input: no elements, no dimensions, NaN and infinity, wrong
 * dtypes and axes, NULL and KN_NONE. Each call gives a tensor that can be read or an error that
 * names the op; and what NumPy and PyTorch give is listed. */
#include "edge_calls.h"

#include <math.h>

/* --- the operands --- */
static const int64_t numbers[] = {0, 1, 2, -1, -2, 9, -9, INT32_MIN, INT64_MAX, INT64_MIN};
static const double reals[] = {0, 1, 0.5, -1, NAN, INFINITY, -INFINITY, 3, 1e308, -0.0};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* A shape or axes of the number: one, none, all, several, of a wrong length. */
static kn_shape odd_axes(int i) {
    const int64_t n = numbers[i];
    const kn_shape choice[] = {{{n}, 1}, {{0}, 0},  {{0}, -1},  {{n, n}, 2},
                               {{n}, 9}, {{n}, -7}, {{n, 1}, 2}};
    return choice[(i * 5) % 7];
}

/* The result can be read whole, or there is an error with an op and a message. */
static void check_call(const edge_call *call, const operands *o) {
    kn_frame frame = kn_frame_begin(NULL);
    kn_tensor *y = call->fn(o);
    if (y && y != KN_NONE) {
        static unsigned char bytes[1 << 16];
        size_t n = (size_t)kn_tensor_numel(y) * kn_dtype_bytes(kn_tensor_dtype(y));
        if (n <= sizeof bytes) assert_ok(kn_copy_out(bytes, n, y));
        if (kn_pending() != KN_OK) fail_msg("%s: a result and an error", call->name);
    } else {
        kn_status status = kn_check();
        const kn_error *error = kn_last_error();
        if (!y && status == KN_OK) fail_msg("%s: NULL without an error", call->name);
        if (!y && !error->op && strncmp(error->message, "kn_", 3) != 0) {
            fail_msg("%s: an error that names no op: %s", call->name, error->message);
        }
        if (!y && status == KN_ERR_INTERNAL) fail_msg("%s: %s", call->name, error->message);
    }
    kn_frame_end(&frame);
}

/* The call with all numbers and second operands that it uses, for one x. */
static void each_operand(const edge_call *call, operands o) {
    const kn_dtype second[] = {kn_tensor_dtype(o.x), KN_I64, KN_BOOL};
    for (int i = 0; i < (call->uses & USES_N ? N_NUMBERS : 1); i++) {
        o.n = numbers[i], o.p = reals[i], o.axes = odd_axes(i);
        if (!(call->uses & USES_Y)) {
            check_call(call, &o);
            continue;
        }
        for (int k = 0; k < 3 * n_edge_shapes; k++) {
            KN_FRAME();
            o.y = edge_odd(edge_shapes[k % n_edge_shapes], second[k / n_edge_shapes]);
            o.z = edge_odd(edge_shapes[(k * 5 + i) % n_edge_shapes], second[(k + i) % 3]);
            check_call(call, &o);
            kn_tensor *y = o.y;
            o.y = o.x, o.z = y;
            check_call(call, &o);
        }
    }
}

static void odd_tensors_give_a_result_or_a_message(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    for (int c = 0; c < n_edge_calls; c++)
        for (int dtype = KN_F32; dtype <= (edge_calls[c].uses & USES_NO_X ? KN_F32 : KN_BOOL);
             dtype++)
            for (int s = 0; s < n_edge_shapes; s++) {
                KN_FRAME();
                kn_tensor *x = edge_odd(edge_shapes[s], (kn_dtype)dtype);
                each_operand(&edge_calls[c], (operands){.x = x, .y = x, .z = x, .rng = rng});
                if (edge_calls[c].uses & USES_NO_X) break;
            }
    kn_rng_destroy(rng);
}

/* NULL, KN_NONE and no generator, in each place. */
static void absent_operands_give_a_message(void **state) {
    (void)state;
    for (int c = 0; c < n_edge_calls; c++)
        for (int i = 1; i < 27; i++) {
            KN_FRAME();
            kn_tensor *choice[] = {edge_odd(KN_SHAPE(2, 2), KN_F32), NULL, KN_NONE};
            operands o = {.x = choice[i % 3], .y = choice[i / 3 % 3], .z = choice[i / 9]};
            o.n = 0, o.p = 0.5, o.axes = KN_SHAPE(0);
            check_call(&edge_calls[c], &o);
            if (!o.x && !(edge_calls[c].uses & USES_NO_X)) {
                if (edge_calls[c].fn(&o)) fail_msg("%s: a result of NULL", edge_calls[c].name);
                assert_int_not_equal(kn_check(), KN_OK);
            }
        }
    assert_op_fails(kn_filled_like(NULL, 1), KN_ERR_INVALID, "like is NULL");
}

/* --- what NumPy and PyTorch give --- */
static kn_tensor *first(kn_status status, kn_tensor **a) { return status < 0 ? NULL : *a; }

static void expect(const char *what, kn_tensor *y, int n, const double want[]) {
    if (!y) {
        kn_status status = kn_check();
        fail_msg("%s: %d: %s", what, status, kn_last_error()->message);
    }
    if (kn_tensor_numel(y) != n) fail_msg("%s: %d elements", what, (int)kn_tensor_numel(y));
    kn_tensor *all = kn_cast(kn_reshape(y, KN_SHAPE(n)), KN_F64);
    for (int i = 0; i < n; i++) {
        double got = ops_at(all, i);
        bool same = isnan(want[i]) ? isnan(got) : got == want[i] || fabs(got - want[i]) < 1e-5;
        if (!same) fail_msg("%s[%d] is %g, not %g", what, i, got, want[i]);
    }
}
#define ITEMS(...) KN_ITEMS(__VA_ARGS__)
#define EXPECT(expr, ...)                                                                          \
    expect(#expr, expr, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),                   \
           (const double[]){__VA_ARGS__})
#define EXPECT_EMPTY(expr) expect(#expr, expr, 0, NULL)
#define X(...) F32(KN_SHAPE(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), __VA_ARGS__)
#define INF INFINITY

static void reductions_of_nan_and_infinity_are_numpys(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = X(1, NAN, 2), *y = X(INF, -INF, 1), *a, *b;
    EXPECT(kn_sum(x, KN_ALL, false), NAN);
    EXPECT(kn_max(x, KN_ALL, false), NAN);
    EXPECT(kn_min(x, KN_ALL, false), NAN);
    EXPECT(kn_max_abs(x, KN_ALL, false), NAN);
    EXPECT(kn_argmax(x, KN_ALL, false), 1);
    EXPECT(kn_argmin(x, KN_ALL, false), 1);
    EXPECT(first(kn_max_index(&a, &b, x, KN_SHAPE(0), false), &b), 1);
    EXPECT(kn_norm(x, INF, KN_ALL, false), NAN);
    EXPECT(kn_any(X(NAN, 0), KN_ALL, false), 1);
    EXPECT(kn_count_nonzero(x, KN_ALL, false), 3);
    EXPECT(kn_sum(y, KN_ALL, false), NAN);
    EXPECT(kn_max(y, KN_ALL, false), INF);
    EXPECT(kn_argmin(y, KN_ALL, false), 1);
    EXPECT(kn_argmax(X(-INF, -INF), KN_ALL, false), 0);
    EXPECT(kn_norm(y, 2, KN_ALL, false), INF);
    EXPECT(kn_logsumexp(X(-INF, -INF), KN_ALL, false), -INF);
    EXPECT(kn_logsumexp(X(INF, 1), KN_ALL, false), INF);
    EXPECT(kn_logsumexp(X(INF, -INF), KN_ALL, false), INF);
    EXPECT(kn_softmax(X(0, -INF), 0), 1, 0);
    EXPECT(kn_softmax(X(-INF, -INF), 0), NAN, NAN);
    EXPECT(kn_std(X(5), KN_ALL, false, NULL), NAN);
    EXPECT(kn_var(X(5), KN_ALL, false, &(kn_var_options){.population = 1}), 0);
}

static void scans_and_orders_of_nan_and_infinity_are_numpys(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = X(3, NAN, -INF, INF, 1), *a, *b;
    EXPECT(kn_sort(x, 0, false), -INF, 1, 3, INF, NAN);
    EXPECT(kn_sort(x, 0, true), NAN, INF, 3, 1, -INF);
    EXPECT(kn_argsort(x, 0, false), 2, 4, 0, 3, 1);
    EXPECT(first(kn_topk(&a, &b, x, 2, 0, false), &a), NAN, INF);
    EXPECT(first(kn_topk(&a, &b, x, 2, 0, true), &a), -INF, 1);
    EXPECT_EMPTY(first(kn_topk(&a, &b, x, 0, 0, true), &b));
    EXPECT(kn_cumsum(X(1, NAN, 2), 0), 1, NAN, NAN);
    EXPECT(kn_cumsum(X(INF, -INF, 1), 0), INF, NAN, NAN);
    EXPECT(kn_cumprod(X(0, INF, 1), 0), 0, NAN, NAN);
    EXPECT_EMPTY(kn_cumsum(kn_zeros(KN_SHAPE(0)), 0));
    EXPECT_EMPTY(kn_sort(kn_zeros(KN_SHAPE(2, 0)), -1, false));
    EXPECT_EMPTY(kn_argsort(kn_zeros(KN_SHAPE(0, 3)), 0, true));
}

static void reductions_of_no_elements_are_numpys(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 0));
    EXPECT(kn_sum(x, KN_SHAPE(1), false), 0, 0);
    EXPECT_EMPTY(kn_max(x, KN_SHAPE(0), false));
    EXPECT(kn_prod(x, KN_ALL, false), 1);
    EXPECT(kn_mean(x, KN_ALL, false), NAN);
    EXPECT(kn_var(x, KN_ALL, false, NULL), NAN);
    EXPECT(kn_any(x, KN_ALL, false), 0);
    EXPECT(kn_all(x, KN_ALL, false), 1);
    EXPECT(kn_norm(x, 2, KN_ALL, false), 0);
    EXPECT(kn_logsumexp(x, KN_ALL, false), -INF);
    assert_op_fails(kn_max(x, KN_ALL, false), KN_ERR_SHAPE, "no elements");
    assert_op_fails(kn_argmin(x, KN_SHAPE(1), false), KN_ERR_SHAPE, "no elements");
    EXPECT(kn_dot(kn_zeros(KN_SHAPE(0)), kn_zeros(KN_SHAPE(0))), 0);
    EXPECT(kn_trace(kn_zeros(KN_SHAPE(0, 0))), 0);
    EXPECT(kn_det(kn_zeros(KN_SHAPE(0, 0))), 1);
    EXPECT(kn_logdet(kn_zeros(KN_SHAPE(0, 0))), 0);
    EXPECT_EMPTY(kn_inverse(kn_zeros(KN_SHAPE(0, 0))));
    EXPECT(KN_EINSUM("ij->i", x), 0, 0);
    EXPECT_EMPTY(kn_kron(x, kn_ones(KN_SHAPE(2, 2))));
    EXPECT(kn_concat((kn_tensor *const[]){x, kn_ones(KN_SHAPE(2, 1))}, 2, 1), 1, 1);
}

static void inverses_of_reciprocals_have_edges(void **state) {
    (void)state;
    KN_FRAME();
    const double pi = 3.14159265;
    EXPECT(kn_asec(X(1, -1, INF, -INF, 1e30F, -1e30F)), 0, pi, pi / 2, pi / 2, pi / 2, pi / 2);
    EXPECT(kn_acsc(X(1, -1, INF, 1e30F, -1e30F)), pi / 2, -pi / 2, 0, 1e-30, -1e-30);
    EXPECT(kn_acoth(X(1, -1, INF, 1e30F, -1e30F)), INF, -INF, 0, 1e-30, -1e-30);
    EXPECT(kn_asec(X(0, 0.5F, -0.5F, NAN)), NAN, NAN, NAN, NAN);
    EXPECT(kn_acsc(X(0, 0.5F, -0.5F, NAN)), NAN, NAN, NAN, NAN);
    EXPECT(kn_acoth(X(0, 0.5F, -0.5F, NAN)), NAN, NAN, NAN, NAN);
    EXPECT(kn_asech(X(-0.0F, -0.3F, -2, INF, -INF)), NAN, NAN, NAN, NAN, NAN);
}

static void pointwise_edges_are_numpys(void **state) {
    (void)state;
    KN_FRAME();
    EXPECT(kn_maximum(X(NAN, 1), X(1, NAN)), NAN, NAN);
    EXPECT(kn_pow(X(NAN, 1, 0, -8), X(0, NAN, -1, 0.5F)), 1, 1, INF, NAN);
    EXPECT(kn_hypot(X(INF, 3e30F), X(NAN, 4e30F)), INF, 5e30F);
    EXPECT(kn_fmod(X(1, 5, -5), X(0, INF, 3)), NAN, 5, -2);
    EXPECT(kn_remainder(X(1, 5, -5), X(0, INF, 3)), NAN, 5, 1);
    EXPECT(kn_copysign(X(1, 2), X(-0.0F, 3)), -1, 2);
    EXPECT(kn_atan2(X(0, -0.0F, INF), X(-0.0F, -1, -INF)), 3.14159265, -3.14159265, 2.35619449);
    EXPECT(kn_xlogy(X(0, 0, 0, 2), X(0, INF, NAN, 0)), 0, 0, NAN, -INF);
    EXPECT(kn_logaddexp(X(-INF, INF, INF), X(-INF, INF, -INF)), -INF, INF, INF);
    EXPECT(kn_clamp(X(NAN, INF, -INF), -1, 1), NAN, 1, -1);
    EXPECT(kn_clamp(X(NAN, 0, 1, 2, 3, 4), 3, 1), NAN, 1, 1, 1, 1, 1);
    EXPECT(kn_lerp(X(3e8F, 3e8F, 1), X(1, 1, 3), X(1, 0, 0.5F)), 1, 3e8F, 2);
    EXPECT(kn_relu(X(NAN, -INF, INF)), NAN, 0, INF);
    EXPECT(kn_round(X(0.5F, 1.5F, 2.5F, -0.5F)), 0, 2, 2, 0);
    EXPECT(kn_sqrt(X(-1, 0, INF)), NAN, 0, INF);
    EXPECT(kn_coth(X(0, -0.0F, -INF, NAN)), INF, -INF, -1, NAN);
    EXPECT(kn_asech(X(-1, 0, 1e-39F, 1, 2)), NAN, INF, 90.4939656, 0, NAN);
    EXPECT(kn_acsch(X(0, -0.0F, -1e-39F, INF, NAN)), INF, -INF, -90.4939656, 0, NAN);
    EXPECT(kn_log1p(X(-1, -2, INF)), -INF, NAN, INF);
    EXPECT(kn_expm1(X(-INF, 1000)), -1, INF);
    EXPECT(kn_softplus(X(1000, -1000, -INF)), 1000, 0, 0);
    EXPECT(kn_logsigmoid(X(-1000, 1000, INF)), -1000, 0, 0);
    EXPECT(kn_tanh(X(INF, -INF, NAN)), 1, -1, NAN);
    EXPECT(kn_sigm(X(-1000, INF, NAN)), 0, 1, NAN);
    EXPECT(kn_lgamma(X(0, -1, INF, -INF, 1, NAN)), INF, INF, INF, INF, 0, NAN);
    EXPECT(kn_gamma(X(0, INF, 5)), INF, INF, 24);
    EXPECT(kn_polygamma(X(1, 2), INF), NAN, NAN); /* once without an end */
    EXPECT(kn_polygamma(X(1, 2), 171), NAN, NAN);
    EXPECT(kn_polygamma(X(-1, -INF, -4e7F), 2), NAN, NAN, NAN);
    EXPECT(kn_polygamma(X(-1, -INF, -4e7F), 3), INF, NAN, INF);
    EXPECT(kn_besselj(X(1, INF), INF), NAN, NAN);
    EXPECT(kn_bessely(X(1, 2), 2e9), NAN, NAN);
    EXPECT(kn_erfinv(X(1, -1, 2, 0)), INF, -INF, NAN, 0);
    EXPECT(kn_logit(X(0, 1, 0.5F)), -INF, INF, 0);
    EXPECT(kn_sin(X(INF, NAN)), NAN, NAN);
    EXPECT(kn_isclose(X(INF, NAN, 1, INF), X(INF, NAN, INF, -INF), 0.1, 0.1), 1, 0, 0, 0);
    EXPECT(kn_logical_not(X(NAN, 0, 2)), 0, 1, 0);
    EXPECT(kn_eq(X(NAN, INF), X(NAN, INF)), 0, 1);
    EXPECT(kn_where(kn_gt(X(1, NAN), X(0, 0)), X(NAN, 1), X(2, 3)), NAN, 3);
    EXPECT(kn_matmul(kn_zeros(KN_SHAPE(1, 1)), kn_full(KN_SHAPE(1, 1), INF), NULL), NAN);
}

static void selections_at_the_edges_are_numpys(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = X(1, 2, 3, 4, 5), *none = kn_zeros(KN_SHAPE(0));
    EXPECT(kn_index(x, ITEMS(KN_RANGE(KN_BEGIN, KN_END, -2))), 5, 3, 1);
    EXPECT(kn_index(x, ITEMS(KN_RANGE(3, 0, -2))), 4, 2);
    EXPECT(kn_index(x, ITEMS(KN_RANGE(-2, -100, -1))), 4, 3, 2, 1);
    EXPECT(kn_index(x, ITEMS(KN_RANGE(100, KN_END, INT64_MIN))), 5);
    EXPECT_EMPTY(kn_index(x, ITEMS(KN_RANGE(1, 4, -1))));
    EXPECT_EMPTY(kn_index(x, ITEMS(KN_RANGE(7, 100, 1))));
    EXPECT_EMPTY(kn_index(none, ITEMS(KN_RANGE(KN_BEGIN, KN_END, -1))));
    assert_op_fails(kn_index(x, ITEMS(KN_RANGE(0, 3, 0))), KN_ERR_SHAPE, "step");
    assert_null(kn_index(x, ITEMS(KN_AT(5))));
    assert_fails(kn_check(), KN_ERR_SHAPE, "5");
    assert_null(kn_index(none, ITEMS(KN_AT(0))));
    assert_int_not_equal(kn_check(), KN_OK);
    EXPECT(kn_set_at(x, X(0), ITEMS(KN_RANGE(KN_BEGIN, KN_END, -2))), 0, 2, 0, 4, 0);
    EXPECT(kn_roll(x, -6, 0), 2, 3, 4, 5, 1);
    EXPECT_EMPTY(kn_roll(none, 3, 0));
    EXPECT_EMPTY(kn_flip(none, KN_ALL));
    EXPECT_EMPTY(kn_repeat(x, 0, 0));
    EXPECT_EMPTY(kn_tile(x, KN_SHAPE(0)));
    EXPECT_EMPTY(kn_nonzero(kn_zeros(KN_SHAPE(3))));
    EXPECT_EMPTY(kn_arange(3, 1, 1, KN_F32));
    EXPECT(kn_arange(3, 1, -1, KN_I64), 3, 2);
    EXPECT(kn_linspace(3, 9, 1), 3);
    EXPECT_EMPTY(kn_linspace(3, 9, 0));
    EXPECT_EMPTY(kn_eye(0, 3));
    EXPECT(kn_one_hot(I64(KN_SHAPE(2), 1, 7), 2), 0, 1, 0, 0);
    EXPECT(kn_triu(kn_ones(KN_SHAPE(2, 2)), 5), 0, 0, 0, 0);
    EXPECT(kn_tril(kn_full(KN_SHAPE(2, 2), NAN), INT64_MIN), 0, 0, 0, 0);
    EXPECT(kn_index_select(x, I64(KN_SHAPE(2), -1, 0), 0), 5, 1);
    assert_op_fails(kn_index_select(x, I64(KN_SHAPE(1), -6), 0), KN_ERR_INVALID, "-6");
}

static void orders_that_name_no_function_are_refused(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = X(1, 2);
    assert_op_fails(kn_besselj(x, 2.5), KN_ERR_INVALID,
                    "kn_besselj: n is 2.5; it must be an integer");
    assert_op_fails(kn_bessely(x, NAN), KN_ERR_INVALID, "kn_bessely: n is nan; ");
    assert_op_fails(kn_polygamma(x, 1.5), KN_ERR_INVALID,
                    "kn_polygamma: n is 1.5; it must be an integer of at least 0");
    assert_op_fails(kn_polygamma(x, -1), KN_ERR_INVALID, "kn_polygamma: n is -1; ");
    assert_op_fails(kn_polygamma(x, NAN), KN_ERR_INVALID, "kn_polygamma: n is nan; ");
    EXPECT(kn_polygamma(X(1), -0.0), -0.5772156649);
    EXPECT(kn_besselj(X(1), -1), -0.4400505857); /* J_-1 is -J_1 */
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(odd_tensors_give_a_result_or_a_message), OPS_TEST(absent_operands_give_a_message),
        OPS_TEST(reductions_of_nan_and_infinity_are_numpys),
        OPS_TEST(scans_and_orders_of_nan_and_infinity_are_numpys),
        OPS_TEST(reductions_of_no_elements_are_numpys), OPS_TEST(pointwise_edges_are_numpys),
        OPS_TEST(inverses_of_reciprocals_have_edges),
        OPS_TEST(orders_that_name_no_function_are_refused),
        OPS_TEST(selections_at_the_edges_are_numpys));
}
