/* What a pool counts by tag and by rung of its ladder. */
#ifndef KN_ALLOC_COUNTERS_H
#define KN_ALLOC_COUNTERS_H

#include <stdint.h>

enum {
    KN__TAGS = 256,
    KN__TAG_OTHERS = KN__TAGS - 1, /* for all names beyond those that fit */
};
#define KN__TAG_OTHERS_NAME "(other tags)"

typedef struct kn__tag_total {
    int64_t live, live_max; /* bytes */
    uint64_t n_allocs;
} kn__tag_total;

/* The rungs of the ladder (pool/ladder.c), in order: X(name, its name in reports). */
#define KN__RUNG_LIST(X)                                                                           \
    X(own, "own")                                                                                  \
    X(finished, "finished")                                                                        \
    X(compact, "compact")                                                                          \
    X(grow, "grow")                                                                                \
    X(flush, "flush")                                                                              \
    X(steal, "steal")                                                                              \
    X(callbacks, "callbacks")                                                                      \
    X(harvest, "harvest")                                                                          \
    X(grow_soft, "grow above the soft limit")                                                      \
    X(wait, "wait")                                                                                \
    X(give_back, "give back")

enum {
#define X(name, text) KN__RUNG_##name,
    KN__RUNG_LIST(X)
#undef X
        KN__RUNGS
};

typedef struct kn__rung {
    uint64_t n_tried, n_served, ns;
} kn__rung;

#endif
