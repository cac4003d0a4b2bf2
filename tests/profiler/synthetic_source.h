/* A GPU made up: launches get records of random length, delivered late, shuffled, without times,
 * several a launch, or never. Seeded by the tests' random numbers.
 */
#ifndef KNET_SYNTHETIC_SOURCE_H
#define KNET_SYNTHETIC_SOURCE_H

#include "activity.h"

/* Chances in percent. */
typedef struct synthetic_options {
    int drop, zero, foreign;
    int records_max;   /* a launch */
    bool hold_back;    /* a drain delivers only some of the records */
    uint32_t first_id; /* near UINT32_MAX: ids wrap */
} synthetic_options;

/* The records that were made, to compare with. */
typedef struct synthetic_sums {
    uint64_t launched, dropped, untimed, n_records, gpu_ns, foreign_ns, n_foreign;
} synthetic_sums;

const kn__source *synthetic_source(const synthetic_options *options);

/* One launch in the innermost scope of this thread; `name` of the kernel. Returns its GPU time. */
uint64_t synthetic_launch(const char *name);

/* From now on a drain delivers everything. */
void synthetic_flush(void);
synthetic_sums synthetic_sums_read(void);

#endif
