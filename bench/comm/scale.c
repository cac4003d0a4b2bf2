/* comm/scale_error: how far forecasts of steps on 2, 4, 8 and 16 ranks are from simulated ranks, at
 * the worst. The ranks' layers sleep, in forward and in backward: so many ranks don't compute on
 * few processors. The links are such that reductions take from half of backward to three times as
 * long. */
#include <knet/forecast.h>
#include <knet/ops.h>
#include <knet/parallel.h>
#include <knet/tape.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scale.h"

enum { LAYERS = 6, RANKS_MAX = 16, STEPS = 5, BUCKET_BYTES = 128 << 10 };

static void check(kn_status status) {
    if (status >= 0) return;
    fprintf(stderr, "bench_comm: %s\n", kn_last_error()->message);
    exit(1);
}

/* --- a net that sleeps --- */

static kn_status nap(void) {
    const struct timespec time = {0, 15 * 1000 * 1000};
    return nanosleep(&time, NULL) ? KN_FAIL(KN_ERR_INTERNAL, "woken") : KN_OK;
}

static kn_status nap_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    KN_TRY(nap());
    *y = kn_affine(x[0], 1, 0);
    return kn_check();
}

static kn_status nap_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    KN_TRY(nap());
    dx[0] = kn_affine(dy, 1, 0);
    return kn_check();
}

static const kn_rule nap_rule = {.name = "nap", .forward = nap_forward, .backward = nap_backward};

static kn_status params_make(kn_params **out, const int width[LAYERS + 1]) {
    KN_TRY(kn_params_create(out, NULL));
    for (int i = 0; i < LAYERS; i++)
        kn_param(*out, KN_SHAPE(width[i + 1], width[i]), kn_init_xavier(), "w%d", i);
    return kn_check();
}

static kn_tensor *loss_of(kn_params *params, int width) {
    kn_tensor *x = kn_full(KN_SHAPE(1, width), 0.01);
    for (int i = 0; i < LAYERS; i++) {
        x = kn_linear(x, kn_params_at(params, i, NULL), KN_NONE);
        x = kn_apply(&nap_rule, &x, 1, NULL, NULL);
    }
    return kn_sum(x, KN_ALL, false);
}

/* --- measured --- */

typedef struct rank {
    const int *width;
    kn_comm *comm;
    double seconds; /* the median step */
} rank;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static kn_status step(kn_params *params, kn_optim *optim, kn_parallel *parallel, int width) {
    double value = 0;
    {
        KN_TAPE(.threads = 1);
        kn_tensor *loss = loss_of(params, width);
        KN_TRY(kn_check());
        KN_TRY(kn_backward(loss));
        KN_TRY(kn_parallel_finish(parallel));
        KN_TRY(kn_optim_step(optim));
    }
    return kn_comm_values(kn_parallel_comm(parallel), &value, 1, KN_COMM_MAX);
}

static void *rank_run(void *of) {
    rank *r = of;
    kn_params *params = NULL;
    kn_optim *optim = NULL;
    kn_parallel *parallel = NULL;
    double seconds[STEPS];
    check(params_make(&params, r->width));
    check(kn_parallel_create(&parallel, params, r->comm,
                             &(kn_parallel_options){.bucket_bytes = BUCKET_BYTES}));
    check(kn_sgd_create(&optim, params, 1e-3, NULL));
    for (int i = -2; i < STEPS; i++) {
        uint64_t begin = bench_now_ns();
        check(step(params, optim, parallel, r->width[0]));
        if (i >= 0) seconds[i] = 1e-9 * (double)(bench_now_ns() - begin);
    }
    qsort(seconds, STEPS, sizeof *seconds, by_value);
    r->seconds = seconds[STEPS / 2];
    kn_parallel_destroy(parallel);
    kn_optim_destroy(optim);
    kn_params_destroy(params);
    return NULL;
}

static double measured(const int *width, int n, const kn_comm_sim_options *sim) {
    pthread_t thread[RANKS_MAX];
    kn_comm *comm[RANKS_MAX];
    rank ranks[RANKS_MAX];
    check(kn_comm_sim_create(comm, n, sim));
    for (int r = 0; r < n; r++) {
        ranks[r] = (rank){width, comm[r], 0};
        if (pthread_create(&thread[r], NULL, rank_run, &ranks[r]) != 0) exit(1);
    }
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) kn_comm_destroy(comm[r]);
    return ranks[0].seconds;
}

/* --- forecast --- */

typedef struct alone {
    kn_params *params;
    kn_forecast *forecast;
} alone;

static alone alone_run(const int *width) {
    alone a = {NULL, NULL};
    kn_optim *optim = NULL;
    check(params_make(&a.params, width));
    check(kn_sgd_create(&optim, a.params, 1e-3, NULL));
    check(kn_forecast_create(&a.forecast, a.params,
                             &(kn_forecast_options){.bucket_bytes = BUCKET_BYTES, .n_values = 1}));
    for (int i = 0; i < STEPS + 1; i++) {
        KN_TAPE(.threads = 1);
        kn_forecast_begin(a.forecast);
        kn_tensor *loss = loss_of(a.params, width[0]);
        check(kn_check());
        check(kn_backward(loss));
        kn_forecast_backward_end(a.forecast);
        check(kn_optim_step(optim));
        check(kn_forecast_end(a.forecast));
    }
    kn_optim_destroy(optim);
    return a;
}

/* A link on which reductions between two ranks take `share` of the naps in backward. */
static double worst_of(const int *width, double share, double latency, double *error) {
    double bytes = 0;
    for (int i = 0; i < LAYERS; i++) bytes += 4.0 * width[i] * width[i + 1];
    kn_comm_sim_options sim = {.bandwidth = bytes / (share * LAYERS * 0.015),
                               .latency_seconds = latency};
    kn_forecast_link link = {.bandwidth = sim.bandwidth, .latency_seconds = latency};
    alone a = alone_run(width);
    for (int n = 2; n <= RANKS_MAX; n *= 2) {
        kn_forecast_result f;
        check(kn_forecast_ranks(&f, sizeof f, a.forecast, n, &link));
        double real = measured(width, n, &sim), off = fabs(f.step_seconds / real - 1);
        fprintf(stderr,
                "%2d ranks, %.3g GB/s, %3.0f us: forecast %.2f ms, measured %.2f ms, %4.1f %% off "
                "(alone %.2f ms, %d buckets)\n",
                n, 1e-9 * sim.bandwidth, 1e6 * latency, 1e3 * f.step_seconds, 1e3 * real, 100 * off,
                1e3 * f.alone_seconds, (int)f.n_buckets);
        if (off > *error) *error = off;
    }
    kn_forecast_destroy(a.forecast);
    kn_params_destroy(a.params);
    return *error;
}

void bench_scale(void) {
    static const int even[] = {256, 256, 256, 256, 256, 256, 256},
                     uneven[] = {64, 1024, 1024, 256, 256, 128, 64};
    double error = 0;
    worst_of(even, 0.5, 0, &error);
    worst_of(even, 1.5, 50e-6, &error);
    worst_of(uneven, 3, 1e-3, &error);
    bench_emit("comm", "scale_error", error, "share", 0.1);
}
