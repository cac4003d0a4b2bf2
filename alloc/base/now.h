/* The system's clocks. */
#ifndef KN_BASE_NOW_H
#define KN_BASE_NOW_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID … */
static inline uint64_t kn__now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Seconds as nanoseconds: 0 for NaN and negative ones, 30 years for more than these. */
static inline uint64_t kn__seconds_ns(double seconds) {
    if (!(seconds > 0)) return 0;
    return seconds < 1e9 ? (uint64_t)(seconds * 1e9) : 1000000000000000000u;
}

/* The time that many nanoseconds later. */
static inline struct timespec kn__time_after(struct timespec t, uint64_t ns) {
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

#endif
