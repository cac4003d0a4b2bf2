#include <pthread.h>

#include "ops_test.h"

static void a_frame_frees_its_results(void **state) {
    (void)state;
    uint64_t before = ops_live_bytes();
    {
        KN_FRAME();
        assert_non_null(kn_tensor_from((float[1000]){0}, KN_F32, KN_SHAPE(1000)));
        assert_true(ops_live_bytes() > before);
    }
    assert_int_equal(ops_live_bytes(), before);
}

static void an_op_outside_any_frame_is_an_error(void **state) {
    (void)state;
    assert_op_fails(F32(KN_SHAPE(1), 1), KN_ERR_INVALID, "no frame is open");
}

static kn_tensor *second_of_three(void) {
    KN_FRAME();
    kn_tensor *a = F32(KN_SHAPE(1), 1), *b = F32(KN_SHAPE(1), 2), *c = F32(KN_SHAPE(1), 3);
    assert_true(a && c);
    return kn_keep(b);
}

static void keep_moves_a_tensor_one_frame_out(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = second_of_three();
    assert_values(x, 2);
    kn_drop(x);
}

static void keep_through_two_frames_and_twice_is_safe(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x;
    {
        KN_FRAME();
        x = second_of_three();
        assert_ptr_equal(kn_keep(x), x);
        assert_ptr_equal(kn_keep(x), x); /* no longer the innermost's: nothing */
    }
    assert_values(x, 2);
}

static void keep_of_an_input_is_a_no_op(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1), 4);
    {
        KN_FRAME();
        assert_ptr_equal(kn_keep(x), x);
        kn_drop(x);
    }
    assert_values(x, 4);
    assert_null(kn_keep(NULL));
    assert_ptr_equal(kn_keep(KN_NONE), KN_NONE);
}

static void keep_in_the_outermost_frame_is_an_error(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1), 4);
    assert_op_fails(kn_keep(x), KN_ERR_INVALID, "kn_hold");
}

static void drop_frees_early_and_only_the_frames_own(void **state) {
    (void)state;
    KN_FRAME();
    uint64_t before = ops_live_bytes();
    kn_tensor *a = F32(KN_SHAPE(1), 1), *b = F32(KN_SHAPE(1), 2);
    kn_drop(a);
    assert_values(b, 2);
    kn_drop(b);
    assert_int_equal(ops_live_bytes(), before);
    kn_drop(NULL);
    kn_drop(KN_NONE);
}

static void many_tensors_kept_and_dropped_in_random_order_are_all_freed(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        KN_FRAME();
        kn_tensor *kept[64];
        int n_kept = 0;
        {
            KN_FRAME();
            kn_tensor *all[300];
            for (int i = 0; i < 300; i++) all[i] = F32(KN_SHAPE(1), (float)i);
            for (int i = 0; i < 300; i++) {
                uint64_t what = test_random_below(4);
                if (what == 0 && n_kept < 64) kept[n_kept++] = kn_keep(all[i]);
                if (what == 1) kn_drop(all[i]);
            }
        }
        for (int i = 0; i < n_kept; i++) assert_true(ops_at(kept[i], 0) < 300);
    }
}

static void ending_a_frame_ends_inner_frames_and_a_second_end_is_a_no_op(void **state) {
    (void)state;
    kn_frame outer = kn_frame_begin(NULL), inner = kn_frame_begin(NULL), copy = outer;
    assert_non_null(F32(KN_SHAPE(1), 1));
    kn_frame_end(&outer);
    assert_op_fails(F32(KN_SHAPE(1), 1), KN_ERR_INVALID, "no frame");
    kn_frame next = kn_frame_begin(NULL); /* takes the place of outer */
    kn_frame_end(&inner);
    kn_frame_end(&outer);
    kn_frame_end(&copy);
    assert_non_null(F32(KN_SHAPE(1), 1));
    kn_frame_end(&next);
}

static void a_slot_outlives_frames(void **state) {
    (void)state;
    KN_SLOT(slot);
    {
        KN_FRAME();
        assert_ok(kn_hold(&slot, F32(KN_SHAPE(2), 5, 6)));
        assert_ok(kn_hold(&slot, slot)); /* itself: nothing */
    }
    assert_values(slot, 5, 6);
    {
        KN_FRAME();
        assert_ok(kn_hold(&slot, F32(KN_SHAPE(1), 7)));
    }
    assert_values(slot, 7);
}

static void a_failed_tensor_leaves_the_slot_and_returns_its_error(void **state) {
    (void)state;
    KN_FRAME();
    KN_SLOT(slot);
    assert_ok(kn_hold(&slot, F32(KN_SHAPE(1), 7)));
    kn_tensor *x = slot;
    assert_fails(kn_hold(&slot, KN_FAIL_NULL(KN_ERR_IO, "no file")), KN_ERR_IO, "no file");
    assert_ptr_equal(slot, x);
    assert_fails(kn_hold(&slot, NULL), KN_ERR_INVALID, "NULL");
    assert_ptr_equal(slot, x);
    assert_ok(kn_hold(&slot, KN_NONE));
    assert_ptr_equal(slot, KN_NONE);
}

static char logged[4096];
static void take_log(void *ctx, int level, const char *text) {
    (void)ctx, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

static void the_end_of_the_outermost_frame_logs_a_pending_error(void **state) {
    (void)state;
    logged[0] = '\0';
    kn_log_attach(take_log, NULL);
    {
        KN_FRAME();
        {
            KN_FRAME();
            assert_null(KN_FAIL_NULL(KN_ERR_IO, "lost it"));
        }
        assert_int_equal(kn_pending(), KN_ERR_IO); /* an inner end leaves it */
    }
    kn_log_attach(NULL, NULL);
    assert_int_equal(kn_pending(), KN_OK);
    assert_non_null(strstr(logged, "lost it"));
}

static void ops_are_skipped_while_an_error_is_pending(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1), 1);
    assert_null(KN_FAIL_NULL(KN_ERR_IO, "the first"));
    assert_null(kn_reshape(x, KN_SHAPE(7)));
    assert_null(kn_add(x, NULL));
    assert_null(kn_data(x));
    double value = 3;
    assert_fails(kn_item(&value, x), KN_ERR_IO, "the first");
    assert_close(value, 3, 0, 0);
    assert_ok(kn_item(&value, x)); /* the error is cleared: the thread can continue */
    assert_close(value, 1, 0, 0);
}

static void an_error_has_its_op_and_its_call_site(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(1), 1);
    int line = __LINE__ + 1;
    assert_null(kn_reshape(x, KN_SHAPE(7)));
    const kn_error *e = kn_last_error();
    assert_string_equal(e->op, "reshape");
    assert_string_equal(e->message, "kn_reshape: 1 elements don't make [7] (x [1])");
    assert_non_null(strstr(e->file, "test_frame.c"));
    assert_int_equal(e->line, line);
    assert_int_equal(kn_check(), KN_ERR_SHAPE);
}

static void options_of_a_frame_are_checked_and_inherited(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64, .threads = 3);
    {
        KN_FRAME();
        assert_int_equal(kn_frame_dtype(), KN_F64);
        assert_int_equal(kn_frame_threads(), 3);
        assert_ptr_equal(kn_frame_device(), kn_device_host());
    }
    kn_frame bad = kn_frame_begin(&(kn_frame_options){.dtype = KN_I64});
    assert_int_equal(bad.serial, 0);
    assert_fails(kn_check(), KN_ERR_DTYPE, "i64");
    kn_frame_end(&bad);
    bad = kn_frame_begin(&(kn_frame_options){.reserved = {0, 1}});
    assert_fails(kn_check(), KN_ERR_INVALID, "reserved[1]");
    bad = kn_frame_begin(&(kn_frame_options){.threads = -1});
    assert_fails(kn_check(), KN_ERR_INVALID, "threads");
    bad = kn_frame_begin(&(kn_frame_options){.record = 2});
    assert_fails(kn_check(), KN_ERR_INVALID, "record");
    assert_int_equal(kn_frame_dtype(), KN_F64); /* still the outer one */
}

static void a_frames_pool_serves_its_results(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), &(kn_pool_options){.name = "mine"}));
    kn_pool_stats stats;
    {
        KN_FRAME(.pool = pool);
        assert_ptr_equal(kn_frame_pool(), pool);
        assert_non_null(F32(KN_SHAPE(1), 1));
        kn_pool_stats_read(&stats, sizeof stats, pool);
        assert_true(stats.live_bytes > 0);
    }
    kn_pool_stats_read(&stats, sizeof stats, pool);
    assert_int_equal(stats.live_bytes, 0);
    kn_pool_destroy(pool);
}

static void too_much_for_the_pool_is_an_error_that_names_the_shape(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), &(kn_pool_options){.limit_bytes = 1 << 24}));
    {
        KN_FRAME(.pool = pool);
        assert_op_fails(kn_tensor_new(kn_device_host(), KN_F32, KN_SHAPE(1000, 1000, 100)),
                        KN_ERR_OOM, "[1000,1000,100]");
        assert_non_null(F32(KN_SHAPE(1), 1)); /* the pool stays usable */
    }
    kn_pool_destroy(pool);
}

static void *leaves_frames_open(void *ctx) {
    kn_frame_begin(NULL);
    kn_frame_begin(NULL);
    *(bool *)ctx = kn_tensor_new(kn_device_host(), KN_F32, KN_SHAPE(100)) != NULL;
    return NULL;
}

static void frames_that_a_thread_leaves_open_end_with_it(void **state) {
    (void)state;
    bool made = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leaves_frames_open, &made), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(made); /* and the fixture finds no byte of it */
}

static void releasing_to_a_mark_leaves_outer_frames_alone(void **state) {
    (void)state;
    KN_FRAME();
    uint32_t mark = kn_frame_mark();
    kn_tensor *outer = F32(KN_SHAPE(1), 1), *inner;
    {
        KN_FRAME();
        inner = F32(KN_SHAPE(1), 2);
        kn_frame_release_to(mark);
        assert_op_fails(kn_neg(inner), KN_ERR_INVALID, "has ended");
        assert_values(outer, 1);
    }
    kn_frame_release_to(mark);
    assert_op_fails(kn_neg(outer), KN_ERR_INVALID, "has ended");
}

/* --- results that are their input --- */

static kn_tensor *dropout_of_none(kn_tensor *x) { return kn_dropout(x, 0, NULL); }
static kn_tensor *cast_to_the_same(kn_tensor *x) { return kn_cast(x, kn_tensor_dtype(x)); }
static kn_tensor *to_the_same(kn_tensor *x) { return kn_to(x, kn_tensor_device(x)); }
static kn_tensor *broadcast_to_the_same(kn_tensor *x) {
    return kn_broadcast(x, kn_tensor_shape(x));
}

static void an_op_without_effect_returns_an_alias(void **state) {
    (void)state;
    kn_tensor *(*const ops[])(kn_tensor *) = {dropout_of_none, cast_to_the_same, to_the_same,
                                              broadcast_to_the_same};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        KN_FRAME();
        kn_tensor *x = F32(KN_SHAPE(2, 2), 1, 2, 3, 4);
        uint64_t live = ops_live_bytes();
        kn_tensor *y = ops[i](x);
        assert_non_null(y);
        assert_ptr_not_equal(y, x);
        assert_ptr_equal(kn_data(y), kn_data(x));
        assert_shape(y, KN_SHAPE(2, 2));
        assert_int_equal(ops_live_bytes(), live);
        kn_drop(y);
        assert_values(x, 1, 2, 3, 4);
        y = ops[i](x);
        kn_drop(x);
        assert_values(y, 1, 2, 3, 4);
        {
            KN_FRAME();
            y = ops[i](y); /* an outer frame's; the result ends with this frame */
        }
        assert_fails((kn_relu(y), kn_check()), KN_ERR_INVALID, "has ended");
    }
}

/* --- use after the end --- */

static void assert_ended(kn_tensor *t) {
    double item;
    float values[2];
    KN_SLOT(slot);
    assert_op_fails(kn_relu(t), KN_ERR_INVALID, "kn_relu: x [2] (");
    assert_op_fails(kn_relu(t), KN_ERR_INVALID, "test_frame.c:");
    assert_op_fails(kn_relu(t), KN_ERR_INVALID, "has ended with its frame or by kn_drop");
    assert_op_fails(kn_add(F32(KN_SHAPE(2), 1, 2), t), KN_ERR_INVALID, "kn_add: b [2] (");
    assert_op_fails(kn_reshape(t, KN_SHAPE(2, 1)), KN_ERR_INVALID, "has ended");
    assert_op_fails((kn_tensor *)kn_data(t), KN_ERR_INVALID, "kn_data: t [2] (");
    assert_op_fails(kn_data_mut(t), KN_ERR_INVALID, "has ended");
    assert_fails(kn_item(&item, t), KN_ERR_INVALID, "kn_item: t [2] (");
    assert_fails(kn_copy_out(values, sizeof values, t), KN_ERR_INVALID, "kn_copy_out: t [2] (");
    assert_fails(kn_hold(&slot, t), KN_ERR_INVALID, "kn_hold: t [2] (");
    assert_fails(kn_add_into(t, t), KN_ERR_INVALID, "has ended");
    assert_null(slot);
    assert_null(kn_tensor_device(t));
    kn_drop(t); /* nothing */
    assert_ptr_equal(kn_keep(t), t);
}

static void use_after_a_frames_end_is_an_error(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x, *view;
    {
        KN_FRAME();
        x = F32(KN_SHAPE(2), 1, 2);
        view = kn_reshape(F32(KN_SHAPE(1, 2), 1, 2), KN_SHAPE(2));
    }
    assert_ended(x);
    assert_ended(view);
}

static void use_after_drop_is_an_error(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    kn_drop(x);
    assert_ended(x);
}

static void use_after_a_slot_was_emptied_is_an_error(void **state) {
    (void)state;
    KN_FRAME();
    KN_SLOT(slot);
    {
        KN_FRAME();
        assert_ok(kn_hold(&slot, F32(KN_SHAPE(2), 1, 2)));
    }
    kn_tensor *x = slot;
    assert_values(x, 1, 2);
    kn_unhold(&slot);
    assert_ended(x);
}

/* The record of a tensor lies idle until 1,024 later ones have ended. */
static void the_end_is_known_for_a_thousand_tensors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *stale[1024], *one = kn_ones(KN_SHAPE(2));
    {
        KN_FRAME();
        for (int i = 0; i < 1024; i++) stale[i] = kn_neg(one);
    }
    for (int i = 0; i < 1024; i++) {
        KN_FRAME();
        kn_neg(one); /* this one's record is older than all of them */
        assert_op_fails(kn_relu(stale[i]), KN_ERR_INVALID, "has ended");
    }
}

/* Records go round: neither do they grow in number nor is one in use twice. */
static void records_of_ended_tensors_are_used_again(void **state) {
    (void)state;
    enum { N = 3000 };
    static kn_tensor *first[N];
    KN_FRAME();
    kn_tensor *one = kn_ones(KN_SCALAR);
    for (int round = 0; round < 3; round++) {
        KN_FRAME();
        int again = 0;
        for (int i = 0; i < N; i++) {
            kn_tensor *x = kn_affine(one, 0, i);
            for (int j = 0; round == 2 && j < N && !again; j++) again = first[j] == x;
            first[i] = x;
        }
        for (int i = 0; i < N; i++) assert_values(first[i], i);
        assert_true(round < 2 || again);
    }
}

static void *makes_tensors(void *made) {
    kn_tensor **t = made;
    KN_FRAME();
    for (int i = 0; i < 1000; i++) t[i] = kn_ones(KN_SHAPE(2));
    return NULL;
}

static void the_end_is_known_after_the_thread_ended(void **state) {
    (void)state;
    static kn_tensor *made[4][1000];
    KN_FRAME();
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, makes_tensors, made[i]), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (int j = 0; j < 1000; j++) {
            assert_op_fails(kn_relu(made[i][j]), KN_ERR_INVALID, "has ended");
        }
    }
    int again = 0; /* a later thread reuses the first one's records */
    for (int j = 0; j < 1000; j++) again += made[2][j] == made[0][500];
    assert_int_equal(again, 1);
}

static void *ends_tensors(void *slot) {
    kn_unhold(slot);
    return NULL;
}

static void a_thread_without_frames_can_end_a_tensor(void **state) {
    (void)state;
    kn_tensor *slot = NULL;
    {
        KN_FRAME();
        assert_ok(kn_hold(&slot, F32(KN_SHAPE(2), 1, 2)));
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ends_tensors, &slot), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(slot);
}

static void a_frames_math_mode_is_inherited(void **state) {
    (void)state;
    assert_int_equal(kn_frame_math(), KN_MATH_STRICT);
    {
        KN_FRAME(.math = KN_MATH_TF32);
        KN_FRAME();
        assert_int_equal(kn_frame_math(), KN_MATH_TF32);
        KN_FRAME(.math = KN_MATH_STRICT);
        assert_int_equal(kn_frame_math(), KN_MATH_STRICT);
    }
    kn_frame none = kn_frame_begin(&(kn_frame_options){.math = 4});
    assert_fails(kn_check(), KN_ERR_INVALID, "math mode 4");
    none = kn_frame_begin(&(kn_frame_options){.math = -1});
    assert_fails(kn_check(), KN_ERR_INVALID, "math mode -1");
    kn_frame_end(&none);
}

static void the_process_has_a_math_mode_for_outermost_frames(void **state) {
    (void)state;
    assert_int_equal(kn_math_mode_get(), KN_MATH_STRICT);
    {
        KN_FRAME();
        assert_ok(kn_math_mode_set(KN_MATH_BF16));
        assert_int_equal(kn_frame_math(), KN_MATH_STRICT); /* open already */
        KN_FRAME();
        assert_int_equal(kn_frame_math(), KN_MATH_STRICT);
    }
    assert_int_equal(kn_frame_math(), KN_MATH_BF16);
    {
        KN_FRAME();
        assert_int_equal(kn_frame_math(), KN_MATH_BF16);
    }
    assert_fails(kn_math_mode_set((kn_math_mode)7), KN_ERR_INVALID, "mode 7");
    assert_int_equal(kn_math_mode_get(), KN_MATH_BF16);
    assert_ok(kn_math_mode_set(KN_MATH_STRICT));
    assert_string_equal(kn_math_mode_name(KN_MATH_TF32), "tf32");
}

static void the_host_multiplies_the_same_in_every_mode(void **state) {
    (void)state;
    float bits[3];
    for (int math = KN_MATH_STRICT; math <= KN_MATH_BF16; math++) {
        KN_FRAME(.math = math);
        kn_tensor *x = F32(KN_SHAPE(1, 3), 1.0000001f, 3.3333333f, 0.1f);
        const float *y = kn_data(kn_matmul(x, kn_transpose(x, KN_ALL), NULL));
        assert_non_null(y);
        bits[math - 1] = *y;
    }
    assert_memory_equal(&bits[1], &bits[0], sizeof(float));
    assert_memory_equal(&bits[2], &bits[0], sizeof(float));
}

static void a_tensor_detached_from_an_outer_frame_outlives_it(void **state) {
    (void)state;
    kn_tensor *t = NULL;
    {
        KN_FRAME();
        t = F32(KN_SHAPE(2), 3, 4);
        KN_FRAME();
        assert_ptr_equal(kn_tensor_detach_frame(t), t);
    }
    {
        KN_FRAME();
        assert_values(t, 3, 4);
    }
    kn_tensor_release(t);
}

static void many_frames_may_be_open(void **state) {
    (void)state;
    enum { OPEN = 200 };
    kn_frame frames[OPEN];
    for (int i = 0; i < OPEN; i++) {
        frames[i] = kn_frame_begin(&(kn_frame_options){.threads = i % 2 ? 0 : 1 + i});
        assert_int_equal(kn_frame_threads(), 1 + i - i % 2);
    }
    for (int i = OPEN; i-- > 0;) {
        assert_int_equal(kn_frame_threads(), 1 + i - i % 2);
        kn_frame_end(&frames[i]);
    }
}

static void *first_call(void *message) {
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(1));
    if (kn_check() < 0) snprintf(message, 200, "%.199s", kn_last_error()->message);
    return x;
}

static void a_wrong_word_in_the_environment_is_an_error(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"KNET_FUSE", "no", "KNET_FUSE is 'no'; it must be 0, off, 1, on or all"},
        {"KNET_RECOMPUTE", "false", "KNET_RECOMPUTE is 'false'; it must be"},
        {"KNET_ISA", "vfoo", "KNET_ISA is 'vfoo'; it must be v2, v3 or v4"},
        {"KNET_ISA", "v33", "KNET_ISA is 'v33'"},
        {"KNET_CONV_ROUTE", "fast", "KNET_CONV_ROUTE is 'fast'; it must be table, measure, ours,"},
        {"KNET_FUSE", "off", NULL},
        {"KNET_RECOMPUTE", "on", NULL},
        {"KNET_FUSE", "", NULL},
        {"KNET_ISA", "v2", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[200] = "";
        pthread_t thread;
        setenv(cases[i][0], cases[i][1], 1);
        assert_int_equal(pthread_create(&thread, NULL, first_call, message), 0);
        pthread_join(thread, NULL);
        unsetenv(cases[i][0]);
        bool right = cases[i][2] ? strstr(message, cases[i][2]) != NULL : !message[0];
        if (!right) fail_msg("%s=%s: '%s'", cases[i][0], cases[i][1], message);
    }
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_frames_math_mode_is_inherited),
        OPS_TEST(the_process_has_a_math_mode_for_outermost_frames),
        OPS_TEST(the_host_multiplies_the_same_in_every_mode), OPS_TEST(a_frame_frees_its_results),
        OPS_TEST(an_op_outside_any_frame_is_an_error), OPS_TEST(keep_moves_a_tensor_one_frame_out),
        OPS_TEST(keep_through_two_frames_and_twice_is_safe), OPS_TEST(keep_of_an_input_is_a_no_op),
        OPS_TEST(keep_in_the_outermost_frame_is_an_error),
        OPS_TEST(drop_frees_early_and_only_the_frames_own),
        OPS_TEST(many_tensors_kept_and_dropped_in_random_order_are_all_freed),
        OPS_TEST(ending_a_frame_ends_inner_frames_and_a_second_end_is_a_no_op),
        OPS_TEST(a_slot_outlives_frames),
        OPS_TEST(a_failed_tensor_leaves_the_slot_and_returns_its_error),
        OPS_TEST(the_end_of_the_outermost_frame_logs_a_pending_error),
        OPS_TEST(ops_are_skipped_while_an_error_is_pending),
        OPS_TEST(an_error_has_its_op_and_its_call_site),
        OPS_TEST(options_of_a_frame_are_checked_and_inherited),
        OPS_TEST(a_frames_pool_serves_its_results),
        OPS_TEST(too_much_for_the_pool_is_an_error_that_names_the_shape),
        OPS_TEST(frames_that_a_thread_leaves_open_end_with_it),
        OPS_TEST(releasing_to_a_mark_leaves_outer_frames_alone),
        OPS_TEST(an_op_without_effect_returns_an_alias),
        OPS_TEST(use_after_a_frames_end_is_an_error), OPS_TEST(use_after_drop_is_an_error),
        OPS_TEST(use_after_a_slot_was_emptied_is_an_error),
        OPS_TEST(the_end_is_known_for_a_thousand_tensors),
        OPS_TEST(records_of_ended_tensors_are_used_again),
        OPS_TEST(the_end_is_known_after_the_thread_ended),
        OPS_TEST(a_thread_without_frames_can_end_a_tensor),
        OPS_TEST(a_tensor_detached_from_an_outer_frame_outlives_it),
        OPS_TEST(many_frames_may_be_open), OPS_TEST(a_wrong_word_in_the_environment_is_an_error));
}
