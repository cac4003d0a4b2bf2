#include "times.h"

#include <math.h>
#include <string.h>

enum { MARGIN = 8 /* bins below the shortest time: an octave */ };
_Static_assert(sizeof(kn__node_times) + KN__TIMES_BINS * sizeof(uint32_t) == 512,
               "what most nodes take");

const uint8_t kn__times_eighth[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2,
    2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
    4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6,
    6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

static kn__node_times *make_bins(kn__tree *tree, uint32_t first, uint32_t n_bins, uint64_t last) {
    size_t bytes = n_bins * sizeof(uint32_t);
    kn__node_times *times = kn__tree_bytes(tree, sizeof *times + bytes, _Alignof(kn__node_times));
    if (!times) return NULL;
    *times = (kn__node_times){first, n_bins, last};
    memset(times->n, 0, bytes);
    return times;
}

/* Bins that lack the first calls would tell the times of later ones as those of all. */
static void have_no_memory(kn__tree_node *node) { KN__STORE(node->n_first_times, 0); }

static void make_first_bins(kn__tree *tree, kn__tree_node *node, uint64_t ticks) {
    uint64_t least = kn__times_bin(node->ticks_min), most = kn__times_bin(node->ticks_max);
    uint64_t first = least > MARGIN ? least - MARGIN : 0;
    KN_ASSERT(node->ticks_min <= ticks && ticks <= node->ticks_max);
    bool fit = most < first + KN__TIMES_BINS && first + KN__TIMES_BINS <= KN__TIMES_BINS_ALL;
    kn__node_times *times = fit ? make_bins(tree, (uint32_t)first, KN__TIMES_BINS, ticks)
                                : make_bins(tree, 0, KN__TIMES_BINS_ALL, ticks);
    if (!times) have_no_memory(node);
    for (int i = 0; times && i < node->n_first_times; i++) {
        KN_ASSERT((uint32_t)(node->first_times[i] - times->first) < times->n_bins);
        times->n[node->first_times[i] - times->first]++;
    }
    KN__STORE(node->times, times);
}

void kn__times_first(kn__tree *tree, kn__tree_node *node, uint64_t ticks) {
    uint64_t n = node->n_calls;
    KN_ASSERT(!node->times && n > 0 && n <= KN__TIMES_AFTER + 1);
    if (n > KN__TIMES_AFTER) {
        make_first_bins(tree, node, ticks);
    } else {
        uint16_t bin = (uint16_t)kn__times_bin(ticks);
        __atomic_store_n(&node->first_times[n - 1], bin, __ATOMIC_RELAXED);
        KN__STORE(node->n_first_times, (uint16_t)n);
    }
}

static bool has_bin(const kn__node_times *times, uint64_t ticks) {
    return kn__times_bin(ticks) - times->first < times->n_bins;
}

/* A reader that still has the former bins finds them as they were. */
void kn__times_cover(kn__tree *tree, kn__tree_node *node) {
    const kn__node_times *times = node->times;
    if (!times || (has_bin(times, node->ticks_min) && has_bin(times, node->ticks_max))) return;
    kn__node_times *wide = make_bins(tree, 0, KN__TIMES_BINS_ALL, times->last);
    if (wide) memcpy(wide->n + times->first, times->n, times->n_bins * sizeof *times->n);
    if (!wide) have_no_memory(node);
    KN__STORE(node->times, wide);
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

static void read_first(uint32_t seen[KN__TIMES_BINS_ALL], const kn__tree_node *node) {
    int n = KN__LOAD(node->n_first_times);
    for (int i = 0; i < n; i++) seen[__atomic_load_n(&node->first_times[i], __ATOMIC_RELAXED)]++;
}

/* The youngest call is read last: one that ends meanwhile is missed, none counts twice. */
static void read_bins(uint32_t seen[KN__TIMES_BINS_ALL], const kn__node_times *times) {
    for (uint32_t i = 0; i < times->n_bins; i++) {
        seen[times->first + i] = __atomic_load_n(&times->n[i], __ATOMIC_ACQUIRE);
    }
    seen[kn__times_bin(__atomic_load_n(&times->last, __ATOMIC_RELAXED))]++;
}

kn_status kn__times_read(kn__report *report, kn__row *row, const kn__tree_node *node,
                         double tick_ns) {
    uint32_t seen[KN__TIMES_BINS_ALL] = {0};
    const kn__node_times *times = KN__LOAD(node->times);
    times ? read_bins(seen, times) : read_first(seen, node);
    kn__time_bin bins[KN__TIMES_BINS_ALL];
    int n = 0;
    for (uint64_t i = 0; i < KN__TIMES_BINS_ALL; i++) {
        if (!seen[i]) continue;
        double ns = rint(16 * middle_of(i) * tick_ns) / 16; /* few digits */
        bins[n++] = (kn__time_bin){ns, seen[i]};
    }
    return kn__report_add_times(report, row, bins, n);
}
