/* Decay: returns memory to the device that has been idle for a while.
 *
 * A pool records the peak of its live bytes in a window of time. Memory beyond the peak was idle in
 * all of the window. There is no thread: the pool's own calls look at the clock, where
 * decay is on, and nothing waits: what streams may still use goes when a later window ends. */
#include <time.h>

#include "cancel.h"
#include "now.h"
#include "pool/counts.h"
#include "pool/trim.h"

static uint64_t now_ns(const kn_pool *pool) {
    if (!pool->clock_fn) return kn__now_ns(CLOCK_MONOTONIC);
    KN__CANCEL_LATER();
    return pool->clock_fn(pool->clock_ctx);
}

static uint64_t free_bytes(const kn_pool *pool) {
    uint64_t bytes = kn__bins_bytes(&pool->idle->bins);
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        bytes += kn__bins_bytes(&pool->streams[i]->bins);
    }
    return bytes;
}

/* How much has to stay: the peak, slabs' unused slots and what waits. */
static uint64_t to_keep(const kn_pool *pool, uint64_t peak) {
    uint64_t live = (uint64_t)kn__pool_live(pool), held = pool->reserved - free_bytes(pool);
    /* Only whole handles are returned: one too many would be reserved again with the next use. */
    return peak + (held > live ? held - live : 0) + KN__UNIT;
}

static void give_back(kn_pool *pool) {
    KN__CANCEL_LATER();
    if (pool->reserved <= pool->decay_keep || !kn__trim_may(pool)) return;
    uint64_t before = pool->reserved;
    kn__trim(pool, pool->decay_keep);
    pool->decayed += before - pool->reserved;
}

/* What streams are not done with is tried again, at the 1st, 2nd, 4th, 8th … call after. */
void kn__decay(kn_pool *pool) {
    uint64_t now = now_ns(pool), live = (uint64_t)kn__pool_live(pool);
    KN_ASSERT(KN__READ(pool->decay_ns));
    if (live > pool->window_peak) pool->window_peak = live;
    bool first = !pool->window_start_ns,
         over = now - pool->window_start_ns >= KN__READ(pool->decay_ns);
    if (first || over) {
        pool->decay_keep = first ? UINT64_MAX : to_keep(pool, pool->window_peak);
        pool->decay_tries = 0;
        pool->window_start_ns = now ? now : 1;
        pool->window_peak = live;
    }
    if (pool->reserved <= pool->decay_keep) return;
    uint64_t tries = pool->decay_tries++;
    if ((tries & (tries - 1)) == 0) give_back(pool);
}
