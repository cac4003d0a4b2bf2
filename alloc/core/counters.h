/* What a pool counts by tag and by rung of its ladder. */
#ifndef KNET_ALLOC_COUNTERS_H
#define KNET_ALLOC_COUNTERS_H

#include <stdint.h>

enum {
    KN__TAGS = 256,
    KN__TAG_OTHERS = KN__TAGS - 1, /* for all names beyond those that fit */
    KN__RUNGS = 11,                /* of the ladder; see ladder.c */
};

typedef struct kn__tag_total {
    int64_t live, live_max; /* bytes */
    uint64_t n_allocs;
} kn__tag_total;

typedef struct kn__rung {
    uint64_t n_tried, n_served, ns;
} kn__rung;

#endif
