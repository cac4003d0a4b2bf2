/* Captured steps: their plans and lifetimes; errors inside; failing allocations. The program's own
 * kn_alloc stands before the library's. */
#include <dlfcn.h>
#include <knet/capture.h>
#include <knet/op.h>
#include <pthread.h>

#include "autograd_test.h"

static int fail_at, n_allocs; /* fail_at 0: never */

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **, kn_pool *, size_t, kn_stream);
    static alloc_fn next;
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
        memcpy(&next, &symbol, sizeof next);
    }
    if (++n_allocs == fail_at) return KN_FAIL(KN_ERR_OOM, "allocation %d fails", n_allocs);
    return next(out, pool, size_bytes, stream);
}

/* --- results that are inputs of the next replay --- */

/* Reads the state last: the tensors made before it take memory. */
static kn_status next_state(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_tensor *y = in[0];
    for (int i = 0; i < 5; i++) y = kn_affine(kn_tanh(y), 1.5, 0.1);
    out[0] = kn_add(kn_affine(in[1], 0.5, 0), y);
    out[1] = kn_mul(kn_softmax(y, 0), in[1]);
    return kn_check();
}

static void a_state_may_go_round(void **state) {
    (void)state;
    enum { N = 1000 };
    KN_SLOT(plain);
    KN_SLOT(captured);
    kn_capture *capture = NULL;
    KN_FRAME(.fuse = KN_OFF);
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(kn_hold(&plain, kn_zeros(KN_SHAPE(N))));
    assert_ok(kn_hold(&captured, plain));
    for (int i = 0; i < 8; i++) {
        KN_FRAME();
        kn_tensor *x = kn_affine(kn_ones(KN_SHAPE(N)), 0.1 * i, 0), *y[2], *z[2];
        kn_tensor *of_plain[] = {x, plain}, *of_captured[] = {x, captured};
        assert_ok(next_state(y, of_plain, NULL));
        assert_ok(kn_capture_run(z, 2, capture, of_captured, 2, next_state, NULL));
        assert_memory_equal(kn_data(y[0]), kn_data(z[0]), N * sizeof(float));
        assert_memory_equal(kn_data(y[1]), kn_data(z[1]), N * sizeof(float));
        assert_ok(kn_hold(&plain, y[0]));
        assert_ok(kn_hold(&captured, z[0]));
    }
    kn_capture_destroy(capture);
}

static kn_status times(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = kn_affine(in[0], *(double *)ctx, 0);
    return kn_check();
}

static void variants_have_plans_of_their_own(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *y = NULL;
    for (int i = 0; i < 8; i++) {
        double by = i % 2 ? 3 : -5;
        kn_capture_select(capture, (uint64_t)(i % 2));
        assert_true(kn_capture_has(capture, &x, 1) == (i >= 4));
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, times, &by));
        assert_values(y, by, 2 * by);
    }
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_plans, 2);
    assert_int_equal(stats.n_recorded, 2);
    assert_int_equal(stats.n_launches, 4);
    kn_capture_destroy(capture);
}

enum { STEPS = 5, SEQUENCES = 3, HIDDEN = 4 };

/* ctx: lengths of kn_rnn; in: x and w. */
static kn_status reads_lengths(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const kn_rnn_options o = {.hidden = HIDDEN, .mode = KN_RNN_GRU, .lengths = ctx};
    out[0] = kn_rnn(in[0], in[1], &o);
    return kn_check();
}

/* A replay would take the lengths of the recording. */
static void lengths_of_the_host_want_a_variant(void **state) {
    (void)state;
    const kn_rnn_options o = {.hidden = HIDDEN, .mode = KN_RNN_GRU};
    int64_t lengths[2][SEQUENCES] = {{5, 2, 3}, {1, 0, 4}};
    kn_capture *capture = NULL;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *w = kn_affine(kn_ones(KN_SHAPE(kn_rnn_params(2, &o))), 0.1, 0), *y[2];
    kn_tensor *in[] = {kn_ones(KN_SHAPE(STEPS, SEQUENCES, 2)), w};
    assert_ok(kn_capture_run(y, 1, capture, in, 2, reads_lengths, lengths[0]));
    assert_fails(kn_capture_run(y, 1, capture, in, 2, reads_lengths, lengths[1]),
                 KN_ERR_UNSUPPORTED, "kn_rnn: lengths are of the host");
    for (int i = 0; i < 8; i++) {
        kn_capture_select(capture, (uint64_t)(1 + i % 2));
        assert_ok(kn_capture_run(&y[0], 1, capture, in, 2, reads_lengths, lengths[i % 2]));
        assert_ok(reads_lengths(&y[1], in, lengths[i % 2]));
        assert_memory_equal(kn_data(y[0]), kn_data(y[1]), STEPS * SEQUENCES * HIDDEN * 4);
    }
    kn_capture_select(capture, 0);
    for (int i = 0; i < 3; i++)
        assert_ok(kn_capture_run(y, 1, capture, in, 2, reads_lengths, NULL));
    kn_capture_destroy(capture);
}

/* --- errors --- */

static kn_status reads_data(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    int what = *(int *)ctx;
    double value = 0;
    kn_tensor *y = kn_sum(in[0], KN_ALL, false);
    out[0] = y;
    switch (what) {
        case 1:
            return kn_item(&value, y);
        case 2:
            return kn_copy_out(&value, sizeof(float), y);
        case 3:
            return kn_data(y) ? KN_OK : kn_check();
        case 4:
            return kn_data_mut(y) ? KN_OK : kn_check();
        case 5:
            return kn_copy_into(y, &value, sizeof(float));
        case 6:
            return kn_tensor_from(&value, KN_F64, KN_SCALAR) ? KN_OK : kn_check();
        default:
            return kn_check();
    }
}

static void reading_or_writing_data_inside_names_the_call(void **state) {
    (void)state;
    static const char *const names[] = {"",        "kn_item: ",      "kn_copy_out: ",   "kn_data: ",
                                        "kn_data", "kn_copy_into: ", "kn_tensor_from: "};
    kn_capture *capture = NULL;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(3), 1, 2, 3), *y = NULL;
    for (int what = 1; what <= 6; what++) {
        assert_ok(kn_capture_reset(capture));
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, reads_data, &what)); /* not captured yet */
        assert_fails(kn_capture_run(&y, 1, capture, &x, 1, reads_data, &what), KN_ERR_INVALID,
                     names[what]);
        double value = 0;
        assert_ok(kn_item(&value, x ? kn_sum(x, KN_ALL, false) : NULL)); /* all works again */
        assert_true(value == 6);
    }
    int nothing = 0;
    for (int i = 0; i < 4; i++)
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, reads_data, &nothing));
    assert_values(y, 6);
    kn_capture_destroy(capture);
}

static void captures_dont_nest(void **state) {
    (void)state;
    kn_capture *a = NULL, *b = NULL;
    KN_FRAME();
    assert_ok(kn_capture_create(&a, NULL));
    assert_ok(kn_capture_create(&b, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    assert_fails(kn_capture_end(a, NULL, 0), KN_ERR_INVALID, "no step is being captured");
    assert_ok(kn_capture_begin(a, &x, 1));
    assert_fails(kn_capture_begin(a, &x, 1), KN_ERR_INVALID, "records a step already");
    assert_fails(kn_capture_begin(b, &x, 1), KN_ERR_INVALID, "this thread records a step already");
    assert_fails(kn_capture_launch(b, &x, 1), KN_ERR_INVALID, "this thread records");
    assert_fails(kn_capture_reset(a), KN_ERR_INVALID, "records a step");
    kn_tensor *y = kn_exp(x);
    assert_ok(kn_capture_end(a, &y, 1));
    assert_true(kn_capture_has(a, &x, 1));
    assert_fails(kn_capture_launch(b, &x, 1), KN_ERR_INVALID,
                 "no plan for 1 inputs, in[0] [2] in a frame with .dtype f32, .autocast off and "
                 ".math strict; ");
    {
        KN_TAPE();
        assert_fails(kn_capture_begin(b, &x, 1), KN_ERR_INVALID, "a tape is open");
    }
    kn_tensor *twice[] = {x, x};
    assert_fails(kn_capture_begin(b, twice, 2), KN_ERR_INVALID, "in[1] shares memory with in[0]");
    kn_capture_destroy(a);
    kn_capture_destroy(b);
}

static void a_tensor_that_lives_on_is_named(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_SLOT(kept);
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    assert_ok(kn_capture_begin(capture, &x, 1));
    assert_ok(kn_hold(&kept, kn_exp(x)));
    assert_fails(kn_capture_end(capture, NULL, 0), KN_ERR_INVALID, "test_capture.c:");
    assert_false(kn_capture_has(capture, &x, 1));
    kn_capture_destroy(capture);
}

/* Replays write the plan's tensor in place of a result, not the one that was recorded. */
static void a_result_that_lives_on_is_named(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_SLOT(kept);
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    for (int is_view = 0; is_view < 2; is_view++) {
        assert_ok(kn_capture_begin(capture, &x, 1));
        kn_tensor *y = kn_affine(x, 3, 0), *twice[] = {y, y};
        assert_ok(kn_hold(&kept, is_view ? kn_reshape(y, KN_SHAPE(1, 2)) : y));
        assert_fails(kn_capture_end(capture, twice, 2), KN_ERR_INVALID,
                     "made inside by affine [2]");
        test_assert_message("list it in out and read kn_capture_out", __FILE__, __LINE__);
        assert_false(kn_capture_has(capture, &x, 1));
    }
    {
        KN_FRAME();
        assert_ok(kn_capture_begin(capture, &x, 1));
        kn_tensor *y = kn_affine(x, 3, 0), *part = kn_reshape(y, KN_SHAPE(1, 2));
        kn_tensor *out[] = {part, kn_keep(y), part, kn_reshape(y, KN_SHAPE(2, 1))};
        assert_ok(kn_hold(&kept, y));
        kn_unhold(&kept);
        assert_ok(kn_capture_end(capture, out, 4)); /* moved to a frame: allowed */
    }
    assert_ok(kn_capture_launch(capture, &x, 1));
    for (int i = 0; i < 4; i++) assert_true(ops_at(kn_capture_out(capture, i), 1) == 6);
    kn_capture_destroy(capture);
}

static kn_status next_in_place(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = kn_tanh(kn_add(in[0], ctx));
    KN_TRY(kn_set_into(ctx, out[0], 0, NULL));
    return kn_check();
}

/* As the message says. */
static void a_state_may_be_written_in_place(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 0.25, 0.5), *plain = kn_zeros(KN_SHAPE(2)), *y = NULL,
              *z = NULL, *captured = kn_zeros(KN_SHAPE(2));
    for (int i = 0; i < 5; i++) {
        assert_ok(next_in_place(&y, &x, plain));
        assert_ok(kn_capture_run(&z, 1, capture, &x, 1, next_in_place, captured));
        for (int k = 0; k < 2; k++) {
            assert_true(ops_at(y, k) == ops_at(z, k));
            assert_true(ops_at(plain, k) == ops_at(captured, k));
        }
    }
    kn_capture_destroy(capture);
}

static void the_end_of_an_outer_frame_ends_the_recording(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    {
        KN_FRAME();
        kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
        assert_ok(kn_capture_begin(capture, &x, 1));
        assert_non_null(kn_exp(x));
    }
    assert_fails(kn_capture_end(capture, NULL, 0), KN_ERR_INVALID, "kn_capture_begin has ended");
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    assert_ok(kn_capture_begin(capture, &x, 1));
    kn_capture_destroy(capture); /* while it records */
    assert_values(kn_affine(x, 2, 0), 2, 4);
}

/* --- memory and lifetimes --- */

static kn_status chain(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_tensor *y = in[0];
    for (int i = 0; i < 50; i++) y = kn_affine(kn_tanh(y), 1.5, 0.1);
    out[0] = y;
    out[1] = kn_sum(y, KN_ALL, false);
    return kn_check();
}

static void memory_is_shared_by_what_is_not_used_at_once(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME(.fuse = KN_OFF);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = kn_zeros(KN_SHAPE(1000)), *y[2];
    for (int i = 0; i < 3; i++) assert_ok(kn_capture_run(y, 2, capture, &x, 1, chain, NULL));
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_calls, 101);
    assert_in_range(stats.plan_bytes, 2 * 4000, 2 * 4096);
    kn_capture_destroy(capture);
}

/* square_diff has no attributes: what its call points to ends, and replays don't read it, as the
 * address sanitizer shows. */
static kn_status distance(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_attr_scalars *attr = calloc(1, sizeof *attr);
    out[0] = kn_op_call_run(KN_OP_square_diff, attr, in, 2);
    free(attr);
    return kn_check();
}

static void a_plan_keeps_no_attributes_of_ops_that_have_none(void **state) {
    (void)state;
    KN_FRAME();
    kn_capture *capture = NULL;
    kn_tensor *in[] = {F32(KN_SHAPE(2), 1, 2), F32(KN_SHAPE(2), 4, 4)}, *y;
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 3; i++) assert_ok(kn_capture_run(&y, 1, capture, in, 2, distance, NULL));
    assert_true(ops_at(y, 0) == 9 && ops_at(y, 1) == 4);
    kn_capture_destroy(capture);
}

static void results_outlive_the_capture(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_SLOT(kept);
    {
        KN_FRAME();
        assert_ok(kn_capture_create(&capture, NULL));
        kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *y[2];
        for (int i = 0; i < 3; i++) assert_ok(kn_capture_run(y, 2, capture, &x, 1, chain, NULL));
        assert_ok(kn_hold(&kept, kn_capture_out(capture, 0)));
        assert_op_fails(kn_capture_out(capture, 2), KN_ERR_INVALID, "no result 2 of 2");
        kn_capture_destroy(capture);
    }
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *y[2];
    assert_ok(chain(y, &x, NULL));
    assert_true(ops_at(kept, 0) == ops_at(y[0], 0) && ops_at(kept, 1) == ops_at(y[0], 1));
}

static void the_plan_unused_for_longest_goes(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, &(kn_capture_options){.plans_max = 2}));
    for (int n = 1; n <= 4; n++) {
        kn_tensor *x = kn_zeros(KN_SHAPE(n)), *y[2];
        for (int i = 0; i < 2; i++) assert_ok(kn_capture_run(y, 2, capture, &x, 1, chain, NULL));
    }
    kn_tensor *three = kn_zeros(KN_SHAPE(3)), *two = kn_zeros(KN_SHAPE(2));
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_plans, 2);
    assert_true(kn_capture_has(capture, &three, 1));
    assert_false(kn_capture_has(capture, &two, 1));
    kn_capture_destroy(capture);
}

/* --- many lengths --- */

enum { LENGTHS = 40, WIDTH = 8, KEPT = 4 };

/* x [n,WIDTH]: a state goes over its rows. */
static kn_status recurrent(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_tensor *h = kn_zeros(KN_SHAPE(1, WIDTH));
    for (int64_t i = 0; i < kn_tensor_shape(in[0]).dim[0]; i++) {
        kn_tensor *row = kn_slice(in[0], KN_SHAPE(i, 0), KN_SHAPE(i + 1, WIDTH));
        h = kn_tanh(kn_add(kn_affine(h, 1.5, 0), row));
    }
    out[0] = h;
    return kn_check();
}

static void run_length(kn_capture *capture, int n) {
    KN_FRAME();
    kn_tensor *x = kn_affine(kn_ones(KN_SHAPE(n, WIDTH)), 0.01 * n, 0), *y = NULL, *want = NULL;
    assert_ok(recurrent(&want, &x, NULL));
    assert_ok(kn_capture_run(&y, 1, capture, &x, 1, recurrent, NULL));
    assert_memory_equal(kn_data(y), kn_data(want), WIDTH * sizeof(float));
}

static void many_lengths_keep_the_plans_of_the_last_few(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME();
    uint64_t live = ops_live_bytes();
    assert_ok(kn_capture_create(&capture, &(kn_capture_options){.plans_max = KEPT}));
    for (int round = 0; round < 3; round++) {
        for (int n = 1; n <= LENGTHS; n++) run_length(capture, n);
    }
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_plans, KEPT);
    assert_int_equal(stats.n_recorded, 2 * LENGTHS);
    assert_int_equal(stats.n_launches, 0);
    /* A plan keeps the memory of a few states, not one a row. */
    assert_true(ops_live_bytes() - live <= KEPT * 1024);
    for (int n = LENGTHS - KEPT + 1; n <= LENGTHS; n++) run_length(capture, n);
    run_length(capture, LENGTHS - KEPT); /* was dropped; takes the place of the oldest one */
    run_length(capture, LENGTHS - KEPT + 1);
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_launches, KEPT);
    assert_int_equal(stats.n_recorded, 2 * LENGTHS + 2);
    kn_capture_destroy(capture);
    assert_int_equal(ops_live_bytes(), live);
}

typedef struct job {
    kn_capture *capture;
    kn_tensor *x; /* a slot */
    double sum;
    bool replays;
} job;

static void *on_thread(void *ctx) {
    job *j = ctx;
    KN_FRAME();
    kn_tensor *y[2];
    if (j->replays) {
        if (kn_capture_launch(j->capture, &j->x, 1) < 0) return NULL;
    } else {
        for (int i = 0; i < 2; i++)
            if (kn_capture_run(y, 2, j->capture, &j->x, 1, chain, NULL) < 0) return NULL;
    }
    return kn_item(&j->sum, kn_capture_out(j->capture, 1)) == KN_OK ? j : NULL;
}

static void another_thread_may_replay_after_the_first_has_ended(void **state) {
    (void)state;
    job j = {.sum = 0};
    KN_SLOT(x);
    {
        KN_FRAME();
        assert_ok(kn_hold(&x, F32(KN_SHAPE(3), 1, 2, 3)));
    }
    j.x = x;
    assert_ok(kn_capture_create(&j.capture, NULL));
    double first = 0;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *done = NULL;
        assert_int_equal(pthread_create(&thread, NULL, on_thread, &j), 0);
        assert_int_equal(pthread_join(thread, &done), 0);
        assert_ptr_equal(done, &j);
        if (i) assert_true(j.sum == first);
        first = j.sum;
        j.replays = true;
    }
    kn_capture_destroy(j.capture);
}

static void *begins_and_ends(void *ctx) {
    job *j = ctx;
    KN_FRAME();
    kn_status status = kn_capture_begin(j->capture, &j->x, 1);
    return status == KN_OK && kn_exp(j->x) ? j : NULL;
}

static void a_recording_ends_with_its_thread(void **state) {
    (void)state;
    job j = {.sum = 0};
    pthread_t thread;
    void *done = NULL;
    KN_FRAME();
    KN_FRAME(); /* has the depth of the other thread's frame */
    kn_tensor *mine = F32(KN_SHAPE(2), 1, 2);
    KN_SLOT(x);
    assert_ok(kn_hold(&x, mine));
    j.x = x;
    assert_ok(kn_capture_create(&j.capture, NULL));
    assert_int_equal(pthread_create(&thread, NULL, begins_and_ends, &j), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_ptr_equal(done, &j);
    assert_fails(kn_capture_end(j.capture, NULL, 0), KN_ERR_INVALID, "has ended");
    assert_values(kn_affine(mine, 2, 0), 2, 4);
    kn_capture_destroy(j.capture);
}

/* The n-th allocation of a whole run fails: the error is that of memory, and the step can be
 * captured afterwards. */
static void a_failing_allocation_leaves_a_capture_that_works(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME(.fuse = KN_OFF); /* pending results would be computed when it begins */
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *plain[2], *y[2];
    assert_ok(chain(plain, &x, NULL));
    kn_status status = KN_ERR_OOM;
    for (int at = 1; status == KN_ERR_OOM; at++) {
        assert_ok(kn_capture_reset(capture));
        assert_ok(kn_capture_run(y, 2, capture, &x, 1, chain, NULL));
        uint64_t live = ops_live_bytes();
        n_allocs = 0, fail_at = at;
        status = kn_capture_run(y, 2, capture, &x, 1, chain, NULL);
        fail_at = 0;
        if (status == KN_OK) break;
        assert_int_equal(ops_live_bytes(), live);
        assert_false(kn_capture_has(capture, &x, 1));
        assert_true(at < 1000);
    }
    assert_ok(status);
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_capture_run(y, 2, capture, &x, 1, chain, NULL));
        assert_true(ops_at(y[0], 1) == ops_at(plain[0], 1));
        assert_true(ops_at(y[1], 0) == ops_at(plain[1], 0));
    }
    kn_capture_destroy(capture);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_state_may_go_round), OPS_TEST(variants_have_plans_of_their_own),
        OPS_TEST(lengths_of_the_host_want_a_variant),
        OPS_TEST(reading_or_writing_data_inside_names_the_call), OPS_TEST(captures_dont_nest),
        OPS_TEST(a_tensor_that_lives_on_is_named), OPS_TEST(a_result_that_lives_on_is_named),
        OPS_TEST(a_state_may_be_written_in_place),
        OPS_TEST(the_end_of_an_outer_frame_ends_the_recording),
        OPS_TEST(memory_is_shared_by_what_is_not_used_at_once),
        OPS_TEST(a_plan_keeps_no_attributes_of_ops_that_have_none),
        OPS_TEST(results_outlive_the_capture), OPS_TEST(the_plan_unused_for_longest_goes),
        OPS_TEST(many_lengths_keep_the_plans_of_the_last_few),
        OPS_TEST(another_thread_may_replay_after_the_first_has_ended),
        OPS_TEST(a_recording_ends_with_its_thread),
        OPS_TEST(a_failing_allocation_leaves_a_capture_that_works));
}
