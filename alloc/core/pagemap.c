/* Address → block or slab, in O(1) and with no lock: two levels over pages of 64 KiB.
 *
 * A slab owns whole pages: each of its pages names it. A block that was handed out is larger than a
 * page, so at most one starts in a page: the page where it starts names it. */
#include <sys/mman.h>

#include "core/pool_types.h"

static kn_status add_leaf(kn_pool *pool, size_t i) {
    kn__leaf *leaf = mmap(NULL, sizeof *leaf, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (leaf == MAP_FAILED) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for its page map", pool->name);
    }
    atomic_store_explicit(&pool->top[i], leaf, memory_order_release);
    return KN_OK;
}

kn_status kn__pages_cover(kn_pool *pool, const void *ptr, size_t size_bytes) {
    uintptr_t first = (uintptr_t)ptr, last = first + size_bytes - 1;
    if (last >> 48) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "pool %s: the device gave address %p, beyond 48 bits",
                       pool->name, ptr);
    }
    for (uintptr_t i = first >> 32; i <= last >> 32; i++) {
        if (!atomic_load_explicit(&pool->top[i], memory_order_relaxed)) KN_TRY(add_leaf(pool, i));
    }
    return KN_OK;
}

void kn__pages_set(kn_pool *pool, const void *ptr, size_t n_pages, uintptr_t value) {
    for (size_t i = 0; i < n_pages; i++) {
        kn__page_put(pool, (const char *)ptr + (i << KN__PAGE_SHIFT), value);
    }
}

void kn__pages_release(kn_pool *pool) {
    for (size_t i = 0; i < sizeof pool->top / sizeof pool->top[0]; i++) {
        kn__leaf *leaf = atomic_load_explicit(&pool->top[i], memory_order_relaxed);
        if (leaf) munmap(leaf, sizeof *leaf);
    }
}
