/* Tapes: recorded ops, values that survive backward, errors, threads. */
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
        kn_argmax(w, KN_SHAPE(0), false);
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
    size_t before = 0;
    for (int i = 0; i < 100; i++) { /* the tape that wasn't opened is freed or kept for later */
        kn_frame second = kn_tape_begin(NULL);
        assert_int_equal(second.serial, 0);
        assert_fails(kn_check(), KN_ERR_INVALID, "tapes don't nest");
        if (i == 1) before = mallinfo2().uordblks;
    }
    assert_int_equal(mallinfo2().uordblks, before);
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
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 3, 1);
    KN_SLOT(held);
    KN_TAPE();
    kn_tensor *square = kn_mul(w, w), *third = kn_mul(square, w);
    assert_ok(kn_hold(&held, square));
    kn_tensor *loss = sum_all(kn_affine(third, 2, 0));
    assert_ok(kn_backward(loss));
    assert_values(held, 9, 1);
    assert_values(loss, 56);
    assert_null(kn_exp(third));
    assert_fails(kn_check(), KN_ERR_INVALID, "consumed");
    assert_null(kn_data(third));
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
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 3, 1);
    KN_TAPE();
    kn_tensor *square = kn_mul(w, w), *slot = NULL;
    assert_ok(kn_hold(&slot, square));
    kn_unhold(&slot);
    assert_ok(kn_backward(sum_all(kn_mul(square, w))));
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

static void ops_without_gradient_are_not_recorded(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1, 2), 3, 4));
    kn_tensor *correct = kn_accuracy(x, I64(KN_SHAPE(1), 1));
    assert_values(correct, 1);
    assert_int_equal(correct->grad, 0);
    assert_int_equal(kn_tape_nodes(), 1); /* x */
}

/* The error names the call whose gradient failed. */
static void an_error_of_backward_has_the_site_of_the_op(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    kn_pool *pool = NULL;
    kn_pool_options options = {.limit_bytes = 10 << 20};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(N))), *dx = NULL, *y = kn_neg(x);
        kn_tensor *loss = kn_sum(y, KN_ALL, false);
        int line = __LINE__ - 1;
        assert_fails(kn_gradients(&dx, loss, &x, 1, NULL), KN_ERR_OOM, "");
        assert_int_equal(kn_last_error()->line, line);
    }
    kn_pool_destroy(pool);
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
    assert_fails(kn_backward(loss), KN_ERR_INVALID, "the tape of this loss was consumed");
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
    assert_fails(kn_backward(loss), KN_ERR_INVALID, "the tape of this loss was consumed");
    assert_ok(kn_backward(sum_all(kn_mul(x, w))));
    assert_values(kn_grad(w), 7, 4);
    kn_params_destroy(set);
}

/* The node keeps the call site when the result is freed. */
static void an_error_names_the_site_of_a_freed_result(void **state) {
    (void)state;
    char site[64];
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 3)), *c = F32(KN_SHAPE(1), 4), *dx = NULL;
    kn_tensor *y = kn_mul(x, c);
    snprintf(site, sizeof site, "test_tape.c:%d", __LINE__ - 1);
    kn_tensor *z = kn_add(y, x);
    kn_drop(y);
    ((float *)kn_data_mut(c))[0] = 7;
    assert_fails(kn_gradients(&dx, z, &x, 1, NULL), KN_ERR_INVALID, site);
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

static void a_node_larger_than_a_chunk_has_room(void **state) {
    (void)state;
    enum { MANY = 20000 };
    static kn_tensor *in[MANY];
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 2)), *dx = NULL;
    assert_ok(kn_gradients(&dx, kn_neg(x), &x, 1, NULL)); /* the tape has a chunk, and is empty */
    x = kn_watch(x);
    for (int i = 0; i < MANY; i++) in[i] = x;
    kn_tensor *y = kn_concat(in, MANY, 0);
    assert_ok(kn_tape_check());
    assert_ok(kn_gradients(&dx, sum_all(y), &x, 1, NULL));
    assert_values(dx, MANY);
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
    kn_status status, of_backward;
    bool says_why;
} foreign;

static void *differentiate_foreign(void *arg) {
    foreign *f = arg;
    KN_TAPE();
    kn_tensor *x = kn_watch(F32(KN_SHAPE(1), 1)), *dx = NULL;
    f->status = kn_gradients(&dx, f->y, &x, 1, NULL);
    f->says_why = strstr(kn_last_error()->message, "another thread's tape") != NULL;
    f->of_backward = kn_backward(f->y);
    f->says_why &= strstr(kn_last_error()->message, "another thread's tape") != NULL;
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
    assert_int_equal(f.of_backward, KN_ERR_INVALID);
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

static void a_tape_reads_as_text(void **state) {
    (void)state;
    char text[1024], cut[20], where[64];
    kn_params *params = NULL;
    assert_ok(kn_params_create(&params, NULL));
    kn_tensor *w = kn_param(params, KN_SHAPE(2, 3), kn_init_normal(0, 1), "fc.weight");
    assert_int_equal(kn_tape_text(text, sizeof text), 0);
    assert_string_equal(text, "");
    KN_TAPE();
    kn_tensor *x = kn_ones(KN_SHAPE(4, 3)), *y = NULL;
    int line = 0;
    {
        KN_TAPE_SCOPE("fc");
        line = __LINE__ + 1;
        y = kn_linear(x, w, KN_NONE);
    }
    kn_tensor *loss = kn_sum(kn_tanh(y), KN_ALL, false);
    assert_ok(kn_check());
    size_t n = kn_tape_text(text, sizeof text);
    assert_int_equal(n, strlen(text));
    snprintf(where, sizeof where, "test_tape.c:%d): f32 [4,2] of -, fc.weight", line);
    assert_memory_equal(text, "  1 linear in fc (", 18);
    assert_non_null(strstr(text, where));
    assert_non_null(strstr(text, "\n  2 tanh ("));
    assert_non_null(strstr(text, "f32 [4,2] of 1; saves 32 bytes\n"));
    assert_non_null(strstr(text, "f32 [] of 2\n"));
    assert_int_equal(kn_tape_text(cut, sizeof cut), n);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(kn_tape_text(NULL, 0), n);
    assert_ok(kn_backward(loss));
    kn_params_destroy(params);
}

/* A norm's statistics, which the caller does not get. */
static void results_that_nobody_asked_for_are_not_in_the_text(void **state) {
    (void)state;
    char text[1024];
    kn_params *params = NULL;
    assert_ok(kn_params_create(&params, NULL));
    kn_tensor *w = kn_param(params, KN_SHAPE(4, 3), kn_init_normal(0, 1), "w"), *h = w;
    {
        KN_TAPE(); /* the room of its nodes is used again */
        for (int i = 0; i < 300; i++) h = kn_exp(kn_affine(h, 0.1, 0));
    }
    KN_TAPE();
    h = kn_rmsnorm(kn_layernorm(kn_mul(w, w), KN_NONE, KN_NONE, 1, 1e-5), KN_NONE, 1, 1e-5);
    assert_non_null(h);
    assert_true(kn_tape_text(text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "): f32 [4,3] of 1, -, -;"));
    assert_non_null(strstr(text, "): f32 [4,3] of 2, -;"));
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(
        TEST(a_tape_reads_as_text), OPS_TEST(only_ops_that_lead_to_a_parameter_are_recorded),
        OPS_TEST(a_frame_that_does_not_record_makes_constants), OPS_TEST(tapes_do_not_nest),
        OPS_TEST(a_tape_can_be_opened_again_and_again),
        OPS_TEST(a_tensor_that_outlives_its_tape_is_a_constant),
        OPS_TEST(values_in_slots_and_the_loss_survive_backward),
        OPS_TEST(integers_are_not_recorded), OPS_TEST(a_value_whose_slot_was_emptied_is_consumed),
        OPS_TEST(a_tensor_that_is_added_to_stays_a_constant),
        OPS_TEST(a_metric_beside_the_loss_can_be_read_after_backward),
        OPS_TEST(ops_without_gradient_are_not_recorded),
        OPS_TEST(an_error_of_backward_has_the_site_of_the_op),
        OPS_TEST(layers_may_open_frames_of_their_own),
        OPS_TEST(losses_that_cannot_be_differentiated_say_why),
        OPS_TEST(an_error_in_the_model_arrives_at_backward),
        OPS_TEST(a_saved_value_that_was_written_is_an_error_that_names_the_op),
        OPS_TEST(an_error_names_the_site_of_a_freed_result),
        OPS_TEST(watching_reports_missing_records), OPS_TEST(a_consumed_tapes_memory_is_used_again),
        OPS_TEST(memory_of_a_big_tape_is_returned), OPS_TEST(a_node_larger_than_a_chunk_has_room),
        OPS_TEST(gradients_pass_through_aliases), OPS_TEST(an_ended_tensor_is_not_differentiated),
        OPS_TEST(a_value_of_another_threads_tape_is_not_differentiated),
        OPS_TEST(a_value_of_another_threads_tape_is_a_constant),
        OPS_TEST(each_thread_has_a_tape_of_its_own),
        TEST(results_that_nobody_asked_for_are_not_in_the_text));
}
