/* Reports by hand, and rows found by path. */
#ifndef KNET_REPORT_MAKER_H
#define KNET_REPORT_MAKER_H

#include "take.h"

/* The row of a path such as "train/forward", or NULL. */
const kn__row *find_row(const kn__report *report, const char *path);

/* A row under `parent` (NULL: the top level) with its calls, time and own bytes allocated. */
kn__row *add_row(kn__report *report, kn__row *parent, const char *label, uint64_t n_calls,
                 uint64_t time_ns, uint64_t alloc_bytes);

/* The report of what this process has done so far. */
void take_report(kn__report *out);

#endif
