/* A cache of plans: what a library made for one shape, kept for all threads. The one that was not
 * used for longest goes first; who uses it keeps it until kn__plan_drop. */
#ifndef KN_PLANS_H
#define KN_PLANS_H

#include <pthread.h>

#include "kernel.h"

enum { KN_PLANS_MAX = 256, KN_PLAN_KEY = 24 };

/* The first member of a plan. */
typedef struct kn__host_plan {
    int users; /* the cache is one */
} kn__host_plan;

typedef struct kn__host_plan_entry {
    int64_t key[KN_PLAN_KEY];
    kn__host_plan *plan; /* NULL: an empty place */
    uint64_t used;       /* when last, in calls */
} kn__host_plan_entry;

/* Static: zero but for the first two. */
typedef struct kn__host_plans {
    pthread_mutex_t lock; /* held while a plan is made too: who wants the same one then finds it */
    void (*destroy)(kn__host_plan *plan);
    kn__host_plan_entry entry[KN_PLANS_MAX];
    uint64_t calls;
} kn__host_plans;

typedef kn_status (*kn__host_plan_fn)(kn__host_plan **out, void *ctx);

/* The plan of this key, made by `make` if there is none; the caller's until kn__plan_drop. */
kn_status kn__plan_get(kn__host_plan **out, kn__host_plans *plans, const int64_t key[KN_PLAN_KEY],
                       kn__host_plan_fn make, void *ctx);
/* No-op on NULL. */
void kn__plan_drop(kn__host_plans *plans, kn__host_plan *plan);
/* How many there are: KN_PLANS_MAX at most. */
int kn__plan_count(kn__host_plans *plans);

#endif
