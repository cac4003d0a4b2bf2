/* Calls of the functions that are made of ops: which dtypes they take, and how often they can be
 * differentiated. Under "list" it prints both, for docs/catalogue.md. */
#include "autograd_test.h"

#define LINE KN_SHAPE(4)
#define SQUARE KN_SHAPE(4, 4)
#define IMAGE KN_SHAPE(2, 4, 4, 4)
#define AXES KN_SHAPE(0), false
#define AT0 KN_ITEMS(KN_AT(0))
#define MEAN KN_REDUCE_MEAN

static kn_tensor *zeros_i64(kn_shape shape) { return kn_cast(kn_zeros(shape), KN_I64); }
static kn_tensor *nth(kn_status status, kn_tensor *const y[], int i) {
    return status < 0 ? NULL : y[i];
}
static kn_rng *rng;

/* X(name, shape of x[0], x[1] and x[2], call): kn_<name>. Results of a call that returns a status
 * are in y. */
#define ANGLES(X)                                                                                  \
    X(sec, LINE, kn_sec(x[0]))                                                                     \
    X(csc, LINE, kn_csc(x[0]))                                                                     \
    X(sind, LINE, kn_sind(x[0]))                                                                   \
    X(cosd, LINE, kn_cosd(x[0]))                                                                   \
    X(tand, LINE, kn_tand(x[0]))                                                                   \
    X(secd, LINE, kn_secd(x[0]))                                                                   \
    X(cscd, LINE, kn_cscd(x[0]))                                                                   \
    X(cotd, LINE, kn_cotd(x[0]))                                                                   \
    X(asind, LINE, kn_asind(x[0]))                                                                 \
    X(acosd, LINE, kn_acosd(x[0]))                                                                 \
    X(atand, LINE, kn_atand(x[0]))                                                                 \
    X(asecd, LINE, kn_asecd(x[0]))                                                                 \
    X(acscd, LINE, kn_acscd(x[0]))                                                                 \
    X(acotd, LINE, kn_acotd(x[0]))                                                                 \
    X(deg2rad, LINE, kn_deg2rad(x[0]))                                                             \
    X(rad2deg, LINE, kn_rad2deg(x[0]))
#define ROWS(X)                                                                                    \
    X(digamma, LINE, kn_digamma(x[0]))                                                             \
    X(trigamma, LINE, kn_trigamma(x[0]))                                                           \
    X(besselj0, LINE, kn_besselj0(x[0]))                                                           \
    X(besselj1, LINE, kn_besselj1(x[0]))                                                           \
    X(bessely0, LINE, kn_bessely0(x[0]))                                                           \
    X(bessely1, LINE, kn_bessely1(x[0]))                                                           \
    X(tanhshrink, LINE, kn_tanhshrink(x[0]))                                                       \
    X(relu6, LINE, kn_relu6(x[0]))                                                                 \
    X(log_cosh, LINE, kn_log_cosh(x[0]))                                                           \
    X(logit, LINE, kn_logit(x[0]))                                                                 \
    X(nan_to_num, LINE, kn_nan_to_num(x[0], 0, 1, -1))                                             \
    X(ldexp, LINE, kn_ldexp(x[0], x[1]))                                                           \
    X(isclose, LINE, kn_isclose(x[0], x[1], 0.1, 0.1))                                             \
    X(all_close, LINE, kn_all_close(x[0], x[1], 0.1, 0.1))
#define LOSSES(X)                                                                                  \
    X(mse, LINE, kn_mse(x[0], x[1], MEAN))                                                         \
    X(mae, LINE, kn_mae(x[0], x[1], MEAN))                                                         \
    X(huber, LINE, kn_huber(x[0], x[1], 0.2, MEAN))                                                \
    X(smooth_l1, LINE, kn_smooth_l1(x[0], x[1], 0.2, MEAN))                                        \
    X(bce, LINE, kn_bce(x[0], x[1], MEAN))                                                         \
    X(bce_logits, LINE, kn_bce_logits(x[0], x[1], MEAN))                                           \
    X(logistic, LINE, kn_logistic(x[0], x[1], MEAN))                                               \
    X(hinge, LINE, kn_hinge(x[0], x[1], 1, MEAN))                                                  \
    X(kl_div, LINE, kn_kl_div(x[0], x[1], false, MEAN))                                            \
    X(cross_entropy_with, SQUARE, kn_cross_entropy_with(x[0], zeros_i64(LINE), NULL))              \
    X(zero_one, SQUARE, kn_zero_one(x[0], zeros_i64(LINE)))                                        \
    X(topk_accuracy, SQUARE, kn_topk_accuracy(x[0], zeros_i64(LINE), 2))                           \
    X(ctc_loss, KN_SHAPE(4, 1, 3), kn_ctc_loss(x[0], zeros_i64(KN_SHAPE(1, 0)), NULL))
#define STATISTICS(X)                                                                              \
    X(quantile, SQUARE, kn_quantile(x[0], 0.3, AXES))                                              \
    X(median, SQUARE, kn_median(x[0], AXES))                                                       \
    X(nan_mean, SQUARE, kn_nan_mean(x[0], AXES))                                                   \
    X(nan_max, SQUARE, kn_nan_max(x[0], AXES))                                                     \
    X(nan_min, SQUARE, kn_nan_min(x[0], AXES))                                                     \
    X(nan_quantile, SQUARE, kn_nan_quantile(x[0], 0.3, AXES))                                      \
    X(nan_median, SQUARE, kn_nan_median(x[0], AXES))                                               \
    X(nan_var, SQUARE, kn_nan_var(x[0], AXES, false))                                              \
    X(nan_std, SQUARE, kn_nan_std(x[0], AXES, false))                                              \
    X(cov, SQUARE, kn_cov(x[0]))                                                                   \
    X(corrcoef, SQUARE, kn_corrcoef(x[0]))                                                         \
    X(bincount, LINE, kn_bincount(zeros_i64(LINE), 3, x[0]))                                       \
    X(histogram, LINE, kn_histogram(x[0], 3, 0, 1))                                                \
    X(interp, LINE, kn_interp(x[0], x[1], x[2]))                                                   \
    X(is_in, LINE, kn_is_in(x[0], x[1]))                                                           \
    X(unique, LINE, nth(kn_unique(y, NULL, NULL, x[0]), y, 0))
#define SCANS(X)                                                                                   \
    X(cummax_index, LINE, nth(kn_cummax_index(y, y + 1, x[0], 0), y, 0))                           \
    X(cummin_index, LINE, nth(kn_cummin_index(y, y + 1, x[0], 0), y, 0))                           \
    X(logcumsumexp, LINE, kn_logcumsumexp(x[0], 0))                                                \
    X(diff, LINE, kn_diff(x[0], 1, 0))                                                             \
    X(argsort, LINE, kn_argsort(x[0], 0, false))                                                   \
    X(sort_index, LINE, nth(kn_sort_index(y, y + 1, x[0], 0, false), y, 0))
#define PRODUCTS(X)                                                                                \
    X(mv, SQUARE, kn_mv(x[0], kn_select(x[1], 0, 0)))                                              \
    X(dot, LINE, kn_dot(x[0], x[1]))                                                               \
    X(outer, LINE, kn_outer(x[0], x[1]))                                                           \
    X(geam, SQUARE, kn_geam(x[0], x[1], 2, 3, NULL))                                               \
    X(axpy_into, LINE, nth(kn_axpy_into(y[0] = kn_zeros_like(x[0]), 2, x[0]), y, 0))               \
    X(einsum, SQUARE, kn_einsum("ij,jk->ik", x, 2))                                                \
    X(trace, SQUARE, kn_trace(x[0]))                                                               \
    X(logdet, SQUARE, kn_logdet(x[0]))                                                             \
    X(lq, SQUARE, nth(kn_lq(y, y + 1, x[0]), y, 0))                                                \
    X(lstsq, SQUARE, kn_lstsq(x[0], x[1]))                                                         \
    X(pinv, SQUARE, kn_pinv(x[0], -1))                                                             \
    X(matrix_rank, SQUARE, kn_matrix_rank(x[0], -1))                                               \
    X(matrix_power, SQUARE, kn_matrix_power(x[0], 3))                                              \
    X(linear_add, SQUARE, kn_linear_add(x[0], x[1], KN_NONE, KN_NONE, KN_ACT_NONE))                \
    X(tensordot, SQUARE, kn_tensordot(x[0], x[1], KN_SHAPE(1), KN_SHAPE(0)))                       \
    X(cross, KN_SHAPE(2, 3), kn_cross(x[0], x[1], 1))
#define IMAGES(X)                                                                                  \
    X(conv_add, IMAGE, kn_conv_add(x[0], kn_index(x[1], AT_WINDOW), KN_NONE, KN_NONE, NULL))       \
    X(deconv, IMAGE, kn_deconv(x[0], kn_reshape(x[1], KN_SHAPE(4, 8, 2, 2)), KN_NONE, NULL))       \
    X(maxpool_index, IMAGE, nth(kn_maxpool_index(y, y + 1, x[0], KN_SHAPE(2, 2), NULL), y, 0))     \
    X(maxunpool, IMAGE, kn_maxunpool(x[0], OFFSETS, KN_SHAPE(2, 2), KN_SCALAR, NULL))              \
    X(unpool, IMAGE, kn_unpool(x[0], KN_SHAPE(2, 2), NULL))                                        \
    X(adaptive_avgpool, IMAGE, kn_adaptive_avgpool(x[0], KN_SHAPE(2, 2)))                          \
    X(adaptive_maxpool, IMAGE, kn_adaptive_maxpool(x[0], KN_SHAPE(2, 2)))                          \
    X(global_avgpool, IMAGE, kn_global_avgpool(x[0]))                                              \
    X(global_maxpool, IMAGE, kn_global_maxpool(x[0]))                                              \
    X(instancenorm, IMAGE, kn_instancenorm(x[0], KN_NONE, KN_NONE, 0.1))                           \
    X(lrn, IMAGE, kn_lrn(x[0], 3, 0.1, 0.75, 1))                                                   \
    X(pixel_shuffle, IMAGE, kn_pixel_shuffle(x[0], 2))                                             \
    X(pixel_unshuffle, IMAGE, kn_pixel_unshuffle(x[0], 2))                                         \
    X(affine_grid, KN_SHAPE(1, 2, 3), kn_affine_grid(x[0], 2, 2, true))                            \
    X(unfold, IMAGE, kn_unfold(x[0], KN_SHAPE(2, 2), NULL))                                        \
    X(fold, KN_SHAPE(1, 4, 9), kn_fold(x[0], KN_SHAPE(4, 4), KN_SHAPE(2, 2), NULL))
#define AT_WINDOW KN_ITEMS(KN_EVERY, KN_EVERY, KN_RANGE(0, 2, 1), KN_RANGE(0, 2, 1))
#define OFFSETS kn_cast(kn_zeros(IMAGE), KN_U8)
#define MOVES(X)                                                                                   \
    X(flatten, SQUARE, kn_flatten(x[0]))                                                           \
    X(swap_axes, SQUARE, kn_swap_axes(x[0], 0, 1))                                                 \
    X(move_axis, SQUARE, kn_move_axis(x[0], 0, 1))                                                 \
    X(copy, LINE, kn_copy(x[0]))                                                                   \
    X(stack, LINE, kn_stack(x, 2, 0))                                                              \
    X(split_axis, LINE, nth(kn_split_axis(y, x[0], HALVES, 2, 0), y, 0))                           \
    X(split_rows, LINE, nth(kn_split_rows(y, x[0], HALVES, 2), y, 0))                              \
    X(chunk, LINE, nth(kn_chunk(y, x[0], 2, 0), y, 0))                                             \
    X(unbind, LINE, nth(kn_unbind(y, x[0], 4, 0), y, 0))                                           \
    X(squeeze, KN_SHAPE(4, 1), kn_squeeze(x[0], KN_ALL))                                           \
    X(unsqueeze, LINE, kn_unsqueeze(x[0], 0))                                                      \
    X(flip, LINE, kn_flip(x[0], KN_ALL))                                                           \
    X(repeat, LINE, kn_repeat(x[0], 2, 0))                                                         \
    X(tile, LINE, kn_tile(x[0], KN_SHAPE(2)))                                                      \
    X(diagonal, SQUARE, kn_diagonal(x[0], 0, 0, 1))                                                \
    X(diag, SQUARE, kn_diag(x[0], 0))                                                              \
    X(meshgrid, LINE, nth(kn_meshgrid(y, x, 2), y, 0))                                             \
    X(shuffle, LINE, kn_shuffle(x[0], 0, rng))                                                     \
    X(zeros_like, LINE, kn_zeros_like(x[0]))                                                       \
    X(ones_like, LINE, kn_ones_like(x[0]))                                                         \
    X(full_like, LINE, kn_full_like(x[0], 2))
#define HALVES ((const int64_t[]){2, 2})
#define INDEXING(X)                                                                                \
    X(index, LINE, kn_index(x[0], KN_ITEMS(KN_RANGE(0, 4, 2))))                                    \
    X(set_at, LINE, kn_set_at(x[0], kn_select(x[1], 0, 0), AT0))                                   \
    X(add_at, LINE, kn_add_at(x[0], kn_select(x[1], 0, 0), AT0))                                   \
    X(set_into, LINE,                                                                              \
      nth(kn_set_into(y[0] = kn_zeros_like(x[0]), x[0], KN_ITEMS(KN_EVERY)), y, 0))                \
    X(fill_into, LINE, nth(kn_fill_into(y[0] = kn_zeros_like(x[0]), 2), y, 0))                     \
    X(select, LINE, kn_select(x[0], 0, 0))                                                         \
    X(masked_select, LINE, kn_masked_select(x[0], kn_cast(kn_ones(LINE), KN_BOOL)))                \
    X(embedding, SQUARE, kn_embedding(x[0], zeros_i64(LINE)))                                      \
    X(one_hot, LINE, kn_one_hot(x[0], 5))                                                          \
    X(multinomial, LINE, kn_multinomial(x[0], 2, true, rng))                                       \
    X(rnn_param, KN_SHAPE(10), kn_rnn_param(x[0], 1, &CELL, 0, 0, -1, KN_RNN_INPUT_BIAS))
#define CELL ((kn_rnn_options){.hidden = 2, .mode = KN_RNN_TANH})
#define ALL_CALLS(X)                                                                               \
    ANGLES(X)                                                                                      \
    ROWS(X)                                                                                        \
    LOSSES(X)                                                                                      \
    STATISTICS(X)                                                                                  \
    SCANS(X)                                                                                       \
    PRODUCTS(X)                                                                                    \
    IMAGES(X)                                                                                      \
    MOVES(X)                                                                                       \
    INDEXING(X)

#define DEFINE(name, shape, call)                                                                  \
    static kn_tensor *c_##name(kn_tensor *const x[]) {                                             \
        kn_tensor *y[4] = {NULL};                                                                  \
        (void)y;                                                                                   \
        return call;                                                                               \
    }
ALL_CALLS(DEFINE)
#undef DEFINE

typedef struct composed {
    const char *name;
    kn_tensor *(*f)(kn_tensor *const x[]);
    kn_shape shape;
} composed;

/* The call's inputs: floats in 0.3 … 0.9, no two alike; integers 0 … 2. */
static void inputs(kn_tensor *x[3], const composed *c, kn_dtype dtype) {
    for (int i = 0; i < 3; i++) {
        x[i] = kn_zeros(c->shape);
        const double n = (double)kn_tensor_numel(x[i]);
        kn_tensor *place = kn_reshape(kn_arange(0, n, 1, KN_F64), c->shape);
        x[i] = kn_affine(kn_sin(kn_affine(place, 1 + i, 1)), 0.3, 0.6);
        if (!(KN_CLASS_FLOAT >> dtype & 1)) x[i] = kn_affine(x[i], 3, -0.5);
        x[i] = kn_cast(x[i], dtype);
        assert_non_null(x[i]);
    }
}

/* The dtypes of x[0], a bit each. UNSUPPORTED: svd without LAPACK. */
static unsigned dtypes_of(const composed *c) {
    static const kn_dtype all[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    unsigned taken = 0;
    for (int i = 0; i < 8; i++) {
        KN_FRAME(.dtype = all[i] == KN_F64 ? KN_F64 : KN_F32);
        kn_tensor *x[3];
        inputs(x, c, all[i]);
        const bool done = c->f(x) != NULL;
        if (kn_check() == KN_ERR_UNSUPPORTED || done) taken |= 1u << all[i];
    }
    return taken;
}

/* The sum of the gradients of Σ y² by all inputs; NULL: y can't be differentiated. */
static kn_tensor *gradient_of(const composed *c, kn_tensor *y, kn_tensor *const x[3], bool again) {
    kn_tensor *d[3], *loss = sum_all(kn_square(y));
    const kn_gradients_options o = {.keep = 1, .again = again};
    kn_status status = kn_gradients(d, loss, x, 3, &o);
    if (status == KN_OK) return kn_add(kn_add(d[0], d[1]), d[2]);
    if (status != KN_ERR_UNSUPPORTED) fail_msg("%s: %s", c->name, kn_last_error()->message);
    return NULL;
}

/* How often the result can be differentiated, of three times. */
static int orders_of(const composed *c) {
    if (!(dtypes_of(c) >> KN_F64 & 1)) return 0;
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x[3], *y, *next;
    inputs(x, c, KN_F64);
    for (int i = 0; i < 3; i++) x[i] = kn_watch(x[i]);
    int n = 0;
    for (y = c->f(x); n < 3 && y && y->grad; n++, y = next) {
        next = gradient_of(c, y, x, true);
        if (!next) {
            n += gradient_of(c, y, x, false) != NULL;
            break;
        }
    }
    kn_status status = kn_check();
    if (status < 0 && status != KN_ERR_UNSUPPORTED)
        fail_msg("%s: %s", c->name, kn_last_error()->message);
    return n;
}

static const char *class_name(unsigned dtypes) {
    if (dtypes == KN_CLASS_REAL) return "REAL";
    if (dtypes == KN_CLASS_FLOAT) return "FLOAT";
    if (dtypes == KN_CLASS_INDEX) return "INDEX";
    if (dtypes == KN_CLASS_NUMERIC) return "NUMERIC";
    if (dtypes == KN_CLASS_ANY) return "ANY";
    return NULL;
}

/* fn of each call; the first result that isn't 0. */
static int each_call(int (*fn)(const composed *c)) {
#define ENTRY(name, shape, call) {"kn_" #name, c_##name, shape},
    const composed calls[] = {ALL_CALLS(ENTRY)};
#undef ENTRY
    int failed = 0;
    assert_ok(kn_rng_create(&rng, 7));
    for (size_t i = 0; i < sizeof calls / sizeof *calls && !failed; i++) failed = fn(&calls[i]);
    kn_rng_destroy(rng);
    return failed;
}

static int check_dtypes(const composed *c) {
    const unsigned dtypes = dtypes_of(c);
    if (!class_name(dtypes)) fail_msg("%s takes dtypes %x, which is no class", c->name, dtypes);
    return 0;
}
static void each_function_takes_a_class_of_dtypes(void **state) {
    (void)state;
    each_call(check_dtypes);
}

static int check_orders(const composed *c) {
    (void)orders_of(c);
    return 0;
}
static void gradients_exist_or_are_unsupported(void **state) {
    (void)state;
    each_call(check_orders);
}

static int list(const composed *c) {
    const char *const orders[] = {"none", "first", "1, 2", "any"};
    printf("%s|%s|%s\n", c->name, class_name(dtypes_of(c)), orders[orders_of(c)]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) return each_call(list);
    return RUN_TESTS(OPS_TEST(each_function_takes_a_class_of_dtypes),
                     OPS_TEST(gradients_exist_or_are_unsupported));
}
