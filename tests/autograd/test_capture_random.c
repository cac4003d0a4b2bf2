/* Captured steps that draw random numbers: a replay reads and advances its generator as the step
 * does. */
#include <knet/capture.h>

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

int main(void) {
    return RUN_TESTS(OPS_TEST(a_replay_draws_from_the_state_that_was_set),
                     OPS_TEST(a_recomputed_part_between_replays_leaves_their_generator));
}
