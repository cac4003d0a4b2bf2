/* What a pool says of itself: counters and the snapshot. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "observe.h"
#include "pool_types.h"

#define READ(counter) atomic_load_explicit(&(counter), memory_order_relaxed)

static uint64_t at_least_zero(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

int64_t kn__pool_live(const kn_pool *pool) {
    int64_t live = pool->live;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        live += READ(cache->live);
    }
    return live > 0 ? live : 0;
}

void kn__pool_stats(kn_pool_stats *out, kn_pool *pool) {
    int64_t live = pool->live, high = pool->live, requested = pool->requested;
    uint64_t n_allocs = pool->n_allocs;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        live += READ(cache->live);
        high += READ(cache->live_max);
        requested += READ(cache->requested);
        n_allocs += READ(cache->n_allocs);
    }
    *out = (kn_pool_stats){.live_bytes = at_least_zero(live),
                           .live_bytes_max = at_least_zero(high),
                           .requested_bytes = at_least_zero(requested),
                           .reserved_bytes = pool->reserved,
                           .reserved_bytes_max = pool->reserved_max,
                           .n_allocs = n_allocs,
                           .n_device_allocs = pool->n_device_allocs,
                           .n_syncs = pool->n_syncs,
                           .n_events = pool->n_events,
                           .n_queries = pool->n_queries,
                           .n_ooms = pool->n_ooms,
                           .n_misuses = pool->n_misuses,
                           .waiting_bytes = pool->waiting_bytes,
                           .moved_bytes = pool->moved,
                           .metadata_bytes = pool->meta.total_bytes};
    if (pool->live_max > high) out->live_bytes_max = at_least_zero(pool->live_max);
}

void kn_pool_stats_read(kn_pool_stats *out, size_t out_bytes, const kn_pool *pool) {
    kn_pool *p = (kn_pool *)(uintptr_t)pool; /* locked, not changed */
    kn_pool_stats stats;
    kn__pool_lock(p);
    kn__pool_stats(&stats, p);
    kn__pool_unlock(p);
    memset(out, 0, out_bytes);
    memcpy(out, &stats, out_bytes < sizeof stats ? out_bytes : sizeof stats);
}

/* Snapshot. */

static void write_string(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20) {
            fprintf(file, "\\u%04x", *c);
        } else {
            fputc(*c, file);
        }
    }
    fputc('"', file);
}

static void write_owner(FILE *file, uint32_t owner) {
    if (!owner) return;
    char name[256];
    kn__owner_name(owner, name, sizeof name);
    fputs(",\"owner\":", file);
    write_string(file, name);
}

static void write_slots(FILE *file, const kn__slab *slab) {
    const char *comma = "";
    fprintf(file, ",\"slot_bytes\":%u,\"slots\":%u,\"live\":[", slab->slot_bytes, slab->n_slots);
    for (unsigned i = 0; i < slab->n_slots; i++) {
        uint32_t requested = READ(slab->slots[i].requested) & ~KN__SLOT_SHARED;
        if (!requested) continue;
        fprintf(file, "%s{\"slot\":%u,\"requested\":%u", comma, i, requested);
        write_owner(file, READ(slab->slots[i].owner));
        fputc('}', file);
        comma = ",";
    }
    fputc(']', file);
}

static void write_block(FILE *file, const kn_pool *pool, const kn__block *block) {
    static const char *const STATES[] = {"", "free", "live", "slab", "waiting", "hole"};
    fprintf(file, "{\"address\":%llu,\"size\":%zu,\"state\":\"%s\"",
            (unsigned long long)(uintptr_t)block->ptr, block->size, STATES[block->state]);
    if (block->stream != pool->idle) {
        fprintf(file, ",\"stream\":%llu", (unsigned long long)(uintptr_t)block->stream->handle);
    }
    if (block->state == KN__LIVE) {
        fprintf(file, ",\"requested\":%zu", block->size - block->slack);
        write_owner(file, READ(block->owner));
    }
    if (block->state == KN__SLAB) write_slots(file, block->slab);
    fputc('}', file);
}

static void write_segment(FILE *file, const kn_pool *pool, const char *kind, const char *ptr,
                          size_t size, const kn__block *first, bool comma) {
    fprintf(file, "%s\n{\"kind\":\"%s\",\"address\":%llu,\"size\":%zu,\"blocks\":[",
            comma ? "," : "", kind, (unsigned long long)(uintptr_t)ptr, size);
    for (const kn__block *block = first; block; block = block->right) {
        fputs(block == first ? "\n" : ",\n", file);
        write_block(file, pool, block);
    }
    fputs("]}", file);
}

static void write_ladder(FILE *file, const kn_pool *pool) {
    fputs("\"ladder\":[", file);
    for (int i = 0; i < KN__RUNGS; i++) {
        const kn__rung *rung = &pool->rungs[i];
        fprintf(file, "%s\n{\"rung\":\"%s\",\"tried\":%llu,\"served\":%llu,\"ns\":%llu}",
                i ? "," : "", kn__rung_name(i), (unsigned long long)rung->n_tried,
                (unsigned long long)rung->n_served, (unsigned long long)rung->ns);
    }
    fputs("],", file);
}

static void write_pool(FILE *file, kn_pool *pool) {
    kn_pool_stats s;
    kn__kept_release(pool);
    kn__pool_stats(&s, pool);
    fputs("{\"version\":1,\"pool\":", file);
    write_string(file, pool->name);
    fputs(",\"device\":", file);
    write_string(file, kn_device_name(pool->device));
    fprintf(file,
            ",\"live_bytes\":%llu,\"live_bytes_max\":%llu,\"requested_bytes\":%llu,"
            "\"reserved_bytes\":%llu,\"reserved_bytes_max\":%llu,\"waiting_bytes\":%zu,",
            (unsigned long long)s.live_bytes, (unsigned long long)s.live_bytes_max,
            (unsigned long long)s.requested_bytes, (unsigned long long)s.reserved_bytes,
            (unsigned long long)s.reserved_bytes_max, pool->waiting_bytes);
    write_ladder(file, pool);
    fputs("\"segments\":[", file);
    const kn__range *range = &pool->range;
    if (range->base) {
        write_segment(file, pool, "range", range->base, range->size, range->first, false);
    }
    for (const kn__segment *segment = pool->segments; segment; segment = segment->next) {
        write_segment(file, pool, "segment", segment->ptr, segment->size, segment->first,
                      range->base || segment != pool->segments);
    }
    fputs("]}\n", file);
}

kn_status kn_pool_snapshot(kn_pool *pool, const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) {
        return KN_FAIL(KN_ERR_IO, "kn_pool_snapshot: %s can't be written: %s", path,
                       strerror(errno));
    }
    kn__pool_lock(pool);
    errno = 0;
    write_pool(file, pool);
    int error = ferror(file) ? (errno ? errno : EIO) : 0; /* the first failure says why */
    kn__pool_unlock(pool);
    if (fclose(file) != 0 && !error) error = errno;
    if (!error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "kn_pool_snapshot: %s can't be written whole: %s", path,
                   strerror(error));
}
