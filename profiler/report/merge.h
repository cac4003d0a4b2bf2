/* Several profiles as one. */
#ifndef KN_REPORT_MERGE_H
#define KN_REPORT_MERGE_H

#include "report.h"

/* Adds the rows, pools and counters of one more run: amounts are summed, of marks and fastest calls
 * the extremes stay; who held the memory at its mark is told of the run with the highest one. Live
 * bytes over time are left out: runs have no time in common. `into` is empty or a merged report;
 * labels are copied. Errors: OOM. */
KN_MUST_CHECK kn_status kn__report_merge(kn__report *into, const kn__report *run);

#endif
