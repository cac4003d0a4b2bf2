/* Flags of options: 0 and KN_OFF turn a feature off, 1 turns it on, other values are errors. */
#include <math.h>
#include <string.h>

#include "ops_test.h"

static kn_tensor *square(void) { return F32(KN_SHAPE(2, 2), 4, 1, 2, 5); }
static kn_tensor *image(void) {
    return F32(KN_SHAPE(1, 1, 3, 3), 1, 2, 3, 4, (float)NAN, 6, 7, 8, 9);
}
static kn_tensor *plain_image(void) { return F32(KN_SHAPE(1, 1, 2, 2), 1, 2, 3, 4); }

/* Each runs an op with one flag; with 0 and 1 the results differ. */

static kn_tensor *conv_flip(int flag) {
    const kn_conv_options o = {.flip = flag};
    return kn_conv(plain_image(), plain_image(), KN_NONE, &o);
}
static kn_tensor *deconv_flip(int flag) {
    const kn_conv_options o = {.flip = flag};
    return kn_deconv(plain_image(), plain_image(), KN_NONE, &o);
}
static kn_tensor *maxpool_ceil(int flag) {
    return kn_maxpool(image(), KN_SHAPE(2, 2), &(kn_pooling_options){.ceil = flag});
}
static kn_tensor *maxpool_skip_nan(int flag) {
    return kn_maxpool(image(), KN_SHAPE(2, 2), &(kn_pooling_options){.skip_nan = flag});
}
static kn_tensor *avgpool_inside(int flag) {
    const kn_pooling_options o = {.inside = flag, .padding = {1, 1}};
    return kn_avgpool(plain_image(), KN_SHAPE(2, 2), &o);
}
static kn_tensor *matmul_trans_a(int flag) {
    return kn_matmul(square(), square(), &(kn_matmul_options){.trans_a = flag});
}
static kn_tensor *matmul_trans_b(int flag) {
    return kn_matmul(square(), square(), &(kn_matmul_options){.trans_b = flag});
}
static kn_tensor *geam_trans_a(int flag) {
    return kn_geam(square(), square(), 1, 2, &(kn_matmul_options){.trans_a = flag});
}
static kn_tensor *geam_trans_b(int flag) {
    return kn_geam(square(), square(), 1, 2, &(kn_matmul_options){.trans_b = flag});
}
static kn_tensor *solve_trans(int flag) {
    return kn_solve(square(), square(), &(kn_solve_options){.trans = flag});
}
static kn_tensor *triangular_solve_upper(int flag) {
    return kn_triangular_solve(square(), square(), &(kn_solve_options){.upper = flag});
}
static kn_tensor *triangular_solve_unit(int flag) {
    return kn_triangular_solve(square(), square(), &(kn_solve_options){.unit = flag});
}
static kn_tensor *var_population(int flag) {
    return kn_var(square(), KN_ALL, false, &(kn_var_options){.population = flag});
}
static kn_tensor *cross_entropy_with_ignores(int flag) {
    const kn_cross_entropy_options o = {
        .ignores = flag, .ignore_index = 1, .reduction = KN_REDUCE_SUM};
    return kn_cross_entropy_with(square(), I64(KN_SHAPE(2), 0, 1), &o);
}
static kn_tensor *grid_sample(const kn_grid_options *o) {
    return kn_grid_sample(plain_image(), F32(KN_SHAPE(1, 1, 2, 2), 0.1F, 0.2F, 2, 0.9F), o);
}
static kn_tensor *grid_sample_nearest(int flag) {
    return grid_sample(&(kn_grid_options){.nearest = flag});
}
static kn_tensor *grid_sample_border(int flag) {
    return grid_sample(&(kn_grid_options){.border = flag});
}
static kn_tensor *grid_sample_align_corners(int flag) {
    return grid_sample(&(kn_grid_options){.align_corners = flag});
}
static kn_tensor *batchnorm_training(int flag) {
    const kn_batchnorm_options o = {.training = flag};
    kn_tensor *mean = kn_zeros(KN_SHAPE(2)), *var = kn_ones(KN_SHAPE(2));
    return kn_batchnorm(square(), mean, var, KN_NONE, KN_NONE, &o) ? mean : NULL;
}
static kn_tensor *batchnorm_per_activation(int flag) {
    const kn_batchnorm_options o = {.training = 1, .per_activation = flag};
    kn_tensor *x = F32(KN_SHAPE(2, 1, 2), 4, 1, 2, 5);
    return kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE, &o);
}
static kn_tensor *rnn(const kn_rnn_options *o) {
    int64_t n = kn_rnn_params(2, o);
    return n < 0 ? NULL : kn_rnn(kn_ones(KN_SHAPE(3, 1, 2)), kn_ones(KN_SHAPE(n)), o);
}
static kn_tensor *rnn_params_bidirectional(int flag) {
    return rnn(&(kn_rnn_options){.hidden = 2, .bidirectional = flag});
}
static kn_tensor *rnn_params_skip_input(int flag) {
    return rnn(&(kn_rnn_options){.hidden = 2, .skip_input = flag});
}
static kn_tensor *attention_causal(int flag) {
    kn_tensor *q = kn_ones(KN_SHAPE(1, 1, 2, 2));
    return kn_attention(q, q, plain_image(), &(kn_attention_options){.causal = flag});
}
static kn_tensor *rotary_adjacent(int flag) {
    kn_tensor *x = F32(KN_SHAPE(2, 4), 1, 2, 3, 4, 5, 6, 7, 8);
    return kn_rotary(x, &(kn_rotary_options){.adjacent = flag});
}
static kn_tensor *ctc_loss_zero_infinity(int flag) { /* two labels in one step */
    const kn_ctc_options o = {.zero_infinity = flag};
    return kn_ctc_loss(kn_zeros(KN_SHAPE(1, 1, 3)), I64(KN_SHAPE(1, 2), 1, 2), &o);
}

static bool same(kn_tensor *a, kn_tensor *b) {
    kn_shape p = kn_tensor_shape(a), q = kn_tensor_shape(b);
    size_t bytes = (size_t)kn_tensor_numel(a) * kn_dtype_bytes(kn_tensor_dtype(a));
    return p.n_dims == q.n_dims && !memcmp(p.dim, q.dim, (size_t)p.n_dims * sizeof p.dim[0]) &&
           !memcmp(kn_data(a), kn_data(b), bytes);
}

typedef kn_tensor *(*flag_fn)(int flag);

static void check_flag(const char *function, const char *name, flag_fn run) {
    KN_FRAME();
    char text[128];
    kn_tensor *off = run(0), *on = run(1), *also_off = run(KN_OFF);
    assert_int_equal(kn_check(), KN_OK);
    if (!same(off, also_off)) fail_msg("%s: KN_OFF differs from 0", name);
    if (same(off, on)) fail_msg("%s: 1 does not differ from 0", name);
    static const int wrong[] = {2, 5, -2};
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "kn_%s: %s is %d; it must be 0, 1 or KN_OFF", function, name,
                 wrong[i]);
        assert_op_fails(run(wrong[i]), KN_ERR_INVALID, text);
    }
}
#define CHECK(function, name) check_flag(#function, #name, function##_##name)

static void flags_of_windows_and_products(void **state) {
    (void)state;
    CHECK(conv, flip);
    CHECK(deconv, flip);
    CHECK(maxpool, ceil);
    CHECK(maxpool, skip_nan);
    CHECK(avgpool, inside);
    CHECK(matmul, trans_a);
    CHECK(matmul, trans_b);
    CHECK(geam, trans_a);
    CHECK(geam, trans_b);
    CHECK(solve, trans);
    CHECK(triangular_solve, upper);
    CHECK(triangular_solve, unit);
}

static void flags_of_statistics_and_images(void **state) {
    (void)state;
    CHECK(var, population);
    CHECK(cross_entropy_with, ignores);
    CHECK(grid_sample, nearest);
    CHECK(grid_sample, border);
    CHECK(grid_sample, align_corners);
    CHECK(batchnorm, training);
    CHECK(batchnorm, per_activation);
}

static void flags_of_sequences(void **state) {
    (void)state;
    CHECK(rnn_params, bidirectional);
    CHECK(rnn_params, skip_input);
    CHECK(attention, causal);
    CHECK(rotary, adjacent);
    CHECK(ctc_loss, zero_infinity);
}

/* Also where an op has no use for them. */
static void other_values_are_errors_everywhere(void **state) {
    (void)state;
    KN_FRAME();
    const kn_pooling_options o = {.skip_nan = 3}, twice = {.ceil = 2};
    kn_tensor *x = plain_image(), *y, *offsets;
    assert_op_fails(kn_avgpool(x, KN_SHAPE(2, 2), &o), KN_ERR_INVALID, "kn_avgpool: skip_nan is 3");
    assert_op_fails(kn_unpool(x, KN_SHAPE(2, 2), &o), KN_ERR_INVALID, "kn_unpool: skip_nan is 3");
    assert_fails(kn_maxpool_index(&y, &offsets, x, KN_SHAPE(2, 2), &twice), KN_ERR_INVALID,
                 "kn_maxpool_index: ceil is 2");
    const kn_solve_options half = {.upper = 7}, off = {.upper = KN_OFF, .unit = KN_OFF};
    assert_op_fails(kn_solve(square(), square(), &half), KN_ERR_INVALID, "kn_solve: upper is 7");
    assert_true(same(kn_solve(square(), square(), &off), kn_solve(square(), square(), NULL)));
}

int main(void) {
    return RUN_TESTS(OPS_TEST(flags_of_windows_and_products),
                     OPS_TEST(flags_of_statistics_and_images), OPS_TEST(flags_of_sequences),
                     OPS_TEST(other_values_are_errors_everywhere));
}
