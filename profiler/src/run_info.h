/* What runs: the command, the machine, the words. */
#ifndef KN_PROFILER_RUN_INFO_H
#define KN_PROFILER_RUN_INFO_H

#include "env.h"
#include "report.h"

/* Fills in the known fields; texts live as long as the report. */
void kn__run_info_read(kn__report *report, const kn__config *config);

#endif
