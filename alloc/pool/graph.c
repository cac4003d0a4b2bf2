/* Memory of graphs.
 *
 * A stream that is captured into a graph has another record in its place, the graph's own part of
 * it: with its own free blocks, slabs and racks. Its epochs never end, so other streams never get
 * the blocks freed in them. The stream's own record is hidden meanwhile; at the end the two change
 * places, and when the graph goes its part is freed on a stream. */
#include "pool/graph.h"

#include <stdlib.h>

#include "cancel.h"
#include "core/arena.h"
#include "core/progress.h"
#include "core/streams.h"
#include "device/registry.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

struct kn_pool_graph {
    kn_pool *pool; /* NULL: it is gone */
    kn_pool_graph *next;
};

kn_status kn_pool_graph_create(kn_pool_graph **out, kn_pool *pool) {
    KN_TRY(kn__pool_given(pool, __func__));
    if (pool->ordered || pool->pinned) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_graph_create: pool %s has no streams to capture",
                       pool->name);
    }
    kn_pool_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return KN_FAIL(KN_ERR_OOM, "kn_pool_graph_create: no host memory");
    graph->pool = pool;
    kn__pool_lock(pool);
    graph->next = pool->graphs;
    pool->graphs = graph;
    kn__pool_unlock(pool);
    *out = graph;
    return KN_OK;
}

/* The first time that something is allocated, by a way that is slow anyway, for a stream that is
 * captured and has not begun. Not an error: blocks that are kept as long as the graph are safe. */
void kn__graph_missing(const kn_pool *pool) {
    static atomic_bool told;
    if (atomic_exchange(&told, true)) return;
    kn_log_write(
        1,
        "pool %s: allocation for a stream that is being captured, without "
        "kn_pool_graph_begin: its memory is reused once it is freed, and launches of the graph "
        "overwrite it",
        pool->name);
}

/* The graph's part of the stream, or NULL. */
static kn__stream *find_part(const kn_pool_graph *graph, kn_stream handle) {
    return kn__stream_lookup(graph->pool, kn__stream_known_key(graph->pool, handle), graph);
}

static kn__stream *make_part(kn_pool_graph *graph, kn_stream handle) {
    kn__stream *part =
        kn__streams_add(graph->pool, handle, kn__stream_known_key(graph->pool, handle));
    if (!part) return NULL;
    part->graph = graph;
    part->hidden = true;
    return part;
}

/* Hides one record and shows the other. Threads flush racks of the hidden one when they next take
 * the pool's lock to allocate. */
static void change_places(kn_pool *pool, kn__stream *hide, kn__stream *show) {
    KN_ASSERT(!show || show->hidden);
    if (hide) hide->hidden = true;
    if (show) show->hidden = false;
    kn__streams_changed(pool);
}

static kn_status begin_locked(kn_pool_graph *graph, kn_stream handle) {
    kn_pool *pool = graph->pool;
    kn__stream *shown;
    KN_TRY(kn__stream_get(&shown, pool, handle));
    if (shown->graph) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_graph_begin: pool %s: the stream has begun already",
                       pool->name);
    }
    kn__stream *part = find_part(graph, handle);
    if (!part) part = make_part(graph, handle);
    if (!part) {
        return KN_FAIL(KN_ERR_OOM, "kn_pool_graph_begin: pool %s: no host memory", pool->name);
    }
    if (!kn__stream_capturing(pool, handle)) kn__epochs_settle(pool); /* the last time to ask */
    change_places(pool, shown, part);
    return KN_OK;
}

kn_status kn__graph_part(kn__stream **out, kn_pool_graph *graph, kn_stream handle) {
    KN__CANCEL_LATER();
    kn_pool *pool = graph->pool;
    kn__stream *shown;
    KN_TRY(kn__stream_get(&shown, pool, handle)); /* checks the handle at first use */
    kn__stream *part = find_part(graph, handle);
    if (!part) {
        part = make_part(graph, handle);
        if (!part) return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a graph", pool->name);
        if (!kn__stream_capturing(pool, handle)) kn__epochs_settle(pool);
    }
    *out = part;
    return KN_OK;
}

static kn_status pool_gone(const char *function) {
    return KN_FAIL(KN_ERR_INVALID, "%s: the pool is destroyed", function);
}

kn_status kn__graph_pool(kn_pool **out, kn_pool_graph *graph, const char *function) {
    *out = graph->pool;
    return graph->pool ? KN_OK : pool_gone(function);
}

kn_status kn_pool_graph_begin(kn_pool_graph *graph, kn_stream stream) {
    kn_pool *pool = graph->pool;
    if (!pool) return pool_gone("kn_pool_graph_begin");
    KN_TRY(kn__device_usable(pool->device, __func__));
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn_status status = begin_locked(graph, stream);
    kn__pool_unlock(pool);
    return status;
}

/* Also of a stream that has another key by now: it was captured when it began, so that its id could
 * not be asked for. */
static kn__stream *begun_part(const kn_pool_graph *graph, kn_stream handle) {
    kn__stream *part = find_part(graph, handle);
    for (uint32_t i = 0; !part && i < graph->pool->n_streams; i++) {
        kn__stream *other = graph->pool->streams[i];
        if (other->graph == graph && other->handle == handle && !other->hidden) part = other;
    }
    return part;
}

static void end_part(kn_pool *pool, kn__stream *part) {
    KN_ASSERT(part->graph && !part->hidden);
    change_places(pool, part, kn__stream_lookup(pool, part->key, NULL));
    kn__arena_move(pool, part, 0, pool->idle, 0); /* what the graph never used */
}

kn_status kn_pool_graph_end(kn_pool_graph *graph, kn_stream stream) {
    kn_pool *pool = graph->pool;
    if (!pool) return pool_gone("kn_pool_graph_end");
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn__stream *part = begun_part(graph, stream);
    bool begun = part && !part->hidden;
    if (begun) end_part(pool, part);
    kn__pool_unlock(pool);
    if (begun) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_pool_graph_end: pool %s: the stream has not begun",
                   pool->name);
}

/* --- the graph goes --- */

typedef struct move {
    kn__stream *part, *target;
} move;

static void retarget(const move *m, kn__use *use) {
    if (use->stream != m->part) return;
    use->stream = m->target;
    m->part->refs--;
    m->target->refs++;
}

static void retarget_all(const move *m, kn__waiter *waiter) {
    if (!waiter) return;
    for (kn__use *use = waiter->uses; use; use = use->next) retarget(m, use);
}

/* Moves a block that is live, waits or is a slab. Free blocks are moved later. */
static bool move_block(void *ctx, kn__block *block) {
    const move *m = ctx;
    if (block->state == KN__LIVE) retarget_all(m, block->waiter);
    if (block->state == KN__SLAB) {
        for (kn__waiter *w = block->slab->shared; w; w = w->next) retarget_all(m, w);
    }
    if (block->stream != m->part || block->state == KN__FREE) return false;
    if (block->state == KN__SLAB) kn__slab_move(block->slab, m->target);
    if (block->state == KN__WAITING) {
        kn__block_set(block, KN__WAITING, kn__stream_epoch(m->target));
    }
    kn__block_assign(block, m->target);
    return false;
}

/* Moves uses of freed blocks: they end with the target's open epoch. */
static void move_uses(const move *m) {
    kn__use *use = m->part->oldest_use;
    if (!use) return;
    if (m->target->youngest_use) {
        m->target->youngest_use->younger = use;
    } else {
        m->target->oldest_use = use;
    }
    m->target->youngest_use = m->part->youngest_use;
    for (; use; use = use->younger) {
        retarget(m, use);
        use->epoch = kn__stream_epoch(m->target);
    }
    m->part->oldest_use = m->part->youngest_use = NULL;
}

static void part_destroy(kn_pool *pool, kn__stream *part, kn__stream *target) {
    move m = {part, target};
    kn__arena_visit(pool, move_block, &m);
    move_uses(&m);
    kn__arena_move(pool, part, KN__EPOCH_NEVER, target, kn__stream_epoch(target));
    KN_ASSERT(!part->bins.n_used && !part->oldest_use && !part->n_events);
    target->open_bytes++;
    part->graph = NULL;
    part->retired = true; /* its record is used again when no thread has a rack of it */
}

/* Only a wait for the device can tell when its work is done. */
static void part_lose(kn__stream *part) {
    part->graph = NULL;
    part->epoch++;
    part->retired = part->lost = true;
}

static void destroy_part(kn_pool *pool, kn__stream *part, const kn_stream *handle) {
    kn__stream *target;
    if (!part->hidden) end_part(pool, part);
    if (!handle) {
        part_lose(part);
    } else if (kn__stream_get(&target, pool, *handle) == KN_OK) {
        part_destroy(pool, part, target);
    } else {
        kn_log_write(1,
                     "kn_pool_graph_destroy: pool %s: the graph's memory is lost until the "
                     "pool waits for the device: %s",
                     pool->name, kn_last_error()->message);
        part_lose(part);
    }
}

static void destroy_locked(kn_pool_graph *graph, const kn_stream *handle) {
    kn_pool *pool = graph->pool;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        if (pool->streams[i]->graph == graph) destroy_part(pool, pool->streams[i], handle);
    }
    kn_pool_graph **link = &pool->graphs;
    while (*link != graph) link = &(*link)->next;
    *link = graph->next;
    kn__streams_changed(pool);
}

static void destroy(kn_pool_graph *graph, const kn_stream *stream) {
    if (!graph) return;
    KN__CANCEL_LATER();
    kn_pool *pool = graph->pool;
    if (pool) {
        kn__pool_lock(pool);
        destroy_locked(graph, stream);
        kn__pool_unlock(pool);
    }
    free(graph);
}

void kn_pool_graph_destroy(kn_pool_graph *graph, kn_stream stream) { destroy(graph, &stream); }

void kn_pool_graph_destroy_any(kn_pool_graph *graph) { destroy(graph, NULL); }

/* A part that has begun would pass for a capture, which forbids the wait for the device. */
void kn__graphs_orphan(kn_pool *pool) {
    kn__pool_lock(pool);
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *part = pool->streams[i];
        if (part->graph && !part->hidden) end_part(pool, part);
    }
    for (kn_pool_graph *graph = pool->graphs; graph; graph = graph->next) graph->pool = NULL;
    pool->graphs = NULL;
    kn__pool_unlock(pool);
}

void kn__graphs_stream_gone(kn_pool *pool, uint64_t key) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *part = pool->streams[i];
        if (part->graph && part->key == key && !part->hidden) end_part(pool, part);
    }
}
