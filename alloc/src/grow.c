/* Memory from the device and back to it.
 *
 * With virtual memory a pool has one range of addresses; physical handles are mapped into it where
 * the least is needed, lowest addresses first, and grow with what is mapped. Addresses without
 * memory are blocks too: holes. A handle of which every byte is free, and whose streams are done
 * with it, can be unmapped and mapped elsewhere ("harvest") or destroyed ("shrink").
 * Without virtual memory a pool grows by plain segments. */
#include <stdlib.h>
#include <sys/mman.h>

#include "pool_types.h"

static const size_t RANGE_MAX = (size_t)1 << 40; /* what ThreadSanitizer bears */
enum { ROOM = 8 }; /* so much more addresses than memory: what moves leaves holes behind */
static const size_t HANDLE_MAX = (size_t)64 << 20;
static const size_t SEGMENT_MIN = (size_t)32 << 20, SEGMENT_MAX = (size_t)512 << 20;

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* What the limit and the device leave. */

void kn__device_free_read(kn_pool *pool) {
    uint64_t bytes;
    if (pool->driver->free_bytes && pool->driver->free_bytes(pool->impl, &bytes) == KN_OK) {
        pool->device_most = pool->reserved + bytes;
    }
}

uint64_t kn__pool_capacity(const kn_pool *pool) {
    return pool->limit < pool->device_most ? pool->limit : pool->device_most;
}

bool kn__pool_pressed(const kn_pool *pool, size_t size) {
    uint64_t most = kn__pool_capacity(pool);
    if (pool->soft_limit < most) most = pool->soft_limit;
    return (double)(pool->reserved + size) > pool->pressure * (double)most;
}

static uint64_t headroom(const kn_pool *pool) {
    uint64_t most = kn__pool_capacity(pool);
    return most > pool->reserved ? most - pool->reserved : 0;
}

static kn_status over_limit(const kn_pool *pool, size_t bytes) {
    if (pool->reserved + bytes > pool->limit) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes more are beyond the limit of %zu",
                       pool->name, bytes, pool->limit);
    }
    return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes more are needed, the device has %llu free",
                   pool->name, bytes, (unsigned long long)headroom(pool));
}

/* Holes. */

/* The last hole before the block. Walks along the blocks and along the holes at once: holes lie few
 * blocks apart, or there are few. */
static kn__block *hole_before(const kn__range *range, const kn__block *block) {
    kn__block *left = block->left, *prev = NULL, *next = range->holes;
    for (; next && next->ptr < block->ptr; left = left->left, prev = next, next = next->next) {
        if (left->state == KN__HOLE) return left;
    }
    return prev;
}

/* `prev`: the hole before it, or NULL. */
static void hole_link(kn__range *range, kn__block *hole, kn__block *prev) {
    kn__block **link = prev ? &prev->next : &range->holes;
    hole->prev = prev;
    hole->next = *link;
    if (hole->next) hole->next->prev = hole;
    *link = hole;
}

/* A block that just lost its memory, out of the bins. */
static void hole_make(kn_pool *pool, kn__block *block) {
    kn__block_set(block, KN__HOLE, 0);
    if (block->stream != pool->idle) kn__block_assign(block, pool->idle);
    if (block->right && block->right->state == KN__HOLE) {
        KN__LIST_REMOVE(&pool->range.holes, block->right);
        kn__block_absorb_right(pool, block);
    }
    if (block->left && block->left->state == KN__HOLE) {
        block = block->left;
        kn__block_absorb_right(pool, block);
        return;
    }
    hole_link(&pool->range, block, hole_before(&pool->range, block));
}

/* The range. */

kn_status kn__range_create(kn_pool *pool, uint64_t total_bytes, uint64_t granularity_bytes) {
    kn__range *range = &pool->range;
    range->unit = granularity_bytes > KN__UNIT ? (size_t)granularity_bytes : KN__UNIT;
    size_t size = total_bytes < RANGE_MAX / ROOM ? ROOM * (size_t)total_bytes : RANGE_MAX;
    size = round_up(size, range->unit);
    void *base = NULL;
    while (pool->driver->range_reserve(pool->impl, &base, size) < 0) {
        size = round_up(size / 2, range->unit);
        if (size < total_bytes / 2 || size <= range->unit) return kn_last_error()->status;
    }
    size_t table_bytes = size / range->unit * sizeof *range->granules;
    void *table = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    kn__block *hole = kn__block_new(pool, pool->idle, base, size);
    if (table == MAP_FAILED || !hole) {
        if (table != MAP_FAILED) munmap(table, table_bytes);
        pool->driver->range_release(pool->impl, base, size);
        return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for its range", pool->name);
    }
    kn__block_set(hole, KN__HOLE, 0);
    range->base = base;
    range->size = size;
    range->granules = table;
    range->first = hole;
    hole_link(range, hole, NULL);
    return KN_OK;
}

static kn__granule *granule_of(const kn__range *range, const char *ptr) {
    return &range->granules[(size_t)(ptr - range->base) / range->unit];
}

static kn_status unmap_and_destroy(kn_pool *pool, char *at) {
    kn__granule *granule = granule_of(&pool->range, at);
    size_t bytes = granule->span * pool->range.unit;
    KN_TRY(pool->driver->handle_unmap(pool->impl, at, bytes));
    pool->driver->handle_destroy(pool->impl, granule->handle, bytes);
    granule->span = 0;
    kn__pool_reserve_add(pool, -(int64_t)bytes);
    return KN_OK;
}

static kn_status map_one(kn_pool *pool, char *at, size_t bytes) {
    uint64_t handle = 0;
    KN_TRY(pool->driver->handle_create(pool->impl, &handle, bytes));
    kn_status status = pool->driver->handle_map(pool->impl, at, bytes, handle);
    if (status < 0) {
        pool->driver->handle_destroy(pool->impl, handle, bytes);
        return status;
    }
    *granule_of(&pool->range, at) =
        (kn__granule){.handle = handle, .span = (uint32_t)(bytes / pool->range.unit)};
    pool->n_device_allocs++;
    kn__pool_reserve_add(pool, (int64_t)bytes);
    return KN_OK;
}

/* Makes the handles mapped in [at, at + *bytes) usable. After a failure they are given back, the
 * last first: *bytes says how many bytes stay, which can't be unmapped. */
static kn_status map_finish(kn_pool *pool, char *at, size_t *bytes, kn_status status) {
    if (status == KN_OK && *bytes) status = pool->driver->range_access(pool->impl, at, *bytes);
    if (status == KN_OK) return KN_OK;
    kn_error error = *kn_last_error();
    const kn__range *range = &pool->range;
    for (size_t n = *bytes / range->unit; n-- > 0;) {
        if (!granule_of(range, at + n * range->unit)->span) continue;
        if (unmap_and_destroy(pool, at + n * range->unit) < 0) break;
        *bytes = n * range->unit;
    }
    return kn_fail_at(error.file, error.line, status, "%s", error.message);
}

/* Maps `bytes` at `at`, in handles of `handle_bytes`; all or nothing. *mapped says how many bytes
 * are mapped afterwards: none after a failure, unless they can't be unmapped either. */
static kn_status map_all(kn_pool *pool, char *at, size_t bytes, size_t handle_bytes,
                         size_t *mapped) {
    kn_status status = KN_OK;
    for (*mapped = 0; *mapped < bytes && status == KN_OK;) {
        size_t piece = bytes - *mapped < handle_bytes ? bytes - *mapped : handle_bytes;
        status = map_one(pool, at + *mapped, piece);
        if (status == KN_OK) *mapped += piece;
    }
    return map_finish(pool, at, mapped, status);
}

/* Where a request fits with the least new memory: the first `bytes` of a hole, together with the
 * free block before it, and the one after it when the hole is filled. */
typedef struct kn__plan {
    kn__block *hole;
    size_t bytes;
    const char *end; /* of the request: in the hole, or in the block after it */
} kn__plan;

static bool usable_free(const kn_pool *pool, const kn__stream *by, const kn__block *block) {
    return block && block->state == KN__FREE && kn__epoch_usable(pool, by, block);
}

/* Or after a wait on the device. */
static bool claimable(const kn_pool *pool, const kn__stream *by, const kn__block *block,
                      bool waits) {
    if (usable_free(pool, by, block)) return true;
    return waits && block && block->state == KN__FREE && !block->stream->graph;
}

static kn__plan make_plan(const kn_pool *pool, const kn__stream *by, size_t size, size_t align,
                          bool waits) {
    kn__plan best = {.bytes = SIZE_MAX};
    for (kn__block *hole = pool->range.holes; hole; hole = hole->next) {
        const kn__block *left = hole->left, *right = hole->right;
        uintptr_t start = (uintptr_t)(claimable(pool, by, left, waits) ? left->ptr : hole->ptr);
        uintptr_t need_end = round_up(start, align) + size, end = (uintptr_t)hole->ptr;
        size_t bytes = need_end > end ? round_up(need_end - end, pool->range.unit) : 0;
        if (bytes > hole->size) {
            size_t beyond = claimable(pool, by, right, waits) ? right->size : 0;
            if (need_end - end > hole->size + beyond) continue;
            bytes = hole->size;
        }
        if (bytes < best.bytes) best = (kn__plan){hole, bytes, (const char *)need_end};
    }
    return best;
}

/* The first `bytes` of the hole have memory now: makes them a free block, merged with its
 * neighbours. make_room ensured a record for the rest of the hole. */
static void hole_fill(kn_pool *pool, kn__stream *stream, kn__block *hole, size_t bytes) {
    kn__block *rest = hole->size > bytes ? kn__block_split(pool, hole, bytes) : NULL;
    if (rest) hole_link(&pool->range, rest, hole);
    KN__LIST_REMOVE(&pool->range.holes, hole);
    if (usable_free(pool, stream, hole->left)) kn__block_adopt(pool, hole->left, stream);
    if (usable_free(pool, stream, hole->right)) kn__block_adopt(pool, hole->right, stream);
    kn__block_free(pool, hole, stream, 0);
}

/* Host memory for what mapping `bytes` from `at` on will need, so that nothing fails behind it. */
static kn_status make_room(kn_pool *pool, const char *at, size_t bytes) {
    KN_TRY(kn__pages_cover(pool, at, bytes + HANDLE_MAX));
    if (kn__block_room(pool)) return KN_OK;
    return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
}

/* Grows with the pool and with the request, and shrinks with the headroom: the last handles are
 * small. */
static size_t handle_size(const kn_pool *pool, size_t bytes) {
    uint64_t left = headroom(pool) / 16, wanted = pool->reserved / 256;
    size_t size = pool->range.unit;
    if (wanted < bytes / 64) wanted = bytes / 64;
    if (wanted > left) wanted = left;
    while (size * 2 <= HANDLE_MAX && size * 2 <= wanted) size *= 2;
    return size;
}

/* In whole handles of the size that fits the pool, or exactly where that is too much. */
static kn_status map_plan(kn_pool *pool, const kn__plan *plan, size_t *mapped) {
    size_t handle = handle_size(pool, plan->bytes), rounded = round_up(plan->bytes, handle);
    if (plan->bytes > headroom(pool)) return over_limit(pool, plan->bytes);
    if (rounded > plan->bytes && rounded <= plan->hole->size && rounded <= headroom(pool)) {
        kn_status status = map_all(pool, plan->hole->ptr, rounded, handle, mapped);
        if (status == KN_OK || *mapped) return status;
    }
    return map_all(pool, plan->hole->ptr, plan->bytes, handle, mapped);
}

/* For what the plan counts on; nothing where no wait is needed. */
static kn_status plan_wait(kn_pool *pool, kn__stream *by, const kn__plan *plan) {
    const kn__block *left = plan->hole->left, *right = plan->hole->right;
    if (left && left->state == KN__FREE)
        KN_TRY(kn__epoch_wait(pool, by, left->stream, left->epoch));
    if (plan->bytes < plan->hole->size || !right || right->state != KN__FREE) return KN_OK;
    return kn__epoch_wait(pool, by, right->stream, right->epoch);
}

static kn__plan plan_ahead(kn_pool *pool, kn__stream *by, size_t size, size_t align, bool waits) {
    kn__plan plan = make_plan(pool, by, size, align, waits);
    if (!waits || !plan.hole || plan_wait(pool, by, &plan) == KN_OK) return plan;
    return make_plan(pool, by, size, align, false);
}

static kn_status range_grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    kn__plan plan = make_plan(pool, stream, size, align, false);
    if (!plan.hole) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: no room for %zu bytes in its range of %zu", pool->name,
                       size, pool->range.size);
    }
    if (plan.bytes == 0) { /* the block before the hole is enough */
        kn__block_adopt(pool, plan.hole->left, stream);
        return KN_OK;
    }
    size_t mapped = 0;
    KN_TRY(make_room(pool, plan.hole->ptr, plan.bytes));
    kn_status status = map_plan(pool, &plan, &mapped);
    if (mapped) hole_fill(pool, stream, plan.hole, mapped);
    return status;
}

/* Plain segments. */

static kn_status segment_add(kn_pool *pool, kn__stream *stream, size_t bytes) {
    if (bytes > headroom(pool)) return over_limit(pool, bytes);
    kn__segment *segment = kn__meta_alloc(&pool->meta, sizeof *segment);
    kn__block *block = segment ? kn__block_new(pool, pool->idle, NULL, bytes) : NULL;
    void *ptr = NULL;
    kn_status status = KN_ERR_OOM;
    if (!block) {
        status = KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
    } else {
        status = pool->driver->segment_alloc(pool->impl, &ptr, bytes);
    }
    if (status == KN_OK && (status = kn__pages_cover(pool, ptr, bytes)) < 0) {
        pool->driver->segment_free(pool->impl, ptr, bytes);
    }
    if (status < 0) {
        if (block) kn__block_drop(pool, block);
        if (segment) kn__meta_free(&pool->meta, segment, sizeof *segment);
        return status;
    }
    KN_ASSERT(block && segment);
    block->ptr = ptr;
    *segment = (kn__segment){.ptr = ptr, .size = bytes, .first = block};
    KN__LIST_ADD(&pool->segments, segment);
    pool->n_device_allocs++;
    kn__pool_reserve_add(pool, (int64_t)bytes);
    kn__block_free(pool, block, stream, 0);
    return KN_OK;
}

static void segment_remove(kn_pool *pool, kn__segment *segment) {
    pool->driver->segment_free(pool->impl, segment->ptr, segment->size);
    kn__pool_reserve_add(pool, -(int64_t)segment->size);
    KN__LIST_REMOVE(&pool->segments, segment);
    kn__meta_free(&pool->meta, segment, sizeof *segment);
}

static kn_status segment_grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    size_t exact = round_up(size + (align > KN__BLOCK_GRAIN ? align : 0), KN__UNIT);
    size_t wide = round_up(pool->reserved / 8, KN__UNIT);
    if (wide < SEGMENT_MIN) wide = SEGMENT_MIN;
    if (wide > SEGMENT_MAX) wide = SEGMENT_MAX;
    if (wide < exact) wide = exact;
    if (wide > exact && wide <= headroom(pool) && segment_add(pool, stream, wide) == KN_OK) {
        return KN_OK;
    }
    return segment_add(pool, stream, exact);
}

kn_status kn__grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    if (size > RANGE_MAX) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes are more than any device has", pool->name,
                       size);
    }
    kn__device_free_read(pool);
    return pool->range.base ? range_grow(pool, stream, size, align)
                            : segment_grow(pool, stream, size, align);
}

/* Back to the device, and from one place of the range to another. */

/* The highest whole handle inside a free, finished block below `below`; NULL: none. */
static char *free_handle(const kn_pool *pool, const kn__block *block, const char *below) {
    const kn__range *range = &pool->range;
    if (block->state != KN__FREE || !kn__epoch_finished(pool, block->stream, block->epoch)) {
        return NULL;
    }
    const char *end = block->ptr + block->size;
    if (end > below) end = below;
    size_t first = round_up((size_t)(block->ptr - range->base), range->unit) / range->unit;
    for (size_t i = (size_t)(end - range->base) / range->unit; i-- > first;) {
        const kn__granule *granule = &range->granules[i];
        char *at = range->base + i * range->unit;
        if (granule->span && at + granule->span * range->unit <= end) return at;
    }
    return NULL;
}

/* Cuts [at, at + bytes) out of a free block; what is left and right of it stays free, the piece is
 * in no bin. NULL: no host memory. */
static kn__block *punch(kn_pool *pool, kn__block *block, char *at, size_t bytes) {
    kn__bins *bins = &block->stream->bins;
    kn__bins_remove(bins, block);
    if (at > block->ptr) {
        kn__block *middle = kn__block_split(pool, block, (size_t)(at - block->ptr));
        kn__bins_insert(bins, block);
        if (!middle) return NULL;
        block = middle;
    }
    if (block->size > bytes) {
        kn__block *right = kn__block_split(pool, block, bytes);
        if (!right) {
            kn__block_free(pool, block, block->stream, block->epoch);
            return NULL;
        }
        kn__bins_insert(bins, right);
    }
    return block;
}

/* The piece has its memory still. */
static void unpunch(kn_pool *pool, kn__block *piece) {
    kn__block_free(pool, piece, piece->stream, piece->epoch);
}

static kn__block *last_block(const kn_pool *pool) {
    kn__block *block = pool->range.holes;
    while (block && block->next) block = block->next;
    if (!block) block = pool->range.first;
    while (block && block->right) block = block->right;
    return block;
}

static void range_shrink(kn_pool *pool, size_t keep_bytes) {
    for (kn__block *block = last_block(pool), *left; block; block = left) {
        left = block->left;
        char *at;
        while (pool->reserved > keep_bytes &&
               (at = free_handle(pool, block, block->ptr + block->size))) {
            size_t bytes = granule_of(&pool->range, at)->span * pool->range.unit;
            bool more = at > block->ptr;
            kn__block *gone = punch(pool, block, at, bytes);
            if (!gone) return;
            if (unmap_and_destroy(pool, at) < 0) {
                unpunch(pool, gone);
                return;
            }
            hole_make(pool, gone);
            if (!more) break;
        }
    }
}

static void segments_shrink(kn_pool *pool, size_t keep_bytes) {
    for (kn__segment *segment = pool->segments, *next; segment; segment = next) {
        next = segment->next;
        kn__block *block = segment->first;
        if (pool->reserved <= keep_bytes) return;
        if (block->right || block->state != KN__FREE) continue;
        if (!kn__epoch_finished(pool, block->stream, block->epoch)) continue;
        kn__bins_remove(&block->stream->bins, block);
        kn__block_drop(pool, block);
        segment_remove(pool, segment);
    }
}

void kn__shrink(kn_pool *pool, size_t keep_bytes) {
    if (pool->range.base) range_shrink(pool, keep_bytes);
    segments_shrink(pool, keep_bytes);
}

/* Moves one handle to the start of the hole. Where the map fails the memory is given back. */
static kn_status move_handle(kn_pool *pool, kn__block *from, char *at, char *to, size_t bytes) {
    kn__granule *granule = granule_of(&pool->range, at);
    uint64_t handle = granule->handle;
    kn__block *gone = punch(pool, from, at, bytes);
    if (!gone) return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
    kn_status status = pool->driver->handle_unmap(pool->impl, at, bytes);
    if (status < 0) {
        unpunch(pool, gone);
        return status;
    }
    granule->span = 0;
    hole_make(pool, gone);
    status = pool->driver->handle_map(pool->impl, to, bytes, handle);
    if (status < 0) {
        pool->driver->handle_destroy(pool->impl, handle, bytes);
        kn__pool_reserve_add(pool, -(int64_t)bytes);
        return status;
    }
    *granule_of(&pool->range, to) =
        (kn__granule){.handle = handle, .span = (uint32_t)(bytes / pool->range.unit)};
    pool->moved += bytes;
    return KN_OK;
}

/* From where on the memory of a free block may go: the plan counts on what is before. */
static const char *spare_from(const kn_pool *pool, const kn__stream *by, const kn__plan *plan,
                              const kn__block *block) {
    bool left = block == plan->hole->left && usable_free(pool, by, block);
    bool right = block == plan->hole->right && plan->end > block->ptr;
    return left ? block->ptr + block->size : right ? plan->end : block->ptr;
}

/* One step of a walk over the free blocks that may hold whole handles; true: far enough. */
typedef bool (*visit_fn)(kn_pool *pool, kn__block *block, void *ctx);

/* By size, the smallest first: a bin's blocks are of about one size. */
static bool visit_bins(kn_pool *pool, const kn__stream *stream, visit_fn fn, void *ctx) {
    for (unsigned word = 0; word < KN__BINS / 64; word++) {
        for (uint64_t bits = stream->bins.words[word]; bits; bits &= bits - 1) {
            kn__block *block = stream->bins.head[word * 64 + (unsigned)__builtin_ctzll(bits)];
            if (block && block->size < pool->range.unit / 2) continue;
            for (kn__block *next; block; block = next) {
                next = block->next;
                if (fn(pool, block, ctx)) return true;
            }
        }
    }
    return false;
}

static void visit_large(kn_pool *pool, visit_fn fn, void *ctx) {
    bool enough = visit_bins(pool, pool->idle, fn, ctx);
    for (uint32_t i = 0; i < pool->n_streams && !enough; i++) {
        enough = visit_bins(pool, pool->streams[i], fn, ctx);
    }
}

typedef struct harvest {
    const kn__stream *by;
    const kn__plan *plan;
    size_t bytes; /* found, or moved to the start of the hole */
    kn_status status;
} harvest;

/* How many bytes of whole handles could be moved, about: handles that fit the hole alone may not
 * fit it together. */
static bool count_handles(kn_pool *pool, kn__block *block, void *ctx) {
    harvest *h = ctx;
    const char *below = block->ptr + block->size;
    const char *from = spare_from(pool, h->by, h->plan, block);
    for (char *at;
         h->bytes < h->plan->bytes && (at = free_handle(pool, block, below)) && at >= from;
         below = at) {
        size_t span = granule_of(&pool->range, at)->span * pool->range.unit;
        if (span <= h->plan->hole->size) h->bytes += span;
    }
    return h->bytes >= h->plan->bytes;
}

static bool move_handles(kn_pool *pool, kn__block *block, void *ctx) {
    harvest *h = ctx;
    const char *from = spare_from(pool, h->by, h->plan, block);
    char *at;
    while (h->bytes < h->plan->bytes && (at = free_handle(pool, block, block->ptr + block->size)) &&
           at >= from) {
        size_t span = granule_of(&pool->range, at)->span * pool->range.unit;
        bool more = at > block->ptr;
        if (span > h->plan->hole->size - h->bytes) break;
        h->status = move_handle(pool, block, at, h->plan->hole->ptr + h->bytes, span);
        if (h->status < 0) return true;
        h->bytes += span;
        if (!more) break;
    }
    return h->bytes >= h->plan->bytes;
}

bool kn__harvest(kn_pool *pool, kn__stream *stream, size_t size, size_t align, bool waits) {
    if (size > RANGE_MAX) return false;
    kn__plan plan = plan_ahead(pool, stream, size, align, waits);
    if (!plan.hole) return false;
    if (plan.bytes == 0) {
        kn__block_adopt(pool, plan.hole->left, stream);
        return true;
    }
    harvest found = {.by = stream, .plan = &plan}, moving = found;
    size_t mapped = 0;
    visit_large(pool, count_handles, &found);
    if (found.bytes < plan.bytes && plan.bytes - found.bytes > headroom(pool)) return false;
    if (make_room(pool, plan.hole->ptr, plan.bytes) < 0) return false;
    visit_large(pool, move_handles, &moving);
    size_t moved = moving.bytes;
    kn_status status = map_finish(pool, plan.hole->ptr, &moved, KN_OK);
    if (status == KN_OK && moved < plan.bytes && plan.bytes - moved <= headroom(pool)) {
        (void)map_all(pool, plan.hole->ptr + moved, plan.bytes - moved,
                      handle_size(pool, plan.bytes - moved), &mapped);
    }
    moved += mapped;
    if (moved) hole_fill(pool, stream, plan.hole, moved);
    return moved >= plan.bytes;
}

static bool add_handles(kn_pool *pool, kn__block *block, void *ctx) {
    uint64_t *bytes = ctx;
    const char *below = block->ptr + block->size;
    for (char *at; (at = free_handle(pool, block, below)); below = at) {
        *bytes += granule_of(&pool->range, at)->span * pool->range.unit;
    }
    return false;
}

uint64_t kn__idle_handles(kn_pool *pool) {
    uint64_t bytes = 0;
    visit_large(pool, add_handles, &bytes);
    return bytes;
}

void kn__memory_release(kn_pool *pool) {
    bool alive = !pool->driver->alive || pool->driver->alive(pool->impl);
    kn__range *range = &pool->range;
    const kn__block *last = last_block(pool);
    size_t mapped =
        last && last->state == KN__HOLE ? (size_t)(last->ptr - range->base) : range->size;
    for (size_t i = 0; range->base && alive && i < mapped / range->unit; i++) {
        if (!range->granules[i].span) continue;
        if (unmap_and_destroy(pool, range->base + i * range->unit) < 0) {
            kn_log_write(1, "pool %s: %s", pool->name, kn_last_error()->message);
        }
    }
    if (range->base) {
        munmap(range->granules, range->size / range->unit * sizeof *range->granules);
        if (alive) pool->driver->range_release(pool->impl, range->base, range->size);
    }
    while (pool->segments && alive) segment_remove(pool, pool->segments);
}
