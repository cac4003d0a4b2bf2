/* Clipped gradients. */
#include <knet/optim.h>
#include <math.h>

#include "autograd_test.h"

/* w after a step of rate 1 from zero by gradient g, clipped to a norm of 1. */
static void clipped_step(double w[2], float g0, float g1) {
    KN_FRAME();
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    kn_tensor *p = kn_param(set, KN_SHAPE(2), (kn_init){0}, "w");
    assert_ok(kn_sgd_create(&optim, set, 1, &(kn_sgd_options){.clip_each = 1}));
    {
        KN_TAPE();
        assert_ok(kn_backward(kn_dot(p, F32(KN_SHAPE(2), g0, g1))));
    }
    assert_ok(kn_optim_step(optim));
    for (int i = 0; i < 2; i++) w[i] = ops_at(p, i);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void each_gradient_is_clipped_however_large_it_is(void **state) {
    (void)state;
    for (double size = 1; size < 1e16; size *= 1000) {
        double w[2];
        clipped_step(w, (float)(0.6 * size), (float)(0.8 * size));
        assert_close(w[0], -0.6, 2e-6, 0);
        assert_close(w[1], -0.8, 2e-6, 0);
    }
}

static void a_norm_beyond_f32_makes_a_step_of_nothing(void **state) {
    (void)state;
    double w[2];
    clipped_step(w, 1e19f, 1e19f);
    assert_close(w[0], -sqrt(0.5), 2e-6, 0);
    clipped_step(w, 1e25f, 1);
    assert_close(w[0], 0, 0, 0);
    assert_close(w[1], 0, 0, 0);
}

static void a_gradient_below_its_limit_keeps_its_bits(void **state) {
    (void)state;
    double w[2];
    clipped_step(w, 0.1f, 1e-30f);
    assert_close(w[0], (double)-0.1f, 0, 0);
    assert_close(w[1], (double)-1e-30f, 0, 0);
}

/* Copies all state of one optimiser into another, as a checkpoint does. */
static void state_copy(kn_optim *to, kn_optim *from) {
    char name[64];
    double values[16];
    for (int i = 0; kn_optim_state_at(from, i, name, sizeof name); i++) {
        kn_tensor *t = kn_optim_state_at(from, i, name, sizeof name);
        size_t bytes = (size_t)kn_tensor_numel(t) * kn_dtype_bytes(kn_tensor_dtype(t));
        assert_true(bytes <= sizeof values);
        assert_ok(kn_copy_out(values, bytes, t));
        assert_ok(kn_copy_into(kn_optim_state_at(to, i, name, sizeof name), values, bytes));
    }
    kn_optim_state_written(to);
    assert_ok(kn_check());
}

static void state_of_an_optimiser_that_clipped_scales_no_later_step(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_optim *clips = NULL, *plain = NULL;
    kn_tensor *w = kn_param(set, KN_SHAPE(1), (kn_init){0}, "w");
    assert_ok(kn_sgd_create(&clips, set, 1, &(kn_sgd_options){.clip_norm = 1}));
    assert_ok(kn_sgd_create(&plain, set, 1, NULL));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_affine(w, 100, 0))));
    }
    assert_ok(kn_optim_step(clips)); /* by 1/100 of the gradient */
    assert_close(ops_at(w, 0), -1, 1e-6, 0);
    assert_ok(kn_optim_prepare(plain));
    state_copy(plain, clips);
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_affine(w, 2, 0))));
    }
    assert_ok(kn_optim_step(plain));
    assert_close(ops_at(w, 0), -3, 1e-6, 0);
    kn_optim_destroy(clips);
    kn_optim_destroy(plain);
    kn_params_destroy(set);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(each_gradient_is_clipped_however_large_it_is),
                     OPS_TEST(a_norm_beyond_f32_makes_a_step_of_nothing),
                     OPS_TEST(a_gradient_below_its_limit_keeps_its_bits),
                     OPS_TEST(state_of_an_optimiser_that_clipped_scales_no_later_step));
}
