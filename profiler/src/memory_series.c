#include "memory_series.h"

#include <string.h>

#include "checked.h"
#include "clock.h"

static kn__series series; /* the bins that are full */
static kn__series_bin open_bin = {.max = INT64_MIN};
static uint64_t n_in_open, per_bin = 1;
static int64_t highest;

static void halve(void) {
    series.n /= 2;
    for (int i = 0; i < series.n; i++) {
        const kn__series_bin *a = &series.bins[2 * i], *b = a + 1;
        series.bins[i] = (kn__series_bin){b->end, kn__max_i64(a->max, b->max), b->last};
    }
    per_bin *= 2;
}

/* Always an even number of bins when they are halved. */
static void end_bin(void) {
    open_bin.end = kn__clock_now();
    KN_ASSERT(series.n < KN__SERIES_BINS);
    series.bins[series.n++] = open_bin;
    if (series.n == KN__SERIES_BINS) halve();
    open_bin.max = INT64_MIN;
    n_in_open = 0;
}

void kn__series_mark(int64_t live) {
    highest = live;
    series.max_at = kn__clock_now();
}

void kn__series_add(int64_t live, bool counts) {
    if (counts && live > highest) kn__series_mark(live);
    open_bin.max = kn__max_i64(open_bin.max, live);
    open_bin.last = live;
    if (++n_in_open == per_bin) end_bin();
}

void kn__series_read(kn__series *out) {
    out->n = series.n;
    out->max_at = series.max_at;
    memcpy(out->bins, series.bins, (size_t)series.n * sizeof *series.bins);
    if (!n_in_open) return;
    open_bin.end = kn__clock_now();
    out->bins[out->n++] = open_bin; /* fewer than all are full */
}
