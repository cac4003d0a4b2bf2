/* Reports for functions of the library. */
#ifndef KN_PROFILER_READOUT_H
#define KN_PROFILER_READOUT_H

#include "report.h"

/* Calls fn for a report of now, which is released after it; `who` is for messages. One at a time.
 */
kn_status kn__prof_with_report(const char *who, kn_status (*fn)(void *ctx, kn__report **report),
                               void *ctx);

#endif
