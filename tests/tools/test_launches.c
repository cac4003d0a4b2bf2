/* How much a training step enqueues on a GPU, counted on a fake one. */
#include "launches.h"
#include "test.h"

static void a_step_of_the_mlp_takes_11_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "mlp"));
    assert_int_equal(n, 11);
}

static void a_step_of_lenet_takes_27_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "lenet"));
    assert_int_equal(n, 27);
}

int main(void) {
    return RUN_TESTS(TEST(a_step_of_the_mlp_takes_11_launches),
                     TEST(a_step_of_lenet_takes_27_launches));
}
