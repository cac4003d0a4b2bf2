/* What runs: the command, the machine, the words. */
#ifndef KN_PROFILER_RUN_INFO_H
#define KN_PROFILER_RUN_INFO_H

#include "env.h"
#include "report.h"

/* Fills in the known fields; texts live as long as the report. */
void kn__run_info_read(kn__report *report, const kn__config *config);

/* The program's notes now, "key=value, key=value"; false: it has none, and `out` is not written. */
enum { KN__NOTES_BYTES = 2624 };
bool kn__notes_read(char out[KN__NOTES_BYTES]);

#endif
