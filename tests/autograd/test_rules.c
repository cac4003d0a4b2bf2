/* Walks the table of ops: each has a gradient rule or the word nograd, and each rule is checked
 * against differences in f64, for first and second derivatives. */
#include "autograd_test.h"

typedef struct grad_case {
    kn_op op;
    const char *text;
    kn_gradcheck_fn f;
    int n_x;
    kn_shape shape[4];
    double lo, hi;
} grad_case;

#define F(name) static kn_tensor *name(void *ctx, kn_tensor *const x[])
#define CTX (void)ctx

/* --- pointwise --- */
F(f_neg) {
    CTX;
    return kn_neg(x[0]);
}
F(f_abs) {
    CTX;
    return kn_abs(x[0]);
}
F(f_sign) {
    CTX;
    return kn_sign(x[0]);
}
F(f_exp) {
    CTX;
    return kn_exp(x[0]);
}
F(f_log) {
    CTX;
    return kn_log(x[0]);
}
F(f_sqrt) {
    CTX;
    return kn_sqrt(x[0]);
}
F(f_relu) {
    CTX;
    return kn_relu(x[0]);
}
F(f_sigm) {
    CTX;
    return kn_sigm(x[0]);
}
F(f_tanh) {
    CTX;
    return kn_tanh(x[0]);
}
F(f_unary_back) { return kn_unary_back(*(const kn_op *)ctx, x[0], x[1]); }
F(f_add) {
    CTX;
    return kn_add(x[0], x[1]);
}
F(f_sub) {
    CTX;
    return kn_sub(x[0], x[1]);
}
F(f_mul) {
    CTX;
    return kn_mul(x[0], x[1]);
}
F(f_div) {
    CTX;
    return kn_div(x[0], x[1]);
}
F(f_pow) {
    CTX;
    return kn_pow(x[0], x[1]);
}
F(f_maximum) {
    CTX;
    return kn_maximum(x[0], x[1]);
}
F(f_minimum) {
    CTX;
    return kn_minimum(x[0], x[1]);
}
F(f_square) {
    CTX;
    return kn_mul(x[0], x[0]);
}
F(f_twice) {
    CTX;
    return kn_add(x[0], kn_mul(x[0], x[0]));
}
F(f_where) {
    CTX;
    return kn_where(kn_gt(x[0], x[1]), kn_mul(x[0], x[1]), kn_exp(x[1]));
}
F(f_affine) {
    CTX;
    return kn_affine(kn_mul(x[0], x[0]), -2.5, 3);
}
F(f_pow_scalar) {
    CTX;
    return kn_pow_scalar(x[0], 2.5);
}
F(f_cube) {
    CTX;
    return kn_pow_scalar(x[0], 3);
}

/* --- reductions --- */
F(f_sum) {
    CTX;
    return kn_sum(kn_mul(x[0], x[0]), KN_SHAPE(0, 2), false);
}
F(f_sum_keep) {
    CTX;
    return kn_mul(x[0], kn_sum(x[0], KN_SHAPE(1), true));
}
F(f_mean) {
    CTX;
    return kn_mean(kn_mul(x[0], x[0]), KN_SHAPE(-1), false);
}
F(f_max) {
    CTX;
    return kn_max(kn_mul(x[0], x[0]), KN_SHAPE(1), false);
}
F(f_min) {
    CTX;
    return kn_min(kn_mul(x[0], x[0]), KN_SHAPE(0, 1), true);
}
F(f_broadcast) {
    CTX;
    return kn_broadcast(kn_exp(x[0]), KN_SHAPE(2, 3, 4));
}

/* --- products --- */
F(f_matmul) {
    CTX;
    return kn_matmul(x[0], x[1]);
}
F(f_matmul_tn) {
    CTX;
    return kn_matmul_trans(x[0], x[1], true, false, NULL);
}
F(f_matmul_nt) {
    CTX;
    return kn_matmul_trans(x[0], x[1], false, true, NULL);
}
F(f_matmul_tt) {
    CTX;
    return kn_matmul_trans(x[0], x[1], true, true, NULL);
}
F(f_linear) {
    CTX;
    return kn_linear(x[0], x[1], x[2]);
}
F(f_linear_none) {
    CTX;
    return kn_linear(x[0], x[1], KN_NONE);
}

/* --- convolution and pooling --- */
F(f_conv) {
    CTX;
    return kn_conv(x[0], x[1], x[2], NULL);
}
F(f_conv_options) {
    CTX;
    return kn_conv(x[0], x[1], KN_NONE,
                   &(kn_conv_options){.stride = {2, 1}, .padding = {1, 2}, .groups = 2, .flip = 1});
}
F(f_conv_dilated) {
    CTX;
    return kn_conv(x[0], x[1], KN_NONE, &(kn_conv_options){.dilation = {2}});
}
static const kn_attr_conv plain_conv = {
    .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .n_spatial = 2};
F(f_conv_data) {
    CTX;
    return kn_conv_data(x[0], x[1], KN_SHAPE(2, 2, 4, 4), &plain_conv);
}
F(f_conv_weight) {
    CTX;
    return kn_conv_weight(x[0], x[1], KN_SHAPE(3, 2, 2, 2), &plain_conv, NULL);
}
F(f_maxpool) {
    CTX;
    return kn_maxpool(kn_mul(x[0], x[0]), KN_SHAPE(2, 2), KN_SCALAR);
}
F(f_maxpool_overlap) {
    CTX;
    return kn_maxpool(x[0], KN_SHAPE(3, 3), KN_SHAPE(1, 2));
}
F(f_avgpool) {
    CTX;
    return kn_avgpool(kn_mul(x[0], x[0]), KN_SHAPE(2, 2), KN_SHAPE(1, 2));
}
static const kn_attr_pool pool_2x2 = {.window = {2, 2, 1}, .stride = {2, 2, 1}, .n_spatial = 2};
static kn_tensor *offsets(void) {
    static const uint8_t places[8] = {0, 1, 2, 3, 3, 2, 0, 1};
    return kn_tensor_from(places, KN_U8, KN_SHAPE(1, 2, 2, 2));
}
F(f_maxpool_back) {
    CTX;
    return kn_maxpool_back(kn_mul(x[0], x[0]), offsets(), KN_SHAPE(1, 2, 4, 4), &pool_2x2);
}
F(f_maxpool_take) {
    CTX;
    return kn_maxpool_take(kn_mul(x[0], x[0]), offsets(), KN_SHAPE(1, 2, 2, 2), &pool_2x2);
}
F(f_avgpool_back) {
    CTX;
    return kn_avgpool_back(kn_mul(x[0], x[0]), KN_SHAPE(1, 2, 4, 4), &pool_2x2);
}

/* --- softmax, losses, dropout --- */
F(f_softmax) {
    CTX;
    return kn_softmax(x[0], 1);
}
F(f_softmax_first) {
    CTX;
    return kn_softmax(x[0], 0);
}
F(f_logsoftmax) {
    CTX;
    return kn_logsoftmax(x[0], -1);
}
F(f_softmax_back) {
    CTX;
    return kn_softmax_back(x[0], x[1], 1);
}
F(f_logsoftmax_back) {
    CTX;
    return kn_logsoftmax_back(x[0], x[1], 1);
}
static kn_tensor *labels(void) {
    static const int64_t classes[4] = {2, 0, 1, 2};
    return kn_tensor_from(classes, KN_I64, KN_SHAPE(4));
}
F(f_cross_entropy) {
    CTX;
    return kn_cross_entropy(x[0], labels());
}
F(f_cross_entropy_scaled) {
    CTX;
    return kn_mul(kn_cross_entropy(x[0], labels()), x[1]);
}
F(f_nll) {
    CTX;
    return kn_nll(kn_mul(x[0], x[0]), labels());
}
F(f_nll_back) {
    CTX;
    return kn_nll_back(labels(), kn_mul(x[0], x[0]), KN_SHAPE(4, 3));
}
F(f_dropout) {
    CTX;
    kn_tensor *state = I64(KN_SHAPE(2), 11, 5);
    return kn_dropout_state(kn_mul(x[0], x[0]), 0.4, state);
}

/* --- movement --- */
F(f_slice) {
    CTX;
    return kn_slice(kn_mul(x[0], x[0]), KN_SHAPE(1, 0), KN_SHAPE(3, 2));
}
F(f_slice_view) {
    CTX;
    return kn_slice(kn_mul(x[0], x[0]), KN_SHAPE(1, 0), KN_SHAPE(3, 4));
}
F(f_slice_back) {
    CTX;
    return kn_slice_back(kn_mul(x[0], x[0]), KN_SHAPE(1, 1), KN_SHAPE(5, 6));
}
F(f_transpose) {
    CTX;
    return kn_transpose(kn_mul(x[0], x[0]), KN_SHAPE(2, 0, 1));
}
F(f_concat) {
    CTX;
    return kn_concat((kn_tensor *const[]){kn_mul(x[0], x[0]), x[1], kn_exp(x[0])}, 3, 1);
}
F(f_cast) {
    CTX;
    return kn_mul(x[0], kn_cast(kn_cast(x[0], KN_F64), KN_F64));
}
F(f_reshape) {
    CTX;
    return kn_mul(kn_reshape(x[0], KN_SHAPE(4, -1)), x[1]);
}

static const kn_op backs[] = {KN_OP_neg_back,  KN_OP_abs_back,  KN_OP_sign_back,
                              KN_OP_exp_back,  KN_OP_log_back,  KN_OP_sqrt_back,
                              KN_OP_relu_back, KN_OP_sigm_back, KN_OP_tanh_back};

#define S(...) KN_SHAPE(__VA_ARGS__)
static const grad_case cases[] = {
#define CASE(op, f, lo, hi, n, ...)                                                                \
    { KN_OP_##op, #f, f, n, {__VA_ARGS__}, lo, hi }
#define C1(...)                                                                                    \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define C0                                                                                         \
    { {0}, 0 }
    CASE(neg, f_neg, -2, 2, 1, C1(3, 4)),
    CASE(abs, f_abs, -2, 2, 1, C1(3, 4)),
    CASE(sign, f_sign, -2, 2, 1, C1(3, 4)),
    CASE(exp, f_exp, -2, 2, 1, C1(3, 4)),
    CASE(log, f_log, 0.3, 3, 1, C1(3, 4)),
    CASE(sqrt, f_sqrt, 0.3, 3, 1, C1(3, 4)),
    CASE(relu, f_relu, -2, 2, 1, C1(3, 4)),
    CASE(sigm, f_sigm, -2, 2, 1, C1(3, 4)),
    CASE(tanh, f_tanh, -2, 2, 1, C1(3, 4)),
    CASE(add, f_add, -2, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(add, f_add, -2, 2, 2, C1(2, 3, 4), C1(3, 1)),
    CASE(add, f_add, -2, 2, 2, C0, C1(3, 4)),
    CASE(add, f_twice, -2, 2, 1, C1(3, 4)),
    CASE(sub, f_sub, -2, 2, 2, C1(2, 1, 4), C1(2, 3, 4)),
    CASE(mul, f_mul, -2, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(mul, f_mul, -2, 2, 2, C1(1, 4), C1(3, 1)),
    CASE(mul, f_square, -2, 2, 1, C1(3, 4)),
    CASE(div, f_div, 0.5, 3, 2, C1(3, 4), C1(4)),
    CASE(div, f_div, 0.5, 3, 2, C1(4), C1(3, 4)),
    CASE(pow, f_pow, 0.5, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(pow, f_pow, 0.5, 2, 2, C1(3, 1), C1(4)),
    CASE(maximum, f_maximum, -2, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(maximum, f_maximum, -2, 2, 2, C1(3, 4), C0),
    CASE(minimum, f_minimum, -2, 2, 2, C1(3, 4), C1(4)),
    CASE(where, f_where, -2, 2, 2, C1(3, 4), C1(4)),
    CASE(affine, f_affine, -2, 2, 1, C1(3, 4)),
    CASE(pow_scalar, f_pow_scalar, 0.5, 3, 1, C1(3, 4)),
    CASE(pow_scalar, f_cube, -2, 2, 1, C1(3, 4)),
    CASE(sum, f_sum, -2, 2, 1, C1(2, 3, 4)),
    CASE(sum, f_sum_keep, -2, 2, 1, C1(2, 3, 4)),
    CASE(mean, f_mean, -2, 2, 1, C1(2, 3, 4)),
    CASE(max, f_max, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(min, f_min, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(broadcast, f_broadcast, -2, 2, 1, C1(3, 1)),
    CASE(matmul, f_matmul, -2, 2, 2, C1(3, 4), C1(4, 2)),
    CASE(matmul, f_matmul_tn, -2, 2, 2, C1(4, 3), C1(4, 2)),
    CASE(matmul, f_matmul_nt, -2, 2, 2, C1(3, 4), C1(2, 4)),
    CASE(matmul, f_matmul_tt, -2, 2, 2, C1(4, 3), C1(2, 4)),
    CASE(linear, f_linear, -2, 2, 3, C1(3, 4), C1(2, 4), C1(2)),
    CASE(linear, f_linear, -2, 2, 3, C1(2, 3, 4), C1(2, 4), C1(2)),
    CASE(linear, f_linear, -2, 2, 3, C1(4), C1(2, 4), C1(2)),
    CASE(linear, f_linear_none, -2, 2, 2, C1(3, 4), C1(2, 4)),
    CASE(conv, f_conv, -2, 2, 3, C1(2, 2, 4, 4), C1(3, 2, 2, 2), C1(3)),
    CASE(conv, f_conv_options, -2, 2, 2, C1(1, 4, 4, 3), C1(2, 2, 2, 2)),
    CASE(conv, f_conv_dilated, -2, 2, 2, C1(2, 2, 6), C1(2, 2, 2)),
    CASE(conv, f_conv_dilated, -2, 2, 2, C1(1, 2, 3, 2, 2), C1(2, 2, 2, 1, 2)),
    CASE(conv_data, f_conv_data, -2, 2, 2, C1(2, 3, 3, 3), C1(3, 2, 2, 2)),
    CASE(conv_weight, f_conv_weight, -2, 2, 2, C1(2, 2, 4, 4), C1(2, 3, 3, 3)),
    CASE(maxpool, f_maxpool, 0.2, 3, 1, C1(1, 2, 4, 4)),
    CASE(maxpool, f_maxpool_overlap, -2, 2, 1, C1(1, 2, 5, 5)),
    CASE(maxpool_back, f_maxpool_back, -2, 2, 1, C1(1, 2, 2, 2)),
    CASE(maxpool_take, f_maxpool_take, -2, 2, 1, C1(1, 2, 4, 4)),
    CASE(avgpool, f_avgpool, -2, 2, 1, C1(1, 2, 4, 4)),
    CASE(avgpool_back, f_avgpool_back, -2, 2, 1, C1(1, 2, 2, 2)),
    CASE(softmax, f_softmax, -2, 2, 1, C1(3, 4)),
    CASE(softmax, f_softmax_first, -2, 2, 1, C1(3, 2, 2)),
    CASE(softmax_back, f_softmax_back, -2, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(logsoftmax, f_logsoftmax, -2, 2, 1, C1(3, 4)),
    CASE(logsoftmax_back, f_logsoftmax_back, -2, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(cross_entropy, f_cross_entropy, -2, 2, 1, C1(4, 3)),
    CASE(cross_entropy, f_cross_entropy_scaled, -2, 2, 2, C1(4, 3), C0),
    CASE(nll, f_nll, -2, 2, 1, C1(4, 3)),
    CASE(nll_back, f_nll_back, -2, 2, 1, C0),
    CASE(dropout, f_dropout, -2, 2, 1, C1(3, 8)),
    CASE(slice, f_slice, -2, 2, 1, C1(4, 4)),
    CASE(slice, f_slice_view, -2, 2, 1, C1(4, 4)),
    CASE(slice_back, f_slice_back, -2, 2, 1, C1(3, 4)),
    CASE(transpose, f_transpose, -2, 2, 1, C1(2, 3, 4)),
    CASE(concat, f_concat, -2, 2, 2, C1(2, 3), C1(2, 1)),
    CASE(cast, f_cast, -2, 2, 1, C1(3, 4)),
    CASE(reshape, f_reshape, -2, 2, 2, C1(2, 6), C1(4, 3)),
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* All numbers differ, by more than the differences move them, and none is near zero. */
static void fill(kn_tensor *x[], const grad_case *c) {
    double values[256];
    int n = 0, at = 0;
    for (int i = 0; i < c->n_x; i++) {
        int64_t count = 1;
        for (int d = 0; d < c->shape[i].n_dims; d++) count *= c->shape[i].dim[d];
        n += (int)count;
    }
    n += n & 1;
    assert_true(n <= 256);
    for (int i = 0; i < n; i++) values[i] = c->lo + (c->hi - c->lo) * (i + 0.5) / n;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)test_random_below((uint64_t)i + 1);
        double t = values[i];
        values[i] = values[j];
        values[j] = t;
    }
    for (int i = 0; i < c->n_x; i++) {
        x[i] = kn_tensor_from(values + at, KN_F64, c->shape[i]);
        assert_non_null(x[i]);
        at += (int)kn_tensor_numel(x[i]);
    }
}

static void check_case(const grad_case *c, void *ctx, int order) {
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x[4];
    fill(x, c);
    kn_status status = kn_gradcheck(c->f, ctx, x, c->n_x, order, 1e-7, 1e-8);
    if (status < 0) print_error("case %s (%s)\n", c->text, kn_op_name(c->op));
    assert_ok(status);
}

static void check_backs(int order) {
    for (size_t i = 0; i < sizeof backs / sizeof *backs; i++) {
        kn_op op = backs[i];
        double lo = op == KN_OP_log_back || op == KN_OP_sqrt_back ? 0.4 : -2; /* 1/s² */
        kn_shape shape = KN_SHAPE(3, 4);
        grad_case c = {op, kn_op_name(op), f_unary_back, 2, {shape, shape}, lo, 2};
        check_case(&c, &op, order);
    }
}

static void every_op_has_a_rule_or_nograd(void **state) {
    (void)state;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (kn_op_rule(op) == KN_RULE_MISSING) fail_msg("%s has no rule", kn_op_name((kn_op)op));
    }
}

static bool has_case(int op) {
    for (int i = 0; i < N_CASES; i++) {
        if ((int)cases[i].op == op) return true;
    }
    for (size_t i = 0; i < sizeof backs / sizeof *backs; i++) {
        if ((int)backs[i] == op) return true;
    }
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
    for (int i = 0; i < N_CASES; i++) check_case(&cases[i], NULL, 1);
    check_backs(1);
}

static void second_derivatives_agree_with_differences(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) check_case(&cases[i], NULL, 2);
    check_backs(2);
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

/* --- properties --- */

/* The gradient of Σ (a·u + b·v)·f(x) is a times that of Σ u·f plus b times that of Σ v·f. */
static void backward_is_linear_in_the_incoming_gradient(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        const grad_case *c = &cases[i];
        KN_TAPE(.dtype = KN_F64);
        kn_tensor *x[4], *du[4], *dv[4], *dw[4];
        fill(x, c);
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

int main(void) {
    return RUN_TESTS(OPS_TEST(every_op_has_a_rule_or_nograd), OPS_TEST(every_rule_has_a_case),
                     OPS_TEST(first_derivatives_agree_with_differences),
                     OPS_TEST(second_derivatives_agree_with_differences),
                     OPS_TEST(pow_is_safe_at_base_zero), OPS_TEST(ties_share_the_gradient),
                     OPS_TEST(a_cast_to_f32_gives_its_gradient_back_in_f64),
                     OPS_TEST(moving_to_another_device_moves_the_gradient_back),
                     OPS_TEST(backward_is_linear_in_the_incoming_gradient));
}
