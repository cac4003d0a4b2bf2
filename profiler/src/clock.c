#include "clock.h"

#include "now.h"

#if KN__HAVE_TSC
#include <cpuid.h>
#endif

enum { PAIR_TRIES = 32, CALIBRATION_MIN_NS = 1000000 };

typedef struct pair {
    uint64_t ticks, ns;
} pair;

kn__clock_kind kn__clock_used;
static pair first;

uint64_t kn__clock_monotonic_ns(void) { return kn__now_ns(CLOCK_MONOTONIC); }

bool kn__clock_tsc_invariant(void) {
#if KN__HAVE_TSC
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1u);
#else
    return false;
#endif
}

/* Both clocks at one moment: of many tries the one that was disturbed least. */
static pair read_pair(void) {
    pair best = {0, 0};
    uint64_t best_gap = UINT64_MAX;
    for (int i = 0; i < PAIR_TRIES; i++) {
        uint64_t before = kn__clock_now();
        uint64_t ns = kn__clock_monotonic_ns();
        uint64_t gap = kn__clock_now() - before;
        if (gap >= best_gap) continue;
        best_gap = gap;
        best = (pair){before + gap / 2, ns};
    }
    return best;
}

void kn__clock_start(kn__clock_kind wanted) {
    bool tsc = wanted == KN__CLOCK_TSC && kn__clock_tsc_invariant();
    kn__clock_used = tsc ? KN__CLOCK_TSC : KN__CLOCK_MONOTONIC;
    first = read_pair();
}

uint64_t kn__clock_start_ticks(void) { return first.ticks; }

double kn__clock_tick_ns(void) {
    if (kn__clock_used == KN__CLOCK_MONOTONIC) return 1.0;
    while (kn__clock_monotonic_ns() - first.ns < CALIBRATION_MIN_NS) {
    }
    pair last = read_pair();
    return (double)(last.ns - first.ns) / (double)(last.ticks - first.ticks);
}
