/* Values of the program that change over time, such as a length of a queue or a loss, in the
 * timer's report.
 *
 *     static kn_prof_counter *queued;                // one for each value
 *     kn_prof_counter_options options = {.unit = "jobs"};
 *     queued = kn_prof_counter_get("queue", &options);
 *     ...
 *     kn_prof_counter_sample(queued, (double)queue_length(queue));
 *
 * Below the table each counter has a line with the number of its samples, the first and the last
 * one, the least, the mean and the most; JSON, the page and metrics have the same. A trace and
 * the timeline of the page have each sample. `knet run` receives the counters of NVTX so.
 *
 * Errors: none; a value that can't be recorded is counted, and the report shows the count. Threads:
 * any; samples of one counter wait for each other. No-op in a child of fork().
 */
#ifndef KNET_PROF_COUNTER_H
#define KNET_PROF_COUNTER_H

#include <knet/prof.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The samples of one value. */
typedef struct kn_prof_counter kn_prof_counter;

/* What a counter means; a field that is 0 is not known. */
typedef struct kn_prof_counter_options {
    const char *unit;            /* "W", "MiB/s"; at most 15 bytes are kept */
    double limit_min, limit_max; /* the report counts values outside; both 0: no limits */
} kn_prof_counter_options;

/* Not for users. */
KN_API kn_prof_counter *kn_prof_counter_get_on_(const char *name,
                                                const kn_prof_counter_options *options);

typedef struct kn_prof_sample_ {
    kn_prof_counter *counter;
    bool is_change;
    long double value; /* exact for every number of 64 bits */
} kn_prof_sample_;

/* Samples of one moment. */
KN_API void kn_prof_counters_take_(const kn_prof_sample_ *samples, int n);

/* The counter of this name, of at most 63 bytes, made at first sight with these options (NULL: all
 * zero); it lives as long as the process. In names and units '?' replaces control characters and
 * bytes that are not UTF-8. NULL if the timer is off, or if there are too many (256). */
static inline kn_prof_counter *kn_prof_counter_get(const char *name,
                                                   const kn_prof_counter_options *options) {
    bool is_on = kn_prof_is_on_(KN_PROF_ALL_ | KN_PROF_GRAD_ | KN_PROF_STEPS_);
    return is_on ? kn_prof_counter_get_on_(name, options) : NULL;
}

/* Records a value. Infinities and NaN are samples without a value. Takes a lock of the counter, so
 * a signal's handler must not call it. With the counter NULL the sample is counted as lost. */
KN_API void kn_prof_counter_sample(kn_prof_counter *counter, double value);

/* Records the last value plus `by`; the first one is `by` itself. */
KN_API void kn_prof_counter_add(kn_prof_counter *counter, double by);

/* The same for whole numbers, which stay exact: a double has them up to 2^53. */
KN_API void kn_prof_counter_sample_int64(kn_prof_counter *counter, int64_t value);
KN_API void kn_prof_counter_add_int64(kn_prof_counter *counter, int64_t by);

/* Records that the value is not known now. */
KN_API void kn_prof_counter_miss(kn_prof_counter *counter);

#ifdef __cplusplus
}
#endif
#endif
