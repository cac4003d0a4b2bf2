/* Every function of arrays with odd input: no elements, no dimensions, NaN and infinity, wrong
 * dtypes and axes, NULL and KN_NONE. Each call gives a tensor that can be read or an error that
 * names the op; and what NumPy and PyTorch give is listed. */
#include "ops_test.h"

#include <math.h>

/* What a call may use. */
typedef struct operands {
    kn_tensor *x, *y, *z;
    int64_t n; /* an axis, an index, a number: any value */
    double p;
    kn_shape axes; /* of n, or odd */
    kn_rng *rng;
} operands;

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

enum { USES_N = 1, USES_Y = 2, USES_NO_X = 4 };
typedef struct edge_call {
    const char *name;
    int uses;
    kn_tensor *(*fn)(const operands *o);
} edge_call;

static const edge_call calls[] = {
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

/* clang-format on */
/* --- the operands --- */
static const kn_shape shapes[] = {{{0}, 0},
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
static const int64_t numbers[] = {0, 1, 2, -1, -2, 9, -9, INT32_MIN, INT64_MAX, INT64_MIN};
static const double reals[] = {0, 1, 0.5, -1, NAN, INFINITY, -INFINITY, 3, 1e308, -0.0};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_NUMBERS = sizeof numbers / sizeof *numbers };

static kn_tensor *odd(kn_shape shape, kn_dtype dtype) {
    static const float value[] = {1, NAN, -2, INFINITY, 0, -INFINITY, 0.5F, 3};
    static const float plain[] = {1, 0, 2, 1, 0, 3, 1, 2};
    bool is_float = dtype >= KN_F32 && dtype <= KN_BF16;
    float data[64];
    for (size_t i = 0; i < 64; i++) data[i] = is_float ? value[i % 8] : plain[i % 8];
    return kn_cast(kn_tensor_from(data, KN_F32, shape), dtype);
}

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
        for (int k = 0; k < 3 * N_SHAPES; k++) {
            KN_FRAME();
            o.y = odd(shapes[k % N_SHAPES], second[k / N_SHAPES]);
            o.z = odd(shapes[(k * 5 + i) % N_SHAPES], second[(k + i) % 3]);
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
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (int dtype = KN_F32; dtype <= (calls[c].uses & USES_NO_X ? KN_F32 : KN_BOOL); dtype++)
            for (int s = 0; s < N_SHAPES; s++) {
                KN_FRAME();
                kn_tensor *x = odd(shapes[s], (kn_dtype)dtype);
                each_operand(&calls[c], (operands){.x = x, .y = x, .z = x, .rng = rng});
                if (calls[c].uses & USES_NO_X) break;
            }
    kn_rng_destroy(rng);
}

/* NULL, KN_NONE and no generator, in each place. */
static void absent_operands_give_a_message(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (int i = 1; i < 27; i++) {
            KN_FRAME();
            kn_tensor *choice[] = {odd(KN_SHAPE(2, 2), KN_F32), NULL, KN_NONE};
            operands o = {.x = choice[i % 3], .y = choice[i / 3 % 3], .z = choice[i / 9]};
            o.n = 0, o.p = 0.5, o.axes = KN_SHAPE(0);
            check_call(&calls[c], &o);
            if (!o.x && !(calls[c].uses & USES_NO_X)) {
                if (calls[c].fn(&o)) fail_msg("%s: a result of NULL", calls[c].name);
                assert_int_not_equal(kn_check(), KN_OK);
            }
        }
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
