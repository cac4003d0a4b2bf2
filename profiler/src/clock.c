#include "clock.h"

#include <stdatomic.h>

#include "now.h"

#if KN__HAVE_TSC
#include <cpuid.h>
#endif

enum { PAIR_TRIES = 32, CALIBRATION_MIN_NS = 1000000 };
static const uint64_t SETTLED_NS = 10000000000;

typedef struct pair {
    uint64_t ticks, ns, gap; /* gap: in ticks, the time in which `ns` was read */
} pair;

kn__clock_kind kn__clock_used;
static pair first;
static _Atomic(double) settled, least; /* rates; 0: not known yet. No lock: a fork may hold it. */

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
    pair best = {0};
    uint64_t best_gap = UINT64_MAX;
    for (int i = 0; i < PAIR_TRIES; i++) {
        uint64_t before = kn__clock_now();
        uint64_t ns = kn__clock_monotonic_ns();
        uint64_t gap = kn__clock_now() - before;
        if (gap >= best_gap) continue;
        best_gap = gap;
        best = (pair){before + gap / 2, ns, gap};
    }
    return best;
}

void kn__clock_start(kn__clock_kind wanted) {
    bool tsc = wanted == KN__CLOCK_TSC && kn__clock_tsc_invariant();
    kn__clock_used = tsc ? KN__CLOCK_TSC : KN__CLOCK_MONOTONIC;
    first = read_pair();
    atomic_store(&settled, 0);
    atomic_store(&least, 0);
}

uint64_t kn__clock_start_ticks(void) { return first.ticks; }

static void raise_least(double rate) {
    double before = atomic_load(&least);
    while (rate > before && !atomic_compare_exchange_weak(&least, &before, rate)) {
    }
}

double kn__clock_tick_ns(void) {
    if (kn__clock_used == KN__CLOCK_MONOTONIC) return 1.0;
    double known = atomic_load(&settled);
    if (known > 0) return known;
    while (kn__clock_monotonic_ns() - first.ns < CALIBRATION_MIN_NS) {
    }
    pair last = read_pair();
    double ns = (double)(last.ns - first.ns), ticks = (double)(last.ticks - first.ticks);
    raise_least((ns - 1) / (ticks + (double)(first.gap + last.gap) / 2));
    if (last.ns - first.ns < SETTLED_NS) return ns / ticks;
    raise_least(ns / ticks);
    atomic_compare_exchange_strong(&settled, &known, atomic_load(&least));
    return atomic_load(&settled);
}

double kn__clock_tick_ns_least(void) {
    double rate = kn__clock_tick_ns(), known = atomic_load(&least);
    return known > 0 ? known : rate;
}
