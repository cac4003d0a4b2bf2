/* The lines above and below a table, each within its width. */
#ifndef KN_REPORT_NOTES_H
#define KN_REPORT_NOTES_H

#include "lines.h"
#include "table.h"

/* Above: the balance of records, the run, the GPUs, the rows left out, and the pools. */
void kn__notes_add_head(kn__text *text, const kn__report *report, const kn__table_options *options);
/* Below: how to read the table, the counters, the owners of memory at its peak, and the leaks. */
void kn__notes_add_foot(kn__text *text, const kn__report *report, const kn__table_lines *lines,
                        bool has_peaks, const kn__table_options *options);
/* Whether there is memory to tell of. */
bool kn__report_used_memory(const kn__report *report);

#endif
