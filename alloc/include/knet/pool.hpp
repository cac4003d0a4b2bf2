/* Pools in C++17: blocks that free themselves, typed allocation, and a std::pmr::memory_resource
 * over page-locked memory. Header only, over <knet/pool.h>.
 *
 *     knet::pool_ref pool = knet::pool_ref::of("cuda:0");
 *     knet::block<float> x = knet::alloc<float>(pool, n, stream);   // n floats
 *     kernel<<<grid, threads, 0, stream>>>(x.data(), x.size());
 *     x.use(other);                                                 // before another stream's use
 * ends
 *                                                                   // freed in the order of its
 * stream Errors are exceptions: knet::out_of_memory (a std::bad_alloc) and knet::error (a
 * std::runtime_error), with the library's text. Threads: as for <knet/pool.h>; one object is used
 * by one thread at a time.
 */
#ifndef KNET_POOL_HPP
#define KNET_POOL_HPP

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

/* Another failure. */
class error : public std::runtime_error {
   public:
    error(kn_status status, const char *text) : std::runtime_error(text), status_(status) {}
    kn_status status() const noexcept { return status_; }

   private:
    kn_status status_;
};

/* Throws the thread's last error if the call failed. */
inline void check(kn_status status) {
    if (status >= 0) return;
    if (status == KN_ERR_OOM) throw out_of_memory(kn_last_error()->message);
    throw error(status, kn_last_error()->message);
}

/* A pool that belongs to somebody else, such as a device's own. Copies are the same pool. */
class pool_ref {
   public:
    explicit pool_ref(kn_pool *pool) noexcept : pool_(pool) {}

    /* The default pool of "cuda:0", "cpu", "sim". */
    static pool_ref of(const char *device) { return pool_ref(must(kn_device_pool(find(device)))); }
    /* Its pool of page-locked host memory. */
    static pool_ref pinned(const char *device) {
        return pool_ref(must(kn_device_pinned_pool(find(device))));
    }

    kn_pool *get() const noexcept { return pool_; }
    kn_device *device() const noexcept { return kn_pool_device(pool_); }
    kn_pool_stats stats() const noexcept {
        kn_pool_stats stats;
        kn_pool_stats_read(&stats, sizeof stats, pool_);
        return stats;
    }
    void trim(std::size_t keep_bytes = 0) const { check(kn_pool_trim(pool_, keep_bytes)); }
    void limit(std::size_t limit_bytes) const { check(kn_pool_limit(pool_, limit_bytes)); }
    /* By words of KNET_ALLOC, such as "limit=8GiB,decay=10s". */
    void configure(const char *words) const { check(kn_pool_configure(pool_, words)); }

    friend bool operator==(pool_ref a, pool_ref b) noexcept { return a.pool_ == b.pool_; }
    friend bool operator!=(pool_ref a, pool_ref b) noexcept { return a.pool_ != b.pool_; }

   private:
    static kn_device *find(const char *name) {
        kn_device *device = nullptr;
        check(kn_device_find(&device, name));
        return device;
    }
    static kn_pool *must(kn_pool *pool) {
        if (!pool) check(kn_check());
        return pool;
    }
    kn_pool *pool_;
};

/* A pool of one's own, destroyed with the object: after its blocks. */
class pool {
   public:
    explicit pool(kn_device *device, const kn_pool_options &options = kn_pool_options()) {
        check(kn_pool_create(&pool_, device, &options));
    }
    ~pool() { kn_pool_destroy(pool_); }
    pool(pool &&other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
    pool &operator=(pool &&other) noexcept {
        std::swap(pool_, other.pool_);
        return *this;
    }
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    kn_pool *get() const noexcept { return pool_; }
    operator pool_ref() const noexcept { return pool_ref(pool_); }

   private:
    kn_pool *pool_ = nullptr;
};

/* n objects of type T in a pool's memory, freed in the order of their stream when the block goes.
 * It neither constructs nor destroys the objects: the memory may be on a GPU. */
template <typename T = std::byte>
class block {
    static_assert(std::is_trivially_copyable_v<T>, "memory of a device is copied byte by byte");

   public:
    block() noexcept = default;
    /* Takes over memory that was allocated from the pool. */
    block(pool_ref pool, T *data, std::size_t n) noexcept
        : pool_(pool.get()), data_(data), size_(n) {}
    ~block() { reset(); }
    block(block &&other) noexcept
        : pool_(other.pool_),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    block &operator=(block &&other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    block(const block &) = delete;
    block &operator=(const block &) = delete;

    T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    explicit operator bool() const noexcept { return data_ != nullptr; }

    /* Marks a use on another stream; see kn_block_use. */
    void use(kn_stream stream) const { check(kn_block_use(pool_, data_, stream)); }
    /* Frees the memory now. */
    void reset() noexcept {
        if (data_) (void)kn_free(pool_, data_); /* a misuse is logged */
        data_ = nullptr;
        size_ = 0;
    }
    /* The caller frees the memory. */
    T *release() noexcept {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

   private:
    kn_pool *pool_ = nullptr;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* Allocates n objects of type T for work on the stream; 0 objects: an empty block. */
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

/* A non-blocking stream of a device, retired and destroyed with the object. */
class stream {
   public:
    explicit stream(kn_device *device) : device_(device) {
        check(kn_stream_create(&stream_, device));
    }
    ~stream() { kn_stream_destroy(device_, stream_); }
    stream(stream &&other) noexcept
        : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
    stream &operator=(stream &&other) noexcept {
        std::swap(device_, other.device_);
        std::swap(stream_, other.stream_);
        return *this;
    }
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;

    kn_stream get() const noexcept { return stream_; }
    operator kn_stream() const noexcept { return stream_; }
    void sync() const { check(kn_stream_sync(device_, stream_)); }

   private:
    kn_device *device_;
    kn_stream stream_ = nullptr;
};

/* A tag until the end of the scope; see kn_tag_push. */
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
    explicit pinned_resource(const char *device) : pool_(pool_ref::pinned(device)) {}
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
        auto *same = dynamic_cast<const pinned_resource *>(&other);
        return same && same->pool_ == pool_;
    }

    pool_ref pool_;
};

} /* namespace knet */
#endif
