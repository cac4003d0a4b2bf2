/* Pinned pools: the pool's own code over page-locked segments of host memory.
 *
 * The CPU may write a block as soon as it is allocated. So all blocks have one home, whatever
 * stream is passed: the CPU, whose epochs are always finished. Uses by copies on streams are waited
 * for as in other pools. No stream may wait for another on behalf of the CPU. */
#include "device/devices.h"
#include "core/pool_types.h"

void kn__pinned_driver(kn_pool *pool) {
    kn_device_driver *own = &pool->own_driver;
    *own = *pool->driver;
    bool locked = own->pinned_alloc && own->pinned_free;
    own->host_access = true;
    own->segment_alloc = locked ? own->pinned_alloc : kn__host_driver.segment_alloc;
    own->segment_free = locked ? own->pinned_free : kn__host_driver.segment_free;
    own->range_reserve = NULL;
    own->free_bytes = NULL;
    pool->driver = own;
}

kn_status kn__pinned_home(kn_pool *pool) {
    kn__stream *home;
    KN_TRY(kn__stream_get(&home, pool, NULL));
    home->done = KN__EPOCH_NEVER;
    return KN_OK;
}
