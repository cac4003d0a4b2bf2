/* Parts of a report: by text, by size, or without its tree. */
#ifndef KN_REPORT_SELECT_H
#define KN_REPORT_SELECT_H

#include "report.h"

/* Keeps the rows whose path ("train/forward/conv") has the text in it or fits it as an extended
 * regular expression, with the rows below them; returns how many fit. Rows above them stay as
 * their path, with their sums and no calls. Totals stay those of the run. */
int kn__report_filter(kn__report *report, const char *pattern);

/* At every level the first n rows, and one that sums up the others. The report is sorted already.
 * Errors: OOM. */
KN_MUST_CHECK kn_status kn__report_top(kn__report *report, int n);

/* One level: a row for each label, with the own values of the rows of this label, without the rows
 * below them; peaks are the highest. `out` borrows the labels of `report`. Errors: OOM;
 * `out` is to be released then too. */
KN_MUST_CHECK kn_status kn__report_flatten(kn__report *out, const kn__report *report);

#endif
