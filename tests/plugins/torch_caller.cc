#include "torch_caller.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <typeinfo>
#include <unordered_map>

using pool_id = std::pair<std::uint64_t, std::uint64_t>;
using filter = std::function<bool(kn_stream)>;

namespace {

struct metadata {
    std::size_t size;
    int device;
    kn_stream stream;
};

std::function<void *(std::size_t, int, kn_stream)> alloc_fn;
std::function<void(void *, std::size_t, int, kn_stream)> free_fn;
std::function<void(int)> init_fn;
std::function<void()> reset_fn;
std::function<void(double, int)> fraction_fn;
std::function<void *(void *, std::size_t *)> base_fn;
std::function<void(void *, kn_stream)> record_fn;
std::function<void(int, pool_id, filter)> begin_fn;
std::function<void(int, pool_id)> end_fn, release_fn;
std::function<kn_pool *(int)> pool_fn;

std::mutex lock;
std::unordered_map<void *, metadata> table;
thread_local std::string what_;

template <typename F>
std::function<F> look_up(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        std::fprintf(stderr, "%s: no %s\n", dlerror(), name);
        std::abort();
    }
    return reinterpret_cast<F *>(found);
}

template <typename F>
torch_outcome outcome_of(F call) {
    try {
        call();
        return TORCH_OK;
    } catch (const std::bad_alloc &e) {
        what_ = e.what();
        return TORCH_BAD_ALLOC;
    } catch (const std::exception &e) {
        what_ = e.what();
        /* Built against PyTorch, c10::OutOfMemoryError, whose header isn't needed here. */
        bool oom = std::strstr(typeid(e).name(), "OutOfMemoryError") != nullptr;
        return oom ? TORCH_BAD_ALLOC : TORCH_ERROR;
    }
}

} /* namespace */

void torch_load(const char *path) {
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::abort();
    }
    alloc_fn = look_up<void *(std::size_t, int, kn_stream)>(library, "knet_torch_alloc");
    free_fn = look_up<void(void *, std::size_t, int, kn_stream)>(library, "knet_torch_free");
    init_fn = look_up<void(int)>(library, "knet_torch_init");
    reset_fn = look_up<void()>(library, "knet_torch_reset");
    fraction_fn = look_up<void(double, int)>(library, "knet_torch_memory_fraction");
    base_fn = look_up<void *(void *, std::size_t *)>(library, "knet_torch_base_alloc");
    record_fn = look_up<void(void *, kn_stream)>(library, "knet_torch_record_stream");
    begin_fn = look_up<void(int, pool_id, filter)>(library, "knet_torch_begin_pool");
    end_fn = look_up<void(int, pool_id)>(library, "knet_torch_end_pool");
    release_fn = look_up<void(int, pool_id)>(library, "knet_torch_release_pool");
    pool_fn = look_up<kn_pool *(int)>(library, "knet_torch_pool");
}

const char *torch_what(void) { return what_.c_str(); }

torch_outcome torch_alloc(void **out, std::size_t size, int device, kn_stream stream) {
    *out = nullptr;
    torch_outcome outcome = outcome_of([&] { *out = alloc_fn(size, device, stream); });
    if (outcome == TORCH_OK && !*out && size) return TORCH_NULL;
    const std::lock_guard<std::mutex> hold(lock);
    if (*out) table.emplace(*out, metadata{size, device, stream});
    return outcome;
}

bool torch_free(void *ptr) {
    metadata m;
    {
        const std::lock_guard<std::mutex> hold(lock);
        auto found = table.find(ptr);
        if (found == table.end()) return false;
        m = found->second;
        table.erase(found);
    }
    free_fn(ptr, m.size, m.device, m.stream);
    return true;
}

torch_outcome torch_reset(void) {
    return outcome_of([] { reset_fn(); });
}
torch_outcome torch_fraction(double fraction, int device) {
    return outcome_of([&] { fraction_fn(fraction, device); });
}
void *torch_base(void *ptr, std::size_t *size) { return base_fn(ptr, size); }
torch_outcome torch_record_stream(void *ptr, kn_stream stream) {
    return outcome_of([&] { record_fn(ptr, stream); });
}
torch_outcome torch_begin(int device, std::uint64_t a, std::uint64_t b, torch_filter_fn fn,
                          void *ctx) {
    return outcome_of([&] {
        begin_fn(device, {a, b}, [fn, ctx](kn_stream stream) { return fn(ctx, stream); });
    });
}
void torch_end(int device, std::uint64_t a, std::uint64_t b) { end_fn(device, {a, b}); }
void torch_release(int device, std::uint64_t a, std::uint64_t b) { release_fn(device, {a, b}); }
void torch_init(int n_devices) { init_fn(n_devices); }
kn_pool *torch_pool(int device) { return pool_fn(device); }
