/* CuPy's CFunctionAllocator: malloc and free that get a parameter and a device, but no stream. The
 * parameter is the stream that all blocks are allocated on; NULL is the legacy default stream.
 *
 * They return NULL where memory runs out, which CFunctionAllocator doesn't check:
 * knetc.install("cupy") takes a path that raises cupy's OutOfMemoryError and follows CuPy's current
 * stream. */
#include <knet/pool.h>

#include "devices.hpp"
#include "log.h"

static knet_plugin::device_pools pools;

extern "C" {

KN_API void *knet_cupy_malloc(void *param, std::size_t size, int device) {
    void *out = nullptr;
    kn_pool *pool = pools.get(device);
    if (!pool || kn_alloc(&out, pool, size, static_cast<kn_stream>(param)) < 0) return nullptr;
    return out;
}

KN_API void knet_cupy_free(void *, void *ptr, int device) {
    kn_pool *pool = pools.get(device);
    if (pool) (void)kn_free(pool, ptr);
}

/* The pool of a device; NULL: no such device. */
KN_API kn_pool *knet_cupy_pool(int device) { return pools.get(device); }
}
