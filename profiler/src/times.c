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

void kn__times_make(kn__tree *tree, kn__node *node) {
    kn__node_times *times = kn__tree_bytes(tree, sizeof *times, _Alignof(kn__node_times));
    if (!times) return;
    *times = (kn__node_times){.first = kn__times_bin((double)node->ticks_min)};
    times->first = times->first > 8 ? times->first - 8 : 0;
    KN__STORE(node->times, times);
}

/* Where a bin begins: the first mantissa of its eighth. */
static double start_of(uint64_t bin) {
    int eighth = (int)(bin % 8), i = 0;
    while (i < 128 && kn__times_eighth[i] < eighth) i++;
    return ldexp(1 + i / 128.0, (int)(bin / 8) - 1023);
}

/* The value with the smallest relative error for all times of the bin. */
static double middle_of(uint64_t bin) {
    double from = start_of(bin), to = start_of(bin + 1);
    KN_ASSERT(to > from);
    return 2 * from * to / (from + to);
}

kn_status kn__times_read(kn__report *report, kn__row *row, const kn__node *node, double tick_ns) {
    kn__time_bin bins[KN__TIMES_BINS];
    const kn__node_times *times = KN__LOAD(node->times);
    int n = 0;
    for (int i = 0; times && i < KN__TIMES_BINS; i++) {
        uint64_t count = __atomic_load_n(&times->n[i], __ATOMIC_RELAXED);
        double ns =
            rint(16 * middle_of(times->first + (uint64_t)i) * tick_ns) / 16; /* few digits */
        if (count) bins[n++] = (kn__time_bin){ns, count};
    }
    return kn__report_add_times(report, row, bins, n);
}
