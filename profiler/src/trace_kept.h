/* GPU work that a trace of the last steps may write or forget: as much of it as there is room for,
 * the newest. Under the lock of the trace. */
#ifndef KN_PROFILER_TRACE_KEPT_H
#define KN_PROFILER_TRACE_KEPT_H

#include "activity.h"

enum { KN__KEPT_MAX = 1 << 14 };

/* Keeps a copy; the oldest one goes where there is no room. False: there is no memory. */
bool kn__kept_add(const kn__record *record, uint32_t launch);
/* Hands over those that ended at from_ns (of CLOCK_REALTIME) or later, in order, and forgets all.
 */
void kn__kept_take(uint64_t from_ns, void (*fn)(const kn__record *record, uint32_t launch));
void kn__kept_release(void);

#endif
