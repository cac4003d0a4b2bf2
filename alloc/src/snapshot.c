/* The snapshot: every segment and block of a pool, as JSON. */
#include "census.h"
#include "observe.h"

#define READ(counter) atomic_load_explicit(&(counter), memory_order_relaxed)

static void write_owner(kn__writer *w, uint32_t owner) {
    if (!owner) return;
    char name[256];
    kn__owner_name(owner, name, sizeof name);
    kn__write_text(w, ",\"owner\":");
    kn__write_json_string(w, name);
}

static void write_tag(kn__writer *w, unsigned tag) {
    if (!tag) return;
    kn__write_text(w, ",\"tag\":");
    kn__write_json_string(w, kn__tag_name(tag));
}

static void write_slots(kn__writer *w, const kn__slab *slab) {
    const char *comma = "";
    kn__write(w, ",\"slot_bytes\":%u,\"slots\":%u,\"live\":[", slab->slot_bytes, slab->n_slots);
    for (unsigned i = 0; i < slab->n_slots; i++) {
        uint32_t use = READ(slab->slots[i].use), requested = kn__slot_requested(use);
        if (!requested) continue;
        kn__write(w, "%s{\"slot\":%u,\"requested\":%u", comma, i, requested);
        write_owner(w, READ(slab->slots[i].owner));
        write_tag(w, kn__slot_tag(use));
        kn__write_text(w, "}");
        comma = ",";
    }
    kn__write_text(w, "]");
}

static void write_block(kn__writer *w, const kn_pool *pool, const kn__block *block) {
    static const char *const STATES[] = {"", "free", "live", "slab", "waiting", "hole"};
    kn__write(w, "{\"address\":%llu,\"size\":%zu,\"state\":\"%s\"",
              (unsigned long long)(uintptr_t)block->ptr, block->size, STATES[block->state]);
    if (block->stream != pool->idle) {
        kn__write(w, ",\"stream\":%llu", (unsigned long long)(uintptr_t)block->stream->handle);
    }
    if (block->stream->graph) kn__write_text(w, ",\"graph\":true");
    if (block->state == KN__LIVE) {
        kn__write(w, ",\"requested\":%zu", block->size - block->slack);
        write_owner(w, READ(block->owner));
    }
    if (block->state == KN__LIVE) write_tag(w, block->tag);
    if (block->state == KN__SLAB) write_slots(w, block->slab);
    kn__write_text(w, "}");
}

static void write_segment(kn__writer *w, const kn_pool *pool, const char *kind, const char *ptr,
                          size_t size, const kn__block *first, bool comma) {
    kn__write(w, "%s\n{\"kind\":\"%s\",\"address\":%llu,\"size\":%zu,\"blocks\":[",
              comma ? "," : "", kind, (unsigned long long)(uintptr_t)ptr, size);
    for (const kn__block *block = first; block; block = block->right) {
        kn__write_text(w, block == first ? "\n" : ",\n");
        write_block(w, pool, block);
    }
    kn__write_text(w, "]}");
}

static void write_pool(kn__writer *w, kn_pool *pool) {
    kn_pool_stats stats;
    kn__pool_stats(&stats, pool);
    kn__write_text(w, "{");
    kn__pool_write_json_head(w, pool);
    kn__stats_write_json(w, &stats);
    kn__write_text(w, ",\n");
    kn__ladder_write_json(w, pool);
    if (pool->last_oom->status < 0) {
        kn__write_text(w, ",\n\"last_oom\":");
        kn__oom_write_json(w, pool, pool->last_oom);
    }
    kn__write_text(w, ",\n\"segments\":[");
    const kn__range *range = &pool->range;
    if (range->base) {
        write_segment(w, pool, "range", range->base, range->size, range->first, false);
    }
    for (const kn__segment *segment = pool->segments; segment; segment = segment->next) {
        write_segment(w, pool, "segment", segment->ptr, segment->size, segment->first,
                      range->base || segment != pool->segments);
    }
    kn__write_text(w, "]}\n");
}

kn_status kn__pool_snapshot(kn_pool *pool, const char *path, bool append, const char *function) {
    char buffer[KN__WRITER_BYTES];
    kn__writer w;
    KN_TRY(kn__writer_open(&w, path, append, function, buffer, sizeof buffer));
    kn__pool_lock(pool);
    write_pool(&w, pool);
    kn__pool_unlock(pool);
    return kn__writer_close(&w, path, function);
}

kn_status kn_pool_snapshot(kn_pool *pool, const char *path) {
    return kn__pool_snapshot(pool, path, false, "kn_pool_snapshot");
}
