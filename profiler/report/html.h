/* A report as one HTML page with nothing outside it: flame graph, tree, memory over time. */
#ifndef KN_REPORT_HTML_H
#define KN_REPORT_HTML_H

#include "report.h"
#include "text.h"

/* Appends the page. Times are in nanoseconds in its data; a browser draws the rest. */
void kn__html_add(kn__text *text, const kn__report *report);

#endif
