/* Layers that don't fit into the one before them, or only in part: frozen, they give the same. */
#include <knet/layer.h>
#include <knet/op.h>
#include <math.h>

#include "test.h"

typedef struct fixture {
    kn_params *params;
    kn_layer *net;
} fixture;

static fixture fixture_make(kn_dtype dtype) {
    fixture f = {0};
    assert_ok(kn_params_create(&f.params, &(kn_params_options){.seed = 1, .dtype = dtype}));
    assert_ok(kn_layer_create(&f.net, f.params, NULL));
    return f;
}

static void fixture_release(fixture *f) {
    kn_layer_destroy(f->net);
    kn_params_destroy(f->params);
}

/* A batch norm whose statistics no fold can miss. */
static kn_layer *norm_add(kn_layer *parent, const char *name, int64_t n, kn_layer_act_fn act) {
    kn_layer *norm = kn_layer_batchnorm(parent, name, n, &(kn_layer_norm_options){.act = act});
    assert_non_null(norm);
    KN_FRAME();
    kn_tensor *mean = kn_layer_state_at(norm, 0, NULL), *var = kn_layer_state_at(norm, 1, NULL);
    assert_ok(
        kn_add_into(mean, kn_cast(kn_arange(0, (double)n, 1, KN_F64), kn_tensor_dtype(mean))));
    assert_ok(kn_add_into(var, kn_cast(kn_arange(0, (double)n, 1, KN_F64), kn_tensor_dtype(var))));
    return norm;
}

static kn_tensor *input(kn_dtype dtype, kn_shape shape) {
    int64_t n = 1;
    for (int i = 0; i < shape.n_dims; i++) n *= shape.dim[i];
    return kn_cast(kn_reshape(kn_sin(kn_arange(0, 1.7 * (double)n - 0.1, 1.7, KN_F64)), shape),
                   dtype);
}

static void assert_near(kn_tensor *frozen, kn_tensor *plain) {
    double off = 0, most = 0;
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_dtype(frozen), kn_tensor_dtype(plain));
    assert_ok(kn_item(&off, kn_max_abs(kn_sub(frozen, plain), KN_ALL, false)));
    assert_ok(kn_item(&most, kn_max_abs(plain, KN_ALL, false)));
    assert_true(most > 0.1 && off <= 1e-5 * most);
}

static void assert_frozen_is_plain(fixture *f, kn_tensor *x, int autocast) {
    KN_FRAME(.autocast = autocast);
    kn_tensor *plain = kn_layer_forward(f->net, x);
    assert_ok(kn_check());
    assert_ok(kn_layer_freeze(f->net));
    assert_near(kn_layer_forward(f->net, x), plain);
    kn_layer_thaw(f->net);
}

static const kn_layer_conv_options same = {.conv = {.padding = {1, 1}}};

static void a_batch_norm_is_along_axis_1_of_a_linear_layer_too(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F32);
    assert_non_null(kn_layer_linear(f.net, "fc", 4, 5, NULL));
    norm_add(f.net, "bn", 5, kn_tanh);
    KN_FRAME();
    assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(2, 5, 4)), 0);
    assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(7, 4)), 0);
    assert_ok(kn_layer_freeze(f.net));
    assert_null(kn_layer_forward(f.net, input(KN_F32, KN_SHAPE(2, 3, 4))));
    assert_int_equal(kn_check(), KN_ERR_SHAPE);
    fixture_release(&f);
}

static void the_act_of_a_norm_comes_before_the_sum(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F32);
    kn_layer *sum = kn_layer_residual(f.net, "r");
    assert_non_null(kn_layer_conv(sum, "c", 16, 16, KN_SHAPE(3, 3), &same));
    norm_add(sum, "bn", 16, kn_relu);
    KN_FRAME();
    assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(1, 16, 5, 5)), 0);
    fixture_release(&f);
}

typedef struct pair {
    kn_layer *conv, *norm;
} pair;

static kn_tensor *add_after(void *ctx, kn_layer *self, kn_tensor *x) {
    pair *p = ctx;
    (void)self;
    return kn_layer_forward_add(p->conv, p->norm, x, x, kn_relu);
}

static void forward_add_applies_the_act_of_its_norm(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F32);
    pair p = {NULL, NULL};
    kn_layer *own = kn_layer_function(f.net, "f", add_after, &p);
    p.conv = kn_layer_conv(own, "c", 16, 16, KN_SHAPE(3, 3), &same);
    p.norm = norm_add(own, "bn", 16, kn_tanh);
    KN_FRAME();
    assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(1, 16, 5, 5)), 0);
    fixture_release(&f);
}

/* --- functions that read what folding would hide --- */

/* A function that normalizes before it convolves. */
static kn_tensor *backwards(void *ctx, kn_layer *self, kn_tensor *x) {
    const pair *p = ctx;
    (void)self;
    return kn_layer_forward(p->conv, kn_layer_forward(p->norm, x));
}
static kn_tensor *reads_twice(void *ctx, kn_layer *self, kn_tensor *x) {
    const pair *p = ctx;
    (void)self;
    kn_tensor *h = kn_layer_forward(p->conv, x), *y = kn_layer_forward(p->norm, h);
    return y ? kn_add(h, kn_tanh(y)) : NULL;
}
static kn_tensor *runs_twice(void *ctx, kn_layer *self, kn_tensor *x) {
    const pair *p = ctx;
    (void)self;
    kn_tensor *h = kn_layer_forward(p->conv, kn_layer_forward(p->conv, x));
    return kn_layer_forward(p->norm, h);
}

static void functions_may_run_their_layers_in_any_way(void **state) {
    (void)state;
    const kn_layer_fn fns[] = {backwards, reads_twice, runs_twice};
    for (int i = 0; i < 3; i++) {
        fixture f = fixture_make(KN_F32);
        pair p = {NULL, NULL};
        kn_layer *own = kn_layer_function(f.net, "f", fns[i], &p);
        p.conv = kn_layer_conv(own, "c", 16, 16, KN_SHAPE(3, 3), &same);
        p.norm = norm_add(own, "bn", 16, kn_tanh);
        KN_FRAME();
        assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(1, 16, 5, 5)), 0);
        fixture_release(&f);
    }
}

static void a_layer_alone_gives_its_own_result(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F32);
    kn_layer *conv = kn_layer_conv(f.net, "c", 16, 16, KN_SHAPE(3, 3), &same);
    kn_layer *norm = norm_add(f.net, "bn", 16, kn_tanh), *sum = kn_layer_residual(f.net, "r");
    kn_layer *alone[] = {conv, norm, sum, kn_layer_act(f.net, "a", kn_relu)};
    assert_non_null(kn_layer_linear(sum, "fc", 5, 5, NULL));
    KN_FRAME(.record = KN_OFF);
    kn_tensor *x = input(KN_F32, KN_SHAPE(1, 16, 5, 5)), *plain[4];
    for (int i = 0; i < 4; i++) assert_non_null(plain[i] = kn_layer_forward(alone[i], x));
    assert_ok(kn_layer_freeze(f.net));
    for (int i = 0; i < 4; i++) assert_near(kn_layer_forward(alone[i], x), plain[i]);
    fixture_release(&f);
}

static void only_roots_freeze(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F32);
    kn_layer *own = kn_layer_sequential(f.net, "f");
    assert_fails(kn_layer_freeze(own), KN_ERR_INVALID, "the layer is not a root");
    assert_fails(kn_layer_freeze(NULL), KN_ERR_INVALID, "root is NULL");
    fixture_release(&f);
}

static void sums_may_broadcast(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F32);
    kn_layer *sum = kn_layer_residual(f.net, "r");
    assert_non_null(kn_layer_conv(sum, "c", 1, 16, KN_SHAPE(3, 3), &same));
    norm_add(sum, "bn", 16, NULL);
    assert_non_null(kn_layer_act(f.net, "a", kn_relu));
    KN_FRAME();
    assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(2, 1, 5, 5)), 0);
    fixture_release(&f);
}

/* One call for rows; else the sum is an op of its own. */
static void sums_of_linear_layers_are_the_same(void **state) {
    (void)state;
    for (int64_t n_in = 1; n_in <= 5; n_in += 4) {
        fixture f = fixture_make(KN_F32);
        kn_layer *sum = kn_layer_residual(f.net, "r");
        assert_non_null(kn_layer_linear(sum, "fc", n_in, 5, NULL));
        norm_add(sum, "bn", 5, NULL);
        assert_non_null(kn_layer_act(f.net, "a", kn_relu));
        KN_FRAME();
        assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(7, n_in)), 0);
        assert_frozen_is_plain(&f, input(KN_F32, KN_SHAPE(2, 5, n_in)), 0);
        fixture_release(&f);
    }
}

static void f64_stays_f64_in_mixed_precision(void **state) {
    (void)state;
    fixture f = fixture_make(KN_F64);
    assert_non_null(kn_layer_conv(f.net, "c", 3, 4, KN_SHAPE(3, 3), &same));
    norm_add(f.net, "bn", 4, kn_relu);
    KN_FRAME();
    assert_frozen_is_plain(&f, input(KN_F64, KN_SHAPE(2, 3, 5, 5)), KN_BF16);
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(a_batch_norm_is_along_axis_1_of_a_linear_layer_too),
        TEST(the_act_of_a_norm_comes_before_the_sum), TEST(forward_add_applies_the_act_of_its_norm),
        TEST(sums_may_broadcast), TEST(sums_of_linear_layers_are_the_same),
        TEST(functions_may_run_their_layers_in_any_way), TEST(a_layer_alone_gives_its_own_result),
        TEST(only_roots_freeze), TEST(f64_stays_f64_in_mixed_precision));
}
