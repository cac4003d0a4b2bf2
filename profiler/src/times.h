/* How the times of a node's calls are spread: counts in bins of equal ratio.
 *
 * A bin spans about the eighth root of two, so that its middle is within 5 % of every time in it. A
 * node gets its bins after some calls, which are not in them: the first ones are slower, and most
 * nodes of most programs never have that many.
 */
#ifndef KN_PROFILER_TIMES_H
#define KN_PROFILER_TIMES_H

#include <string.h>

#include "report.h"
#include "tree.h"

enum { KN__TIMES_AFTER = 16, KN__TIMES_BINS = 126 };

/* 512 bytes: 15 octaves from half the shortest time so far; times beyond are in the outer bins. */
typedef struct kn__node_times {
    uint64_t first; /* number of the first bin, from the time of one tick */
    uint32_t n[KN__TIMES_BINS];
} kn__node_times;

/* The eighth of its octave that a time is in, by the first seven bits of its mantissa. */
extern const uint8_t kn__times_eighth[128];

static inline uint64_t kn__times_bin(double ticks) {
    uint64_t bits;
    memcpy(&bits, &ticks, sizeof bits);
    return (bits >> 52) * 8 + kn__times_eighth[bits >> 45 & 127];
}

/* Counts one call; the node's thread alone. */
static inline void kn__times_count(kn__node_times *times, double ticks) {
    uint64_t bin = kn__times_bin(ticks), at = bin > times->first ? bin - times->first : 0;
    uint32_t *n = &times->n[at < KN__TIMES_BINS ? at : KN__TIMES_BINS - 1];
    __atomic_store_n(n, *n + 1, __ATOMIC_RELAXED);
}

/* Bins for the calls from now on; none if there is no memory. The node's thread alone. */
void kn__times_make(kn__tree *tree, kn__node *node);

/* Adds the counts to the row. Errors: OOM. */
KN_MUST_CHECK kn_status kn__times_read(kn__report *report, kn__row *row, const kn__node *node,
                                       double tick_ns);

#endif
