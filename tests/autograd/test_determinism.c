/* The same bits, run after run and for any number of threads. */
#include "net.h"

enum { STEPS = 12 };

static void train(double losses[STEPS], float *w1, int threads) {
    net n;
    assert_ok(net_create(&n));
    {
        KN_FRAME(.threads = threads);
        for (int i = 0; i < STEPS; i++) assert_ok(net_step(&n, i, &losses[i]));
        assert_ok(kn_copy_out(w1, 32 * 150 * sizeof *w1, n.w1));
    }
    net_destroy(&n);
}

static void losses_and_weights_are_bit_equal(int threads) {
    double one[STEPS], many[STEPS];
    static float w_one[32 * 150], w_many[32 * 150];
    train(one, w_one, 1);
    train(many, w_many, threads);
    assert_memory_equal(one, many, sizeof one);
    assert_memory_equal(w_one, w_many, sizeof w_one);
    assert_true(one[STEPS - 1] < one[0]);
}

static void two_runs_are_bit_equal(void **state) {
    (void)state;
    losses_and_weights_are_bit_equal(1);
}
static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    losses_and_weights_are_bit_equal(2);
    losses_and_weights_are_bit_equal(3);
    losses_and_weights_are_bit_equal(7);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(two_runs_are_bit_equal),
                     OPS_TEST(any_number_of_threads_gives_the_same_bits));
}
