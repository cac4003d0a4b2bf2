/* Traces as events in JSON, which chrome://tracing reads: ours, PyTorch's (Kineto) and those of
 * other tools. */
#ifndef KN_REPORT_READ_TRACE_H
#define KN_REPORT_READ_TRACE_H

#include "timeline.h"

struct cJSON;

/* Whether the value has such events: a list of them, or an object with "traceEvents". */
bool kn__events_are(const struct cJSON *json);

/* Adds the events to the timeline. `name` (of the file) is for messages. Errors: FORMAT, naming the
 * event and its defect; OOM. */
KN_MUST_CHECK kn_status kn__events_read(kn__timeline *line, const char *name,
                                        const struct cJSON *json);

#endif
