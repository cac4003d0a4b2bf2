/* The counters of an HTML page: a table of them, and their samples in the timeline. */
#ifndef KN_REPORT_HTML_COUNTERS_H
#define KN_REPORT_HTML_COUNTERS_H

#include "html_page.h"
#include "timeline.h"

/* The page shows so many samples in all; of more, the least, the most and the last one of a grain
 * of time are kept. */
enum { KN__HTML_SAMPLES_MAX = 20000 };

/* Adds "counters":[[name,unit,samples,without a value,min,mean,max,last],...] and how many more
 * there were; a counter without a value ends at its second count. Nothing without counters. */
void kn__html_counters_add(kn__page *p, const kn__report *report);

/* Adds what the timeline has of them, in order (kn__timeline_sort):
 * "samples":N,"samples_grain":NS,"counters":[[name,unit,[ns since the sample
 * before,value,...]],...]; grain 0: every sample. */
void kn__html_samples_add(kn__page *p, const kn__timeline *line);

#endif
