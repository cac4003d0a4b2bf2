/* Ranges that are open (<knet/prof_range.h>). Begun and ended without a lock: signal handlers do so
 * too. */
#ifndef KN_PROFILER_OPEN_RANGES_H
#define KN_PROFILER_OPEN_RANGES_H

#include "report.h"
#include "tree.h"

/* Where and when a range began. */
typedef struct kn__open_range {
    kn__tree_node *node;
    const kn__tree *tree;
    uint64_t start;
} kn__open_range;

/* Returns the id of the range; 0: there is no room. */
uint64_t kn__open_ranges_add(kn__open_range range);
/* Of several calls with one id the first one returns true, and the range. */
bool kn__open_ranges_remove(kn__open_range *out, uint64_t id);

/* Adds the ranges to their rows, as if they ended at `now`. tree: those that began in this one;
 * NULL: all. Errors: OOM. */
KN_MUST_CHECK kn_status kn__open_ranges_take(kn__report *report, const kn__tree *tree, uint64_t now,
                                             double tick_ns);

#endif
