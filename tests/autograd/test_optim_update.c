/* kn_optim_update: steps of one tensor. */
#include <knet/optim.h>

#include "autograd_test.h"

enum { ROWS = 40, COLUMNS = 500, STEPS = 4 }; /* more than one chunk */

typedef kn_status (*create_fn)(kn_optim **out, kn_params *params);

static kn_status sgd(kn_optim **out, kn_params *p) {
    return kn_sgd_create(out, p, 0.1, &(kn_sgd_options){.weight_decay = 0.01});
}
static kn_status clipped(kn_optim **out, kn_params *p) {
    return kn_sgd_create(out, p, 0.1, &(kn_sgd_options){.clip_norm = 0.5});
}
/* Limits near 1e-6 tell which one is first. */
static kn_status clipped_twice(kn_optim **out, kn_params *p) {
    return kn_sgd_create(out, p, 1e5, &(kn_sgd_options){.clip_norm = 1e-6, .clip_each = 2e-6});
}
static kn_status momentum(kn_optim **out, kn_params *p) {
    return kn_momentum_create(out, p, 0.1, 0.9, NULL);
}
static kn_status nesterov(kn_optim **out, kn_params *p) {
    return kn_nesterov_create(out, p, 0.1, 0.9, NULL);
}
static kn_status adagrad(kn_optim **out, kn_params *p) {
    return kn_adagrad_create(out, p, 0.1, NULL);
}
static kn_status rmsprop(kn_optim **out, kn_params *p) {
    return kn_rmsprop_create(out, p, 0.1, NULL);
}
static kn_status adadelta(kn_optim **out, kn_params *p) {
    return kn_adadelta_create(out, p, 1, NULL);
}
static kn_status adam(kn_optim **out, kn_params *p) {
    return kn_adam_create(out, p, 0.1, &(kn_adam_options){.weight_decay = 0.01});
}
static kn_status lamb(kn_optim **out, kn_params *p) { return kn_lamb_create(out, p, 0.1, NULL); }

static kn_optim *alone(create_fn create) {
    kn_params *none = NULL;
    kn_optim *optim = NULL;
    assert_ok(kn_params_create(&none, NULL));
    assert_ok(create(&optim, none));
    kn_params_destroy(none);
    return optim;
}

/* A loss with another gradient at each element and step. */
static kn_tensor *loss_of(kn_tensor *w) { return sum_all(kn_mul(kn_sin(w), kn_exp(w))); }

static void assert_same(kn_tensor *x, kn_tensor *y) {
    assert_memory_equal(kn_data(x), kn_data(y), ROWS * COLUMNS * sizeof(float));
}

static void steps_are_those_of_a_parameter(create_fn create) {
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(ROWS, COLUMNS), kn_init_xavier(), "w");
    kn_tensor *own = kn_tensor_from(kn_data(w), KN_F32, KN_SHAPE(ROWS, COLUMNS));
    kn_optim *theirs = NULL, *optim = alone(create);
    assert_ok(create(&theirs, set));
    for (int i = 0; i < STEPS; i++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(own), *g = NULL;
        assert_ok(kn_gradients(&g, loss_of(x), &x, 1, NULL));
        kn_tensor *before = kn_affine(g, 1, 0);
        assert_ok(kn_optim_update(optim, own, g));
        assert_same(g, before);
        assert_ok(kn_backward(loss_of(w)));
        assert_ok(kn_optim_step(theirs));
    }
    assert_same(own, w);
    kn_optim_destroy(optim);
    kn_optim_destroy(theirs);
    kn_params_destroy(set);
}

static void a_tensor_moves_as_a_parameter(void **state) {
    (void)state;
    static const create_fn all[] = {sgd,     clipped, clipped_twice, momentum, nesterov,
                                    adagrad, rmsprop, adadelta,      adam,     lamb};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) steps_are_those_of_a_parameter(all[i]);
}

static void two_limits_clip_one_after_the_other(void **state) {
    (void)state;
    KN_FRAME();
    static const kn_sgd_options options[] = {{.clip_norm = 5, .clip_each = 1},
                                             {.clip_norm = 1, .clip_each = 5}};
    for (int i = 0; i < 2; i++) {
        kn_params *none = params_f32();
        kn_optim *optim = NULL;
        assert_ok(kn_sgd_create(&optim, none, 1, &options[i]));
        kn_tensor *w = F32(KN_SHAPE(2), 0, 0), *g = F32(KN_SHAPE(2), 30, 40);
        assert_ok(kn_optim_update(optim, w, g));
        assert_close(ops_at(w, 0), -0.6, 1e-5, 0);
        assert_close(ops_at(w, 1), -0.8, 1e-5, 0);
        assert_ok(kn_optim_update(optim, w, F32(KN_SHAPE(2), 0.1f, 0))); /* short enough */
        assert_close(ops_at(w, 0), -0.7, 1e-5, 0);
        kn_optim_destroy(optim);
        kn_params_destroy(none);
    }
}

static void the_norm_of_all_is_of_what_each_leaves(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    const kn_sgd_options options = {.clip_norm = 1e-6, .clip_each = 1e-6};
    kn_params *none = NULL;
    kn_optim *optim = NULL;
    assert_ok(kn_params_create(&none, &(kn_params_options){.dtype = KN_F64}));
    assert_ok(kn_sgd_create(&optim, none, 1, &options));
    kn_tensor *w = F64(KN_SHAPE(1), 0), *g = F64(KN_SHAPE(1), 3e-6);
    assert_ok(kn_optim_update(optim, w, g));
    /* 3e-6·1/4, then ·1/1.75 */
    assert_close(ops_at(w, 0), -3e-6 / 4 / 1.75, 1e-9, 0);
    assert_close(ops_at(g, 0), 3e-6, 0, 0);
    kn_optim_destroy(optim);
    kn_params_destroy(none);
}

static void the_state_and_the_rate_are_the_tensors(void **state) {
    (void)state;
    KN_FRAME();
    char name[32];
    kn_optim *optim = alone(adam);
    kn_tensor *w = F32(KN_SHAPE(1, 2), 1, 2), *g = F32(KN_SHAPE(1, 2), 3, -4);
    assert_null(kn_optim_state_at(optim, 1, name, sizeof name));
    assert_ok(kn_optim_lr(optim, 0));
    assert_ok(kn_optim_update(optim, w, g));
    assert_values(w, 1, 2);
    assert_close(ops_at(kn_optim_state_at(optim, 0, name, sizeof name), 1), 1, 0, 0);
    assert_close(ops_at(kn_optim_state_at(optim, 1, name, sizeof name), 1), -0.4, 1e-5, 0);
    assert_string_equal(name, "m");
    assert_close(ops_at(kn_optim_state_at(optim, 2, name, sizeof name), 0), 0.009, 1e-4, 0);
    assert_string_equal(name, "v");
    assert_null(kn_optim_state_at(optim, 3, name, sizeof name));
    assert_ok(kn_check());
    kn_optim_destroy(optim);
    optim = alone(rmsprop);
    assert_ok(kn_optim_update(optim, w, g));
    assert_non_null(kn_optim_state_at(optim, 1, name, sizeof name));
    assert_string_equal(name, "v");
    assert_null(kn_optim_state_at(optim, 2, name, sizeof name));
    kn_optim_destroy(optim);
}

static void wrong_tensors_say_why(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    PARAM(set, KN_SHAPE(1), "w", 2);
    kn_optim *optim = alone(momentum), *full = NULL;
    kn_tensor *w = F32(KN_SHAPE(2), 1, 2), *g = F32(KN_SHAPE(1, 2), 3, 4);
    assert_ok(momentum(&full, set));
    assert_fails(kn_optim_update(full, w, w), KN_ERR_INVALID,
                 "has 1 parameters; use kn_optim_step");
    assert_fails(kn_optim_update(optim, w, NULL), KN_ERR_INVALID, "g is NULL");
    assert_fails(kn_optim_update(optim, w, g), KN_ERR_SHAPE, "w is [2], g is [1,2]");
    assert_ok(kn_optim_update(optim, w, w));
    assert_fails(kn_optim_update(optim, F32(KN_SHAPE(1), 1), F32(KN_SHAPE(1), 1)), KN_ERR_SHAPE,
                 "w has 1 elements; the optimiser's tensor has 2");
    assert_fails(kn_optim_update(optim, F64(KN_SHAPE(2), 1, 2), F32(KN_SHAPE(2), 1, 2)),
                 KN_ERR_DTYPE, "f64");
    assert_values(w, 0.9f, 1.8f); /* and stays usable */
    assert_ok(kn_optim_update(optim, w, F32(KN_SHAPE(2), 0, 0)));
    kn_optim_destroy(optim);
    kn_optim_destroy(full);
    kn_params_destroy(set);
}

static void an_optimiser_without_state_keeps_to_its_tensor_too(void **state) {
    (void)state;
    KN_FRAME();
    kn_optim *optim = alone(sgd);
    kn_tensor *w = F32(KN_SHAPE(2), 1, 2), *g = F32(KN_SHAPE(2), 0, 0), *one = F32(KN_SHAPE(1), 1);
    assert_ok(kn_optim_update(optim, w, g));
    assert_fails(kn_optim_update(optim, one, one), KN_ERR_SHAPE,
                 "w has 1 elements; the optimiser's tensor has 2");
    assert_ok(kn_optim_update(optim, w, g));
    kn_optim_destroy(optim);
}

static void a_failed_update_leaves_the_optimiser_free(void **state) {
    (void)state;
    KN_FRAME();
    kn_optim *optim = alone(adam);
    kn_tensor *w = F32(KN_SHAPE(3), 1, 2, 3), *g = F32(KN_SHAPE(3), 1, 1, 1);
    kn_tensor *five = kn_ones(KN_SHAPE(5)), *whole = I64(KN_SHAPE(5), 1, 2, 3, 4, 5);
    assert_fails(kn_optim_update(optim, five, kn_cast(five, KN_F64)), KN_ERR_DTYPE,
                 "w is f32, g is f64; both must be f32, or both f64");
    assert_fails(kn_optim_update(optim, whole, whole), KN_ERR_DTYPE, "w is i64");
    assert_fails(kn_optim_update(optim, five, KN_NONE), KN_ERR_INVALID, "g is KN_NONE");
    assert_ok(kn_optim_update(optim, w, g));
    kn_optim_destroy(optim);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_tensor_moves_as_a_parameter), OPS_TEST(two_limits_clip_one_after_the_other),
        OPS_TEST(the_norm_of_all_is_of_what_each_leaves),
        OPS_TEST(the_state_and_the_rate_are_the_tensors), OPS_TEST(wrong_tensors_say_why),
        OPS_TEST(an_optimiser_without_state_keeps_to_its_tensor_too),
        OPS_TEST(a_failed_update_leaves_the_optimiser_free));
}
