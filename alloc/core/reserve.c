#include "core/reserve.h"

/* The least that closes an epoch: an event each 64 MiB costs less than the work on 64 MiB. In a
 * large pool it is 1/64 of the reserved bytes. */
static const uint64_t CLOSE_BYTES_MIN = (uint64_t)64 << 20;
enum { CLOSE_SHARE = 64 };

void kn__close_bytes_set(kn_pool *pool) {
    uint64_t share = pool->reserved / CLOSE_SHARE;
    pool->close_bytes = share > CLOSE_BYTES_MIN ? share : CLOSE_BYTES_MIN;
    if (pool->n_streams <= 1 || pool->ordered) pool->close_bytes = UINT64_MAX;
}

void kn__reserve_add(kn_pool *pool, int64_t delta_bytes) {
    KN_ASSERT(delta_bytes >= 0 || pool->reserved >= (uint64_t)-delta_bytes);
    pool->reserved += (uint64_t)delta_bytes;
    pool->reserve_delta += delta_bytes;
    pool->on_unlock = true;
    pool->n_device_frees += delta_bytes < 0;
    kn__close_bytes_set(pool);
    if (pool->reserved > pool->reserved_max) pool->reserved_max = pool->reserved;
}

void kn__device_free_read(kn_pool *pool) {
    uint64_t bytes;
    if (pool->driver->free_bytes && pool->driver->free_bytes(pool->impl, &bytes) == KN_OK) {
        pool->device_most = pool->reserved + bytes;
    }
}

uint64_t kn__pool_capacity(const kn_pool *pool) {
    return pool->limit < pool->device_most ? pool->limit : pool->device_most;
}

bool kn__pool_pressed(const kn_pool *pool, size_t size) {
    uint64_t most = kn__pool_capacity(pool);
    if (pool->soft_limit < most) most = pool->soft_limit;
    return (double)(pool->reserved + size) > pool->pressure * (double)most;
}

uint64_t kn__pool_headroom(const kn_pool *pool) {
    uint64_t most = kn__pool_capacity(pool);
    return most > pool->reserved ? most - pool->reserved : 0;
}

kn_status kn__over_limit(const kn_pool *pool, size_t bytes) {
    if (pool->reserved + bytes > pool->limit) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes more are beyond the limit of %zu",
                       pool->name, bytes, pool->limit);
    }
    return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes more are needed, the device has %llu free",
                   pool->name, bytes, (unsigned long long)kn__pool_headroom(pool));
}
