/* The counters of two profiles compared. Whether more is better is not known, so none of them makes
 * a profile worse. */
#ifndef KN_REPORT_DIFF_COUNTERS_H
#define KN_REPORT_DIFF_COUNTERS_H

#include "report.h"
#include "text.h"

typedef struct kn__counter_pair {
    const kn__counter *a, *b; /* of the two reports, borrowed; NULL: that one has no such counter */
    bool has_moved;           /* or is new, or gone */
} kn__counter_pair;

typedef struct kn__counters_diff {
    kn__counter_pair *all; /* owned; those of B in their order, then those that are gone */
    int n, n_moved;
} kn__counters_diff;

/* A counter has moved if its mean or its last value changed by more than this part of the one
 * before, if its unit changed, or if one side alone has samples. Errors: OOM. */
KN_MUST_CHECK kn_status kn__counters_diff_make(kn__counters_diff *out, const kn__counters *a,
                                               const kn__counters *b, double threshold);
void kn__counters_diff_release(kn__counters_diff *diff);

/* Lines of those that moved, `top` at most (0: all); nothing without counters. */
void kn__counters_diff_add_table(kn__text *text, const kn__counters_diff *diff, int top, int width);
/* `,"n_counters_moved":N,"counters":[…]`: all of them. */
void kn__counters_diff_add_json(kn__text *text, const kn__counters_diff *diff);

#endif
