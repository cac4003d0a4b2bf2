/* Pools: their life. */
#include <stdio.h>
#include <sys/mman.h>

#include "cancel.h"
#include "core/grow.h"
#include "core/poison.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/drivers.h"
#include "device/observe.h"
#include "device/registry.h"
#include "pool/cache.h"
#include "pool/fault.h"
#include "pool/graph.h"
#include "pool/inspector.h"
#include "pool/options.h"
#include "pool/pause.h"
#include "pool/pool_lock.h"
#include "pool/pools.h"
#include "pool/trim.h"

/* --- life --- */

static void pool_release(kn_pool *pool) {
    kn__pagemap_release(&pool->pages);
    kn__meta_release(&pool->meta);
    munmap(pool, sizeof *pool);
}

/* The CPU's home stream of a pinned pool, whose epochs are always over. All blocks have it,
 * whatever stream is passed: the CPU may write a block as soon as it is allocated. Uses by copies
 * on streams are waited for as in other pools. No stream may wait for another on behalf of the CPU.
 */
static kn_status make_home(kn_pool *pool) {
    kn__stream *home;
    KN_TRY(kn__stream_get(&home, pool, NULL));
    home->done = KN__EPOCH_NEVER;
    return KN_OK;
}

static kn_status pool_init(kn_pool *pool, const kn_device_info *info) {
    pool->idle = kn__stream_create(pool, NULL, UINT32_MAX);
    if (!pool->idle || !kn__streams_room(pool)) {
        return KN_FAIL(KN_ERR_OOM, "kn_pool_create: no host memory");
    }
    KN_TRY(kn__inspect_create(pool));
    if (pool->pinned) KN_TRY(make_home(pool));
    if (!pool->driver->range_reserve || !info->granularity_bytes) return KN_OK;
    return kn__range_create(pool, info->total_bytes, info->granularity_bytes);
}

kn_status kn_pool_create(kn_pool **out, kn_device *device, const kn_pool_options *options) {
    static const kn_pool_options defaults = {0};
    if (!options) options = &defaults;
    if (!device) return KN_FAIL(KN_ERR_INVALID, "kn_pool_create: the device is NULL");
    KN__CANCEL_LATER();
    kn_device_info info;
    KN_TRY(kn__device_usable(device, __func__));
    KN_TRY(kn__options_info(&info, device, options->pinned));
    KN_TRY(kn__options_check(options, &info, "kn_pool_create"));
    KN_TRY(kn__options_check_device(options, device, &info));
    /* Mapped, not allocated: most of the page map is never touched. */
    kn_pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) return KN_FAIL(KN_ERR_OOM, "kn_pool_create: no host memory");
    pool->device = device;
    pool->driver = kn_device_driver_get(device, &pool->impl);
    pool->records.meta = &pool->meta;
    atomic_store(&pool->generation, 1);
    kn__options_start(pool, options, &info);
    kn_status status = pool_init(pool, &info);
    if (status < 0) {
        pool_release(pool);
        return status;
    }
    kn__caches_attach(pool);
    kn__retire_at_end();
    kn__pool_enlist(pool);
    *out = pool;
    return KN_OK;
}

void kn_pool_destroy(kn_pool *pool) {
    if (!pool) return;
    KN__CANCEL_LATER();
    const char *why = kn__pool_delist(pool);
    if (why) {
        kn_log_write(0, "kn_pool_destroy: %p %s", (void *)pool, why);
        return;
    }
    kn__caches_detach(pool);
    kn__inspect_destroy(pool);
    kn__graphs_orphan(pool);
    kn__pauses_release(pool);
    KN__WRITE(pool->decay_ns, 0);
    pool->limit = SIZE_MAX; /* from here on memory goes back all at once */
    pool->apart = false;
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_pool_destroy) observer->on_pool_destroy(pool);
    kn__pool_lock(pool);
    if (kn__device_alive(pool->device)) {
        if (kn__epochs_finish(pool)) {
            kn__memory_release(pool);
        } else {
            kn_log_write(0,
                         "kn_pool_destroy: pool %s: %llu bytes are left to the device, which may "
                         "still use them",
                         pool->name, (unsigned long long)pool->reserved);
        }
    }
    kn__pool_unlock(pool);
    pool_release(pool);
}

kn_device *kn_pool_device(const kn_pool *pool) { return pool->device; }
const char *kn_pool_name(const kn_pool *pool) { return pool->name; }

/* --- memory back to the device --- */

kn_status kn_pool_trim(kn_pool *pool, size_t keep_bytes) {
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    kn__pool_lock(pool);
    if (pool->reserved > keep_bytes) kn__trim(pool, keep_bytes);
    kn__pool_unlock(pool);
    return KN_OK;
}

kn_status kn_pool_sync(kn_pool *pool) {
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    kn__pool_lock(pool);
    kn__pool_sync(pool);
    kn__pool_unlock(pool);
    return KN_OK;
}
