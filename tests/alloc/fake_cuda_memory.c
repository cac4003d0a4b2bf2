#include "fake_cuda_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Any mapping that begins within the range. */
static object *mapping_within(uint64_t at, size_t size_bytes) {
    for (int i = 0; i < fake.n_objects; i++) {
        object *o = &fake.objects[i];
        if (o->kind == MAPPING && o->key < at + size_bytes && at < o->key + o->size_bytes) return o;
    }
    return NULL;
}

static bool inside_range(uint64_t at, size_t size_bytes) {
    for (int i = 0; i < fake.n_objects; i++) {
        object *o = &fake.objects[i];
        if (o->kind == RANGE && o->key <= at && at + size_bytes <= o->key + o->size_bytes) {
            return true;
        }
    }
    return false;
}

static bool has_room(size_t size_bytes) {
    return size_bytes <= fake_machine.capacity_bytes - fake.used_bytes[fake_current_device()];
}

static void *reserve_host(size_t size_bytes, size_t alignment, int protection) {
    char *base = mmap(NULL, size_bytes + alignment, protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    size_t head = (alignment - (uintptr_t)base % alignment) % alignment;
    if (head) munmap(base, head);
    munmap(base + head + size_bytes, alignment - head);
    return base + head;
}

cu_result fake_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    BEGIN(fake_begin_in_context);
    int device = fake_current_device();
    *free_bytes =
        fake_machine.capacity_bytes - fake.used_bytes[device] - fake_machine.other_bytes[device];
    *total_bytes = fake_machine.capacity_bytes;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemAlloc(cu_ptr *out, size_t size_bytes) {
    BEGIN(fake_begin_unsafe);
    REQUIRE(size_bytes > 0);
    if (!has_room(size_bytes)) return fake_end(KN__CU_ERROR_OUT_OF_MEMORY);
    void *ptr = reserve_host(size_bytes, GRANULARITY, PROT_READ | PROT_WRITE);
    if (!ptr) return fake_end(KN__CU_ERROR_OUT_OF_MEMORY);
    fake.used_bytes[fake_current_device()] += size_bytes;
    *out = (cu_ptr)(uintptr_t)ptr;
    fake_add(SEGMENT, *out, size_bytes);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemAllocManaged(cu_ptr *out, size_t size_bytes, unsigned int flags) {
    BEGIN(fake_begin_unsafe);
    REQUIRE(size_bytes > 0 && flags == KN__CU_MEM_ATTACH_GLOBAL && !fake_machine.no_managed);
    void *ptr = reserve_host(size_bytes, GRANULARITY, PROT_READ | PROT_WRITE);
    if (!ptr) return fake_end(KN__CU_ERROR_OUT_OF_MEMORY);
    *out = (cu_ptr)(uintptr_t)ptr;
    fake_add(SEGMENT, *out, size_bytes)->managed = true;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemFree(cu_ptr ptr) {
    BEGIN(fake_begin_unsafe);
    object *segment = fake_find(SEGMENT, ptr);
    REQUIRE(segment);
    munmap(fake_host(ptr), segment->size_bytes);
    if (!segment->managed) fake.used_bytes[segment->device] -= segment->size_bytes;
    segment->kind = 0;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemHostAlloc(void **out, size_t size_bytes, unsigned int flags) {
    BEGIN(fake_begin_unsafe);
    REQUIRE(size_bytes > 0 && flags == KN__CU_MEM_HOST_ALLOC_PORTABLE);
    void *ptr = reserve_host(size_bytes, GRANULARITY, PROT_READ | PROT_WRITE);
    if (!ptr) return fake_end(KN__CU_ERROR_OUT_OF_MEMORY);
    *out = ptr;
    fake_add(PINNED, (uint64_t)(uintptr_t)ptr, size_bytes);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemFreeHost(void *ptr) {
    BEGIN(fake_begin_unsafe);
    object *segment = fake_find(PINNED, (uint64_t)(uintptr_t)ptr);
    REQUIRE(segment);
    munmap(ptr, segment->size_bytes);
    segment->kind = 0;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemGetAllocationGranularity(size_t *out, const cu_mem_prop *prop,
                                             unsigned int option) {
    BEGIN(fake_begin);
    REQUIRE(prop->type == KN__CU_MEM_TYPE_PINNED && option == KN__CU_MEM_GRANULARITY_MINIMUM);
    *out = GRANULARITY;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemAddressReserve(cu_ptr *out, size_t size_bytes, size_t alignment, cu_ptr at,
                                   unsigned long long flags) {
    BEGIN(fake_begin_in_context);
    REQUIRE(size_bytes > 0 && size_bytes % GRANULARITY == 0);
    REQUIRE(at == 0 && flags == 0 && alignment % GRANULARITY == 0);
    void *ptr = reserve_host(size_bytes, GRANULARITY, PROT_NONE);
    if (!ptr) return fake_end(KN__CU_ERROR_OUT_OF_MEMORY);
    *out = (cu_ptr)(uintptr_t)ptr;
    fake_add(RANGE, *out, size_bytes);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemAddressFree(cu_ptr ptr, size_t size_bytes) {
    BEGIN(fake_begin_in_context);
    object *range = fake_find(RANGE, ptr);
    REQUIRE(range && range->size_bytes == size_bytes);
    REQUIRE(!mapping_within(ptr, size_bytes));
    munmap(fake_host(ptr), size_bytes);
    range->kind = 0;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemCreate(cu_handle *out, size_t size_bytes, const cu_mem_prop *prop,
                           unsigned long long flags) {
    BEGIN(fake_begin_unsafe);
    REQUIRE(size_bytes > 0 && size_bytes % GRANULARITY == 0 && flags == 0);
    REQUIRE(prop->type == KN__CU_MEM_TYPE_PINNED && prop->location.id == fake_current_device());
    if (!has_room(size_bytes)) return fake_end(KN__CU_ERROR_OUT_OF_MEMORY);
    bool shared = prop->shareable_handle_types, rdma = prop->flags.rdma_capable;
    REQUIRE(!(shared || rdma) || !fake_machine.no_sharing);
    REQUIRE(prop->shareable_handle_types <= KN__CU_MEM_HANDLE_FILE);
    object *handle = fake_add(HANDLE, ++fake.next_handle, size_bytes);
    handle->rdma = rdma;
    if (shared) {
        handle->file = memfd_create("fake_cuda_shared", MFD_CLOEXEC);
        if (ftruncate(handle->file, (off_t)size_bytes) != 0) abort();
    } else {
        handle->file_offset = fake.memory_end;
        fake.memory_end += size_bytes;
        if (ftruncate(fake.memory_file, (off_t)fake.memory_end) != 0) abort();
    }
    fake.used_bytes[handle->device] += size_bytes;
    *out = handle->key;
    return fake_end(KN__CU_SUCCESS);
}

/* The bytes go when the handle is neither held nor mapped. */
static void drop_handle(object *handle) {
    if (!handle->released || handle->n_maps) return;
    if (!handle->imported) fake.used_bytes[handle->device] -= handle->size_bytes;
    if (handle->file) close(handle->file);
    handle->kind = 0;
}

cu_result fake_cuMemExportToShareableHandle(void *out, cu_handle key, unsigned int type,
                                            unsigned long long flags) {
    BEGIN(fake_begin_in_context);
    const object *handle = fake_find(HANDLE, key);
    REQUIRE(handle && handle->file && type == KN__CU_MEM_HANDLE_FILE && flags == 0);
    int file = fcntl(handle->file, F_DUPFD_CLOEXEC, 0);
    memcpy(out, &file, sizeof file);
    return fake_end(KN__CU_SUCCESS);
}

/* The descriptor stays the caller's. */
cu_result fake_cuMemImportFromShareableHandle(cu_handle *out, void *os_handle, unsigned int type) {
    BEGIN(fake_begin_in_context);
    struct stat info;
    int file = (int)(uintptr_t)os_handle;
    REQUIRE(type == KN__CU_MEM_HANDLE_FILE && fstat(file, &info) == 0);
    object *handle = fake_add(HANDLE, ++fake.next_handle, (size_t)info.st_size);
    handle->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    handle->imported = true;
    *out = handle->key;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemRelease(cu_handle key) {
    BEGIN(fake_begin_in_context);
    object *handle = fake_find(HANDLE, key);
    REQUIRE(handle && !handle->released);
    handle->released = true;
    drop_handle(handle);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemMap(cu_ptr at, size_t size_bytes, size_t offset, cu_handle key,
                        unsigned long long flags) {
    BEGIN(fake_begin_in_context);
    object *handle = fake_find(HANDLE, key);
    REQUIRE(handle && !handle->released && offset == 0 && flags == 0);
    REQUIRE(size_bytes == handle->size_bytes);
    REQUIRE(inside_range(at, size_bytes) && !mapping_within(at, size_bytes));
    object *mapping = fake_add(MAPPING, at, size_bytes);
    mapping->handle = key;
    handle->n_maps++;
    return fake_end(KN__CU_SUCCESS);
}

/* Of whole mappings, one after the other. */
cu_result fake_cuMemSetAccess(cu_ptr at, size_t size_bytes, const cu_mem_access *access, size_t n) {
    BEGIN(fake_begin_in_context);
    REQUIRE(n >= 1);
    for (size_t i = 0; i < n; i++) {
        REQUIRE(access[i].flags == KN__CU_MEM_ACCESS_READWRITE);
        REQUIRE(i == 0 || !fake_machine.no_peers);
    }
    const object *mapping = NULL;
    for (cu_ptr end = at + size_bytes; at < end; at += mapping->size_bytes) {
        mapping = fake_find(MAPPING, at);
        REQUIRE(mapping && mapping->size_bytes <= end - at);
        const object *handle = fake_find(HANDLE, mapping->handle);
        REQUIRE(handle && access->location.id == handle->device);
        void *got =
            mmap(fake_host(at), mapping->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 handle->file ? handle->file : fake.memory_file, (off_t)handle->file_offset);
        ((object *)(uintptr_t)mapping)->n_access = (int)n;
        if (got == MAP_FAILED) abort();
    }
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemUnmap(cu_ptr at, size_t size_bytes) {
    BEGIN(fake_begin_in_context);
    object *mapping = fake_find(MAPPING, at);
    REQUIRE(mapping && mapping->size_bytes == size_bytes);
    if (mmap(fake_host(at), size_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        abort();
    }
    object *handle = fake_find(HANDLE, mapping->handle);
    mapping->kind = 0;
    handle->n_maps--;
    drop_handle(handle);
    return fake_end(KN__CU_SUCCESS);
}

static const object *mapping_at(const void *ptr) {
    pthread_mutex_lock(&fake.lock);
    const object *mapping = mapping_within((uint64_t)(uintptr_t)ptr, 1);
    pthread_mutex_unlock(&fake.lock);
    return mapping;
}

int fake_cuda_access(const void *ptr) {
    const object *mapping = mapping_at(ptr);
    return mapping ? mapping->n_access : 0;
}

bool fake_cuda_rdma(const void *ptr) {
    const object *mapping = mapping_at(ptr);
    const object *handle = mapping ? fake_find(HANDLE, mapping->handle) : NULL;
    return handle && handle->rdma;
}
