#include "core/grow.h"

#include "core/arena.h"

/* The highest whole handle inside a free, finished block below `below`; NULL: none. */
static char *free_handle(const kn_pool *pool, const kn__block *block, const char *below) {
    const kn__range *range = &pool->range;
    if (block->state != KN__FREE || !kn__epoch_finished(pool, block->stream, block->epoch)) {
        return NULL;
    }
    const char *end = block->ptr + block->size;
    if (end > below) end = below;
    size_t first = kn__round_up((size_t)(block->ptr - range->base), range->unit) / range->unit;
    for (size_t i = (size_t)(end - range->base) / range->unit; i-- > first;) {
        const kn__granule *granule = &range->granules[i];
        char *at = range->base + i * range->unit;
        if (granule->span && at + granule->span * range->unit <= end) return at;
    }
    return NULL;
}

/* Cuts [at, at + bytes) out of a free block; its neighbours stay free, the piece is in no bin.
 * NULL: no host memory. */
static kn__block *punch(kn_pool *pool, kn__block *block, char *at, size_t bytes) {
    KN_ASSERT(block->state == KN__FREE && at >= block->ptr);
    KN_ASSERT(at + bytes <= block->ptr + block->size);
    kn__bins *bins = &block->stream->bins;
    kn__bins_remove(bins, block);
    if (at > block->ptr) {
        kn__block *middle = kn__block_split(&pool->records, block, (size_t)(at - block->ptr));
        kn__bins_insert(bins, block);
        if (!middle) return NULL;
        block = middle;
    }
    if (block->size > bytes) {
        kn__block *right = kn__block_split(&pool->records, block, bytes);
        if (!right) {
            kn__arena_put(pool, block, block->stream, block->epoch);
            return NULL;
        }
        kn__bins_insert(bins, right);
    }
    return block;
}

/* The piece has its memory still. */
static void unpunch(kn_pool *pool, kn__block *piece) {
    kn__arena_put(pool, piece, piece->stream, piece->epoch);
}

void kn__range_shrink(kn_pool *pool, size_t keep_bytes) {
    for (kn__block *block = kn__range_last(pool), *left; block; block = left) {
        left = block->left;
        char *at;
        while (pool->reserved > keep_bytes &&
               (at = free_handle(pool, block, block->ptr + block->size))) {
            size_t bytes = kn__handle_bytes(&pool->range, at);
            bool more = at > block->ptr;
            kn__block *gone = punch(pool, block, at, bytes);
            if (!gone) return;
            if (kn__range_unmap(pool, at) < 0) {
                unpunch(pool, gone);
                return;
            }
            kn__hole_make(pool, gone);
            if (!more) break;
        }
    }
}

/* Moves one handle to the start of the hole. Where the map fails the memory is given back. */
static kn_status move_handle(kn_pool *pool, kn__block *from, char *at, char *to, size_t bytes) {
    kn__granule *granule = kn__granule_of(&pool->range, at);
    uint64_t handle = granule->handle;
    kn__block *gone = punch(pool, from, at, bytes);
    if (!gone) return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
    kn_status status = pool->driver->handle_unmap(pool->impl, at, bytes);
    if (status < 0) {
        unpunch(pool, gone);
        return status;
    }
    granule->span = 0;
    kn__hole_make(pool, gone);
    status = pool->driver->handle_map(pool->impl, to, bytes, handle);
    if (status < 0) {
        pool->driver->handle_destroy(pool->impl, handle, bytes);
        kn__reserve_add(pool, -(int64_t)bytes);
        return status;
    }
    *kn__granule_of(&pool->range, to) =
        (kn__granule){.handle = handle, .span = (uint32_t)(bytes / pool->range.unit)};
    pool->moved += bytes;
    return KN_OK;
}

/* From where on the memory of a free block may go: the plan counts on the bytes before. */
static const char *spare_from(const kn_pool *pool, const kn__stream *by, const kn__fit *plan,
                              const kn__block *block) {
    bool left = block == plan->hole->left && kn__range_usable(pool, by, block);
    bool right = block == plan->hole->right && plan->end > block->ptr;
    return left ? block->ptr + block->size : right ? plan->end : block->ptr;
}

/* A walk over the free blocks that may hold whole handles. */
static void visit_large(kn_pool *pool, kn__block_fn fn, void *ctx) {
    size_t least = pool->range.unit / 2;
    bool enough = kn__bins_visit(&pool->idle->bins, least, fn, ctx);
    for (uint32_t i = 0; i < pool->n_streams && !enough; i++) {
        enough = kn__bins_visit(&pool->streams[i]->bins, least, fn, ctx);
    }
}

typedef struct harvest {
    kn_pool *pool;
    const kn__stream *by;
    const kn__fit *plan;
    size_t bytes; /* found, or moved to the start of the hole */
    kn_status status;
} harvest;

/* How many bytes of whole handles could be moved, about: handles that fit the hole alone may not
 * fit it together. */
static bool count_handles(void *ctx, kn__block *block) {
    harvest *h = ctx;
    const kn_pool *pool = h->pool;
    const char *below = block->ptr + block->size;
    const char *from = spare_from(pool, h->by, h->plan, block);
    for (char *at;
         h->bytes < h->plan->bytes && (at = free_handle(pool, block, below)) && at >= from;
         below = at) {
        size_t span = kn__handle_bytes(&pool->range, at);
        if (span <= h->plan->hole->size) h->bytes += span;
    }
    return h->bytes >= h->plan->bytes;
}

static bool move_handles(void *ctx, kn__block *block) {
    harvest *h = ctx;
    kn_pool *pool = h->pool;
    const char *from = spare_from(pool, h->by, h->plan, block);
    char *at;
    while (h->bytes < h->plan->bytes && (at = free_handle(pool, block, block->ptr + block->size)) &&
           at >= from) {
        size_t span = kn__handle_bytes(&pool->range, at);
        bool more = at > block->ptr;
        if (span > h->plan->hole->size - h->bytes) break;
        h->status = move_handle(pool, block, at, h->plan->hole->ptr + h->bytes, span);
        if (h->status < 0) return true;
        h->bytes += span;
        if (!more) break;
    }
    return h->bytes >= h->plan->bytes;
}

/* For what the plan counts on; nothing where no wait is needed. */
static kn_status plan_wait(kn_pool *pool, kn__stream *by, const kn__fit *plan) {
    const kn__block *left = plan->hole->left, *right = plan->hole->right;
    if (left && left->state == KN__FREE) {
        KN_TRY(kn__epoch_wait(pool, by, left->stream, left->epoch));
    }
    if (plan->bytes < plan->hole->size || !right || right->state != KN__FREE) return KN_OK;
    return kn__epoch_wait(pool, by, right->stream, right->epoch);
}

static kn__fit plan_ahead(kn_pool *pool, kn__stream *by, size_t size, size_t align, bool waits) {
    kn__fit plan = kn__range_plan(pool, by, size, align, waits);
    if (!waits || !plan.hole || plan_wait(pool, by, &plan) == KN_OK) return plan;
    return kn__range_plan(pool, by, size, align, false);
}

bool kn__harvest(kn_pool *pool, kn__stream *stream, size_t size, size_t align, bool waits) {
    kn__fit plan = plan_ahead(pool, stream, size, align, waits);
    if (!plan.hole) return false;
    if (plan.bytes == 0) {
        kn__arena_adopt(pool, plan.hole->left, stream);
        return true;
    }
    harvest found = {.pool = pool, .by = stream, .plan = &plan}, moving = found;
    size_t mapped = 0;
    visit_large(pool, count_handles, &found);
    if (found.bytes < plan.bytes && plan.bytes - found.bytes > kn__pool_headroom(pool)) {
        return false;
    }
    if (kn__range_room(pool, plan.hole->ptr, plan.bytes) < 0) return false;
    visit_large(pool, move_handles, &moving);
    size_t moved = moving.bytes;
    kn_status status = kn__range_map_finish(pool, plan.hole->ptr, &moved, KN_OK);
    if (status == KN_OK && moved < plan.bytes && plan.bytes - moved <= kn__pool_headroom(pool)) {
        (void)kn__range_map(pool, plan.hole->ptr + moved, plan.bytes - moved, &mapped);
    }
    moved += mapped;
    if (moved) kn__hole_fill(pool, stream, plan.hole, moved);
    return moved >= plan.bytes;
}

typedef struct idle {
    const kn_pool *pool;
    uint64_t bytes;
} idle;

static bool add_handles(void *ctx, kn__block *block) {
    idle *i = ctx;
    const char *below = block->ptr + block->size;
    for (char *at; (at = free_handle(i->pool, block, below)); below = at) {
        i->bytes += kn__handle_bytes(&i->pool->range, at);
    }
    return false;
}

uint64_t kn__idle_handles(kn_pool *pool) {
    idle i = {.pool = pool};
    visit_large(pool, add_handles, &i);
    return i.bytes;
}
