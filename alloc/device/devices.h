/* Inside the library: its devices, and what they share with the pools. */
#ifndef KNET_ALLOC_DEVICES_H
#define KNET_ALLOC_DEVICES_H

#include <knet/device_driver.h>
#include <knet/pool.h>

/* NULL, cudaStreamLegacy and cudaStreamPerThread. */
static inline bool kn__stream_is_default(kn_stream stream) { return (uintptr_t)stream <= 2; }

/* cuda.c: opens CUDA device `index` and registers it under `name`; device.c calls it from one
 * thread at a time. Errors: DEVICE, with the reason. */
kn_status kn__cuda_open(kn_device **out, const char *name, int index);
int kn__cuda_count(void);

/* status.c */
void kn__log_fork_child(void);

/* sim.c: creates and registers "sim", with its default capacity. */
kn_status kn__sim_open(kn_device **out);

/* host.c: the driver of "cpu". */
extern const kn_device_driver kn__host_driver;

/* host_memory.c: segments of host memory, aligned to huge pages. */
kn_status kn__host_memory_alloc(void **out, size_t size_bytes);
void kn__host_memory_free(void *ptr, size_t size_bytes);
uint64_t kn__host_memory_overhead(void); /* of the backing store, beyond the segments */
void kn__host_memory_name(char *out, size_t out_bytes); /* "jemalloc 5.3.0" or "mmap" */

/* device.c: adds a new pool to the device's list, for stream retirement and the observer. */
void kn__pool_enlist(kn_pool *pool, kn_device *device);
/* Removes it. Returns NULL, or the reason why it can't be destroyed; doesn't read a pool that is
 * not in the list. */
const char *kn__pool_delist(kn_pool *pool);

/* pool.c: creates the device's default pool; records the events of a stream that will be destroyed;
 * makes the pool refuse requests, in a child of fork() that can't use the driver. */
kn_status kn__pool_create_default(kn_pool **out, kn_device *device);
void kn__pool_stream_retire(kn_pool *pool, kn_stream stream);
void kn__pool_fork_kill(kn_pool *pool);

/* pinned.c: sets the driver of a pinned pool; creates the CPU's home stream. */
void kn__pinned_driver(kn_pool *pool);
kn_status kn__pinned_home(kn_pool *pool);

/* Whether the driver can be called. Errors: DEVICE in a child of fork(). */
kn_status kn__device_usable(const kn_device *device);
bool kn__device_alive(const kn_device *device); /* false too while the process unloads it */

#endif
