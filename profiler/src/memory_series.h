/* Live bytes over time, in bounded room: bins of so many changes each, and twice as many whenever
 * there are too many bins. A bin keeps its highest value, so no peak is lost; the clock is read
 * when a bin ends and at a new maximum, not at every change.
 */
#ifndef KN_PROFILER_MEMORY_SERIES_H
#define KN_PROFILER_MEMORY_SERIES_H

#include "report.h"

/* Live bytes changed to `live`. `counts`: it may be the highest value. One caller at a time, as for
 * the next. */
void kn__series_add(int64_t live, bool counts);
/* The highest value is `live`, and of this moment, until a higher one counts. */
void kn__series_mark(int64_t live);
/* A copy, in ticks, the bin that is not full yet included. */
void kn__series_read(kn__series *out);

#endif
