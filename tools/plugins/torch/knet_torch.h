/* libknet_torch: PyTorch's CUDAPluggableAllocator over the pools of libknet_alloc.
 *
 *     import knetc
 *     knetc.install("torch")              # before the first use of CUDA
 *
 * or, without the Python package:
 *
 *     allocator = torch.cuda.memory.CUDAPluggableAllocator(
 *         "libknet_torch.so", "knet_torch_alloc", "knet_torch_free")
 *     torch.cuda.memory.change_current_allocator(allocator)
 *
 * Devices are PyTorch's numbers: pool of "cuda:N". Functions that allocate throw where they fail:
 * c10::OutOfMemoryError if the library was built against PyTorch's headers (KNET_TORCH), else an
 * exception derived from std::bad_alloc, with the pool's explanation in what(). Threads: any.
 */
#ifndef KNET_TORCH_H
#define KNET_TORCH_H

#include <knet/pool.h>

#include <cstdint>
#include <functional>
#include <utility>

/* PyTorch's names for a memory pool and for the test whether an allocation belongs to it. */
using knet_torch_pool_id = std::pair<std::uint64_t, std::uint64_t>;
using knet_torch_filter = std::function<bool(kn_stream)>;

extern "C" {

/* Allocates for the stream; 0 bytes: NULL. Throws, never returns NULL otherwise. */
KN_API void *knet_torch_alloc(std::size_t size, int device, kn_stream stream);
/* Frees in the order of the stream that the block was allocated on. */
KN_API void knet_torch_free(void *ptr, std::size_t size, int device, kn_stream stream);

/* set_init_fn: the number of devices is of no use; pools are created at first use. */
KN_API void knet_torch_init(int device_count);
/* set_reset_fn, torch.cuda.empty_cache: waits until freed memory is out of use, then returns it. */
KN_API void knet_torch_reset(void);
/* set_memory_fraction_fn: limits the pool to a share of the device's memory. */
KN_API void knet_torch_memory_fraction(double fraction, int device);
/* set_base_alloc_fn: the start and the size of the block that contains the address; the address
 * itself if no pool has it. */
KN_API void *knet_torch_base_alloc(void *ptr, std::size_t *size);
/* set_record_stream_fn: marks a use on another stream. The free waits for one of another device. */
KN_API void knet_torch_record_stream(void *ptr, kn_stream stream);

/* set_begin_allocate_to_pool: from now on, allocations whose stream passes the filter belong to the
 * pool. The filter is asked at each allocation, on its thread; it may allocate and call functions
 * of this header, but not end its own pool. A pool may be begun again. */
KN_API void knet_torch_begin_pool(int device, knet_torch_pool_id id, knet_torch_filter filter);
/* set_end_allocate_to_pool_fn: the last filter of the pool is no longer asked, once calls of it on
 * other threads have returned. */
KN_API void knet_torch_end_pool(int device, knet_torch_pool_id id);
/* set_release_pool: to be called once for each begin. After the last call the memory is free for
 * all, once the device has been waited for. */
KN_API void knet_torch_release_pool(int device, knet_torch_pool_id id);

/* The pool of a device, for the functions of <knet/pool.h>; NULL: no such device. */
KN_API kn_pool *knet_torch_pool(int device);
/* What a failed allocation throws: "c10::OutOfMemoryError" or "std::bad_alloc". */
KN_API const char *knet_torch_oom_type(void);
}

#endif
