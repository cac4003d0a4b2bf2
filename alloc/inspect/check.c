/* kn_pool_check: walks all records and cross-checks redundant ones. */
#include <string.h>

#include "inspect/census.h"
#include "pool/cache.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

typedef struct totals {
    uint64_t reserved, live, waiting;
    size_t n_free, n_holes;
} totals;

#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond)) return KN_FAIL(KN_ERR_INTERNAL, "kn_pool_check: " __VA_ARGS__);               \
    } while (0)

static unsigned cached_slots(const kn_pool *pool, const kn__slab *slab) {
    unsigned n = 0;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        for (const kn__rack *rack = cache->racks; rack; rack = rack->next) {
            for (unsigned i = 0; i < kn__stack_n(&rack->stacks[slab->size_class]); i++) {
                const char *ptr = rack->slots[slab->size_class][i].ptr;
                n += ptr >= slab->base && ptr < slab->base + slab->block->size;
            }
        }
    }
    return n;
}

static kn_status check_slab(const kn_pool *pool, const kn__slab *slab, totals *t) {
    unsigned n_live = 0, n_free = 0, n_waiting = kn__slab_n_waiting(slab);
    for (unsigned i = 0; i < slab->n_slots; i++) {
        bool live = KN__READ(slab->slots[i].use) != 0;
        bool unused = slab->free[i / 64] >> i % 64 & 1;
        EXPECT(!(live && unused), "slot %u of the slab at %p is both live and free", i,
               (void *)slab->base);
        n_live += live;
        n_free += unused;
    }
    unsigned n_cached = cached_slots(pool, slab);
    EXPECT(n_free == slab->n_free, "the slab at %p has %u free slots, not %u", (void *)slab->base,
           n_free, slab->n_free);
    EXPECT(n_live + n_free + n_cached + n_waiting == slab->n_slots,
           "the slab at %p has %u live, %u free, %u cached and %u waiting slots of %u",
           (void *)slab->base, n_live, n_free, n_cached, n_waiting, slab->n_slots);
    EXPECT(kn__page_get(&pool->pages, slab->base) == ((uintptr_t)slab | KN__PAGE_IS_SLAB),
           "the page map doesn't know the slab at %p", (void *)slab->base);
    t->live += (uint64_t)n_live * slab->slot_bytes;
    t->waiting += (uint64_t)n_waiting * slab->slot_bytes;
    return KN_OK;
}

static kn_status check_block(const kn_pool *pool, const kn__block *block, totals *t) {
    const kn__block *right = block->right;
    EXPECT(block->size && block->size % KN__BLOCK_GRAIN == 0, "the block at %p has size %zu",
           (void *)block->ptr, block->size);
    EXPECT(!right || (right->left == block && right->ptr == block->ptr + block->size),
           "the block at %p is not followed by its right neighbour", (void *)block->ptr);
    switch (block->state) {
        case KN__FREE:
            t->n_free++;
            EXPECT(!right || right->state != KN__FREE || right->stream != block->stream ||
                       (pool->apart && right->epoch != block->epoch),
                   "free neighbours at %p were not merged", (void *)block->ptr);
            break;
        case KN__LIVE:
            t->live += block->size;
            EXPECT(kn__page_get(&pool->pages, block->ptr) == (uintptr_t)block,
                   "the page map doesn't know the block at %p", (void *)block->ptr);
            break;
        case KN__SLAB:
            return check_slab(pool, block->slab, t);
        case KN__WAITING:
            t->waiting += block->size;
            break;
        case KN__HOLE:
            t->n_holes++;
            EXPECT(!right || right->state != KN__HOLE, "holes at %p were not merged",
                   (void *)block->ptr);
            break;
        default:
            EXPECT(false, "the block at %p has state %d", (void *)block->ptr, block->state);
    }
    return KN_OK;
}

static kn_status check_bins(const kn__bins *bins, const kn__stream *stream, size_t *n_found) {
    unsigned n_used = 0;
    for (unsigned bin = 0; bin < KN__BINS; bin++) n_used += bins->head[bin] != NULL;
    EXPECT(bins->n_used == n_used, "%u bins are used, not %u", n_used, bins->n_used);
    EXPECT(bins->words[KN__BINS / 64] == 1, "the bit behind the bins is gone");
    for (unsigned bin = 0; bin < KN__BINS; bin++) {
        bool bit = bins->words[bin / 64] >> bin % 64 & 1;
        EXPECT(bit == (bins->head[bin] != NULL), "the bit of bin %u is %d", bin, bit);
        for (const kn__block *b = bins->head[bin], *prev = NULL; b; prev = b, b = b->next) {
            EXPECT(b->state == KN__FREE && b->stream == stream && b->prev == prev,
                   "bin %u holds a block at %p that isn't free or is another stream's", bin,
                   (void *)b->ptr);
            ++*n_found;
        }
    }
    return KN_OK;
}

/* The bytes of the handles mapped in the range; each must lie in blocks that are no holes. */
static uint64_t mapped_bytes(const kn__range *range) {
    uint64_t bytes = 0;
    for (const kn__block *block = range->first; block; block = block->right) {
        if (block->state == KN__HOLE) continue;
        size_t first = ((size_t)(block->ptr - range->base) + range->unit - 1) / range->unit;
        size_t end = (size_t)(block->ptr + block->size - range->base + (ptrdiff_t)range->unit - 1);
        for (size_t i = first; i < end / range->unit; i++) {
            bytes += (uint64_t)range->granules[i].span * range->unit;
        }
    }
    return bytes;
}

static kn_status check_holes(const kn_pool *pool, const totals *t) {
    size_t n = 0;
    const kn__block *prev = NULL;
    for (const kn__block *hole = pool->range.holes; hole; prev = hole, hole = hole->next, n++) {
        EXPECT(hole->prev == prev && (!prev || prev->ptr < hole->ptr),
               "the hole at %p is out of order", (void *)hole->ptr);
    }
    EXPECT(n == t->n_holes, "%zu blocks are holes, %zu are listed", t->n_holes, n);
    return KN_OK;
}

static kn_status check_all(kn_pool *pool) {
    totals t = {0};
    size_t n_binned = 0;
    for (const kn__block *b = pool->range.first; b; b = b->right) KN_TRY(check_block(pool, b, &t));
    KN_TRY(check_holes(pool, &t));
    if (pool->range.base) t.reserved = mapped_bytes(&pool->range);
    for (const kn__segment *s = pool->segments; s; s = s->next) {
        size_t size = 0;
        for (const kn__block *b = s->first; b; size += b->size, b = b->right) {
            KN_TRY(check_block(pool, b, &t));
        }
        EXPECT(size == s->size, "the segment at %p holds %zu of %zu bytes", (void *)s->ptr, size,
               s->size);
        t.reserved += s->size;
    }
    KN_TRY(check_bins(&pool->idle->bins, pool->idle, &n_binned));
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        KN_TRY(check_bins(&pool->streams[i]->bins, pool->streams[i], &n_binned));
    }
    kn_pool_stats stats;
    kn__pool_stats(&stats, pool);
    EXPECT(n_binned == t.n_free, "%zu blocks are free, %zu are in bins", t.n_free, n_binned);
    EXPECT(t.reserved == pool->reserved, "%llu bytes are reserved, %llu are counted",
           (unsigned long long)t.reserved, (unsigned long long)pool->reserved);
    EXPECT(t.live == stats.live_bytes, "%llu bytes are live, %llu are counted",
           (unsigned long long)t.live, (unsigned long long)stats.live_bytes);
    EXPECT(t.waiting == pool->waiting_bytes, "%llu bytes wait, %llu are counted",
           (unsigned long long)t.waiting, (unsigned long long)pool->waiting_bytes);
    return KN_OK;
}

kn_status kn_pool_check(kn_pool *pool) {
    KN_TRY(kn__pool_given(pool, __func__));
    kn__pool_lock(pool);
    kn_status status = check_all(pool);
    kn__pool_unlock(pool);
    return status;
}
