/* Averages of weights, exchanged with them. */
#include <knet/capture.h>
#include <math.h>

#include "autograd_test.h"

static void two_swaps_give_the_bits_of_before(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(5), "w", -0.0f, 0, 1e-42f, INFINITY, NAN);
    float before[5];
    kn_ema *ema = NULL;
    memcpy(before, kn_data(w), sizeof before);
    assert_ok(kn_ema_create(&ema, set, 0.5));
    for (int i = 0; i < 2; i++) assert_ok(kn_ema_swap(ema));
    assert_memory_equal(kn_data(w), before, sizeof before);
    kn_ema_destroy(ema);
    kn_params_destroy(set);
}

static void averages_are_of_the_parameters_at_their_creation(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    (void)PARAM(set, KN_SHAPE(2), "w", 1, 2);
    kn_ema *ema = NULL;
    assert_ok(kn_ema_create(&ema, set, 0.5));
    assert_values(kn_ema_at(ema, 0), 1, 2);
    assert_null(kn_ema_at(ema, 1));
    assert_null(kn_ema_at(ema, -1));
    assert_ok(kn_check());
    (void)PARAM(set, KN_SHAPE(1), "b", 3);
    assert_fails(kn_ema_update(ema), KN_ERR_INVALID, "has 2 parameters, it had 1");
    assert_fails(kn_ema_swap(ema), KN_ERR_INVALID, "has 2 parameters, it had 1");
    kn_ema_destroy(ema);
    kn_params_destroy(set);
}

static void averages_only_read_the_weights(void **state) {
    (void)state;
    KN_TAPE();
    kn_params *set = params_f32();
    kn_ema *ema = NULL;
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3), *y = kn_mul(w, w);
    assert_ok(kn_ema_create(&ema, set, 0.5)); /* y's tape has saved w */
    assert_ok(kn_ema_update(ema));
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 4, 6);
    kn_ema_destroy(ema);
    kn_params_destroy(set);
}

/* --- several averages of one set --- */

/* Of weights 2 that become 4: one of 3, one of 3.5. */
static kn_params *two_averages(kn_ema *ema[2], kn_tensor **w) {
    kn_params *set = params_f32();
    *w = PARAM(set, KN_SHAPE(1), "w", 2);
    assert_ok(kn_ema_create(&ema[0], set, 0.5));
    assert_ok(kn_ema_create(&ema[1], set, 0.25));
    assert_ok(kn_fill_into(*w, 4));
    for (int i = 0; i < 2; i++) assert_ok(kn_ema_update(ema[i]));
    for (int i = 0; i < 2; i++) assert_ok(kn_ema_swap(ema[i]));
    assert_values(*w, 3.5);
    assert_int_equal(kn_params_swapped(set), 2);
    return set;
}

static void the_last_averages_are_exchanged_again_first(void **state) {
    (void)state;
    KN_FRAME();
    kn_ema *ema[2] = {NULL};
    kn_tensor *w = NULL;
    kn_params *set = two_averages(ema, &w);
    assert_fails(kn_ema_swap(ema[0]), KN_ERR_INVALID,
                 "kn_ema_swap: averages of decay 0.25 were exchanged with the weights after these "
                 "of 0.5: exchange them again before");
    assert_values(w, 3.5);
    assert_true(kn_ema_is_swapped(ema[0]) && kn_ema_is_swapped(ema[1]));
    assert_ok(kn_ema_swap(ema[1]));
    assert_values(w, 3);
    assert_fails(kn_ema_update(ema[1]), KN_ERR_INVALID, "the weights are averages");
    assert_ok(kn_ema_swap(ema[0]));
    assert_values(w, 4);
    assert_int_equal(kn_params_swapped(set), 0);
    assert_values(kn_ema_at(ema[0], 0), 3);
    assert_values(kn_ema_at(ema[1], 0), 3.5);
    for (int i = 0; i < 2; i++) kn_ema_destroy(ema[i]);
    kn_params_destroy(set);
}

static void averages_that_end_under_others_are_what_those_give_back(void **state) {
    (void)state;
    KN_FRAME();
    for (int first = 0; first < 2; first++) {
        kn_ema *ema[2] = {NULL};
        kn_tensor *w = NULL;
        kn_params *set = two_averages(ema, &w);
        kn_ema_destroy(ema[first]);
        assert_values(w, 3.5);
        assert_int_equal(kn_params_swapped(set), 1);
        assert_ok(kn_ema_swap(ema[!first]));
        assert_values(w, first ? 4 : 3);
        assert_int_equal(kn_params_swapped(set), 0);
        assert_ok(kn_ema_update(ema[!first]));
        kn_ema_destroy(ema[!first]);
        kn_params_destroy(set);
    }
}

/* After k updates with weights of 1 an average that began with 0 is 1 - decay^k. */
static void an_average_moves_by_its_decay(void **state) {
    (void)state;
    KN_FRAME();
    static const double decays[] = {0.25, 0.5, 0.999};
    for (int i = 0; i < 3; i++) {
        kn_params *set = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 0);
        kn_ema *ema = NULL;
        assert_ok(kn_ema_create(&ema, set, decays[i]));
        assert_close(kn_ema_decay(ema), decays[i], 0, 0);
        assert_ok(kn_fill_into(w, 1));
        for (int k = 0; k < 2; k++) assert_ok(kn_ema_update(ema));
        double left = kn_ema_decay(ema) * kn_ema_decay(ema);
        assert_close(ops_at(kn_ema_at(ema, 0), 0), 1 - left, 1e-5, 0);
        kn_ema_destroy(ema);
        kn_params_destroy(set);
    }
}

/* Replays would exchange the values, but not that they are exchanged. */
static void a_captured_step_exchanges_nothing(void **state) {
    (void)state;
    KN_FRAME(.record = KN_OFF);
    for (int swapped = 0; swapped < 2; swapped++) {
        kn_params *set = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2);
        kn_ema *ema = NULL;
        kn_capture *capture = NULL;
        assert_ok(kn_ema_create(&ema, set, 0.5));
        assert_ok(kn_fill_into(w, 4));
        if (swapped) assert_ok(kn_ema_swap(ema));
        assert_ok(kn_capture_create(&capture, NULL));
        assert_ok(kn_capture_begin(capture, NULL, 0));
        assert_fails(kn_ema_swap(ema), KN_ERR_INVALID, "kn_ema_swap: inside a captured step");
        assert_ok(kn_capture_end(capture, NULL, 0));
        assert_values(w, swapped ? 2 : 4);
        assert_true(kn_ema_is_swapped(ema) == swapped);
        kn_capture_destroy(capture);
        kn_ema_destroy(ema);
        kn_params_destroy(set);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(two_swaps_give_the_bits_of_before),
                     OPS_TEST(averages_are_of_the_parameters_at_their_creation),
                     OPS_TEST(averages_only_read_the_weights),
                     OPS_TEST(the_last_averages_are_exchanged_again_first),
                     OPS_TEST(averages_that_end_under_others_are_what_those_give_back),
                     OPS_TEST(an_average_moves_by_its_decay),
                     OPS_TEST(a_captured_step_exchanges_nothing));
}
