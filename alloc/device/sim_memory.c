/* The simulated device's memory: addresses, handles and mappings. */
#include <string.h>

#include "device/drivers.h"
#include "device/sim_state.h"

static size_t extent_index(const kn_sim *sim, const char *ptr) { /* first that ends after ptr */
    size_t lo = 0, hi = sim->n_extents;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (sim->extents[mid].ptr + sim->extents[mid].size > ptr) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

static void extent_add(kn_sim *sim, char *ptr, size_t size, uint64_t number) {
    size_t i = extent_index(sim, ptr);
    if (i < sim->n_extents && sim->extents[i].ptr < ptr + size) {
        kn__sim_violate(sim, "memory at %p is mapped over memory at %p", (void *)ptr,
                        (void *)sim->extents[i].ptr);
    }
    sim->extents =
        kn__sim_roomy(sim->extents, sim->n_extents, &sim->extents_room, sizeof *sim->extents);
    memmove(&sim->extents[i + 1], &sim->extents[i], (sim->n_extents - i) * sizeof *sim->extents);
    sim->extents[i] = (kn__sim_extent){ptr, size, number, number == 0};
    sim->n_extents++;
}

void kn__sim_check_memory(kn_sim *sim, const char *ptr, size_t size, const char *who) {
    const char *at = ptr, *end = ptr + size;
    for (size_t i = extent_index(sim, at); at < end; i++) {
        bool mapped = i < sim->n_extents && sim->extents[i].ptr <= at;
        if (!mapped || !sim->extents[i].access) {
            kn__sim_violate(sim, "%s %p, which is %s", who, (const void *)ptr,
                            mapped ? "mapped without access" : "not allocated");
            return;
        }
        at = sim->extents[i].ptr + sim->extents[i].size;
    }
}

static void extent_remove(kn_sim *sim, char *ptr, size_t size) {
    size_t i = extent_index(sim, ptr);
    if (i == sim->n_extents || sim->extents[i].ptr != ptr || sim->extents[i].size != size) {
        kn__sim_violate(sim,
                        "free or unmap of %zu bytes at %p, which is not one segment or mapping",
                        size, (void *)ptr);
        return;
    }
    const kn__sim_item *work = kn__sim_find_work(sim, ptr, size, NULL, 0);
    if (work) {
        kn__sim_violate(sim, "memory at %p is freed or unmapped under work of user %llu",
                        (void *)ptr, (unsigned long long)work->user);
    }
    sim->n_extents--;
    memmove(&sim->extents[i], &sim->extents[i + 1], (sim->n_extents - i) * sizeof *sim->extents);
}

static kn_status bytes_add(kn_sim *sim, size_t size) {
    if (size > sim->capacity - sim->bytes) {
        return KN_FAIL(KN_ERR_OOM, "sim: %zu bytes requested, %llu of %llu are free", size,
                       (unsigned long long)(sim->capacity - sim->bytes),
                       (unsigned long long)sim->capacity);
    }
    sim->bytes += size;
    sim->objects++;
    return KN_OK;
}

static const uintptr_t ADDRESSES_END = (uintptr_t)1 << 48;

static size_t room_of(size_t size) {
    return (size + KN__SIM_ALIGN - 1) / KN__SIM_ALIGN * KN__SIM_ALIGN + KN__SIM_ALIGN;
}

static kn_status addresses_check(const kn_sim *sim, size_t size) {
    if (room_of(size) <= ADDRESSES_END - sim->next_address) return KN_OK;
    return KN_FAIL(KN_ERR_OOM, "sim: its addresses are used up; it returns none twice");
}

static char *addresses(kn_sim *sim, size_t size) {
    char *ptr = (char *)sim->next_address; /* never reused: stale pointers stay stale */
    sim->next_address += room_of(size);
    return ptr;
}

static kn_status sim_free_bytes(void *impl, uint64_t *out) {
    kn_sim *sim = impl;
    LOCKED(sim);
    *out = sim->capacity - sim->bytes;
    return KN_OK;
}

static kn_status sim_segment_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, KN_SIM_SEGMENT_ALLOC);
    KN_TRY(addresses_check(sim, size_bytes));
    KN_TRY(bytes_add(sim, size_bytes));
    *out = addresses(sim, size_bytes);
    extent_add(sim, *out, size_bytes, 0);
    return KN_OK;
}

static void sim_segment_free(void *impl, void *ptr, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    extent_remove(sim, ptr, size_bytes);
    sim->bytes -= size_bytes;
    sim->objects--;
}

/* Real memory: the CPU may use it. */
static kn_status sim_pinned_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, KN_SIM_PINNED_ALLOC);
    KN_TRY(kn__host_memory_alloc(out, size_bytes));
    extent_add(sim, *out, size_bytes, 0);
    sim->objects++;
    return KN_OK;
}

static void sim_pinned_free(void *impl, void *ptr, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    extent_remove(sim, ptr, size_bytes);
    sim->objects--;
    kn__host_memory_free(ptr, size_bytes);
}

static kn_status sim_range_reserve(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, KN_SIM_RANGE_RESERVE);
    KN_TRY(addresses_check(sim, size_bytes));
    *out = addresses(sim, size_bytes);
    sim->objects++;
    return KN_OK;
}

static void sim_range_release(void *impl, void *ptr, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    size_t i = extent_index(sim, ptr);
    if (i < sim->n_extents && sim->extents[i].ptr < (char *)ptr + size_bytes) {
        kn__sim_violate(sim, "the range at %p is released with memory mapped in it", ptr);
    }
    sim->objects--;
}

static kn__sim_handle *handle_of(kn_sim *sim, uint64_t number, size_t size) {
    kn__sim_handle *h = number && number <= sim->n_handles ? &sim->handles[number - 1] : NULL;
    if (h && h->size == size) return h;
    kn__sim_violate(sim, "handle %llu of %zu bytes does not exist", (unsigned long long)number,
                    size);
    return NULL;
}

static kn_status sim_handle_create(void *impl, uint64_t *out, size_t size_bytes) {
    ENTER(impl, KN_SIM_HANDLE_CREATE);
    KN_TRY(bytes_add(sim, size_bytes));
    uint64_t i = sim->unused_handle;
    while (i < sim->n_handles && sim->handles[i].size) i++;
    sim->handles = kn__sim_roomy(sim->handles, i, &sim->handles_room, sizeof *sim->handles);
    sim->handles[i] = (kn__sim_handle){.size = size_bytes};
    if (i == sim->n_handles) sim->n_handles++;
    sim->unused_handle = i + 1;
    *out = i + 1;
    return KN_OK;
}

static void sim_handle_destroy(void *impl, uint64_t number, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    kn__sim_handle *h = handle_of(sim, number, size_bytes);
    if (!h) return;
    if (h->mapped) {
        kn__sim_violate(sim, "handle %llu is destroyed while mapped", (unsigned long long)number);
    }
    h->size = 0;
    if (number <= sim->unused_handle) sim->unused_handle = number - 1;
    sim->bytes -= size_bytes;
    sim->objects--;
}

static kn_status sim_handle_map(void *impl, void *at, size_t size_bytes, uint64_t number) {
    ENTER(impl, KN_SIM_HANDLE_MAP);
    kn__sim_handle *h = handle_of(sim, number, size_bytes);
    if (h && h->mapped) {
        kn__sim_violate(sim, "handle %llu is mapped twice", (unsigned long long)number);
    }
    if (h) h->mapped = true;
    extent_add(sim, at, size_bytes, number);
    return KN_OK;
}

/* Before range_access it can't be scripted to fail: it undoes a map. */
static kn_status sim_handle_unmap(void *impl, void *at, size_t size_bytes) {
    CALLED(impl, KN_SIM_HANDLE_UNMAP);
    size_t i = extent_index(sim, at);
    const kn__sim_extent *mapped =
        i < sim->n_extents && sim->extents[i].ptr == at ? &sim->extents[i] : NULL;
    if (!mapped || mapped->access) KN_TRY(kn__sim_scripted(sim, KN_SIM_HANDLE_UNMAP));
    if (mapped && mapped->handle) sim->handles[mapped->handle - 1].mapped = false;
    extent_remove(sim, at, size_bytes);
    return KN_OK;
}

static kn_status sim_range_access(void *impl, void *ptr, size_t size_bytes) {
    ENTER(impl, KN_SIM_RANGE_ACCESS);
    char *at = ptr, *end = at + size_bytes;
    for (size_t i = extent_index(sim, at); at < end; i++) {
        if (i == sim->n_extents || sim->extents[i].ptr != at || !sim->extents[i].handle) break;
        sim->extents[i].access = true;
        at += sim->extents[i].size;
    }
    if (at != end) {
        kn__sim_violate(sim, "range_access of %zu bytes at %p, which are not whole mapped handles",
                        size_bytes, ptr);
    }
    return KN_OK;
}

void kn__sim_memory_fill(kn_device_driver *out) {
    out->free_bytes = sim_free_bytes;
    out->segment_alloc = sim_segment_alloc;
    out->segment_free = sim_segment_free;
    out->pinned_alloc = sim_pinned_alloc;
    out->pinned_free = sim_pinned_free;
    out->range_reserve = sim_range_reserve;
    out->range_release = sim_range_release;
    out->handle_create = sim_handle_create;
    out->handle_destroy = sim_handle_destroy;
    out->handle_map = sim_handle_map;
    out->handle_unmap = sim_handle_unmap;
    out->range_access = sim_range_access;
}
