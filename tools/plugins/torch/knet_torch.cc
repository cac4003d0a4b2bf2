#include "knet_torch.h"

#include <knet/pool_graph.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "devices.hpp"
#include "log.h"
#include "oom.hpp"

namespace {

knet_plugin::device_pools pools;

/* The last of its users destroys it: an allocation may be at work when PyTorch releases it. */
using shared_graph = std::shared_ptr<kn_pool_graph>;

/* Memory that PyTorch keeps apart: of a CUDA graph, or of a MemPool. */
struct private_pool {
    int device;
    knet_torch_pool_id id;
    shared_graph graph;
    int n_uses; /* begins that were not released */
};

/* PyTorch's test whether an allocation belongs to a private pool. */
class filter_calls {
   public:
    explicit filter_calls(knet_torch_filter fn) : fn_(std::move(fn)) {}

    bool passes(kn_stream stream) {
        std::unique_lock<std::mutex> hold(lock_);
        if (ended_) return false;
        n_calls_++;
        hold.unlock();
        const leaver at_end{this};
        return fn_(stream);
    }

    /* What PyTorch's filter refers to goes after the end, so no call may be under way then. */
    void end() {
        std::unique_lock<std::mutex> hold(lock_);
        ended_ = true;
        idle_.wait(hold, [this] { return n_calls_ == 0; });
    }

   private:
    struct leaver {
        filter_calls *filter;
        ~leaver() {
            std::lock_guard<std::mutex> hold(filter->lock_);
            if (--filter->n_calls_ == 0) filter->idle_.notify_all();
        }
    };

    const knet_torch_filter fn_;
    std::mutex lock_; /* guards all below */
    std::condition_variable idle_;
    int n_calls_ = 0;
    bool ended_ = false;
};

using shared_filter = std::shared_ptr<filter_calls>;

struct open_filter {
    int device;
    knet_torch_pool_id id;
    shared_filter filter;
};

/* Guards the two lists. Nothing of the program runs under it: a filter, or what an allocation
 * calls (a callback of the pool, an observer), may wait for a thread that waits for this lock, as
 * one with Python's lock does, or may call the functions below. */
std::mutex private_lock;
std::vector<private_pool> private_pools;
std::vector<open_filter> open_filters;
std::atomic<int> n_open{0}; /* size of open_filters */

[[noreturn]] void fail() {
    const kn_error *error = kn_last_error();
    if (error->status == KN_ERR_OOM) knet_plugin::throw_oom(error->message);
    throw std::runtime_error(error->message);
}

kn_pool *pool_or_throw(int device) {
    kn_pool *pool = pools.get(device);
    if (__builtin_expect(!pool, 0)) fail();
    return pool;
}

std::vector<private_pool>::iterator find_private(int device, knet_torch_pool_id id) {
    return std::find_if(private_pools.begin(), private_pools.end(),
                        [&](const private_pool &p) { return p.device == device && p.id == id; });
}

struct candidate {
    shared_filter filter;
    shared_graph graph;
};

/* The graphs that an allocation of the device may belong to, the last begun first. */
std::vector<candidate> candidates_of(int device) {
    std::vector<candidate> out;
    std::lock_guard<std::mutex> hold(private_lock);
    for (auto open = open_filters.rbegin(); open != open_filters.rend(); ++open) {
        if (open->device != device) continue;
        auto found = find_private(device, open->id);
        if (found != private_pools.end()) out.push_back({open->filter, found->graph});
    }
    return out;
}

__attribute__((noinline)) void *alloc_filtered(std::size_t size, int device, kn_stream stream) {
    void *out = nullptr;
    kn_pool *pool = pool_or_throw(device);
    const std::vector<candidate> candidates = candidates_of(device);
    auto found = std::find_if(candidates.begin(), candidates.end(),
                              [&](const candidate &c) { return c.filter->passes(stream); });
    kn_status status = found == candidates.end()
                           ? kn_alloc(&out, pool, size, stream)
                           : kn_pool_graph_alloc(&out, found->graph.get(), size, stream);
    if (status < 0) fail();
    return out;
}

/* Uses by streams of other devices, which the pools can't note: the free waits for them. */
struct foreign_use {
    void *ptr;
    kn_stream stream;
};
std::mutex foreign_lock; /* guards the list */
std::vector<foreign_use> foreign_uses;
std::atomic<std::size_t> n_foreign{0}; /* size of foreign_uses */

void add_foreign(void *ptr, kn_stream stream) {
    std::lock_guard<std::mutex> hold(foreign_lock);
    auto same = [&](const foreign_use &use) { return use.ptr == ptr && use.stream == stream; };
    if (std::any_of(foreign_uses.begin(), foreign_uses.end(), same)) return;
    foreign_uses.push_back({ptr, stream});
    n_foreign.store(foreign_uses.size(), std::memory_order_release);
}

std::vector<foreign_use> take_foreign(void *ptr) {
    std::lock_guard<std::mutex> hold(foreign_lock);
    auto others = std::partition(foreign_uses.begin(), foreign_uses.end(),
                                 [&](const foreign_use &use) { return use.ptr != ptr; });
    std::vector<foreign_use> taken(others, foreign_uses.end());
    foreign_uses.erase(others, foreign_uses.end());
    n_foreign.store(foreign_uses.size(), std::memory_order_release);
    return taken;
}

/* False: the block can't be freed, since nobody knows when its use ends. */
__attribute__((noinline)) bool end_foreign(kn_pool *pool, void *ptr) {
    for (const foreign_use &use : take_foreign(ptr)) {
        if (kn_stream_sync(kn_pool_device(pool), use.stream) >= 0) continue;
        kn_log_write(0, "knet_torch_free: block %p is never freed: no wait for stream %p: %s", ptr,
                     static_cast<void *>(use.stream), kn_last_error()->message);
        return false;
    }
    return true;
}

} /* namespace */

void *knet_torch_alloc(std::size_t size, int device, kn_stream stream) {
    if (__builtin_expect(n_open.load(std::memory_order_acquire) > 0, 0)) {
        return alloc_filtered(size, device, stream);
    }
    void *out = nullptr;
    if (__builtin_expect(kn_alloc(&out, pool_or_throw(device), size, stream) < 0, 0)) fail();
    return out;
}

void knet_torch_free(void *ptr, std::size_t, int device, kn_stream) {
    kn_pool *pool = pools.get(device);
    if (!pool) return;
    bool foreign = n_foreign.load(std::memory_order_acquire) > 0;
    if (__builtin_expect(foreign, 0) && !end_foreign(pool, ptr)) return;
    (void)kn_free(pool, ptr); /* a misuse is logged and counted */
}

void knet_torch_init(int) {}

void knet_torch_reset(void) {
    for (int i = 0; i < knet_plugin::devices_max; i++) {
        kn_pool *pool = pools.known(i);
        if (!pool) continue;
        if (kn_pool_sync(pool) < 0 || kn_pool_trim(pool, 0) < 0) fail();
    }
}

void knet_torch_memory_fraction(double fraction, int device) {
    kn_device_info info;
    kn_pool *pool = pool_or_throw(device);
    if (!(fraction > 0 && fraction <= 1)) {
        throw std::invalid_argument("knet_torch_memory_fraction: the fraction is not in (0, 1]");
    }
    if (kn_device_info_read(&info, sizeof info, kn_pool_device(pool)) < 0) fail();
    double bytes = fraction * static_cast<double>(info.total_bytes);
    std::size_t limit = std::max<std::size_t>(static_cast<std::size_t>(bytes), 1); /* 0: none */
    if (kn_pool_limit(pool, fraction < 1 ? limit : 0) < 0) fail();
}

void *knet_torch_base_alloc(void *ptr, std::size_t *size) {
    kn_block_info info;
    if (!pools.find(&info, ptr)) return ptr;
    if (size) *size = info.size_bytes;
    return info.ptr;
}

void knet_torch_record_stream(void *ptr, kn_stream stream) {
    kn_block_info info;
    kn_pool *pool = pools.find(&info, ptr);
    kn_status status = pool ? kn_block_use(pool, info.ptr, stream) : KN_OK;
    if (status == KN_ERR_INVALID) {
        add_foreign(info.ptr, stream);
    } else if (status < 0) {
        fail();
    }
}

void knet_torch_begin_pool(int device, knet_torch_pool_id id, knet_torch_filter filter) {
    kn_pool *pool = pool_or_throw(device);
    auto calls = std::make_shared<filter_calls>(std::move(filter));
    std::lock_guard<std::mutex> hold(private_lock);
    auto found = find_private(device, id);
    if (found == private_pools.end()) {
        kn_pool_graph *graph = nullptr;
        if (kn_pool_graph_create(&graph, pool) < 0) fail();
        found = private_pools.insert(
            found, {device, id, shared_graph(graph, kn_pool_graph_destroy_any), 0});
    }
    found->n_uses++;
    open_filters.push_back({device, id, std::move(calls)});
    n_open.fetch_add(1, std::memory_order_release);
}

/* The last filter of the pool, which is no longer in the list; NULL: none is open. */
static shared_filter take_filter(int device, knet_torch_pool_id id) {
    std::lock_guard<std::mutex> hold(private_lock);
    auto last = std::find_if(
        open_filters.rbegin(), open_filters.rend(),
        [&](const open_filter &open) { return open.device == device && open.id == id; });
    if (last == open_filters.rend()) return nullptr;
    shared_filter out = std::move(last->filter);
    open_filters.erase(std::next(last).base());
    n_open.fetch_sub(1, std::memory_order_release);
    return out;
}

void knet_torch_end_pool(int device, knet_torch_pool_id id) {
    shared_filter ended = take_filter(device, id);
    if (ended) ended->end();
}

void knet_torch_release_pool(int device, knet_torch_pool_id id) {
    shared_graph released; /* destroyed after the lock */
    std::lock_guard<std::mutex> hold(private_lock);
    auto found = find_private(device, id);
    if (found == private_pools.end() || --found->n_uses > 0) return;
    released = std::move(found->graph);
    private_pools.erase(found);
}

kn_pool *knet_torch_pool(int device) { return pools.get(device); }

const char *knet_torch_oom_type(void) { return knet_plugin::oom_type; }
