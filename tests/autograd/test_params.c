#include <knet/capture.h>
#include <math.h>

#include "autograd_test.h"

static void names_are_formatted_and_unique(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(2, 3), kn_init_xavier(), "fc%d.%s", 1, "w");
    assert_non_null(w);
    assert_op_fails(kn_param(set, KN_SHAPE(1), (kn_init){0}, "fc1.w"), KN_ERR_INVALID,
                    "fc1.w is taken");
    assert_op_fails(kn_param(set, KN_SHAPE(1), (kn_init){0}, "%s", ""), KN_ERR_INVALID, "0 bytes");
    const char *name = NULL;
    assert_ptr_equal(kn_params_at(set, 0, &name), w);
    assert_string_equal(name, "fc1.w");
    assert_ptr_equal(kn_params_find(set, "fc1.w"), w);
    assert_null(kn_params_find(set, "fc2.w"));
    assert_ok(kn_check());
    assert_op_fails(kn_params_at(set, 1, NULL), KN_ERR_INVALID, "no parameter 1 of 1");
    assert_int_equal(kn_params_count(set), 1);
    assert_int_equal(kn_params_numel(set), 6);
    kn_params_destroy(set);
    kn_params_destroy(NULL);
}

static void bad_sets_and_parameters_say_why(void **state) {
    (void)state;
    kn_params *set = NULL;
    assert_fails(kn_params_create(&set, &(kn_params_options){.dtype = KN_I32}), KN_ERR_DTYPE,
                 "i32");
    assert_fails(kn_params_create(&set, &(kn_params_options){.reserved = {0, 1}}), KN_ERR_INVALID,
                 "reserved");
    assert_null(set);
    assert_op_fails(kn_param(NULL, KN_SHAPE(1), (kn_init){0}, "w"), KN_ERR_INVALID, "NULL");
    set = params_f32();
    assert_op_fails(kn_param(set, KN_SHAPE(-1), (kn_init){0}, "w"), KN_ERR_SHAPE, "-1");
    assert_op_fails(kn_param(set, KN_SHAPE(1), (kn_init){99, 0, 0}, "w"), KN_ERR_INVALID, "99");
    assert_int_equal(kn_params_count(set), 0);
    assert_non_null(kn_param(set, KN_SHAPE(1), (kn_init){0}, "w")); /* the name was not used up */
    KN_FRAME();
    assert_op_fails(kn_grad(kn_zeros(KN_SHAPE(1))), KN_ERR_INVALID, "no parameter");
    assert_op_fails(kn_grad(NULL), KN_ERR_INVALID, "NULL");
    assert_values(kn_params_grad(set), [63] = 0);
    assert_op_fails(kn_param(set, KN_SHAPE(1), (kn_init){0}, "late"), KN_ERR_INVALID, "late");
    kn_params_destroy(set);
}

static void initial_values_follow_their_options(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *zeros = kn_param(set, KN_SHAPE(3), (kn_init){0}, "zeros");
    kn_tensor *fives = kn_param(set, KN_SHAPE(3), (kn_init){KN_INIT_CONSTANT, 5, 0}, "fives");
    kn_tensor *uniform = kn_param(set, KN_SHAPE(1000), kn_init_uniform(2, 3), "uniform");
    kn_tensor *normal = kn_param(set, KN_SHAPE(10000), kn_init_normal(1, 0.5), "normal");
    kn_tensor *xavier = kn_param(set, KN_SHAPE(50, 20, 5, 5), kn_init_xavier(), "xavier");
    assert_values(zeros, 0, 0, 0);
    assert_values(fives, 5, 5, 5);
    double sum = 0, squares = 0, largest = 0;
    for (int i = 0; i < 1000; i++) assert_in_range((int)(ops_at(uniform, i) * 1000), 2000, 3000);
    for (int i = 0; i < 10000; i++) sum += ops_at(normal, i);
    for (int i = 0; i < 10000; i++) squares += pow(ops_at(normal, i) - sum / 10000, 2);
    assert_close(sum / 10000, 1, 0, 0.03);
    assert_close(sqrt(squares / 10000), 0.5, 0, 0.02);
    for (int i = 0; i < 25000; i++) largest = fmax(largest, fabs(ops_at(xavier, i)));
    double bound = sqrt(6.0 / (20 * 25 + 50 * 25));
    assert_true(largest <= bound && largest > 0.99 * bound);
    kn_params_destroy(set);
}

static double variance(kn_tensor *t) {
    double sum = 0;
    for (int64_t i = 0; i < kn_tensor_numel(t); i++) sum += ops_at(t, i) * ops_at(t, i);
    return sum / (double)kn_tensor_numel(t);
}

static void variances_follow_the_fans(void **state) {
    (void)state;
    kn_params *set = params_f32();
    const kn_shape shape = KN_SHAPE(50, 20, 5, 5); /* fans 500 and 1250 */
    kn_tensor *xavier = kn_param(set, shape, kn_init_xavier_normal(), "xavier");
    kn_tensor *he = kn_param(set, shape, kn_init_he(), "he");
    kn_tensor *he_normal = kn_param(set, shape, kn_init_he_normal(), "he_normal");
    kn_tensor *cut = kn_param(set, shape, kn_init_truncated_normal(1, 0.5), "cut");
    kn_tensor *turn = kn_param(set, KN_SHAPE(4, 4), kn_init_orthogonal(2), "turn");
    kn_tensor *hats = kn_param(set, KN_SHAPE(1, 1, 1, 3), kn_init_bilinear(), "hats");
    assert_close(variance(xavier) * 1750 / 2, 1, 0.05, 0);
    assert_close(variance(he) * 500 / 2, 1, 0.05, 0);
    assert_close(variance(he_normal) * 500 / 2, 1, 0.05, 0);
    double largest = 0;
    for (int i = 0; i < 25000; i++) {
        assert_true(fabs(ops_at(cut, i) - 1) <= 1);
        largest = fmax(largest, fabs(ops_at(he, i)));
    }
    assert_true(largest <= sqrt(6.0 / 500) && largest > 0.99 * sqrt(6.0 / 500));
    assert_close(variance(turn), 1, 1e-5, 0); /* rows of size 2, of 4 elements */
    assert_values(hats, 0.5, 1, 0.5);
    kn_params_destroy(set);
}

static void values_depend_on_seed_and_place_alone(void **state) {
    (void)state;
    kn_params *set[3];
    kn_tensor *w[3];
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_params_create(&set[i], &(kn_params_options){.seed = i < 2 ? 5 : 6}));
        /* what came before may be larger or smaller */
        kn_param(set[i], KN_SHAPE(10 + 90 * i), kn_init_xavier(), "first");
        w[i] = kn_param(set[i], KN_SHAPE(4, 4), kn_init_xavier(), "second");
        assert_non_null(w[i]);
    }
    assert_memory_equal(kn_data(w[0]), kn_data(w[1]), 64);
    assert_memory_not_equal(kn_data(w[0]), kn_data(w[2]), 64);
    for (int i = 0; i < 3; i++) kn_params_destroy(set[i]);
}

static void a_set_may_be_in_f64(void **state) {
    (void)state;
    kn_params *set = NULL;
    assert_ok(kn_params_create(&set, &(kn_params_options){.dtype = KN_F64}));
    kn_tensor *w = kn_param(set, KN_SHAPE(2), kn_init_uniform(1, 2), "w");
    KN_TAPE(.dtype = KN_F64);
    assert_ok(kn_backward(sum_all(kn_mul(w, w))));
    assert_int_equal(kn_tensor_dtype(kn_grad(w)), KN_F64);
    assert_close(ops_at(kn_grad(w), 0), 2 * ops_at(w, 0), 0, 0);
    kn_params_destroy(set);
}

static void a_held_parameter_outlives_its_set_as_a_constant(void **state) {
    (void)state;
    kn_params *set = params_f32();
    KN_SLOT(held);
    assert_ok(kn_hold(&held, PARAM(set, KN_SHAPE(1), "w", 4)));
    kn_params_destroy(set);
    KN_TAPE();
    kn_mul(held, held);
    assert_int_equal(kn_tape_nodes(), 0);
    assert_values(held, 4);
}

static void parameters_move_before_training_alone(void **state) {
    (void)state;
    kn_device *sim = NULL;
    kn_optim *sgd = NULL;
    if (kn_device_find(&sim, "sim") < 0) skip();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 4, 5);
    assert_fails(kn_params_to(set, NULL), KN_ERR_INVALID, "device is NULL");
    assert_fails(kn_params_to(NULL, sim), KN_ERR_INVALID, "params is NULL");
    assert_ok(kn_sgd_create(&sgd, set, 1, NULL));
    assert_fails(kn_params_to(set, sim), KN_ERR_INVALID, "before optimisers are made");
    kn_optim_destroy(sgd);
    assert_ok(kn_params_to(set, kn_device_host())); /* it is there */
    assert_values(w, 4, 5);
    assert_ok(kn_params_to(set, sim));
    assert_ptr_equal(kn_tensor_device(w), sim);
    assert_ptr_equal(kn_tensor_device(kn_grad(w)), sim);
    assert_fails(kn_params_to(set, kn_device_host()), KN_ERR_INVALID, "before the first backward");
    assert_int_equal(kn_params_seed(set), 7);
    kn_params_destroy(set);
}

static void shapes_without_elements_or_below_zero(void **state) {
    (void)state;
    kn_params *set = params_f32();
    const kn_init init[] = {kn_init_xavier(), kn_init_he(), kn_init_xavier_normal(),
                            kn_init_he_normal()};
    for (int i = 0; i < 4; i++) {
        const kn_shape empty[] = {KN_SHAPE(0), KN_SHAPE(3, 0), KN_SHAPE(0, 0)};
        for (int k = 0; k < 3; k++)
            assert_int_equal(kn_tensor_numel(kn_param(set, empty[k], init[i], "w%d.%d", i, k)), 0);
        assert_op_fails(kn_param(set, KN_SHAPE(-2, -3), init[i], "w"), KN_ERR_SHAPE, "[-2,-3]");
    }
    kn_params_destroy(set);
}

static void missing_arguments_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *dy = NULL, *x = kn_ones(KN_SHAPE(1));
    const kn_schedule schedule = {.lr = 1};
    assert_fails(kn_params_create(NULL, NULL), KN_ERR_INVALID, "out is NULL");
    assert_fails(kn_adam_create(NULL, set, 1, NULL), KN_ERR_INVALID, "kn_adam_create: out is NULL");
    assert_op_fails(kn_params_grad(NULL), KN_ERR_INVALID, "params is NULL");
    assert_op_fails(kn_params_find(set, NULL), KN_ERR_INVALID, "name is NULL");
    assert_op_fails(kn_params_find(NULL, "w"), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_schedule_lr(NULL, &schedule, 0), KN_ERR_INVALID, "lr is NULL");
    assert_fails(kn_jvp(&dy, x, &x, &x, 1), KN_ERR_INVALID, "kn_jvp: no tape is open");
    kn_params_destroy(set);
}

static void a_tape_keeps_the_sets_that_it_has_recorded(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_params *set = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 3, 4), *dx = NULL;
        kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 1, 2)), *loss = sum_all(kn_mul(w, x));
        kn_params_destroy(set);
        if (i) {
            assert_ok(kn_backward(loss));
        } else {
            assert_ok(kn_gradients(&dx, loss, &x, 1, NULL));
            assert_values(dx, 3, 4);
        }
    }
}

/* --- hooks of gradients --- */

static void fails_of(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    if (w == ctx) kn_add(gradient, kn_ones(KN_SHAPE(17)));
}

static void an_error_that_a_hook_leaves_pending_ends_the_pass(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w[2] = {PARAM(set, KN_SHAPE(2), "a", 1, 2), PARAM(set, KN_SHAPE(2), "b", 3, 4)};
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_params_on_grad(set, fails_of, w[i]);
        kn_tensor *loss = sum_all(kn_mul(kn_exp(w[0]), w[1]));
        assert_fails(kn_backward(loss), KN_ERR_SHAPE, "[17]");
        assert_int_equal(kn_pending(), KN_OK);
        assert_values(kn_grad(w[0]), 0, 0); /* as after any failed backward */
        assert_values(kn_grad(w[1]), 0, 0);
    }
    kn_params_destroy(set);
}

static void calls_of(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    (void)w;
    (void)gradient;
    ++*(int *)ctx;
}

static void a_hook_is_not_called_where_the_pass_brings_no_gradient(void **state) {
    (void)state;
    int calls = 0;
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(2), "a", 1, 2), *b = PARAM(set, KN_SHAPE(2), "b", 3, 4);
    kn_params_on_grad(set, calls_of, &calls);
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(kn_mul(a, b))));
        assert_int_equal(calls, 2);
    }
    {
        KN_TAPE(); /* no step in between: a has a gradient, but none of this pass */
        kn_tensor *metric = kn_mean(kn_square(a), KN_ALL, false);
        assert_ok(kn_backward(sum_all(kn_square(b))));
        assert_int_equal(calls, 3);
        assert_values(metric, 2.5f);
    }
    kn_params_destroy(set);
}

/* --- where gradients lie --- */

/* The arena follows the order in which gradients become ready; borrowed views go along. */
static void gradients_lie_in_the_order_of_use(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 2), *b = PARAM(set, KN_SHAPE(1), "b", 3);
    kn_tensor *c = PARAM(set, KN_SHAPE(1), "c", 5);
    KN_FRAME();
    kn_tensor *ga = kn_grad(a), *gb = kn_grad(b), *gc = kn_grad(c), *all = kn_params_grad(set);
    const void *place = NULL;
    for (int i = 1; i <= 2; i++) {
        KN_TAPE();
        kn_tensor *y = kn_mul(kn_exp(kn_affine(b, 0, 0)), b); /* b, made first, is ready last */
        y = kn_mul(y, c);
        y = kn_mul(y, a);
        assert_ok(kn_backward(y));
        assert_values(ga, 15 * i);
        assert_values(gb, 10 * i);
        assert_values(gc, 6 * i);
        if (i == 1) place = kn_data(all);
    }
    assert_ptr_equal(kn_data(all), place); /* moved once, after the first backward */
    assert_ptr_equal(all, kn_params_grad(set));
    assert_ptr_equal(kn_data(all), kn_data(ga)); /* a's is ready first */
    assert_true((const char *)kn_data(gb) > (const char *)kn_data(gc));
    assert_int_equal((const char *)kn_data(gc) - (const char *)kn_data(ga), 256);
    kn_params_destroy(set);
}

static void gradients_stay_where_a_view_reads_them(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 2), *b = PARAM(set, KN_SHAPE(1), "b", 3);
    KN_TAPE();
    kn_tensor *all = kn_params_grad(set), *view = kn_reshape(all, KN_SHAPE(2, -1));
    const void *place = kn_data(all);
    assert_ok(kn_backward(kn_mul(kn_exp(kn_affine(b, 0, 0)), a))); /* a's is ready first */
    assert_ptr_equal(kn_data(all), place);
    assert_close(ops_at(view, 64), 1, 0, 0);
    kn_params_destroy(set);
}

/* Before the first backward finishes one. A pass of zeros finishes none. */
static void an_order_is_set_before_it_is_final(void **state) {
    (void)state;
    static const int first_a[] = {0, 1}, first_b[] = {1, 0};
    int now[2];
    for (int i = 0; i < 4; i++) {
        KN_TAPE();
        kn_params *set = params_f32();
        kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 2), *b = PARAM(set, KN_SHAPE(1), "b", 3);
        if (i & 1) assert_ok(kn_fill_into(kn_grad(b), 5));
        if (i & 2) assert_ok(kn_backward(kn_mul(kn_floor(a), kn_floor(b))));
        kn_params_order(now, set);
        assert_int_equal(now[0], -1);
        assert_ok(kn_params_order_set(set, first_a, 2));
        kn_params_order(now, set);
        assert_memory_equal(now, first_a, sizeof now);
        assert_fails(kn_params_order_set(set, first_b, 2), KN_ERR_INVALID,
                     "the order is final already; set it before the first backward or step");
        assert_true((char *)kn_data(kn_grad(b)) > (char *)kn_data(kn_grad(a)));
        assert_values(kn_grad(b), i == 1 ? 5 : 0); /* a pass begins with zeros */
        kn_params_destroy(set);
    }
}

static void an_order_moves_no_gradient_that_somebody_reads(void **state) {
    (void)state;
    int now[2];
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 2);
    (void)PARAM(set, KN_SHAPE(1), "b", 3);
    kn_tensor *view = kn_reshape(kn_grad(a), KN_SHAPE(1, 1));
    assert_non_null(view);
    assert_fails(kn_params_order_set(set, (const int[]){0, 1}, 2), KN_ERR_INVALID,
                 "a view of a gradient is held");
    kn_params_order(now, set);
    assert_int_equal(now[0], -1);
    assert_ok(kn_params_order_set(set, (const int[]){1, 0}, 2)); /* as they lie */
    kn_params_order(now, set);
    assert_int_equal(now[0], 1);
    kn_params_destroy(set);
}

/* a, b on the host, c, d on the other device. */
static kn_params *on_two_devices(kn_tensor *w[4], kn_device *other) {
    static const char *const names[] = {"a", "b", "c", "d"};
    kn_params *set = params_f32();
    for (int i = 0; i < 4; i++) w[i] = PARAM(set, KN_SHAPE(1), names[i], 2);
    for (int i = 2; i < 4; i++) assert_ok(kn_param_to(w[i], other));
    return set;
}

static void an_order_is_set_on_all_devices_or_none(void **state) {
    (void)state;
    static const int wrong[] = {0, 1, 2, 2}, right[] = {0, 1, 2, 3};
    kn_device *sim = NULL;
    int now[4];
    if (kn_device_find(&sim, "sim") < 0) skip();
    KN_FRAME();
    for (int holds = 0; holds < 2; holds++) {
        KN_SLOT(view);
        kn_tensor *w[4];
        kn_params *set = on_two_devices(w, sim);
        if (holds) assert_ok(kn_hold(&view, kn_reshape(kn_grad(w[2]), KN_SHAPE(1, 1))));
        assert_fails(kn_params_order_set(set, holds ? right : wrong, 4), KN_ERR_INVALID,
                     holds ? "a view of a gradient is held" : "not a permutation of 2 … 3");
        kn_params_order(now, set);
        assert_int_equal(now[0], -1);
        KN_TAPE();
        assert_ok(kn_backward(kn_mul(w[0], kn_exp(w[1])))); /* a's is ready first */
        kn_params_order(now, set);
        assert_int_equal(now[0], 0);
        assert_int_equal(now[2], -1);
        kn_params_destroy(set);
    }
}

static void set_order_in_backward(void *set, kn_tensor *w, kn_tensor *gradient) {
    (void)w, (void)gradient;
    assert_fails(kn_params_order_set(set, (const int[]){0, 1}, 2), KN_ERR_INVALID,
                 "kn_params_order_set: inside a kn_backward");
}

static void an_order_is_not_set_by_a_hook(void **state) {
    (void)state;
    int now[2];
    KN_TAPE();
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(1), "a", 2), *b = PARAM(set, KN_SHAPE(1), "b", 3);
    kn_params_on_grad(set, set_order_in_backward, set);
    assert_ok(kn_backward(kn_mul(kn_exp(a), b))); /* b's is ready first */
    kn_params_order(now, set);
    assert_int_equal(now[0], 1);
    kn_params_destroy(set);
}

static void fail_backward(void *ctx, kn_tensor *gradient) {
    (void)ctx, (void)gradient;
    (void)kn_error_defer(KN_FAIL(KN_ERR_OOM, "no memory for the test"));
}

/* w[last]'s gradient is ready first, then the pass may fail, then the others are. */
static void pass_of_three(kn_tensor *const w[3], int last, bool fails, bool of_zeros) {
    KN_TAPE();
    kn_tensor *x[3];
    for (int i = 0; i < 3; i++) x[i] = of_zeros ? kn_floor(w[i]) : w[i];
    kn_tensor *rest = kn_mul(x[(last + 1) % 3], x[(last + 2) % 3]);
    if (fails) rest = kn_on_grad(rest, fail_backward, NULL);
    assert_int_equal(kn_backward(kn_mul(rest, x[last])), fails ? KN_ERR_OOM : KN_OK);
}

static void a_pass_that_fails_leaves_no_order(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    static const int set_before[] = {1, 2, 0};
    int now[2][3];
    for (int is_set = 0; is_set < 2; is_set++)
        for (int last = 0; last < 3; last++) {
            for (int fails = 0; fails < 2; fails++) {
                kn_tensor *w[3];
                kn_params *set = params_f32();
                for (int i = 0; i < 3; i++) w[i] = PARAM(set, KN_SHAPE(1), names[i], 2);
                if (is_set) assert_ok(kn_params_order_set(set, set_before, 3));
                if (fails) pass_of_three(w, 2, true, false);
                pass_of_three(w, 0, false, true);
                kn_params_order(now[fails], set);
                assert_int_equal(now[fails][0], is_set ? 1 : -1);
                pass_of_three(w, last, false, false);
                kn_params_order(now[fails], set);
                kn_params_destroy(set);
            }
            assert_memory_equal(now[0], now[1], sizeof now[0]);
            if (is_set) assert_memory_equal(now[0], set_before, sizeof now[0]);
        }
}

/* Of parameters whose gradients are empty: they are where others begin. */
static kn_params *params_with_empty(int sparse) {
    kn_params *set = params_f32();
    (void)PARAM(set, KN_SHAPE(1), "a", 2);
    (void)PARAM(set, KN_SHAPE(1), "b", 3);
    for (int i = 0; i < 2; i++) {
        kn_tensor *w = kn_param(set, KN_SHAPE(sparse, 1), kn_init_normal(0, 1), "empty%d", i);
        if (sparse) assert_ok(kn_param_sparse(w));
    }
    return set;
}

static void an_order_is_read_as_it_was_set(void **state) {
    (void)state;
    KN_FRAME();
    for (int i = 0; i < 2 * 4 * 4 * 4 * 4; i++) {
        int order[] = {i % 4, i / 4 % 4, i / 16 % 4, i / 64 % 4}, now[4], seen = 0;
        for (int k = 0; k < 4; k++) seen |= 1 << order[k];
        if (seen != 15) continue; /* no permutation */
        kn_params *set = params_with_empty(i / 256);
        assert_ok(kn_params_order_set(set, order, 4));
        kn_params_order(now, set);
        assert_memory_equal(now, order, sizeof now);
        kn_params_destroy(set);
    }
}

static void an_order_has_empty_gradients_where_backward_finished_them(void **state) {
    (void)state;
    static const int finished[] = {2, 1, 0, 3};
    int now[4];
    KN_FRAME();
    for (int sparse = 0; sparse < 2; sparse++) {
        KN_TAPE();
        kn_params *set = params_with_empty(sparse);
        kn_tensor *w[3];
        for (int i = 0; i < 3; i++) w[i] = sum_all(kn_exp(kn_params_at(set, i, NULL)));
        assert_ok(kn_backward(kn_add(kn_mul(kn_exp(w[0]), w[1]), w[2])));
        kn_params_order(now, set);
        assert_memory_equal(now, finished, sizeof now);
        kn_params_destroy(set);
    }
}

/* --- gradients become zeros --- */

/* Two sets of one weight each, whose product is the loss: of d, then of g. */
typedef struct pair {
    kn_params *set[2];
    kn_tensor *w[2];
    kn_optim *optim[2];
} pair;

static void pair_open(pair *p) {
    for (int i = 0; i < 2; i++) {
        p->set[i] = params_f32();
        p->w[i] = PARAM(p->set[i], KN_SHAPE(1), "w", (float)(2 + i));
        assert_ok(kn_sgd_create(&p->optim[i], p->set[i], 0.125, NULL));
    }
}

static void pair_close(pair *p) {
    for (int i = 0; i < 2; i++) {
        kn_optim_destroy(p->optim[i]);
        kn_params_destroy(p->set[i]);
    }
}

static kn_status pair_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    pair *p = ctx;
    (void)out, (void)in;
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        for (int k = 0; k < 2; k++) kn_params_grad_zero(p->set[k]);
        KN_TRY(kn_backward(sum_all(kn_mul(p->w[0], p->w[1]))));
        KN_TRY(kn_optim_step(p->optim[i]));
    }
    return kn_check();
}

static void sets_of_one_loss_step_by_its_gradients_alone(void **state) {
    (void)state;
    KN_FRAME();
    for (int captured = 0; captured < 2; captured++) {
        pair p;
        kn_capture *capture = NULL;
        kn_capture_stats stats;
        float w[2] = {2, 3};
        pair_open(&p);
        assert_ok(kn_capture_create(&capture, NULL));
        for (int t = 0; t < 5; t++) {
            for (int i = 0; i < 2; i++) w[i] -= 0.125f * w[1 - i];
            assert_ok(captured ? kn_capture_run(NULL, 0, capture, NULL, 0, pair_step, &p)
                               : pair_step(NULL, NULL, &p));
            for (int i = 0; i < 2; i++) assert_values(p.w[i], (double)w[i]);
        }
        kn_capture_stats_read(&stats, sizeof stats, capture);
        assert_true(stats.n_launches >= (captured ? 3 : 0));
        kn_capture_destroy(capture);
        pair_close(&p);
    }
}

static void gradients_that_no_step_used_become_zeros(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_optim *optim = NULL;
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    kn_tensor *table = PARAM(set, KN_SHAPE(3, 1), "table", 1, 2, 3), *rows, *values;
    assert_ok(kn_param_sparse(table));
    assert_ok(kn_sgd_create(&optim, set, 0.5, &(kn_sgd_options){.clip_each = 100}));
    for (int t = 0; t < 3; t++) {
        int64_t index[] = {1};
        KN_TAPE();
        kn_tensor *row = kn_embedding(table, kn_tensor_from(index, KN_I64, KN_SHAPE(1)));
        assert_ok(kn_backward(kn_add(sum_all(kn_square(w)), sum_all(row))));
        if (t < 2) kn_params_grad_zero(set);
        if (t == 0) assert_values(kn_grad(w), 0, 0);
        assert_ok(kn_grad_rows(&rows, &values, table));
        assert_int_equal(kn_tensor_numel(values), t == 2);
        assert_ok(kn_optim_step(optim)); /* by zeros, then by one gradient alone */
        if (t < 2) assert_values(w, 1, 2);
    }
    assert_values(w, 0, 0);
    assert_values(table, 1, 1.5, 3);
    kn_params_grad_zero(set); /* twice, and after a step */
    kn_params_grad_zero(set);
    assert_values(kn_grad(w), 0, 0);
    kn_params_grad_zero(NULL);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(names_are_formatted_and_unique), OPS_TEST(bad_sets_and_parameters_say_why),
        OPS_TEST(initial_values_follow_their_options), OPS_TEST(variances_follow_the_fans),
        OPS_TEST(values_depend_on_seed_and_place_alone), OPS_TEST(a_set_may_be_in_f64),
        OPS_TEST(a_held_parameter_outlives_its_set_as_a_constant),
        OPS_TEST(parameters_move_before_training_alone),
        OPS_TEST(shapes_without_elements_or_below_zero), OPS_TEST(missing_arguments_are_named),
        OPS_TEST(a_tape_keeps_the_sets_that_it_has_recorded),
        OPS_TEST(an_error_that_a_hook_leaves_pending_ends_the_pass),
        OPS_TEST(a_hook_is_not_called_where_the_pass_brings_no_gradient),
        OPS_TEST(sets_of_one_loss_step_by_its_gradients_alone),
        OPS_TEST(gradients_that_no_step_used_become_zeros),
        OPS_TEST(gradients_lie_in_the_order_of_use),
        OPS_TEST(gradients_stay_where_a_view_reads_them),
        OPS_TEST(an_order_is_set_before_it_is_final),
        OPS_TEST(an_order_moves_no_gradient_that_somebody_reads),
        OPS_TEST(an_order_is_set_on_all_devices_or_none), OPS_TEST(an_order_is_not_set_by_a_hook),
        OPS_TEST(a_pass_that_fails_leaves_no_order), OPS_TEST(an_order_is_read_as_it_was_set),
        OPS_TEST(an_order_has_empty_gradients_where_backward_finished_them));
}
