/* Several profiles as one. */
#ifndef KN_REPORT_MERGE_H
#define KN_REPORT_MERGE_H

#include "report.h"

/* Adds the rows, pools and counters of one more run: amounts are summed, high-water marks are the
 * highest, fastest calls the fastest; the owners of memory are those of the run with the highest
 * mark. Live bytes over time are left out: each run has its own time. `into` is empty or a merged
 * report; labels are copied. Errors: OOM. */
KN_MUST_CHECK kn_status kn__report_merge(kn__report *into, const kn__report *run);

#endif
