/* The table: a report as text, in the layout of TimerOutputs of 2018, with columns beside it for
 * GPU time and for the high-water mark of memory.
 */
#ifndef KN_REPORT_TABLE_H
#define KN_REPORT_TABLE_H

#include "cells.h"
#include "report.h"

typedef struct kn__table_options {
    int width;         /* of the terminal; 0: as wide as need be */
    int depth, top;    /* levels shown, and rows of each; 0: all */
    double min;        /* percent: rows with less are summed up; 0: all, each on its own line */
    bool ascii;        /* lines of '-', "us" */
    bool columns_2018; /* the columns of 2018 alone, amounts below 1000 bytes as "-" */
    bool spread;       /* shortest, longest and first call, and the deviation, too */
    bool bare;         /* no lines above and below the table */
} kn__table_options;

#define KN__TABLE_MIN 0.1 /* percent: the minimum where none is given */

/* Appends the table; the report is sorted already. A row that ends in + has GPU work whose time is
 * not known yet. Too narrow a terminal first costs the columns of averages and percentages, then
 * the ends of labels, then the columns of memory, of the GPU and of own time. */
void kn__table_add(kn__text *text, const kn__report *report, const kn__table_options *options);

#endif
