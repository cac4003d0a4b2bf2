#include "edge_calls.h"

#include <math.h>

/* clang-format off */
/* --- the functions: C(name, expression) --- */
#define FIRST(call)                                                                                \
    kn_tensor *a = KN_NONE, *b = KN_NONE, *c = KN_NONE;                                            \
    (void)a, (void)b, (void)c;                                                                     \
    if ((call) < 0) return kn_error_defer(kn_last_error()->status);                                \
    return a == KN_NONE ? b : a

#define AXIS ((int)o->n)
#define KEEP (o->n & 1)
#define LIST ((kn_tensor *const[]){o->x, o->y})
#define ITEMS(...) KN_ITEMS(__VA_ARGS__)
/* Of x alone. */
#define ONES(C)                                                                                    \
    C(sec, kn_sec(o->x)) C(csc, kn_csc(o->x)) C(sind, kn_sind(o->x)) C(cosd, kn_cosd(o->x))        \
    C(tand, kn_tand(o->x))                                                                         \
    C(secd, kn_secd(o->x)) C(cscd, kn_cscd(o->x)) C(cotd, kn_cotd(o->x)) C(asind, kn_asind(o->x))  \
    C(acosd, kn_acosd(o->x)) C(atand, kn_atand(o->x)) C(asecd, kn_asecd(o->x))                     \
    C(acscd, kn_acscd(o->x)) C(acotd, kn_acotd(o->x)) C(deg2rad, kn_deg2rad(o->x))                 \
    C(rad2deg, kn_rad2deg(o->x)) C(digamma, kn_digamma(o->x)) C(trigamma, kn_trigamma(o->x))       \
    C(besselj0, kn_besselj0(o->x)) C(besselj1, kn_besselj1(o->x)) C(bessely0, kn_bessely0(o->x))   \
    C(bessely1, kn_bessely1(o->x)) C(tanhshrink, kn_tanhshrink(o->x)) C(relu6, kn_relu6(o->x))     \
    C(log_cosh, kn_log_cosh(o->x)) C(logit, kn_logit(o->x)) C(trace, kn_trace(o->x))               \
    C(cholesky, kn_cholesky(o->x)) C(inverse, kn_inverse(o->x)) C(det, kn_det(o->x))               \
    C(logdet, kn_logdet(o->x)) C(copy, kn_copy(o->x)) C(cov, kn_cov(o->x))               \
    C(corrcoef, kn_corrcoef(o->x)) C(zeros_like, kn_zeros_like(o->x)) C(ones_like, kn_ones_like(o->x)) \
    C(flatten, kn_flatten(o->x)) C(nonzero, kn_nonzero(o->x))           \
    C(global_avgpool, kn_global_avgpool(o->x)) C(global_maxpool, kn_global_maxpool(o->x))          \
    C(transpose_all, kn_transpose(o->x, KN_ALL)) C(squeeze_all, kn_squeeze(o->x, KN_ALL))
/* Of x and numbers. */
#define WITH_N(C)                                                                                  \
    C(softshrink, kn_softshrink(o->x, o->p))                                                       \
    C(sum, kn_sum(o->x, o->axes, KEEP)) C(sum_abs, kn_sum_abs(o->x, o->axes, KEEP))                \
    C(sum_square, kn_sum_square(o->x, o->axes, KEEP)) C(prod, kn_prod(o->x, o->axes, KEEP))        \
    C(mean, kn_mean(o->x, o->axes, KEEP)) C(max, kn_max(o->x, o->axes, KEEP))                      \
    C(min, kn_min(o->x, o->axes, KEEP)) C(max_abs, kn_max_abs(o->x, o->axes, KEEP))                \
    C(min_abs, kn_min_abs(o->x, o->axes, KEEP)) C(var, kn_var(o->x, o->axes, KEEP, NULL))          \
    C(std, kn_std(o->x, o->axes, KEEP, NULL)) C(norm, kn_norm(o->x, o->p, o->axes, KEEP))          \
    C(logsumexp, kn_logsumexp(o->x, o->axes, KEEP))                                                \
    C(count_nonzero, kn_count_nonzero(o->x, o->axes, KEEP)) C(any, kn_any(o->x, o->axes, KEEP))    \
    C(all, kn_all(o->x, o->axes, KEEP)) C(argmax, kn_argmax(o->x, o->axes, KEEP))                  \
    C(argmin, kn_argmin(o->x, o->axes, KEEP)) C(cumsum, kn_cumsum(o->x, AXIS))                     \
    C(cumprod, kn_cumprod(o->x, AXIS)) C(sort, kn_sort(o->x, AXIS, KEEP))                          \
    C(median, kn_median(o->x, o->axes, KEEP)) C(quantile, kn_quantile(o->x, o->p, o->axes, KEEP))  \
    C(nan_sum, kn_nan_sum(o->x, o->axes, KEEP)) C(nan_mean, kn_nan_mean(o->x, o->axes, KEEP))      \
    C(nan_max, kn_nan_max(o->x, o->axes, KEEP)) C(nan_min, kn_nan_min(o->x, o->axes, KEEP))        \
    C(nan_median, kn_nan_median(o->x, o->axes, KEEP))                                              \
    C(nan_var, kn_nan_var(o->x, o->axes, KEEP, o->n & 1))                                          \
    C(nan_std, kn_nan_std(o->x, o->axes, KEEP, o->n & 1))                                          \
    C(nan_quantile, kn_nan_quantile(o->x, o->p, o->axes, KEEP))                                    \
    C(unfold, kn_unfold(o->x, o->axes, NULL)) C(fold, kn_fold(o->x, o->axes, o->axes, NULL))       \
    C(interp, kn_interp(o->x, o->x, o->x)) C(affine_grid, kn_affine_grid(o->x, o->n, o->n, KEEP))  \
    C(cummax, kn_cummax(o->x, AXIS)) C(cummin, kn_cummin(o->x, AXIS))                              \
    C(logcumsumexp, kn_logcumsumexp(o->x, AXIS)) C(diff, kn_diff(o->x, o->n, 0))                   \
    C(diff_axis, kn_diff(o->x, 1, AXIS)) C(histogram, kn_histogram(o->x, o->n % 50, 0, o->p))      \
    C(bincount, kn_bincount(o->x, o->n % 50, KN_NONE))                                             \
    C(full_like, kn_full_like(o->x, o->p)) C(nan_to_num, kn_nan_to_num(o->x, o->p, 1, o->p))       \
    C(swap_axes, kn_swap_axes(o->x, AXIS, 0)) C(move_axis, kn_move_axis(o->x, 0, AXIS))            \
    C(pinv, kn_pinv(o->x, o->p)) C(matrix_rank, kn_matrix_rank(o->x, o->p))                        \
    C(matrix_power, kn_matrix_power(o->x, o->n))                                                   \
    C(multinomial, kn_multinomial(o->x, o->n % 50, KEEP, o->rng))                                  \
    C(argsort, kn_argsort(o->x, AXIS, KEEP)) C(softmax, kn_softmax(o->x, AXIS))                    \
    C(logsoftmax, kn_logsoftmax(o->x, AXIS)) C(dropout, kn_dropout(o->x, o->p, o->rng))            \
    C(reshape, kn_reshape(o->x, o->axes)) C(slice, kn_slice(o->x, o->axes, o->axes))               \
    C(transpose, kn_transpose(o->x, o->axes)) C(squeeze, kn_squeeze(o->x, o->axes))                \
    C(unsqueeze, kn_unsqueeze(o->x, AXIS)) C(flip, kn_flip(o->x, o->axes))                         \
    C(roll, kn_roll(o->x, o->n, AXIS)) C(roll_back, kn_roll(o->x, INT64_MIN, AXIS))                \
    C(repeat, kn_repeat(o->x, o->n, AXIS)) C(repeat_2, kn_repeat(o->x, 2, AXIS))                   \
    C(tile, kn_tile(o->x, o->axes)) C(pad, kn_pad(o->x, o->axes, o->axes, 0, o->p))                \
    C(pad_reflect, kn_pad(o->x, o->axes, o->axes, KN_PAD_REFLECT, 0))                              \
    C(pad_symmetric, kn_pad(o->x, o->axes, o->axes, KN_PAD_SYMMETRIC, 0))                          \
    C(pad_replicate, kn_pad(o->x, o->axes, o->axes, KN_PAD_REPLICATE, 0))                          \
    C(pad_circular, kn_pad(o->x, o->axes, o->axes, KN_PAD_CIRCULAR, 0))                            \
    C(pad_mode, kn_pad(o->x, o->axes, o->axes, (kn_pad_mode)9, 0))                                 \
    C(triu, kn_triu(o->x, o->n)) C(tril, kn_tril(o->x, o->n)) C(diag, kn_diag(o->x, o->n))         \
    C(diagonal, kn_diagonal(o->x, o->n, 0, AXIS)) C(diagonal_1, kn_diagonal(o->x, 0, AXIS, 1))     \
    C(broadcast, kn_broadcast(o->x, o->axes)) C(cast, kn_cast(o->x, (kn_dtype)o->n))               \
    C(select, kn_select(o->x, o->n, 0)) C(select_0, kn_select(o->x, 0, AXIS))                      \
    C(index_at, kn_index(o->x, ITEMS(KN_AT(o->n))))                                                \
    C(index_from, kn_index(o->x, ITEMS(KN_RANGE(o->n, KN_END, 1))))                                \
    C(index_back, kn_index(o->x, ITEMS(KN_RANGE(KN_BEGIN, KN_END, -1))))                           \
    C(index_back_from, kn_index(o->x, ITEMS(KN_RANGE(o->n, KN_END, -2))))                          \
    C(index_step, kn_index(o->x, ITEMS(KN_RANGE(KN_BEGIN, KN_END, o->n))))                         \
    C(index_new, kn_index(o->x, ITEMS(KN_NEW, KN_AT(o->n), KN_NEW)))                               \
    C(index_count, kn_index(o->x, AXIS, (const kn_index_item[9]){{0}}))                            \
    C(one_hot, kn_one_hot(o->x, o->n)) C(shuffle, kn_shuffle(o->x, AXIS, o->rng))                  \
    C(avgpool, kn_avgpool(o->x, o->axes, NULL)) C(maxpool, kn_maxpool(o->x, o->axes, NULL))        \
    C(adaptive_avgpool, kn_adaptive_avgpool(o->x, o->axes))                                        \
    C(adaptive_maxpool, kn_adaptive_maxpool(o->x, o->axes))                                        \
    C(unpool, kn_unpool(o->x, o->axes, NULL))
/* Of two and three tensors. */
#define WITH_Y(C)                                                                                  \
    C(ldexp, kn_ldexp(o->x, o->y)) C(isclose, kn_isclose(o->x, o->y, 0.1, 0.1))                    \
    C(all_close, kn_all_close(o->x, o->y, 0.1, 0.1)) C(matmul, kn_matmul(o->x, o->y, NULL))        \
    C(matmul_trans, kn_matmul(o->x, o->y, &(kn_matmul_options){.trans_a = 1}))                     \
    C(mv, kn_mv(o->x, o->y)) C(dot, kn_dot(o->x, o->y)) C(outer, kn_outer(o->x, o->y))             \
    C(geam, kn_geam(o->x, o->y, 2, 3, NULL)) C(kron, kn_kron(o->x, o->y))                          \
    C(einsum, KN_EINSUM("ij,jk", o->x, o->y)) C(einsum_all, KN_EINSUM("...,...->...", o->x, o->y)) \
    C(einsum_bad, KN_EINSUM("i>j", o->x, o->y)) C(block_diag, kn_block_diag(LIST, 2))              \
    C(block_diag_0, kn_block_diag(LIST, 0)) C(linear, kn_linear(o->x, o->y, o->z))                 \
    C(linear_none, kn_linear(o->x, o->y, KN_NONE))                                                 \
    C(linear_act, kn_linear_act(o->x, o->y, o->z, KN_ACT_GELU))                                    \
    C(linear_add, kn_linear_add(o->x, o->y, KN_NONE, o->z, KN_ACT_RELU))                           \
    C(solve, kn_solve(o->x, o->y, NULL)) C(tri_solve, kn_triangular_solve(o->x, o->y, NULL))       \
    C(concat_0, kn_concat(LIST, 2, 0)) C(concat_1, kn_concat(LIST, 2, -1))                         \
    C(concat_none, kn_concat(LIST, 0, 0)) C(concat_below, kn_concat(LIST, -1, 0))                  \
    C(stack_0, kn_stack(LIST, 2, 0)) C(stack_9, kn_stack(LIST, 2, 9))                              \
    C(index_take, kn_index(o->x, ITEMS(KN_TAKE(o->y))))                                            \
    C(index_take_2, kn_index(o->x, ITEMS(KN_TAKE(o->y), KN_EVERY, KN_TAKE(o->z))))                 \
    C(index_mask, kn_index(o->x, ITEMS(KN_MASK(o->y))))                                            \
    C(set_at, kn_set_at(o->x, o->y, ITEMS(KN_AT(0))))                                              \
    C(set_back, kn_set_at(o->x, o->y, ITEMS(KN_RANGE(KN_BEGIN, KN_END, -1))))                      \
    C(add_at, kn_add_at(o->x, o->y, ITEMS(KN_TAKE(o->z))))                                         \
    C(set_mask, kn_set_at(o->x, o->y, ITEMS(KN_MASK(o->z))))                                       \
    C(masked_select, kn_masked_select(o->x, o->y))                                                 \
    C(index_select, kn_index_select(o->x, o->y, -1)) C(embedding, kn_embedding(o->x, o->y))        \
    C(index_add, kn_index_add(o->x, o->y, o->z, 0)) C(index_set, kn_index_set(o->x, o->y, o->z, 0))\
    C(gather, kn_gather(o->x, o->y, 0)) C(scatter, kn_scatter(o->x, o->y, o->z, 0))                \
    C(scatter_add, kn_scatter_add(o->x, o->y, o->z, -1))                                           \
    C(cross_entropy, kn_cross_entropy(o->x, o->y)) C(nll, kn_nll(o->x, o->y))                      \
    C(accuracy, kn_accuracy(o->x, o->y)) C(mse, kn_mse(o->x, o->y, KN_REDUCE_MEAN))                \
    C(mae, kn_mae(o->x, o->y, KN_REDUCE_NONE)) C(kl_div, kn_kl_div(o->x, o->y, 0, KN_REDUCE_BATCH))\
    C(huber, kn_huber(o->x, o->y, -1, KN_REDUCE_SUM)) C(bce, kn_bce(o->x, o->y, (kn_reduction)7))  \
    C(conv, kn_conv(o->x, o->y, KN_NONE, NULL)) C(deconv, kn_deconv(o->x, o->y, o->z, NULL))       \
    C(weighted, kn_bincount(o->y, 3, o->x)) C(search_sorted, kn_search_sorted(o->x, o->y, true))   \
    C(is_in, kn_is_in(o->x, o->y)) C(lstsq, kn_lstsq(o->x, o->y)) C(cross, kn_cross(o->x, o->y, -1)) \
    C(tensordot, kn_tensordot(o->x, o->y, KN_SHAPE(0), KN_SHAPE(-1)))                              \
    C(topk_accuracy, kn_topk_accuracy(o->x, o->y, 2)) C(where_x, kn_where(o->z, o->x, o->y))
/* Of two results: the first is returned. */
#define SEVERAL(C)                                                                                 \
    C(max_index, kn_max_index(&a, &b, o->x, o->axes, KEEP))                                        \
    C(min_index, kn_min_index(&a, &b, o->x, o->axes, KEEP))                                        \
    C(sort_index, kn_sort_index(&a, &b, o->x, AXIS, KEEP))                                         \
    C(topk, kn_topk(&a, &b, o->x, o->n, -1, KEEP)) C(topk_1, kn_topk(&a, &b, o->x, 1, AXIS, KEEP)) \
    C(slogdet, kn_slogdet(&a, &b, o->x)) C(qr, kn_qr(&a, &b, o->x)) C(lq, kn_lq(&a, &b, o->x))     \
    C(svd, kn_svd(&a, &b, &c, o->x)) C(eigh, kn_eigh(&a, &b, o->x))                                \
    C(maxpool_index, kn_maxpool_index(&a, &b, o->x, o->axes, NULL))                                \
    C(cummax_index, kn_cummax_index(&a, &b, o->x, AXIS))                                           \
    C(cummin_index, kn_cummin_index(&a, &b, o->x, AXIS)) C(unique, kn_unique(&a, &b, &c, o->x))    \
    C(meshgrid, kn_meshgrid((kn_tensor *[1]){0}, &o->x, 1))                                        \
    C(chunk, kn_chunk((kn_tensor *[1]){0}, o->x, 1, AXIS))                                         \
    C(unbind, kn_unbind((kn_tensor *[1]){0}, o->x, 1, AXIS))                                       \
    C(split, kn_split_axis((kn_tensor *[2]){0}, o->x,                                              \
                           (const int64_t[]){o->n, o->n < 0 ? 1 : 1 - o->n}, 2, 0))                \
    C(split_rows, kn_split_rows((kn_tensor *[1]){0}, o->x, &o->n, 1))
/* New tensors, whose shape is as odd. */
#define MAKERS(C)                                                                                  \
    C(zeros, kn_zeros(o->axes)) C(ones, kn_ones(o->axes)) C(full, kn_full(o->axes, o->p))          \
    C(arange, kn_arange(0, o->p, 0.25, KN_F32)) C(arange_step, kn_arange(0, 1, o->p, KN_I64))      \
    C(arange_dtype, kn_arange(0, 3, 1, (kn_dtype)o->n)) C(eye, kn_eye(o->n, 2))                    \
    C(linspace, kn_linspace(0, o->p, o->n)) C(uniform, kn_uniform(o->axes, o->p, 1, o->rng))       \
    C(normal, kn_normal(o->axes, 0, o->p, o->rng)) C(bernoulli, kn_bernoulli(o->axes, o->p, o->rng))\
    C(integers, kn_integers(o->axes, o->n, 3, o->rng)) C(permutation, kn_permutation(o->n, o->rng))\
    C(orthogonal, kn_orthogonal(o->axes, o->p, o->rng)) C(bilinear, kn_bilinear_filter(o->axes))   \
    C(exponential, kn_exponential(o->axes, o->p, o->rng))                                          \
    C(logspace, kn_logspace(0, o->p, o->n % 50, 2)) C(logspace_base, kn_logspace(0, 1, 3, o->p))   \
    C(truncated, kn_truncated_normal(o->axes, 0, 1, -1, o->p, o->rng))

#define CALL(name, expr) static kn_tensor *call_##name(const operands *o) { return expr; }
ONES(CALL) WITH_N(CALL) WITH_Y(CALL) MAKERS(CALL)
#undef CALL
#define CALL(name, expr) static kn_tensor *call_##name(const operands *o) { FIRST(expr); }
SEVERAL(CALL)
#undef CALL
#define SCALARS_0_
#define SCALARS_1_ , o->p
#define SCALARS_2_ , o->p, 1.5
#define KN_ROW1(name, s, ...)                                                                      \
    static kn_tensor *call_row_##name(const operands *o) { return kn_##name(o->x SCALARS_##s##_); }
#define KN_ROW2(name, s, ...)                                                                      \
    static kn_tensor *call_row_##name(const operands *o) {                                         \
        return kn_##name(o->x, o->y SCALARS_##s##_);                                               \
    }
#define KN_ROW3(name, s, ...)                                                                      \
    static kn_tensor *call_row_##name(const operands *o) {                                         \
        return kn_##name(o->x, o->y, o->z SCALARS_##s##_);                                         \
    }
#define KN_COMPARE(name, ...) KN_ROW2(name, 0, 0)
#define KN_COMPARE1(name, ...) KN_ROW1(name, 0, 0)
#include <knet/ops.def>


const edge_call edge_calls[] = {
#define ROW(name, expr) {#name, 0, call_##name},
    ONES(ROW)
#undef ROW
#define ROW(name, expr) {#name, USES_N, call_##name},
    WITH_N(ROW) SEVERAL(ROW)
#undef ROW
#define ROW(name, expr) {#name, USES_Y, call_##name},
    WITH_Y(ROW)
#undef ROW
#define ROW(name, expr) {#name, USES_N | USES_NO_X, call_##name},
    MAKERS(ROW)
#undef ROW
#define SCALARS_USE_0 0
#define SCALARS_USE_1 USES_N
#define SCALARS_USE_2 USES_N
#define KN_ROW1(name, s, ...) {#name, SCALARS_USE_##s, call_row_##name},
#define KN_ROW2(name, s, ...) {#name, USES_Y | SCALARS_USE_##s, call_row_##name},
#define KN_ROW3(name, s, ...) {#name, USES_Y | SCALARS_USE_##s, call_row_##name},
#define KN_COMPARE(name, ...) {#name, USES_Y, call_row_##name},
#define KN_COMPARE1(name, ...) {#name, 0, call_row_##name},
#include <knet/ops.def>
};

const int n_edge_calls = sizeof edge_calls / sizeof *edge_calls;

/* clang-format on */
/* --- the operands --- */
const kn_shape edge_shapes[] = {{{0}, 0},
                                {{1}, 1},
                                {{0}, 1},
                                {{3}, 1},
                                {{2, 0}, 2},
                                {{0, 3}, 2},
                                {{2, 2}, 2},
                                {{3, 2}, 2},
                                {{2, 0, 2}, 3},
                                {{1, 1}, 2},
                                {{1, 1, 3}, 3},
                                {{2, 1, 3, 3}, 4},
                                {{1, 1, 1, 1, 1, 1, 1, 1}, 8}};
const int n_edge_shapes = sizeof edge_shapes / sizeof *edge_shapes;

kn_tensor *edge_odd(kn_shape shape, kn_dtype dtype) {
    static const float value[] = {1, NAN, -2, INFINITY, 0, -INFINITY, 0.5F, 3};
    static const float plain[] = {1, 0, 2, 1, 0, 3, 1, 2};
    bool is_float = dtype >= KN_F32 && dtype <= KN_BF16;
    float data[64];
    for (size_t i = 0; i < 64; i++) data[i] = is_float ? value[i % 8] : plain[i % 8];
    return kn_cast(kn_tensor_from(data, KN_F32, shape), dtype);
}
