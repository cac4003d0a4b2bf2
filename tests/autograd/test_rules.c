/* Walks the table of ops: each has a gradient rule or the word nograd, and each rule is checked
 * against differences in f64, for first and second derivatives. */
#include "grad_cases.h"

static void check_case(const grad_case *c, void *ctx, int order) {
    kn_status status = grad_check(c, ctx, order);
    if (status < 0) print_error("case %s (%s)\n", c->text, kn_op_name(c->op));
    assert_ok(status);
}

/* Like shapes, and shapes that are broadcast. */
static void check_rows(int order) {
    const kn_shape all = KN_SHAPE(2, 3, 4), row = KN_SHAPE(4), column = KN_SHAPE(2, 1, 1);
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (!grad_is_row(op)) continue;
        kn_op which = (kn_op)op;
        grad_case same = grad_row_case(which, all, all, all);
        check_case(&same, &which, order);
        if (same.n_x == 1) continue;
        grad_case first = grad_row_case(which, row, all, column);
        check_case(&first, &which, order);
        grad_case last = grad_row_case(which, column, row, all);
        check_case(&last, &which, order);
    }
}

static void every_op_has_a_rule_or_nograd(void **state) {
    (void)state;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (kn_op_rule(op) == KN_RULE_MISSING) fail_msg("%s has no rule", kn_op_name((kn_op)op));
    }
}

static bool has_case(int op) {
    for (int i = 0; i < n_grad_cases; i++) {
        if ((int)grad_cases[i].op == op) return true;
    }
    if (kn_op_table[op].row) return true; /* the walk over rows has it */
    return op == KN_OP_to; /* needs two devices: moving_to_another_device_moves_the_gradient_back */
}

static void every_rule_has_a_case(void **state) {
    (void)state;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (kn_op_rule(op) == KN_RULE_GRADIENT && !has_case(op)) {
            fail_msg("%s has a rule and no case", kn_op_name((kn_op)op));
        }
    }
}

static void first_derivatives_agree_with_differences(void **state) {
    (void)state;
    for (int i = 0; i < n_grad_cases; i++) check_case(&grad_cases[i], NULL, 1);
    check_rows(1);
}

static void second_derivatives_agree_with_differences(void **state) {
    (void)state;
    for (int i = 0; i < n_grad_cases; i++) {
        if (!grad_cases[i].once) check_case(&grad_cases[i], NULL, 2);
    }
    check_rows(2);
}

/* The op's, not those of functions that are made of it. */
static void ops_marked_once_and_no_others_have_no_second_gradient(void **state) {
    (void)state;
    for (int i = 0; i < n_grad_cases; i++) {
        kn_op op = (kn_op)grad_cases[i].op;
        const char *name = op == KN_OP_ctc ? "ctc_loss" : kn_op_name(op);
        bool once = kn_op_table[op].flags & KN_FLAG_ONCE;
        if (once != grad_cases[i].once) fail_msg("case %s (%s)", grad_cases[i].text, name);
        if (!once) continue; /* second_derivatives_agree_with_differences */
        char message[96];
        snprintf(message, sizeof message, "kn_%s: its gradient can't be differentiated again",
                 name);
        assert_fails(grad_check(&grad_cases[i], NULL, 2), KN_ERR_UNSUPPORTED, message);
    }
}

static void qr_of_more_columns_than_rows_has_no_gradient(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *a = kn_watch(F32(KN_SHAPE(2, 3), 1, 2, 3, 4, 5, 7)), *q, *r, *dx;
    assert_ok(kn_qr(&q, &r, a));
    assert_fails(kn_gradients(&dx, sum_all(r), &a, 1, NULL), KN_ERR_UNSUPPORTED,
                 "kn_qr: a of more columns (3) than rows (2) has no gradient");
}

/* --- where differences don't reach --- */

static void gradient_at(double *out, kn_tensor *y, kn_tensor *x) {
    kn_tensor *dx = NULL;
    assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.keep = 1}));
    assert_ok(kn_copy_out(out, (size_t)kn_tensor_numel(x) * sizeof *out, dx));
}

static void pow_is_safe_at_base_zero(void **state) {
    (void)state;
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x = kn_watch(F64(KN_SHAPE(3), 0, 0, 2));
    kn_tensor *y = kn_watch(F64(KN_SHAPE(3), 2, 0, 3));
    kn_tensor *z = kn_pow(x, y);
    double dx[3], dy[3];
    gradient_at(dx, z, x);
    gradient_at(dy, z, y);
    assert_close(dx[0], 0, 0, 0);
    assert_close(dx[1], 0, 0, 0);
    assert_close(dx[2], 12, 1e-12, 0);
    assert_close(dy[0], 0, 0, 0);
    assert_close(dy[1], 0, 0, 0);
    assert_close(dy[2], 8 * 0.69314718055994530942, 1e-12, 0);
}

static void ties_share_the_gradient(void **state) {
    (void)state;
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x = kn_watch(F64(KN_SHAPE(4), 3, 1, 3, 3));
    double dx[4], dy[2];
    gradient_at(dx, kn_max(x, KN_ALL, false), x);
    assert_close(dx[0], 1.0 / 3, 1e-15, 0);
    assert_close(dx[1], 0, 0, 0);
    assert_close(dx[3], 1.0 / 3, 1e-15, 0);
    kn_tensor *y = kn_watch(F64(KN_SHAPE(2), 1, 2));
    gradient_at(dy, kn_maximum(y, F64(KN_SHAPE(2), 1, 1)), y);
    assert_close(dy[0], 0.5, 0, 0);
    assert_close(dy[1], 1, 0, 0);
}

/* Window i of n of a dimension: from ⌊i·S/n⌋ to ⌈(i + 1)·S/n⌉ - 1. The first in memory of its
 * largest elements. */
static int64_t first_largest(const double *x, int64_t i, int64_t j, const kn_shape *size) {
    enum { ROWS = 40, COLUMNS = 38 };
    int64_t n = size->dim[0], m = size->dim[1], best = -1;
    for (int64_t r = i * ROWS / n; r < ((i + 1) * ROWS + n - 1) / n; r++)
        for (int64_t c = j * COLUMNS / m; c < ((j + 1) * COLUMNS + m - 1) / m; c++)
            if (best < 0 || x[r * COLUMNS + c] > x[best]) best = r * COLUMNS + c;
    return best;
}

/* Windows of 12 to 1520 elements: more than 256 have another way. */
static void the_first_of_tied_elements_gets_the_gradient_of_a_pool(void **state) {
    (void)state;
    const kn_shape sizes[] = {KN_SHAPE(1, 1), KN_SHAPE(2, 2), KN_SHAPE(3, 2),
                              KN_SHAPE(2, 3), KN_SHAPE(1, 2), KN_SHAPE(11, 10)};
    double data[40 * 38], dx[40 * 38], want[40 * 38];
    for (int64_t k = 0; k < 40 * 38; k++) data[k] = (double)(k * 37 % 11 % 3);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        KN_TAPE(.dtype = KN_F64);
        kn_tensor *x = kn_watch(kn_tensor_from(data, KN_F64, KN_SHAPE(1, 1, 40, 38)));
        gradient_at(dx, kn_sum(kn_adaptive_maxpool(x, sizes[s]), KN_ALL, false), x);
        memset(want, 0, sizeof want);
        for (int64_t i = 0; i < sizes[s].dim[0]; i++)
            for (int64_t j = 0; j < sizes[s].dim[1]; j++)
                want[first_largest(data, i, j, &sizes[s])]++;
        for (int64_t k = 0; k < 40 * 38; k++) assert_true(dx[k] == want[k]);
        if (s > 0) continue;
        gradient_at(dx, kn_global_maxpool(x), x);
        for (int64_t k = 0; k < 40 * 38; k++) assert_true(dx[k] == want[k]);
    }
}

static void a_cast_to_f32_gives_its_gradient_back_in_f64(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F64(KN_SHAPE(2), 1, 2)), *dx = NULL;
    kn_tensor *y = kn_cast(x, KN_F32);
    assert_ok(kn_gradients(&dx, kn_mul(y, y), &x, 1, NULL));
    assert_int_equal(kn_tensor_dtype(dx), KN_F64);
    assert_values(dx, 2, 4);
}

static void moving_to_another_device_moves_the_gradient_back(void **state) {
    (void)state;
    kn_device *sim = NULL;
    if (kn_device_find(&sim, "sim") < 0) skip();
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 1, 2)), *dx = NULL;
    kn_tensor *y = kn_to(x, sim);
    assert_non_null(y);
    assert_ptr_equal(kn_tensor_device(y), sim);
    assert_ok(kn_gradients(&dx, kn_exp(y), &x, 1, NULL));
    assert_ptr_equal(kn_tensor_device(dx), kn_device_host());
    assert_shape(dx, KN_SHAPE(2));
}

/* a is spoiled after the first solution: its factors are read in its place. */
/* The kernel's, and the one made of ops: of 16 bits both are computed in f32. */
static void activations_of_layers_have_one_gradient(void **state) {
    (void)state;
    static const kn_act acts[] = {KN_ACT_RELU, KN_ACT_SIGM, KN_ACT_TANH};
    static const kn_dtype dtypes[] = {KN_F64, KN_F16};
    for (int i = 0; i < 6; i++) {
        kn_tensor *dr[2];
        KN_FRAME();
        for (int again = 0; again < 2; again++) {
            KN_TAPE();
            kn_tensor *values =
                kn_tensor_from((const double[]){-1.5, 0.25, 0.5, 2}, KN_F64, KN_SHAPE(2, 2));
            kn_tensor *r = kn_watch(kn_cast(values, dtypes[i / 3])),
                      *w = kn_cast(kn_eye(2, 2), dtypes[i / 3]);
            kn_tensor *y = kn_linear_add(r, w, KN_NONE, r, acts[i % 3]);
            const kn_gradients_options o = {.again = again,
                                            .dy = kn_cast(kn_affine(values, 3, 1), dtypes[i / 3])};
            assert_ok(kn_gradients(&dr[again], y, &r, 1, &o));
            dr[again] = kn_keep(kn_cast(dr[again], KN_F64));
        }
        double tolerance = dtypes[i / 3] == KN_F64 ? 1e-14 : 0;
        for (int k = 0; k < 4; k++)
            assert_close(ops_at(dr[1], k), ops_at(dr[0], k), tolerance, tolerance);
    }
}

static void gradients_of_solutions_factor_nothing_again(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        KN_TAPE(.dtype = KN_F64);
        kn_tensor *a = kn_watch(F64(KN_SHAPE(2, 2), 0, 2, 4, 0)), *sign, *y, *d[2];
        kn_tensor *b = kn_watch(F64(KN_SHAPE(2, 1), 6, 8));
        y = way == 0 ? kn_solve(a, b, NULL) : kn_det(a); /* x = 2, 3; -8 */
        if (way == 2) assert_ok(kn_slogdet(&sign, &y, a));
        assert_non_null(y);
        memset((void *)(uintptr_t)kn_data(a), 0, 4 * sizeof(double));
        assert_ok(kn_gradients(d, kn_sum(y, KN_ALL, false), KN_LIST_(a, b), way ? 1 : 2, NULL));
        if (way == 0) {
            assert_values(d[1], 0.5, 0.25);
            assert_values(d[0], -1, -1.5, -0.5, -0.75);
        } else if (way == 1) {
            assert_values(d[0], 0, -4, -2, 0);
        } else {
            assert_values(d[0], 0, 0.5, 0.25, 0);
        }
    }
}

static void a_solution_without_columns_has_gradients(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *a = kn_watch(F32(KN_SHAPE(2, 2), 1, 0, 0, 1)),
              *b = kn_watch(kn_ones(KN_SHAPE(2, 0)));
    kn_tensor *d[2];
    assert_ok(
        kn_gradients(d, kn_sum(kn_solve(a, b, NULL), KN_ALL, false), KN_LIST_(a, b), 2, NULL));
    assert_values(d[0], 0, 0, 0, 0);
    assert_shape(d[1], KN_SHAPE(2, 0));
}

/* --- properties --- */

/* The gradient of Σ (a·u + b·v)·f(x) is a times that of Σ u·f plus b times that of Σ v·f. */
static void backward_is_linear_in_the_incoming_gradient(void **state) {
    (void)state;
    for (int i = 0; i < n_grad_cases; i++) {
        const grad_case *c = &grad_cases[i];
        KN_TAPE(.dtype = KN_F64);
        kn_tensor *x[4], *du[4], *dv[4], *dw[4];
        grad_fill(x, c);
        for (int j = 0; j < c->n_x; j++) x[j] = kn_watch(x[j]);
        kn_tensor *y = c->f(NULL, x);
        assert_non_null(y);
        kn_rng *rng = NULL;
        assert_ok(kn_rng_create(&rng, test_random()));
        kn_tensor *u = kn_uniform(kn_tensor_shape(y), -1, 1, rng);
        kn_tensor *v = kn_uniform(kn_tensor_shape(y), -1, 1, rng);
        kn_tensor *w = kn_add(kn_affine(u, 3, 0), kn_affine(v, -2, 0));
        kn_gradients_options keep = {.keep = 1};
        assert_ok(kn_gradients(du, sum_all(kn_mul(y, u)), x, c->n_x, &keep));
        assert_ok(kn_gradients(dv, sum_all(kn_mul(y, v)), x, c->n_x, &keep));
        assert_ok(kn_gradients(dw, sum_all(kn_mul(y, w)), x, c->n_x, &keep));
        for (int j = 0; j < c->n_x; j++) {
            for (int64_t k = 0; k < kn_tensor_numel(x[j]); k++) {
                double want = 3 * ops_at(du[j], k) - 2 * ops_at(dv[j], k);
                assert_close(ops_at(dw[j], k), want, 1e-11, 1e-11);
            }
        }
        kn_rng_destroy(rng);
    }
}

/* One of two gradients takes the place of the one that both are made from, unless they are
 * recorded.
 */
static void gradients_in_place_are_those_of_recorded_ones(void **state) {
    (void)state;
    static const int64_t sizes[] = {16, 1024, 1025, 70001};
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16};
    for (int i = 0; i < 12; i++) {
        const kn_shape shape = KN_SHAPE(sizes[i % 4]);
        KN_TAPE(.threads = 2);
        kn_tensor *x[2];
        for (int k = 0; k < 2; k++) x[k] = kn_watch(kn_cast(kn_full(shape, 2 - k), dtypes[i / 4]));
        kn_tensor *z = kn_tanh(kn_mul(kn_sqrt(x[0]), kn_exp(x[1]))), *want[2], *got[2];
        assert_ok(kn_gradients(got, z, x, 2, &(kn_gradients_options){.keep = 1}));
        assert_ok(kn_gradients(want, z, x, 2, &(kn_gradients_options){.again = 1}));
        for (int k = 0; k < 2; k++) {
            kn_tensor *a = kn_cast(got[k], KN_F64), *b = kn_cast(want[k], KN_F64);
            assert_true(ops_at(b, 0) != 0);
            for (int64_t at = 0; at < sizes[i % 4]; at++) {
                assert_close(ops_at(a, at), ops_at(b, at), 0, 0);
            }
        }
    }
}

/* Windows that reach nothing but what the padding cuts: zeros and the bias, whose gradient alone is
 * not zero. */
static void transposed_convolutions_may_reach_nothing(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *in[3] = {kn_watch(F32(KN_SHAPE(1, 1, 1), 3)), kn_watch(F32(KN_SHAPE(1, 1, 1), 5)),
                        kn_watch(F32(KN_SHAPE(1), 7))};
    kn_tensor *d[3];
    for (int64_t padding = 1; padding < 3; padding++) {
        const kn_conv_options o = {
            .stride = {4}, .padding = {padding}, .padding_extra = {-padding - 2}};
        kn_tensor *y = kn_deconv(in[0], in[1], in[2], &o);
        assert_shape(y, KN_SHAPE(1, 1, 3 - padding));
        assert_ok(kn_gradients(d, sum_all(y), in, 3, &(kn_gradients_options){.keep = 1}));
        assert_true(ops_at(y, 0) == 7 && ops_at(y, 2 - padding) == 7);
        assert_values(d[0], 0);
        assert_values(d[1], 0);
        assert_values(d[2], 3 - (double)padding);
    }
    /* of one dimension of two */
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(2, 3, 1, 2))), *w = kn_ones(KN_SHAPE(3, 2, 2, 2));
    const kn_conv_options o = {.padding = {2}, .padding_extra = {-5, -1}};
    kn_tensor *y = kn_deconv(x, w, KN_NONE, &o);
    assert_shape(y, KN_SHAPE(2, 2, 3, 4));
    assert_ok(kn_gradients(d, sum_all(y), &x, 1, &(kn_gradients_options){.keep = 1}));
    assert_shape(d[0], KN_SHAPE(2, 3, 1, 2));
    assert_values(sum_all(kn_square(y)), 0);
    assert_values(sum_all(kn_square(d[0])), 0);
}

/* Those of singular vectors don't: PyTorch's numbers. And of 1/x, orders 1 to 4. */
static void pseudoinverses_have_derivatives_where_singular_values_are_equal(void **state) {
    (void)state;
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *a = kn_watch(F64(KN_SHAPE(3, 2), 1, 1, 1, -1, 0, 0)), *g = NULL;
    assert_ok(kn_gradients(&g, kn_sum(kn_pinv(a, -1), KN_ALL, false), &a, 1, NULL));
    const double want[] = {-1, 0, 0, 0, 0.5, 0.5}, orders[] = {-0.25, 0.25, -0.375, 0.75};
    for (int i = 0; i < 6; i++) assert_close(ops_at(g, i), want[i], 0, 1e-14);
    kn_tensor *low = kn_watch(F64(KN_SHAPE(2, 2), 2, 0, 0, 0));
    assert_ok(kn_gradients(&g, kn_sum(kn_pinv(low, -1), KN_ALL, false), &low, 1, NULL));
    for (int i = 0; i < 4; i++)
        assert_close(ops_at(g, i), i ? (i < 3 ? 0.25 : 0) : -0.25, 0, 1e-14);
    kn_tensor *x = kn_watch(F64(KN_SHAPE(1, 1), 2)), *y = kn_pinv(x, -1);
    for (int i = 0; i < 4; i++) {
        assert_ok(kn_gradients(&y, y, &x, 1, &(kn_gradients_options){.again = 1}));
        assert_close(ops_at(y, 0), orders[i], 1e-12, 0);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(every_op_has_a_rule_or_nograd), OPS_TEST(every_rule_has_a_case),
                     OPS_TEST(first_derivatives_agree_with_differences),
                     OPS_TEST(second_derivatives_agree_with_differences),
                     OPS_TEST(ops_marked_once_and_no_others_have_no_second_gradient),
                     OPS_TEST(qr_of_more_columns_than_rows_has_no_gradient),
                     OPS_TEST(pow_is_safe_at_base_zero), OPS_TEST(ties_share_the_gradient),
                     OPS_TEST(the_first_of_tied_elements_gets_the_gradient_of_a_pool),
                     OPS_TEST(pseudoinverses_have_derivatives_where_singular_values_are_equal),
                     OPS_TEST(a_cast_to_f32_gives_its_gradient_back_in_f64),
                     OPS_TEST(moving_to_another_device_moves_the_gradient_back),
                     OPS_TEST(activations_of_layers_have_one_gradient),
                     OPS_TEST(gradients_of_solutions_factor_nothing_again),
                     OPS_TEST(a_solution_without_columns_has_gradients),
                     OPS_TEST(backward_is_linear_in_the_incoming_gradient),
                     OPS_TEST(transposed_convolutions_may_reach_nothing),
                     OPS_TEST(gradients_in_place_are_those_of_recorded_ones));
}
