/* The devices of this library and what they share inside it. */
#ifndef KNET_ALLOC_DEVICES_H
#define KNET_ALLOC_DEVICES_H

#include <knet/device_driver.h>
#include <knet/pool.h>

/* device.c: takes virtual memory out of a table of functions; and whether the handle is one of the
 * default streams': NULL and 1 the legacy one, 2 the calling thread's own. */
void kn__driver_make_plain(kn_device_driver *driver);
static inline bool kn__stream_is_default(kn_stream stream) { return (uintptr_t)stream <= 2; }

/* cuda.c: finds and registers "cuda:index". Errors: DEVICE, saying why there is none. */
kn_status kn__cuda_find(kn_device **out, int index);
int kn__cuda_count(void);
void kn__cuda_fork_child(void);

/* status.c */
void kn__log_fork_child(void);

/* sim.c: finds and registers "sim", with its default capacity. */
kn_status kn__sim_find(kn_device **out);

/* host.c: the driver of "cpu". */
extern const kn_device_driver kn__host_driver;

/* host_memory.c: segments of host memory, aligned to huge pages. */
kn_status kn__host_memory_alloc(void **out, size_t size_bytes);
void kn__host_memory_free(void *ptr, size_t size_bytes);
uint64_t kn__host_memory_overhead(void); /* what the backing store holds beyond what it gave */
void kn__host_memory_name(char *out, size_t out_bytes); /* "jemalloc 5.3.0" or "mmap" */

/* device.c: pools register themselves, and the observer is told; the list is what stream retirement
 * and the observer walk. */
void kn__pool_enlist(kn_pool *pool, kn_device *device);
/* NULL: done; else why it can't go. A pool that is gone already is not touched. */
const char *kn__pool_delist(kn_pool *pool);

/* pool.c: the stream goes away; what waits on it is recorded now. Links of the device's list. */
kn_status kn__pool_create_default(kn_pool **out, kn_device *device);
/* pinned.c: the driver of a pinned pool, and the record of the CPU. */
void kn__pinned_driver(kn_pool *pool);
kn_status kn__pinned_home(kn_pool *pool);

void kn__pool_stream_retire(kn_pool *pool, kn_stream stream);
kn_pool **kn__pool_link(kn_pool *pool);

void kn__pool_fork_lock(kn_pool *pool);
void kn__pool_fork_unlock(kn_pool *pool);
void kn__pool_fork_kill(kn_pool *pool); /* in the child, of a device whose driver is lost */

/* Whether the device's driver may be called: not in a child of fork(). Errors: DEVICE. */
kn_status kn__device_usable(const kn_device *device);
bool kn__device_alive(const kn_device *device); /* nor once the process unloads it */

#endif
