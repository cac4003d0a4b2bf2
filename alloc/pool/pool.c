/* Pools: their life and options. */
#include <stdio.h>
#include <sys/mman.h>

#include "core/grow.h"
#include "core/poison.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/drivers.h"
#include "device/observe.h"
#include "device/registry.h"
#include "pool/cache.h"
#include "pool/graph.h"
#include "pool/inspector.h"
#include "pool/pool_lock.h"
#include "pool/pools.h"
#include "pool/trim.h"

/* ---- options ---- */

static const double PRESSURE = 0.9; /* by default */

static kn_status check_options(const kn_pool_options *o, const kn_device_info *info) {
    for (int i = 0; i < 4; i++) {
        if (o->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "kn_pool_create: options.reserved[%d] must be zero", i);
        }
    }
    if (!(o->device_fraction >= 0 && o->device_fraction <= 1)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_create: device_fraction is %g, not in (0, 1]",
                       o->device_fraction);
    }
    if (!(o->pressure >= 0 && o->pressure <= 1)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_create: pressure is %g, not in (0, 1]",
                       o->pressure);
    }
    if (o->slab_max_bytes && (o->slab_max_bytes < KN__PAGE || o->slab_max_bytes > KN__SLAB_MAX)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_create: slab_max_bytes is %zu, not in [%d, %d]",
                       o->slab_max_bytes, KN__PAGE, KN__SLAB_MAX);
    }
    if (info->kind != KN_DEVICE_HOST && !o->pinned && o->limit_bytes > info->total_bytes) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_create: limit_bytes is %zu, but %s has %llu bytes",
                       o->limit_bytes, info->name, (unsigned long long)info->total_bytes);
    }
    if (o->limit_bytes && o->soft_limit_bytes > o->limit_bytes) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_pool_create: soft_limit_bytes is %zu, above limit_bytes, which is %zu",
                       o->soft_limit_bytes, o->limit_bytes);
    }
    double share = o->device_fraction * (double)info->total_bytes;
    if (o->device_fraction > 0 && (double)o->soft_limit_bytes > share) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_pool_create: soft_limit_bytes is %zu, above device_fraction %g of %s, "
                       "which is %.0f",
                       o->soft_limit_bytes, o->device_fraction, info->name, share);
    }
    return KN_OK;
}

static void set_options(kn_pool *pool, const kn_pool_options *o, const kn_device_info *info) {
    pool->limit = o->limit_bytes ? o->limit_bytes : SIZE_MAX;
    if (o->device_fraction > 0) {
        size_t share = (size_t)(o->device_fraction * (double)info->total_bytes);
        if (share < pool->limit) pool->limit = share;
    }
    pool->soft_limit = o->soft_limit_bytes ? o->soft_limit_bytes : SIZE_MAX;
    pool->slab_max = o->slab_max_bytes ? o->slab_max_bytes : KN__SLAB_DEFAULT;
    pool->size_max = KN__SIZE_LIMIT;
    pool->n_size_classes = kn__size_class_of(pool->slab_max) + 1;
    pool->pinned = o->pinned && !pool->driver->ordered;
    pool->ordered = pool->driver->ordered;
    bool host = pool->ordered && pool->driver->host_access;
    pool->poison = (uint8_t)(host ? kn__poison_kind() : KN__POISON_NONE);
    bool slow = o->decay_ns || kn__red_zone(pool) || pool->poison == KN__POISON_MEMCHECK;
    pool->fast_max = slow ? 0 : pool->slab_max;
    pool->stream_mask = pool->ordered || pool->pinned ? 0 : UINTPTR_MAX;
    pool->has_ids = pool->driver->stream_id && !pool->ordered;
    pool->pressure = o->pressure > 0 ? o->pressure : PRESSURE;
    pool->device_most = pool->close_bytes = UINT64_MAX;
    pool->decay_ns = o->decay_ns;
    pool->on_unlock = o->decay_ns != 0;
    pool->clock_fn = o->clock_fn;
    pool->clock_ctx = o->clock_ctx;
    if (pool->pinned) {
        pool->own_driver = kn__pinned_driver(pool->driver);
        pool->driver = &pool->own_driver;
    }
    snprintf(pool->name, sizeof pool->name, "%s", o->name ? o->name : kn_device_name(pool->device));
}

/* ---- life ---- */

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
    kn_device_info info;
    KN_TRY(kn__device_usable(device));
    KN_TRY(kn_device_info_read(&info, sizeof info, device));
    if (options->pinned) {
        KN_TRY(kn_device_info_read(&info, sizeof info, kn_device_host())); /* whose memory it is */
    }
    KN_TRY(check_options(options, &info));
    /* Mapped, not allocated: most of the page map is never touched. */
    kn_pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) return KN_FAIL(KN_ERR_OOM, "kn_pool_create: no host memory");
    pool->device = device;
    pool->driver = kn_device_driver_get(device, &pool->impl);
    pool->records.meta = &pool->meta;
    atomic_store(&pool->generation, 1);
    set_options(pool, options, &info);
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
    const char *why = kn__pool_delist(pool);
    if (why) {
        kn_log_write(0, "kn_pool_destroy: %p %s", (void *)pool, why);
        return;
    }
    kn__caches_detach(pool);
    kn__inspect_destroy(pool);
    kn__graphs_orphan(pool);
    pool->decay_ns = 0;
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

/* ---- limits ---- */

kn_status kn_pool_trim(kn_pool *pool, size_t keep_bytes) {
    KN_TRY(kn__device_usable(pool->device));
    kn__pool_lock(pool);
    if (pool->reserved > keep_bytes) kn__trim(pool, keep_bytes);
    kn__pool_unlock(pool);
    return KN_OK;
}

kn_status kn_pool_limit(kn_pool *pool, size_t limit_bytes) {
    KN_TRY(kn__device_usable(pool->device));
    kn__pool_lock(pool);
    pool->limit = limit_bytes ? limit_bytes : SIZE_MAX;
    if (pool->reserved > pool->limit) kn__trim(pool, pool->limit);
    kn__pool_unlock(pool);
    return KN_OK;
}
