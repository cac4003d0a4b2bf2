/* The drivers of this library. */
#ifndef KN_ALLOC_DRIVERS_H
#define KN_ALLOC_DRIVERS_H

#include <knet/device_driver.h>

/* NULL, cudaStreamLegacy and cudaStreamPerThread. */
static inline bool kn__stream_is_default(kn_stream stream) { return (uintptr_t)stream <= 2; }

/* cuda.c: opens CUDA device `index`, perhaps with managed memory, and registers it under `name`;
 * from one thread at a time. Errors: DEVICE, with the reason. */
kn_status kn__cuda_open(kn_device **out, const char *name, int index, bool managed);
int kn__cuda_count(void);
/* cuda_choose.c: the index of the device that "cuda:NAME" means: "auto", "GPU-…", "MIG-…". Errors:
 * INVALID for other names; DEVICE; the driver's. */
kn_status kn__cuda_choose(int *out, const char *name);

/* sim.c: creates and registers "sim", with its default capacity. */
kn_status kn__sim_open(kn_device **out);

/* host.c: the driver of "cpu". */
extern const kn_device_driver kn__host_driver __attribute__((visibility("hidden")));

/* pinned.c: a device's driver with page-locked segments of host memory in place of its own memory.
 */
kn_device_driver kn__pinned_driver(const kn_device_driver *device);

/* host_memory.c: segments of host memory, aligned to huge pages. */
kn_status kn__host_memory_alloc(void **out, size_t size_bytes);
void kn__host_memory_free(void *ptr, size_t size_bytes);
/* Returns the whole pages in it to the system; they read as zeros. */
kn_status kn__host_memory_drop(void *ptr, size_t size_bytes);
uint64_t kn__host_memory_overhead(void); /* bytes of the backing store, beyond the segments */
void kn__host_memory_name(char *out, size_t out_bytes); /* "jemalloc 5.3.0" or "mmap" */

#endif
