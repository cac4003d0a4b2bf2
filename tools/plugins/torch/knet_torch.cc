#include "knet_torch.h"

#include <knet/pool_graph.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "devices.hpp"
#include "oom.hpp"

namespace {

knet_plugin::device_pools pools;

/* Memory that PyTorch keeps apart: of a CUDA graph, or of a MemPool. */
struct private_pool {
    int device;
    knet_torch_pool_id id;
    kn_pool_graph *graph;
    int n_uses; /* begins that were not released */
};

struct open_filter {
    int device;
    knet_torch_pool_id id;
    knet_torch_filter filter;
};

std::mutex private_lock; /* guards the two lists */
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

/* The graph that the allocation belongs to; NULL: none. */
kn_pool_graph *graph_of(int device, kn_stream stream) {
    for (auto open = open_filters.rbegin(); open != open_filters.rend(); ++open) {
        if (open->device != device || !open->filter(stream)) continue;
        auto found = find_private(device, open->id);
        if (found != private_pools.end()) return found->graph;
    }
    return nullptr;
}

__attribute__((noinline)) void *alloc_filtered(std::size_t size, int device, kn_stream stream) {
    void *out = nullptr;
    kn_pool *pool = pool_or_throw(device);
    std::unique_lock<std::mutex> hold(private_lock);
    kn_pool_graph *graph = graph_of(device, stream);
    kn_status status = graph ? kn_pool_graph_alloc(&out, graph, size, stream) : KN_OK;
    hold.unlock();
    if (!graph) status = kn_alloc(&out, pool, size, stream);
    if (status < 0) fail();
    return out;
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
    if (pool) (void)kn_free(pool, ptr); /* a misuse is logged and counted */
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
    if (kn_pool_limit(pool, fraction < 1 ? static_cast<std::size_t>(bytes) : 0) < 0) fail();
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
    if (pool && kn_block_use(pool, info.ptr, stream) < 0) fail();
}

void knet_torch_begin_pool(int device, knet_torch_pool_id id, knet_torch_filter filter) {
    kn_pool *pool = pool_or_throw(device);
    std::lock_guard<std::mutex> hold(private_lock);
    auto found = find_private(device, id);
    if (found == private_pools.end()) {
        kn_pool_graph *graph = nullptr;
        if (kn_pool_graph_create(&graph, pool) < 0) fail();
        found = private_pools.insert(found, {device, id, graph, 0});
    }
    found->n_uses++;
    open_filters.push_back({device, id, std::move(filter)});
    n_open.fetch_add(1, std::memory_order_release);
}

void knet_torch_end_pool(int device, knet_torch_pool_id id) {
    std::lock_guard<std::mutex> hold(private_lock);
    for (std::size_t i = open_filters.size(); i-- > 0;) {
        if (open_filters[i].device != device || open_filters[i].id != id) continue;
        open_filters.erase(open_filters.begin() + static_cast<std::ptrdiff_t>(i));
        n_open.fetch_sub(1, std::memory_order_release);
        return;
    }
}

void knet_torch_release_pool(int device, knet_torch_pool_id id) {
    std::lock_guard<std::mutex> hold(private_lock);
    auto found = find_private(device, id);
    if (found == private_pools.end() || --found->n_uses > 0) return;
    kn_pool_graph_destroy_any(found->graph);
    private_pools.erase(found);
}

kn_pool *knet_torch_pool(int device) { return pools.get(device); }

const char *knet_torch_oom_type(void) { return knet_plugin::oom_type; }
