/* The snapshot: every segment and block of a pool, as JSON. */
#include "inspect/census.h"
#include "inspect/stacks.h"
#include "pool/fault.h"

static void write_live(kn__writer *w, size_t requested, uint32_t owner, unsigned tag,
                       uint32_t stack) {
    char name[256];
    kn__add(w, "requested", KN__BYTES, requested);
    if (owner) {
        kn__owner_name(owner, name, sizeof name);
        kn__add_text(w, "owner", 0, name);
    }
    if (tag) kn__add_text(w, "tag", 0, kn__tag_name(tag));
    if (stack) kn__add(w, "stack", KN__COUNT, stack);
}

static void write_slots(kn__writer *w, const kn_pool *pool, const kn__slab *slab) {
    kn__add(w, "slot_bytes", KN__BYTES, slab->slot_bytes);
    kn__add(w, "slots", KN__COUNT, slab->n_slots);
    kn__open(w, "live", "[");
    for (unsigned i = 0; i < slab->n_slots; i++) {
        uint32_t use = KN__READ(slab->slots[i].use), requested = kn__slot_requested(use);
        if (!requested) continue;
        kn__open(w, NULL, "{");
        kn__add(w, "slot", KN__COUNT, i);
        write_live(w, requested, KN__READ(slab->slots[i].owner), kn__slot_tag(use),
                   kn__stack_of(pool, slab->base + (size_t)i * slab->slot_bytes));
        kn__close(w, "}");
    }
    kn__close(w, "]");
}

static void write_block(kn__writer *w, const kn_pool *pool, const kn__block *block) {
    static const char *const STATES[] = {"", "free", "live", "slab", "waiting", "hole"};
    kn__open(w, NULL, "\n{");
    kn__add(w, "address", KN__COUNT, (uintptr_t)block->ptr);
    kn__add(w, "size", KN__BYTES, block->size);
    kn__add_text(w, "state", 0, STATES[block->state]);
    if (block->stream != pool->idle) {
        kn__add(w, "stream", KN__COUNT, (uintptr_t)block->stream->handle);
    }
    if (block->stream->graph) kn__add_flag(w, "graph", true);
    if (block->state == KN__LIVE) {
        write_live(w, block->size - block->slack, KN__READ(block->owner), block->tag,
                   kn__stack_of(pool, block->ptr));
    } else if (block->state == KN__SLAB) {
        write_slots(w, pool, block->slab);
    }
    kn__close(w, "}");
}

static void write_segment(kn__writer *w, const kn_pool *pool, const char *kind,
                          const kn__segment *segment) {
    kn__open(w, NULL, "\n{");
    kn__add_text(w, "kind", 0, kind);
    kn__add(w, "address", KN__COUNT, (uintptr_t)segment->ptr);
    kn__add(w, "size", KN__BYTES, segment->size);
    kn__open(w, "blocks", "[");
    for (const kn__block *b = segment->first; b; b = b->right) write_block(w, pool, b);
    kn__close(w, "]}");
}

static void write_blocks(kn__writer *w, kn_pool *pool) {
    const kn__range *r = &pool->range;
    const kn__segment range = {.ptr = r->base, .size = r->size, .first = r->first};
    if (pool->last_oom->request.status < 0) kn__oom_write(w, "last_oom", pool, pool->last_oom);
    kn__open(w, "segments", "[");
    if (r->base) write_segment(w, pool, "range", &range);
    for (const kn__segment *s = pool->segments; s; s = s->next) {
        write_segment(w, pool, "segment", s);
    }
    kn__close(w, "]");
    kn__stacks_write(w, pool);
}

kn_status kn__pool_snapshot(kn_pool *pool, const char *path, bool append, const char *function) {
    return kn__pool_save(pool, true, write_blocks, path, append, function);
}

kn_status kn_pool_snapshot(kn_pool *pool, const char *path) {
    KN_TRY(kn__pool_given(pool, __func__));
    return kn__pool_snapshot(pool, path, false, "kn_pool_snapshot");
}
