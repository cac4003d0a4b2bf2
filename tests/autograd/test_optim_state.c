/* What an optimiser was created with, and the state that it is going to have. */
#include <knet/optim.h>

#include "autograd_test.h"

static kn_params *two_params(void) {
    kn_params *set = params_f32();
    PARAM(set, KN_SHAPE(2, 3), "a", 1, 2, 3, 4, 5, 6);
    PARAM(set, KN_SHAPE(4), "b", 1, 2, 3, 4);
    return set;
}

static void assert_settings(kn_optim *optim, kn_optim_settings want) {
    const kn_optim_settings got = kn_optim_settings_get(optim);
    assert_close(got.momentum, want.momentum, 0, 0);
    assert_close(got.beta1, want.beta1, 0, 0);
    assert_close(got.beta2, want.beta2, 0, 0);
    assert_close(got.eps, want.eps, 0, 0);
    assert_close(got.weight_decay, want.weight_decay, 0, 0);
    assert_close(got.clip_norm, want.clip_norm, 0, 0);
    assert_close(got.clip_each, want.clip_each, 0, 0);
    kn_optim_destroy(optim);
}

static void settings_are_those_of_the_creation(void **state) {
    (void)state;
    kn_params *set = two_params();
    kn_optim *o = NULL;
    assert_ok(kn_sgd_create(
        &o, set, 1,
        &(kn_sgd_options){.weight_decay = 0.1, .clip_norm = 2, .clip_each = 3, .momentum = 0.5}));
    assert_settings(o, (kn_optim_settings){
                           .momentum = 0.5, .weight_decay = 0.1, .clip_norm = 2, .clip_each = 3});
    assert_ok(kn_nesterov_create(&o, set, 1, 0.75, NULL));
    assert_settings(o, (kn_optim_settings){.momentum = 0.75});
    assert_ok(kn_rmsprop_create(&o, set, 1, &(kn_adaptive_options){.rho = 0.8, .clip_each = 4}));
    assert_settings(o, (kn_optim_settings){.beta2 = 0.8, .eps = 1e-6, .clip_each = 4});
    assert_ok(kn_adam_create(&o, set, 1, &(kn_adam_options){.beta1 = 0.7, .weight_decay = 0.2}));
    assert_settings(
        o, (kn_optim_settings){.beta1 = 0.7, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.2});
    assert_ok(kn_lamb_create(&o, set, 1, &(kn_adam_options){.beta2 = 0.9, .eps = 1e-3}));
    assert_settings(o, (kn_optim_settings){.beta1 = 0.9, .beta2 = 0.9, .eps = 1e-3});
    kn_params_destroy(set);
}

typedef kn_status (*create_fn)(kn_optim **out, kn_params *set);
static kn_status sgd(kn_optim **out, kn_params *set) { return kn_sgd_create(out, set, 1, NULL); }
static kn_status momentum(kn_optim **out, kn_params *set) {
    return kn_momentum_create(out, set, 1, 0.9, NULL);
}
static kn_status rmsprop(kn_optim **out, kn_params *set) {
    return kn_rmsprop_create(out, set, 1, NULL);
}
static kn_status adam(kn_optim **out, kn_params *set) { return kn_adam_create(out, set, 1, NULL); }

/* Before the first step kn_optim_state_at has the rate and the steps alone. */
static void the_state_to_come_has_the_names_and_shapes_of_the_state(void **state) {
    (void)state;
    KN_FRAME();
    static const create_fn all[] = {sgd, momentum, rmsprop, adam};
    static const int n_parts[] = {1, 3, 3, 5};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        kn_params *set = two_params();
        kn_optim *planned = NULL, *made = NULL;
        char want[32], got[32];
        int i = 0;
        assert_ok(all[k](&planned, set));
        assert_ok(all[k](&made, set));
        assert_ok(kn_optim_prepare(made));
        for (kn_tensor *t; (t = kn_optim_state_at(made, i, want, sizeof want)) != NULL; i++) {
            kn_tensor *like = kn_optim_state_like(planned, i, got, sizeof got);
            assert_non_null(like);
            assert_string_equal(got, want);
            assert_int_equal(kn_tensor_dtype(like), kn_tensor_dtype(t));
            assert_int_equal(kn_tensor_shape(like).n_dims, kn_tensor_shape(t).n_dims);
            assert_int_equal(kn_tensor_numel(like), kn_tensor_numel(t));
            assert_true(i == 0 || !kn_optim_state_at(planned, i, got, sizeof got));
        }
        assert_int_equal(i, n_parts[k]);
        assert_null(kn_optim_state_like(planned, i, got, sizeof got));
        assert_ok(kn_check());
        kn_optim_destroy(planned);
        kn_optim_destroy(made);
        kn_params_destroy(set);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(settings_are_those_of_the_creation),
                     OPS_TEST(the_state_to_come_has_the_names_and_shapes_of_the_state));
}
