/* Blocks: good fit, split and coalesce.
 *
 * Free blocks are binned by size, 16 bins per doubling; the last freed comes first, which is likely
 * in the cache and, on the traces that were tried, leaves less fragmentation than the lowest
 * address. A request looks at a few blocks of its own bin, which may be too small, then takes the
 * first of the next bin that has any. */
#include "config.h"
#include "counts.h"
#include "observe.h"
#include "pool_types.h"

enum { PROBE = 4 }; /* blocks of a bin that are looked at */

/* A block that is freed merges with an idle neighbour only up to this size: the result belongs to
 * one stream, and a large idle block should stay usable by all. */
static const size_t ADOPT_MAX = (size_t)64 << 20;

static inline unsigned bin_of(size_t size) {
    size_t n = size / KN__BLOCK_GRAIN;
    unsigned shift = 59u - (unsigned)__builtin_clzll(n | 16);
    return (shift << 4) + (unsigned)(n >> shift);
}

/* Bins. */

inline void kn__bins_insert(kn__bins *bins, kn__block *block) {
    unsigned bin = bin_of(block->size);
    kn__block *next = bins->head[bin];
    block->prev = NULL;
    block->next = next;
    bins->head[bin] = block;
    if (next) {
        next->prev = block;
        return;
    }
    bins->words[bin / 64] |= 1ull << bin % 64;
    bins->n_used++;
}

inline void kn__bins_remove(kn__bins *bins, kn__block *block) {
    kn__block *next = block->next, *prev = block->prev;
    if (next) next->prev = prev;
    if (prev) {
        prev->next = next;
        return;
    }
    unsigned bin = bin_of(block->size);
    KN_ASSERT(bins->head[bin] == block);
    bins->head[bin] = next;
    if (next) return;
    bins->words[bin / 64] &= ~(1ull << bin % 64);
    bins->n_used--;
}

/* The first bin from `bin` on that is not empty; KN__BINS: none. */
static inline unsigned next_bin(const kn__bins *bins, unsigned bin) {
    unsigned i = bin / 64;
    uint64_t word = bins->words[i] & ~0ull << bin % 64;
    while (!word) word = bins->words[++i];
    return i * 64 + (unsigned)__builtin_ctzll(word);
}

static inline size_t aligning(const kn__block *block, size_t align) {
    return (0 - (uintptr_t)block->ptr) & (align - 1);
}

bool kn__block_fits(const kn__block *block, size_t size, size_t align) {
    return block->size >= size && block->size - size >= aligning(block, align);
}

static inline bool fits(const kn__block *block, size_t size, size_t align) {
    return align > KN__BLOCK_GRAIN ? kn__block_fits(block, size, align) : block->size >= size;
}

/* The best of the first blocks of a bin. */
static inline kn__block *probe_bin(const kn__bins *bins, unsigned bin, size_t size, size_t align) {
    kn__block *best = NULL, *block = bins->head[bin];
    size_t best_size = SIZE_MAX;
    for (int i = 0; i < PROBE && block; i++, block = block->next) {
        if (block->size >= best_size || !fits(block, size, align)) continue;
        best = block;
        best_size = block->size;
        if (best_size == size) break;
    }
    return best;
}

inline kn__block *kn__bins_find(const kn__bins *bins, size_t size, size_t align) {
    unsigned bin = bin_of(size),
             sure = align > KN__BLOCK_GRAIN ? bin_of(size + align) + 1 : bin + 1;
    if (sure > KN__BINS) sure = KN__BINS;
    for (; (bin = next_bin(bins, bin)) < sure; bin++) {
        kn__block *block = probe_bin(bins, bin, size, align);
        if (block) return block;
    }
    return bins->head[bin];
}

kn__block *kn__bins_find_usable(const kn_pool *pool, const kn__stream *by, const kn__bins *bins,
                                size_t size, size_t align) {
    for (unsigned bin = bin_of(size); (bin = next_bin(bins, bin)) < KN__BINS; bin++) {
        kn__block *block = bins->head[bin];
        for (int i = 0; i < PROBE && block; i++, block = block->next) {
            if (kn__block_fits(block, size, align) && kn__epoch_usable(pool, by, block)) {
                return block;
            }
        }
    }
    return NULL;
}

/* Blocks. */

inline void kn__block_assign(kn__block *block, kn__stream *stream) {
    block->stream->refs--;
    block->stream = stream;
    stream->refs++;
}

void kn__free_move(kn_pool *pool, kn__stream *from, uint64_t last, kn__stream *to, uint64_t epoch) {
    for (unsigned bin = 0; bin < KN__BINS && from->bins.n_used; bin++) {
        for (kn__block *block = from->bins.head[bin], *next; block; block = next) {
            next = block->next;
            if (block->epoch > last) continue;
            kn__bins_remove(&from->bins, block);
            kn__block_free(pool, block, to, epoch);
        }
    }
}

/* Records. */

static kn__block *records_add(kn_pool *pool) {
    enum { N = 64 };
    kn__block *more = kn__meta_alloc(&pool->meta, N * sizeof *more);
    for (int i = 0; more && i < N; i++) {
        more[i].next = pool->spare;
        pool->spare = &more[i];
    }
    return pool->spare;
}

inline bool kn__block_room(kn_pool *pool) {
    return (pool->spare && pool->spare->next) || records_add(pool);
}

/* Between two neighbours, which it doesn't tell. */
static inline kn__block *record_make(kn_pool *pool, kn__stream *stream, char *ptr, size_t size) {
    kn__block *block = pool->spare;
    if (KN__UNLIKELY(!block) && !(block = records_add(pool))) return NULL;
    pool->spare = block->next;
    __builtin_prefetch(block->next, 1); /* of many it may have gone from the cache */
    block->ptr = ptr;
    block->size = size;
    block->stream = stream;
    stream->refs++;
    return block;
}

kn__block *kn__block_new(kn_pool *pool, kn__stream *stream, char *ptr, size_t size) {
    kn__block *block = record_make(pool, stream, ptr, size);
    if (!block) return NULL;
    block->left = block->right = block->next = block->prev = NULL;
    kn__block_set(block, KN__FREE, 0);
    return block;
}

inline void kn__block_drop(kn_pool *pool, kn__block *block) {
    block->stream->refs--;
    block->ptr = NULL; /* a stale pointer finds no block here */
    kn__block_set(block, KN__FREE, 0);
    block->next = pool->spare;
    pool->spare = block;
}

inline kn__block *kn__block_split(kn_pool *pool, kn__block *block, size_t size) {
    kn__block *right = record_make(pool, block->stream, block->ptr + size, block->size - size);
    if (!right) return NULL;
    block->size = size;
    right->word = block->word;
    right->left = block;
    right->right = block->right;
    if (right->right) right->right->left = right;
    block->right = right;
    return right;
}

inline void kn__block_absorb_right(kn_pool *pool, kn__block *block) {
    kn__block *right = block->right;
    KN_ASSERT(right && block->ptr + block->size == right->ptr);
    block->size += right->size;
    if (right->epoch > block->epoch) kn__block_set(block, block->state, right->epoch);
    block->right = right->right;
    if (block->right) block->right->left = block;
    kn__block_drop(pool, right);
}

/* Whether a free neighbour joins a block that becomes free for `stream`. */
static inline bool joins(const kn_pool *pool, const kn__stream *stream,
                         const kn__block *neighbour) {
    if (!neighbour || neighbour->state != KN__FREE) return false;
    if (neighbour->stream == stream) return true;
    if (neighbour->stream != pool->idle) return false;
    return pool->n_streams <= 1 || neighbour->size <= ADOPT_MAX;
}

/* Takes a free neighbour out of its bin, for the stream. */
static inline void join(kn__stream *stream, kn__block *neighbour) {
    kn__bins_remove(&neighbour->stream->bins, neighbour);
    if (neighbour->stream == stream) return;
    kn__block_set(neighbour, KN__FREE, 0);
    kn__block_assign(neighbour, stream);
}

/* Loops: a block of the idle stream may have one of the stream's own as its next neighbour. */
inline kn__block *kn__block_free(kn_pool *pool, kn__block *block, kn__stream *stream,
                                 uint64_t epoch) {
    pool->n_changes++;
    if (epoch == stream->epoch) stream->open_bytes += block->size;
    if (block->stream != stream) kn__block_assign(block, stream);
    kn__block_set(block, KN__FREE, epoch);
    while (joins(pool, stream, block->right)) {
        join(stream, block->right);
        kn__block_absorb_right(pool, block);
    }
    while (joins(pool, stream, block->left)) {
        join(stream, block->left);
        block = block->left;
        kn__block_absorb_right(pool, block);
    }
    kn__bins_insert(&stream->bins, block);
    return block;
}

inline void kn__block_release(kn_pool *pool, kn__block *block, uint64_t epoch) {
    kn__stream *home = block->stream;
    if (home->retired && kn__epoch_finished(pool, home, epoch)) {
        kn__block_free(pool, block, pool->idle, 0);
    } else {
        kn__block_free(pool, block, home, epoch);
    }
}

inline kn__block *kn__block_take(kn_pool *pool, kn__block *block, kn__stream *stream, size_t size,
                                 size_t align) {
    KN_ASSERT(block->state == KN__FREE && kn__block_fits(block, size, align));
    size_t skip = aligning(block, align), rest = block->size - skip - size;
    kn__bins *bins = &block->stream->bins;
    if ((skip || rest) && !kn__block_room(pool)) return NULL;
    kn__bins_remove(bins, block);
    if (skip) {
        kn__block *right = kn__block_split(pool, block, skip);
        kn__bins_insert(bins, block);
        block = right;
    }
    if (rest) kn__bins_insert(bins, kn__block_split(pool, block, size));
    if (block->stream != stream) kn__block_assign(block, stream);
    block->waiter = NULL;
    kn__block_set(block, KN__LIVE, 0);
    return block;
}

static kn__block *better(kn__block *own, kn__block *idle) {
    if (!own || !idle) return own ? own : idle;
    unsigned own_bin = bin_of(own->size), idle_bin = bin_of(idle->size);
    if (own_bin != idle_bin) return own_bin < idle_bin ? own : idle;
    return own->ptr < idle->ptr ? own : idle;
}

inline kn__block *kn__arena_find(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    kn__block *own = kn__bins_find(&stream->bins, size, align);
    if (KN__LIKELY(!pool->idle->bins.n_used)) return own;
    return better(own, kn__bins_find(&pool->idle->bins, size, align));
}

void kn__blocks_visit(kn_pool *pool, bool (*fn)(void *ctx, kn__block *block), void *ctx) {
    for (kn__block *block = pool->range.first; block; block = block->right) {
        if (!fn(ctx, block)) return;
    }
    for (kn__segment *segment = pool->segments; segment; segment = segment->next) {
        for (kn__block *block = segment->first; block; block = block->right) {
            if (!fn(ctx, block)) return;
        }
    }
}

/* kn_alloc and kn_free of blocks; here, so that all of it is compiled as one. */

void kn__tell_oom(kn_pool *pool, size_t wanted) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_oom) observer->on_oom(pool, wanted);
    kn__config_report_oom(pool);
}

/* At most one block may start in a page. */
static inline size_t round_block(size_t size) {
    size_t rounded = kn__block_round(size);
    return rounded < KN__PAGE ? KN__PAGE : rounded;
}

/* Under the lock. */
static kn_status find_block(kn__block **out, kn_pool *pool, size_t size, size_t align,
                            kn_stream handle) {
    size_t rounded = round_block(size);
    kn__stream *stream;
    KN_TRY(kn__stream_get(&stream, pool, handle));
    kn__block *block = kn__arena_find(pool, stream, rounded, align);
    *out = block ? kn__block_take(pool, block, stream, rounded, align) : NULL;
    return *out ? KN_OK : kn__ladder(out, pool, stream, rounded, align, KN__NO_CLASS, size);
}

kn_status kn__block_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle) {
    kn__cache *cache = kn__cache_get(pool); /* so that a thread's counters are exact when folded */
    unsigned tag = kn__tag_now();
    kn__block *block = NULL;
    kn__pool_lock(pool);
    kn_status status = find_block(&block, pool, size, align, handle);
    if (KN__UNLIKELY(status < 0)) {
        kn__pool_unlock(pool);
        *out = NULL;
        if (status != KN_ERR_INVALID) kn__tell_oom(pool, size);
        return status;
    }
    size_t rounded = block->size;
    char *ptr = *out = block->ptr;
    block->of_live = (uint64_t)(rounded - size) << 32 | (uint64_t)tag << 48;
    kn__page_put(pool, ptr, (uintptr_t)block);
    kn__count_locked(pool, cache, tag, (int64_t)rounded, (int64_t)size);
    kn__pool_unlock(pool);
    const kn_observer *observer = kn__observer();
    if (KN__UNLIKELY(observer && observer->on_alloc)) {
        KN__WRITE(block->owner, observer->on_alloc(pool, ptr, rounded, handle));
    }
    return KN_OK;
}

static const char *const NOT_OURS =
    "is no live block of the pool: freed already, inside a block, or another pool's";

/* A record that was dropped has no address; one that is not live was freed. */
const char *kn__block_misuse(const kn__block *block, const char *ptr) {
    if (!block || !block->ptr) return NOT_OURS;
    if (block->ptr == ptr) return block->state == KN__LIVE ? NULL : "was freed already";
    bool inside = block->state == KN__LIVE && ptr > block->ptr && ptr < block->ptr + block->size;
    return inside ? "points into a block, not to its start" : NOT_OURS;
}

/* While the observer is told, with the lock open, the page map doesn't know the block. */
static void tell_free(kn_pool *pool, kn__block *block) {
    const kn_observer *observer = kn__observer();
    if (KN__LIKELY(!observer || !observer->on_free)) return;
    kn__page_put(pool, block->ptr, 0);
    kn__pool_unlock(pool);
    observer->on_free(pool, block->ptr, block->size, KN__READ(block->owner));
    kn__pool_lock(pool);
}

kn_status kn__block_dealloc(kn_pool *pool, char *ptr) {
    __builtin_prefetch((const void *)kn__page_get(pool, ptr)); /* of many it is not in the cache */
    kn__pool_lock(pool);
    uintptr_t entry = kn__page_get(pool, ptr); /* again: it may have changed before the lock */
    kn__block *block = entry & KN__TAG_SLAB ? NULL : (kn__block *)entry;
    const char *why = kn__block_misuse(block, ptr);
    if (KN__UNLIKELY(why)) {
        kn__pool_unlock(pool);
        return kn__misuse(pool, "kn_free", ptr, why);
    }
    KN_ASSERT(block); /* a misuse otherwise */
    tell_free(pool, block);
    kn__stream *home = block->stream;
    kn__count_locked(pool, kn__cache_of_thread(pool), block->tag, -(int64_t)block->size,
                     -(int64_t)(block->size - block->slack));
    if (KN__UNLIKELY(block->waiter)) {
        block->waiter->block = block;
        kn__waiter_enqueue(pool, block->waiter);
    } else {
        kn__block_release(pool, block, kn__stream_epoch(home));
    }
    kn__epoch_close_if_full(pool, home);
    kn__pool_unlock(pool);
    return KN_OK;
}
