/* Where memory went: the high-water mark, who owned it, and a graph of live bytes over time. */
#ifndef KN_REPORT_HOLDERS_H
#define KN_REPORT_HOLDERS_H

#include "cells.h"
#include "report.h"

typedef struct kn__memory_view {
    int width;            /* columns; 0: 100 */
    int height;           /* lines of the graph; 0: 12 */
    int owners;           /* at most; 0: 10 */
    uint64_t limit_bytes; /* which batch would fit into it; 0: not asked */
    bool ascii;
} kn__memory_view;

void kn__memory_add(kn__text *text, const kn__report *report, const kn__memory_view *view);

#endif
