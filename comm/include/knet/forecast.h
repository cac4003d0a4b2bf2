/* Forecasts of data-parallel training: what a step takes on more ranks, from the times of one
 * rank's steps and from the messages that the collectives of <knet/comm.h> send.
 *
 *     kn_forecast *forecast = NULL;
 *     KN_TRY(kn_forecast_create(&forecast, params, NULL));
 *     for some steps:
 *         kn_forecast_begin(forecast);
 *         KN_TRY(kn_backward(loss));                      // notes when gradients are finished
 *         kn_forecast_backward_end(forecast);             // where kn_parallel_finish would be
 *         KN_TRY(kn_optim_step(optim));
 *         KN_TRY(kn_forecast_end(forecast));
 *     KN_TRY(kn_forecast_ranks(&result, sizeof result, forecast, 64, &link));
 *
 * The ranks have equal batches and equal machines; each sends over one link, as in
 * kn_comm_sim_create, and nothing else slows the links. A step waits for the gradients that
 * backward did not hide, and for the numbers of kn_comm_values. A captured step (capture.h) of the
 * parameters can't be recorded meanwhile: its kn_backward returns UNSUPPORTED. Threads: one at a
 * time.
 */
#ifndef KNET_FORECAST_H
#define KNET_FORECAST_H

#include <knet/param.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Times of the steps of one rank. */
typedef struct kn_forecast kn_forecast;

/* Options of kn_forecast_create; may be NULL. */
typedef struct kn_forecast_options {
    int64_t bucket_bytes; /* as of kn_parallel_options; 0: 1 MiB */
    int64_t n_values;     /* numbers that the ranks combine after a step; in kn_train 1 */
    uint64_t reserved[4]; /* zero */
} kn_forecast_options;

/* Takes the hook of kn_params_on_grad. Borrows params until it is destroyed. Errors: DEVICE for
 * parameters that are not on the host; UNSUPPORTED for row-sparse gradients; INVALID. */
KN_API KN_MUST_CHECK kn_status kn_forecast_create(kn_forecast **out, kn_params *params,
                                                  const kn_forecast_options *options);
/* Destroys it, and leaves the hook empty. No-op on NULL. */
KN_API void kn_forecast_destroy(kn_forecast *forecast);

/* A step begins here; its last backward pass and the step end here. A pass that finishes a gradient
 * again is a later one: what finished before it doesn't count, as with kn_parallel_sync. The first
 * step with a gradient that is not zero learns their order; the steps up to it are not counted.
 * Errors: INVALID if there was no kn_backward since kn_forecast_begin, nor a kn_params_grad_zero or
 * kn_params_grad_begin, which count as passes of zeros; OOM. */
KN_API void kn_forecast_begin(kn_forecast *forecast);
KN_API void kn_forecast_backward_end(kn_forecast *forecast);
KN_API KN_MUST_CHECK kn_status kn_forecast_end(kn_forecast *forecast);

/* What connects the ranks. */
typedef struct kn_forecast_link {
    double bandwidth;        /* of each rank's link, bytes per second; 0: no limit */
    double latency_seconds;  /* of each message */
    double overhead_seconds; /* of the processor, for each message that is sent or received */
    double add_bandwidth;    /* bytes per second that a rank reads as it adds; 0: measured here */
    uint64_t reserved[4];    /* zero */
} kn_forecast_link;

/* A forecast, in seconds. */
typedef struct kn_forecast_result {
    double step_seconds;   /* of a step on these ranks */
    double alone_seconds;  /* of a step of one rank: the median */
    double reduce_seconds; /* of all reductions of gradients */
    double wait_seconds;   /* of these, how long backward's end waits: 1 - wait/reduce is hidden */
    int64_t n_buckets;     /* of gradients */
    uint64_t bytes;        /* of gradients */
    uint64_t n_messages;   /* that a rank sends in a step */
} kn_forecast_result;
/* Fills `out` (of out_bytes = sizeof *out), for 1 to 4096 ranks. The efficiency is alone_seconds /
 * step_seconds. Errors: INVALID without a counted step, for another number of ranks, and for values
 * that no link has. */
KN_API KN_MUST_CHECK kn_status kn_forecast_ranks(kn_forecast_result *out, size_t out_bytes,
                                                 const kn_forecast *forecast, int n_ranks,
                                                 const kn_forecast_link *link);

#include <knet/sites/forecast.h>

#ifdef __cplusplus
}
#endif
#endif
