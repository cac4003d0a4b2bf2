/* Captured steps: the bits of plain ones; what changes between replays; errors inside; failing
 * allocations. The program's own kn_alloc stands before the library's. */
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

/* --- a net: convolution, pooling, dropout, two layers --- */

enum { BATCH = 6, SIDE = 8, CLASSES = 5, STEPS = 20, LOSSES = STEPS };

typedef struct net {
    kn_params *params;
    kn_rng *rng;
    kn_optim *optim;
    kn_tensor *c, *cb, *w1, *b1, *w2, *b2;
    kn_tensor *mean, *var; /* slots */
    double dropout;
} net;

typedef kn_status (*optim_fn)(kn_optim **out, kn_params *params);

static kn_status make_sgd(kn_optim **out, kn_params *p) {
    return kn_sgd_create(out, p, 0.05, NULL);
}
static kn_status make_momentum(kn_optim **out, kn_params *p) {
    return kn_momentum_create(out, p, 0.05, 0.9, NULL);
}
static kn_status make_adam(kn_optim **out, kn_params *p) {
    return kn_adam_create(out, p, 0.01, &(kn_adam_options){.clip_norm = 0.5, .weight_decay = 0.01});
}
static kn_status make_lamb(kn_optim **out, kn_params *p) {
    return kn_lamb_create(out, p, 0.01, NULL);
}

static void net_open(net *n, kn_dtype dtype, double dropout, optim_fn optim) {
    *n = (net){.dropout = dropout};
    assert_ok(kn_params_create(&n->params, &(kn_params_options){.dtype = dtype, .seed = 3}));
    assert_ok(kn_rng_create(&n->rng, 5));
    n->c = kn_param(n->params, KN_SHAPE(4, 1, 3, 3), kn_init_xavier(), "c");
    n->cb = kn_param(n->params, KN_SHAPE(4), (kn_init){.kind = KN_INIT_ZEROS}, "cb");
    n->w1 = kn_param(n->params, KN_SHAPE(16, 36), kn_init_xavier(), "w1");
    n->b1 = kn_param(n->params, KN_SHAPE(16), (kn_init){.kind = KN_INIT_ZEROS}, "b1");
    n->w2 = kn_param(n->params, KN_SHAPE(CLASSES, 16), kn_init_xavier(), "w2");
    n->b2 = kn_param(n->params, KN_SHAPE(CLASSES), (kn_init){.kind = KN_INIT_ZEROS}, "b2");
    assert_ok(optim(&n->optim, n->params));
}

static void net_close(net *n) {
    kn_optim_destroy(n->optim);
    kn_rng_destroy(n->rng);
    kn_params_destroy(n->params);
}

static kn_tensor *net_loss(const net *n, kn_tensor *x, kn_tensor *y) {
    kn_tensor *h = kn_maxpool(kn_relu(kn_conv(x, n->c, n->cb, NULL)), KN_SHAPE(2, 2), NULL);
    h = kn_reshape(h, KN_SHAPE(kn_tensor_shape(x).dim[0], 36));
    h = kn_tanh(kn_linear(h, n->w1, n->b1));
    if (n->dropout > 0) h = kn_dropout(h, n->dropout, n->rng);
    return kn_cross_entropy(kn_linear(h, n->w2, n->b2), y);
}

/* One step over the halves of the batch where `parts` is 2. */
static kn_status net_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    net *n = ctx;
    KN_TAPE();
    kn_tensor *loss = net_loss(n, in[0], in[1]);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(n->optim));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Batch number `step`, in the frame. */
static void batch_make(kn_tensor *in[2], int step, int batch, kn_dtype dtype) {
    double x[BATCH * SIDE * SIDE];
    int64_t y[BATCH];
    unsigned seed = 7u + (unsigned)step;
    for (int i = 0; i < batch * SIDE * SIDE; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (double)(seed >> 8) / (1 << 24) - 0.5;
    }
    for (int i = 0; i < batch; i++) y[i] = (step + i) % CLASSES;
    kn_tensor *wide = kn_tensor_from(x, KN_F64, KN_SHAPE(batch, 1, SIDE, SIDE));
    in[0] = dtype == KN_F64 ? wide : kn_cast(wide, KN_F32);
    in[1] = kn_tensor_from(y, KN_I64, KN_SHAPE(batch));
}

typedef struct trace {
    double loss[LOSSES];
    double params[4 * 9 + 4 + 16 * 36 + 16 + CLASSES * 16 + CLASSES];
} trace;

static void trace_params(trace *out, const net *n) {
    double *to = out->params;
    for (int i = 0; i < kn_params_count(n->params); i++) {
        kn_tensor *w = kn_params_at(n->params, i, NULL);
        for (int64_t k = 0; k < kn_tensor_numel(w); k++) *to++ = ops_at(w, k);
    }
}

typedef struct run {
    kn_dtype dtype;
    optim_fn optim;
    double dropout;
    int threads;
    bool new_rates, new_shapes;
} run;

static void train(trace *out, const run *r, bool captured, kn_capture_stats *stats) {
    net n;
    kn_capture *capture = NULL;
    KN_FRAME(.threads = r->threads);
    memset(out, 0, sizeof *out);
    net_open(&n, r->dtype, r->dropout, r->optim);
    assert_ok(kn_capture_create(&capture, NULL));
    for (int step = 0; step < STEPS; step++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        batch_make(in, step, r->new_shapes && step % 3 == 2 ? BATCH - 2 : BATCH, r->dtype);
        if (r->new_rates) assert_ok(kn_optim_lr(n.optim, 0.05 / (1 + step)));
        if (captured)
            assert_ok(kn_capture_run(&loss, 1, capture, in, 2, net_step, &n));
        else
            assert_ok(net_step(&loss, in, &n));
        assert_ok(kn_item(&out->loss[step], loss));
    }
    trace_params(out, &n);
    if (stats) kn_capture_stats_read(stats, sizeof *stats, capture);
    kn_capture_destroy(capture);
    net_close(&n);
}

static void same_bits(const run *r, uint64_t n_plans) {
    static trace plain, captured;
    kn_capture_stats stats;
    train(&plain, r, false, NULL);
    train(&captured, r, true, &stats);
    assert_memory_equal(&plain, &captured, sizeof plain);
    assert_true(plain.loss[STEPS - 1] != plain.loss[0]);
    assert_int_equal(stats.n_plans, n_plans);
    assert_int_equal(stats.n_launches, STEPS - 2 * n_plans);
    assert_true(stats.plan_bytes > 0 && stats.n_calls > 10);
}

static void twenty_steps_have_the_bits_of_plain_ones(void **state) {
    (void)state;
    static const optim_fn optims[] = {make_sgd, make_momentum, make_adam, make_lamb};
    static const int threads[] = {1, 2, 7};
    for (size_t o = 0; o < 4; o++) {
        for (size_t t = 0; t < 3; t++) {
            same_bits(&(run){.dtype = KN_F32, .optim = optims[o], .threads = threads[t]}, 1);
            same_bits(&(run){.dtype = KN_F64, .optim = optims[o], .threads = threads[t]}, 1);
        }
    }
}

static void dropout_draws_other_numbers_in_each_replay(void **state) {
    (void)state;
    same_bits(&(run){.dtype = KN_F32, .optim = make_adam, .threads = 2, .dropout = 0.4}, 1);
}

static void the_learning_rate_may_change(void **state) {
    (void)state;
    same_bits(&(run){.dtype = KN_F32, .optim = make_momentum, .threads = 1, .new_rates = true}, 1);
}

static void other_shapes_have_a_plan_of_their_own(void **state) {
    (void)state;
    same_bits(&(run){.dtype = KN_F32, .optim = make_adam, .threads = 1, .new_shapes = true}, 2);
}

/* --- backward alone: gradients add up --- */

static kn_status backward_only(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    net *n = ctx;
    KN_TAPE();
    kn_tensor *loss = net_loss(n, in[0], in[1]);
    KN_TRY(kn_backward(loss));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Two batches a step: the first overwrites the gradients, the second adds to them. */
static void accumulate(trace *out, bool captured) {
    net n;
    kn_capture *part[2];
    KN_FRAME();
    memset(out, 0, sizeof *out);
    net_open(&n, KN_F32, 0.2, make_adam);
    for (int i = 0; i < 2; i++) assert_ok(kn_capture_create(&part[i], NULL));
    for (int step = 0; step < STEPS; step++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        for (int i = 0; i < 2; i++) {
            batch_make(in, 2 * step + i, BATCH, KN_F32);
            if (captured && step > 0)
                assert_ok(kn_capture_run(&loss, 1, part[i], in, 2, backward_only, &n));
            else
                assert_ok(backward_only(&loss, in, &n));
        }
        assert_ok(kn_item(&out->loss[step], loss));
        assert_ok(kn_optim_step(n.optim));
    }
    trace_params(out, &n);
    for (int i = 0; i < 2; i++) kn_capture_destroy(part[i]);
    net_close(&n);
}

static void gradients_of_several_captured_batches_add_up(void **state) {
    (void)state;
    static trace plain, captured;
    accumulate(&plain, false);
    accumulate(&captured, true);
    assert_memory_equal(&plain, &captured, sizeof plain);
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
    assert_fails(kn_capture_launch(b, &x, 1), KN_ERR_INVALID, "no plan for 1 inputs, in[0] [2]");
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
    assert_ok(kn_capture_begin(capture, &x, 1));
    assert_ok(kn_hold(&kept, kn_exp(x)));
    assert_ok(kn_capture_end(capture, &kept, 1)); /* listed: allowed */
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
        OPS_TEST(twenty_steps_have_the_bits_of_plain_ones),
        OPS_TEST(dropout_draws_other_numbers_in_each_replay),
        OPS_TEST(the_learning_rate_may_change), OPS_TEST(other_shapes_have_a_plan_of_their_own),
        OPS_TEST(gradients_of_several_captured_batches_add_up),
        OPS_TEST(reading_or_writing_data_inside_names_the_call), OPS_TEST(captures_dont_nest),
        OPS_TEST(a_tensor_that_lives_on_is_named),
        OPS_TEST(the_end_of_an_outer_frame_ends_the_recording),
        OPS_TEST(memory_is_shared_by_what_is_not_used_at_once),
        OPS_TEST(results_outlive_the_capture), OPS_TEST(the_plan_unused_for_longest_goes),
        OPS_TEST(another_thread_may_replay_after_the_first_has_ended),
        OPS_TEST(a_recording_ends_with_its_thread),
        OPS_TEST(a_failing_allocation_leaves_a_capture_that_works));
}
