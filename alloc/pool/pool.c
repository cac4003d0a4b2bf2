/* Pools: their life, options and limits. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "inspect/census.h"
#include "inspect/config.h"
#include "device/devices.h"
#include "device/observe.h"

/* The lock. The observer hears of changes of reserved memory when the lock is open again. */

void kn__pool_unlock_act(kn_pool *pool) {
    if (pool->decay_ns) kn__decay(pool);
    int64_t delta = pool->reserve_delta;
    uint64_t reserved = pool->reserved;
    pool->reserve_delta = 0;
    pool->on_unlock = pool->decay_ns != 0;
    kn__lock_open(&pool->lock);
    const kn_observer *observer = kn__observer();
    if (delta && observer && observer->on_reserve) observer->on_reserve(pool, delta, reserved);
}

void kn__pool_reserve_add(kn_pool *pool, int64_t delta_bytes) {
    pool->reserved += (uint64_t)delta_bytes;
    pool->reserve_delta += delta_bytes;
    pool->on_unlock = true;
    pool->n_device_frees += delta_bytes < 0;
    kn__close_bytes_set(pool);
    if (pool->reserved > pool->reserved_max) pool->reserved_max = pool->reserved;
}

void kn__pool_fork_kill(kn_pool *pool) {
    pool->dead = true;
    pool->decay_ns = 0;
    pool->fast_max = pool->size_max = 0;
}

/* Options. */

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
    pool->fast_max = o->decay_ns ? 0 : pool->slab_max;
    pool->size_max = KN__SIZE_LIMIT;
    pool->n_classes = kn__class_of(pool->slab_max) + 1;
    pool->pinned = o->pinned && !pool->driver->ordered;
    pool->ordered = pool->driver->ordered;
    pool->stream_mask = pool->ordered || pool->pinned ? 0 : UINTPTR_MAX;
    pool->has_ids = pool->driver->stream_id && !pool->ordered;
    pool->pressure = o->pressure > 0 ? o->pressure : PRESSURE;
    pool->device_most = pool->close_bytes = UINT64_MAX;
    pool->decay_ns = o->decay_ns;
    pool->on_unlock = o->decay_ns != 0;
    pool->clock_fn = o->clock_fn;
    pool->clock_ctx = o->clock_ctx;
    snprintf(pool->name, sizeof pool->name, "%s", o->name ? o->name : kn_device_name(pool->device));
}

/* Life. */

static void pool_free(kn_pool *pool) {
    kn__pages_release(pool);
    kn__meta_release(&pool->meta);
    munmap(pool, sizeof *pool);
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
    atomic_store(&pool->generation, 1);
    set_options(pool, options, &info);
    if (pool->pinned) kn__pinned_driver(pool);
    pool->idle = kn__stream_new(pool, NULL, UINT32_MAX);
    pool->last_oom = kn__meta_alloc(&pool->meta, sizeof *pool->last_oom);
    kn_status status = KN_OK;
    if (!pool->idle || !pool->last_oom || !kn__streams_room(pool)) {
        status = KN_FAIL(KN_ERR_OOM, "kn_pool_create: no host memory");
    }
    if (status == KN_OK && pool->pinned) status = kn__pinned_home(pool);
    if (status == KN_OK && pool->driver->range_reserve && info.granularity_bytes) {
        status = kn__range_create(pool, info.total_bytes, info.granularity_bytes);
    }
    if (status < 0) {
        pool_free(pool);
        return status;
    }
    kn__caches_attach(pool);
    kn__pool_enlist(pool, device);
    *out = pool;
    return KN_OK;
}

enum { LIVE_TAGS_SHOWN = 16 };

static void log_live(kn_pool *pool) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    if (!stats.live_bytes) return;
    kn_log_write(1, "kn_pool_destroy: pool %s: %llu bytes are still live", pool->name,
                 (unsigned long long)stats.live_bytes);
    kn_tag_stats tags[LIVE_TAGS_SHOWN];
    size_t n = kn_pool_tags(tags, LIVE_TAGS_SHOWN, pool);
    for (size_t i = 0; i < n && i < LIVE_TAGS_SHOWN && tags[i].live_bytes; i++) {
        kn_log_write(1, "kn_pool_destroy: pool %s: of these, %llu are of the tag '%s'", pool->name,
                     (unsigned long long)tags[i].live_bytes, tags[i].name);
    }
}

void kn_pool_destroy(kn_pool *pool) {
    if (!pool) return;
    const char *why = kn__pool_delist(pool);
    if (why) {
        kn_log_write(0, "kn_pool_destroy: %p %s", (void *)pool, why);
        return;
    }
    kn__caches_detach(pool);
    log_live(pool);
    kn__config_report(pool, false);
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
    pool_free(pool);
}

/* KNET_ALLOC's options, which may not fit the device. */
kn_status kn__pool_create_default(kn_pool **out, kn_device *device) {
    kn_status status = kn_pool_create(out, device, &kn__alloc_config_get()->pool);
    if (status != KN_ERR_INVALID) return status;
    kn__config_say("KNET_ALLOC: %s; the pool of %s takes the defaults\n", kn_last_error()->message,
                   kn_device_name(device));
    return kn_pool_create(out, device, NULL);
}

kn_device *kn_pool_device(const kn_pool *pool) { return pool->device; }
const char *kn_pool_name(const kn_pool *pool) { return pool->name; }

void kn__pool_stream_retire(kn_pool *pool, kn_stream handle) {
    uint64_t key = kn__stream_key(pool, handle);
    kn__pool_lock(pool);
    kn__graphs_stream_gone(pool, key);
    kn__stream *stream = kn__stream_lookup(pool, key, NULL);
    if (stream) {
        kn__stream_retire(pool, stream, false);
        kn__caches_flush(pool); /* no slab of the stream is held back by a thread that is idle */
    }
    kn__pool_unlock(pool);
}

static void retire_default(void *ctx, kn_pool *pool) {
    (void)ctx;
    if (kn__device_alive(pool->device)) {
        kn__pool_stream_retire(pool, (kn_stream)(uintptr_t)KN__STREAM_PER_THREAD);
    }
}

void kn__thread_end_default_stream(kn__thread *thread) {
    if (!thread->has_default_stream) return;
    kn__registry_lock();
    kn__pools_visit(retire_default, NULL);
    kn__registry_unlock();
}

/* Limits. */

/* Finished memory first: what caches return merges with it, and finishes later. */
void kn__trim(kn_pool *pool, size_t keep_bytes) {
    kn__epochs_settle(pool);
    kn__shrink(pool, keep_bytes);
    if (pool->reserved <= keep_bytes) return;
    kn__caches_flush(pool);
    kn__epochs_settle(pool);
    kn__shrink(pool, keep_bytes);
}

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

/* Callbacks. */

kn_status kn_pool_oom_attach(kn_pool *pool, kn_oom_fn fn, void *ctx) {
    if (!fn) return KN_FAIL(KN_ERR_INVALID, "kn_pool_oom_attach: the function is NULL");
    kn__pool_lock(pool);
    int i = 0;
    while (i < KN__OOM_CALLBACKS && pool->oom[i].fn) i++;
    if (i < KN__OOM_CALLBACKS) {
        pool->oom[i].fn = fn;
        pool->oom[i].ctx = ctx;
    }
    kn__pool_unlock(pool);
    if (i < KN__OOM_CALLBACKS) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_pool_oom_attach: pool %s has %d callbacks already",
                   pool->name, KN__OOM_CALLBACKS);
}

void kn_pool_oom_detach(kn_pool *pool, kn_oom_fn fn, void *ctx) {
    kn__pool_lock(pool);
    for (int i = 0; i < KN__OOM_CALLBACKS; i++) {
        if (pool->oom[i].fn != fn || pool->oom[i].ctx != ctx) continue;
        pool->oom[i].fn = NULL;
        break;
    }
    kn__pool_unlock(pool);
}
