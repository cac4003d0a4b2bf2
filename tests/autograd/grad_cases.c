#include "grad_cases.h"

#define F(name) static kn_tensor *name(void *ctx, kn_tensor *const x[])
#define CTX (void)ctx

/* --- pointwise --- */
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
    return kn_matmul(x[0], x[1], NULL);
}
F(f_matmul_tn) {
    CTX;
    return op_matmul_trans(x[0], x[1], true, false, NULL);
}
F(f_matmul_nt) {
    CTX;
    return op_matmul_trans(x[0], x[1], false, true, NULL);
}
F(f_matmul_tt) {
    CTX;
    return op_matmul_trans(x[0], x[1], true, true, NULL);
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
    return op_conv_data(x[0], x[1], KN_SHAPE(2, 2, 4, 4), &plain_conv);
}
F(f_conv_weight) {
    CTX;
    return op_conv_weight(x[0], x[1], KN_SHAPE(3, 2, 2, 2), &plain_conv, NULL);
}
F(f_maxpool) {
    CTX;
    return kn_maxpool(kn_mul(x[0], x[0]), KN_SHAPE(2, 2), NULL);
}
F(f_maxpool_overlap) {
    CTX;
    return kn_maxpool(x[0], KN_SHAPE(3, 3), &(kn_pooling_options){.stride = {1, 2}});
}
F(f_avgpool) {
    CTX;
    return kn_avgpool(kn_mul(x[0], x[0]), KN_SHAPE(2, 2), &(kn_pooling_options){.stride = {1, 2}});
}
static const kn_attr_pool pool_2x2 = {
    .window = {2, 2, 1}, .stride = {2, 2, 1}, .dilation = {1, 1, 1}, .n_spatial = 2};
static kn_tensor *offsets(void) {
    static const uint8_t places[8] = {0, 1, 2, 3, 3, 2, 0, 1};
    return kn_tensor_from(places, KN_U8, KN_SHAPE(1, 2, 2, 2));
}
F(f_maxpool_back) {
    CTX;
    return op_maxpool_back(kn_mul(x[0], x[0]), offsets(), KN_SHAPE(1, 2, 4, 4), &pool_2x2);
}
F(f_maxpool_take) {
    CTX;
    return op_maxpool_take(kn_mul(x[0], x[0]), offsets(), &pool_2x2);
}
F(f_avgpool_back) {
    CTX;
    return op_avgpool_back(kn_mul(x[0], x[0]), KN_SHAPE(1, 2, 4, 4), &pool_2x2);
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
    return op_softmax_back(x[0], x[1], 1);
}
F(f_logsoftmax_back) {
    CTX;
    return op_logsoftmax_back(x[0], x[1], 1);
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
    return op_nll_back(labels(), kn_mul(x[0], x[0]), 3);
}
F(f_dropout) {
    CTX;
    kn_tensor *state = I64(KN_SHAPE(2), 11, 5);
    return op_dropout_state(kn_mul(x[0], x[0]), 0.4, state);
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
    return op_slice_back(kn_mul(x[0], x[0]), KN_SHAPE(1, 1), KN_SHAPE(5, 6));
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

#define S(...) KN_SHAPE(__VA_ARGS__)
const grad_case grad_cases[] = {
#define CASE(op, f, lo, hi, n, ...)                                                                \
    { KN_OP_##op, #f, f, n, {__VA_ARGS__}, lo, hi }
#define C1(...)                                                                                    \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define C0                                                                                         \
    { {0}, 0 }
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
const int n_grad_cases = sizeof grad_cases / sizeof *grad_cases;

void grad_fill(kn_tensor *x[], const grad_case *c) {
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

kn_status grad_check(const grad_case *c, void *ctx, int order) {
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x[4];
    grad_fill(x, c);
    return kn_gradcheck(c->f, ctx, x, c->n_x, order, 1e-7, 1e-8);
}

/* --- rows: a walk over the table --- */

enum { ALL, POSITIVE, KINKS };
static const uint8_t domains[KN_OP_COUNT] = {
#define KN_ROW1(name, s, domain, ...) [KN_OP_##name] = domain,
#define KN_ROW2(name, s, domain, ...) [KN_OP_##name] = domain,
#define KN_ROW3(name, s, domain, ...) [KN_OP_##name] = domain,
#include <knet/ops.def>
};

/* Scalars keep clear of the values. */
kn_tensor *grad_row(void *ctx, kn_tensor *const x[]) {
    const kn_op op = *(const kn_op *)ctx;
    const kn_op_info *info = &kn_op_table[op];
    kn_attr_scalars attr = {0.71, 1.13};
    kn_tensor *in[3];
    for (int i = 0; i < info->n_in; i++) {
        in[i] = info->in[i] == KN_CLASS_BOOL ? kn_gt(x[1], x[2]) : x[i];
    }
    return kn_op_call_run(op, &attr, in, info->n_in);
}

bool grad_is_row(int op) {
    return kn_op_table[op].row && !kn_op_table[op].order && kn_op_rule(op) == KN_RULE_GRADIENT;
}

grad_case grad_row_case(kn_op op, kn_shape a, kn_shape b, kn_shape c) {
    bool positive = domains[op] == POSITIVE;
    return (grad_case){op,        kn_op_name(op),      grad_row,        kn_op_table[op].n_in,
                       {a, b, c}, positive ? 0.5 : -2, positive ? 3 : 2};
}
