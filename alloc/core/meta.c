#include "core/meta.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

typedef struct kn__meta_chunk {
    struct kn__meta_chunk *next;
    size_t size;
} kn__meta_chunk;

typedef struct kn__meta_unused {
    struct kn__meta_unused *next;
} kn__meta_unused;

static size_t slot_of(size_t size_bytes) {
    return (size_bytes + KN__META_GRAIN - 1) / KN__META_GRAIN;
}

/* Chunks grow with the total. Their pages are populated here, not by the allocations. */
static bool add_chunk(kn__meta *meta, size_t min_bytes) {
    size_t size = (size_t)64 << 10;
    while (size < meta->total_bytes / 4 && size < (size_t)4 << 20) size *= 2;
    while (size < min_bytes + KN__META_GRAIN) size *= 2;
    kn__meta_chunk *chunk =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (chunk == MAP_FAILED) return false;
    *chunk = (kn__meta_chunk){.next = meta->chunks, .size = size};
    meta->chunks = chunk;
    meta->total_bytes += size;
    meta->next = (char *)chunk + KN__META_GRAIN;
    meta->end = (char *)chunk + size;
    return true;
}

void *kn__meta_alloc(kn__meta *meta, size_t size_bytes) {
    size_t slot = slot_of(size_bytes), bytes = slot * KN__META_GRAIN;
    kn__meta_unused *reused = slot < KN__META_SIZES ? meta->free[slot] : NULL;
    if (reused) {
        meta->free[slot] = reused->next;
        return memset(reused, 0, size_bytes);
    }
    if ((size_t)(meta->end - meta->next) < bytes && !add_chunk(meta, bytes)) return NULL;
    void *ptr = meta->next;
    meta->next += bytes;
    return ptr;
}

void kn__meta_free(kn__meta *meta, void *ptr, size_t size_bytes) {
    size_t slot = slot_of(size_bytes);
    if (!ptr || slot >= KN__META_SIZES) return;
    kn__meta_unused *unused = ptr;
    unused->next = meta->free[slot];
    meta->free[slot] = unused;
}

void *kn__meta_grow(kn__meta *meta, void *old, size_t old_bytes, size_t new_bytes) {
    void *grown = kn__meta_alloc(meta, new_bytes);
    if (!grown) return NULL;
    if (old) memcpy(grown, old, old_bytes);
    kn__meta_free(meta, old, old_bytes);
    return grown;
}

void kn__meta_release(kn__meta *meta) {
    for (kn__meta_chunk *chunk = meta->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        munmap(chunk, chunk->size);
    }
    *meta = (kn__meta){0};
}
