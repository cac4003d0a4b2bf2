#include <knet/tape.h>
#include <malloc.h>
#include <pthread.h>

#include "autograd_test.h"

/* --- recording --- */

static void only_ops_that_lead_to_a_parameter_are_recorded(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    {
        KN_TAPE();
        kn_tensor *x = F32(KN_SHAPE(2), 3, 4);
        kn_exp(kn_add(x, x));
        assert_int_equal(kn_tape_nodes(), 0);
        kn_exp(kn_add(x, w));
        assert_int_equal(kn_tape_nodes(), 2);
        kn_gt(w, x);
        kn_argmax(w, 0);
        assert_int_equal(kn_tape_nodes(), 2);
        assert_ok(kn_tape_check());
    }
    {
        KN_FRAME();
        kn_exp(w);
        assert_int_equal(kn_tape_nodes(), 0);
    }
    kn_params_destroy(set);
}

static void a_frame_that_does_not_record_makes_constants(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2);
    KN_TAPE();
    kn_tensor *c = NULL;
    {
        KN_FRAME(.record = KN_OFF);
        c = kn_keep(kn_mul(w, w));
    }
    assert_ok(kn_backward(kn_mul(c, w)));
    assert_values(kn_grad(w), 4);
    kn_params_destroy(set);
}

static void tapes_do_not_nest(void **state) {
    (void)state;
    KN_TAPE();
    kn_frame inner = kn_tape_begin(NULL);
    assert_int_equal(inner.serial, 0);
    assert_fails(kn_check(), KN_ERR_INVALID, "tapes don't nest");
}

static void a_tape_can_be_opened_again_and_again(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2);
    for (int i = 0; i < 100; i++) {
        KN_TAPE();
        kn_tensor *y = w;
        for (int j = 0; j < 30 * i; j++) y = kn_affine(y, 1, 0.5); /* grows past one chunk */
        assert_ok(kn_tape_check());
        assert_int_equal(kn_tape_nodes(), 30 * i);
    }
    kn_params_destroy(set);
}

/* --- survivors --- */

static void a_tensor_that_outlives_its_tape_is_a_constant(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_SLOT(held);
    {
        KN_TAPE();
        assert_ok(kn_hold(&held, kn_mul(w, w)));
    }
    KN_TAPE();
    assert_ok(kn_backward(kn_mul(held, w)));
    assert_values(kn_grad(w), 9);
    kn_params_destroy(set);
}

static void values_in_slots_and_the_loss_survive_backward(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_SLOT(held);
    KN_TAPE();
    kn_tensor *square = kn_mul(w, w), *cube = kn_mul(square, w);
    assert_ok(kn_hold(&held, square));
    kn_tensor *loss = kn_affine(cube, 2, 0);
    assert_ok(kn_backward(loss));
    assert_values(held, 9);
    assert_values(loss, 54);
    assert_null(kn_exp(cube));
    assert_fails(kn_check(), KN_ERR_INVALID, "consumed");
    assert_null(kn_data(cube));
    assert_fails(kn_check(), KN_ERR_INVALID, "consumed");
    kn_params_destroy(set);
}

static void integers_are_not_recorded(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 3, 4);
    KN_TAPE();
    kn_tensor *i = kn_cast(w, KN_I64);
    assert_null(i->grad);
    assert_null(kn_slice(i, KN_SHAPE(0), KN_SHAPE(1))->grad);
    assert_int_equal(kn_tape_nodes(), 0);
    kn_params_destroy(set);
}

static void a_value_whose_slot_was_emptied_is_consumed(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_TAPE();
    kn_tensor *square = kn_mul(w, w), *slot = NULL;
    assert_ok(kn_hold(&slot, square));
    kn_unhold(&slot);
    assert_ok(kn_backward(kn_mul(square, w)));
    assert_op_fails(kn_exp(square), KN_ERR_INVALID, "consumed");
    kn_params_destroy(set);
}

/* Its gradient would be that of the sum alone. */
static void a_tensor_that_is_added_to_stays_a_constant(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 3, 4);
    KN_TAPE();
    kn_tensor *total = F32(KN_SCALAR, 1), *x = kn_mul(w, w);
    kn_attr_axes axes = {.mask = 1};
    assert_ptr_equal(op_run_into(KN_OP_sum, &axes, &x, 1, total), total);
    assert_values(total, 1 + 9 + 16);
    assert_int_equal(total->grad, 0);
    assert_int_equal(kn_tape_nodes(), 1);
    kn_params_destroy(set);
}

static void a_metric_beside_the_loss_can_be_read_after_backward(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", -3, 1);
    KN_TAPE();
    kn_tensor *y = kn_mul(w, w), *metric = sum_all(kn_abs(w));
    assert_ok(kn_backward(sum_all(y)));
    assert_values(metric, 4);
    kn_params_destroy(set);
}

static void layers_may_open_frames_of_their_own(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 2), "w", 1, -1, 2, 0.5f);
    KN_TAPE();
    kn_tensor *h = F32(KN_SHAPE(1, 2), 1, 2);
    for (int i = 0; i < 3; i++) {
        KN_FRAME();
        kn_tensor *z = kn_linear(h, w, KN_NONE);
        h = kn_keep(kn_tanh(z));
    }
    assert_ok(kn_tape_check());
    assert_ok(kn_backward(sum_all(h)));
    assert_ok(kn_check());
    kn_params_destroy(set);
}

/* --- bad input --- */

static void losses_that_cannot_be_differentiated_say_why(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    assert_fails(kn_backward(NULL), KN_ERR_INVALID, "NULL");
    assert_fails(kn_backward(KN_NONE), KN_ERR_INVALID, "KN_NONE");
    {
        KN_FRAME();
        assert_fails(kn_backward(sum_all(w)), KN_ERR_INVALID, "no tape was open");
    }
    KN_TAPE();
    assert_fails(kn_backward(kn_exp(w)), KN_ERR_SHAPE, "[2]");
    assert_fails(kn_backward(sum_all(F32(KN_SHAPE(2), 1, 2))), KN_ERR_INVALID,
                 "depends on no parameter");
    assert_fails(kn_backward(sum_all(kn_watch(F32(KN_SHAPE(2), 1, 2)))), KN_ERR_INVALID,
                 "kn_gradients");
    kn_tensor *loss = sum_all(kn_mul(w, w));
    assert_ok(kn_backward(loss));
    assert_fails(kn_backward(loss), KN_ERR_INVALID, "earlier kn_backward");
    kn_params_destroy(set);
}

static void an_error_in_the_model_arrives_at_backward(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 3), "w", 1, 2, 3, 4, 5, 6);
    KN_TAPE();
    kn_tensor *y = kn_linear(F32(KN_SHAPE(1, 2), 1, 2), w, KN_NONE);
    int line = __LINE__ - 1;
    assert_fails(kn_backward(sum_all(y)), KN_ERR_SHAPE, "[1,2]");
    assert_string_equal(kn_last_error()->op, "linear");
    assert_int_equal(kn_last_error()->line, line);
    kn_params_destroy(set);
}

static void a_saved_value_that_was_written_is_an_error_that_names_the_op(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    KN_TAPE();
    kn_tensor *x = F32(KN_SHAPE(2), 3, 4);
    kn_tensor *y = kn_mul(x, w);
    int line = __LINE__ - 1;
    ((float *)kn_data_mut(x))[0] = 7;
    char site[64];
    snprintf(site, sizeof site, "test_tape.c:%d", line);
    kn_tensor *loss = sum_all(y);
    assert_fails(kn_backward(loss), KN_ERR_INVALID, "mul");
    assert_fails(KN_ERR_INVALID, KN_ERR_INVALID, site);
    /* The tape can be left, and used again. */
    assert_fails(kn_backward(loss), KN_ERR_INVALID, "earlier kn_backward");
    assert_ok(kn_backward(sum_all(kn_mul(x, w))));
    assert_values(kn_grad(w), 7, 4);
    kn_params_destroy(set);
}

static void watching_reports_missing_records(void **state) {
    (void)state;
    {
        KN_FRAME();
        assert_op_fails(kn_watch(F32(KN_SHAPE(1), 1)), KN_ERR_INVALID, "no tape");
    }
    KN_TAPE();
    assert_op_fails(kn_watch(NULL), KN_ERR_INVALID, "NULL");
    assert_op_fails(kn_watch(KN_NONE), KN_ERR_INVALID, "KN_NONE");
    assert_op_fails(kn_watch(I64(KN_SHAPE(1), 1)), KN_ERR_DTYPE, "i64");
}

/* --- kn_gradients --- */

static void gradients_leave_those_of_parameters_alone(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 3, 4));
    kn_tensor *unused = kn_watch(F32(KN_SHAPE(3), 1, 1, 1));
    kn_tensor *y = kn_mul(kn_mul(x, x), w), *dx[4];
    assert_ok(kn_gradients(dx, y, (kn_tensor *[]){x, w, unused, x}, 4, NULL));
    assert_values(dx[0], 6, 16);
    assert_values(dx[1], 9, 16);
    assert_values(dx[2], 0, 0, 0);
    assert_values(dx[3], 6, 16);
    assert_values(kn_grad(w), 0, 0);
    assert_fails(kn_gradients(dx, y, &x, 1, NULL), KN_ERR_INVALID, "consumed");
    kn_params_destroy(set);
}

static void gradients_by_values_in_the_middle(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 2, 3));
    kn_tensor *h = kn_mul(x, x), *y = kn_mul(h, x), *dx[3];
    assert_ok(kn_gradients(dx, y, (kn_tensor *[]){h, x, y}, 3, NULL));
    assert_values(dx[0], 2, 3);
    assert_values(dx[1], 12, 27);
    assert_values(dx[2], 1, 1);
    assert_values(h, 4, 9); /* values that were asked about stay */
    assert_values(x, 2, 3);
}

static uint64_t allocations(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    return stats.n_allocs;
}

static void gradients_walk_only_towards_their_targets(void **state) {
    (void)state;
    uint64_t made[2];
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *h = kn_watch(F32(KN_SHAPE(1), 3)), *dx;
        for (int layer = 0; layer < (i ? 30 : 1); layer++) h = kn_tanh(h);
        kn_tensor *y = kn_mul(x, h);
        uint64_t before = allocations();
        assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
        made[i] = allocations() - before;
        assert_values(dx, ops_at(dx, 0));
    }
    assert_int_equal(made[0], made[1]);
}

static void a_watched_value_survives_backward(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 5, 7));
    assert_ok(kn_backward(sum_all(kn_mul(kn_mul(x, w), x))));
    assert_values(kn_grad(w), 25, 49);
    assert_values(x, 5, 7);
    kn_params_destroy(set);
}

static void a_watched_value_passes_its_gradient_on(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *x = kn_mul(w, w), *seen = kn_watch(x), *of_param = kn_watch(w), *dx[3];
    kn_tensor *y = kn_add(kn_mul(seen, x), of_param); /* w⁴ + w */
    kn_gradients_options keep = {.keep = 1};
    assert_ok(kn_gradients(dx, y, (kn_tensor *[]){seen, of_param, w}, 3, &keep));
    assert_values(dx[0], 4, 9);
    assert_values(dx[1], 1, 1);
    assert_values(dx[2], 4 * 8 + 1, 4 * 27 + 1);
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 4 * 8 + 1, 4 * 27 + 1);
    kn_params_destroy(set);
}

/* --- the tape's own memory --- */

static void a_consumed_tapes_memory_is_used_again(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2);
    kn_edge node = 0;
    KN_TAPE();
    for (int i = 0; i < 3; i++) {
        kn_tensor *y = kn_mul(w, w);
        if (i) assert_int_equal(y->grad, node);
        node = y->grad;
        for (int k = 0; k < 1000; k++) y = kn_neg(y);
        assert_ok(kn_backward(y));
    }
    kn_params_destroy(set);
}

static void memory_of_a_big_tape_is_returned(void **state) {
    (void)state;
    size_t before = 0, after = 0;
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2));
        for (int k = 0; k < (i ? 200000 : 1000); k++) {
            KN_FRAME();
            kn_neg(x);
        }
        before = after, after = mallinfo2().uordblks;
    }
    size_t open = after;
    after = mallinfo2().uordblks;
    /* sanitizers replace malloc: then mallinfo2 stays the same */
    assert_true(open == before || (open > before + (16u << 20) && after < before + (6u << 20)));
}

static void each_gradient_is_a_tensor_of_its_own(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        KN_TAPE();
        kn_tensor *a = kn_watch(F32(KN_SHAPE(1), 2)), *b = kn_watch(F32(KN_SHAPE(1), 3));
        kn_tensor *in[] = {a, b, a}, *dx[3], *dda = NULL, *y = kn_add(kn_mul(a, a), b);
        kn_tensor *square = kn_mul(y, y); /* by a: 4a·y, by b: 2y */
        assert_ok(kn_gradients(dx, square, in, 3, &(kn_gradients_options){.again = again}));
        kn_drop(dx[2]);
        assert_values(dx[0], 4 * 2 * 7);
        assert_values(dx[1], 2 * 7);
        if (again) {
            assert_ok(kn_gradients(&dda, dx[0], &a, 1, NULL));
            assert_values(dda, 4 * 7 + 4 * 2 * 2 * 2);
        }
    }
    KN_TAPE();
    kn_tensor *a = kn_watch(F32(KN_SHAPE(1), 2)), *b = kn_watch(F32(KN_SHAPE(1), 3)), *dx[2];
    kn_tensor *in[] = {a, b}; /* the sum gives both the same */
    assert_ok(kn_gradients(dx, kn_add(a, b), in, 2, &(kn_gradients_options){.again = 1}));
    kn_drop(dx[0]);
    assert_values(dx[1], 1);
}

static void a_kept_tape_answers_again(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_TAPE();
    kn_tensor *y = kn_mul(w, w), *dw = NULL;
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_gradients(&dw, y, &w, 1, &(kn_gradients_options){.keep = 1}));
        assert_values(dw, 6);
    }
    assert_ok(kn_backward(y));
    assert_values(kn_grad(w), 6);
    kn_params_destroy(set);
}

static void derivatives_of_third_order(void **state) {
    (void)state;
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *x = kn_watch(F64(KN_SHAPE(1), 0.7)), *y = kn_tanh(x), *d = y;
    kn_gradients_options again = {.again = 1};
    for (int i = 0; i < 3; i++) assert_ok(kn_gradients(&d, d, &x, 1, &again));
    double t = 0.60436777711716349631, s = 1 - t * t; /* tanh 0.7 */
    assert_close(item_of(d), s * (6 * t * t - 2), 1e-12, 0);
}

static void a_gradient_penalty_reaches_the_parameters(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3);
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_mul(kn_mul(w, w), x); /* dy/dx = w² */
    assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
    assert_ok(kn_backward(kn_add(y, kn_mul(dx, dx)))); /* w²x + w⁴ */
    assert_values(kn_grad(w), 2 * 3 * 2 + 4 * 27);
    kn_params_destroy(set);
}

static void bad_calls_of_gradients_say_why(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 3), *dw = NULL;
    {
        KN_FRAME();
        assert_fails(kn_gradients(&dw, w, &w, 1, NULL), KN_ERR_INVALID, "no tape");
    }
    KN_TAPE();
    kn_tensor *x = F32(KN_SHAPE(1), 1), *y = kn_mul(w, x);
    assert_fails(kn_gradients(&dw, y, &x, 1, NULL), KN_ERR_INVALID, "kn_watch");
    assert_fails(kn_gradients(&dw, y, &w, 0, NULL), KN_ERR_INVALID, "no x");
    assert_fails(kn_gradients(&dw, NULL, &w, 1, NULL), KN_ERR_INVALID, "y is NULL");
    assert_fails(kn_gradients(&dw, y, &w, 1, &(kn_gradients_options){.reserved = {1}}),
                 KN_ERR_INVALID, "reserved");
    assert_ok(kn_gradients(&dw, y, &w, 1, NULL));
    assert_values(dw, 1);
    kn_params_destroy(set);
}

static void gradcheck_finds_a_wrong_gradient(void **state);

/* --- ops of one's own --- */

static int freed;
static void count_free(void *ctx) {
    (void)ctx;
    freed++;
}

static kn_status cube_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, x[0]);
    *y = kn_mul(kn_mul(x[0], x[0]), x[0]);
    return kn_check();
}
static kn_status cube_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    kn_tensor *x = kn_call_saved(call, 0);
    double scale = kn_call_ctx(call) ? *(double *)kn_call_ctx(call) : 3;
    if (kn_call_needs(call, 0)) dx[0] = kn_mul(dy, kn_affine(kn_mul(x, x), scale, 0));
    return kn_check();
}
static const kn_rule cube = {.name = "cube", .forward = cube_forward, .backward = cube_backward};
static const kn_rule cube_once = {
    .name = "cube", .forward = cube_forward, .backward = cube_backward, .once = 1};

static kn_tensor *f_cube(void *ctx, kn_tensor *const x[]) {
    return kn_apply(&cube, x, 1, ctx, NULL);
}

static void an_op_of_ones_own_differentiates_twice(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = F64(KN_SHAPE(3), 0.5, -1, 2);
    assert_ok(kn_gradcheck(f_cube, NULL, &x, 1, 1, 1e-8, 1e-9));
    assert_ok(kn_gradcheck(f_cube, NULL, &x, 1, 2, 1e-8, 1e-9));
}

static void gradcheck_finds_a_wrong_gradient(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = F64(KN_SHAPE(3), 0.5, -1, 2);
    double wrong = 2.999;
    assert_fails(kn_gradcheck(f_cube, &wrong, &x, 1, 1, 1e-7, 1e-9), KN_ERR_INVALID, "element 0");
    assert_fails(kn_gradcheck(f_cube, NULL, &x, 1, 3, 1e-7, 1e-9), KN_ERR_INVALID, "order");
    kn_tensor *single = F32(KN_SHAPE(1), 1);
    assert_fails(kn_gradcheck(f_cube, NULL, &single, 1, 1, 1e-7, 1e-9), KN_ERR_DTYPE, "f64");
    kn_tensor_consume(x);
    assert_fails(kn_gradcheck(f_cube, NULL, &x, 1, 1, 1e-7, 1e-9), KN_ERR_INVALID, "consumed");
    kn_tensor *missing = NULL;
    assert_fails(kn_gradcheck(f_cube, NULL, &missing, 1, 1, 1e-7, 1e-9), KN_ERR_INVALID, "NULL");
}

static void a_rule_that_is_for_once_says_so(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_apply(&cube_once, &x, 1, NULL, NULL);
    kn_gradients_options again = {.again = 1};
    assert_fails(kn_gradients(&dx, y, &x, 1, &again), KN_ERR_UNSUPPORTED, "cube");
    assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
    assert_values(dx, 12);
}

static kn_status inner_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_tensor *inner = kn_mul(x[0], x[0]);
    kn_call_save(call, 0, inner);
    *y = kn_exp(inner);
    return kn_check();
}
static kn_status inner_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    dx[0] = kn_mul(dy, kn_exp(kn_call_saved(call, 0)));
    return kn_check();
}
static const kn_rule inner = {
    .name = "inner", .forward = inner_forward, .backward = inner_backward};

static void a_value_saved_from_inside_is_never_taken_for_a_constant(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_apply(&inner, &x, 1, NULL, NULL);
    kn_gradients_options again = {.again = 1};
    assert_fails(kn_gradients(&dx, y, &x, 1, &again), KN_ERR_UNSUPPORTED, "inner");
}

/* Half of x², each; the first hands out its gradient from a slot, which the second empties. */
static kn_tensor *given;
static kn_status half_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, x[0]);
    *y = kn_affine(kn_mul(x[0], x[0]), 0.5, 0);
    return kn_check();
}
static kn_status giving_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    KN_FRAME();
    kn_status status = kn_hold(&given, kn_mul(dy, kn_call_saved(call, 0)));
    dx[0] = given;
    return status;
}
static kn_status emptying_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    kn_unhold(&given);
    if (!kn_call_ctx(call)) dx[0] = kn_mul(dy, kn_call_saved(call, 0));
    return kn_check();
}
static const kn_rule giving = {
    .name = "giving", .forward = half_forward, .backward = giving_backward};
static const kn_rule emptying = {
    .name = "emptying", .forward = half_forward, .backward = emptying_backward};

/* An addition in place would be missing in the second derivative. */
static void recorded_gradients_are_never_added_to_in_place(void **state) {
    (void)state;
    KN_TAPE();
    kn_gradients_options again = {.again = 1};
    for (int by_product = 0; by_product < 2; by_product++) {
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1, 1), 3)), *dx = NULL, *ddx = NULL;
        kn_tensor *y = by_product ? kn_matmul(x, x, NULL) : kn_neg(kn_ones(KN_SHAPE(1, 1)));
        y = kn_add(y, kn_apply(&emptying, &x, 1, by_product ? &again : NULL, NULL));
        y = kn_add(y, kn_apply(&giving, &x, 1, NULL, NULL)); /* backward comes here first */
        assert_ok(kn_gradients(&dx, y, &x, 1, &again));
        assert_values(dx, by_product ? 3 + 2 * 3 : 3 + 3);
        assert_ok(kn_gradients(&ddx, dx, &x, 1, &again));
        assert_values(ddx, by_product ? 1 + 2 : 1 + 1);
    }
}

static kn_status exp_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    *y = kn_exp(x[0]);
    kn_call_save(call, 0, *y);
    return kn_check();
}
static kn_status exp_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    dx[0] = kn_mul(dy, kn_call_saved(call, 0));
    return kn_check();
}
static const kn_rule exponential = {
    .name = "exponential", .forward = exp_forward, .backward = exp_backward};
static kn_tensor *f_exponential(void *ctx, kn_tensor *const x[]) {
    return kn_apply(&exponential, x, 1, ctx, NULL);
}

static void a_rule_may_save_its_result(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = F64(KN_SHAPE(3), 0.5, -1, 2);
    for (int order = 1; order <= 2; order++) {
        assert_ok(kn_gradcheck(f_exponential, NULL, &x, 1, order, 1e-8, 1e-9));
    }
}

static void a_write_to_a_saved_value_is_an_error(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_apply(&exponential, &x, 1, NULL, NULL);
    *(float *)kn_data_mut(y) = 1;
    assert_fails(kn_gradients(&dx, y, &x, 1, NULL), KN_ERR_INVALID,
                 "saved value 0, which was written after it was saved");
}

static kn_status sign_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_gt(x[0], kn_zeros(KN_SCALAR));
    return kn_check();
}
static const kn_rule is_positive = {
    .name = "is_positive", .forward = sign_forward, .backward = exp_backward};

static void a_rules_result_without_gradient_is_not_recorded(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2));
    kn_tensor *y = kn_apply(&is_positive, &x, 1, NULL, NULL);
    assert_int_equal(kn_tensor_dtype(y), KN_BOOL);
    assert_null(y->grad);
    assert_int_equal(kn_tape_nodes(), 1); /* x */
}

static kn_status failing_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_add(x[0], kn_zeros(KN_SHAPE(5)));
    return kn_check();
}
static kn_status wrong_shape(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call, (void)dy;
    dx[0] = kn_zeros(KN_SHAPE(7));
    return KN_OK;
}
static const kn_rule failing = {
    .name = "failing", .forward = failing_forward, .backward = wrong_shape};
static const kn_rule misshapen = {
    .name = "misshapen", .forward = cube_forward, .backward = wrong_shape};

static void the_context_is_freed_once_whatever_happens(void **state) {
    (void)state;
    double three = 3;
    freed = 0;
    {
        KN_FRAME();
        kn_tensor *x = F32(KN_SHAPE(1), 2);
        assert_values(kn_apply(&cube, &x, 1, &three, count_free), 8);
        assert_int_equal(freed, 1); /* nothing recorded: done with */
        assert_op_fails(
            kn_apply(&failing, (kn_tensor *[]){F32(KN_SHAPE(2), 1, 2)}, 1, &three, count_free),
            KN_ERR_SHAPE, "[5]");
        assert_int_equal(freed, 2);
        assert_op_fails(kn_apply(&cube, &x, 0, &three, count_free), KN_ERR_INVALID, "0 inputs");
        assert_int_equal(freed, 3);
    }
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
        kn_tensor *y = kn_apply(&cube, &x, 1, &three, count_free);
        assert_int_equal(freed, 3);
        assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
        assert_int_equal(freed, 4);
        x = kn_watch(x); /* the tape of the first was consumed */
        kn_apply(&cube, &x, 1, &three, count_free);
        y = kn_apply(&misshapen, &x, 1, &three, count_free);
        assert_fails(kn_gradients(&dx, y, &x, 1, NULL), KN_ERR_SHAPE, "[7]");
    }
    assert_int_equal(freed, 6);
}

static kn_status wrong_dtype(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    dx[0] = dy;
    dx[1] = kn_cast(dy, KN_F64);
    return kn_check();
}
static kn_status wrong_storage(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    dx[1] = kn_affine(dy, 1, 0);
    kn_tensor_consume(dx[1]);
    return kn_check();
}
static kn_status add_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_add(x[0], x[1]);
    return kn_check();
}
static const kn_rule mistyped = {
    .name = "mistyped", .forward = add_forward, .backward = wrong_dtype};
static const kn_rule hollow = {.name = "hollow", .forward = add_forward, .backward = wrong_storage};

static void a_gradient_that_is_not_of_its_inputs_kind_is_an_error(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    for (int to_w = 0; to_w <= 1; to_w++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 3, 4)), *in[] = {x, to_w ? w : kn_mul(w, w)};
        assert_fails(kn_backward(sum_all(kn_apply(&mistyped, in, 2, NULL, NULL))), KN_ERR_DTYPE,
                     "mistyped: backward gave f64 for x[1], which is f32");
        in[1] = to_w ? w : kn_mul(w, w);
        assert_fails(kn_backward(sum_all(kn_apply(&hollow, in, 2, NULL, NULL))), KN_ERR_INVALID,
                     "hollow: backward gave a value for x[1] that was consumed");
    }
    kn_params_destroy(set);
}

static kn_status saving_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_tensor *gone = kn_exp(x[0]);
    kn_tensor_consume(gone);
    kn_call_save(call, 2, gone);
    *y = kn_exp(x[0]);
    return KN_OK;
}
static kn_status gone_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_exp(x[0]);
    kn_tensor_consume(*y);
    return KN_OK;
}
static const kn_rule saving = {
    .name = "saving", .forward = saving_forward, .backward = wrong_shape};
static const kn_rule gone = {.name = "gone", .forward = gone_forward, .backward = wrong_shape};

static void a_rule_can_neither_save_nor_give_a_consumed_value(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1), 2);
    assert_op_fails(kn_apply(&saving, &x, 1, NULL, NULL), KN_ERR_INVALID,
                    "saving: the value to save at 2 was consumed");
    assert_op_fails(kn_apply(&gone, &x, 1, NULL, NULL), KN_ERR_INVALID, "no result");
}

/* --- aliases and tensors that ended --- */

static void gradients_pass_through_aliases(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    {
        KN_TAPE();
        kn_tensor *x = kn_mul(w, w);
        kn_tensor *y = kn_to(kn_cast(kn_dropout(x, 0, NULL), KN_F32), kn_device_host());
        y = kn_broadcast(y, KN_SHAPE(2));
        assert_ok(kn_backward(sum_all(kn_add(kn_mul(y, x), kn_cast(w, KN_F32)))));
        assert_values(kn_grad(w), 4 * 8 + 1, 4 * 27 + 1); /* of w⁴ + w */
        assert_op_fails(kn_relu(y), KN_ERR_INVALID, "consumed");
    }
    {
        KN_TAPE();
        kn_tensor *x = kn_mul(w, w);
        kn_drop(kn_dropout(x, 0, NULL));
        assert_ok(kn_backward(sum_all(x)));
        assert_values(kn_grad(w), 33 + 4, 109 + 6);
    }
    kn_params_destroy(set);
}

static void an_ended_tensor_is_not_differentiated(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2), *y, *dx = NULL;
    {
        KN_TAPE();
        y = kn_mul(w, w);
    }
    {
        KN_TAPE();
        kn_tensor *good = kn_mul(w, w);
        assert_fails(kn_backward(y), KN_ERR_INVALID, "kn_backward: the loss has ended");
        assert_fails(kn_gradients(&dx, y, &w, 1, NULL), KN_ERR_INVALID, "y has ended");
        assert_fails(kn_gradients(&dx, good, &y, 1, NULL), KN_ERR_INVALID, "x[0] has ended");
        assert_op_fails(kn_watch(y), KN_ERR_INVALID, "kn_watch: x has ended");
        assert_op_fails(kn_apply(&cube, &y, 1, NULL, NULL), KN_ERR_INVALID, "cube: x[0] has ended");
        assert_op_fails(kn_grad(y), KN_ERR_INVALID, "kn_grad: w has ended");
        assert_op_fails(kn_grad(NULL), KN_ERR_INVALID, "kn_grad: w is NULL");
        assert_op_fails(kn_grad(good), KN_ERR_INVALID, "kn_grad: w is no parameter");
    }
    KN_FRAME();
    kn_tensor *gw = kn_grad(w);
    kn_params_destroy(set);
    assert_op_fails(kn_relu(gw), KN_ERR_INVALID, "has ended");
    assert_op_fails(kn_relu(w), KN_ERR_INVALID, "has ended");
}

/* --- threads --- */

typedef struct foreign {
    kn_tensor *y;
    kn_status status;
    bool says_why;
} foreign;

static void *differentiate_foreign(void *arg) {
    foreign *f = arg;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 1)), *dx = NULL;
    f->status = kn_gradients(&dx, f->y, &x, 1, NULL);
    f->says_why = strstr(kn_last_error()->message, "another thread's tape") != NULL;
    return NULL;
}

static void a_value_of_another_threads_tape_is_not_differentiated(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 3)), *dx = NULL;
    foreign f = {.y = kn_mul(x, x)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, differentiate_foreign, &f), 0);
    pthread_join(thread, NULL);
    assert_int_equal(f.status, KN_ERR_INVALID);
    assert_true(f.says_why);
    assert_ok(kn_gradients(&dx, f.y, &x, 1, NULL));
    assert_values(dx, 6);
}

typedef struct borrowed {
    kn_tensor *value;
    float grad[2];
    kn_status status;
} borrowed;

static void *multiply_borrowed(void *arg) {
    borrowed *b = arg;
    kn_params *set = NULL;
    b->status = kn_params_create(&set, NULL);
    if (b->status < 0) return NULL;
    kn_tensor *v = kn_param(set, KN_SHAPE(2), (kn_init){KN_INIT_CONSTANT, 1, 0}, "v");
    {
        KN_TAPE();
        b->status = kn_backward(sum_all(kn_mul(v, b->value)));
        if (b->status == KN_OK) b->status = kn_copy_out(b->grad, sizeof b->grad, kn_grad(v));
    }
    kn_params_destroy(set);
    return NULL;
}

/* Its gradient would be written to a node of the other thread's tape. */
static void a_value_of_another_threads_tape_is_a_constant(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    KN_SLOT(slot);
    kn_tensor *y = kn_mul(w, w);
    assert_ok(kn_hold(&slot, y));
    borrowed b = {.value = slot};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, multiply_borrowed, &b), 0);
    pthread_join(thread, NULL);
    assert_int_equal(b.status, KN_OK);
    assert_close((double)b.grad[0], 4, 0, 0);
    assert_close((double)b.grad[1], 9, 0, 0);
    assert_ok(kn_tape_check());
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 4, 6);
    kn_params_destroy(set);
}

static void *train_alone(void *failures) {
    kn_params *set = NULL;
    if (kn_params_create(&set, NULL) < 0) return failures;
    kn_tensor *w = kn_param(set, KN_SHAPE(4), (kn_init){KN_INIT_CONSTANT, 2, 0}, "w");
    bool good = w != NULL;
    for (int i = 0; good && i < 200; i++) {
        KN_TAPE();
        good = kn_backward(sum_all(kn_mul(w, w))) == KN_OK;
    }
    float grad[4] = {0};
    {
        KN_FRAME();
        good = good && kn_copy_out(grad, sizeof grad, kn_grad(w)) == KN_OK;
    }
    kn_params_destroy(set);
    return good && grad[3] == 800 ? NULL : failures;
}

static void each_thread_has_a_tape_of_its_own(void **state) {
    (void)state;
    pthread_t threads[4];
    int marker = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, train_alone, &marker), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(only_ops_that_lead_to_a_parameter_are_recorded),
        OPS_TEST(a_frame_that_does_not_record_makes_constants), OPS_TEST(tapes_do_not_nest),
        OPS_TEST(a_tape_can_be_opened_again_and_again),
        OPS_TEST(a_tensor_that_outlives_its_tape_is_a_constant),
        OPS_TEST(values_in_slots_and_the_loss_survive_backward),
        OPS_TEST(integers_are_not_recorded), OPS_TEST(a_value_whose_slot_was_emptied_is_consumed),
        OPS_TEST(a_tensor_that_is_added_to_stays_a_constant),
        OPS_TEST(a_metric_beside_the_loss_can_be_read_after_backward),
        OPS_TEST(layers_may_open_frames_of_their_own),
        OPS_TEST(losses_that_cannot_be_differentiated_say_why),
        OPS_TEST(an_error_in_the_model_arrives_at_backward),
        OPS_TEST(a_saved_value_that_was_written_is_an_error_that_names_the_op),
        OPS_TEST(watching_reports_missing_records),
        OPS_TEST(gradients_leave_those_of_parameters_alone),
        OPS_TEST(gradients_by_values_in_the_middle),
        OPS_TEST(gradients_walk_only_towards_their_targets),
        OPS_TEST(a_watched_value_survives_backward),
        OPS_TEST(a_watched_value_passes_its_gradient_on),
        OPS_TEST(a_consumed_tapes_memory_is_used_again), OPS_TEST(memory_of_a_big_tape_is_returned),
        OPS_TEST(recorded_gradients_are_never_added_to_in_place),
        OPS_TEST(a_rule_may_save_its_result), OPS_TEST(a_write_to_a_saved_value_is_an_error),
        OPS_TEST(a_rules_result_without_gradient_is_not_recorded),
        OPS_TEST(each_gradient_is_a_tensor_of_its_own), OPS_TEST(a_kept_tape_answers_again),
        OPS_TEST(derivatives_of_third_order), OPS_TEST(a_gradient_penalty_reaches_the_parameters),
        OPS_TEST(bad_calls_of_gradients_say_why), OPS_TEST(an_op_of_ones_own_differentiates_twice),
        OPS_TEST(gradcheck_finds_a_wrong_gradient), OPS_TEST(a_rule_that_is_for_once_says_so),
        OPS_TEST(a_value_saved_from_inside_is_never_taken_for_a_constant),
        OPS_TEST(the_context_is_freed_once_whatever_happens),
        OPS_TEST(a_gradient_that_is_not_of_its_inputs_kind_is_an_error),
        OPS_TEST(a_rule_can_neither_save_nor_give_a_consumed_value),
        OPS_TEST(gradients_pass_through_aliases), OPS_TEST(an_ended_tensor_is_not_differentiated),
        OPS_TEST(a_value_of_another_threads_tape_is_not_differentiated),
        OPS_TEST(a_value_of_another_threads_tape_is_a_constant),
        OPS_TEST(each_thread_has_a_tape_of_its_own));
}
