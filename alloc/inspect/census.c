#include "inspect/census.h"

#include <string.h>

#include "core/arena.h"

static void hold(kn__census *c, uint32_t owner, uint64_t bytes) {
    if (!owner) return;
    int i = 0;
    while (i < c->n_owners && c->owners[i].owner != owner) i++;
    if (i == KN__OWNERS) return;
    if (i == c->n_owners) c->owners[c->n_owners++] = (kn__holding){.owner = owner};
    kn__holding h = c->owners[i];
    h.bytes += bytes;
    h.n_blocks++;
    for (; i > 0 && c->owners[i - 1].bytes < h.bytes; i--) c->owners[i] = c->owners[i - 1];
    c->owners[i] = h;
}

static void visit_slab(kn__census *c, const kn__slab *slab) {
    kn__class_use *use = &c->classes[slab->size_class];
    use->n_slabs++;
    use->n_slots += slab->n_slots;
    use->n_waiting += kn__slab_n_waiting(slab);
    for (unsigned i = 0; i < slab->n_slots; i++) {
        if (!KN__READ(slab->slots[i].use)) continue;
        use->n_live++;
        c->n_live++;
        hold(c, KN__READ(slab->slots[i].owner), slab->slot_bytes);
    }
}

static bool visit(void *ctx, kn__block *block) {
    kn__census *c = ctx;
    if (block->stream->graph) c->graph_bytes += block->size;
    if (block->state == KN__FREE) {
        c->n_free++;
        c->free_bytes += block->size;
        if (block->size > c->largest_free_bytes) c->largest_free_bytes = block->size;
    } else if (block->state == KN__LIVE) {
        c->n_live++;
        c->n_large++;
        c->large_bytes += block->size;
        hold(c, KN__READ(block->owner), block->size);
    } else if (block->state == KN__SLAB) {
        visit_slab(c, block->slab);
    }
    return false;
}

void kn__census_take(kn__census *out, kn_pool *pool) {
    memset(out, 0, sizeof *out);
    kn__arena_visit(pool, visit, out);
}
