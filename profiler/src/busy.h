/* When each GPU was busy: the union of its work over all streams, and the work of each stream.
 *
 * Records come in any order, so the union keeps its latest intervals, disjoint and in order of
 * time. When there are too many, the older half is summed up; work that begins before the end of
 * the intervals summed up count from there on.
 */
#ifndef KN_PROFILER_BUSY_H
#define KN_PROFILER_BUSY_H

#include "report.h"

/* Adds one piece of work. Calls come one at a time, as does that of the reader. */
void kn__busy_add(uint32_t device, uint32_t stream, uint64_t start_ns, uint64_t end_ns);
void kn__busy_read(kn__gpu_use *out);
/* Forgets all; for tests. */
void kn__busy_reset(void);

#endif
