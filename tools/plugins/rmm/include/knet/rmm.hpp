/* RMM's device memory resource over a pool of libknet_alloc; header only, C++17. Link
 * libknet_alloc.
 *
 *     knet::rmm_resource pool(0);                       // cuda:0
 *     rmm::mr::set_current_device_resource(&pool);      // RMM before 26.04
 *     rmm::mr::set_current_device_resource(pool);       // RMM from 26.04 on
 *
 * Where RMM has rmm::mr::device_memory_resource, the class derives from it. Newer versions take any
 * class that satisfies the concept cuda::mr::resource, as this one does.
 *
 * Sizes and alignments are bytes; alignments are powers of two, and every block is aligned to 256.
 * Errors: rmm::out_of_memory with the pool's explanation (bytes requested, live and unused, the
 * limit, the largest owners); rmm::bad_alloc where the driver fails for another reason. Frees don't
 * throw: a pointer that is not the pool's is logged and counted, and changes nothing.
 * Threads: any thread may call any function. The pool must outlive the resource and its blocks; a
 * device's default pool lives as long as the process.
 *
 * RMM frees on the stream where the block was used last. If that is another stream than the one of
 * the allocation, the pool reuses the block only after the work of both. A stream of another device
 * is waited for; if that fails, the block stays allocated, and the log says so.
 */
#ifndef KNET_RMM_HPP
#define KNET_RMM_HPP

#include <knet/pool.h>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define KNET_RMM_BASE 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define KNET_RMM_BASE 1
#else
#include <rmm/resource_ref.hpp>
#define KNET_RMM_BASE 0
#endif

#include <cstddef>
#include <string>

namespace knet {

/* A resource over a pool, which it borrows. Copies share the pool and compare equal. */
class rmm_resource
#if KNET_RMM_BASE
    : public rmm::mr::device_memory_resource
#endif
{
   public:
    /* The default pool of "cuda:N". Throws rmm::bad_alloc if there is no such device. */
    explicit rmm_resource(int device) : pool_(find(device)) {}
    /* A pool of the caller, which must not be NULL. */
    explicit rmm_resource(kn_pool *pool) : pool_(pool) {}

    /* For functions of <knet/pool.h>: limits, counters, snapshots. */
    kn_pool *pool() const noexcept { return pool_; }

#if !KNET_RMM_BASE
    /* Memory for work on the stream, which may be in use by earlier work of that stream alone.
     * 0 bytes: NULL. */
    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = 256) {
        return take(bytes, align, reinterpret_cast<kn_stream>(stream.get()));
    }
    /* The pool reuses the block after the work that is on the stream now. Does not wait, unless
     * the stream is another device's. */
    void deallocate(cuda::stream_ref stream, void *ptr, std::size_t, std::size_t = 256) noexcept {
        put(ptr, reinterpret_cast<kn_stream>(stream.get()));
    }
    /* The memory may be used on every stream at once: it waits for the default stream. */
    void *allocate_sync(std::size_t bytes, std::size_t align = 256) {
        void *ptr = take(bytes, align, nullptr);
        if (kn_stream_sync(kn_pool_device(pool_), nullptr) < 0) {
            put(ptr, nullptr);
            throw rmm::bad_alloc{std::string(kn_last_error()->message)};
        }
        return ptr;
    }
    /* All work with the memory must have ended, or be on the default stream. */
    void deallocate_sync(void *ptr, std::size_t, std::size_t = 256) noexcept { put(ptr, nullptr); }
    /* Equal: one can free the other's blocks, since both borrow the same pool. */
    bool operator==(const rmm_resource &other) const noexcept { return pool_ == other.pool_; }
    bool operator!=(const rmm_resource &other) const noexcept { return pool_ != other.pool_; }
    /* Kernels can use the memory; the host is not promised to. */
    friend void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {}
#endif

   private:
#if KNET_RMM_BASE
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        return take(bytes, 256, reinterpret_cast<kn_stream>(stream.value()));
    }
    void do_deallocate(void *ptr, std::size_t, rmm::cuda_stream_view stream) noexcept override {
        put(ptr, reinterpret_cast<kn_stream>(stream.value()));
    }
    bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override {
        auto *same = dynamic_cast<const rmm_resource *>(&other);
        return same && same->pool_ == pool_;
    }
#endif

    /* The default pool of a device, or rmm::bad_alloc with the reason. */
    static kn_pool *find(int device) {
        kn_device *found = nullptr;
        std::string name = "cuda:" + std::to_string(device);
        kn_pool *pool = nullptr;
        bool older = kn_pending() < 0; /* another call's error, which stays pending */
        if (kn_device_find(&found, name.c_str()) == KN_OK) pool = kn_device_pool(found);
        if (pool) return pool;
        kn_status taken = older ? KN_OK : kn_check(); /* the exception carries it */
        (void)taken;
        throw rmm::bad_alloc{std::string(kn_last_error()->message)};
    }

    /* Allocates, and throws what RMM's callers expect. */
    void *take(std::size_t bytes, std::size_t align, kn_stream stream) {
        void *ptr = nullptr;
        kn_status status = kn_alloc_aligned(&ptr, pool_, bytes, align, stream);
        if (status == KN_OK) return ptr;
        std::string message(kn_last_error()->message);
        if (status == KN_ERR_OOM) throw rmm::out_of_memory{message};
        throw rmm::bad_alloc{message};
    }
    /* Marks the stream as a user of the block, then frees it. */
    void put(void *ptr, kn_stream stream) noexcept {
        if (kn_block_use(pool_, ptr, stream) >= 0 || end_use(ptr, stream)) {
            (void)kn_free(pool_, ptr);
        }
    }
    /* Waits for a stream that the pool can't note, as one of another device. If that fails the
     * block is better lost than overwritten. */
    bool end_use(void *ptr, kn_stream stream) const noexcept {
        kn_block_info block;
        if (!kn_block_find(&block, sizeof block, pool_, ptr)) return false; /* logged already */
        if (kn_stream_sync(kn_pool_device(pool_), stream) >= 0) return true;
        kn_log_write(
            0, "rmm_resource: block %p of %zu bytes is never freed: no wait for stream %p: %s", ptr,
            block.size_bytes, static_cast<void *>(stream), kn_last_error()->message);
        return false;
    }

    kn_pool *pool_;
};

} /* namespace knet */
#endif
