/* kn_apply and kn_gradcheck: ops with a rule of the user's own. */
#include <knet/tape.h>

#include "autograd_test.h"

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

/* 3·x², but wrong by a factor along one index of the last axis. */
static kn_status column_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    const int *column = kn_call_ctx(call);
    kn_tensor *x = kn_call_saved(call, 0);
    int64_t n = kn_tensor_shape(x).dim[kn_tensor_shape(x).n_dims - 1];
    kn_tensor *at = kn_one_hot(kn_cast(kn_full(KN_SCALAR, *column), KN_I64), n);
    kn_tensor *scale = kn_affine(kn_cast(at, KN_F64), 0.1, 3);
    dx[0] = kn_mul(dy, kn_mul(kn_mul(x, x), scale));
    return kn_check();
}
static const kn_rule wrong_column = {
    .name = "column", .forward = cube_forward, .backward = column_backward};

static kn_tensor *f_column(void *ctx, kn_tensor *const x[]) {
    return kn_apply(&wrong_column, x, 1, ctx, NULL);
}

static void gradcheck_looks_into_each_column_of_a_large_input(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    static const int columns[] = {2, 3, 4, 8, 16, 64};
    for (int c = 0; c < 6; c++) {
        for (int at = 0; at < columns[c]; at++) {
            kn_tensor *x = kn_reshape(kn_linspace(1, 2, 24576), KN_SHAPE(-1, columns[c]));
            assert_fails(kn_gradcheck(f_column, &at, &x, 1, 1, 1e-5, 1e-7), KN_ERR_INVALID,
                         "x[0] element");
        }
    }
}

static void gradcheck_takes_large_inputs_from_end_to_end(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    for (int n = 512; n < 516; n++) {
        int last = n - 1;
        kn_tensor *x = kn_linspace(1, 2, n);
        assert_ok(kn_gradcheck(f_cube, NULL, &x, 1, 1, 1e-5, 1e-7));
        assert_fails(kn_gradcheck(f_column, &last, &x, 1, 1, 1e-5, 1e-7), KN_ERR_INVALID,
                     "x[0] element 51");
    }
}

static void a_rules_input_must_not_have_ended(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x;
    {
        KN_FRAME();
        x = F32(KN_SHAPE(1), 2);
    }
    assert_op_fails(kn_apply(&cube, &x, 1, NULL, NULL), KN_ERR_INVALID, "cube: x[0] has ended");
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

static void a_rule_runs_unrecorded_and_is_one_node(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2));
    assert_non_null(kn_apply(&cube, &x, 1, NULL, NULL));
    assert_int_equal(kn_tape_nodes(), 2); /* x, the rule */
}

/* A rule whose result is its input: a saved input stays the input. */
static kn_status same_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, x[0]);
    *y = x[0];
    return KN_OK;
}
static kn_status same_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    dx[0] = kn_mul(dy, kn_call_saved(call, 0));
    return kn_check();
}
static const kn_rule same = {.name = "same", .forward = same_forward, .backward = same_backward};

static void a_saved_input_that_is_the_result_stays_the_input(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 3)), *dx = NULL, *ddx = NULL;
    kn_tensor *y = kn_apply(&same, &x, 1, NULL, NULL);
    assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = 1}));
    assert_values(dx, 3);
    assert_ok(kn_gradients(&ddx, dx, &x, 1, NULL));
    assert_values(ddx, 1);
}

/* Gives gradients for all inputs, wanted or not. */
static int needed;
static kn_status both_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, x[0]);
    kn_call_save(call, 1, x[1]);
    *y = kn_mul(x[0], x[1]);
    return kn_check();
}
static kn_status both_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    needed = kn_call_needs(call, 0) + 2 * kn_call_needs(call, 1);
    dx[0] = kn_mul(dy, kn_call_saved(call, 1));
    dx[1] = kn_mul(dy, kn_call_saved(call, 0));
    return kn_check();
}
static const kn_rule both = {.name = "both", .forward = both_forward, .backward = both_backward};

static void gradients_that_nothing_needs_are_ignored(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 5);
    {
        KN_TAPE();
        kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 3)), *dx = NULL, *in[] = {x, w};
        kn_tensor *y = kn_apply(&both, in, 2, NULL, NULL);
        assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.keep = 1}));
        assert_int_equal(needed, 1);
        assert_values(dx, 5);
        assert_ok(kn_gradients(&dx, y, &w, 1, NULL));
        assert_int_equal(needed, 2);
        assert_values(dx, 3);
    }
    kn_params_destroy(set);
}

static void a_rule_with_a_reserved_field_is_rejected(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1), 2);
    kn_rule reserved = cube;
    reserved.reserved[3] = 1;
    assert_op_fails(kn_apply(&reserved, &x, 1, NULL, NULL), KN_ERR_INVALID, "reserved");
}

static void errors_of_backward_name_the_rule(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_apply(&misshapen, &x, 1, NULL, NULL);
    assert_fails(kn_gradients(&dx, y, &x, 1, NULL), KN_ERR_SHAPE, "[7]");
    assert_string_equal(kn_last_error()->op, "misshapen");
}

static kn_status saving_twice(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, kn_neg(x[0]));
    kn_call_save(call, 0, x[0]); /* the first one is dropped: the fixture counts live bytes */
    *y = kn_mul(x[0], x[0]);
    return kn_check();
}
static const kn_rule twice = {.name = "twice", .forward = saving_twice, .backward = same_backward};

static void a_value_saved_again_replaces_the_first(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    kn_tensor *y = kn_apply(&twice, &x, 1, NULL, NULL);
    assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
    assert_values(dx, 2);
}

static kn_status half_square(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    kn_call_save(call, 0, x[0]);
    *y = kn_affine(kn_sum_square(x[0], KN_ALL, false), 0.5, 0);
    return kn_check();
}
static kn_status its_input(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)dy; /* one */
    dx[0] = kn_call_saved(call, 0);
    return kn_check();
}
/* Which backward consumes before it has read the gradient. */
static void a_gradient_may_be_a_saved_value_itself(void **state) {
    (void)state;
    KN_FRAME();
    static const kn_rule rule = {.name = "half", .forward = half_square, .backward = its_input};
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3), *x0 = F32(KN_SHAPE(2), 1, 2);
    {
        KN_TAPE();
        kn_tensor *h = kn_mul(x0, w);
        assert_ok(kn_backward(kn_apply(&rule, &h, 1, NULL, NULL)));
        assert_values(kn_grad(w), 2, 12);
    }
    for (int again = 0; again < 2; again++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(x0), *h = kn_add(x, x0), *dx;
        kn_tensor *y = kn_apply(&rule, &h, 1, NULL, NULL);
        assert_ok(kn_gradients(&dx, y, &x, 1, &(kn_gradients_options){.again = again}));
        assert_values(dx, 2, 4);
        if (!again) continue;
        kn_tensor *ddx;
        assert_ok(kn_gradients(&ddx, sum_all(dx), &x, 1, NULL));
        assert_values(ddx, 1, 1);
    }
    kn_params_destroy(set);
}

static kn_status sum_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_add(x[0], x[1]);
    return kn_check();
}
static kn_status one_for_both(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    dx[0] = dx[1] = kn_affine(dy, 1, 0);
    return kn_check();
}
static void one_tensor_may_be_the_gradient_of_several_inputs(void **state) {
    (void)state;
    static const kn_rule rule = {.name = "plus", .forward = sum_forward, .backward = one_for_both};
    for (int k = 1; k < 4; k++) { /* a value and a parameter, in both orders; one twice */
        kn_params *set = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2), *v = PARAM(set, KN_SHAPE(1), "v", 5);
        KN_TAPE();
        kn_tensor *h = kn_affine(v, 3, 0), *x[] = {k == 2 ? h : w, k == 1 ? h : w};
        assert_ok(kn_backward(sum_all(kn_add(kn_apply(&rule, x, 2, NULL, NULL), h))));
        assert_values(kn_grad(w), k == 3 ? 2 : 1);
        assert_values(kn_grad(v), k == 3 ? 3 : 6);
        kn_params_destroy(set);
    }
}

static kn_status twice_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_affine(x[0], 2, 0);
    return kn_check();
}
static kn_status failing_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)dx, (void)call, (void)dy;
    return KN_FAIL(KN_ERR_INVALID, "always fails");
}
/* Old ones of this cycle do not stay, wherever the pass ended. */
static void after_a_failed_backward_the_gradients_of_its_sets_are_zero(void **state) {
    (void)state;
    static const kn_rule rule = {
        .name = "fails", .forward = twice_forward, .backward = failing_backward};
    for (int late = 0; late < 2; late++) {
        kn_params *set = params_f32(), *other = params_f32();
        kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3),
                  *v = PARAM(other, KN_SHAPE(2), "v", 4, 5);
        for (int i = 0; i < 2; i++) {
            KN_TAPE();
            assert_ok(kn_backward(sum_all(kn_mul(w, v))));
        }
        assert_values(kn_grad(w), 8, 10);
        {
            KN_TAPE();
            kn_tensor *h = kn_square(w);
            h = kn_apply(&rule, &h, 1, NULL, NULL);
            kn_mul(v, v); /* beside the loss */
            if (late) h = kn_mul(h, w);
            assert_fails(kn_backward(sum_all(h)), KN_ERR_INVALID, "always fails");
        }
        assert_values(kn_grad(w), 0, 0);
        assert_values(kn_grad(v), 4, 6);
        {
            KN_TAPE();
            assert_ok(kn_backward(sum_all(kn_mul(w, v))));
        }
        assert_values(kn_grad(w), 4, 5);
        assert_values(kn_grad(v), 6, 9);
        kn_params_destroy(set);
        kn_params_destroy(other);
    }
}

static kn_status bare_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)y, (void)call, (void)x;
    return KN_ERR_UNSUPPORTED;
}
static kn_status bare_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)dx, (void)call, (void)dy;
    return KN_ERR_UNSUPPORTED;
}

static void a_rule_that_records_no_error_has_no_old_text(void **state) {
    (void)state;
    static const kn_rule forward = {.name = "f",
                                    .forward = bare_forward,
                                    .backward = bare_backward},
                         backward = {
                             .name = "b", .forward = twice_forward, .backward = bare_backward};
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(2), 1, 2)), *dx = NULL;
    assert_fails(KN_FAIL(KN_ERR_SHAPE, "an older error"), KN_ERR_SHAPE, "older");
    assert_op_fails(kn_apply(&forward, &x, 1, NULL, NULL), KN_ERR_UNSUPPORTED,
                    "f: forward failed: not supported");
    assert_fails(KN_FAIL(KN_ERR_SHAPE, "an older error"), KN_ERR_SHAPE, "older");
    kn_tensor *y = kn_apply(&backward, &x, 1, NULL, NULL);
    assert_fails(kn_gradients(&dx, y, &x, 1, NULL), KN_ERR_UNSUPPORTED,
                 "b: backward failed: not supported");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(recorded_gradients_are_never_added_to_in_place),
        OPS_TEST(a_rule_may_save_its_result), OPS_TEST(a_write_to_a_saved_value_is_an_error),
        OPS_TEST(a_rules_result_without_gradient_is_not_recorded),
        OPS_TEST(an_op_of_ones_own_differentiates_twice),
        OPS_TEST(gradcheck_finds_a_wrong_gradient),
        OPS_TEST(gradcheck_looks_into_each_column_of_a_large_input),
        OPS_TEST(gradcheck_takes_large_inputs_from_end_to_end),
        OPS_TEST(a_rules_input_must_not_have_ended), OPS_TEST(a_rule_that_is_for_once_says_so),
        OPS_TEST(a_value_saved_from_inside_is_never_taken_for_a_constant),
        OPS_TEST(the_context_is_freed_once_whatever_happens),
        OPS_TEST(a_gradient_that_is_not_of_its_inputs_kind_is_an_error),
        OPS_TEST(a_rule_can_neither_save_nor_give_a_consumed_value),
        OPS_TEST(a_rule_runs_unrecorded_and_is_one_node),
        OPS_TEST(a_saved_input_that_is_the_result_stays_the_input),
        OPS_TEST(gradients_that_nothing_needs_are_ignored),
        OPS_TEST(a_rule_with_a_reserved_field_is_rejected),
        OPS_TEST(errors_of_backward_name_the_rule),
        OPS_TEST(a_value_saved_again_replaces_the_first),
        OPS_TEST(a_gradient_may_be_a_saved_value_itself),
        OPS_TEST(one_tensor_may_be_the_gradient_of_several_inputs),
        OPS_TEST(after_a_failed_backward_the_gradients_of_its_sets_are_zero),
        OPS_TEST(a_rule_that_records_no_error_has_no_old_text));
}
