/* Captured steps on a GPU: the calls that a replay enqueues, on the fake one; its operands, by
 * steps whose data moves by copies alone, which the fake does. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <knet/capture.h>
#include <pthread.h>

#include "autograd_test.h"
#include "fake_gpu.h"

static kn_device *gpu;
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

static int begin(void **state) {
    (void)state;
    fake_gpu_reset();
    return 0;
}
static int end(void **state) {
    (void)state;
    if (fake_cuda_count().n_violations) print_error("violation: %s\n", fake_cuda_violation());
    if (fake_gpu_graphs()) print_error("%d graphs are left\n", fake_gpu_graphs());
    return fake_cuda_count().n_violations || fake_gpu_graphs() ? -1 : 0;
}

/* --- a step of training --- */

enum { BATCH = 8, IN = 20, HIDDEN = 16, CLASSES = 5 };

typedef struct net {
    kn_params *params;
    kn_optim *adam;
    kn_rng *rng;
    kn_tensor *w1, *b1, *w2, *b2;
    kn_capture *capture;
} net;

static void net_open(net *n) {
    assert_ok(kn_params_create(&n->params, &(kn_params_options){.seed = 3}));
    assert_ok(kn_rng_create(&n->rng, 5));
    n->w1 = kn_param(n->params, KN_SHAPE(HIDDEN, IN), kn_init_xavier(), "w1");
    n->b1 = kn_param(n->params, KN_SHAPE(HIDDEN), (kn_init){.kind = KN_INIT_ZEROS}, "b1");
    n->w2 = kn_param(n->params, KN_SHAPE(CLASSES, HIDDEN), kn_init_xavier(), "w2");
    n->b2 = kn_param(n->params, KN_SHAPE(CLASSES), (kn_init){.kind = KN_INIT_ZEROS}, "b2");
    assert_ok(kn_adam_create(&n->adam, n->params, 0.01, NULL));
    assert_ok(kn_capture_create(&n->capture, NULL));
}

static void net_close(net *n) {
    kn_capture_destroy(n->capture);
    kn_optim_destroy(n->adam);
    kn_rng_destroy(n->rng);
    kn_params_destroy(n->params);
}

static kn_status net_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    net *n = ctx;
    KN_TAPE();
    kn_tensor *h = kn_dropout(kn_tanh(kn_linear(in[0], n->w1, n->b1)), 0.2, n->rng);
    kn_tensor *loss = kn_cross_entropy(kn_linear(h, n->w2, n->b2), in[1]);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_optim_step(n->adam));
    out[0] = kn_keep(loss);
    return kn_check();
}

static void batch_make(kn_tensor *in[2], int64_t n) {
    in[0] = kn_ones(KN_SHAPE(n, IN));
    in[1] = kn_cast(kn_zeros(KN_SHAPE(n)), KN_I64);
    assert_ok(kn_check());
}

/* The kernels of a launched graph are those of the step. */
static void a_replay_of_a_training_step_is_one_launch(void **state) {
    (void)state;
    net n;
    KN_FRAME(.device = gpu);
    net_open(&n);
    int kernels[5], launches[5], products[5];
    for (int i = 0; i < 5; i++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        batch_make(in, BATCH);
        fake_gpu_reset();
        assert_ok(kn_capture_run(&loss, 1, n.capture, in, 2, net_step, &n));
        kernels[i] = fake_gpu_kernels("");
        launches[i] = fake_gpu_launches();
        products[i] = fake_gpu_count().n_products;
    }
    assert_true(launches[0] > 8 && products[0] == 5);
    for (int i = 2; i < 5; i++) {
        assert_int_equal(launches[i], 1);
        assert_int_equal(products[i], 0);
        assert_int_equal(kernels[i], kernels[0]);
    }
    kn_capture_stats stats;
    kn_capture_stats_read(&stats, sizeof stats, n.capture);
    assert_int_equal(stats.n_launches, 3);
    assert_int_equal(stats.n_plans, 1);
    net_close(&n);
}

/* No stream waits, nothing is allocated, the host waits for nothing. */
static void a_replay_calls_the_driver_for_its_inputs_alone(void **state) {
    (void)state;
    net n;
    KN_FRAME(.device = gpu);
    net_open(&n);
    kn_tensor *in[2], *loss = NULL;
    batch_make(in, BATCH);
    for (int i = 0; i < 3; i++) assert_ok(kn_capture_run(&loss, 1, n.capture, in, 2, net_step, &n));
    fake_gpu_reset();
    n_allocs = 0;
    assert_ok(kn_capture_launch(n.capture, in, 2));
    assert_int_equal(n_allocs, 0);
    assert_int_equal(fake_gpu_count().n_copies, 2);
    assert_int_equal(fake_cuda_calls("cuStreamWaitEvent"), 0);
    assert_int_equal(fake_cuda_calls("cuEventRecord"), 1);
    assert_int_equal(fake_cuda_calls("cuEventSynchronize"), 0);
    assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), 0);
    net_close(&n);
}

static void another_shape_has_a_graph_of_its_own(void **state) {
    (void)state;
    net n;
    KN_FRAME(.device = gpu);
    net_open(&n);
    for (int i = 0; i < 8; i++) {
        KN_FRAME();
        kn_tensor *in[2], *loss = NULL;
        batch_make(in, i % 2 ? BATCH : BATCH / 2);
        fake_gpu_reset();
        assert_ok(kn_capture_run(&loss, 1, n.capture, in, 2, net_step, &n));
        if (i >= 4) assert_int_equal(fake_gpu_launches(), 1);
    }
    assert_int_equal(fake_gpu_graphs(), 2);
    net_close(&n);
}

/* --- reads and writes --- */

/* The solution is a copy of b, which a kernel would then solve. */
static kn_status copies(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = kn_triangular_solve(ctx, in[0], NULL);
    out[1] = kn_triangular_solve(ctx, out[0], NULL);
    return kn_check();
}

static kn_tensor *numbers(float first) {
    float x[6];
    for (int i = 0; i < 6; i++) x[i] = first + (float)i;
    return kn_tensor_from(x, KN_F32, KN_SHAPE(2, 3));
}

static void assert_numbers(kn_tensor *t, float first) {
    float x[6] = {0};
    assert_ok(kn_copy_out(x, sizeof x, t));
    for (int i = 0; i < 6; i++) assert_true(x[i] == first + (float)i);
}

static void replays_read_their_inputs_and_write_the_results(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    kn_tensor *a = kn_ones(KN_SHAPE(2, 2)), *y[2];
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 6; i++) {
        KN_FRAME();
        kn_tensor *x = numbers((float)(10 * i));
        assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
        assert_numbers(y[0], (float)(10 * i));
        assert_numbers(y[1], (float)(10 * i));
    }
    kn_capture_destroy(capture);
}

/* A value that no result has, and inputs that are read after results were written. */
static kn_status copies_late(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn_tensor *inside = kn_triangular_solve(ctx, in[0], NULL);
    out[0] = kn_triangular_solve(ctx, in[1], NULL);
    out[1] = kn_triangular_solve(ctx, inside, NULL);
    out[2] = kn_triangular_solve(ctx, in[0], NULL);
    out[3] = kn_triangular_solve(ctx, in[1], NULL);
    return kn_check();
}

static void what_is_read_later_keeps_its_memory(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    kn_tensor *a = kn_ones(KN_SHAPE(2, 2)), *y[4];
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 6; i++) {
        KN_FRAME();
        float first[2] = {(float)(10 * i), (float)(10 * i + 100)};
        kn_tensor *x[2] = {numbers(first[0]), numbers(first[1])};
        assert_ok(kn_capture_run(y, 4, capture, x, 2, copies_late, a));
        for (int k = 0; k < 4; k++) assert_numbers(y[k], first[k == 0 || k == 3]);
    }
    kn_capture_destroy(capture);
}

/* A launch on another stream waits for the last one, and for the writers of its inputs. */
static void launches_may_change_their_stream(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_stream other = NULL;
    assert_ok(kn_stream_create(&other, gpu));
    {
        KN_FRAME(.device = gpu);
        kn_tensor *a = kn_ones(KN_SHAPE(2, 2)), *y[2], *x = numbers(1), *z = numbers(2);
        assert_ok(kn_capture_create(&capture, NULL));
        for (int i = 0; i < 3; i++) assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
        fake_gpu_reset();
        {
            KN_FRAME(.device = gpu, .stream = other);
            assert_ok(kn_capture_launch(capture, &z, 1));
            assert_int_equal(fake_cuda_calls("cuStreamWaitEvent"), 3); /* launch, x, a */
            assert_numbers(kn_capture_out(capture, 1), 2);
        }
        assert_ok(kn_capture_launch(capture, &x, 1));
        assert_numbers(kn_capture_out(capture, 1), 1);
        kn_capture_destroy(capture);
    }
    kn_stream_destroy(gpu, other);
}

/* Reads its inputs alone: nothing else orders its replays. */
static kn_tensor *solved(kn_tensor *const in[]) { return kn_triangular_solve(in[0], in[1], NULL); }

typedef struct two_streams {
    kn_stream a, b;
    kn_capture *capture;
} two_streams;

static two_streams streams_make(void) {
    two_streams s = {NULL, NULL, NULL};
    assert_ok(kn_stream_create(&s.a, gpu));
    assert_ok(kn_stream_create(&s.b, gpu));
    assert_ok(kn_capture_create(&s.capture, NULL));
    return s;
}

static void streams_end(two_streams *s) {
    kn_capture_destroy(s->capture);
    kn_stream_destroy(gpu, s->a);
    kn_stream_destroy(gpu, s->b);
}

/* The recording moves its results on stream a, which is busy, while b replays. */
static void the_first_replay_comes_after_the_recording(void **state) {
    (void)state;
    two_streams s = streams_make();
    {
        KN_FRAME(.device = gpu, .stream = s.a);
        kn_tensor *in[] = {kn_ones(KN_SHAPE(2, 2)), numbers(1)}, *y;
        assert_ok(kn_stream_sync(gpu, s.a));
        assert_ok(kn_capture_begin(s.capture, in, 2));
        y = solved(in);
        fake_cuda_hold((cu_stream)s.a);
        assert_ok(kn_capture_end(s.capture, &y, 1));
        KN_FRAME(.device = gpu, .stream = s.b);
        kn_tensor *next[] = {kn_ones(KN_SHAPE(2, 2)), numbers(20)};
        assert_ok(kn_capture_launch(s.capture, next, 2));
        fake_cuda_release((cu_stream)s.a);
        assert_ok(kn_stream_sync(gpu, s.a));
        assert_numbers(kn_capture_out(s.capture, 0), 20);
    }
    streams_end(&s);
}

/* Records and launches the step on stream a; what b, which is held, reads of its result. */
static kn_tensor *launch_and_read(const two_streams *s, kn_tensor *const in[2]) {
    assert_ok(kn_capture_begin(s->capture, in, 2));
    kn_tensor *y = solved(in);
    assert_ok(kn_capture_end(s->capture, &y, 1));
    assert_ok(kn_capture_launch(s->capture, in, 2));
    KN_FRAME(.device = gpu, .stream = s->b);
    kn_tensor *one = kn_ones(KN_SHAPE(2, 2));
    assert_ok(kn_stream_sync(gpu, s->b));
    fake_cuda_hold((cu_stream)s->b);
    kn_tensor *late[] = {one, kn_capture_out(s->capture, 0)};
    return kn_keep(solved(late));
}

static void results_that_another_stream_reads_keep_their_memory(void **state) {
    (void)state;
    two_streams s = streams_make();
    KN_FRAME(.device = gpu, .stream = s.a);
    kn_tensor *in[] = {kn_ones(KN_SHAPE(2, 2)), numbers(1)};
    kn_tensor *read = launch_and_read(&s, in);
    kn_capture_stats stats;
    kn_capture_stats_read(&stats, sizeof stats, s.capture);
    kn_capture_destroy(s.capture);
    s.capture = NULL;
    for (int i = 0; i < 8; i++) /* as large as the plan's memory */
        assert_non_null(kn_zeros(KN_SHAPE((int64_t)stats.plan_bytes / 4)));
    assert_ok(kn_stream_sync(gpu, s.a));
    fake_cuda_release((cu_stream)s.b);
    assert_numbers(read, 1);
    kn_drop(read);
    streams_end(&s);
}

/* Stream b, which is busy, reads the first launch's result after the second one is enqueued. */
static void a_launch_waits_for_readers_of_its_results(void **state) {
    (void)state;
    two_streams s = streams_make();
    KN_FRAME(.device = gpu, .stream = s.a);
    kn_tensor *in[] = {kn_ones(KN_SHAPE(2, 2)), numbers(1)};
    kn_tensor *next[] = {in[0], numbers(20)};
    kn_tensor *read = launch_and_read(&s, in);
    assert_ok(kn_capture_launch(s.capture, next, 2));
    fake_cuda_release((cu_stream)s.b);
    assert_ok(kn_stream_sync(gpu, s.a));
    assert_numbers(read, 1);
    assert_numbers(kn_capture_out(s.capture, 0), 20);
    kn_drop(read);
    streams_end(&s);
}

static kn_status with_work_space(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    out[0] = kn_var(in[0], KN_SHAPE(0), false, NULL);
    return kn_check();
}

/* Sums in two passes take some; in a graph it must be the plan's. */
static void work_space_is_in_the_plan(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100000, 2)), *y = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(kn_capture_run(&y, 1, capture, &x, 1, with_work_space, NULL));
    n_allocs = 0;
    assert_ok(kn_capture_run(&y, 1, capture, &x, 1, with_work_space, NULL));
    int recorded = n_allocs;
    assert_true(recorded > 2);
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_true(stats.plan_bytes > 800000 + 512);
    n_allocs = 0;
    assert_ok(kn_capture_run(&y, 1, capture, &x, 1, with_work_space, NULL));
    assert_int_equal(n_allocs, 0);
    kn_capture_destroy(capture);
}

/* --- errors --- */

static kn_status reads_inside(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    double value = 0;
    out[0] = kn_sum(in[0], KN_ALL, false);
    return kn_item(&value, out[0]);
}

static kn_status writes_an_input(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    out[0] = kn_exp(in[0]);
    return kn_add_into(in[0], out[0]);
}

static kn_status gives_an_input(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    out[0] = kn_reshape(in[0], KN_SHAPE(-1));
    return kn_check();
}

static void what_a_graph_cannot_do_is_an_error(void **state) {
    (void)state;
    static const struct {
        kn_capture_fn step;
        kn_status status;
        const char *message;
    } cases[] = {
        {reads_inside, KN_ERR_INVALID, "kn_item: the step is being captured"},
        {writes_an_input, KN_ERR_UNSUPPORTED, "writes into in[0]"},
        {gives_an_input, KN_ERR_INVALID, "out[0] is in[0] or a view of it"},
    };
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = numbers(1), *y = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(kn_capture_reset(capture));
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, cases[i].step, NULL));
        assert_fails(kn_capture_run(&y, 1, capture, &x, 1, cases[i].step, NULL), cases[i].status,
                     cases[i].message);
        assert_false(kn_capture_has(capture, &x, 1));
    }
    kn_capture_destroy(capture);
}

/* After an error there is no plan, no graph is left, and the step can be captured again. */
static void failing_calls_of_cuda_leave_no_plan(void **state) {
    (void)state;
    static const char *const functions[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                            "cudaGraphInstantiate", "cudaLaunchKernel"};
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *a = kn_ones(KN_SHAPE(2, 2)), *x = numbers(1), *y[2];
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        assert_ok(kn_capture_reset(capture));
        assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
        bool is_kernel = i == 3; /* the third one is captured */
        fake_gpu_fail(functions[i], is_kernel ? 3 : 1, 1, cudaErrorUnknown);
        assert_fails(kn_capture_run(y, 2, capture, &x, 1, copies, a), KN_ERR_CUDA,
                     is_kernel ? "triangular" : functions[i]);
        assert_false(kn_capture_has(capture, &x, 1));
        assert_int_equal(fake_gpu_graphs(), 0);
    }
    for (int i = 0; i < 2; i++) assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
    fake_gpu_fail("cudaGraphLaunch", 1, 1, cudaErrorUnknown);
    assert_fails(kn_capture_run(y, 2, capture, &x, 1, copies, a), KN_ERR_CUDA, "cudaGraphLaunch");
    assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
    assert_numbers(y[1], 1);
    kn_capture_destroy(capture);
}

static void a_failing_allocation_leaves_no_plan(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *a = kn_ones(KN_SHAPE(2, 2)), *x = numbers(3), *y[2];
    kn_status status = KN_ERR_OOM;
    int at = 1;
    for (; status == KN_ERR_OOM; at++) {
        assert_true(at < 100);
        assert_ok(kn_capture_reset(capture));
        assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
        n_allocs = 0, fail_at = at;
        status = kn_capture_run(y, 2, capture, &x, 1, copies, a);
        fail_at = 0;
        if (status < 0) assert_int_equal(fake_gpu_graphs(), 0);
    }
    assert_ok(status);
    assert_true(at > 3); /* two results, the plan's memory */
    assert_ok(kn_capture_run(y, 2, capture, &x, 1, copies, a));
    assert_numbers(y[1], 3);
    kn_capture_destroy(capture);
}

/* --- threads --- */

typedef struct job {
    kn_tensor *x, *a; /* slots */
    float first;
    bool done;
} job;

static void *on_thread(void *ctx) {
    job *j = ctx;
    kn_capture *capture = NULL;
    KN_FRAME(.device = gpu);
    kn_tensor *y[2];
    float got[6] = {0};
    if (kn_capture_create(&capture, NULL) < 0) return NULL;
    bool ok = true;
    for (int i = 0; i < 20 && ok; i++) {
        ok = kn_capture_run(y, 2, capture, &j->x, 1, copies, j->a) == KN_OK &&
             kn_copy_out(got, sizeof got, y[1]) == KN_OK && got[5] == j->first + 5;
    }
    kn_capture_destroy(capture);
    j->done = ok;
    return NULL;
}

static void threads_replay_graphs_of_their_own(void **state) {
    (void)state;
    enum { THREADS = 3 };
    job jobs[THREADS];
    pthread_t threads[THREADS];
    KN_SLOT(a);
    kn_tensor *x[THREADS] = {NULL};
    {
        KN_FRAME(.device = gpu);
        assert_ok(kn_hold(&a, kn_ones(KN_SHAPE(2, 2))));
        for (int i = 0; i < THREADS; i++) assert_ok(kn_hold(&x[i], numbers((float)i)));
    }
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){x[i], a, (float)i, false};
        on_thread(&jobs[i]); /* records: only one stream at a time is captured in the fake */
        assert_int_equal(pthread_create(&threads[i], NULL, on_thread, &jobs[i]), 0);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(jobs[i].done);
        kn_unhold(&x[i]);
    }
}

int main(void) {
    if (kn_device_find(&gpu, "cuda:0") < 0) return 1;
    return RUN_TESTS(TEST_WITH(a_replay_of_a_training_step_is_one_launch, begin, end),
                     TEST_WITH(a_replay_calls_the_driver_for_its_inputs_alone, begin, end),
                     TEST_WITH(another_shape_has_a_graph_of_its_own, begin, end),
                     TEST_WITH(replays_read_their_inputs_and_write_the_results, begin, end),
                     TEST_WITH(what_is_read_later_keeps_its_memory, begin, end),
                     TEST_WITH(launches_may_change_their_stream, begin, end),
                     TEST_WITH(the_first_replay_comes_after_the_recording, begin, end),
                     TEST_WITH(results_that_another_stream_reads_keep_their_memory, begin, end),
                     TEST_WITH(a_launch_waits_for_readers_of_its_results, begin, end),
                     TEST_WITH(work_space_is_in_the_plan, begin, end),
                     TEST_WITH(what_a_graph_cannot_do_is_an_error, begin, end),
                     TEST_WITH(failing_calls_of_cuda_leave_no_plan, begin, end),
                     TEST_WITH(a_failing_allocation_leaves_no_plan, begin, end),
                     TEST_WITH(threads_replay_graphs_of_their_own, begin, end));
}
