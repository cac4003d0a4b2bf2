/* A pool's counters, by name, as tables and as JSON. */
#include <limits.h>
#include <string.h>

#include "cancel.h"
#include "device/drivers.h"
#include "inspect/census.h"
#include "pool/counts.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

static uint64_t at_least_zero(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

void kn__pool_stats(kn_pool_stats *out, kn_pool *pool) {
    int64_t live = pool->live, high = pool->live, requested = pool->requested;
    uint64_t n_allocs = pool->n_allocs;
    for (const kn__cache *cache = pool->caches; cache; cache = cache->next) {
        live += KN__READ(cache->live);
        high += KN__READ(cache->live_max);
        requested += KN__READ(cache->requested);
        n_allocs += KN__READ(cache->n_allocs);
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

/* --- counters by name --- */

typedef enum column_of { NOW, PEAK, TOTAL } column_of;

typedef struct counter {
    const char *name, *row, *text;
    column_of column;
    kn__unit unit;
} counter;

/* As the members of kn_pool_stats, which are all uint64_t. */
static const counter COUNTERS[] = {
#define X(name, row, column, unit, text) {#name, row, text, column, KN__##unit},
    KN_POOL_STATS_LIST(X)
#undef X
};
enum { N_COUNTERS = sizeof COUNTERS / sizeof *COUNTERS };
_Static_assert(sizeof(kn_pool_stats) == N_COUNTERS * sizeof(uint64_t), "one list of counters");

kn_status kn_pool_stat(uint64_t *out, const kn_pool *pool, const char *name) {
    int i = 0;
    KN_TRY(kn__pool_given(pool, __func__));
    if (!name) return KN_FAIL(KN_ERR_INVALID, "kn_pool_stat: the name is NULL");
    while (i < N_COUNTERS && strcmp(COUNTERS[i].name, name) != 0) i++;
    if (i == N_COUNTERS) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_stat: no counter is named \"%.64s\"", name);
    }
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    memcpy(out, (const char *)&stats + (size_t)i * sizeof *out, sizeof *out);
    return KN_OK;
}

/* --- parts of the report --- */

static void table_text(kn__writer *w, const char *fmt, const char *text) {
    if (!w->json) kn__write(w, fmt, text);
}

/* A row's value of this moment comes first in the list, then its peak; the totals are the list's
 * end. */
static void write_stats(kn__writer *w, const kn_pool_stats *stats) {
    uint64_t values[N_COUNTERS];
    memcpy(values, stats, sizeof values);
    for (int i = 0; i < N_COUNTERS; i++) {
        const counter *c = &COUNTERS[i], *peak = c + 1;
        if (i == 0) table_text(w, "%33s         peak\n", "now");
        if (c->column == TOTAL && c[-1].column != TOTAL) table_text(w, "%33s\n", "total");
        table_text(w, "  %-18s", c->row);
        kn__add(w, c->name, c->unit, values[i]);
        if (i + 1 < N_COUNTERS && peak->column == PEAK)
            kn__add(w, peak->name, peak->unit, values[++i]);
        else
            table_text(w, "%13s", "");
        table_text(w, "  %s\n", c->text);
    }
}

/* In a table a row of its own; 0 and UINT64_MAX have none. */
static void add_row(kn__writer *w, const char *name, kn__unit unit, uint64_t value, const char *row,
                    const char *text) {
    if (!w->json && (value == 0 || value == UINT64_MAX)) return;
    table_text(w, "  %-18s", row);
    kn__add(w, name, unit, value);
    table_text(w, *text ? "               %s\n" : "%s\n", text);
}

static void write_classes(kn__writer *w, const kn__census *census) {
    kn__open_list(w, "classes",
                  "  slots of                   live        slots        slabs      waiting\n");
    for (unsigned i = 0; i < KN__SIZE_CLASSES; i++) {
        const kn__class_use *use = &census->classes[i];
        if (!use->n_slabs) continue;
        kn__open(w, NULL, "{");
        kn__add(w, "bytes", KN__KEY, kn__size_class_bytes(i));
        kn__add(w, "live", KN__COUNT, use->n_live);
        kn__add(w, "slots", KN__COUNT, use->n_slots);
        kn__add(w, "slabs", KN__COUNT, use->n_slabs);
        kn__add(w, "waiting", KN__COUNT, use->n_waiting);
        kn__close(w, "}");
    }
    kn__close(w, "]");
}

static const char *const RUNG_NAMES[] = {
#define X(name, text) text,
    KN__RUNG_LIST(X)
#undef X
};

static void write_ladder(kn__writer *w, const kn__rung *rungs) {
    kn__open_list(w, "ladder",
                  "  ladder                           tried       served           ms\n");
    for (int i = 0; i < KN__RUNGS; i++) {
        if (!rungs[i].n_tried && !w->json) continue;
        kn__open(w, NULL, "{");
        kn__add_text(w, "rung", 25, RUNG_NAMES[i]);
        kn__add(w, "tried", KN__COUNT, rungs[i].n_tried);
        kn__add(w, "served", KN__COUNT, rungs[i].n_served);
        kn__add(w, "ns", KN__NS, rungs[i].ns);
        kn__close(w, "}");
    }
    kn__close(w, "]");
}

static void write_tags(kn__writer *w, const kn_tag_stats *tags, size_t n) {
    kn__open_list(w, "tags", "  tag                        live         peak  allocations\n");
    for (size_t i = 0; i < n; i++) {
        kn__open(w, NULL, "{");
        kn__add_text(w, "name", 18, tags[i].name);
        kn__add(w, "live_bytes", KN__BYTES, tags[i].live_bytes);
        kn__add(w, "live_bytes_max", KN__BYTES, tags[i].live_bytes_max);
        kn__add(w, "allocs", KN__COUNT, tags[i].n_allocs);
        kn__close(w, "}");
    }
    kn__close(w, "]");
}

static void write_owners(kn__writer *w, const kn__figures *r) {
    kn__open_list(w, "held_by",
                  "  held by                                          live       blocks\n");
    for (int i = 0; i < r->census.n_owners && (w->json || i < KN__OWNERS_SHOWN); i++) {
        kn__open(w, NULL, "{");
        kn__add_text(w, "name", 40, r->owners[i]);
        kn__add(w, "bytes", KN__BYTES, r->census.owners[i].bytes);
        kn__add(w, "blocks", KN__COUNT, r->census.owners[i].n_blocks);
        kn__close(w, "}");
    }
    kn__close(w, "]");
}

/* --- the report --- */

void kn__figures_take(kn__figures *out, kn_pool *pool) {
    kn__pool_stats(&out->stats, pool);
    kn__census_take(&out->census, pool);
    for (int i = 0; i < out->census.n_owners; i++) {
        kn__owner_name(out->census.owners[i].owner, out->owners[i], sizeof out->owners[i]);
    }
    out->shared_free_bytes = kn__bins_bytes(&pool->idle->bins);
    out->limit_bytes = pool->limit;
    out->soft_limit_bytes = pool->soft_limit;
    size_t n_tags = kn__tags_read(out->tags, KN__TAGS_SHOWN, pool);
    out->n_tags = n_tags < KN__TAGS_SHOWN ? n_tags : KN__TAGS_SHOWN;
    memcpy(out->rungs, pool->rungs, sizeof out->rungs);
}

static void write_figures(kn__writer *w, const kn_pool *pool, const kn__figures *r) {
    const kn__census *c = &r->census;
    bool host = pool->driver->kind == KN_DEVICE_HOST;
    uint64_t backing = host ? kn__host_memory_overhead() : 0;
    table_text(w, "%33s\n", "now");
    add_row(w, "live_blocks", KN__COUNT, c->n_live, "live blocks", "slots too");
    add_row(w, "large_blocks", KN__COUNT, c->n_large, "larger blocks", "of these, not slots");
    add_row(w, "large_bytes", KN__BYTES, c->large_bytes, "in larger blocks", "");
    add_row(w, "free_bytes", KN__BYTES, c->free_bytes, "free", "in free blocks");
    add_row(w, "shared_free_bytes", KN__BYTES, r->shared_free_bytes, "free, any stream", "");
    add_row(w, "free_blocks", KN__COUNT, c->n_free, "free blocks", "");
    add_row(w, "largest_free_bytes", KN__BYTES, c->largest_free_bytes, "largest free block", "");
    add_row(w, "graph_bytes", KN__BYTES, c->graph_bytes, "for graphs", "live or free");
    add_row(w, "backing_bytes", KN__BYTES, backing, "backing", "overhead of the host's memory");
    add_row(w, "limit_bytes", KN__BYTES, r->limit_bytes, "limit", "");
    add_row(w, "soft_limit_bytes", KN__BYTES, r->soft_limit_bytes, "soft limit", "");
}

void kn__figures_write(kn__writer *w, const char *stats, const kn_pool *pool,
                       const kn__figures *r) {
    const char *device = kn_device_name(pool->device);
    if (w->json) {
        kn__add(w, "version", KN__COUNT, 1);
        kn__add_text(w, "pool", 0, pool->name);
        kn__add_text(w, "device", 0, device);
    } else {
        kn__write_text(w, "pool ");
        kn__text_shown(&w->text, pool->name, INT_MAX);
        kn__write(w, " on %s\n", device);
    }
    if (stats) kn__open(w, stats, "{");
    write_stats(w, &r->stats);
    if (stats) kn__close(w, "}");
    write_figures(w, pool, r);
    write_classes(w, &r->census);
    write_ladder(w, r->rungs);
    write_tags(w, r->tags, r->n_tags);
    write_owners(w, r);
}

kn_status kn__pool_save(kn_pool *pool, bool json, void (*more_fn)(kn__writer *w, kn_pool *pool),
                        const char *path, bool append, const char *function) {
    kn__writer w = kn__writer_paged(json);
    kn__figures figures;
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn__figures_take(&figures, pool);
    if (json) kn__open(&w, NULL, "{");
    kn__figures_write(&w, NULL, pool, &figures);
    more_fn(&w, pool);
    if (json) kn__close(&w, "}\n");
    kn__pool_unlock(pool);
    return kn__writer_save(&w, path, append, function);
}

static void write_streams(kn__writer *w, kn_pool *pool) {
    kn__open_list(w, "streams", "  stream                     free   events out        epoch\n");
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        const kn__stream *stream = pool->streams[i];
        if (stream->retired && !stream->refs) continue;
        kn__open(w, NULL, "{");
        kn__add(w, "stream", KN__HANDLE, (uintptr_t)stream->handle);
        kn__add(w, "free_bytes", KN__BYTES, kn__bins_bytes(&stream->bins));
        kn__add(w, "events_out", KN__COUNT, stream->n_events);
        kn__add(w, "epoch", KN__COUNT, stream->epoch);
        kn__add_flag(w, "retired", stream->retired);
        kn__add_flag(w, "graph", stream->graph);
        kn__close(w, "}");
    }
    kn__close(w, "]");
}

kn_status kn__pool_print(kn_pool *pool, const char *path, bool append, const char *function) {
    size_t n = path ? strlen(path) : 0;
    bool json = n > 5 && strcmp(path + n - 5, ".json") == 0;
    return kn__pool_save(pool, json, write_streams, path, append, function);
}

kn_status kn_pool_print(kn_pool *pool, const char *path) {
    KN_TRY(kn__pool_given(pool, __func__));
    return kn__pool_print(pool, path, false, "kn_pool_print");
}
