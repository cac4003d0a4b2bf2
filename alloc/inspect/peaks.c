/* High-water marks that start again, nested. */
#include "device/observe.h"
#include "inspect/census.h"
#include "pool/counts.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

static void tell(kn_pool *pool, uint64_t live_bytes_max) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_peaks_reset) observer->on_peaks_reset(pool, live_bytes_max);
}

void kn_pool_peaks_reset(kn_pool *pool) {
    kn_pool_stats stats;
    kn__pool_lock(pool);
    kn__pool_stats(&stats, pool);
    kn__peaks_reset(pool);
    kn__pool_unlock(pool);
    tell(pool, stats.live_bytes_max);
}

kn_status kn_pool_peaks_push(kn_pool *pool) {
    kn_pool_stats stats;
    KN_TRY(kn__pool_given(pool, __func__));
    kn__pool_lock(pool);
    kn__pool_stats(&stats, pool);
    bool room = pool->n_peaks < KN__PEAKS;
    if (room) {
        pool->peaks[pool->n_peaks].live = (int64_t)stats.live_bytes_max;
        kn__tags_peaks(pool->peaks[pool->n_peaks].tags, pool);
        pool->peaks[pool->n_peaks++].reserved = stats.reserved_bytes_max;
        kn__peaks_reset(pool);
    }
    kn__pool_unlock(pool);
    if (!room) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_peaks_push: pool %s: %d are pushed already",
                       pool->name, KN__PEAKS);
    }
    tell(pool, stats.live_bytes_max);
    return KN_OK;
}

kn_status kn_pool_peaks_pop(kn_pool_peaks *out, kn_pool *pool) {
    kn_pool_stats stats;
    KN_TRY(kn__pool_given(pool, __func__));
    kn__pool_lock(pool);
    kn__pool_stats(&stats, pool);
    bool any = pool->n_peaks > 0;
    if (any) {
        int64_t live = pool->peaks[--pool->n_peaks].live;
        uint64_t reserved = pool->peaks[pool->n_peaks].reserved;
        if (pool->live_max < live) pool->live_max = live;
        if (pool->reserved_max < reserved) pool->reserved_max = reserved;
        const int64_t *tags = pool->peaks[pool->n_peaks].tags;
        for (unsigned tag = 0; tag < KN__TAGS; tag++) {
            if (pool->tags[tag].live_max < tags[tag]) pool->tags[tag].live_max = tags[tag];
        }
    }
    kn__pool_unlock(pool);
    if (!any) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_peaks_pop: pool %s: none is pushed", pool->name);
    }
    if (out) *out = (kn_pool_peaks){stats.live_bytes_max, stats.reserved_bytes_max};
    return KN_OK;
}
