/* The timeline of an HTML page: a lane for each thread and for each stream of a GPU. */
#ifndef KN_REPORT_HTML_TIMELINE_H
#define KN_REPORT_HTML_TIMELINE_H

#include "html_page.h"
#include "timeline.h"

/* The page shows no more blocks; of more events the short ones that are side by side are joined. */
enum { KN__HTML_BLOCKS_MAX = 20000 };

/* Adds the lanes, of a timeline in order (kn__timeline_sort):
 * "timeline":{"wall":NS,"grain":NS,"events":N,"cut":N,"before":N,
 * "lanes":[[name,kind,[blocks]],...]}; counters follow (html_counters.h).
 * kind 1: a GPU's. A block is five numbers: ns since the start of the block before it in the lane,
 * ns that it lasts, the number of its label, its depth, and how many events it is. Of several
 * events the label is the longest one's. "grain": events that last less may be joined; "cut":
 * events too deep to be shown; "before": earlier ones that were not kept. */
void kn__html_timeline_add(kn__page *p, const kn__timeline *line);

#endif
