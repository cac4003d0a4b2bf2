/* A report in the formats of other tools: CSV for spreadsheets, folded stacks and a flame graph.
 */
#ifndef KN_REPORT_EXPORT_H
#define KN_REPORT_EXPORT_H

#include "cells.h"
#include "report.h"

/* What the width of a row means in stacks and flame graphs. */
typedef enum kn__weight { KN__WEIGHT_TIME, KN__WEIGHT_GPU, KN__WEIGHT_ALLOC } kn__weight;

/* What a row has without the rows inside: nanoseconds or bytes. */
uint64_t kn__row_own(const kn__row *row, kn__weight weight);

/* A line a row, parents before their children, with a head; RFC 4180. Nanoseconds and bytes. */
void kn__csv_add(kn__text *text, const kn__report *report);

/* "train;forward;conv 1234" for each row that has a weight of its own: the format of flamegraph.pl,
 * speedscope and the like. */
void kn__folded_add(kn__text *text, const kn__report *report, kn__weight weight);

/* The flame graph as SVG with nothing outside it: roots at the top, width is the weight, the
 * pointer over a box shows its numbers. */
void kn__flame_add(kn__text *text, const kn__report *report, kn__weight weight);

#endif
