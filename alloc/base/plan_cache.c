#include "host/base/plans.h"

#include <string.h>

static void drop_locked(kn__host_plans *plans, kn__host_plan *plan) {
    if (--plan->users == 0) plans->destroy(plan);
}

/* The entry with this key, or else the one to put it into. */
static kn__host_plan_entry *find_locked(kn__host_plans *plans, const int64_t key[KN_PLAN_KEY]) {
    kn__host_plan_entry *oldest = plans->entry;
    for (kn__host_plan_entry *e = plans->entry; e < plans->entry + KN_PLANS_MAX; e++) {
        if (e->plan && memcmp(e->key, key, sizeof e->key) == 0) return e;
        if (e->used < oldest->used) oldest = e;
    }
    return oldest;
}

static kn_status get_locked(kn__host_plan **out, kn__host_plans *plans,
                            const int64_t key[KN_PLAN_KEY], kn__host_plan_fn make, void *ctx) {
    kn__host_plan_entry *e = find_locked(plans, key);
    if (!e->plan || memcmp(e->key, key, sizeof e->key) != 0) {
        kn__host_plan *plan = NULL;
        KN_TRY(make(&plan, ctx));
        if (e->plan) drop_locked(plans, e->plan);
        memcpy(e->key, key, sizeof e->key);
        e->plan = plan;
        plan->users = 1;
    }
    e->used = ++plans->calls;
    e->plan->users++;
    *out = e->plan;
    return KN_OK;
}

kn_status kn__plan_get(kn__host_plan **out, kn__host_plans *plans, const int64_t key[KN_PLAN_KEY],
                       kn__host_plan_fn make, void *ctx) {
    pthread_mutex_lock(&plans->lock);
    kn_status status = get_locked(out, plans, key, make, ctx);
    pthread_mutex_unlock(&plans->lock);
    return status;
}

void kn__plan_drop(kn__host_plans *plans, kn__host_plan *plan) {
    if (!plan) return;
    pthread_mutex_lock(&plans->lock);
    drop_locked(plans, plan);
    pthread_mutex_unlock(&plans->lock);
}

int kn__plan_count(kn__host_plans *plans) {
    int n = 0;
    pthread_mutex_lock(&plans->lock);
    for (int i = 0; i < KN_PLANS_MAX; i++) n += plans->entry[i].plan != NULL;
    pthread_mutex_unlock(&plans->lock);
    return n;
}
