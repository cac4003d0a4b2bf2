/* Options of a pool: checked and set when it is created, read and changed later. */
#include "pool/options.h"

#include <stdio.h>
#include <string.h>

#include "core/poison.h"
#include "device/drivers.h"
#include "device/registry.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"
#include "pool/trim.h"

static const double PRESSURE = 0.9; /* by default */

kn_status kn__options_info(kn_device_info *out, kn_device *device, bool pinned) {
    KN_TRY(kn_device_info_read(out, sizeof *out, device));
    return pinned ? kn_device_info_read(out, sizeof *out, kn_device_host()) : KN_OK;
}

static kn_status check_limit(size_t limit_bytes, const kn_device_info *info, const char *function) {
    if (info->kind == KN_DEVICE_HOST || limit_bytes <= info->total_bytes) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: limit_bytes is %zu, but %s has %llu bytes", function,
                   limit_bytes, info->name, (unsigned long long)info->total_bytes);
}

static kn_status check_each(const kn_pool_options *o, const kn_device_info *info,
                            const char *function) {
    for (int i = 0; i < 4; i++) {
        if (o->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "%s: options.reserved[%d] must be zero", function, i);
        }
    }
    if (!(o->device_fraction >= 0 && o->device_fraction <= 1)) {
        return KN_FAIL(KN_ERR_INVALID, "%s: device_fraction is %g, not in (0, 1]", function,
                       o->device_fraction);
    }
    if (!(o->pressure >= 0 && o->pressure <= 1)) {
        return KN_FAIL(KN_ERR_INVALID, "%s: pressure is %g, not in (0, 1]", function, o->pressure);
    }
    if (o->slab_max_bytes && (o->slab_max_bytes < KN__PAGE || o->slab_max_bytes > KN__SLAB_MAX)) {
        return KN_FAIL(KN_ERR_INVALID, "%s: slab_max_bytes is %zu, not in [%d, %d]", function,
                       o->slab_max_bytes, KN__PAGE, KN__SLAB_MAX);
    }
    return check_limit(o->limit_bytes, info, function);
}

static kn_status check_soft_limit(const kn_pool_options *o, const kn_device_info *info,
                                  const char *function) {
    if (o->limit_bytes && o->soft_limit_bytes > o->limit_bytes) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: soft_limit_bytes is %zu, above limit_bytes, which is %zu", function,
                       o->soft_limit_bytes, o->limit_bytes);
    }
    double share = o->device_fraction * (double)info->total_bytes;
    if (o->device_fraction > 0 && (double)o->soft_limit_bytes > share) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: soft_limit_bytes is %zu, above device_fraction %g of %s, "
                       "which is %.0f",
                       function, o->soft_limit_bytes, o->device_fraction, info->name, share);
    }
    return KN_OK;
}

kn_status kn__options_check(const kn_pool_options *o, const kn_device_info *info,
                            const char *function) {
    KN_TRY(check_each(o, info, function));
    return check_soft_limit(o, info, function);
}

/* Those that can change. */
static void set_changeable(kn_pool *pool, const kn_pool_options *o, const kn_device_info *info) {
    bool decays = o->decay_ns != pool->options.decay_ns || o->clock_fn != pool->options.clock_fn ||
                  o->clock_ctx != pool->options.clock_ctx;
    pool->options = *o;
    pool->limit = o->limit_bytes ? o->limit_bytes : SIZE_MAX;
    if (o->device_fraction > 0) {
        size_t share = (size_t)(o->device_fraction * (double)info->total_bytes);
        if (share < pool->limit) pool->limit = share;
    }
    pool->soft_limit = o->soft_limit_bytes ? o->soft_limit_bytes : SIZE_MAX;
    pool->pressure = o->pressure > 0 ? o->pressure : PRESSURE;
    KN__WRITE(pool->decay_ns, o->decay_ns);
    pool->clock_fn = o->clock_fn;
    pool->clock_ctx = o->clock_ctx;
    if (o->decay_ns) pool->on_unlock = true;
    if (decays) pool->window_start_ns = 0; /* of another clock, or another length */
    kn__pool_fast_set(pool);
}

kn_status kn__options_check_device(const kn_pool_options *o, const kn_device *device,
                                   const kn_device_info *info) {
    const kn_device_driver *driver = device->driver;
    bool handles = driver->range_reserve && info->granularity_bytes && !o->pinned;
    unsigned has = handles && driver->handle_create_as ? driver->handle_flags : 0;
    if (o->shareable && !(has & KN_HANDLE_SHARED)) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_pool_create: shareable: %s memory of %s has no handles that other "
                       "processes can open",
                       o->pinned ? "pinned" : "the", device->name);
    }
    if (o->rdma && !(has & KN_HANDLE_RDMA)) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_pool_create: rdma: %s memory of %s can't be used by network cards",
                       o->pinned ? "pinned" : "the", device->name);
    }
    return KN_OK;
}

void kn__options_start(kn_pool *pool, const kn_pool_options *o, const kn_device_info *info) {
    pool->slab_max = o->slab_max_bytes ? o->slab_max_bytes : KN__SLAB_DEFAULT;
    pool->size_max = KN__SIZE_LIMIT;
    pool->n_size_classes = kn__size_class_of(pool->slab_max) + 1;
    pool->pinned = o->pinned && !pool->driver->ordered;
    pool->ordered = pool->driver->ordered;
    pool->handle_flags = (o->shareable ? KN_HANDLE_SHARED : 0u) | (o->rdma ? KN_HANDLE_RDMA : 0u);
    bool host = pool->ordered && pool->driver->host_access;
    pool->poison = (uint8_t)(host ? kn__poison_kind() : KN__POISON_NONE);
    pool->stream_mask = pool->ordered || pool->pinned ? 0 : UINTPTR_MAX;
    pool->has_ids = pool->driver->stream_id && !pool->ordered;
    pool->device_most = pool->close_bytes = UINT64_MAX;
    if (pool->pinned) {
        pool->own_driver = kn__pinned_driver(pool->driver);
        pool->driver = &pool->own_driver;
    }
    snprintf(pool->name, sizeof pool->name, "%s", o->name ? o->name : kn_device_name(pool->device));
    set_changeable(pool, o, info);
    pool->options.name = pool->name;
    pool->options.slab_max_bytes = pool->slab_max;
    pool->options.pressure = pool->pressure;
}

/* --- later --- */

void kn_pool_options_read(kn_pool_options *out, size_t out_bytes, kn_pool *pool) {
    kn__pool_lock(pool);
    kn_pool_options options = pool->options;
    kn__pool_unlock(pool);
    memset(out, 0, out_bytes);
    memcpy(out, &options, out_bytes < sizeof options ? out_bytes : sizeof options);
}

/* Of the pool's memory. Other threads write all options anew, also those that are fixed. */
static kn_status info_read(kn_device_info *out, kn_pool *pool) {
    kn__pool_lock(pool);
    bool pinned = pool->options.pinned;
    kn__pool_unlock(pool);
    return kn__options_info(out, pool->device, pinned);
}

/* Zero: as it is. Under the lock. */
static kn_status check_fixed(const kn_pool *pool, const kn_pool_options *o, const char *function) {
    const char *what = NULL;
    if (o->slab_max_bytes && o->slab_max_bytes != pool->slab_max) what = "slab_max_bytes";
    if (o->pinned != pool->options.pinned) what = "pinned";
    if (o->shareable != pool->options.shareable) what = "shareable";
    if (o->rdma != pool->options.rdma) what = "rdma";
    if (o->name && strcmp(o->name, pool->name) != 0) what = "name";
    if (!what) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: %s of pool %s is fixed when it is created; limit_bytes, "
                   "soft_limit_bytes, device_fraction, pressure, decay_ns, clock_fn and clock_ctx "
                   "can change",
                   function, what, pool->name);
}

static void change_locked(kn_pool *pool, const kn_pool_options *options,
                          const kn_device_info *info) {
    kn_pool_options o = *options;
    o.name = pool->name;
    o.slab_max_bytes = pool->slab_max;
    if (!(o.pressure > 0)) o.pressure = PRESSURE;
    set_changeable(pool, &o, info);
    kn__limit_apply(pool);
}

kn_status kn_pool_options_set(kn_pool *pool, const kn_pool_options *options) {
    kn_device_info info;
    if (!options) return KN_FAIL(KN_ERR_INVALID, "kn_pool_options_set: the options are NULL");
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    KN_TRY(kn__options_info(&info, pool->device, options->pinned));
    kn__pool_lock(pool);
    kn_status status = check_fixed(pool, options, "kn_pool_options_set");
    if (status == KN_OK) status = kn__options_check(options, &info, "kn_pool_options_set");
    if (status == KN_OK) change_locked(pool, options, &info);
    kn__pool_unlock(pool);
    return status;
}

/* A soft limit above the limit that kn_pool_limit set is no fault of other options. */
static kn_status check_change(const kn_pool *pool, const kn_pool_options *o,
                              const kn_device_info *info, const char *function) {
    const kn_pool_options *old = &pool->options;
    KN_TRY(check_fixed(pool, o, function));
    KN_TRY(check_each(o, info, function));
    bool same = o->limit_bytes == old->limit_bytes &&
                o->soft_limit_bytes == old->soft_limit_bytes &&
                !(o->device_fraction < old->device_fraction) &&
                !(o->device_fraction > old->device_fraction);
    return same ? KN_OK : check_soft_limit(o, info, function);
}

kn_status kn__options_change(kn_pool *pool, const char *words,
                             kn_status (*read_fn)(kn_pool_options *out, const char *words),
                             const char *function) {
    kn_device_info info;
    KN_TRY(kn__pool_given(pool, function));
    KN_TRY(kn__device_usable(pool->device, function));
    KN_TRY(info_read(&info, pool));
    kn__pool_lock(pool);
    kn_pool_options o = pool->options;
    kn_status status = read_fn(&o, words);
    if (status == KN_OK) status = check_change(pool, &o, &info, function);
    if (status == KN_OK) change_locked(pool, &o, &info);
    kn__pool_unlock(pool);
    return status;
}

kn_status kn_pool_limit(kn_pool *pool, size_t limit_bytes) {
    kn_device_info info;
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    KN_TRY(info_read(&info, pool));
    KN_TRY(check_limit(limit_bytes, &info, "kn_pool_limit"));
    kn__pool_lock(pool);
    pool->limit = limit_bytes ? limit_bytes : SIZE_MAX;
    pool->options.limit_bytes = limit_bytes;
    pool->options.device_fraction = 0;
    kn__limit_apply(pool);
    kn__pool_unlock(pool);
    return KN_OK;
}
