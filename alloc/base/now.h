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

#endif
