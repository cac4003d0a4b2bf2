#include "rmm_caller.h"

#include <knet/rmm.hpp>

#include <optional>

static std::optional<knet::rmm_resource> resource;
static thread_local std::string what_;

template <typename F>
static rmm_outcome outcome_of(F call) {
    try {
        call();
        return RMM_OK;
    } catch (const rmm::out_of_memory &e) {
        what_ = e.what();
        return RMM_OUT_OF_MEMORY;
    } catch (const rmm::bad_alloc &e) {
        what_ = e.what();
        return RMM_BAD_ALLOC;
    }
}

rmm_outcome rmm_open(int device) {
    return outcome_of([&] { resource.emplace(device); });
}

kn_pool *rmm_pool(void) { return resource->pool(); }
const char *rmm_what(void) { return what_.c_str(); }

#if KNET_RMM_BASE

rmm_outcome rmm_allocate(void **out, size_t size, kn_stream stream) {
    rmm::mr::device_memory_resource &base = *resource;
    *out = nullptr;
    return outcome_of([&] { *out = base.allocate(size, stream); });
}

void rmm_deallocate(void *ptr, size_t size, kn_stream stream) {
    rmm::mr::device_memory_resource &base = *resource;
    base.deallocate(ptr, size, stream);
}

bool rmm_compares_equal(void) {
    knet::rmm_resource copy = *resource, same(resource->pool()), other(1);
    rmm::mr::device_memory_resource &base = *resource;
    return base.is_equal(copy) && base.is_equal(same) && !base.is_equal(other);
}

#else

rmm_outcome rmm_allocate(void **out, size_t size, kn_stream stream) {
    *out = nullptr;
    return outcome_of([&] {
        *out = stream ? resource->allocate(cuda::stream_ref(stream), size)
                      : resource->allocate_sync(size);
    });
}

void rmm_deallocate(void *ptr, size_t size, kn_stream stream) {
    if (stream) {
        resource->deallocate(cuda::stream_ref(stream), ptr, size);
    } else {
        resource->deallocate_sync(ptr, size);
    }
}

bool rmm_compares_equal(void) {
    knet::rmm_resource copy = *resource, same(resource->pool()), other(1);
    get_property(copy, cuda::mr::device_accessible{});
    return copy == *resource && same == *resource && other != *resource;
}

#endif
