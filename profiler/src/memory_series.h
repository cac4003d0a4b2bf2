/* Live bytes over time, in bounded room: bins of so many changes each, and twice as many whenever
 * there are too many bins. A bin keeps its highest value, so no peak is lost; the clock is read
 * when a bin ends and at a new maximum, not at every change.
 */
#ifndef KNET_MEMORY_SERIES_H
#define KNET_MEMORY_SERIES_H

#include <stdint.h>

enum { KN__SERIES_BINS = 1024 };

typedef struct kn__series_bin {
    uint64_t end;      /* when its last change was: ticks, in reports ns from the timer's start */
    int64_t max, last; /* live bytes: most in the bin, and at its end */
} kn__series_bin;

typedef struct kn__series {
    int n;
    uint64_t max_at; /* when live bytes were highest */
    kn__series_bin bins[KN__SERIES_BINS];
} kn__series;

/* Live bytes changed to `live`. One caller at a time, as for the next. */
void kn__series_add(int64_t live);
/* A copy, in ticks, the bin that is not full yet included. */
void kn__series_read(kn__series *out);

#endif
