/* Page map: address → block or slab, in O(1) and with no lock: two levels over pages of 64 KiB.
 *
 * A slab owns whole pages: each of its pages names it. A block that was handed out is larger than a
 * page, so at most one starts in a page: the page where it starts names it. A page's word is the
 * address of the record, with KN__PAGE_IS_SLAB added where that is a slab; 0: the page is
 * unused. Words are written under the pool's lock. */
#ifndef KN_ALLOC_PAGEMAP_H
#define KN_ALLOC_PAGEMAP_H

#include <knet/status.h>

#include "checked.h"
#include "core/common.h"
#include "core/size_class.h"

#define KN__PAGE_IS_SLAB 1u

typedef struct kn__leaf {
    _Atomic uintptr_t pages[1 << 16];
} kn__leaf;

/* 512 KiB, most of it never touched; zero: empty. */
typedef struct kn__pagemap {
    _Atomic(kn__leaf *) top[1 << 16]; /* by address bits 47…32; in a leaf by bits 31…16 */
} kn__pagemap;

/* Any address, with no lock; 0 for one that the map does not cover. */
static inline uintptr_t kn__page_get(const kn__pagemap *map, const void *ptr) {
    uintptr_t address = (uintptr_t)ptr, i = address >> 32;
    if (KN__UNLIKELY(i >= sizeof map->top / sizeof map->top[0])) return 0;
    kn__leaf *leaf = atomic_load_explicit(&map->top[i], memory_order_acquire);
    if (KN__UNLIKELY(!leaf)) return 0;
    return KN__READ(leaf->pages[address >> KN__PAGE_SHIFT & 0xffff]);
}

/* Of an address that is covered. */
static inline void kn__page_set(kn__pagemap *map, const void *ptr, uintptr_t word) {
    uintptr_t page = (uintptr_t)ptr >> KN__PAGE_SHIFT;
    kn__leaf *leaf = KN__READ(map->top[page >> 16]);
    KN__WRITE(leaf->pages[page & 0xffff], word);
}

/* The same for a run of pages. */
void kn__pages_set(kn__pagemap *map, const void *ptr, size_t n_pages, uintptr_t word);
/* Makes room for all pages of the bytes; `name` is the pool's, for errors. Errors: UNSUPPORTED for
 * an address beyond 48 bits; OOM: no host memory. */
kn_status kn__pagemap_cover(kn__pagemap *map, const void *ptr, size_t size_bytes, const char *name);
void kn__pagemap_release(kn__pagemap *map);

#endif
