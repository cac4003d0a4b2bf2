/* The last events of a trace, for the timeline of a page: those that fit an eighth of the timer's
 * memory (KNET_TIMER=buf=), and KN__KEPT_MAX pieces of GPU work. Under the lock of the trace. */
#ifndef KN_PROFILER_TRACE_SHOWN_H
#define KN_PROFILER_TRACE_SHOWN_H

#include "timeline.h"

/* Keeps the scopes and samples of a thread, in the order of their ends; the oldest ones go where
 * there is no room. */
void kn__shown_events(const kn__trace_thread *thread, const kn__trace_event *events, size_t n);
/* The same of GPU work; `launch` is not kept. */
void kn__shown_record(const kn__record *record, uint32_t launch);

/* Adds the kept events, counts the dropped ones, and sorts the timeline. Errors: OOM. */
KN_MUST_CHECK kn_status kn__shown_add(kn__timeline *line, const kn__trace_clock *clock, long pid);
/* Forgets all. */
void kn__shown_release(void);

#endif
