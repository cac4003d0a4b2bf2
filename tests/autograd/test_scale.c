/* Loss scaling: the scale's course, and that it changes no step. */
#include <knet/ops.h>
#include <knet/scale.h>
#include <knet/tape.h>
#include <math.h>

#include "test.h"

typedef struct fixture {
    kn_params *params;
    kn_tensor *w;
    kn_optim *optim;
    kn_loss_scale *scale;
} fixture;

static void fixture_init(fixture *f, const kn_loss_scale_options *options) {
    *f = (fixture){0};
    assert_ok(kn_params_create(&f->params, NULL));
    f->w = kn_param(f->params, KN_SHAPE(3), (kn_init){KN_INIT_CONSTANT, 2, 0}, "w");
    assert_ok(kn_sgd_create(&f->optim, f->params, 0.125, NULL));
    assert_ok(kn_loss_scale_create(&f->scale, f->params, options));
}

static void fixture_release(fixture *f) {
    kn_loss_scale_destroy(f->scale);
    kn_optim_destroy(f->optim);
    kn_params_destroy(f->params);
}

/* One step of loss = Σ by·w; whether it was made. */
static bool step(fixture *f, double by) {
    bool stepped = false;
    KN_TAPE();
    kn_tensor *loss = kn_affine(kn_sum(f->w, KN_ALL, false), by, 0);
    assert_ok(kn_backward(kn_loss_scale_apply(f->scale, loss)));
    assert_ok(kn_loss_scale_step(f->scale, f->optim, &stepped));
    return stepped;
}

static void assert_w(fixture *f, double want) {
    const float *w = kn_data(f->w);
    for (int i = 0; i < 3; i++) assert_close(w[i], want, 1e-6, 0);
}

static void the_scale_leaves_steps_as_they_are(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, NULL);
    assert_close(kn_loss_scale_state_get(f.scale).factor, 65536, 0, 0);
    assert_true(step(&f, 2));
    assert_w(&f, 1.75);
    assert_true(step(&f, -4));
    assert_w(&f, 2.25);
    assert_int_equal(kn_loss_scale_state_get(f.scale).n_good, 2);
    fixture_release(&f);
}

static void a_gradient_that_is_not_finite_leaves_the_step_out(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, &(kn_loss_scale_options){.initial = 0x1p20, .backoff = 0.25});
    assert_true(step(&f, 1));
    assert_false(step(&f, 1e35)); /* 1e35·2^20 is beyond f32 */
    assert_w(&f, 1.875);
    kn_loss_scale_state s = kn_loss_scale_state_get(f.scale);
    assert_close(s.factor, 0x1p18, 0, 0);
    assert_int_equal(s.n_good, 0);
    assert_int_equal(s.n_skipped, 1);
    assert_true(step(&f, 1)); /* from zero gradients */
    assert_w(&f, 1.75);
    fixture_release(&f);
}

static void the_scale_grows_after_good_steps(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, &(kn_loss_scale_options){.initial = 8, .growth = 4, .every = 3});
    for (int i = 0; i < 5; i++) assert_true(step(&f, 0));
    assert_close(kn_loss_scale_state_get(f.scale).factor, 32, 0, 0);
    assert_false(step(&f, (double)NAN));
    assert_true(step(&f, 0));
    assert_close(kn_loss_scale_state_get(f.scale).factor, 16, 0, 0);
    fixture_release(&f);
}

static void steps_without_a_backward_take_the_same_gradients(void **state) {
    (void)state;
    fixture f;
    bool stepped = false;
    fixture_init(&f, &(kn_loss_scale_options){.initial = 8, .every = 1}); /* it grows each time */
    for (int i = 0; i < 2; i++) {
        assert_true(step(&f, 2));
        assert_ok(kn_loss_scale_step(f.scale, f.optim, &stepped));
        assert_true(stepped);
        assert_w(&f, 1.5 - 0.5 * i);
    }
    fixture_release(&f);
}

static void the_scale_has_a_limit(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, &(kn_loss_scale_options){.initial = 0x1p40, .every = 1});
    assert_true(step(&f, 0));
    assert_close(kn_loss_scale_state_get(f.scale).factor, 0x1p40, 0, 0);
    fixture_release(&f);
}

static void the_scale_grows_with_the_last_of_the_steps(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, &(kn_loss_scale_options){.initial = 8, .every = 2});
    assert_true(step(&f, 0));
    assert_close(kn_loss_scale_state_get(f.scale).factor, 8, 0, 0);
    assert_true(step(&f, 0));
    assert_close(kn_loss_scale_state_get(f.scale).factor, 16, 0, 0);
    fixture_release(&f);
}

static void gradients_that_never_are_finite_are_an_error(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, &(kn_loss_scale_options){.initial = 0x1p-23});
    assert_false(step(&f, (double)INFINITY));
    KN_TAPE();
    kn_tensor *loss = kn_affine(kn_sum(f.w, KN_ALL, false), (double)INFINITY, 0);
    assert_ok(kn_backward(kn_loss_scale_apply(f.scale, loss)));
    assert_fails(kn_loss_scale_step(f.scale, f.optim, NULL), KN_ERR_INVALID,
                 "gradients are not finite with the scale 5.96046e-08");
    fixture_release(&f);
}

static void wrong_numbers_are_refused(void **state) {
    (void)state;
    fixture f;
    kn_loss_scale *scale = NULL;
    fixture_init(&f, NULL);
    assert_fails(kn_loss_scale_create(&scale, f.params, &(kn_loss_scale_options){.growth = 0.5}),
                 KN_ERR_INVALID, "growth 0.5");
    assert_fails(kn_loss_scale_create(&scale, f.params, &(kn_loss_scale_options){.backoff = 1}),
                 KN_ERR_INVALID, "backoff 1");
    assert_fails(kn_loss_scale_create(&scale, NULL, NULL), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_loss_scale_create(NULL, f.params, NULL), KN_ERR_INVALID, "out is NULL");
    assert_fails(kn_loss_scale_step(f.scale, NULL, NULL), KN_ERR_INVALID, "optim is NULL");
    assert_fails(kn_loss_scale_state_set(f.scale, NULL), KN_ERR_INVALID, "the state is NULL");
    assert_fails(kn_loss_scale_state_set(NULL, NULL), KN_ERR_INVALID, "scale is NULL");
    assert_null(kn_loss_scale_apply(NULL, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "scale is NULL");
    assert_null(kn_loss_scale_apply(f.scale, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "the loss is NULL");
    assert_fails(kn_loss_scale_state_set(f.scale, &(kn_loss_scale_state){.factor = -1}),
                 KN_ERR_INVALID, "factor -1");
    assert_ok(kn_loss_scale_state_set(f.scale, &(kn_loss_scale_state){.factor = 4, .n_good = 2}));
    assert_close(kn_loss_scale_state_get(f.scale).factor, 4, 0, 0);
    assert_fails(kn_loss_scale_state_set(f.scale, &(kn_loss_scale_state){4, -1, 0}), KN_ERR_INVALID,
                 "-1 good steps");
    assert_fails(kn_loss_scale_state_set(f.scale, &(kn_loss_scale_state){4, 0, -1}), KN_ERR_INVALID,
                 "-1 left out");
    assert_fails(kn_loss_scale_create(&scale, f.params, &(kn_loss_scale_options){.every = -1}),
                 KN_ERR_INVALID, "every -1");
    assert_fails(
        kn_loss_scale_create(&scale, f.params, &(kn_loss_scale_options){.initial = 0x1p41}),
        KN_ERR_INVALID, "initial 2.19902e+12");
    kn_loss_scale_destroy(NULL);
    fixture_release(&f);
}

static void an_optimiser_of_another_set_is_refused(void **state) {
    (void)state;
    fixture f, other;
    fixture_init(&f, NULL);
    fixture_init(&other, NULL);
    bool stepped = false;
    assert_fails(kn_loss_scale_step(f.scale, other.optim, &stepped), KN_ERR_INVALID,
                 "is of another parameter set");
    assert_w(&other, 2);
    fixture_release(&other);
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(TEST(the_scale_leaves_steps_as_they_are),
                     TEST(a_gradient_that_is_not_finite_leaves_the_step_out),
                     TEST(the_scale_grows_after_good_steps), TEST(the_scale_has_a_limit),
                     TEST(steps_without_a_backward_take_the_same_gradients),
                     TEST(the_scale_grows_with_the_last_of_the_steps),
                     TEST(gradients_that_never_are_finite_are_an_error),
                     TEST(wrong_numbers_are_refused), TEST(an_optimiser_of_another_set_is_refused));
}
