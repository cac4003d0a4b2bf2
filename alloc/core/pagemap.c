#include "core/pagemap.h"

#include <sys/mman.h>

static kn_status add_leaf(kn__pagemap *map, size_t i, const char *name) {
    kn__leaf *leaf = mmap(NULL, sizeof *leaf, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (leaf == MAP_FAILED) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for its page map", name);
    }
    atomic_store_explicit(&map->top[i], leaf, memory_order_release);
    return KN_OK;
}

kn_status kn__pagemap_cover(kn__pagemap *map, const void *ptr, size_t size_bytes,
                            const char *name) {
    uintptr_t first = (uintptr_t)ptr, last = first + size_bytes - 1;
    KN_ASSERT(size_bytes > 0);
    if (last >> 48) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "pool %s: the device gave address %p, beyond 48 bits",
                       name, ptr);
    }
    for (uintptr_t i = first >> 32; i <= last >> 32; i++) {
        if (!KN__READ(map->top[i])) KN_TRY(add_leaf(map, i, name));
    }
    return KN_OK;
}

void kn__pages_set(kn__pagemap *map, const void *ptr, size_t n_pages, uintptr_t word) {
    KN_ASSERT((uintptr_t)ptr % KN__PAGE == 0);
    for (size_t i = 0; i < n_pages; i++) {
        kn__page_set(map, (const char *)ptr + (i << KN__PAGE_SHIFT), word);
    }
}

void kn__pagemap_release(kn__pagemap *map) {
    for (size_t i = 0; i < sizeof map->top / sizeof map->top[0]; i++) {
        kn__leaf *leaf = KN__READ(map->top[i]);
        if (leaf) munmap(leaf, sizeof *leaf);
    }
}
