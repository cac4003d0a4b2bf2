/* The n-th allocation of a training step fails, n = 1, 2, … until none does, once or from then on:
 * the status is OOM, nothing leaks, and the same objects train on as if nothing had happened.
 *
 * The program's own kn_alloc stands before the library's. */
#include <knet/capture.h>

#include "failing_alloc.h"
#include "net.h"

static int autocast; /* of the steps */

/* *trained: backward succeeded, so only the optimiser's step is left to do. */
static kn_status two_parts(net *n, int step, double *loss, bool *trained) {
    KN_TAPE(.autocast = autocast);
    KN_TRY(kn_check());
    kn_tensor *l = net_loss(n, step);
    KN_TRY(kn_backward(l));
    *trained = true;
    KN_TRY(kn_item(loss, l));
    return kn_optim_step(n->optim);
}

static kn_status failing_step(net *n, double *loss, bool *trained, int at) {
    n_allocs = 0;
    fail_at = at;
    kn_status status = two_parts(n, 0, loss, trained);
    fail_at = 0;
    return status;
}

/* After a failure: finishes the step, then runs another one. */
static void go_on(net *n, double losses[2], bool trained) {
    if (trained)
        assert_ok(kn_optim_step(n->optim));
    else
        assert_ok(two_parts(n, 0, &losses[0], &trained));
    assert_ok(two_parts(n, 1, &losses[1], &trained));
}

static bool fails_at(int at, const double want[2]) {
    net n;
    assert_ok(net_create(&n));
    uint64_t seed, offset, live = ops_live_bytes();
    assert_ok(kn_rng_state_get(&seed, &offset, n.rng));
    double losses[2] = {0};
    bool trained = false;
    kn_status status = failing_step(&n, &losses[0], &trained, at);
    bool reached = n_allocs >= at;
    assert_int_equal(kn_check(), KN_OK);
    if (status < 0) {
        assert_int_equal(status, KN_ERR_OOM);
        test_assert_message("scripted failure", __FILE__, __LINE__);
        if (!trained) assert_ok(kn_rng_state_set(n.rng, seed, offset));
        if (!trained)
            assert_true(ops_live_bytes() <= live + (64 << 10)); /* the arena may be there */
        go_on(&n, losses, trained);
    } else { /* the step may continue without it, as when it sorts gradients by use */
        assert_true(!reached || once);
        assert_ok(two_parts(&n, 1, &losses[1], &trained));
    }
    if (losses[0] != want[0] || losses[1] != want[1]) fail_msg("other losses after failure %d", at);
    net_destroy(&n);
    return reached;
}

static void fail_everywhere(void) {
    net calm;
    double want[2];
    assert_ok(net_create(&calm));
    go_on(&calm, want, false);
    net_destroy(&calm);
    int at = 1;
    while (fails_at(at, want)) at++;
    assert_true(at > 40);
}

static void every_allocation_may_fail_once(void **state) {
    (void)state;
    once = true;
    fail_everywhere();
}

static void every_allocation_may_fail_for_good(void **state) {
    (void)state;
    once = false;
    fail_everywhere();
}

static void every_allocation_of_mixed_precision_may_fail(void **state) {
    (void)state;
    autocast = KN_BF16;
    once = true;
    fail_everywhere();
    once = false;
    fail_everywhere();
    autocast = 0;
}

/* --- steps that clip --- */

enum { W1 = 32 * 150 };

static kn_status clipping(kn_optim **out, kn_params *set, int way) {
    const kn_adam_options o = {.clip_each = 0.01, .clip_norm = way ? 0.02 : 0};
    return way == 2 ? kn_lamb_create(out, set, 1e-2, &o) : kn_adam_create(out, set, 1e-2, &o);
}

/* w1 after a step, which is repeated where allocation `at` fails, and another one. False: it didn't
 * fail. */
static bool clipped_steps(float w1[W1], int way, int at) {
    net n;
    double loss;
    bool failed = false;
    assert_ok(net_create(&n));
    kn_optim_destroy(n.optim);
    assert_ok(clipping(&n.optim, n.params, way));
    for (int step = 0; step < 2; step++) {
        KN_TAPE();
        assert_ok(kn_backward(net_loss(&n, step)));
        n_allocs = 0, fail_at = at;
        kn_status status = kn_optim_step(n.optim);
        fail_at = 0;
        if (status == KN_OK) continue;
        assert_int_equal(status, KN_ERR_OOM);
        failed = true;
        assert_ok(kn_optim_step(n.optim));
    }
    assert_ok(net_step(&n, 2, &loss)); /* clips again */
    assert_ok(kn_copy_out(w1, W1 * sizeof w1[0], n.w1));
    net_destroy(&n);
    return failed;
}

static void a_clipped_step_may_fail_and_be_repeated(void **state) {
    (void)state;
    static float want[W1], got[W1];
    for (int way = 0; way < 6; way++) {
        once = way < 3;
        KN_FRAME();
        clipped_steps(want, way % 3, 0);
        int at = 1;
        for (; clipped_steps(got, way % 3, at); at++) assert_memory_equal(want, got, sizeof want);
        assert_true(at > 30);
    }
}

/* --- a step that failed after it had clipped, before a replay adds to the gradients --- */

static kn_status add_hundred(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    KN_TAPE();
    kn_tensor *loss = sum_all(kn_mul(ctx, in[0]));
    KN_TRY(kn_backward(loss));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Three steps of rate 1; allocation `at` of the last one fails. False: it didn't fail. */
static bool replayed_and_clipped(int at) {
    KN_FRAME();
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    kn_capture *capture = NULL;
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 0), *x = F32(KN_SHAPE(1), 100), *out = NULL;
    const kn_sgd_options options = {.clip_each = 1, .clip_norm = 1000};
    assert_ok(kn_sgd_create(&optim, set, 1, &options));
    assert_ok(kn_capture_create(&capture, NULL));
    bool failed = false;
    for (int step = 0; step < 3; step++) {
        for (int part = 0; part < 2; part++)
            assert_ok(kn_capture_run(&out, 1, capture, &x, 1, add_hundred, w));
        n_allocs = 0, fail_at = step == 2 ? at : 0;
        failed = kn_optim_step(optim) < 0;
        fail_at = 0;
    }
    if (failed) {
        assert_ok(kn_capture_run(&out, 1, capture, &x, 1, add_hundred, w));
        assert_ok(kn_optim_step(optim));
    }
    assert_close(ops_at(w, 0), -3, 1e-5, 0);
    kn_capture_destroy(capture);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
    return failed;
}

static void gradients_that_a_replay_adds_to_are_clipped_again(void **state) {
    (void)state;
    once = true;
    for (int at = 1; replayed_and_clipped(at); at++) assert_true(at < 100);
}

/* Gradients of a failed backward are void, also when they were added to earlier ones. */
static void a_failed_backward_leaves_zero_gradients(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    once = true;
    for (int at = 1, failures = 0; at < 40; at++) {
        kn_status status = KN_OK;
        {
            KN_TAPE();
            assert_ok(kn_backward(sum_all(w)));
        }
        {
            KN_TAPE();
            kn_tensor *x = kn_affine(w, 3, 0), *y = sum_all(kn_add(kn_mul(x, x), kn_exp(w)));
            n_allocs = 0;
            fail_at = at;
            status = kn_backward(y);
            fail_at = 0;
        }
        failures += status < 0;
        if (status < 0) assert_values(kn_grad(w), 0, 0);
        if (n_allocs < at) {
            assert_true(failures > 2);
            break;
        }
    }
    kn_params_destroy(set);
}

/* Row [1,N] times column [N,1], so each gradient is a sum over what the other one repeats: a failed
 * sum of the first must not leave the second behind. */
static kn_status broadcast_gradients(int at) {
    enum { N = 300 };
    KN_TAPE();
    kn_tensor *x[] = {kn_watch(kn_full(KN_SHAPE(1, N), 2)), kn_watch(kn_full(KN_SHAPE(N, 1), 3))};
    kn_tensor *dx[2] = {NULL};
    KN_TRY(kn_check());
    n_allocs = 0;
    fail_at = at;
    kn_status status = kn_gradients(dx, kn_sum(kn_pow(x[0], x[1]), KN_ALL, false), x, 2, NULL);
    fail_at = 0;
    return status;
}

/* The first gradient takes the place of the product's own; the second has no place. */
static kn_status gradients_in_place(int at) {
    KN_TAPE();
    kn_tensor *x[] = {kn_watch(kn_full(KN_SHAPE(300), 2)), kn_watch(kn_full(KN_SHAPE(300), 3))};
    kn_tensor *z = kn_exp(kn_mul(kn_sqrt(x[0]), kn_exp(x[1]))), *dx[2] = {NULL};
    KN_TRY(kn_check());
    n_allocs = 0;
    fail_at = at;
    kn_status status = kn_gradients(dx, kn_sum(z, KN_ALL, false), x, 2, NULL);
    fail_at = 0;
    return status;
}

static void leaks_nothing(kn_status (*gradients)(int at), int n_failures) {
    for (int way = 0; way < 2; way++) {
        once = way == 0;
        int at = 0, failures = 0;
        do {
            uint64_t live = ops_live_bytes();
            kn_status status = gradients(++at);
            failures += status < 0;
            if (status < 0) assert_int_equal(status, KN_ERR_OOM);
            assert_int_equal(kn_check(), KN_OK);
            uint64_t leaked = ops_live_bytes() - live;
            if (leaked) fail_msg("failure %d leaks %llu bytes", at, (unsigned long long)leaked);
        } while (n_allocs >= at);
        assert_true(failures >= n_failures);
    }
}

static void gradients_that_fail_leak_nothing(void **state) {
    (void)state;
    leaks_nothing(broadcast_gradients, 4); /* the two gradients, and their sums */
    leaks_nothing(gradients_in_place, 2);  /* that of the sum, and the second of the product */
}

int main(void) {
    return RUN_TESTS(OPS_TEST(every_allocation_may_fail_once),
                     OPS_TEST(every_allocation_may_fail_for_good),
                     OPS_TEST(every_allocation_of_mixed_precision_may_fail),
                     OPS_TEST(a_clipped_step_may_fail_and_be_repeated),
                     OPS_TEST(gradients_that_a_replay_adds_to_are_clipped_again),
                     OPS_TEST(a_failed_backward_leaves_zero_gradients),
                     OPS_TEST(gradients_that_fail_leak_nothing));
}
