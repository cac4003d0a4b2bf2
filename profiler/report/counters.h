/* The counters of a report: below the table, in JSON, and of several runs. */
#ifndef KN_REPORT_COUNTERS_H
#define KN_REPORT_COUNTERS_H

#include "report.h"
#include "text.h"

/* Copies a counter's name or unit, as much as fits: '?' for control characters and for bytes that
 * are not UTF-8. So names differ in all formats if they differ in one. */
void kn__counter_text(char *out, size_t out_bytes, const char *text);
/* Adds a value; whole numbers have all their digits. */
void kn__counter_value(kn__text *text, long double value);

/* Adds "power (W)", without characters that a terminal would obey. */
void kn__counter_name(kn__text *text, const kn__counter *c);
/* Writes at most 11 characters: large and small numbers have an exponent. */
enum { KN__COUNTER_CELL_BYTES = 32 };
void kn__counter_cell(char cell[KN__COUNTER_CELL_BYTES], double x);

/* Counts a sample: a finite value. */
void kn__counter_add(kn__counter *c, long double value);

/* Lines of at most `width` columns (0: any); none without counters. */
void kn__counters_add_table(kn__text *text, const kn__counters *counters, int width);
/* Writes `,"counters":[…]` and the number of dropped ones; no-op without counters. */
void kn__counters_add_json(kn__text *text, const kn__counters *counters);
/* The counter of this name; adds it if it is new. NULL: too many counters, or out of memory. */
kn__counter *kn__counters_get(kn__report *report, const char *name);
/* Adds the counters of one more run. Errors: OOM. */
KN_MUST_CHECK kn_status kn__counters_merge(kn__report *into, const kn__counters *run);

#endif
