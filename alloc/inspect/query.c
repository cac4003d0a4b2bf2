/* Queries by address, kn_block_find; the walk over all parts, kn_pool_visit. */
#include <string.h>

#include "cancel.h"
#include "core/arena.h"
#include "inspect/census.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

static void describe(kn_block_info *out, const kn__block *block, char *ptr, size_t size,
                     size_t requested, unsigned tag) {
    *out = (kn_block_info){.ptr = ptr,
                           .size_bytes = size,
                           .requested_bytes = requested,
                           .stream = block->stream->handle,
                           .tag = tag ? kn__tag_name(tag) : "",
                           .graph = block->stream->graph != NULL};
}

static bool find_slot(kn_block_info *out, const kn__slab *slab, const char *ptr) {
    size_t i = (size_t)(ptr - slab->base) / slab->slot_bytes;
    uint32_t use = i < slab->n_slots ? KN__READ(slab->slots[i].use) : 0;
    if (!use) return false;
    describe(out, slab->block, slab->base + i * slab->slot_bytes, slab->slot_bytes,
             kn__slot_requested(use), kn__slot_tag(use));
    return true;
}

typedef struct search {
    const char *ptr;
    kn__block *found;
} search;

static bool contains(void *ctx, kn__block *block) {
    search *s = ctx;
    bool inside = s->ptr >= block->ptr && s->ptr < block->ptr + block->size;
    if (inside && block->state == KN__LIVE) s->found = block;
    return inside;
}

static bool find_locked(kn_block_info *out, kn_pool *pool, const char *ptr) {
    uintptr_t page = kn__page_get(&pool->pages, ptr);
    if (page & KN__PAGE_IS_SLAB) {
        return find_slot(out, (const kn__slab *)(page - KN__PAGE_IS_SLAB), ptr);
    }
    search s = {.ptr = ptr, .found = (kn__block *)page};
    if (!kn__block_is_live(s.found, ptr)) {
        s.found = NULL;
        kn__arena_visit(pool, contains, &s);
    }
    if (!s.found) return false;
    describe(out, s.found, s.found->ptr, s.found->size, s.found->size - s.found->slack,
             s.found->tag);
    return true;
}

bool kn_block_find(kn_block_info *out, size_t out_bytes, kn_pool *pool, const void *ptr) {
    kn_block_info info;
    if (!ptr) return false;
    kn__pool_lock(pool);
    bool found = find_locked(&info, pool, ptr);
    kn__pool_unlock(pool);
    if (!found) return false;
    memset(out, 0, out_bytes);
    memcpy(out, &info, out_bytes < sizeof info ? out_bytes : sizeof info);
    return true;
}

/* --- the walk --- */

typedef struct visit {
    const kn_pool *pool;
    kn_pool_visit_fn fn;
    void *ctx;
} visit;

static kn_pool_part part_of(const visit *v, const kn__block *block, kn_part_kind kind) {
    return (kn_pool_part){.kind = kind,
                          .graph = block->stream->graph != NULL,
                          .ptr = block->ptr,
                          .size_bytes = block->size,
                          .stream = block->stream == v->pool->idle ? NULL : block->stream->handle,
                          .tag = ""};
}

static bool visit_slab(const visit *v, const kn__slab *slab) {
    bool ended = false;
    for (uint32_t i = 0; i < slab->n_slots && !ended; i++) {
        uint32_t use = KN__READ(slab->slots[i].use);
        kn_pool_part part = part_of(v, slab->block, use ? KN_PART_LIVE : KN_PART_FREE);
        part.ptr = slab->base + (size_t)i * slab->slot_bytes;
        part.size_bytes = slab->slot_bytes;
        if (!use && kn__slab_waits(slab, i)) part.kind = KN_PART_WAITING;
        if (use) {
            part.requested = kn__slot_requested(use);
            part.tag = kn__slot_tag(use) ? kn__tag_name(kn__slot_tag(use)) : "";
        }
        ended = v->fn(v->ctx, &part);
    }
    return ended;
}

static bool visit_block(const visit *v, const kn__block *block) {
    if (block->state == KN__SLAB) return visit_slab(v, block->slab);
    kn_pool_part part = part_of(v, block,
                                block->state == KN__LIVE   ? KN_PART_LIVE
                                : block->state == KN__FREE ? KN_PART_FREE
                                                           : KN_PART_WAITING);
    if (block->state == KN__LIVE) {
        part.requested = block->size - block->slack;
        part.tag = block->tag ? kn__tag_name(block->tag) : "";
    }
    return v->fn(v->ctx, &part);
}

/* Blocks side by side, up to a hole, as one segment. *next: what follows. */
static bool visit_run(const visit *v, const kn__block *first, const kn__block **next) {
    kn_pool_part segment = {.kind = KN_PART_SEGMENT, .ptr = first->ptr, .tag = ""};
    const kn__block *end = first;
    for (; end && end->state != KN__HOLE; end = end->right) segment.size_bytes += end->size;
    *next = end;
    bool ended = v->fn(v->ctx, &segment);
    for (; first != end && !ended; first = first->right) ended = visit_block(v, first);
    return ended;
}

static void visit_locked(const visit *v) {
    const kn__block *block = v->pool->range.first;
    bool ended = false;
    while (block && !ended) {
        if (block->state == KN__HOLE) {
            block = block->right;
        } else {
            ended = visit_run(v, block, &block);
        }
    }
    for (const kn__segment *s = v->pool->segments; s && !ended; s = s->next) {
        ended = visit_run(v, s->first, &block);
    }
}

void kn_pool_visit(kn_pool *pool, kn_pool_visit_fn fn, void *ctx) {
    visit v = {.pool = pool, .fn = fn, .ctx = ctx};
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    visit_locked(&v);
    kn__pool_unlock(pool);
}
