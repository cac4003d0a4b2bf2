/* Streams, and what waits on them.
 *
 * What is freed on a stream belongs to the stream's open epoch. Nothing is recorded then. Only when
 * another stream wants the memory, or the block was used on another stream, is the epoch closed:
 * one event, recorded after every free it covers. A stream that waited for an epoch of another one
 * may use all that was freed in it and before, with no further event. */
#include <string.h>

#include "observe.h"
#include "pool_types.h"

enum { WAITED_MAX = 1024 };

/* Above this much freed and waiting memory events are recorded at the free: waiting longer would
 * make them cover ever more later work. */
static const size_t OPEN_BYTES_MAX = (size_t)256 << 20;

/* Streams. */

kn__stream *kn__stream_new(kn_pool *pool, kn_stream handle, uint32_t index) {
    kn__stream *stream = kn__meta_alloc(&pool->meta, sizeof *stream);
    if (!stream) return NULL;
    stream->handle = handle;
    stream->index = index;
    stream->epoch = 1;
    stream->bins.words[KN__BINS / 64] = 1; /* a search ends here */
    return stream;
}

static bool reusable(const kn__stream *stream) {
    return stream->retired && stream->refs == 0 && stream->n_marks == 0;
}

static kn__stream *stream_reuse(kn__stream *stream, kn_stream handle) {
    stream->handle = handle;
    stream->retired = stream->dirty = stream->lost = stream->hidden = false;
    stream->done = stream->epoch++; /* numbers are never used twice: others remember them */
    if (stream->waited) memset(stream->waited, 0, stream->n_waited * sizeof *stream->waited);
    return stream;
}

kn__stream *kn__stream_find(kn_pool *pool, kn_stream handle) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (stream->handle == handle && !stream->retired && !stream->hidden) {
            return pool->recent = stream;
        }
    }
    return pool->recent = kn__stream_make(pool, handle);
}

kn__stream *kn__stream_make(kn_pool *pool, kn_stream handle) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        if (reusable(pool->streams[i])) return stream_reuse(pool->streams[i], handle);
    }
    if (pool->n_streams == pool->streams_room) {
        uint32_t room = pool->streams_room ? 2 * pool->streams_room : 8;
        kn__stream **streams =
            kn__meta_grow(&pool->meta, pool->streams, pool->streams_room * sizeof *streams,
                          room * sizeof *streams);
        if (!streams) return NULL;
        pool->streams = streams;
        pool->streams_room = room;
    }
    kn__stream *stream = kn__stream_new(pool, handle, pool->n_streams);
    if (stream) pool->streams[pool->n_streams++] = stream;
    return stream;
}

bool kn__stream_capturing(const kn_pool *pool, kn_stream handle) {
    return pool->driver->stream_capturing && pool->driver->stream_capturing(pool->impl, handle);
}

bool kn__epoch_finished(const kn_pool *pool, const kn__stream *stream, uint64_t epoch) {
    return stream == pool->idle || kn__pool_ordered(pool) || epoch <= stream->done;
}

static uint64_t waited(const kn__stream *by, const kn__stream *stream) {
    return stream->index < by->n_waited ? by->waited[stream->index] : 0;
}

bool kn__epoch_usable(const kn_pool *pool, const kn__stream *by, const kn__block *block) {
    return block->stream == by || kn__epoch_finished(pool, block->stream, block->epoch) ||
           block->epoch <= waited(by, block->stream);
}

void kn__block_adopt(kn_pool *pool, kn__block *block, kn__stream *by) {
    KN_ASSERT(block->state == KN__FREE && kn__epoch_usable(pool, by, block));
    uint64_t epoch = by->epoch; /* by's next event comes after its wait for the block's stream */
    if (block->stream == by) {
        epoch = block->epoch;
    } else if (kn__epoch_finished(pool, block->stream, block->epoch)) {
        epoch = 0;
    }
    kn__bins_remove(&block->stream->bins, block);
    kn__block_free(pool, block, by, epoch);
}

/* Events. */

static kn_status event_get(kn_pool *pool, void **out) {
    if (pool->n_events_free) {
        *out = pool->events[--pool->n_events_free];
        return KN_OK;
    }
    return pool->driver->event_create(pool->impl, out);
}

static void event_put(kn_pool *pool, void *event) {
    if (pool->n_events_free == pool->events_room) {
        uint32_t room = pool->events_room ? 2 * pool->events_room : 16;
        void **events = kn__meta_grow(&pool->meta, pool->events, pool->events_room * sizeof *events,
                                      room * sizeof *events);
        if (!events) {
            pool->driver->event_destroy(pool->impl, event);
            return;
        }
        pool->events = events;
        pool->events_room = room;
    }
    pool->events[pool->n_events_free++] = event;
}

/* One mark more; where there is no room the youngest one's event is recorded again: it then covers
 * more, later. */
static kn_status record(kn_pool *pool, kn__stream *stream) {
    bool full = stream->n_marks == KN__MARKS;
    void *event = NULL;
    if (full) {
        event = stream->marks[KN__MARKS - 1].event;
    } else {
        KN_TRY(event_get(pool, &event));
    }
    kn_status status = pool->driver->event_record(pool->impl, event, stream->handle);
    if (status < 0) {
        if (!full) event_put(pool, event);
        return status;
    }
    if (!full) stream->n_marks++;
    stream->marks[stream->n_marks - 1] = (kn__mark){.epoch = stream->epoch, .event = event};
    stream->epoch++;
    stream->dirty = false;
    pool->n_events++;
    return KN_OK;
}

kn_status kn__epoch_close(kn_pool *pool, kn__stream *stream) {
    if (!stream->dirty || stream->retired || stream->graph) return KN_OK;
    if (kn__epoch_finished(pool, stream, stream->epoch)) return KN_OK; /* the CPU's own */
    if (kn__stream_capturing(pool, stream->handle)) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "pool %s: a stream that is being captured holds memory that is wanted",
                       pool->name);
    }
    return record(pool, stream);
}

static void remember_wait(kn_pool *pool, kn__stream *by, const kn__stream *stream, uint64_t epoch) {
    if (stream->index >= WAITED_MAX) return;
    if (stream->index >= by->n_waited) {
        uint32_t n = by->n_waited ? by->n_waited : 8;
        while (n <= stream->index) n *= 2;
        uint64_t *grown =
            kn__meta_grow(&pool->meta, by->waited, by->n_waited * sizeof *grown, n * sizeof *grown);
        if (!grown) return; /* the next wait is then made again */
        by->waited = grown;
        by->n_waited = n;
    }
    by->waited[stream->index] = epoch;
}

kn_status kn__epoch_wait(kn_pool *pool, kn__stream *by, kn__stream *stream, uint64_t epoch) {
    if (by == stream || kn__epoch_finished(pool, stream, epoch)) return KN_OK;
    if (epoch <= waited(by, stream)) return KN_OK;
    if (stream->graph) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "pool %s: memory of a graph is wanted", pool->name);
    }
    if (epoch == stream->epoch) KN_TRY(kn__epoch_close(pool, stream));
    for (uint32_t i = 0; i < stream->n_marks; i++) {
        const kn__mark *mark = &stream->marks[i];
        if (mark->epoch < epoch) continue;
        KN_TRY(pool->driver->event_wait(pool->impl, mark->event, by->handle));
        remember_wait(pool, by, stream, mark->epoch);
        return KN_OK;
    }
    return KN_FAIL(KN_ERR_INTERNAL, "pool %s: epoch %llu of a stream has no event", pool->name,
                   (unsigned long long)epoch);
}

/* Waiters: freed blocks and slots that other streams may still use. */

static void waiter_link(kn__waiter **head, kn__waiter *waiter) {
    waiter->prev = NULL;
    waiter->next = *head;
    if (waiter->next) waiter->next->prev = waiter;
    *head = waiter;
}

static void waiter_unlink(kn__waiter **head, kn__waiter *waiter) {
    if (waiter->next) waiter->next->prev = waiter->prev;
    if (waiter->prev) {
        waiter->prev->next = waiter->next;
    } else {
        *head = waiter->next;
    }
}

static size_t waiter_bytes(const kn__waiter *waiter) {
    return waiter->block ? waiter->block->size : waiter->slab->slot_bytes;
}

kn_status kn__use_add(kn_pool *pool, kn__waiter **waiter, kn__stream *stream) {
    if (*waiter) {
        for (kn__use *use = (*waiter)->uses; use; use = use->next) {
            if (use->stream == stream) return KN_OK;
        }
    }
    kn__use *use = kn__meta_alloc(&pool->meta, sizeof *use);
    if (use && !*waiter) *waiter = kn__meta_alloc(&pool->meta, sizeof **waiter);
    if (!use || !*waiter) {
        if (use) kn__meta_free(&pool->meta, use, sizeof *use);
        return KN_FAIL(KN_ERR_OOM, "kn_block_use: no host memory");
    }
    use->stream = stream;
    use->waiter = *waiter;
    use->next = (*waiter)->uses;
    (*waiter)->uses = use;
    stream->refs++;
    return KN_OK;
}

void kn__waiter_enqueue(kn_pool *pool, kn__waiter *waiter) {
    waiter_link(&pool->waiters, waiter);
    for (kn__use *use = waiter->uses; use; use = use->next) {
        kn__stream *stream = use->stream;
        use->epoch = kn__stream_epoch(stream);
        stream->dirty |= !stream->retired;
        if (stream->youngest_use) {
            stream->youngest_use->younger = use;
        } else {
            stream->oldest_use = use;
        }
        stream->youngest_use = use;
        waiter->n_uses++;
    }
    size_t bytes = waiter_bytes(waiter);
    pool->waiting_bytes += bytes;
    pool->waiting_open_bytes += bytes;
    if (waiter->block) {
        kn__block *block = waiter->block;
        kn__block_set(block, KN__WAITING, kn__stream_epoch(block->stream));
        block->stream->dirty |= !block->stream->retired;
    }
    if (pool->waiting_open_bytes > OPEN_BYTES_MAX) kn__epochs_close_used(pool);
}

static void waiter_drop(kn_pool *pool, kn__waiter *waiter) {
    for (kn__use *use = waiter->uses, *next; use; use = next) {
        next = use->next;
        use->stream->refs--;
        kn__meta_free(&pool->meta, use, sizeof *use);
    }
    kn__meta_free(&pool->meta, waiter, sizeof *waiter);
}

/* All uses are done: the block is its home stream's again. */
static void waiter_finish(kn_pool *pool, kn__waiter *waiter) {
    if (waiter->block || waiter->slab) {
        waiter_unlink(&pool->waiters, waiter);
        pool->waiting_bytes -= waiter_bytes(waiter);
    }
    if (waiter->block) {
        kn__block *block = waiter->block;
        bool gone = block->stream->retired && kn__epoch_finished(pool, block->stream, block->epoch);
        /* its epoch is still that of its free */
        kn__block_free(pool, block, gone ? pool->idle : block->stream, gone ? 0 : block->epoch);
    } else if (waiter->slab) {
        waiter->slab->n_waiting--;
        kn__slab_put(pool, waiter->slab, waiter->slot);
    }
    waiter_drop(pool, waiter);
}

kn_status kn__waiter_take(kn_pool *pool, kn__waiter *waiter, kn__stream *by) {
    kn__block *block = waiter->block;
    KN_TRY(kn__epoch_wait(pool, by, block->stream, block->epoch));
    for (kn__use *use = waiter->uses; use; use = use->next) {
        KN_TRY(kn__epoch_wait(pool, by, use->stream, use->epoch));
    }
    waiter_unlink(&pool->waiters, waiter);
    pool->waiting_bytes -= waiter_bytes(waiter);
    waiter->block = NULL; /* the record stays until its uses leave their streams' queues */
    kn__block_free(pool, block, by, by->epoch);
    return KN_OK;
}

/* Progress. */

static void uses_finish(kn_pool *pool, kn__stream *stream) {
    while (stream->oldest_use && stream->oldest_use->epoch <= stream->done) {
        kn__use *use = stream->oldest_use;
        stream->oldest_use = use->younger;
        if (!stream->oldest_use) stream->youngest_use = NULL;
        if (--use->waiter->n_uses == 0) waiter_finish(pool, use->waiter);
    }
}

/* Free blocks of a stream that is gone and done belong to all. */
static void retired_finish(kn_pool *pool, kn__stream *stream) {
    for (unsigned bin = 0; bin < KN__BINS; bin++) {
        for (kn__block *block; (block = stream->bins.head[bin]);) {
            kn__bins_remove(&stream->bins, block);
            kn__block_free(pool, block, pool->idle, 0);
        }
    }
}

/* The first n marks happened. */
static void marks_done(kn_pool *pool, kn__stream *stream, uint32_t n) {
    if (stream->marks[n - 1].epoch > stream->done) stream->done = stream->marks[n - 1].epoch;
    for (uint32_t i = 0; i < n; i++) event_put(pool, stream->marks[i].event);
    stream->n_marks -= n;
    memmove(stream->marks, stream->marks + n, stream->n_marks * sizeof stream->marks[0]);
    uses_finish(pool, stream);
    if (stream->retired && stream->done >= kn__stream_epoch(stream)) retired_finish(pool, stream);
}

static bool mark_happened(kn_pool *pool, const kn__stream *stream, uint32_t i) {
    bool done = false;
    pool->n_queries++;
    kn_status status = pool->driver->event_query(pool->impl, stream->marks[i].event, &done);
    return status == KN_OK && done;
}

enum { FEW_MARKS = 8 };

/* The youngest mark first, which says it of all before it; else, of many, one in the middle.
 * Returns how many were asked. */
static int marks_poll(kn_pool *pool, kn__stream *stream) {
    uint32_t n = stream->n_marks;
    if (!n) return 0;
    if (mark_happened(pool, stream, n - 1)) {
        marks_done(pool, stream, n);
        return 1;
    }
    if (n < FEW_MARKS) return 1;
    if (mark_happened(pool, stream, (n - 1) / 2)) marks_done(pool, stream, (n - 1) / 2 + 1);
    return 2;
}

void kn__epochs_poll(kn_pool *pool, int n_queries) {
    for (uint32_t i = 0; i < pool->n_streams && n_queries > 0; i++) {
        kn__stream *stream = pool->streams[(pool->poll_next + i) % pool->n_streams];
        uses_finish(pool, stream);
        n_queries -= marks_poll(pool, stream);
    }
    if (pool->n_streams) pool->poll_next = (pool->poll_next + 1) % pool->n_streams;
}

void kn__epochs_close_used(kn_pool *pool) {
    pool->waiting_open_bytes = 0;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        const kn__use *last = stream->youngest_use;
        /* A failure leaves the epoch open; whoever needs it next tries again. */
        if (last && last->epoch == stream->epoch) (void)kn__epoch_close(pool, stream);
    }
}

void kn__epochs_settle(kn_pool *pool) {
    kn__kept_release(pool);
    if (kn__pool_ordered(pool)) return;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        (void)marks_poll(pool, stream);
        bool lags = stream->n_marks > 0;
        (void)kn__epoch_close(pool, stream);
        if (!lags) (void)marks_poll(pool, stream);
        uses_finish(pool, stream);
    }
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        for (unsigned bin = 0; bin < KN__BINS; bin++) {
            for (kn__block *block = stream->bins.head[bin], *next; block; block = next) {
                next = block->next;
                if (block->epoch > stream->done) continue;
                kn__bins_remove(&stream->bins, block);
                kn__block_free(pool, block, pool->idle, 0);
            }
        }
    }
}

bool kn__epochs_sync_one(kn_pool *pool) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (!stream->n_marks) continue;
        if (pool->driver->event_sync(pool->impl, stream->marks[0].event) < 0) continue;
        pool->n_syncs++;
        marks_done(pool, stream, 1);
        return true;
    }
    return false;
}

bool kn__epochs_finish(kn_pool *pool) {
    kn__kept_release(pool);
    if (kn__pool_ordered(pool)) return true;
    bool all = true;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        stream->dirty |= stream->refs > 0;
        if (kn__epoch_close(pool, stream) < 0) {
            kn_log_write(1, "kn_pool_destroy: pool %s: a stream can't be waited for: %s",
                         pool->name, kn_last_error()->message);
            all = false;
        }
    }
    while (kn__epochs_sync_one(pool)) {
    }
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        all &= pool->streams[i]->n_marks == 0;
        all &= !pool->streams[i]->lost || pool->streams[i]->refs == 0;
        for (uint32_t m = 0; m < pool->streams[i]->n_marks; m++) {
            event_put(pool, pool->streams[i]->marks[m].event);
        }
        pool->streams[i]->n_marks = 0;
    }
    while (pool->n_events_free) {
        pool->driver->event_destroy(pool->impl, pool->events[--pool->n_events_free]);
    }
    return all;
}

void kn__stream_retire(kn_pool *pool, kn__stream *stream) {
    kn__kept_release(pool);
    stream->dirty = true; /* blocks that are live now are covered by the same event */
    kn_status status = kn__epoch_close(pool, stream);
    bool captured = kn__stream_capturing(pool, stream->handle); /* which a sync would end */
    if (status < 0 && !captured && pool->driver->stream_sync(pool->impl, stream->handle) == KN_OK) {
        pool->n_syncs++;
        stream->done = stream->epoch++;
    } else if (status < 0) {
        stream->epoch++; /* never known to be done: its memory stays out of use */
        stream->lost = true;
        kn_log_write(1, "pool %s: a stream was retired and can't be waited for: %s", pool->name,
                     kn_last_error()->message);
    }
    stream->retired = true;
    if (kn__epoch_finished(pool, stream, kn__stream_epoch(stream))) retired_finish(pool, stream);
}
