/* A report in Prometheus's text format, version 0.0.4: node_exporter's textfile collector reads it.
 */
#ifndef KN_REPORT_METRICS_H
#define KN_REPORT_METRICS_H

#include "report.h"
#include "text.h"

/* Appends the run, the rows by path, the pools, the GPUs and the counters. */
void kn__metrics_add(kn__text *text, const kn__report *report);

#endif
