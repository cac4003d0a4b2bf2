/* clang-format off */
/* Pools in C++17: blocks that free themselves, typed allocation, and a std::pmr::memory_resource
 * over page-locked memory. Header only, over <knet/pool.h>, which explains streams and limits.
 *
 *     knet::pool_ref pool = knet::pool_ref::of("cuda:0");
 *     knet::block<float> x = knet::alloc<float>(pool, n, stream);   // n floats
 *     kernel<<<grid, threads, 0, stream>>>(x.data(), x.size());
 *     other_kernel<<<grid, threads, 0, other>>>(x.data());          // after it waited for `stream`
 *     x.use(other);                                                 // before x is freed
 *                                                                   // freed in the order of `stream`
 *
 * Owner: knet::pool, knet::block and knet::stream own what they hold, move and don't copy;
 * knet::pool_ref and knet::pinned_resource borrow a pool, which must outlive them and all blocks.
 * Errors: exceptions with the library's text, knet::out_of_memory (a std::bad_alloc) and
 * knet::error (a std::runtime_error). Destructors don't throw: the pool logs and counts a misuse.
 * Threads: as for <knet/pool.h>; one object is used by one thread at a time.
 * Compiler: C++17 or later, with exceptions; RTTI only lets two pinned_resources of a pool be equal.
 */
/* clang-format on */
#ifndef KNET_POOL_HPP
#define KNET_POOL_HPP

#if __cplusplus < 201703L
#error "<knet/pool.hpp> needs C++17: compile with -std=c++17 or later, or use <knet/pool.h>"
#endif
#if !defined __cpp_exceptions && !defined __EXCEPTIONS
#error "<knet/pool.hpp> throws: compile without -fno-exceptions, or use <knet/pool.h>"
#endif

#include <knet/pool.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace knet {

/* Memory ran out; what() says who holds it. */
class out_of_memory : public std::bad_alloc {
   public:
    explicit out_of_memory(const char *text) : text_(text) {}
    const char *what() const noexcept override { return text_.c_str(); }

   private:
    std::string text_;
};

/* Another failure. status() is the code of <knet/status.h>, what() the message. */
class error : public std::runtime_error {
   public:
    error(kn_status status, const char *text) : std::runtime_error(text), status_(status) {}
    kn_status status() const noexcept { return status_; }

   private:
    kn_status status_;
};

/* Throws the thread's last error if the call failed: out_of_memory for KN_ERR_OOM, else error. The
 * call must have been this thread's latest that failed. */
inline void check(kn_status status) {
    if (status >= 0) return;
    if (status == KN_ERR_OOM) throw out_of_memory(kn_last_error()->message);
    throw error(status, kn_last_error()->message);
}

/* A pool that belongs to somebody else, such as a device's own. Copies are the same pool. */
class pool_ref {
   public:
    /* A pool of the C interface; not NULL. */
    explicit pool_ref(kn_pool *pool) noexcept : pool_(pool) {}

    /* The default pool of "cuda:0", "cpu", "sim": all names of kn_device_find. Throws error if the
     * machine lacks the device (KN_ERR_DEVICE) or the name is wrong (KN_ERR_INVALID). */
    static pool_ref of(const char *device) { return made_by(kn_device_pool, device); }
    /* The device's pool of page-locked host memory. Throws as `of`. */
    static pool_ref pinned(const char *device) { return made_by(kn_device_pinned_pool, device); }

    /* The pool and its device, for functions of the C interface. */
    kn_pool *get() const noexcept { return pool_; }
    kn_device *device() const noexcept { return kn_pool_device(pool_); }
    /* All counters, in bytes and calls; exact while no other thread is in the pool. */
    kn_pool_stats stats() const noexcept {
        kn_pool_stats stats;
        kn_pool_stats_read(&stats, sizeof stats, pool_);
        return stats;
    }
    /* Returns free memory to the device until keep_bytes are reserved; does not wait for streams.
     */
    void trim(std::size_t keep_bytes = 0) const { check(kn_pool_trim(pool_, keep_bytes)); }
    /* The most bytes that the pool may reserve from now on; 0: no limit. */
    void limit(std::size_t limit_bytes) const { check(kn_pool_limit(pool_, limit_bytes)); }
    /* By words of KNET_ALLOC, such as "limit=8GiB,decay=10s". Throws error (KN_ERR_INVALID) that
     * names the word that is wrong, and changes nothing then. */
    void configure(const char *words) const { check(kn_pool_configure(pool_, words)); }

    /* Whether both are the same pool. */
    friend bool operator==(pool_ref a, pool_ref b) noexcept { return a.pool_ == b.pool_; }
    friend bool operator!=(pool_ref a, pool_ref b) noexcept { return a.pool_ != b.pool_; }

   private:
    static kn_device *find(const char *name) {
        kn_device *device = nullptr;
        check(kn_device_find(&device, name));
        return device;
    }
    static pool_ref made_by(kn_pool *(*make)(kn_device *), const char *name) {
        kn_device *device = find(name);
        bool older = kn_pending() < 0; /* another call's error, which stays pending */
        kn_pool *pool = make(device);
        if (!pool) check(older ? kn_last_error()->status : kn_check());
        return pool_ref(pool);
    }
    kn_pool *pool_;
};

/* A pool of one's own, destroyed with the object: after its blocks. */
class pool {
   public:
    /* Options of zero are the defaults. Throws error (KN_ERR_INVALID) for options that contradict
     * each other. */
    explicit pool(kn_device *device, const kn_pool_options &options = kn_pool_options()) {
        check(kn_pool_create(&pool_, device, &options));
    }
    /* Every block must be freed before. */
    ~pool() { kn_pool_destroy(pool_); }
    pool(pool &&other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
    pool &operator=(pool &&other) noexcept {
        pool old(std::move(other));
        std::swap(pool_, old.pool_);
        return *this;
    }
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    kn_pool *get() const noexcept { return pool_; }
    /* Borrowed: valid while this object is. */
    operator pool_ref() const noexcept { return pool_ref(pool_); }

   private:
    kn_pool *pool_ = nullptr;
};

/* n objects of type T in a pool's memory, freed in the order of their stream when the block goes.
 * It neither constructs nor destroys the objects: the memory may be on a GPU. */
template <typename T = std::byte>
class block {
    static_assert(std::is_trivially_copyable_v<T>, "memory of a device is copied byte by byte");
    static_assert(!std::is_const_v<T>, "a block's own elements are not const; pass on a const T *");

   public:
    /* Empty: data() is nullptr, size() 0. So is a block that was moved from. */
    block() noexcept = default;
    /* Takes over n objects at `data`, which was allocated from the pool. */
    block(pool_ref pool, T *data, std::size_t n) noexcept
        : pool_(pool.get()), data_(data), size_(n) {}
    ~block() { reset(); }
    block(block &&other) noexcept
        : pool_(other.pool_),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    block &operator=(block &&other) noexcept {
        block old(std::move(other));
        std::swap(pool_, old.pool_);
        std::swap(data_, old.data_);
        std::swap(size_, old.size_);
        return *this;
    }
    block(const block &) = delete;
    block &operator=(const block &) = delete;

    /* An address of the device: the host reads it only where the device's memory allows that. */
    T *data() const noexcept { return data_; }
    /* In objects; as asked for, without the pool's rounding. */
    std::size_t size() const noexcept { return size_; }
    std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    explicit operator bool() const noexcept { return data_ != nullptr; }

    /* Marks a use on another stream, after it was enqueued and before the block is freed; see
     * kn_block_use. Throws error for a stream of another context. */
    void use(kn_stream stream) const { check(kn_block_use(pool_, data_, stream)); }
    /* Frees the memory now, in the order of its stream, without a wait; then the block is empty. */
    void reset() noexcept {
        if (data_) (void)kn_free(pool_, data_); /* a misuse is logged */
        data_ = nullptr;
        size_ = 0;
    }
    /* Hands the memory to the caller, who frees it with kn_free; then the block is empty. */
    T *release() noexcept {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

   private:
    kn_pool *pool_ = nullptr;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* Allocates n objects of type T for work on the stream; 0 objects: an empty block. The memory is
 * not initialised, and aligned to 256 bytes, or to alignof(T) where that is more. Throws
 * out_of_memory, with the bytes requested and the largest owners; then the pool is as before. */
template <typename T = std::byte>
block<T> alloc(pool_ref pool, std::size_t n, kn_stream stream = nullptr) {
    if (n > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
        throw out_of_memory("knet::alloc: the size in bytes overflows");
    }
    void *ptr = nullptr;
    constexpr std::size_t align = alignof(T) > 256 ? alignof(T) : 256;
    check(align == 256 ? kn_alloc(&ptr, pool.get(), n * sizeof(T), stream)
                       : kn_alloc_aligned(&ptr, pool.get(), n * sizeof(T), align, stream));
    return block<T>(pool, static_cast<T *>(ptr), n);
}

/* A non-blocking stream of a device, retired and destroyed with the object: the pools then know
 * that no more work comes on it. Blocks may outlive it. */
class stream {
   public:
    /* Throws error if the driver makes no stream. */
    explicit stream(kn_device *device) : device_(device) {
        check(kn_stream_create(&stream_, device));
    }
    ~stream() { kn_stream_destroy(device_, stream_); }
    stream(stream &&other) noexcept
        : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
    stream &operator=(stream &&other) noexcept {
        stream old(std::move(other));
        std::swap(device_, old.device_);
        std::swap(stream_, old.stream_);
        return *this;
    }
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;

    /* The driver's handle, a cudaStream_t or CUstream. */
    kn_stream get() const noexcept { return stream_; }
    operator kn_stream() const noexcept { return stream_; }
    /* The host waits for the work on the stream. Throws error if that work failed. */
    void sync() const { check(kn_stream_sync(device_, stream_)); }

   private:
    kn_device *device_;
    kn_stream stream_ = nullptr;
};

/* A tag of this thread's allocations until the end of the scope; see kn_tag_push. Objects end in
 * the reverse of the order in which they were made. */
class tag {
   public:
    explicit tag(const char *name) { kn_tag_push(name); }
    ~tag() { kn_tag_pop(); }
    tag(const tag &) = delete;
    tag &operator=(const tag &) = delete;
};

/* Page-locked host memory for the containers of std::pmr:
 *
 *     knet::pinned_resource pinned("cuda:0");
 *     std::pmr::vector<float> batch(n, &pinned);   // copies of it run beside the CPU
 *     cudaMemcpyAsync(x.data(), batch.data(), bytes, cudaMemcpyHostToDevice, stream);
 *     pinned.use(batch.data(), stream);            // freed memory waits for that copy
 */
class pinned_resource : public std::pmr::memory_resource {
   public:
    /* Of a device by its name. Throws as pool_ref::of; allocations throw out_of_memory. */
    explicit pinned_resource(const char *device) : pool_(pool_ref::pinned(device)) {}
    /* Over a pool with options.pinned, which it borrows. */
    explicit pinned_resource(pool_ref pool) noexcept : pool_(pool) {}

    pool_ref pool() const noexcept { return pool_; }
    /* A copy on this stream reads or writes the memory that starts at ptr. */
    void use(const void *ptr, kn_stream stream) const {
        check(kn_block_use(pool_.get(), const_cast<void *>(ptr), stream));
    }

   private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        void *ptr = nullptr; /* the standard wants an address for 0 bytes too */
        check(kn_alloc_aligned(&ptr, pool_.get(), bytes ? bytes : 1, align, nullptr));
        return ptr;
    }
    void do_deallocate(void *ptr, std::size_t, std::size_t) override {
        (void)kn_free(pool_.get(), ptr);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#ifdef __cpp_rtti
        auto *same = dynamic_cast<const pinned_resource *>(&other);
        return same && same->pool_ == pool_;
#else
        return this == &other; /* a container of the other then copies what it could have moved */
#endif
    }

    pool_ref pool_;
};

} /* namespace knet */
#endif
