/* A report as OpenMetrics text, which Prometheus and its relatives read. */
#ifndef KN_REPORT_METRICS_H
#define KN_REPORT_METRICS_H

#include "report.h"
#include "text.h"

/* Appends the run, the rows by path, the pools, the GPUs and the counters; it ends in "# EOF". */
void kn__metrics_add(kn__text *text, const kn__report *report);

#endif
