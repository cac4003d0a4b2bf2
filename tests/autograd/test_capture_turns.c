/* Captured backward passes and updates where some parameters have a gradient of the cycle and
 * others don't, and what passes that fail leave. */
#include <knet/capture.h>

#include "autograd_test.h"

enum { TURNS = 8 };

typedef struct pair {
    kn_params *params;
    kn_optim *optim;
    kn_tensor *a, *c;
} pair;

/* A backward with gradients of `by`, to c too or to a alone. */
static kn_status reach(const pair *p, double by, bool with_c) {
    KN_TAPE();
    kn_tensor *loss = kn_sum(kn_affine(p->a, by, 0), KN_ALL, false);
    if (with_c) loss = kn_add(loss, kn_sum(kn_affine(p->c, by, 0), KN_ALL, false));
    return kn_backward(loss);
}

static void fail_backward(const pair *p) {
    KN_TAPE();
    kn_tensor *spoilt = kn_tanh(p->a), *loss = kn_sum(kn_sin(spoilt), KN_ALL, false);
    loss = kn_add(loss, kn_sum(p->c, KN_ALL, false)); /* whose gradient is there before */
    assert_ok(kn_fill_into(spoilt, 0));
    assert_fails(kn_backward(loss), KN_ERR_INVALID, "written after it was saved");
}

static kn_status reach_both(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const pair *p = ctx;
    KN_TRY(reach(p, 1, true));
    out[0] = kn_affine(in[0], 1, 0);
    return kn_check();
}

static kn_status reach_a(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const pair *p = ctx;
    KN_TRY(reach(p, 1, false));
    out[0] = kn_affine(in[0], 1, 0);
    return kn_check();
}

static kn_status update_alone(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const pair *p = ctx;
    KN_TRY(kn_optim_step(p->optim));
    out[0] = kn_affine(in[0], 1, 0);
    return kn_check();
}

static kn_status read_alone(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const pair *p = ctx;
    (void)in;
    out[0] = kn_affine(kn_grad(p->a), 1, 0);
    return kn_check();
}

/* Of each turn the gradients and values of a and c. before: what a backward outside reaches; 0:
 * no backward, 1: a, 2: both, 3: one that fails. */
static void take_turns(double out[TURNS][4], const int before[TURNS], kn_capture_fn step,
                       kn_capture *capture) {
    pair p;
    KN_FRAME();
    assert_ok(kn_params_create(&p.params, NULL));
    p.a = kn_param(p.params, KN_SHAPE(2), (kn_init){.kind = KN_INIT_ZEROS}, "a");
    p.c = kn_param(p.params, KN_SHAPE(2), (kn_init){.kind = KN_INIT_ZEROS}, "c");
    assert_ok(kn_sgd_create(&p.optim, p.params, 1, NULL));
    kn_tensor *x = kn_ones(KN_SHAPE(1)), *y = NULL;
    for (int i = 0; i < TURNS; i++) {
        if (before[i] == 3)
            fail_backward(&p);
        else if (before[i])
            assert_ok(reach(&p, 10, before[i] == 2));
        assert_ok(capture ? kn_capture_run(&y, 1, capture, &x, 1, step, &p) : step(&y, &x, &p));
        out[i][0] = ops_at(kn_grad(p.a), 0);
        out[i][1] = ops_at(kn_grad(p.c), 0);
        bool only_reads = step == read_alone && !before[i];
        if (step != update_alone && !only_reads) assert_ok(kn_optim_step(p.optim));
        out[i][2] = ops_at(p.a, 1);
        out[i][3] = ops_at(p.c, 1);
    }
    kn_optim_destroy(p.optim);
    kn_params_destroy(p.params);
}

static void turns_as_plain(const int before[TURNS], kn_capture_fn step, uint64_t n_plans) {
    double plain[TURNS][4], captured[TURNS][4];
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    assert_ok(kn_capture_create(&capture, NULL));
    take_turns(plain, before, step, NULL);
    take_turns(captured, before, step, capture);
    for (int i = 0; i < TURNS; i++)
        for (int k = 0; k < 4; k++)
            if (plain[i][k] != captured[i][k])
                fail_msg("turn %d: %g is %g", i, plain[i][k], captured[i][k]);
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_plans, n_plans);
    kn_capture_destroy(capture);
}

static void plans_know_which_parameters_have_gradients(void **state) {
    (void)state;
    turns_as_plain((const int[TURNS]){1, 1, 2, 1, 2, 1, 2, 0}, reach_both, 3);
    turns_as_plain((const int[TURNS]){2, 2, 1, 1, 1, 2, 0, 1}, reach_both, 3);
    turns_as_plain((const int[TURNS]){2, 2, 1, 1, 2, 1, 2, 0}, reach_a, 3);
    turns_as_plain((const int[TURNS]){2, 2, 2, 1, 1, 1, 2, 1}, update_alone, 2);
    /* A backward after a step begins a cycle, whatever a replay has read since. */
    turns_as_plain((const int[TURNS]){2, 2, 2, 0, 2, 0, 1, 2}, read_alone, 3);
}

/* After a failed backward no parameter has a gradient, without a step. */
static void plans_recorded_after_a_failed_backward_begin_a_cycle(void **state) {
    (void)state;
    turns_as_plain((const int[TURNS]){2, 3, 2, 0, 2, 3, 0, 3}, reach_a, 2);
    turns_as_plain((const int[TURNS]){2, 3, 0, 3, 2, 3, 2, 0}, reach_both, 2);
}

/* The step continues without the old gradients, as one that skips a batch does. */
static kn_status refused_backward(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const pair *p = ctx;
    {
        KN_TAPE();
        kn_tensor *loss = kn_affine(p->a, 2, 0); /* two numbers */
        assert_fails(kn_backward(loss), KN_ERR_SHAPE, "kn_backward");
    }
    out[0] = kn_affine(in[0], 1, 0);
    return kn_check();
}

/* The same in the middle of the pass. */
static kn_status failed_backward(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    fail_backward(ctx);
    out[0] = kn_affine(in[0], 1, 0);
    return kn_check();
}

static void replays_of_a_failed_backward_leave_no_gradients(void **state) {
    (void)state;
    turns_as_plain((const int[TURNS]){2, 2, 2, 1, 0, 1, 2, 2}, refused_backward, 1);
    turns_as_plain((const int[TURNS]){0, 0, 2, 1, 0, 3, 2, 2}, failed_backward, 3);
}

/* --- a replay that fails in the middle of its backward pass --- */

static kn_status pick_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_affine(x[0], 1, 0);
    return kn_check();
}
/* ctx: the index, which only the backward pass reads */
static kn_status pick_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    kn_tensor *table = kn_affine(kn_ones(KN_SHAPE(4)), 3, 0);
    dx[0] = kn_mul(dy, kn_index_select(table, kn_call_ctx(call), 0));
    return kn_check();
}
static const kn_rule pick = {.name = "pick", .forward = pick_forward, .backward = pick_backward};

/* c's gradient is there before a's fails. */
static kn_status picked_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const pair *p = ctx;
    KN_TAPE();
    kn_tensor *a = kn_apply(&pick, &p->a, 1, in[0], NULL);
    kn_tensor *loss = kn_sum(kn_add(a, kn_mul(p->c, kn_affine(p->c, 0, 1))), KN_ALL, false);
    KN_TRY(kn_backward(loss));
    out[0] = kn_keep(loss);
    return kn_check();
}

static void a_replay_that_fails_in_backward_leaves_no_part_of_it(void **state) {
    (void)state;
    pair p;
    kn_capture *capture = NULL;
    KN_FRAME();
    assert_ok(kn_params_create(&p.params, NULL));
    p.a = kn_param(p.params, KN_SHAPE(2), (kn_init){.kind = KN_INIT_ZEROS}, "a");
    p.c = kn_param(p.params, KN_SHAPE(2), (kn_init){.kind = KN_INIT_ZEROS}, "c");
    assert_ok(kn_sgd_create(&p.optim, p.params, 0, NULL));
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *good = I64(KN_SHAPE(2), 0, 3), *bad = I64(KN_SHAPE(2), 0, 9), *loss = NULL;
    for (int i = 1; i <= 4; i++) {
        assert_ok(kn_capture_run(&loss, 1, capture, &good, 1, picked_step, &p));
        assert_values(kn_grad(p.a), 3 * i, 3 * i);
        assert_values(kn_grad(p.c), i, i);
    }
    assert_fails(kn_capture_launch(capture, &bad, 1), KN_ERR_INVALID, "9");
    assert_values(kn_grad(p.c), 0, 0);
    assert_ok(kn_capture_run(&loss, 1, capture, &good, 1, picked_step, &p));
    assert_values(kn_grad(p.a), 3, 3);
    assert_values(kn_grad(p.c), 1, 1);
    kn_capture_destroy(capture);
    kn_optim_destroy(p.optim);
    kn_params_destroy(p.params);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(plans_know_which_parameters_have_gradients),
                     OPS_TEST(plans_recorded_after_a_failed_backward_begin_a_cycle),
                     OPS_TEST(replays_of_a_failed_backward_leave_no_gradients),
                     OPS_TEST(a_replay_that_fails_in_backward_leaves_no_part_of_it));
}
