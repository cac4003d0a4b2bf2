/* Initial values by name; parameters that are dropped again; hooks of failed passes. */
#include <knet/capture.h>
#include <knet/optim.h>

#include "autograd_test.h"

/* conv1.weight, conv1.bias, conv2.weight, conv2.bias, head.weight */
static kn_params *net_make(kn_init init) {
    kn_params *set = NULL;
    assert_ok(kn_params_create(&set, &(kn_params_options){.seed = 5}));
    for (int i = 1; i <= 2; i++) {
        assert_non_null(kn_param(set, KN_SHAPE(4, 3, 2, 2), init, "conv%d.weight", i));
        assert_non_null(kn_param(set, KN_SHAPE(4), init, "conv%d.bias", i));
    }
    assert_non_null(kn_param(set, KN_SHAPE(2, 4), init, "head.weight"));
    return set;
}

static double at(kn_params *set, const char *name, int64_t i) {
    kn_tensor *w = kn_params_find(set, name);
    assert_non_null(w);
    return ops_at(w, i);
}

static void assert_same_values(kn_params *a, kn_params *b) {
    for (int i = 0; i < kn_params_count(a); i++) {
        kn_tensor *v = kn_params_at(a, i, NULL), *w = kn_params_at(b, i, NULL);
        assert_memory_equal(kn_data(v), kn_data(w), (size_t)kn_tensor_numel(v) * sizeof(float));
    }
}

static void names_that_fit_the_pattern_get_new_values(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = net_make((kn_init){KN_INIT_CONSTANT, 7, 0});
    assert_ok(kn_params_init(set, "*.bias", (kn_init){KN_INIT_CONSTANT, 1, 0}));
    assert_close(at(set, "conv1.bias", 3), 1, 0, 0);
    assert_close(at(set, "conv2.bias", 0), 1, 0, 0);
    assert_close(at(set, "conv1.weight", 0), 7, 0, 0);
    assert_ok(kn_params_init(set, "conv?.weight", (kn_init){0}));
    assert_close(at(set, "conv2.weight", 47), 0, 0, 0);
    assert_close(at(set, "head.weight", 0), 7, 0, 0);
    assert_ok(kn_params_init(set, "head.weight", (kn_init){KN_INIT_CONSTANT, 3, 0}));
    assert_close(at(set, "head.weight", 7), 3, 0, 0);
    assert_ok(kn_params_init(set, "conv[2].bias", (kn_init){KN_INIT_CONSTANT, 9, 0}));
    assert_close(at(set, "conv1.bias", 0), 1, 0, 0);
    assert_close(at(set, "conv2.bias", 0), 9, 0, 0);
    kn_params_destroy(set);
}

static void the_numbers_are_those_of_the_creation(void **state) {
    (void)state;
    KN_FRAME();
    static const kn_init inits[] = {{KN_INIT_XAVIER, 1, 0},
                                    {KN_INIT_HE_NORMAL, 1, 0},
                                    {KN_INIT_UNIFORM, -1, 2},
                                    {KN_INIT_TRUNCATED_NORMAL, 0, 1}};
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        kn_params *made = net_make(inits[i]), *set = net_make(inits[i]);
        assert_ok(kn_params_init(set, "*", (kn_init){KN_INIT_CONSTANT, 7, 0}));
        if (i > 1) assert_ok(kn_params_init(set, "*", inits[i]));
        if (i < 2) assert_ok(kn_params_init(set, "*.weight", inits[i]));
        if (i < 2) assert_ok(kn_params_init(made, "*.bias", (kn_init){KN_INIT_CONSTANT, 7, 0}));
        assert_same_values(set, made);
        kn_params_destroy(set);
        kn_params_destroy(made);
    }
}

/* The tensor stays, and with it its gradient, its optimiser and what reads it. */
static void a_parameter_stays_in_place_between_steps(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = net_make((kn_init){KN_INIT_CONSTANT, 7, 0});
    kn_tensor *w = kn_params_find(set, "head.weight");
    const void *data = kn_data(w);
    kn_optim *sgd = NULL;
    assert_ok(kn_sgd_create(&sgd, set, 0.5, NULL));
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(w)));
        assert_ok(kn_optim_step(sgd));
    }
    assert_close(ops_at(w, 0), 6, 0, 0);
    assert_ok(kn_params_init(set, "head.*", (kn_init){KN_INIT_CONSTANT, 2, 0}));
    assert_ptr_equal(kn_data(w), data);
    assert_close(ops_at(w, 0), 2, 0, 0);
    {
        KN_TAPE();
        assert_ok(kn_params_init(set, "head.*", (kn_init){KN_INIT_CONSTANT, 4, 0}));
        assert_ok(kn_backward(sum_all(kn_square(w))));
        assert_ok(kn_optim_step(sgd));
    }
    assert_close(ops_at(w, 0), 4 - 0.5 * 8, 0, 0);
    kn_optim_destroy(sgd);
    kn_params_destroy(set);
}

static void wrong_patterns_and_values_say_why(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = net_make((kn_init){KN_INIT_CONSTANT, 7, 0});
    kn_ema *ema = NULL;
    assert_fails(kn_params_init(NULL, "*", (kn_init){0}), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_params_init(set, NULL, (kn_init){0}), KN_ERR_INVALID, "pattern is NULL");
    assert_fails(kn_params_init(set, "*.weigth", (kn_init){0}), KN_ERR_INVALID,
                 "kn_params_init: no parameter's name fits '*.weigth'");
    assert_fails(kn_params_init(set, "head", (kn_init){0}), KN_ERR_INVALID, "'head'");
    assert_fails(kn_params_init(set, "*.bias", (kn_init){99, 0, 0}), KN_ERR_INVALID,
                 "kn_params_init: conv1.bias: ");
    test_assert_message("99 is not a kind of initial value", __FILE__, __LINE__);
    assert_ok(kn_ema_create(&ema, set, 0.5));
    assert_ok(kn_ema_swap(ema));
    assert_fails(kn_params_init(set, "*", (kn_init){0}), KN_ERR_INVALID,
                 "the weights are averages");
    assert_ok(kn_ema_swap(ema));
    assert_ok(kn_params_init(set, "*", (kn_init){0}));
    kn_ema_destroy(ema);
    kn_params_destroy(set);
}

/* As with torch.nn.init; norms keep their ones, and recurrent layers their values. */
static void kinds_that_want_matrices_refuse_vectors_and_change_nothing(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = net_make((kn_init){KN_INIT_CONSTANT, 7, 0});
    assert_non_null(kn_param(set, KN_SHAPE(4), (kn_init){KN_INIT_CONSTANT, 1, 0}, "norm.weight"));
    assert_non_null(kn_param(set, KN_SCALAR, (kn_init){KN_INIT_CONSTANT, 1, 0}, "scale"));
    const kn_init init[] = {kn_init_he(),          kn_init_he_normal(),     kn_init_xavier(),
                            kn_init_orthogonal(1), kn_init_xavier_normal(), kn_init_bilinear()};
    for (size_t i = 0; i < sizeof init / sizeof *init; i++) {
        assert_fails(kn_params_init(set, "*.weight", init[i]), KN_ERR_INVALID,
                     "kn_params_init: norm.weight is [4]; this kind of initial value wants 2 "
                     "dimensions or more: use a pattern narrower than '*.weight'");
        assert_close(at(set, "conv1.weight", 0), 7, 0, 0);
        assert_close(at(set, "norm.weight", 0), 1, 0, 0);
        assert_fails(kn_params_init(set, "scale", init[i]), KN_ERR_INVALID, "scale is []");
    }
    assert_ok(kn_params_init(set, "*conv?.weight", kn_init_he()));
    assert_true(at(set, "conv1.weight", 0) < 1);
    kn_params_destroy(set);
}

static void a_captured_step_has_no_new_values(void **state) {
    (void)state;
    KN_FRAME(.record = KN_OFF);
    kn_params *set = net_make((kn_init){KN_INIT_CONSTANT, 7, 0});
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(kn_capture_begin(capture, NULL, 0));
    assert_fails(kn_params_init(set, "*", (kn_init){0}), KN_ERR_INVALID, "inside a captured step");
    assert_ok(kn_capture_end(capture, NULL, 0));
    assert_close(at(set, "conv1.bias", 0), 7, 0, 0);
    kn_capture_destroy(capture);
    kn_params_destroy(set);
}

/* Of those on the host, as the simulated device keeps no values. A place among the parameters of
 * one device would give w1 and w3 the numbers of w0 and w1. */
static void parameters_of_two_devices_have_numbers_of_their_own(void **state) {
    (void)state;
    static const char *const names[] = {"w1", "w3", "w4"};
    kn_device *sim = NULL;
    kn_params *set[2];
    if (kn_device_find(&sim, "sim") < 0) skip();
    KN_FRAME(.record = KN_OFF);
    for (int two = 0; two < 2; two++) {
        assert_ok(kn_params_create(&set[two], &(kn_params_options){.seed = 5}));
        for (int i = 0; i < 5; i++) {
            kn_tensor *w = kn_param(set[two], KN_SHAPE(2, 2), kn_init_he(), "w%d", i);
            assert_non_null(w);
            if (two && i % 2 == 0 && i < 4) assert_ok(kn_param_to(w, sim));
        }
    }
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < 3; i++)
            assert_memory_equal(kn_data(kn_params_find(set[0], names[i])),
                                kn_data(kn_params_find(set[1], names[i])), 16);
        assert_ok(kn_params_init(set[1], "*", (kn_init){0}));
        assert_ok(kn_params_init(set[1], "*", kn_init_he()));
        if (again) continue;
        kn_params_drop_last(set[1], 2); /* w4 and w3; w2, which is elsewhere, keeps its number */
        assert_non_null(kn_param(set[1], KN_SHAPE(2, 2), kn_init_he(), "w3"));
        assert_non_null(kn_param(set[1], KN_SHAPE(2, 2), kn_init_he(), "w4"));
    }
    assert_ok(kn_param_to(kn_params_find(set[1], "w4"), sim));
    kn_params_drop_last(set[1], 1); /* w3, as w4 is elsewhere and keeps the last number */
    for (int i = 0; i < 2; i++)
        assert_non_null(kn_param(set[i], KN_SHAPE(2, 2), kn_init_he(), "w5"));
    assert_memory_equal(kn_data(kn_params_find(set[0], "w5")),
                        kn_data(kn_params_find(set[1], "w5")), 16);
    for (int i = 0; i < 2; i++) kn_params_destroy(set[i]);
}

/* --- dropped again --- */

static void dropped_parameters_leave_name_place_and_numbers_free(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = net_make(kn_init_xavier());
    float before[8];
    KN_SLOT(held);
    assert_ok(kn_hold(&held, kn_params_find(set, "head.weight")));
    memcpy(before, kn_data(held), sizeof before);
    int64_t numel = kn_params_numel(set);
    kn_params_drop_last(set, 0);
    assert_int_equal(kn_params_count(set), 5);
    kn_params_drop_last(set, 2);
    assert_int_equal(kn_params_count(set), 3);
    assert_int_equal(kn_params_numel(set), numel - 4 - 8);
    assert_null(kn_params_find(set, "head.weight"));
    assert_non_null(kn_params_find(set, "conv2.weight"));
    assert_memory_equal(kn_data(held), before, sizeof before);
    assert_non_null(kn_param(set, KN_SHAPE(4), (kn_init){0}, "conv2.bias"));
    kn_tensor *again = kn_param(set, KN_SHAPE(2, 4), kn_init_xavier(), "head.weight");
    assert_memory_equal(kn_data(again), before, sizeof before);
    kn_params_destroy(set);
}

/* --- passes that fail --- */

static void may_fail(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    (void)w, (void)gradient;
    if (*(bool *)ctx) (void)KN_FAIL_NULL(KN_ERR_INVALID, "the hook's own error");
}
static void count(void *ctx) { ++*(int *)ctx; }

static void a_failed_pass_tells_that_gradients_are_void(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    bool fails = false;
    int n = 0;
    kn_params_on_grad(set, may_fail, &fails);
    kn_params_on_void(set, count, &n);
    for (int i = 0; i < 4; i++) {
        int before = n;
        fails = i % 2;
        if (i == 3) kn_params_on_void(set, NULL, NULL);
        KN_TAPE();
        kn_status status = kn_backward(sum_all(kn_square(w)));
        assert_int_equal(status, fails ? KN_ERR_INVALID : KN_OK);
        assert_true(i == 1 ? n > before : n == before);
        if (fails) assert_values(kn_grad(w), 0, 0);
        if (!fails) assert_values(kn_grad(w), 2, 4);
    }
    kn_params_destroy(set);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(names_that_fit_the_pattern_get_new_values),
                     OPS_TEST(the_numbers_are_those_of_the_creation),
                     OPS_TEST(a_parameter_stays_in_place_between_steps),
                     OPS_TEST(wrong_patterns_and_values_say_why),
                     OPS_TEST(kinds_that_want_matrices_refuse_vectors_and_change_nothing),
                     OPS_TEST(a_captured_step_has_no_new_values),
                     OPS_TEST(parameters_of_two_devices_have_numbers_of_their_own),
                     OPS_TEST(dropped_parameters_leave_name_place_and_numbers_free),
                     OPS_TEST(a_failed_pass_tells_that_gradients_are_void));
}
