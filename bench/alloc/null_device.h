/* A device whose calls cost nothing and succeed as long as there is capacity, to measure a pool
 * alone. It counts calls. Events are done at once, or never; copies do nothing.
 *
 *     KN_TRY(null_device_create(&null, (uint64_t)80 << 30));
 *     KN_TRY(kn_pool_create(&pool, null->device, NULL));
 *     … null->n_waits
 *
 * It lives as long as the process. Threads: any, any time.
 */
#ifndef KNET_BENCH_NULL_DEVICE_H
#define KNET_BENCH_NULL_DEVICE_H

#include <knet/device_driver.h>
#include <stdatomic.h>

typedef struct null_device {
    kn_device *device;
    uint64_t capacity_bytes;
    atomic_bool busy; /* set by the program: events are never done */
    _Atomic uint64_t held_bytes;
    _Atomic uint64_t n_records, n_queries, n_waits; /* of events; waits of streams */
    _Atomic uint64_t n_maps, n_unmaps;
    /* Addresses, handles, streams and events are never reused. */
    _Atomic uint64_t next_address, next_number;
} null_device;

/* Registered as "null:1" and so on. Errors: OOM. */
KN_MUST_CHECK kn_status null_device_create(null_device **out, uint64_t capacity_bytes);

#endif
