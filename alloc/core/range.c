#include "core/range.h"

#include <sys/mman.h>

#include "core/arena.h"
#include "core/reserve.h"

enum { ROOM = 8 }; /* so much more addresses than memory: what moves leaves holes behind */
static const size_t HANDLE_MAX = (size_t)64 << 20;

/* --- holes --- */

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

void kn__hole_make(kn_pool *pool, kn__block *block) {
    KN_ASSERT(block->state == KN__FREE);
    kn__block_set(block, KN__HOLE, 0);
    if (block->stream != pool->idle) kn__block_assign(block, pool->idle);
    if (block->right && block->right->state == KN__HOLE) {
        KN__LIST_REMOVE(&pool->range.holes, block->right);
        kn__block_absorb_right(&pool->records, block);
    }
    if (block->left && block->left->state == KN__HOLE) {
        block = block->left;
        kn__block_absorb_right(&pool->records, block);
        return;
    }
    hole_link(&pool->range, block, hole_before(&pool->range, block));
}

void kn__hole_fill(kn_pool *pool, kn__stream *stream, kn__block *hole, size_t bytes) {
    KN_ASSERT(hole->state == KN__HOLE && bytes > 0 && bytes <= hole->size);
    kn__block *rest = hole->size > bytes ? kn__block_split(&pool->records, hole, bytes) : NULL;
    if (rest) hole_link(&pool->range, rest, hole);
    KN__LIST_REMOVE(&pool->range.holes, hole);
    if (kn__range_usable(pool, stream, hole->left)) kn__arena_adopt(pool, hole->left, stream);
    if (kn__range_usable(pool, stream, hole->right)) kn__arena_adopt(pool, hole->right, stream);
    kn__arena_put(pool, hole, stream, 0);
}

/* --- handles --- */

kn_status kn__range_create(kn_pool *pool, uint64_t total_bytes, uint64_t granularity_bytes) {
    kn__range *range = &pool->range;
    range->unit = granularity_bytes > KN__UNIT ? (size_t)granularity_bytes : KN__UNIT;
    size_t size = total_bytes < KN__RANGE_MAX / ROOM ? ROOM * (size_t)total_bytes : KN__RANGE_MAX;
    size = kn__round_up(size, range->unit);
    void *base = NULL;
    while (pool->driver->range_reserve(pool->impl, &base, size) < 0) {
        size = kn__round_up(size / 2, range->unit);
        if (size < total_bytes / 2 || size <= range->unit) return kn_last_error()->status;
    }
    size_t table_bytes = size / range->unit * sizeof *range->granules;
    void *table = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    kn__block *hole = kn__block_create(&pool->records, pool->idle, base, size);
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

kn_status kn__range_unmap(kn_pool *pool, char *at) {
    kn__granule *granule = kn__granule_of(&pool->range, at);
    size_t bytes = granule->span * pool->range.unit;
    KN_ASSERT(bytes > 0); /* a handle starts here */
    KN_TRY(pool->driver->handle_unmap(pool->impl, at, bytes));
    pool->driver->handle_destroy(pool->impl, granule->handle, bytes);
    granule->span = 0;
    kn__reserve_add(pool, -(int64_t)bytes);
    return KN_OK;
}

static kn_status map_one(kn_pool *pool, char *at, size_t bytes) {
    KN_ASSERT(!kn__granule_of(&pool->range, at)->span && bytes % pool->range.unit == 0);
    uint64_t handle = 0;
    if (pool->handle_flags) {
        KN_TRY(pool->driver->handle_create_as(pool->impl, &handle, bytes, pool->handle_flags));
    } else {
        KN_TRY(pool->driver->handle_create(pool->impl, &handle, bytes));
    }
    kn_status status = pool->driver->handle_map(pool->impl, at, bytes, handle);
    if (status < 0) {
        pool->driver->handle_destroy(pool->impl, handle, bytes);
        return status;
    }
    *kn__granule_of(&pool->range, at) =
        (kn__granule){.handle = handle, .span = (uint32_t)(bytes / pool->range.unit)};
    pool->n_device_allocs++;
    kn__reserve_add(pool, (int64_t)bytes);
    return KN_OK;
}

kn_status kn__range_map_finish(kn_pool *pool, char *at, size_t *bytes, kn_status status) {
    if (status == KN_OK && *bytes) status = pool->driver->range_access(pool->impl, at, *bytes);
    if (status == KN_OK) return KN_OK;
    kn_error error = *kn_last_error();
    const kn__range *range = &pool->range;
    for (size_t n = *bytes / range->unit; n-- > 0;) {
        if (!kn__granule_of(range, at + n * range->unit)->span) continue;
        if (kn__range_unmap(pool, at + n * range->unit) < 0) break;
        *bytes = n * range->unit;
    }
    return kn_fail_within_at(error.file, error.line, status, "%s", error.message);
}

/* Maps `bytes` at `at`, in handles of `handle_bytes`; all or nothing. *mapped as for
 * kn__range_map. */
static kn_status map_all(kn_pool *pool, char *at, size_t bytes, size_t handle_bytes,
                         size_t *mapped) {
    kn_status status = KN_OK;
    for (*mapped = 0; *mapped < bytes && status == KN_OK;) {
        size_t piece = bytes - *mapped < handle_bytes ? bytes - *mapped : handle_bytes;
        status = map_one(pool, at + *mapped, piece);
        if (status == KN_OK) *mapped += piece;
    }
    return kn__range_map_finish(pool, at, mapped, status);
}

/* Grows with the pool and with the request, and shrinks with the headroom: the last handles are
 * small. */
static size_t handle_size(const kn_pool *pool, size_t bytes) {
    uint64_t left = kn__pool_headroom(pool) / 16, wanted = pool->reserved / 256;
    size_t size = pool->range.unit;
    if (wanted < bytes / 64) wanted = bytes / 64;
    if (wanted > left) wanted = left;
    while (size * 2 <= HANDLE_MAX && size * 2 <= wanted) size *= 2;
    return size;
}

kn_status kn__range_map(kn_pool *pool, char *at, size_t bytes, size_t *mapped) {
    return map_all(pool, at, bytes, handle_size(pool, bytes), mapped);
}

kn_status kn__range_room(kn_pool *pool, const char *at, size_t bytes) {
    KN_TRY(kn__pagemap_cover(&pool->pages, at, bytes + HANDLE_MAX, pool->name));
    if (kn__records_room(&pool->records)) return KN_OK;
    return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
}

/* --- growth --- */

bool kn__range_usable(const kn_pool *pool, const kn__stream *by, const kn__block *block) {
    return block && block->state == KN__FREE && kn__epoch_usable(pool, by, block);
}

/* Or after a wait on the device. */
static bool claimable(const kn_pool *pool, const kn__stream *by, const kn__block *block,
                      bool waits) {
    if (kn__range_usable(pool, by, block)) return true;
    return waits && block && block->state == KN__FREE && !block->stream->graph;
}

kn__fit kn__range_plan(const kn_pool *pool, const kn__stream *by, size_t size, size_t align,
                       bool waits) {
    kn__fit best = {.bytes = SIZE_MAX};
    for (kn__block *hole = pool->range.holes; hole; hole = hole->next) {
        const kn__block *left = hole->left, *right = hole->right;
        uintptr_t start = (uintptr_t)(claimable(pool, by, left, waits) ? left->ptr : hole->ptr);
        uintptr_t need_end = kn__round_up(start, align) + size, end = (uintptr_t)hole->ptr;
        size_t bytes = need_end > end ? kn__round_up(need_end - end, pool->range.unit) : 0;
        if (bytes > hole->size) {
            size_t beyond = claimable(pool, by, right, waits) ? right->size : 0;
            if (need_end - end > hole->size + beyond) continue;
            bytes = hole->size;
        }
        if (bytes < best.bytes) best = (kn__fit){hole, bytes, (const char *)need_end};
    }
    return best;
}

/* In whole handles of the size that fits the pool; exactly where that is too much, or the request
 * takes many handles anyway. */
static kn_status map_plan(kn_pool *pool, const kn__fit *plan, size_t *mapped) {
    size_t handle = handle_size(pool, plan->bytes), rounded = kn__round_up(plan->bytes, handle);
    if (plan->bytes > kn__pool_headroom(pool)) return kn__over_limit(pool, plan->bytes);
    if (rounded > plan->bytes && plan->bytes < 16 * handle && rounded <= plan->hole->size &&
        rounded <= kn__pool_headroom(pool)) {
        kn_status status = map_all(pool, plan->hole->ptr, rounded, handle, mapped);
        if (status == KN_OK || *mapped) return status;
    }
    return map_all(pool, plan->hole->ptr, plan->bytes, handle, mapped);
}

kn_status kn__range_grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align) {
    kn__fit plan = kn__range_plan(pool, stream, size, align, false);
    if (!plan.hole) {
        return KN_FAIL(KN_ERR_OOM, "pool %s: no room for %zu bytes in its range of %zu", pool->name,
                       size, pool->range.size);
    }
    if (plan.bytes == 0) { /* the block before the hole is enough */
        kn__arena_adopt(pool, plan.hole->left, stream);
        return KN_OK;
    }
    size_t mapped = 0;
    KN_TRY(kn__range_room(pool, plan.hole->ptr, plan.bytes));
    kn_status status = map_plan(pool, &plan, &mapped);
    if (mapped) kn__hole_fill(pool, stream, plan.hole, mapped);
    return status;
}

kn__block *kn__range_last(const kn_pool *pool) {
    kn__block *block = pool->range.holes;
    while (block && block->next) block = block->next;
    if (!block) block = pool->range.first;
    while (block && block->right) block = block->right;
    return block;
}

void kn__range_destroy(kn_pool *pool, bool alive) {
    kn__range *range = &pool->range;
    if (!range->base) return;
    const kn__block *last = kn__range_last(pool);
    size_t mapped =
        last && last->state == KN__HOLE ? (size_t)(last->ptr - range->base) : range->size;
    for (size_t i = 0; alive && i < mapped / range->unit; i++) {
        if (!range->granules[i].span) continue;
        if (kn__range_unmap(pool, range->base + i * range->unit) < 0) {
            kn_log_write(1, "pool %s: %s", pool->name, kn_last_error()->message);
        }
    }
    munmap(range->granules, range->size / range->unit * sizeof *range->granules);
    if (alive) pool->driver->range_release(pool->impl, range->base, range->size);
}
