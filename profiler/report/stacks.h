/* A report for two other programs: speedscope and Hatchet. */
#ifndef KN_REPORT_STACKS_H
#define KN_REPORT_STACKS_H

#include "report.h"
#include "text.h"

/* The file format of speedscope.app: a sampled profile whose samples are the rows, each with its
 * own time in ns; others of GPU time and of bytes allocated where there are some. Rows of one label
 * and place are one frame. */
void kn__speedscope_add(kn__text *text, const kn__report *report);

/* The literal format that Hatchet and Proton's viewer read: one root, frames with metrics, in ns
 * and bytes. "time (ns)" is GPU time, as Proton has it; "time" that of the CPU. */
void kn__hatchet_add(kn__text *text, const kn__report *report);

#endif
