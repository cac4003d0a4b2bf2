/* Blocks: good fit, split and coalesce.
 *
 * Free blocks are binned by size, 16 bins per doubling; the last freed comes first, which is likely
 * in the cache and, on the traces that were tried, leaves less fragmentation than the lowest
 * address. A request looks at a few blocks of its own bin, which may be too small, then takes the
 * first of the next bin that has any. */
#include "counts.h"
#include "observe.h"
#include "pool_types.h"

enum { PROBE = 4 }; /* blocks of a bin that are looked at */

/* A free block of another stream's, or of nobody's, joins its neighbour only up to this size: the
 * join is then reusable by one stream alone, and the rest of a big one should stay for all. */
static const size_t ADOPT_MAX = (size_t)64 << 20;

static inline unsigned bin_of(size_t size) {
    size_t n = size / KN__BLOCK_GRAIN;
    unsigned shift = 59u - (unsigned)__builtin_clzll(n | 16);
    return (shift << 4) + (unsigned)(n >> shift);
}

/* Bins. */

static inline void bin_insert(kn__bins *bins, kn__block *block, unsigned bin) {
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

static inline void bin_remove(kn__bins *bins, kn__block *block, unsigned bin) {
    kn__block *next = block->next, *prev = block->prev;
    if (next) next->prev = prev;
    if (prev) {
        prev->next = next;
        return;
    }
    KN_ASSERT(bins->head[bin] == block);
    bins->head[bin] = next;
    if (next) return;
    bins->words[bin / 64] &= ~(1ull << bin % 64);
    bins->n_used--;
}

void kn__bins_insert(kn__bins *bins, kn__block *block) {
    bin_insert(bins, block, bin_of(block->size));
}

void kn__bins_remove(kn__bins *bins, kn__block *block) {
    bin_remove(bins, block, bin_of(block->size));
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

static inline kn__block *find(const kn__bins *bins, size_t size) {
    unsigned bin = bin_of(size);
    kn__block *block = probe_bin(bins, bin, size, KN__BLOCK_GRAIN);
    return block ? block : bins->head[next_bin(bins, bin + 1)];
}

kn__block *kn__bins_find(const kn__bins *bins, size_t size, size_t align) {
    if (align <= KN__BLOCK_GRAIN) return find(bins, size);
    unsigned sure = bin_of(size + align) + 1;
    for (unsigned bin = bin_of(size); (bin = next_bin(bins, bin)) < KN__BINS; bin++) {
        if (bin >= sure) return bins->head[bin];
        kn__block *block = probe_bin(bins, bin, size, align);
        if (block) return block;
    }
    return NULL;
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

void kn__block_assign(kn__block *block, kn__stream *stream) {
    block->stream->refs--;
    block->stream = stream;
    stream->refs++;
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

bool kn__block_room(kn_pool *pool) { return pool->spare || records_add(pool); }

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

void kn__block_drop(kn_pool *pool, kn__block *block) {
    block->stream->refs--;
    block->ptr = NULL; /* a stale pointer finds no block here */
    kn__block_set(block, KN__FREE, 0);
    block->next = pool->spare;
    pool->spare = block;
}

static inline kn__block *split(kn_pool *pool, kn__block *block, size_t size) {
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

kn__block *kn__block_split(kn_pool *pool, kn__block *block, size_t size) {
    return split(pool, block, size);
}

void kn__block_absorb_right(kn_pool *pool, kn__block *block) {
    kn__block *right = block->right;
    KN_ASSERT(right && block->ptr + block->size == right->ptr);
    block->size += right->size;
    if (right->epoch > block->epoch) kn__block_set(block, block->state, right->epoch);
    block->right = right->right;
    if (block->right) block->right->left = block;
    kn__block_drop(pool, right);
}

/* Whether a free neighbour joins a block that becomes free for `stream`. */
static bool joins(const kn_pool *pool, const kn__stream *stream, const kn__block *neighbour) {
    if (!neighbour || neighbour->state != KN__FREE) return false;
    if (neighbour->stream == stream) return true;
    if (neighbour->stream != pool->idle) return false;
    return pool->n_streams <= 1 || neighbour->size <= ADOPT_MAX;
}

/* More than once: behind a joined block of nobody's there may be one of the stream's own. */
static inline void join_right(kn_pool *pool, kn__block *block, kn__stream *stream) {
    for (kn__block *right; right = block->right, joins(pool, stream, right);) {
        kn__bins_remove(&right->stream->bins, right);
        if (right->stream != stream) kn__block_set(right, KN__FREE, 0);
        kn__block_absorb_right(pool, block);
    }
}

static inline kn__block *join_left(kn_pool *pool, kn__block *block, kn__stream *stream) {
    for (kn__block *left; left = block->left, joins(pool, stream, left); block = left) {
        kn__bins_remove(&left->stream->bins, left);
        if (left->stream != stream) {
            kn__block_set(left, KN__FREE, 0);
            kn__block_assign(left, stream);
        }
        kn__block_absorb_right(pool, left);
    }
    return block;
}

/* A block in its bin grows, and stays where it is if that is still its bin. */
static inline void bin_grow(kn__bins *bins, kn__block *block, size_t more) {
    unsigned from = bin_of(block->size), to = bin_of(block->size + more);
    if (from != to) bin_remove(bins, block, from);
    block->size += more;
    if (from != to) bin_insert(bins, block, to);
}

kn__block *kn__block_free(kn_pool *pool, kn__block *block, kn__stream *stream, uint64_t epoch) {
    if (epoch == stream->epoch) stream->dirty = true;
    if (block->stream != stream) kn__block_assign(block, stream);
    kn__block_set(block, KN__FREE, epoch);
    join_right(pool, block, stream);
    block = join_left(pool, block, stream);
    kn__bins_insert(&stream->bins, block);
    return block;
}

/* The same for a block of a stream that is there, in its open epoch, where neighbours that are free
 * are the stream's own: nearly always. The one that is in a bin already takes the other in. */
static inline void free_here(kn_pool *pool, kn__block *block) {
    kn__stream *stream = block->stream;
    kn__block *left = block->left, *right = block->right;
    bool free_left = left && left->state == KN__FREE,
         free_right = right && right->state == KN__FREE;
    if (KN__UNLIKELY((free_left && left->stream != stream) ||
                     (free_right && (right->stream != stream || !left)))) {
        kn__block_free(pool, block, stream, stream->epoch);
        return;
    }
    stream->dirty = true;
    if (free_left) {
        size_t more = block->size;
        if (free_right) {
            kn__bins_remove(&stream->bins, right);
            more += right->size;
            kn__block *next = right->right;
            kn__block_drop(pool, right);
            right = next;
        }
        left->right = right;
        if (right) right->left = left;
        kn__block_set(left, KN__FREE, stream->epoch);
        kn__block_drop(pool, block);
        bin_grow(&stream->bins, left, more);
    } else if (free_right) { /* there is a left one, so that no segment starts with the block */
        right->ptr = block->ptr;
        right->left = left;
        left->right = right;
        kn__block_set(right, KN__FREE, stream->epoch);
        size_t more = block->size;
        kn__block_drop(pool, block);
        bin_grow(&stream->bins, right, more);
    } else {
        kn__block_set(block, KN__FREE, stream->epoch);
        kn__bins_insert(&stream->bins, block);
    }
}

void kn__block_release(kn_pool *pool, kn__block *block) {
    kn__stream *home = block->stream;
    uint64_t epoch = kn__stream_epoch(home);
    if (home->retired && kn__epoch_finished(pool, home, epoch)) {
        kn__block_free(pool, block, pool->idle, 0);
    } else {
        kn__block_free(pool, block, home, epoch);
    }
}

/* The left `size` bytes of a free block become live. What is left over stays where it is, record
 * and place in its bin, if that still fits. NULL: no host memory. */
static inline kn__block *cut(kn_pool *pool, kn__block *block, kn__stream *stream, size_t size) {
    kn__stream *from = block->stream;
    kn__block *left = block->left, *live = block;
    size_t rest = block->size - size;
    unsigned bin = bin_of(block->size), rest_bin = bin_of(rest);
    if (bin == rest_bin && rest && left) {
        if (!(live = record_make(pool, stream, block->ptr, size))) return NULL;
        live->left = left;
        live->right = block;
        left->right = block->left = live;
        block->ptr += size;
        block->size = rest;
    } else {
        if (rest && !kn__block_room(pool)) return NULL;
        bin_remove(&from->bins, block, bin);
        if (rest) bin_insert(&from->bins, split(pool, block, size), rest_bin);
        if (from != stream) kn__block_assign(block, stream);
    }
    live->waiter = NULL;
    kn__block_set(live, KN__LIVE, 0);
    return live;
}

kn__block *kn__block_take(kn_pool *pool, kn__block *block, kn__stream *stream, size_t size,
                          size_t align) {
    KN_ASSERT(block->state == KN__FREE && kn__block_fits(block, size, align));
    size_t skip = aligning(block, align);
    if (skip) {
        kn__bins *bins = &block->stream->bins;
        if (!kn__block_room(pool)) return NULL;
        kn__bins_remove(bins, block);
        kn__block *right = kn__block_split(pool, block, skip);
        kn__bins_insert(bins, block);
        kn__bins_insert(bins, right);
        block = right;
    }
    return cut(pool, block, stream, size);
}

static inline kn__block *better(kn__block *own, kn__block *idle) {
    if (!own || !idle) return own ? own : idle;
    unsigned own_bin = bin_of(own->size), idle_bin = bin_of(idle->size);
    if (own_bin != idle_bin) return own_bin < idle_bin ? own : idle;
    return own->ptr < idle->ptr ? own : idle;
}

static inline kn__block *find_best(kn_pool *pool, kn__stream *stream, size_t size) {
    kn__block *own = find(&stream->bins, size);
    if (KN__LIKELY(!pool->idle->bins.n_used)) return own;
    return better(own, find(&pool->idle->bins, size));
}

kn__block *kn__arena_find(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    return better(kn__bins_find(&stream->bins, size, align),
                  kn__bins_find(&pool->idle->bins, size, align));
}

/* The block freed last. A program that frees a block often asks for the same size next, so it is
 * kept whole for one request: then there is nothing to join, to search and to split. Any other
 * request finds it released, so that it costs no memory. */

void kn__kept_release(kn_pool *pool) {
    kn__block *block = pool->kept;
    if (!block) return;
    pool->kept = NULL;
    free_here(pool, block); /* its stream is not retired: who retires it calls this first */
}

static inline kn__block *arena_alloc(kn_pool *pool, kn__stream *stream, size_t size) {
    kn__block *block = pool->kept;
    if (block) {
        pool->kept = NULL;
        if (block->size == size && block->stream == stream) {
            kn__block_set(block, KN__LIVE, 0);
            return block;
        }
        free_here(pool, block);
    }
    block = find_best(pool, stream, size);
    return block ? cut(pool, block, stream, size) : NULL;
}

/* Its stream is not retired. */
static inline void arena_free(kn_pool *pool, kn__block *block) {
    kn__block *last = pool->kept;
    kn__block_set(block, KN__KEPT, 0);
    pool->kept = block;
    if (last) free_here(pool, last);
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

kn_status kn__no_stream(const kn_pool *pool) {
    return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a stream", pool->name);
}

void kn__tell_oom(kn_pool *pool, size_t wanted) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_oom) observer->on_oom(pool, wanted);
}

static inline void block_hand_out(kn_pool *pool, kn__block *block, size_t requested, unsigned tag) {
    block->of_live = (uint64_t)(block->size - requested) << 32 | (uint64_t)tag << 48;
    pool->handed_out += block->size;
    kn__page_put(pool, block->ptr, (uintptr_t)block);
}

/* Not at hand: by the ladder. Under the lock. */
static kn_status find_slow(kn__block **out, kn_pool *pool, kn__stream *stream, size_t rounded,
                           size_t align, size_t requested) {
    kn__block *block = NULL;
    if (!stream) return kn__no_stream(pool);
    if (align > KN__BLOCK_GRAIN) block = kn__arena_find(pool, stream, rounded, align);
    if (block) block = kn__block_take(pool, block, stream, rounded, align);
    *out = block;
    if (block) return KN_OK;
    return kn__ladder(out, pool, stream, rounded, align, KN__NO_CLASS, requested);
}

/* At most one block may start in a page. */
static inline size_t round_block(size_t size) {
    size_t rounded = kn__block_round(size);
    return rounded < KN__PAGE ? KN__PAGE : rounded;
}

/* Under the lock, which it opens. */
static __attribute__((noinline)) kn_status alloc_rare(void **out, kn_pool *pool, size_t size,
                                                      size_t align, kn_stream handle) {
    size_t rounded = round_block(size);
    kn__block *block = NULL;
    kn_status status = KN_OK;
    kn__stream *stream = kn__stream_get(pool, handle);
    if (stream && align <= KN__BLOCK_GRAIN) block = arena_alloc(pool, stream, rounded);
    if (!block) status = find_slow(&block, pool, stream, rounded, align, size);
    if (status < 0) {
        kn__pool_unlock(pool);
        *out = NULL;
        kn__tell_oom(pool, size);
        return status;
    }
    char *ptr = block->ptr;
    unsigned tag = kn__tag_now();
    block_hand_out(pool, block, size, tag);
    kn__count_locked(pool, kn__cache_of_thread(pool), tag, (int64_t)rounded, (int64_t)size);
    kn__pool_unlock(pool);
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_alloc) {
        KN__WRITE(block->owner, observer->on_alloc(pool, ptr, rounded, handle));
    }
    *out = ptr;
    return KN_OK;
}

kn_status kn__large_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle) {
    (void)kn__cache_get(pool); /* a thread's counters are exact when put together */
    kn__pool_lock(pool);
    return alloc_rare(out, pool, size, align, handle);
}

kn_status kn__block_alloc(void **out, kn_pool *pool, size_t size, kn_stream handle) {
    kn__thread *self = kn__self;
    kn__cache *cache = self ? self->caches[pool->slot] : NULL;
    if (KN__UNLIKELY(!cache)) return kn__large_alloc(out, pool, size, KN__BLOCK_GRAIN, handle);
    kn__pool_lock(pool);
    kn__stream *stream = pool->recent;
    if (KN__UNLIKELY(!stream || stream->handle != handle || stream->retired || self->tag ||
                     kn__observer())) {
        return alloc_rare(out, pool, size, KN__BLOCK_GRAIN, handle);
    }
    kn__block *block = arena_alloc(pool, stream, round_block(size));
    if (KN__UNLIKELY(!block)) return alloc_rare(out, pool, size, KN__BLOCK_GRAIN, handle);
    kn__count_fold(pool, cache);
    kn__count_pool_alloc(pool, block->size, size);
    block_hand_out(pool, block, size, 0);
    *out = block->ptr;
    kn__pool_unlock(pool);
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

/* While the observer is told, with the lock open, nobody finds the block. */
static void tell_free(kn_pool *pool, kn__block *block) {
    const kn_observer *observer = kn__observer();
    if (KN__LIKELY(!observer || !observer->on_free)) return;
    kn__page_put(pool, block->ptr, 0);
    kn__pool_unlock(pool);
    observer->on_free(pool, block->ptr, block->size, KN__READ(block->owner));
    kn__pool_lock(pool);
}

/* Under the lock, which it opens. */
static __attribute__((noinline)) kn_status free_rare(kn_pool *pool, char *ptr) {
    uintptr_t entry = kn__page_get(pool, ptr); /* nobody changes it now */
    kn__block *block = entry & KN__TAG_SLAB ? NULL : (kn__block *)entry;
    const char *why = kn__block_misuse(block, ptr);
    if (why) {
        kn__pool_unlock(pool);
        return kn__misuse(pool, "kn_free", ptr, why);
    }
    tell_free(pool, block);
    kn__count_locked(pool, kn__cache_of_thread(pool), block->tag, -(int64_t)block->size,
                     -(int64_t)(block->size - block->slack));
    if (block->waiter) {
        block->waiter->block = block;
        kn__waiter_enqueue(pool, block->waiter);
    } else if (block->stream->retired) {
        kn__block_release(pool, block);
    } else {
        arena_free(pool, block);
    }
    kn__pool_unlock(pool);
    return KN_OK;
}

/* The record is a block's, always, though maybe no longer this one's. */
kn_status kn__block_dealloc(kn_pool *pool, char *ptr, kn__block *block) {
    kn__thread *self = kn__self;
    __builtin_prefetch(block);
    kn__pool_lock(pool);
    if (KN__UNLIKELY(block->ptr != ptr || block->state != KN__LIVE || block->waiter || block->tag ||
                     block->stream->retired || !self || kn__observer())) {
        return free_rare(pool, ptr);
    }
    __builtin_prefetch(block->left, 1); /* the next call joins them */
    __builtin_prefetch(block->right, 1);
    kn__cache *cache = self->caches[pool->slot];
    if (cache) kn__count_fold(pool, cache);
    kn__count_pool_free(pool, block->size, block->size - block->slack);
    arena_free(pool, block);
    kn__pool_unlock(pool);
    return KN_OK;
}
