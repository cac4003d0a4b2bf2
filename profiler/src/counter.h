/* The counters of the program, for reports. */
#ifndef KN_PROFILER_COUNTER_H
#define KN_PROFILER_COUNTER_H

#include <knet/prof_counter.h>

#include "report.h"
#include "trace_format.h"

/* Counts samples from now on; false: never again, and takes no lock. */
void kn__counters_follow(bool on);

/* Counts a sample; one of the counter NULL counts as lost. `at`: ticks for a trace, 0 without one.
 * True: the trace gets `event`; of two threads that sample at once the later value has the later
 * time. */
bool kn__counter_sample(kn__trace_event *event, const kn_prof_sample_ *sample, uint64_t at);

/* Copies all counters into the report. Errors: OOM. */
KN_MUST_CHECK kn_status kn__counters_take(kn__report *out);

/* Whether there are samples to report. */
bool kn__counters_exist(void);

#endif
