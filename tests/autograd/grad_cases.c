#include "grad_cases.h"

#include <math.h>
#include <stdlib.h>

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
/* x, with zeros among its elements: in the first line two. */
static kn_tensor *with_zeros(kn_tensor *x) {
    static const double factors[24] = {1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1,
                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    return kn_mul(x, kn_tensor_from(factors, KN_F64, kn_tensor_shape(x)));
}
F(f_prod) {
    CTX;
    return kn_prod(x[0], KN_SHAPE(1), false);
}
F(f_prod_zeros) {
    CTX;
    return kn_prod(with_zeros(x[0]), KN_SHAPE(2), true);
}
F(f_prod_many) {
    CTX;
    return kn_prod(with_zeros(x[0]), KN_SHAPE(0, 2), false);
}
F(f_prod_all) {
    CTX;
    return kn_prod(x[0], KN_ALL, false);
}
F(f_sum_abs) {
    CTX;
    return kn_sum_abs(kn_mul(x[0], kn_exp(x[0])), KN_SHAPE(1), false);
}
F(f_sum_square) {
    CTX;
    return kn_sum_square(kn_exp(x[0]), KN_SHAPE(0, 2), true);
}
F(f_nan_sum) {
    CTX;
    kn_tensor *y = kn_mul(x[0], kn_exp(x[0])), *nan = kn_filled_like(y, NAN);
    kn_tensor *holes = kn_where(kn_gt(x[0], kn_filled_like(x[0], 0.5)), nan, y);
    return kn_nan_sum(holes, KN_SHAPE(1), false);
}
F(f_max_abs) {
    CTX;
    return kn_max_abs(kn_neg(kn_mul(x[0], x[0])), KN_SHAPE(1), false);
}
F(f_min_abs) {
    CTX;
    return kn_min_abs(kn_mul(x[0], kn_neg(x[0])), KN_SHAPE(-1), true);
}
#define NORM(name, p)                                                                              \
    F(f_norm_##name) {                                                                             \
        CTX;                                                                                       \
        return kn_norm(kn_mul(x[0], kn_exp(x[0])), p, KN_SHAPE(1), false);                         \
    }
NORM(0, 0)
NORM(1, 1)
NORM(2, 2)
NORM(3, 3)
NORM(half, 0.5)
NORM(below, -1)
NORM(max, INFINITY)
NORM(min, -INFINITY)
F(f_logsumexp) {
    CTX;
    return kn_logsumexp(x[0], KN_SHAPE(0, 1), false);
}
F(f_var) {
    CTX;
    return kn_var(kn_exp(x[0]), KN_SHAPE(1), false, NULL);
}
F(f_var_mean) {
    CTX;
    return kn_var(x[0], KN_SHAPE(1), true, &(kn_var_options){.population = 1, .mean = x[1]});
}
F(f_std) {
    CTX;
    return kn_std(kn_exp(x[0]), KN_SHAPE(0, 2), false, &(kn_var_options){.population = 1});
}
F(f_std_mean) {
    CTX;
    return kn_std(x[0], KN_SHAPE(1), false, &(kn_var_options){.mean = x[1]});
}
F(f_max_index) {
    CTX;
    kn_tensor *values, *indices;
    if (kn_max_index(&values, &indices, kn_mul(x[0], x[0]), KN_SHAPE(1), false) < 0)
        return GRAD_FAILED;
    return values;
}
F(f_min_index) {
    CTX;
    kn_tensor *values, *indices;
    if (kn_min_index(&values, &indices, kn_mul(x[0], x[0]), KN_ALL, true) < 0) return GRAD_FAILED;
    return values;
}
F(f_cumsum) {
    CTX;
    return kn_cumsum(kn_exp(x[0]), 1);
}
F(f_cumprod) {
    CTX;
    return kn_cumprod(x[0], -1);
}
F(f_cumprod_zeros) {
    CTX;
    return kn_cumprod(with_zeros(x[0]), 1);
}
static kn_tensor *scan_of(kn_op op, kn_tensor *const x[], int n, bool reverse, bool exclusive) {
    kn_attr_scan attr = {.mask = 2, .reverse = reverse, .exclusive = exclusive};
    return kn_op_call_run(op, &attr, x, n);
}
F(f_cumprod_exclusive) {
    CTX;
    return scan_of(KN_OP_cumprod, x, 1, true, true);
}
F(f_cumsum_exclusive) {
    CTX;
    return scan_of(KN_OP_cumsum, (kn_tensor *[]){kn_exp(x[0])}, 1, true, true);
}
F(f_recur) {
    CTX;
    return scan_of(KN_OP_recur, x, 2, false, false);
}
F(f_recur_exclusive) {
    CTX;
    return scan_of(KN_OP_recur, x, 2, true, true);
}
F(f_sort) {
    CTX;
    return kn_sort(kn_mul(x[0], x[0]), 1, true);
}
F(f_topk) {
    CTX;
    kn_tensor *values, *indices;
    if (kn_topk(&values, &indices, kn_mul(x[0], x[0]), 2, -1, true) < 0) return GRAD_FAILED;
    return values;
}
static kn_tensor *along(kn_op op, kn_tensor *x) {
    static const int64_t places[12] = {2, 0, 1, 1, 2, 0, 1, 2, 0, 0, 1, 2};
    kn_tensor *index = kn_tensor_from(places, KN_I64, KN_SHAPE(2, 2, 3));
    kn_attr_along attr = {.dim = {2, 3, 3}, .n_dims = 3, .mask = 2};
    return kn_op_call_run(op, &attr, (kn_tensor *[]){kn_mul(x, x), index}, 2);
}
F(f_take_along) {
    CTX;
    return along(KN_OP_take_along, x[0]);
}
F(f_put_along) {
    CTX;
    return along(KN_OP_put_along, x[0]);
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

static const grad_case own_cases[] = {
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
    CASE(prod, f_prod, 0.5, 2, 1, C1(2, 3, 4)),
    CASE(prod, f_prod_zeros, 0.5, 2, 1, C1(2, 3, 4)),
    CASE(prod, f_prod_many, 0.5, 2, 1, C1(2, 3, 4)),
    CASE(prod, f_prod_all, 0.5, 2, 1, C1(2, 4)),
    CASE(prod, f_prod_all, 0.5, 2, 1, C0),
    CASE(sum_abs, f_sum_abs, -2, 2, 1, C1(2, 3, 4)),
    CASE(sum_square, f_sum_square, -2, 1, 1, C1(2, 3, 4)),
    CASE(nan_sum, f_nan_sum, -2, 1, 1, C1(2, 3, 4)),
    CASE(max_abs, f_max_abs, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(min_abs, f_min_abs, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(norm, f_norm_0, 0.2, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_1, -2, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_2, -2, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_3, -2, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_half, 0.3, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_below, 0.3, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_max, 0.2, 2, 1, C1(3, 4)),
    CASE(norm, f_norm_min, 0.2, 2, 1, C1(3, 4)),
    CASE(logsumexp, f_logsumexp, -2, 2, 1, C1(2, 3, 4)),
    CASE(var, f_var, -2, 1, 1, C1(2, 3, 4)),
    CASE(var, f_var_mean, -2, 2, 2, C1(2, 3, 4), C1(2, 4)),
    CASE(std, f_std, -2, 1, 1, C1(2, 3, 4)),
    CASE(std, f_std_mean, -2, 2, 2, C1(2, 3, 4), C1(2, 1, 4)),
    CASE(max_index, f_max_index, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(min_index, f_min_index, 0.2, 3, 1, C1(2, 3)),
    CASE(cumsum, f_cumsum, -2, 1, 1, C1(2, 3, 4)),
    CASE(cumsum, f_cumsum_exclusive, -2, 1, 1, C1(2, 3, 4)),
    CASE(cumprod, f_cumprod, 0.5, 2, 1, C1(3, 4)),
    CASE(cumprod, f_cumprod_zeros, 0.5, 2, 1, C1(2, 3, 4)),
    CASE(cumprod, f_cumprod_exclusive, 0.5, 2, 1, C1(3, 4)),
    CASE(recur, f_recur, -2, 2, 2, C1(3, 4), C1(3, 4)),
    CASE(recur, f_recur_exclusive, -2, 2, 2, C1(2, 3, 2), C1(2, 3, 2)),
    CASE(sort, f_sort, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(topk, f_topk, 0.2, 3, 1, C1(2, 3, 4)),
    CASE(take_along, f_take_along, 0.2, 3, 1, C1(2, 3, 3)),
    CASE(put_along, f_put_along, 0.2, 3, 1, C1(2, 2, 3)),
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

const grad_case *grad_cases;
int n_grad_cases;

static void add(const grad_case *cases, int n) {
    grad_case *all =
        realloc((void *)(uintptr_t)grad_cases, (size_t)(n_grad_cases + n) * sizeof *grad_cases);
    if (!all) abort();
    memcpy(all + n_grad_cases, cases, (size_t)n * sizeof *cases);
    grad_cases = all;
    n_grad_cases += n;
}

static __attribute__((constructor)) void join_cases(void) {
    add(own_cases, sizeof own_cases / sizeof *own_cases);
    add(grad_linalg_cases, n_grad_linalg_cases);
    add(grad_move_cases, n_grad_move_cases);
    add(grad_norm_cases, n_grad_norm_cases);
    add(grad_sequence_cases, n_grad_sequence_cases);
    add(grad_image_cases, n_grad_image_cases);
    add(grad_statistics_cases, n_grad_statistics_cases);
}

void grad_fill(kn_tensor *x[], const grad_case *c) {
    double values[512];
    int n = 0, at = 0;
    for (int i = 0; i < c->n_x; i++) {
        int64_t count = 1;
        for (int d = 0; d < c->shape[i].n_dims; d++) count *= c->shape[i].dim[d];
        n += (int)count;
    }
    n += n & 1;
    assert_true(n <= 512);
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

enum {
    ALL,
    POSITIVE,
    KINKS,
    UNIT,
    FRACTION,
    ABOVE_ONE,
    ANGLE,
    HALF,
    QUOTIENT,
    POWER,
    ABOVE_ZERO,
    TANGENT
};
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
    if (op == KN_OP_fmod || op == KN_OP_remainder ||
        op == KN_OP_floor_div) { /* they jump where a/b is a whole number */
        in[0] = kn_affine(x[0], 0.1, 5.3);
        in[1] = kn_affine(x[1], 0.01, 1);
    }
    if (op == KN_OP_hypot || op == KN_OP_atan2) { /* too curved near (0, 0) */
        in[1] = kn_add(x[1], kn_sign(x[1]));
    }
    return kn_op_call_run(op, &attr, in, info->n_in);
}

bool grad_is_row(int op) {
    return kn_op_table[op].row && !kn_op_table[op].order && kn_op_rule(op) == KN_RULE_GRADIENT;
}

grad_case grad_row_case(kn_op op, kn_shape a, kn_shape b, kn_shape c) {
    static const double range[][2] = {
        [ALL] = {-2, 2},      [POSITIVE] = {0.5, 3},     [KINKS] = {-2, 2},
        [UNIT] = {-0.8, 0.8}, [FRACTION] = {0.25, 0.75}, [ABOVE_ONE] = {1.25, 3},
        [ANGLE] = {-2, 2},    [HALF] = {-2, 2},          [QUOTIENT] = {0.5, 3},
        [POWER] = {0.5, 3},   [ABOVE_ZERO] = {0.5, 3},   [TANGENT] = {0.25, 0.75}};
    const double *ends = range[domains[op]];
    return (grad_case){op,        kn_op_name(op), grad_row, kn_op_table[op].n_in,
                       {a, b, c}, ends[0],        ends[1],  false};
}
