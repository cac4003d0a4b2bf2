/* What a pool says of itself: counters, by name, as a table and as JSON. */
#include <string.h>

#include "census.h"
#include "devices.h"
#include "observe.h"

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
                           .cached_bytes = kn__caches_bytes(pool),
                           .waiting_bytes = pool->waiting_bytes,
                           .metadata_bytes = pool->meta.total_bytes,
                           .moved_bytes = pool->moved,
                           .decayed_bytes = pool->decayed,
                           .n_allocs = n_allocs,
                           .n_device_allocs = pool->n_device_allocs,
                           .n_device_frees = pool->n_device_frees,
                           .n_syncs = pool->n_syncs,
                           .n_events = pool->n_events,
                           .n_queries = pool->n_queries,
                           .n_ooms = pool->n_ooms,
                           .n_misuses = pool->n_misuses};
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

/* ---- the list ---- */

typedef enum column_of { NOW, PEAK, TOTAL, COLUMNS } column_of;
typedef enum unit_of { BYTES, COUNT } unit_of;

typedef struct counter {
    const char *name, *row, *text;
    column_of column;
    unit_of unit;
} counter;

/* As the members of kn_pool_stats, which are all uint64_t. */
static const counter COUNTERS[] = {
#define X(name, row, column, unit, text) {#name, row, text, column, unit},
    KN_POOL_STATS_LIST(X)
#undef X
};
enum { N_COUNTERS = sizeof COUNTERS / sizeof *COUNTERS };
_Static_assert(sizeof(kn_pool_stats) == N_COUNTERS * sizeof(uint64_t), "one list of counters");

static uint64_t value_of(const kn_pool_stats *stats, int i) {
    uint64_t value;
    memcpy(&value, (const char *)stats + (size_t)i * sizeof value, sizeof value);
    return value;
}

kn_status kn_pool_stat(uint64_t *out, const kn_pool *pool, const char *name) {
    int i = 0;
    while (i < N_COUNTERS && strcmp(COUNTERS[i].name, name) != 0) i++;
    if (i == N_COUNTERS) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_stat: no counter is named \"%.64s\"", name);
    }
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    *out = value_of(&stats, i);
    return KN_OK;
}

/* ---- the table ---- */

static void write_cell(kn__writer *w, const char *text) { kn__write(w, " %12s", text); }

static void write_value(kn__writer *w, unit_of unit, uint64_t value) {
    char text[32];
    kn__writer cell = kn__writer_of(text, sizeof text);
    if (unit == BYTES) {
        kn__write_bytes(&cell, value);
    } else {
        kn__write(&cell, "%llu", (unsigned long long)value);
    }
    write_cell(w, text);
}

/* Counters of one row stand together in the list, in the columns' order. */
static void write_counters(kn__writer *w, const kn_pool_stats *stats) {
    kn__write(w, "  %-18s %12s %12s %12s\n", "", "now", "peak", "total");
    for (int i = 0; i < N_COUNTERS;) {
        const counter *first = &COUNTERS[i];
        kn__write(w, "  %-18s", first->row);
        for (int at = 0; at < COLUMNS; at++) {
            const counter *c = &COUNTERS[i];
            if (i < N_COUNTERS && strcmp(c->row, first->row) == 0 && (int)c->column == at) {
                write_value(w, c->unit, value_of(stats, i++));
            } else {
                write_cell(w, "");
            }
        }
        kn__write(w, "  %s\n", first->text);
    }
}

static void write_blocks(kn__writer *w, uint64_t n) {
    kn__write(w, n == 1 ? "%llu block" : "%llu blocks", (unsigned long long)n);
}

static void write_classes(kn__writer *w, const kn__census *census) {
    bool any = false;
    for (unsigned i = 0; i < KN__CLASSES; i++) {
        const kn__class_use *use = &census->classes[i];
        if (!use->n_slabs) continue;
        if (!any) kn__write(w, "  %-18s %12s %12s %12s\n", "slots of", "live", "unused", "slabs");
        any = true;
        kn__write(w, "  %-18zu %12u %12u %12u\n", kn__class_bytes(i), use->n_live,
                  use->n_slots - use->n_live, use->n_slabs);
    }
    if (!census->n_large) return;
    kn__write(w, "  %-18s ", "larger");
    write_blocks(w, census->n_large);
    kn__write_text(w, ", ");
    kn__write_bytes(w, census->large_bytes);
    kn__write_text(w, "\n");
}

static size_t stream_free_bytes(const kn__stream *stream) {
    size_t bytes = 0;
    for (unsigned bin = 0; bin < KN__BINS; bin++) {
        for (const kn__block *b = stream->bins.head[bin]; b; b = b->next) bytes += b->size;
    }
    return bytes;
}

static void write_streams(kn__writer *w, const kn_pool *pool) {
    kn__write(w, "  %-18s %12s %12s %12s\n", "stream", "free", "events out", "epoch");
    kn__write(w, "  %-18s", "nobody's");
    write_value(w, BYTES, stream_free_bytes(pool->idle));
    kn__write_text(w, "\n");
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        const kn__stream *stream = pool->streams[i];
        if (stream->retired && !stream->refs) continue;
        kn__write(w, "  0x%-16llx", (unsigned long long)(uintptr_t)stream->handle);
        write_value(w, BYTES, stream_free_bytes(stream));
        write_value(w, COUNT, stream->n_marks);
        write_value(w, COUNT, stream->epoch);
        kn__write_text(w, stream->graph ? "  a graph's\n" : stream->retired ? "  retired\n" : "\n");
    }
}

static void write_ladder(kn__writer *w, const kn_pool *pool) {
    bool any = false;
    for (int i = 0; i < KN__RUNGS; i++) {
        const kn__rung *rung = &pool->rungs[i];
        if (!rung->n_tried) continue;
        if (!any) kn__write(w, "  %-25s %12s %12s %12s\n", "ladder", "tried", "served", "ms");
        any = true;
        kn__write(w, "  %-25s %12llu %12llu %12.3f\n", kn__rung_name(i),
                  (unsigned long long)rung->n_tried, (unsigned long long)rung->n_served,
                  (double)rung->ns / 1e6);
    }
}

static void write_owners(kn__writer *w, const kn__census *census) {
    for (int i = 0; i < census->n_owners && i < KN__OWNERS_SHOWN; i++) {
        char name[256];
        const kn__holding *h = &census->owners[i];
        if (i == 0) kn__write_text(w, "  held by\n");
        kn__owner_name(h->owner, name, sizeof name);
        kn__write_text(w, " ");
        write_value(w, BYTES, h->bytes);
        kn__write_text(w, " in ");
        write_blocks(w, h->n_blocks);
        kn__write(w, " by %s\n", name);
    }
}

enum { TAGS_SHOWN = 32 };

static void write_tags(kn__writer *w, kn_pool *pool) {
    kn_tag_stats tags[TAGS_SHOWN];
    size_t n = kn__tags_read(tags, TAGS_SHOWN, pool);
    if (n) kn__write(w, "  %-18s %12s %12s %12s\n", "tag", "live", "peak", "allocations");
    for (size_t i = 0; i < n && i < TAGS_SHOWN; i++) {
        kn__write(w, "  %-18s", tags[i].name);
        write_value(w, BYTES, tags[i].live_bytes);
        write_value(w, BYTES, tags[i].live_bytes_max);
        write_value(w, COUNT, tags[i].n_allocs);
        kn__write_text(w, "\n");
    }
}

static void write_limit(kn__writer *w, const char *what, size_t limit) {
    if (limit == SIZE_MAX) return;
    kn__write(w, ", %s ", what);
    kn__write_bytes(w, limit);
}

/* What the host's source of segments, jemalloc or pages, holds beyond the segments. */
static uint64_t backing_bytes(const kn_pool *pool) {
    return pool->driver->kind == KN_DEVICE_HOST ? kn__host_memory_overhead() : 0;
}

static void write_free(kn__writer *w, const kn__census *census) {
    kn__write(w, "  %-18s", "free");
    write_value(w, BYTES, census->free_bytes);
    kn__write(w, " %12s %12s  in ", "", "");
    write_blocks(w, census->n_free);
    kn__write_text(w, ", the largest ");
    kn__write_bytes(w, census->largest_free_bytes);
    kn__write_text(w, "\n");
    if (!census->graph_bytes) return;
    kn__write(w, "  %-18s", "for graphs");
    write_value(w, BYTES, census->graph_bytes);
    kn__write(w, " %12s %12s  what nobody else may have until they go\n", "", "");
}

void kn__pool_write_stats(kn__writer *w, kn_pool *pool) {
    kn__census census;
    kn_pool_stats stats;
    kn__census_take(&census, pool);
    kn__pool_stats(&stats, pool);
    kn__write(w, "pool %s on %s", pool->name, kn_device_name(pool->device));
    write_limit(w, "limit", pool->limit);
    write_limit(w, "soft limit", pool->soft_limit);
    kn__write_text(w, "\n");
    write_counters(w, &stats);
    write_free(w, &census);
    if (pool->driver->kind == KN_DEVICE_HOST) {
        kn__write(w, "  %-18s", "backing");
        write_value(w, BYTES, backing_bytes(pool));
        kn__write(w, " %12s %12s  what the source of segments holds for itself\n", "", "");
    }
    write_classes(w, &census);
    write_streams(w, pool);
    write_ladder(w, pool);
    write_tags(w, pool);
    write_owners(w, &census);
}

/* ---- JSON ---- */

void kn__stats_write_json(kn__writer *w, const kn_pool_stats *stats) {
    for (int i = 0; i < N_COUNTERS; i++) {
        kn__write(w, "%s\"%s\":%llu", i ? "," : "", COUNTERS[i].name,
                  (unsigned long long)value_of(stats, i));
    }
}

void kn__ladder_write_json(kn__writer *w, const kn_pool *pool) {
    kn__write_text(w, "\"ladder\":[");
    for (int i = 0; i < KN__RUNGS; i++) {
        const kn__rung *rung = &pool->rungs[i];
        kn__write(w, "%s{\"rung\":\"%s\",\"tried\":%llu,\"served\":%llu,\"ns\":%llu}", i ? "," : "",
                  kn__rung_name(i), (unsigned long long)rung->n_tried,
                  (unsigned long long)rung->n_served, (unsigned long long)rung->ns);
    }
    kn__write_text(w, "]");
}

void kn__pool_write_json_head(kn__writer *w, const kn_pool *pool) {
    kn__write_text(w, "\"version\":1,\"pool\":");
    kn__write_json_string(w, pool->name);
    kn__write_text(w, ",\"device\":");
    kn__write_json_string(w, kn_device_name(pool->device));
    kn__write_text(w, ",");
}

static void write_classes_json(kn__writer *w, const kn__census *census) {
    const char *comma = "";
    for (unsigned i = 0; i < KN__CLASSES; i++) {
        const kn__class_use *use = &census->classes[i];
        if (!use->n_slabs) continue;
        kn__write(w, "%s{\"bytes\":%zu,\"slabs\":%u,\"slots\":%u,\"live\":%u,\"waiting\":%u}",
                  comma, kn__class_bytes(i), use->n_slabs, use->n_slots, use->n_live,
                  use->n_waiting);
        comma = ",";
    }
}

static void write_streams_json(kn__writer *w, const kn_pool *pool) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        const kn__stream *stream = pool->streams[i];
        kn__write(w,
                  "%s{\"stream\":%llu,\"free_bytes\":%zu,\"events_out\":%u,\"epoch\":%llu,"
                  "\"retired\":%s,\"graph\":%s}",
                  i ? "," : "", (unsigned long long)(uintptr_t)stream->handle,
                  stream_free_bytes(stream), stream->n_marks, (unsigned long long)stream->epoch,
                  stream->retired ? "true" : "false", stream->graph ? "true" : "false");
    }
}

static void write_owners_json(kn__writer *w, const kn__census *census) {
    for (int i = 0; i < census->n_owners; i++) {
        char name[256];
        const kn__holding *h = &census->owners[i];
        kn__owner_name(h->owner, name, sizeof name);
        kn__write_text(w, i ? ",{\"name\":" : "{\"name\":");
        kn__write_json_string(w, name);
        kn__write(w, ",\"bytes\":%llu,\"blocks\":%llu}", (unsigned long long)h->bytes,
                  (unsigned long long)h->n_blocks);
    }
}

void kn__tags_write_json(kn__writer *w, const kn_tag_stats *tags, int n) {
    kn__write_text(w, "\"tags\":[");
    for (int i = 0; i < n; i++) {
        kn__write_text(w, i ? ",{\"name\":" : "{\"name\":");
        kn__write_json_string(w, tags[i].name);
        kn__write(w, ",\"live_bytes\":%llu,\"live_bytes_max\":%llu,\"allocs\":%llu}",
                  (unsigned long long)tags[i].live_bytes,
                  (unsigned long long)tags[i].live_bytes_max, (unsigned long long)tags[i].n_allocs);
    }
    kn__write_text(w, "]");
}

static void write_limit_json(kn__writer *w, const char *name, size_t limit) {
    if (limit == SIZE_MAX) {
        kn__write(w, "\"%s\":null,", name);
    } else {
        kn__write(w, "\"%s\":%zu,", name, limit);
    }
}

void kn__pool_write_stats_json(kn__writer *w, kn_pool *pool) {
    kn__census census;
    kn_pool_stats stats;
    kn__census_take(&census, pool);
    kn__pool_stats(&stats, pool);
    kn__write_text(w, "{");
    kn__pool_write_json_head(w, pool);
    kn__stats_write_json(w, &stats);
    kn__write(w,
              ",\"live_blocks\":%llu,\"free_bytes\":%llu,\"free_blocks\":%llu,\"largest_free_"
              "bytes\":%llu,",
              (unsigned long long)census.n_live, (unsigned long long)census.free_bytes,
              (unsigned long long)census.n_free, (unsigned long long)census.largest_free_bytes);
    kn__write(w, "\"graph_bytes\":%llu,\"backing_bytes\":%llu,",
              (unsigned long long)census.graph_bytes, (unsigned long long)backing_bytes(pool));
    write_limit_json(w, "limit_bytes", pool->limit);
    write_limit_json(w, "soft_limit_bytes", pool->soft_limit);
    kn__write_text(w, "\"classes\":[");
    write_classes_json(w, &census);
    kn__write_text(w, "],\"streams\":[");
    write_streams_json(w, pool);
    kn__write_text(w, "],");
    kn__ladder_write_json(w, pool);
    kn_tag_stats tags[TAGS_SHOWN];
    size_t n_tags = kn__tags_read(tags, TAGS_SHOWN, pool);
    kn__write_text(w, ",");
    kn__tags_write_json(w, tags, (int)(n_tags < TAGS_SHOWN ? n_tags : TAGS_SHOWN));
    kn__write_text(w, ",\"held_by\":[");
    write_owners_json(w, &census);
    kn__write_text(w, "]}\n");
}

static bool is_json(const char *path) {
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

kn_status kn__pool_print(kn_pool *pool, const char *path, bool append, const char *function) {
    char buffer[KN__WRITER_BYTES];
    kn__writer w;
    KN_TRY(kn__writer_open(&w, path, append, function, buffer, sizeof buffer));
    kn__pool_lock(pool);
    if (is_json(path)) {
        kn__pool_write_stats_json(&w, pool);
    } else {
        kn__pool_write_stats(&w, pool);
    }
    kn__pool_unlock(pool);
    return kn__writer_close(&w, path, function);
}

kn_status kn_pool_print(kn_pool *pool, const char *path) {
    return kn__pool_print(pool, path, false, "kn_pool_print");
}
