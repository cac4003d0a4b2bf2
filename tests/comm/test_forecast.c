/* Forecasts: the cost of collectives by hand, the timeline of a step, misuse. No real time is
 * asserted: links are so slow that their time is all there is, or times are compared by order. */
#include <knet/capture.h>
#include <knet/forecast.h>
#include <knet/ops.h>
#include <knet/optim.h>
#include <knet/tape.h>
#include <math.h>
#include <unistd.h>

#include "test.h"

enum { WIDTH = 256, LAYERS = 4 }; /* 256 KiB a layer */

typedef struct job {
    kn_params *params;
    kn_forecast *forecast;
} job;

static job job_new(const kn_forecast_options *options, bool has_unused) {
    job j = {0};
    KN_FRAME(.record = KN_OFF);
    assert_ok(kn_params_create(&j.params, NULL));
    for (int i = 0; i < LAYERS; i++)
        kn_param(j.params, KN_SHAPE(WIDTH, WIDTH), kn_init_xavier(), "w%d", i);
    if (has_unused) kn_param(j.params, KN_SHAPE(WIDTH, WIDTH), kn_init_xavier(), "unused");
    assert_ok(kn_check());
    assert_ok(kn_forecast_create(&j.forecast, j.params, options));
    return j;
}

static void job_end(job *j) {
    kn_forecast_destroy(j->forecast);
    kn_params_destroy(j->params);
}

static void steps_run(const job *j, int n) {
    for (int s = 0; s < n; s++) {
        KN_TAPE(.threads = 1);
        kn_forecast_begin(j->forecast);
        kn_tensor *x = kn_full(KN_SHAPE(8, WIDTH), 0.01);
        for (int i = 0; i < LAYERS; i++)
            x = kn_tanh(kn_linear(x, kn_params_at(j->params, i, NULL), KN_NONE));
        assert_ok(kn_backward(kn_sum(x, KN_ALL, false)));
        kn_forecast_backward_end(j->forecast);
        assert_ok(kn_forecast_end(j->forecast));
    }
}

static kn_forecast_result of_ranks(const job *j, int n, kn_forecast_link link) {
    kn_forecast_result r;
    if (link.add_bandwidth == 0) link.add_bandwidth = 1e30;
    assert_ok(kn_forecast_ranks(&r, sizeof r, j->forecast, n, &link));
    return r;
}

/* Each rank sends, and receives, (n - 1)/n of the data as inputs and as much as results. */
static void a_reduction_sends_every_shard_twice(void **state) {
    (void)state;
    const double bytes = LAYERS * 4.0 * WIDTH * WIDTH;
    job j = job_new(&(kn_forecast_options){.bucket_bytes = 4}, false);
    steps_run(&j, 2);
    for (int n = 2; n <= 64; n *= 2) {
        kn_forecast_result r = of_ranks(&j, n, (kn_forecast_link){.bandwidth = 1e6});
        assert_int_equal(r.n_buckets, LAYERS);
        assert_int_equal((int)r.bytes, (int)bytes);
        assert_close(r.reduce_seconds, 2 * (n - 1) * bytes / n / 1e6, 1e-12, 0);
        assert_int_equal((int)r.n_messages, LAYERS * 2 * (n - 1));
        r = of_ranks(&j, n, (kn_forecast_link){.latency_seconds = 3});
        assert_close(r.reduce_seconds, LAYERS * 2 * 3, 1e-12, 0);
        r = of_ranks(&j, n, (kn_forecast_link){.overhead_seconds = 1});
        assert_close(r.reduce_seconds, LAYERS * 2 * 2 * (n - 1), 1e-12, 0);
        r = of_ranks(&j, n, (kn_forecast_link){.add_bandwidth = 1e6});
        assert_close(r.reduce_seconds, bytes / 1e6, 1e-12, 0);
    }
    job_end(&j);
}

/* In one exchange, without a result to wait for. */
static void small_data_goes_whole_to_everyone(void **state) {
    (void)state;
    job j = job_new(&(kn_forecast_options){.n_values = 100}, false);
    steps_run(&j, 2);
    for (int n = 2; n <= 1024; n *= 8) {
        const kn_forecast_link link = {.bandwidth = 1e6, .latency_seconds = 0.25};
        kn_forecast_result r = of_ranks(&j, n, link);
        double values = r.step_seconds - r.alone_seconds - r.wait_seconds;
        assert_close(values, 0.25 + (n - 1) * 800 / 1e6, 1e-9, 1e-9);
    }
    job_end(&j);
}

/* On a slow link the chunks of a shard follow each other: only the last latency shows. */
static void chunks_hide_each_others_latency(void **state) {
    (void)state;
    KN_FRAME(.record = KN_OFF);
    job j = {0};
    assert_ok(kn_params_create(&j.params, NULL));
    kn_tensor *w = kn_param(j.params, KN_SHAPE(4 << 20), kn_init_normal(0, 1), "w"); /* 16 MiB */
    assert_ok(kn_forecast_create(&j.forecast, j.params, NULL));
    for (int s = 0; s < 2; s++) {
        KN_TAPE();
        kn_forecast_begin(j.forecast);
        assert_ok(kn_backward(kn_sum(w, KN_ALL, false)));
        kn_forecast_backward_end(j.forecast);
        assert_ok(kn_forecast_end(j.forecast));
    }
    /* Two ranks: shards of 4 chunks, whose inputs and results take 0.5 s each. The link is busy
     * from the first to the last; this one arrives a latency later. */
    const kn_forecast_link link = {.bandwidth = 4 << 20, .latency_seconds = 0.125};
    kn_forecast_result r = of_ranks(&j, 2, link);
    assert_int_equal(r.n_buckets, 1);
    assert_int_equal((int)r.n_messages, 8);
    assert_close(r.reduce_seconds, 4 + 0.125, 1e-9, 0);
    job_end(&j);
}

static void backward_hides_what_comes_before_its_end(void **state) {
    (void)state;
    job j = job_new(&(kn_forecast_options){.bucket_bytes = 4}, false);
    steps_run(&j, 6);
    kn_forecast_result one = of_ranks(&j, 1, (kn_forecast_link){.bandwidth = 1});
    assert_true(one.step_seconds == one.alone_seconds && one.wait_seconds == 0);
    assert_true(one.reduce_seconds == 0 && one.n_messages == 0 && one.alone_seconds > 0);
    kn_forecast_result fast = of_ranks(&j, 4, (kn_forecast_link){.bandwidth = 1e15});
    assert_true(fast.wait_seconds <= fast.reduce_seconds / LAYERS * 1.001);
    kn_forecast_result slow = of_ranks(&j, 4, (kn_forecast_link){.bandwidth = 1e3});
    assert_true(slow.wait_seconds < slow.reduce_seconds);
    assert_true(slow.wait_seconds > 0.99 * slow.reduce_seconds);
    assert_close(slow.step_seconds, slow.alone_seconds + slow.wait_seconds, 1e-12, 0);
    job_end(&j);
}

/* Its gradients never come: the bucket waits for the end of backward, and so do those after it. */
static void a_bucket_that_backward_does_not_reach_waits_for_its_end(void **state) {
    (void)state;
    job j = job_new(&(kn_forecast_options){.bucket_bytes = 4}, true);
    steps_run(&j, 3);
    kn_forecast_result r = of_ranks(&j, 2, (kn_forecast_link){.bandwidth = 1e15});
    assert_int_equal(r.n_buckets, LAYERS + 1);
    assert_true(r.wait_seconds > 0 && r.wait_seconds <= r.reduce_seconds);
    assert_close(r.wait_seconds, r.reduce_seconds / (LAYERS + 1), 1e-3, 0);
    job_end(&j);
}

/* Steps of two passes with a nap between them, of which the last one leaves out some layers. */
static void passes_run(const job *j, int n, int left_out) {
    for (int s = 0; s < n; s++) {
        kn_forecast_begin(j->forecast);
        for (int pass = 0; pass < 2; pass++) {
            KN_TAPE(.threads = 1);
            kn_tensor *x = kn_full(KN_SHAPE(8, WIDTH), 0.01);
            for (int i = pass ? left_out : 0; i < LAYERS; i++)
                x = kn_tanh(kn_linear(x, kn_params_at(j->params, i, NULL), KN_NONE));
            if (pass) usleep(30000);
            assert_ok(kn_backward(kn_sum(x, KN_ALL, false)));
        }
        kn_forecast_backward_end(j->forecast);
        assert_ok(kn_forecast_end(j->forecast));
    }
}

/* The nap would hide all reductions, were they possible before the last pass. */
static void gradients_are_finished_by_the_last_pass(void **state) {
    (void)state;
    const double bytes = LAYERS * 4.0 * WIDTH * WIDTH;
    for (int64_t bucket_bytes = 4; bucket_bytes < 1 << 30; bucket_bytes <<= 20) {
        job j = job_new(&(kn_forecast_options){.bucket_bytes = bucket_bytes}, false);
        passes_run(&j, 8, 0);
        kn_forecast_result r = of_ranks(&j, 2, (kn_forecast_link){.bandwidth = bytes / 0.02});
        assert_close(r.reduce_seconds, 0.02, 1e-9, 0);
        assert_true(r.wait_seconds > 0);
        job_end(&j);
    }
}

/* What the pass before finished doesn't count. */
static void a_bucket_that_the_last_pass_does_not_reach_waits_for_its_end(void **state) {
    (void)state;
    for (int64_t bucket_bytes = 4; bucket_bytes < 1 << 30; bucket_bytes <<= 20) {
        job j = job_new(&(kn_forecast_options){.bucket_bytes = bucket_bytes}, false);
        passes_run(&j, 3, 1);
        kn_forecast_result r = of_ranks(&j, 2, (kn_forecast_link){.bandwidth = 1e15});
        assert_close(r.wait_seconds, r.reduce_seconds / (double)r.n_buckets, 1e-3, 0);
        job_end(&j);
    }
}

static void a_step_without_backward_is_not_counted(void **state) {
    (void)state;
    const kn_forecast_link link = {.bandwidth = 1e6};
    job j = job_new(NULL, false);
    steps_run(&j, 2);
    kn_forecast_result before = of_ranks(&j, 2, link);
    for (int i = 0; i < 2; i++) {
        kn_forecast_begin(j.forecast);
        kn_forecast_backward_end(j.forecast);
        assert_fails(kn_forecast_end(j.forecast), KN_ERR_INVALID, "no kn_backward");
    }
    kn_forecast_result after = of_ranks(&j, 2, link);
    assert_close(after.alone_seconds, before.alone_seconds, 0, 0);
    steps_run(&j, 1);
    job_end(&j);
}

/* Of such a pass no hook hears. It is counted once the order is known. */
static void a_step_whose_gradients_are_all_zeros_is_one(void **state) {
    (void)state;
    const kn_forecast_link link = {.bandwidth = 1e6};
    job j = job_new(NULL, false);
    for (int s = 0; s < 4; s++) {
        KN_TAPE(.threads = 1);
        kn_tensor *w = kn_params_at(j.params, 0, NULL);
        kn_forecast_begin(j.forecast);
        assert_ok(kn_backward(kn_sum(s == 1 ? w : kn_floor(w), KN_ALL, false)));
        kn_forecast_backward_end(j.forecast);
        assert_ok(kn_forecast_end(j.forecast));
        kn_forecast_result r;
        kn_status status = kn_forecast_ranks(&r, sizeof r, j.forecast, 2, &link);
        assert_int_equal(status, s < 2 ? KN_ERR_INVALID : KN_OK);
        if (s >= 2) assert_close(r.wait_seconds, r.reduce_seconds, 1e-3, 0);
    }
    job_end(&j);
}

/* A backward before the forecast began does not count as the first step's. */
static void a_first_step_without_backward_is_an_error(void **state) {
    (void)state;
    job j = job_new(NULL, false);
    steps_run(&j, 1);
    kn_forecast_destroy(j.forecast);
    assert_ok(kn_forecast_create(&j.forecast, j.params, NULL));
    kn_forecast_begin(j.forecast);
    kn_forecast_backward_end(j.forecast);
    assert_fails(kn_forecast_end(j.forecast), KN_ERR_INVALID, "no kn_backward");
    steps_run(&j, 2);
    (void)of_ranks(&j, 4096, (kn_forecast_link){.bandwidth = 1e6});
    job_end(&j);
}

/* Before and after the first step, which makes the buckets. */
static void a_captured_step_is_refused_by_name(void **state) {
    (void)state;
    job j = job_new(NULL, false);
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    for (int n = 0; n < 3; n++) {
        assert_ok(kn_capture_begin(capture, NULL, 0));
        {
            KN_TAPE(.threads = 1);
            kn_tensor *w = kn_params_at(j.params, 0, NULL);
            assert_fails(kn_backward(kn_sum(w, KN_ALL, false)), KN_ERR_UNSUPPORTED,
                         "kn_forecast: inside a captured step");
        }
        kn_capture_cancel(capture);
        steps_run(&j, 1);
    }
    (void)of_ranks(&j, 2, (kn_forecast_link){.bandwidth = 1e6});
    kn_capture_destroy(capture);
    job_end(&j);
}

static void misuse_is_an_error_that_names_it(void **state) {
    (void)state;
    kn_forecast *none = NULL;
    kn_forecast_result r;
    const kn_forecast_link link = {.bandwidth = 1e9};
    assert_fails(kn_forecast_create(&none, NULL, NULL), KN_ERR_INVALID, "params is NULL");
    assert_fails(kn_forecast_create(NULL, NULL, NULL), KN_ERR_INVALID, "out is NULL");
    job j = job_new(NULL, false);
    assert_fails(kn_forecast_create(&none, j.params, &(kn_forecast_options){.n_values = -1}),
                 KN_ERR_INVALID, "n_values -1");
    assert_fails(kn_forecast_create(&none, j.params, &(kn_forecast_options){.reserved = {1}}),
                 KN_ERR_INVALID, "reserved");
    kn_forecast_begin(j.forecast);
    kn_forecast_backward_end(j.forecast);
    assert_fails(kn_forecast_end(j.forecast), KN_ERR_INVALID, "no kn_backward");
    steps_run(&j, 1);
    assert_fails(kn_forecast_ranks(&r, sizeof r, j.forecast, 2, &link), KN_ERR_INVALID,
                 "no step was timed");
    steps_run(&j, 1);
    assert_fails(kn_forecast_ranks(&r, sizeof r, j.forecast, 0, &link), KN_ERR_INVALID, "0 ranks");
    assert_fails(kn_forecast_ranks(&r, sizeof r, j.forecast, 2,
                                   &(kn_forecast_link){.bandwidth = (double)NAN}),
                 KN_ERR_INVALID, "bandwidth nan");
    assert_fails(kn_forecast_ranks(&r, sizeof r, j.forecast, 2,
                                   &(kn_forecast_link){.latency_seconds = (double)INFINITY}),
                 KN_ERR_INVALID, "latency inf s");
    assert_fails(kn_forecast_ranks(&r, sizeof r, j.forecast, 2,
                                   &(kn_forecast_link){.overhead_seconds = (double)INFINITY}),
                 KN_ERR_INVALID, "overhead inf s (0 to 1e9)");
    assert_fails(kn_forecast_ranks(&r, sizeof r, j.forecast, 2, NULL), KN_ERR_INVALID, "link");
    job_end(&j);
    {
        KN_FRAME(.record = KN_OFF);
        kn_params *params = NULL;
        assert_ok(kn_params_create(&params, NULL));
        assert_ok(kn_param_sparse(kn_param(params, KN_SHAPE(9, 2), (kn_init){0}, "words")));
        assert_fails(kn_forecast_create(&none, params, NULL), KN_ERR_UNSUPPORTED,
                     "words is row-sparse");
        kn_params_destroy(params);
    }
    kn_forecast_destroy(NULL);
}

int main(void) {
    return RUN_TESTS(
        TEST(a_reduction_sends_every_shard_twice), TEST(small_data_goes_whole_to_everyone),
        TEST(chunks_hide_each_others_latency), TEST(backward_hides_what_comes_before_its_end),
        TEST(a_bucket_that_backward_does_not_reach_waits_for_its_end),
        TEST(gradients_are_finished_by_the_last_pass),
        TEST(a_bucket_that_the_last_pass_does_not_reach_waits_for_its_end),
        TEST(a_step_without_backward_is_not_counted),
        TEST(a_step_whose_gradients_are_all_zeros_is_one),
        TEST(a_first_step_without_backward_is_an_error), TEST(a_captured_step_is_refused_by_name),
        TEST(misuse_is_an_error_that_names_it));
}
