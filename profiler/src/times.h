/* How the times of a node's calls are spread: counts in bins of equal ratio.
 *
 * A bin spans about the eighth root of two, so that its middle is within 5 % of every time in it. A
 * node gets its bins after some calls, whose bins' numbers it keeps until then: most nodes of most
 * programs never have that many. Its bins cover all times from its shortest to its longest, so that
 * a call that is neither needs no test: a record beyond them brings other bins.
 */
#ifndef KN_PROFILER_TIMES_H
#define KN_PROFILER_TIMES_H

#include "checked.h"
#include "report.h"
#include "tree.h"

enum {
    KN__TIMES_BINS = 124,    /* 15 octaves, from half the shortest time so far: 512 bytes */
    KN__TIMES_BINS_ALL = 512 /* of any time: for nodes with times beyond these */
};

typedef struct kn__node_times {
    uint32_t first, n_bins; /* constant; `first`: the number of the first bin of all */
    uint64_t last;          /* the youngest call's ticks, in no bin yet */
    uint32_t n[];
} kn__node_times;

/* The eighth of its octave that a time is in, by the seven bits after its highest. */
extern const uint8_t kn__times_eighth[128];

static inline uint64_t kn__times_bin(uint64_t ticks) {
    unsigned zeros = (unsigned)__builtin_clzll(ticks | 1);
    return (63 - zeros) * 8 + kn__times_eighth[ticks << zeros >> 56 & 127];
}

/* Counts one call; the node's thread alone. What goes into a bin is the call before: which one that
 * is does not depend on the clock just read, so that the processor is done with it while it reads
 * the clock. */
static inline void kn__times_count(kn__node_times *times, uint64_t ticks) {
    uint64_t at = kn__times_bin(times->last) - times->first;
    KN_ASSERT(at < times->n_bins);
    __atomic_store_n(&times->n[at], times->n[at] + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&times->last, ticks, __ATOMIC_RELAXED);
}

/* Notes one of the first KN__TIMES_AFTER + 1 calls, which took `ticks` and is counted in n_calls.
 * The last of them makes the bins, or none where memory is short. Only the node's own thread calls
 * it, after the node's shortest and longest time include this call, as below. */
void kn__times_first(kn__tree *tree, kn__tree_node *node, uint64_t ticks);
/* A call is the node's shortest or longest: if its bins lack that time, it has bins of any time
 * from now on, or none if there is no memory. No-op before it has bins. */
void kn__times_cover(kn__tree *tree, kn__tree_node *node);

/* Adds the counts to the row. Errors: OOM. */
KN_MUST_CHECK kn_status kn__times_read(kn__report *report, kn__row *row, const kn__tree_node *node,
                                       double tick_ns);

#endif
