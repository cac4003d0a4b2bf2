#include "times.h"

#include <math.h>

#include "checked.h"

_Static_assert(sizeof(kn__node_times) == 512, "the bound of what a node takes");

const uint8_t kn__times_eighth[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2,
    2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
    4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6,
    6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

void kn__times_make(kn__tree *tree, kn__tree_node *node, uint64_t ticks) {
    kn__node_times *times = kn__tree_bytes(tree, sizeof *times, _Alignof(kn__node_times));
    if (!times) return;
    *times = (kn__node_times){.first = kn__times_bin(node->ticks_min), .last = ticks};
    times->first = times->first > 8 ? times->first - 8 : 0;
    KN__STORE(node->times, times);
}

/* Where a bin begins. */
static double start_of(uint64_t bin) {
    int eighth = (int)(bin % 8), i = 0;
    while (i < 128 && kn__times_eighth[i] < eighth) i++;
    return ldexp(1 + i / 128.0, (int)(bin / 8));
}

/* The value with the smallest relative error for all times of the bin. */
static double middle_of(uint64_t bin) {
    double from = start_of(bin), to = start_of(bin + 1);
    KN_ASSERT(to > from);
    return 2 * from * to / (from + to);
}

/* The youngest call is read last: one that ends meanwhile is missed, none counts twice. */
kn_status kn__times_read(kn__report *report, kn__row *row, const kn__tree_node *node,
                         double tick_ns) {
    const kn__node_times *times = KN__LOAD(node->times);
    if (!times) return KN_OK;
    kn__node_times seen = {.first = times->first};
    for (int i = 0; i < KN__TIMES_BINS; i++) {
        seen.n[i] = __atomic_load_n(&times->n[i], __ATOMIC_ACQUIRE);
    }
    seen.last = __atomic_load_n(&times->last, __ATOMIC_RELAXED);
    kn__times_count(&seen, 0);
    kn__time_bin bins[KN__TIMES_BINS];
    int n = 0;
    for (int i = 0; i < KN__TIMES_BINS; i++) {
        double ns = rint(16 * middle_of(seen.first + (uint64_t)i) * tick_ns) / 16; /* few digits */
        if (seen.n[i]) bins[n++] = (kn__time_bin){ns, seen.n[i]};
    }
    return kn__report_add_times(report, row, bins, n);
}
