/* Reports for `knet top`, which looks at the running program (live_page.h). */
#ifndef KN_PROFILER_LIVE_H
#define KN_PROFILER_LIVE_H

#include "text.h"

/* Makes the page and a thread that sleeps until a reader asks; `report` adds a report as JSON, on
 * that thread. What the system doesn't allow is left out silently. */
void kn__live_start(void (*report)(kn__text *text));
/* Before the last report. */
void kn__live_stop(void);
/* In a forked child: the thread is the parent's. */
void kn__live_forget(void);

#endif
