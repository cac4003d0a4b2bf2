/* Host memory for the pool's own records: cut from chunks, reused by size, returned all at once. */
#ifndef KN_ALLOC_META_H
#define KN_ALLOC_META_H

#include <stdbool.h>
#include <stddef.h>

enum { KN__META_SIZES = 160, KN__META_GRAIN = 64 };

typedef struct kn__meta {
    struct kn__meta_chunk *chunks;
    char *next, *end; /* of the chunk in use */
    struct kn__meta_unused *free[KN__META_SIZES];
    size_t total_bytes;
} kn__meta;

/* Zeroed memory, aligned to a cache line; NULL: no host memory. */
void *kn__meta_alloc(kn__meta *meta, size_t size_bytes);
/* Keeps it for reuse at this size. From 10 KiB on it is lost until the release. */
void kn__meta_free(kn__meta *meta, void *ptr, size_t size_bytes);
/* A larger array with the contents of the old one, which is freed; NULL: as before, no memory. */
void *kn__meta_grow(kn__meta *meta, void *old, size_t old_bytes, size_t new_bytes);
void kn__meta_release(kn__meta *meta);

#endif
