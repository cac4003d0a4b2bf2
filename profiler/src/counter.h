/* The counters of the program, for reports. */
#ifndef KN_PROFILER_COUNTER_H
#define KN_PROFILER_COUNTER_H

#include <knet/prof_counter.h>

#include "report.h"

/* Counts samples from now on; false: never again, and takes no lock. */
void kn__counters_follow(bool on);

/* Copies all counters into the report. Errors: OOM. */
KN_MUST_CHECK kn_status kn__counters_take(kn__report *out);

/* Whether there are samples to report. */
bool kn__counters_exist(void);

#endif
