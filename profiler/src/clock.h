/* The clock of scopes: the time-stamp counter where it is invariant, else CLOCK_MONOTONIC.
 *
 * A tick is what kn__clock_now counts; kn__clock_ns turns differences into nanoseconds with a rate
 * that is measured between kn__clock_start and the moment of asking, for the first ten seconds.
 */
#ifndef KN_PROFILER_CLOCK_H
#define KN_PROFILER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define KN__HAVE_TSC 1
#else
#define KN__HAVE_TSC 0
#endif

typedef enum kn__clock_kind { KN__CLOCK_MONOTONIC = 0, KN__CLOCK_TSC = 1 } kn__clock_kind;

extern kn__clock_kind kn__clock_used; /* written by kn__clock_start alone */

uint64_t kn__clock_monotonic_ns(void);

/* The counter itself; only while it is the clock used. */
static inline uint64_t kn__clock_tsc(void) {
#if KN__HAVE_TSC
    return __rdtsc();
#else
    return kn__clock_monotonic_ns();
#endif
}

static inline uint64_t kn__clock_now(void) {
    return kn__clock_used == KN__CLOCK_TSC ? kn__clock_tsc() : kn__clock_monotonic_ns();
}

/* Whether the counter runs at one rate in all states of the processor. */
bool kn__clock_tsc_invariant(void);

/* Chooses the clock and takes the first calibration pair; before the first scope. `wanted` is a
 * wish: without an invariant counter it is CLOCK_MONOTONIC. */
void kn__clock_start(kn__clock_kind wanted);

/* What the clock showed when it was started. */
uint64_t kn__clock_start_ticks(void);

/* Nanoseconds in a tick. Waits until a millisecond has passed since the start. */
double kn__clock_tick_ns(void);
/* The same, rounded down by as much as it may be wrong, and never less than the time before: what
 * is converted again never becomes less. */
double kn__clock_tick_ns_least(void);

/* Ticks to nanoseconds, at a rate from kn__clock_tick_ns. */
static inline uint64_t kn__clock_ns(uint64_t ticks, double tick_ns) {
    return (uint64_t)((double)ticks * tick_ns + 0.5);
}

#endif
