/* A report for two other programs: speedscope and Hatchet. */
#ifndef KN_REPORT_STACKS_H
#define KN_REPORT_STACKS_H

#include "report.h"
#include "text.h"

/* The file format of speedscope.app: a sampled profile whose samples are the rows, each with its
 * own time in ns; a second one of GPU time where there is some. */
void kn__speedscope_add(kn__text *text, const kn__report *report);

/* The literal format that Hatchet reads and Proton writes: frames with metrics, in ns and bytes. */
void kn__hatchet_add(kn__text *text, const kn__report *report);

#endif
