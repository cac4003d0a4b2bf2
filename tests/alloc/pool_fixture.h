/* A simulated device and a pool on it, for the tests of the pool. */
#ifndef KNET_POOL_FIXTURE_H
#define KNET_POOL_FIXTURE_H

#include <knet/pool.h>
#include <knet/sim.h>

#include "test.h"

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

typedef struct fixture {
    kn_sim *sim;
    kn_device *device;
    kn_pool *pool;
} fixture;

/* A new device of this capacity; `plain`: without virtual memory. Options may be NULL. */
fixture fixture_make(uint64_t capacity_bytes, bool plain, const kn_pool_options *options);
/* The same on a device that does its work at once, as an idle GPU that keeps up. */
fixture fixture_instant(uint64_t capacity_bytes, const kn_pool_options *options);
/* Checks the pool, destroys it, and checks that nothing is left on the device and no rule broken.
 */
void fixture_end(fixture *f);

void *must_alloc(kn_pool *pool, size_t size, kn_stream stream);
kn_pool_stats stats_of(const kn_pool *pool);
kn_stream new_stream(fixture *f);
/* `later` waits, on the device, for the work enqueued on `earlier`. */
void order_after(kn_device *device, kn_stream later, kn_stream earlier);
/* Destroys the stream by the driver alone, so that the pool doesn't hear of it. */
void destroy_unannounced(fixture *f, kn_stream stream);
/* Fails the test if the device saw a rule broken. */
void assert_no_violation(kn_sim *sim);

#endif
