/* Backward passes whose gradients are all zero, for which rules hand over nothing: they count as
 * others do, so that no step uses the gradients of the one before again. And those that don't
 * begin.
 */
#include <knet/capture.h>
#include <knet/scale.h>
#include <math.h>

#include "autograd_test.h"
#include "params.h"

/* --- losses of no gradient --- */

typedef kn_tensor *(*loss_fn)(kn_tensor *w);

static kn_tensor *no_rows(void) { return kn_cast(kn_zeros(KN_SHAPE(0)), KN_I64); }

static kn_tensor *floored(kn_tensor *w) { return sum_all(kn_floor(w)); }
static kn_tensor *rounded(kn_tensor *w) { return sum_all(kn_round(kn_mul(w, w))); }
static kn_tensor *signs(kn_tensor *w) { return sum_all(kn_sign(w)); }
static kn_tensor *looked_up(kn_tensor *w) { return sum_all(kn_embedding(w, no_rows())); }
static kn_tensor *selected(kn_tensor *w) { return sum_all(kn_index_select(w, no_rows(), 0)); }

static kn_status stop_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_affine(x[0], 1, 0);
    return kn_check();
}
static kn_status stop_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call, (void)dy;
    dx[0] = NULL;
    return KN_OK;
}
static const kn_rule stop = {.name = "stop", .forward = stop_forward, .backward = stop_backward};
static kn_tensor *stopped(kn_tensor *w) { return sum_all(kn_apply(&stop, &w, 1, NULL, NULL)); }

static kn_tensor *floor_of(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return sum_all(kn_floor(x[0]));
}
static kn_tensor *recomputed(kn_tensor *w) { return kn_recompute(floor_of, NULL, &w, 1, NULL); }

static const loss_fn losses[] = {floored, rounded, signs, looked_up, selected, stopped, recomputed};
enum { LOSSES = sizeof losses / sizeof losses[0], STEPS = 6 };

/* Of the first two rows, the second of them twice. */
static kn_tensor *full(kn_tensor *w) {
    return sum_all(kn_mul(kn_embedding(w, I64(KN_SHAPE(3), 0, 1, 1)), F32(KN_SHAPE(1), 2)));
}

/* --- a set of one matrix --- */

typedef struct fixture {
    kn_params *set;
    kn_tensor *w;
    kn_optim *optim;
} fixture;

static void fixture_init(fixture *f, bool is_sparse, double momentum) {
    *f = (fixture){.set = params_f32()};
    f->w = PARAM(f->set, KN_SHAPE(3, 2), "w", 1, 2, 3, 4, 5, 6);
    if (is_sparse) assert_ok(kn_param_sparse(f->w));
    if (momentum > 0)
        assert_ok(kn_momentum_create(&f->optim, f->set, 0.125, momentum, NULL));
    else
        assert_ok(kn_sgd_create(&f->optim, f->set, 0.125, NULL));
}

static void fixture_release(fixture *f) {
    kn_optim_destroy(f->optim);
    kn_params_destroy(f->set);
}

static void pass(kn_tensor *w, loss_fn loss) {
    KN_TAPE();
    assert_ok(kn_backward(loss(w)));
}

/* --- tests --- */

static void a_step_after_them_moves_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 2 * LOSSES; i++) {
        fixture f;
        fixture_init(&f, i >= LOSSES, 0);
        pass(f.w, full);
        assert_ok(kn_optim_step(f.optim));
        assert_values(f.w, 0.75, 1.75, 2.5, 3.5, 5, 6);
        for (int k = 0; k < 2; k++) {
            pass(f.w, losses[i % LOSSES]);
            assert_ok(kn_optim_step(f.optim));
            assert_values(f.w, 0.75, 1.75, 2.5, 3.5, 5, 6);
        }
        fixture_release(&f);
    }
}

static void their_gradients_read_as_zeros(void **state) {
    (void)state;
    for (int i = 0; i < LOSSES; i++) {
        kn_tensor *rows = NULL, *values = NULL;
        fixture dense, sparse;
        fixture_init(&dense, false, 0);
        fixture_init(&sparse, true, 0);
        pass(dense.w, full);
        pass(sparse.w, full);
        assert_ok(kn_optim_step(dense.optim));
        assert_ok(kn_optim_step(sparse.optim));
        pass(dense.w, losses[i]);
        pass(sparse.w, losses[i]);
        assert_values(kn_grad(dense.w), 0, 0, 0, 0, 0, 0);
        assert_ok(kn_grad_rows(&rows, &values, sparse.w));
        for (int64_t k = 0; k < kn_tensor_numel(values); k++)
            assert_float_equal(ops_at(values, k), 0, 0);
        fixture_release(&dense);
        fixture_release(&sparse);
    }
}

static void they_leave_the_gradients_of_the_step_so_far(void **state) {
    (void)state;
    for (int i = 0; i < LOSSES; i++) {
        fixture f;
        fixture_init(&f, false, 0);
        for (int k = 0; k < 2; k++) {
            pass(f.w, losses[i]);
            pass(f.w, full);
            pass(f.w, losses[i]);
            assert_values(kn_grad(f.w), 2, 2, 4, 4, 0, 0);
            assert_ok(kn_optim_step(f.optim));
        }
        assert_values(f.w, 0.5, 1.5, 2, 3, 5, 6);
        fixture_release(&f);
    }
}

static void the_first_pass_with_gradients_orders_them(void **state) {
    (void)state;
    int order[2];
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 1), *b = PARAM(set, KN_SHAPE(1), "b", 1);
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_add(kn_floor(a), kn_floor(b)))));
    }
    kn_params_order(order, set);
    assert_int_equal(order[0], -1);
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_exp(kn_mul(kn_exp(b), a)))));
    }
    kn_params_order(order, set);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    kn_params_destroy(set);
}

static void an_overflow_before_them_counts_once(void **state) {
    (void)state;
    for (int is_sparse = 0; is_sparse < 2; is_sparse++) {
        fixture f;
        kn_loss_scale *scale = NULL;
        bool was_made = true;
        fixture_init(&f, is_sparse, 0);
        assert_ok(kn_loss_scale_create(&scale, f.set, NULL));
        double factor = kn_loss_scale_state_get(scale).factor;
        {
            KN_TAPE();
            assert_ok(kn_backward(kn_loss_scale_apply(scale, kn_affine(full(f.w), INFINITY, 0))));
        }
        assert_ok(kn_loss_scale_step(scale, f.optim, &was_made));
        assert_false(was_made);
        {
            KN_TAPE();
            assert_ok(kn_backward(kn_loss_scale_apply(scale, looked_up(f.w))));
        }
        assert_ok(kn_loss_scale_step(scale, f.optim, &was_made));
        assert_true(was_made);
        assert_int_equal(kn_loss_scale_state_get(scale).n_skipped, 1);
        assert_float_equal(kn_loss_scale_state_get(scale).factor, factor / 2, 0);
        assert_values(f.w, 1, 2, 3, 4, 5, 6);
        kn_loss_scale_destroy(scale);
        fixture_release(&f);
    }
}

/* Only the sets that the loss depends on: not one that a metric beside it reads. */
static void other_sets_keep_their_gradients(void **state) {
    (void)state;
    fixture mine, other;
    fixture_init(&mine, false, 0);
    fixture_init(&other, false, 0);
    pass(mine.w, full);
    pass(other.w, full);
    assert_ok(kn_optim_step(mine.optim));
    assert_ok(kn_optim_step(other.optim));
    {
        KN_TAPE();
        kn_tensor *metric = sum_all(kn_mul(kn_floor(mine.w), other.w)), *loss = floored(mine.w);
        assert_ok(kn_backward(loss));
        assert_float_equal(item_of(metric), 0 + 1.75 + 5 + 10.5 + 25 + 36, 0);
    }
    assert_values(kn_grad(mine.w), 0, 0, 0, 0, 0, 0);
    assert_values(kn_grad(other.w), 2, 2, 4, 4, 0, 0);
    fixture_release(&mine);
    fixture_release(&other);
}

static void frozen_sets_keep_their_gradients(void **state) {
    (void)state;
    fixture frozen, mine;
    fixture_init(&frozen, false, 0);
    fixture_init(&mine, false, 0);
    pass(frozen.w, full);
    assert_ok(kn_optim_step(frozen.optim));
    assert_ok(kn_params_freeze(frozen.set, "w", true));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_mul(kn_floor(frozen.w), mine.w))));
    }
    assert_values(kn_grad(frozen.w), 2, 2, 4, 4, 0, 0);
    fixture_release(&frozen);
    fixture_release(&mine);
}

/* A set on two devices; here the second one's part is on the host too. */
static void a_pass_counts_on_all_devices_of_a_set(void **state) {
    (void)state;
    kn_params *set = params_f32(), *part = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 1), *b = PARAM(part, KN_SHAPE(1), "b", 1);
    kn_optim *sgd = NULL;
    set->next = part;
    part->head = set;
    assert_ok(kn_sgd_create(&sgd, set, 0.5, NULL));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_add(a, b))));
    }
    assert_ok(kn_optim_step(sgd));
    pass(a, sum_all);
    assert_ok(kn_optim_step(sgd));
    assert_values(a, 0);
    assert_values(b, 0.5);
    kn_optim_destroy(sgd);
    kn_params_destroy(set);
}

static void count(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    (void)w, (void)gradient;
    ++*(int *)ctx;
}

/* As the zeros of a parameter that a loss does not reach. */
static void hooks_are_not_called_for_them(void **state) {
    (void)state;
    static const loss_fn some[] = {floored, rounded, stopped, recomputed};
    for (int i = 0; i < 4; i++) {
        fixture f;
        int calls = 0;
        fixture_init(&f, false, 0);
        kn_params_on_grad(f.set, count, &calls);
        pass(f.w, full);
        assert_int_equal(calls, 1);
        pass(f.w, some[i]);
        assert_int_equal(calls, 1);
        fixture_release(&f);
    }
}

/* --- passes that are refused --- */

static void a_loss_of_several_elements_leaves_no_gradient(void **state) {
    (void)state;
    for (int stepped = 0; stepped < 2; stepped++) {
        fixture f;
        fixture_init(&f, false, 0);
        pass(f.w, full);
        if (stepped) assert_ok(kn_optim_step(f.optim));
        KN_TAPE();
        kn_tensor *y = kn_square(f.w);
        assert_fails(kn_backward(y), KN_ERR_SHAPE, "it must be one number");
        assert_values(kn_grad(f.w), 0, 0, 0, 0, 0, 0);
        assert_ok(kn_backward(sum_all(y))); /* the tape is as it was */
        assert_float_equal(ops_at(kn_grad(f.w), 5), 12, 0);
        fixture_release(&f);
    }
}

/* Which sets it depended on is forgotten. */
static void a_loss_without_a_tape_changes_no_gradient(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, false, 0);
    KN_TAPE();
    kn_tensor *loss = full(f.w);
    assert_ok(kn_backward(loss));
    assert_fails(kn_backward(loss), KN_ERR_INVALID,
                 "kn_backward: the tape of this loss was consumed by kn_backward or kn_gradients");
    assert_fails(kn_backward(kn_ones(KN_SCALAR)), KN_ERR_INVALID, "depends on no parameter");
    assert_values(kn_grad(f.w), 2, 2, 4, 4, 0, 0);
    fixture_release(&f);
}

/* --- captured --- */

static kn_tensor *doubled(kn_tensor *w) { return sum_all(kn_affine(w, 2, 0)); }

typedef struct step {
    fixture *f;
    loss_fn loss;
} step;

static kn_status step_run(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const step *s = ctx;
    (void)in;
    KN_TAPE();
    kn_tensor *loss = s->loss(s->f->w);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(s->f->optim));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Steps of `doubled` and of no gradient by turns, each with a capture of its own. */
static void by_turns(double out[STEPS][6], loss_fn loss, bool captured, uint64_t *n_launches) {
    fixture f;
    KN_FRAME();
    fixture_init(&f, false, 0.5);
    step steps[2] = {{&f, doubled}, {&f, loss}};
    kn_capture *capture[2];
    kn_capture_stats stats;
    for (int i = 0; i < 2; i++) assert_ok(kn_capture_create(&capture[i], NULL));
    for (int i = 0; i < 2 * STEPS; i++) {
        kn_tensor *y = NULL, *x = kn_ones(KN_SHAPE(1));
        step *s = &steps[i % 2];
        assert_ok(captured ? kn_capture_run(&y, 1, capture[i % 2], &x, 1, step_run, s)
                           : step_run(&y, &x, s));
        for (int k = 0; k < 6 && i % 2; k++) out[i / 2][k] = ops_at(f.w, k);
    }
    kn_capture_stats_read(&stats, sizeof stats, capture[1]);
    *n_launches = stats.n_launches;
    for (int i = 0; i < 2; i++) kn_capture_destroy(capture[i]);
    fixture_release(&f);
}

static void captured_steps_of_them_are_the_plain_ones(void **state) {
    (void)state;
    static const loss_fn some[] = {floored, rounded, stopped, recomputed};
    for (int i = 0; i < 4; i++) {
        double plain[STEPS][6], captured[STEPS][6];
        uint64_t n_launches = 0;
        by_turns(plain, some[i], false, &n_launches);
        by_turns(captured, some[i], true, &n_launches);
        assert_int_equal(n_launches, STEPS - 2);
        assert_memory_equal(plain, captured, sizeof plain);
        /* v = 0.5 v - 0.125 g, of a gradient of 2 in every second step */
        double w = 1, v = 0;
        for (int k = 0; k < 2 * STEPS; k++) w += v = 0.5 * v - (k % 2 ? 0 : 0.25);
        assert_float_equal(plain[STEPS - 1][0], w, 1e-6);
    }
}

static kn_status pass_alone(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const step *s = ctx;
    KN_TAPE();
    KN_TRY(kn_backward(s->loss(s->f->w)));
    out[0] = kn_keep(kn_affine(in[0], 1, 0));
    return kn_check();
}
static kn_status step_alone(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    KN_TRY(kn_optim_step(((const step *)ctx)->f->optim));
    out[0] = kn_affine(in[0], 1, 0);
    return kn_check();
}

/* Passes with gradients and without, and steps, each captured alone, in any order. */
static void captures_in_any_order_are_the_plain_calls(void **state) {
    (void)state;
    enum { KINDS = 4, TURNS = 200 };
    static const loss_fn loss[KINDS] = {doubled, floored, stopped, NULL};
    KN_FRAME();
    fixture f[2];
    step s[2][KINDS];
    kn_capture *capture[KINDS];
    kn_tensor *x = kn_ones(KN_SHAPE(1)), *y = NULL;
    for (int i = 0; i < 2; i++) fixture_init(&f[i], false, 0.5);
    for (int k = 0; k < KINDS; k++) assert_ok(kn_capture_create(&capture[k], NULL));
    for (int i = 0; i < 2 * KINDS; i++)
        s[i / KINDS][i % KINDS] = (step){&f[i / KINDS], loss[i % KINDS]};
    for (int turn = 0; turn < TURNS; turn++) {
        KN_FRAME();
        int k = (int)test_random_below(KINDS);
        kn_capture_fn run = loss[k] ? pass_alone : step_alone;
        assert_ok(run(&y, &x, &s[0][k]));
        assert_ok(kn_capture_run(&y, 1, capture[k], &x, 1, run, &s[1][k]));
        for (int64_t e = 0; e < 6; e++) assert_float_equal(ops_at(f[1].w, e), ops_at(f[0].w, e), 0);
        bool reads = test_random_below(4) == 0; /* gradients that no pass wrote become zeros */
        for (int64_t e = 0; e < 6 && reads; e++)
            assert_float_equal(ops_at(kn_grad(f[1].w), e), ops_at(kn_grad(f[0].w), e), 0);
    }
    for (int k = 0; k < KINDS; k++) {
        kn_capture_stats stats;
        kn_capture_stats_read(&stats, sizeof stats, capture[k]);
        assert_true(stats.n_launches > 10);
        kn_capture_destroy(capture[k]);
    }
    for (int i = 0; i < 2; i++) fixture_release(&f[i]);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_step_after_them_moves_nothing), OPS_TEST(their_gradients_read_as_zeros),
        OPS_TEST(they_leave_the_gradients_of_the_step_so_far),
        OPS_TEST(the_first_pass_with_gradients_orders_them),
        OPS_TEST(an_overflow_before_them_counts_once), OPS_TEST(other_sets_keep_their_gradients),
        OPS_TEST(frozen_sets_keep_their_gradients), OPS_TEST(a_pass_counts_on_all_devices_of_a_set),
        OPS_TEST(hooks_are_not_called_for_them),
        OPS_TEST(a_loss_of_several_elements_leaves_no_gradient),
        OPS_TEST(a_loss_without_a_tape_changes_no_gradient),
        OPS_TEST(captured_steps_of_them_are_the_plain_ones),
        OPS_TEST(captures_in_any_order_are_the_plain_calls));
}
