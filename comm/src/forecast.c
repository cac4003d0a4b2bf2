/* Forecasts: when the buckets of one rank's steps are complete, and what follows on more ranks. */
#include <inttypes.h>
#include <knet/forecast.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "now.h"
#include "parallel.h"

/* Times of a step, ns from its beginning: of the buckets, then these two. */
enum { BACKWARD_END, STEP_END, N_ENDS };

enum { SLICE_BYTES = 256 }; /* gradients begin at its multiples */

struct kn_forecast {
    kn_params *params; /* borrowed */
    kn_forecast_options options;
    kn__bucket *buckets;
    int n_buckets;
    const char *arena;
    size_t n_slices, item;
    bool *is_done; /* [n_slices]: the gradients that this pass finished, by their first slice */
    uint64_t began_ns;
    uint64_t begun; /* kn_params_begun, before this step */
    double *now;    /* [n_buckets + N_ENDS]: of this step */
    double *steps;  /* [n_steps][n_buckets + N_ENDS] */
    int64_t n_steps;
    double add_bandwidth;
};

static size_t n_times(const kn_forecast *f) { return (size_t)f->n_buckets + N_ENDS; }

static double elapsed(const kn_forecast *f) {
    return (double)(kn__now_ns(CLOCK_MONOTONIC) - f->began_ns);
}

/* --- a step --- */

static void pass_begin(kn_forecast *f) {
    for (int i = 0; i < f->n_buckets; i++) {
        f->buckets[i].n_left = f->buckets[i].n_params;
        f->now[i] = INFINITY;
    }
    if (f->n_slices) memset(f->is_done, 0, f->n_slices * sizeof *f->is_done);
}

/* A gradient that is finished again is a later pass's: the ones before it were not the last. */
static void gradient_ready(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    kn_forecast *f = ctx;
    if (kn_capture_records()) {
        (void)kn_error_defer(KN_FAIL(
            KN_ERR_UNSUPPORTED,
            "kn_forecast: inside a captured step, whose replays it would not hear: forecast "
            "the step without capture, or record it after kn_forecast_destroy"));
        return;
    }
    if (!f->buckets || !kn_tensor_numel(w)) return;
    const char *data = kn_data(gradient);
    if (!data) return;
    bool *is_done = &f->is_done[(data - f->arena) / SLICE_BYTES];
    if (*is_done) pass_begin(f);
    *is_done = true;
    kn__bucket *b = kn__bucket_of(f->buckets, f->n_buckets, (data - f->arena) / (int64_t)f->item);
    if (--b->n_left == 0) f->now[b - f->buckets] = elapsed(f);
}

void kn_forecast_begin(kn_forecast *forecast) {
    kn_forecast *f = forecast;
    pass_begin(f);
    f->begun = kn_params_begun(f->params);
    f->began_ns = kn__now_ns(CLOCK_MONOTONIC);
}

/* A bucket with a gradient that backward does not reach is reduced at its end. */
void kn_forecast_backward_end(kn_forecast *forecast) {
    kn_forecast *f = forecast;
    if (!f->buckets) return;
    double *end = f->now + f->n_buckets;
    end[BACKWARD_END] = elapsed(f);
    for (int i = 0; i < f->n_buckets; i++) f->now[i] = fmin(f->now[i], end[BACKWARD_END]);
}

/* A pass whose gradients are all zeros leaves the order open: a later one makes them. */
static kn_status buckets_make(kn_forecast *f) {
    kn_tensor *flat = kn_params_grad(f->params);
    if (!flat) return kn_check();
    int n = kn_params_count(f->params);
    int *order = malloc((size_t)n * sizeof *order + 1);
    kn__bucket *buckets = calloc((size_t)n + 1, sizeof *buckets);
    double *now = calloc((size_t)n + 1 + N_ENDS, sizeof *now);
    size_t n_slices = (size_t)kn_tensor_numel(flat) * f->item / SLICE_BYTES + 1;
    bool *is_done = calloc(n_slices, sizeof *is_done);
    kn_status status = KN_OK;
    if (order) kn_params_order(order, f->params);
    if (!order || !buckets || !now || !is_done)
        status = KN_FAIL(KN_ERR_OOM, "kn_forecast_end: no host memory");
    bool is_final = status == KN_OK && order && order[0] >= 0;
    if (is_final) {
        f->arena = kn_tensor_numel(flat) ? kn_data(flat) : NULL;
        status = kn__buckets_cut(buckets, &f->n_buckets, f->params, order, f->arena,
                                 f->options.bucket_bytes, 1);
    }
    free(order);
    if (is_final && status == KN_OK) {
        f->buckets = buckets;
        f->now = now;
        f->is_done = is_done;
        f->n_slices = n_slices;
        return KN_OK;
    }
    free(buckets);
    free(now);
    free(is_done);
    return status;
}

kn_status kn_forecast_end(kn_forecast *forecast) {
    kn_forecast *f = forecast;
    KN_TRY(kn_check());
    if (!f) return KN_FAIL(KN_ERR_INVALID, "kn_forecast_end: forecast is NULL");
    if (kn_params_begun(f->params) == f->begun || !kn_params_count(f->params))
        return KN_FAIL(KN_ERR_INVALID, "kn_forecast_end: there was no kn_backward");
    if (!f->buckets) return buckets_make(f);
    size_t n = n_times(f);
    f->now[f->n_buckets + STEP_END] = elapsed(f);
    double *steps = realloc(f->steps, (size_t)(f->n_steps + 1) * n * sizeof *steps);
    if (!steps) return KN_FAIL(KN_ERR_OOM, "kn_forecast_end: no host memory");
    memcpy(steps + (size_t)f->n_steps++ * n, f->now, n * sizeof *steps);
    f->steps = steps;
    return KN_OK;
}

/* --- the forecast --- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over the steps of a time, in seconds. */
static double median(const kn_forecast *f, double room[], int which) {
    for (int64_t s = 0; s < f->n_steps; s++)
        room[s] = f->steps[(size_t)s * n_times(f) + (size_t)which];
    qsort(room, (size_t)f->n_steps, sizeof *room, by_value);
    return 1e-9 * (room[(f->n_steps - 1) / 2] + room[f->n_steps / 2]) / 2;
}

/* A thread reduces the buckets one after the other, each once backward has finished it. */
static void step_follow(kn_forecast_result *out, const kn_forecast *f, double room[], int n_ranks,
                        const kn_forecast_link *link) {
    kn_dtype dtype = kn_params_dtype(f->params);
    double end = median(f, room, f->n_buckets + BACKWARD_END), at = 0, after = 0;
    for (int i = 0; i < f->n_buckets; i++) {
        double ready = median(f, room, i), took = 0;
        int64_t n = f->buckets[i].end - f->buckets[i].begin;
        kn__cost_all_reduce(&took, &out->n_messages, n, dtype, n_ranks, link);
        at = fmax(at, ready) + took;
        out->reduce_seconds += took;
        out->bytes += (uint64_t)n * f->item;
    }
    out->wait_seconds = n_ranks > 1 ? fmax(0, at - end) : 0;
    kn__cost_all_reduce(&after, &out->n_messages, f->options.n_values, KN_F64, n_ranks, link);
    out->alone_seconds = median(f, room, f->n_buckets + STEP_END);
    out->step_seconds = out->alone_seconds + out->wait_seconds + after;
    out->n_buckets = f->n_buckets;
}

static kn_status link_check(const kn_forecast *f, int n_ranks, const kn_forecast_link *l) {
    if (!f || !l)
        return KN_FAIL(KN_ERR_INVALID, "kn_forecast_ranks: %s is NULL", f ? "link" : "forecast");
    for (int i = 0; i < 4; i++)
        if (l->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_forecast_link: reserved is not zero");
    if (n_ranks < 1 || n_ranks > 4096 || !(l->bandwidth >= 0) || !(l->latency_seconds >= 0) ||
        l->latency_seconds > 1e9 || !(l->overhead_seconds >= 0) || l->overhead_seconds > 1e9 ||
        !(l->add_bandwidth >= 0))
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_forecast_ranks: %d ranks (1 to 4096), bandwidth %g, latency %g s, "
                       "overhead %g s (0 to 1e9), additions %g",
                       n_ranks, l->bandwidth, l->latency_seconds, l->overhead_seconds,
                       l->add_bandwidth);
    if (!f->n_steps)
        return KN_FAIL(KN_ERR_INVALID, "kn_forecast_ranks: no step was timed after the first");
    return KN_OK;
}

kn_status kn_forecast_ranks(kn_forecast_result *out, size_t out_bytes, const kn_forecast *forecast,
                            int n_ranks, const kn_forecast_link *link) {
    kn_forecast_result result = {0};
    KN_TRY(link_check(forecast, n_ranks, link));
    double *room = malloc((size_t)forecast->n_steps * sizeof *room);
    if (!room) return KN_FAIL(KN_ERR_OOM, "kn_forecast_ranks: no host memory");
    kn_forecast_link l = *link;
    if (l.add_bandwidth == 0) l.add_bandwidth = forecast->add_bandwidth;
    step_follow(&result, forecast, room, n_ranks, &l);
    free(room);
    memset(out, 0, out_bytes);
    memcpy(out, &result, out_bytes < sizeof result ? out_bytes : sizeof result);
    return KN_OK;
}

/* --- life cycle --- */

static kn_status params_check(kn_params *params) {
    if (!params) return KN_FAIL(KN_ERR_INVALID, "kn_forecast_create: params is NULL");
    if (kn_device_kind_get(kn_params_device(params)) != KN_DEVICE_HOST)
        return KN_FAIL(KN_ERR_DEVICE,
                       "kn_forecast_create: the parameters are on %s, not on the host",
                       kn_device_name(kn_params_device(params)));
    for (int i = 0; i < kn_params_count(params); i++) {
        const char *name = NULL;
        if (kn_param_is_sparse(kn_params_at(params, i, &name)))
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "kn_forecast_create: the gradient of %s is row-sparse, which ranks "
                           "cannot average",
                           name);
    }
    return KN_OK;
}

kn_status kn_forecast_create(kn_forecast **out, kn_params *params,
                             const kn_forecast_options *options) {
    kn_forecast_options o = options ? *options : (kn_forecast_options){0};
    KN_TRY(kn_check());
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_forecast_create: out is NULL");
    for (int i = 0; i < 4; i++)
        if (o.reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_forecast_options: reserved is not zero");
    if (o.bucket_bytes < 0 || o.n_values < 0)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_forecast_options: bucket_bytes %" PRId64 ", n_values %" PRId64,
                       o.bucket_bytes, o.n_values);
    KN_TRY(params_check(params));
    kn_forecast *f = calloc(1, sizeof *f);
    if (!f) return KN_FAIL(KN_ERR_OOM, "kn_forecast_create: no host memory");
    if (!o.bucket_bytes) o.bucket_bytes = KN__BUCKET_BYTES;
    f->params = params;
    f->options = o;
    f->item = kn_dtype_bytes(kn_params_dtype(params));
    f->add_bandwidth = kn__cost_add_bandwidth();
    f->begun = kn_params_begun(params);
    kn_params_on_grad(params, gradient_ready, f);
    *out = f;
    return KN_OK;
}

void kn_forecast_destroy(kn_forecast *forecast) {
    if (!forecast) return;
    kn_params_on_grad(forecast->params, NULL, NULL);
    free(forecast->buckets);
    free(forecast->now);
    free(forecast->is_done);
    free(forecast->steps);
    free(forecast);
}
