/* Serves a request that the stream's own free blocks can't: tries one rung after another, see the
 * table LADDER, and searches the pool after each. Then fails, with a report of all holders.
 *
 * While there is memory no stream waits for another: memory that streams are known to have finished
 * with comes before growth, and every rung that waits comes after it. Where most of the memory is
 * reserved (kn__pool_pressed) free memory moves to where it is wanted before the pool grows. No
 * rung waits for the whole device but the last one, which is for streams that were destroyed
 * unannounced. */
#include "pool/ladder.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cancel.h"
#include "core/arena.h"
#include "core/grow.h"
#include "core/progress.h"
#include "core/streams.h"
#include "now.h"
#include "pool/counts.h"
#include "pool/fault.h"
#include "pool/graph.h"
#include "pool/inspector.h"
#include "pool/pool_lock.h"
#include "pool/steal.h"

enum { QUERIES = 8 }; /* of events, for a request: fewer than a growth costs */

typedef struct request {
    kn__stream *stream;
    size_t size, align;
    unsigned size_class; /* KN__NO_SIZE_CLASS: a block */
    kn__block *found;
    kn__cache *cache; /* this thread's, or NULL */
    bool capturing;
    bool waits;   /* may wait for other streams on the device */
    bool evicted; /* callbacks freed memory in this climb */
    kn_status device_status;
    char device_said[200]; /* why it gave no memory; empty: it wasn't asked */
} request;

static bool served(const request *r) {
    return r->found || (r->size_class != KN__NO_SIZE_CLASS && r->stream->partial[r->size_class]);
}

static bool take(kn_pool *pool, request *r, kn__block *block) {
    if (block) r->found = kn__arena_take(pool, block, r->stream, r->size, r->align);
    return r->found != NULL;
}

static bool own(kn_pool *pool, request *r) {
    if (served(r)) return true;
    return take(pool, r, kn__arena_find(pool, r->stream, r->size, r->align));
}

/* Only blocks that `by` may use with no wait. */
static kn__block *find_usable(const kn_pool *pool, const kn__stream *by, const kn__bins *bins,
                              size_t size, size_t align) {
    for (unsigned bin = kn__bin_of(size); (bin = kn__bins_next(bins, bin)) < KN__BINS; bin++) {
        kn__block *block = bins->head[bin];
        for (int i = 0; i < KN__BIN_PROBE && block; i++, block = block->next) {
            if (kn__block_fits(block, size, align) && kn__epoch_usable(pool, by, block)) {
                return block;
            }
        }
    }
    return NULL;
}

/* The best block of other streams: of those usable with no wait, or of any. */
static kn__block *find_foreign(kn_pool *pool, const request *r, bool any) {
    kn__block *best = NULL;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        const kn__stream *stream = pool->streams[i];
        if (stream == r->stream || (any && stream->graph)) continue;
        kn__block *block = any ? kn__bins_find(&stream->bins, r->size, r->align)
                               : find_usable(pool, r->stream, &stream->bins, r->size, r->align);
        if (block && (!best || block->size < best->size)) best = block;
    }
    return best;
}

/* This share of the reserved memory becomes the taker's, so that it need not come back at once. */
enum { ADOPTED_SHARE = 128 };

/* A free block of another stream, usable or waited for. */
static bool take_foreign(kn_pool *pool, request *r, kn__block *block) {
    if (!block) return false;
    size_t some = kn__block_round(pool->reserved / ADOPTED_SHARE);
    if (block->size > some && r->size <= some && r->align <= KN__BLOCK_GRAIN) {
        uint64_t epoch =
            kn__epoch_finished(pool, block->stream, block->epoch) ? 0 : r->stream->epoch;
        block = kn__arena_take(pool, block, r->stream, some, KN__BLOCK_GRAIN);
        if (!block) return false;
        block = kn__arena_put(pool, block, r->stream, epoch);
    }
    return take(pool, r, block);
}

static bool find_finished(kn_pool *pool, request *r) {
    return own(pool, r) || take_foreign(pool, r, find_foreign(pool, r, false));
}

/* Takes what streams are known to have finished with; then queries a few events. */
static bool finished(kn_pool *pool, request *r) {
    if (find_finished(pool, r)) return true;
    if (pool->waiters) kn__epochs_close_used(pool);
    kn__epochs_poll(pool, QUERIES);
    return find_finished(pool, r);
}

static bool take_stolen(kn_pool *pool, request *r, kn__block *block) {
    if (kn__epoch_wait(pool, r->stream, block->stream, block->epoch) < 0) return false;
    return take_foreign(pool, r, block);
}

/* After a wait on the device: one block, or what waits and neighbours that do together. */
static bool steal(kn_pool *pool, request *r) {
    if (pool->n_streams <= 1) return false;
    kn__block *block = find_foreign(pool, r, true);
    if (block && take_stolen(pool, r, block)) return true;
    return take(pool, r, kn__steal_run(pool, r->stream, r->size, r->align));
}

static bool grow(kn_pool *pool, request *r) {
    bool asked = pool->limit - pool->reserved >= r->size && pool->limit > pool->reserved;
    kn_status status = kn__grow(pool, r->stream, r->size, r->align);
    if (status == KN_OK) return own(pool, r);
    r->device_status = status;
    if (asked) snprintf(r->device_said, sizeof r->device_said, "%.199s", kn_last_error()->message);
    return false;
}

static bool flush_own(kn_pool *pool, request *r) {
    if (r->cache) kn__cache_flush(pool, r->cache);
    kn__epochs_settle(pool);
    return own(pool, r);
}

/* Before growth: what this thread caches, then whole handles that are free and done with move to
 * where they are wanted. Nothing waits. Where there is no pressure, only when a quarter of what is
 * reserved, and a good part of the device, would move; and not for ever: work that fragments
 * whatever moves must settle. */
enum { IDLE_SHARE = 4, IDLE_DEVICE_SHARE = 64, IDLE_STEP = 16, MOVED_TIMES = 4 };

static bool mostly_idle(kn_pool *pool, size_t size) {
    uint64_t least = pool->reserved / IDLE_SHARE;
    if (least < kn__pool_capacity(pool) / IDLE_DEVICE_SHARE) {
        least = kn__pool_capacity(pool) / IDLE_DEVICE_SHARE;
    }
    uint64_t live = (uint64_t)kn__pool_live(pool);
    if (pool->reserved < live + least || pool->moved > MOVED_TIMES * pool->reserved) return false;
    if (pool->reserved + size < pool->idle_check) return false;
    kn__epochs_settle(pool);
    bool idle = kn__idle_handles(pool) >= least;
    pool->idle_check = idle ? 0 : pool->reserved + pool->reserved / IDLE_STEP;
    return idle;
}

static bool compact(kn_pool *pool, request *r) {
    if (!pool->range.base) return false;
    if (!kn__pool_pressed(pool, r->size) && !mostly_idle(pool, r->size)) return false;
    return flush_own(pool, r) ||
           (kn__harvest(pool, r->stream, r->size, r->align, false) && own(pool, r));
}

static bool flush(kn_pool *pool, request *r) {
    kn__caches_flush(pool);
    return flush_own(pool, r) || take_foreign(pool, r, find_foreign(pool, r, false));
}

/* They are called again while they free memory, after all else was tried: a cache may give up one
 * entry a call. Whatever they say, live bytes must fall, or, since another thread may take what
 * they free at once, this thread must have freed more than it allocated; and the request may fit.
 */
static bool callbacks(kn_pool *pool, request *r) {
    bool freed;
    int64_t live = kn__pool_live(pool), own = kn__cache_own(r->cache);
    int n_called = kn__callbacks_call(&freed, pool, r->size);
    freed = freed && (kn__pool_live(pool) < live || kn__cache_own(r->cache) < own);
    r->evicted = freed && r->size <= kn__pool_capacity(pool);
    return n_called && flush(pool, r);
}

/* Free memory goes to where it is wanted: by moving handles, or, for plain segments, which can't be
 * moved, by giving back so many that a new one fits. */
static bool harvest(kn_pool *pool, request *r) {
    if (pool->range.base) {
        return kn__harvest(pool, r->stream, r->size, r->align, r->waits) && own(pool, r);
    }
    uint64_t before = pool->reserved, most = kn__pool_capacity(pool);
    bool known = most != UINT64_MAX && most > r->size + KN__UNIT;
    kn__shrink(pool, known ? most - r->size - KN__UNIT : 0);
    return pool->reserved < before && grow(pool, r);
}

/* Handles that are too large for the hole to be moved there are replaced by new ones; the holes
 * between free blocks merge. */
static bool give_back(kn_pool *pool, request *r) {
    uint64_t before = pool->reserved;
    if (!pool->range.base) return false;
    kn__shrink(pool, 0);
    return pool->reserved < before && grow(pool, r);
}

static bool wait_for_epochs(kn_pool *pool, request *r) {
    while (kn__epochs_sync_one(pool) || kn__epochs_recover(pool)) {
        if (flush(pool, r) || harvest(pool, r)) return true;
    }
    return false;
}

static kn_status out_of_memory(kn_pool *pool, const request *r, size_t requested) {
    kn__oom_request oom = {.status = r->device_status < 0 ? r->device_status : KN_ERR_OOM,
                           .requested_bytes = requested,
                           .needed_bytes = r->size,
                           .align = r->align,
                           .slab = r->size_class != KN__NO_SIZE_CLASS,
                           .capturing = r->capturing,
                           .stream = r->stream->handle};
    memcpy(oom.device_said, r->device_said, sizeof oom.device_said);
    return kn__inspect_oom(pool, &oom);
}

/* When a rung is tried. */
enum {
    FOREIGN = 1,    /* streams have an order of their own, and this one isn't being captured */
    WAITS = 16,     /* this one may wait for another on the device: it is no graph's, nor the CPU */
    CALM = 2,       /* the stream isn't being captured: nothing is asked of the device then */
    BELOW_SOFT = 4, /* growth would stay below the soft limit, or the stream is being captured */
    ABOVE_SOFT = 8,
    FIRST = 32, /* not when all is tried again, unless callbacks freed memory */
    ROOM = 64   /* not for a request beyond all that is not live */
};

/* clang-format off */
static const struct {
    bool (*fn)(kn_pool *pool, request *r);
    int when;
} LADDER[KN__RUNGS] = {
    /* What the stream may use with no wait. */
    [KN__RUNG_own]       = {own, 0},
    /* What streams are done with, as events say. */
    [KN__RUNG_finished]  = {finished, FOREIGN},
    /* Under pressure free memory moves; nothing waits. */
    [KN__RUNG_compact]   = {compact, CALM | BELOW_SOFT | ROOM},
    /* New memory, within the limit. */
    [KN__RUNG_grow]      = {grow, BELOW_SOFT | ROOM},
    /* All threads' caches; all that is finished, merged. */
    [KN__RUNG_flush]     = {flush, CALM | ROOM},
    /* Of other streams, after a wait on the device. */
    [KN__RUNG_steal]     = {steal, FOREIGN | WAITS | ROOM},
    /* The user's. */
    [KN__RUNG_callbacks] = {callbacks, CALM | FIRST},
    /* Memory of free handles, to where it is wanted. */
    [KN__RUNG_harvest]   = {harvest, CALM | ROOM},
    [KN__RUNG_grow_soft] = {grow, CALM | ABOVE_SOFT | ROOM},
    /* The host waits for one epoch after another. */
    [KN__RUNG_wait]      = {wait_for_epochs, CALM | ROOM},
    /* Unmaps all that is free, and grows again. */
    [KN__RUNG_give_back] = {give_back, CALM | ROOM},
};
/* clang-format on */

/* No more than this fits, whatever is returned: live blocks stay. Bytes held above a lowered limit
 * are used too. For a size_class one slot does, which another thread's cache may
 * have.
 */
static bool hopeless(kn_pool *pool, const request *r) {
    uint64_t most = kn__pool_capacity(pool), live = (uint64_t)kn__pool_live(pool);
    live -= live < pool->dropped ? live : pool->dropped; /* live, and without memory */
    if (most < pool->reserved) most = pool->reserved;
    size_t least =
        r->size_class == KN__NO_SIZE_CLASS ? r->size : kn__size_class_bytes(r->size_class);
    return least > most - (live < most ? live : most);
}

static bool climb_once(kn_pool *pool, request *r, bool again) {
    bool capturing = r->capturing = kn__stream_capturing(pool, r->stream->handle);
    if (capturing && r->stream->handle && !r->stream->graph) kn__graph_missing(pool);
    bool above = !capturing && pool->reserved + r->size > pool->soft_limit;
    int now = (above ? ABOVE_SOFT : BELOW_SOFT) | (capturing ? 0 : CALM) | (again ? 0 : FIRST);
    if (!capturing && !pool->ordered) now |= FOREIGN;
    if (!pool->pinned && !r->stream->graph) now |= WAITS;
    r->evicted = false;
    r->waits = (now & FOREIGN) && (now & WAITS);
    if (hopeless(pool, r)) kn__device_free_read(pool); /* others may have given memory back */
    uint64_t start = kn__now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < KN__RUNGS; i++) {
        int when = LADDER[i].when;
        if (when & ROOM) now = hopeless(pool, r) ? now & ~ROOM : now | ROOM;
        if ((when & now) != when) continue;
        bool done = LADDER[i].fn(pool, r);
        uint64_t end = kn__now_ns(CLOCK_MONOTONIC);
        pool->rungs[i].n_tried += !again;
        pool->rungs[i].n_served += done;
        pool->rungs[i].ns += end - start;
        if (done) return true;
        start = end;
    }
    return false;
}

/* A number that is another one when a rung has changed anything. */
static uint64_t stamp(const kn_pool *pool) {
    return pool->n_changes + pool->n_device_allocs + pool->n_device_frees + pool->n_events;
}

/* A thread that is at work in its cache keeps all of it. It soon comes out, unless it was preempted
 * there: a request that would fail without that memory waits for it, for a while. */
static bool wait_for_caches(kn_pool *pool, request *r) {
    enum { WAITS_MAX = 100 };
    const struct timespec wait = {.tv_nsec = 1000000};
    for (int i = 0; i < WAITS_MAX && !hopeless(pool, r); i++) {
        bool all = kn__caches_flush(pool);
        if (climb_once(pool, r, true)) return true;
        if (all) break;
        kn__pool_unlock(pool);
        nanosleep(&wait, NULL);
        kn__pool_lock(pool);
    }
    return false;
}

/* What one rung does may be what an earlier one needs. So a request fails only after a climb that
 * changed nothing: the same one made again would fail too. */
static bool climb(kn_pool *pool, request *r) {
    enum { CLIMBS_MAX = 8 };
    bool done = climb_once(pool, r, false);
    while (!done && r->evicted) done = climb_once(pool, r, false);
    for (int i = 0; i < CLIMBS_MAX && !done; i++) {
        uint64_t before = stamp(pool);
        done = climb_once(pool, r, true);
        if (stamp(pool) == before) break;
    }
    done = done || wait_for_caches(pool, r);
    pool->n_ooms += !done;
    return done;
}

kn_status kn__ladder(kn__block **out, kn_pool *pool, kn__stream *stream, size_t size, size_t align,
                     unsigned size_class, size_t requested) {
    request r = {.stream = stream, .size = size, .align = align, .size_class = size_class};
    r.cache = kn__cache_of_thread(pool);
    bool found = own(pool, &r);
    if (!found && pool->apart) {
        kn__arena_merge(pool, stream);
        found = own(pool, &r);
    }
    if (found) { /* a slab out of free memory: with no call of the driver */
        pool->rungs[KN__RUNG_own].n_tried++;
        pool->rungs[KN__RUNG_own].n_served++;
        *out = r.found;
        return KN_OK;
    }
    KN__CANCEL_LATER();
    if (!climb(pool, &r)) return out_of_memory(pool, &r, requested);
    KN_ASSERT(served(&r));
    *out = r.found;
    return KN_OK;
}
