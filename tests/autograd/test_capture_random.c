/* Captured steps that draw random numbers: a replay reads and advances its generator as the step
 * does. */
#include <knet/capture.h>
#include <knet/sim.h>

#include "autograd_test.h"

enum { N = 8, STEPS = 6 };

static kn_status draws(kn_tensor *out[], kn_tensor *const in[], void *rng) {
    out[0] = kn_add(in[0], kn_uniform(KN_SHAPE(N), 0, 1, rng));
    return kn_check();
}

/* A generator for plain steps, and one for captured ones. */
typedef struct pair {
    kn_capture *capture;
    kn_rng *plain, *captured;
} pair;

static pair pair_open(void) {
    pair p = {NULL};
    assert_ok(kn_capture_create(&p.capture, NULL));
    assert_ok(kn_rng_create(&p.plain, 1));
    assert_ok(kn_rng_create(&p.captured, 1));
    return p;
}

static void pair_close(pair *p) {
    kn_rng_destroy(p->plain);
    kn_rng_destroy(p->captured);
    kn_capture_destroy(p->capture);
}

/* A plain step and a run of the capture from equal states: the same numbers, and the same state
 * after them. */
static void same_step(pair *p) {
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(N)), *y = NULL, *z = NULL;
    assert_ok(draws(&y, &x, p->plain));
    assert_ok(kn_capture_run(&z, 1, p->capture, &x, 1, draws, p->captured));
    assert_memory_equal(kn_data(y), kn_data(z), N * sizeof(float));
    uint64_t seed[2], offset[2];
    assert_ok(kn_rng_state_get(&seed[0], &offset[0], p->plain));
    assert_ok(kn_rng_state_get(&seed[1], &offset[1], p->captured));
    assert_int_equal(seed[1], seed[0]);
    assert_int_equal(offset[1], offset[0]);
}

static void a_replay_draws_from_the_state_that_was_set(void **state) {
    (void)state;
    pair p = pair_open();
    for (int i = 0; i < STEPS; i++) {
        uint64_t seed = 1 + (uint64_t)i % 2, offset = 40 * (uint64_t)i;
        if (i != 3) { /* then it continues from the last replay */
            assert_ok(kn_rng_state_set(p.plain, seed, offset));
            assert_ok(kn_rng_state_set(p.captured, seed, offset));
        }
        same_step(&p);
    }
    pair_close(&p);
}

static kn_tensor *noisy(void *rng, kn_tensor *const x[]) {
    return kn_dropout(kn_exp(x[0]), 0.5, rng);
}

/* Its backward draws the numbers of forward again, by setting the state back for a while. */
static void recomputes(kn_rng *rng) {
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(N))), *dx = NULL;
    kn_tensor *loss = kn_sum(kn_recompute(noisy, rng, &x, 1, rng), KN_ALL, false);
    assert_ok(kn_gradients(&dx, loss, &x, 1, NULL));
}

static void a_recomputed_part_between_replays_leaves_their_generator(void **state) {
    (void)state;
    pair p = pair_open();
    for (int i = 0; i < STEPS; i++) {
        KN_FRAME();
        if (i == 3) {
            recomputes(p.plain);
            recomputes(p.captured);
        }
        same_step(&p);
    }
    pair_close(&p);
}

/* --- the state moves to the device that draws --- */

static kn_sim *sim;
static kn_device *device;

static int make_device(void **state) {
    (void)state;
    if (kn_sim_create(&sim, &(kn_sim_options){.capacity_bytes = 1ull << 30}) < 0) return 1;
    return kn_device_register(&device, "sim:random", kn_sim_driver(sim), sim) < 0;
}

/* The simulated device keeps no data: set the state once it is on the host again. */
static void draw_elsewhere(kn_rng *rng) {
    KN_FRAME(.device = device);
    assert_non_null(kn_uniform(KN_SHAPE(N), 0, 1, rng));
    kn_sim_drain(sim);
}

static void draw_elsewhere_and_return(kn_rng *rng) {
    KN_FRAME();
    draw_elsewhere(rng);
    assert_non_null(kn_uniform(KN_SHAPE(N), 0, 1, rng));
    assert_ok(kn_rng_state_set(rng, 5, 16));
}

static void a_plan_is_recorded_again_where_its_generator_has_moved(void **state) {
    (void)state;
    kn_capture_stats stats;
    pair p = pair_open();
    for (int i = 0; i < STEPS; i++) {
        if (i == 3) {
            draw_elsewhere_and_return(p.plain);
            draw_elsewhere_and_return(p.captured);
        }
        same_step(&p);
    }
    kn_capture_stats_read(&stats, sizeof stats, p.capture);
    assert_int_equal(stats.n_recorded, 2);
    assert_int_equal(stats.n_launches, 3);
    pair_close(&p);
}

static void a_launch_whose_generator_has_moved_is_an_error(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(N)), *y = NULL;
    for (int i = 0; i < 3; i++)
        assert_ok(kn_capture_run(&y, 1, p.capture, &x, 1, draws, p.captured));
    draw_elsewhere_and_return(p.captured);
    assert_false(kn_capture_has(p.capture, &x, 1));
    assert_fails(kn_capture_launch(p.capture, &x, 1), KN_ERR_INVALID,
                 "reads generators where they are");
    pair_close(&p);
}

static void a_generator_may_move_while_the_step_is_recorded(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(N)), *y = NULL;
    draw_elsewhere(p.captured);
    assert_ok(kn_capture_begin(p.capture, &x, 1));
    assert_ok(draws(&y, &x, p.captured));
    assert_ok(kn_capture_end(p.capture, &y, 1));
    assert_ok(kn_rng_state_set(p.captured, 1, 0));
    for (int i = 0; i < 2; i++) {
        assert_true(kn_capture_has(p.capture, &x, 1));
        same_step(&p);
    }
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OPS_TEST(a_replay_draws_from_the_state_that_was_set),
        OPS_TEST(a_recomputed_part_between_replays_leaves_their_generator),
        OPS_TEST(a_plan_is_recorded_again_where_its_generator_has_moved),
        OPS_TEST(a_launch_whose_generator_has_moved_is_an_error),
        OPS_TEST(a_generator_may_move_while_the_step_is_recorded),
    };
    return cmocka_run_group_tests(tests, make_device, NULL);
}
