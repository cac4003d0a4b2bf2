/* Reports of the running program. Taking one never stops a thread: an open scope is
 * read with the time that it has spent so far. One at a time: each shows no less than the one
 * before.
 */
#ifndef KN_PROFILER_TAKE_H
#define KN_PROFILER_TAKE_H

#include "report.h"
#include "tree.h"

/* Merges all trees; scopes that are open are taken as ending at `now`, in ticks. Errors: OOM; `out`
 * is to be released then too. */
KN_MUST_CHECK kn_status kn__report_take(kn__report *out, uint64_t now, double tick_ns);
/* The same of one thread's tree alone, without rows that belong to no thread. */
KN_MUST_CHECK kn_status kn__report_take_tree(kn__report *out, const kn__tree *tree, uint64_t now,
                                             double tick_ns);

#endif
