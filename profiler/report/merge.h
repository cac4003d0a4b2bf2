/* Several profiles as one. */
#ifndef KN_REPORT_MERGE_H
#define KN_REPORT_MERGE_H

#include "report.h"

/* Adds the rows and counters of one more run: amounts are summed, of marks and fastest calls the
 * extremes stay. `into` is empty or a merged report; labels are copied. Errors: OOM. */
KN_MUST_CHECK kn_status kn__report_merge(kn__report *into, const kn__report *run);

#endif
