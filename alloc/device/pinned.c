#include "device/drivers.h"

kn_device_driver kn__pinned_driver(const kn_device_driver *device) {
    kn_device_driver own = *device;
    bool locked = own.pinned_alloc && own.pinned_free;
    own.host_access = true;
    own.segment_alloc = locked ? own.pinned_alloc : kn__host_driver.segment_alloc;
    own.segment_free = locked ? own.pinned_free : kn__host_driver.segment_free;
    own.range_reserve = NULL;
    own.free_bytes = NULL;
    return own;
}
