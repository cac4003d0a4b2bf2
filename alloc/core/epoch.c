/* Streams, and what waits on them.
 *
 * What is freed on a stream belongs to the stream's open epoch. An epoch closes with one event,
 * recorded after every free it covers: when much was freed in it and the pool has several streams,
 * when blocks that it uses are wanted, or when another stream takes its memory. A stream that
 * waited for an epoch of another one may use all that was freed in it and before, with no further
 * event.
 *
 * Streams are told apart by a key: the driver's id of the stream, which is never used again, where
 * the driver has ids; else the handle. */
#include <string.h>

#include "mix.h"
#include "device/observe.h"
#include "core/pool_types.h"

/* The least that closes an epoch: an event each 64 MiB costs less than the work on 64 MiB. Of a
 * large pool it is 1/64 of what is reserved. */
static const uint64_t CLOSE_BYTES_MIN = (uint64_t)64 << 20;
enum { CLOSE_SHARE = 64 };

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

static size_t place_of(const kn_pool *pool, uint64_t key) {
    return (size_t)((key * KN__GOLDEN) >> 32) & (pool->n_places - 1);
}

/* The table has the streams that can be found: neither retired nor hidden. */
static void place(kn_pool *pool, kn__stream *stream) {
    if (stream->retired || stream->hidden) return;
    size_t i = place_of(pool, stream->key);
    while (pool->places[i]) i = (i + 1) & (pool->n_places - 1);
    pool->places[i] = stream;
}

void kn__streams_changed(kn_pool *pool) {
    pool->recent = NULL;
    memset(pool->places, 0, pool->n_places * sizeof *pool->places);
    for (uint32_t i = 0; i < pool->n_streams; i++) place(pool, pool->streams[i]);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
}

/* Room for one stream more, in the list and, at most half full, in the table. */
bool kn__streams_room(kn_pool *pool) {
    if (pool->n_streams < pool->n_places / 2) return true;
    size_t n = pool->n_places ? 2 * pool->n_places : 16;
    kn__stream **places = kn__meta_alloc(&pool->meta, n * sizeof(kn__stream *));
    kn__stream **streams =
        kn__meta_grow(&pool->meta, pool->streams, pool->n_places / 2 * sizeof(kn__stream *),
                      n / 2 * sizeof(kn__stream *));
    if (streams) pool->streams = streams;
    if (!streams || !places) {
        kn__meta_free(&pool->meta, places, n * sizeof(kn__stream *));
        return false;
    }
    kn__meta_free(&pool->meta, pool->places, pool->n_places * sizeof(kn__stream *));
    pool->places = places;
    pool->n_places = n;
    for (uint32_t i = 0; i < pool->n_streams; i++) place(pool, pool->streams[i]);
    return true;
}

static void stream_reuse(kn__stream *stream, kn_stream handle) {
    stream->handle = handle;
    stream->open_bytes = 0;
    stream->retired = stream->lost = stream->hidden = false;
    stream->done = stream->epoch++; /* numbers are never used twice: others remember them */
    if (stream->waited) memset(stream->waited, 0, stream->n_waited * sizeof *stream->waited);
}

void kn__close_bytes_set(kn_pool *pool) {
    uint64_t share = pool->reserved / CLOSE_SHARE;
    pool->close_bytes = share > CLOSE_BYTES_MIN ? share : CLOSE_BYTES_MIN;
    if (pool->n_streams <= 1 || pool->ordered) pool->close_bytes = UINT64_MAX;
}

kn__stream *kn__stream_make(kn_pool *pool, kn_stream handle, uint64_t key) {
    kn__stream *stream = NULL;
    for (uint32_t i = 0; i < pool->n_streams && !stream; i++) {
        if (pool->streams[i]->retired && pool->streams[i]->refs == 0) stream = pool->streams[i];
    }
    if (stream) {
        stream_reuse(stream, handle);
    } else {
        if (!kn__streams_room(pool)) return NULL;
        if (!(stream = kn__stream_new(pool, handle, pool->n_streams))) return NULL;
        pool->streams[pool->n_streams++] = stream;
    }
    stream->key = key;
    return stream;
}

/* Two low bits say what kind of key it is: 0 a handle, 1 and 2 see KN__STREAM_…, 3 an id. */
enum { KEY_ID = 3 };

uint64_t kn__stream_key(const kn_pool *pool, kn_stream handle) {
    uintptr_t value = (uintptr_t)handle;
    if (value == KN__STREAM_PER_THREAD) return (uintptr_t)kn__thread_get() | value;
    if (value <= KN__STREAM_LEGACY) return pool->pinned ? value : 0;
    uint64_t id = pool->has_ids ? pool->driver->stream_id(pool->impl, handle) : 0;
    return id ? id << 2 | KEY_ID : value;
}

kn__stream *kn__stream_lookup(const kn_pool *pool, uint64_t key, const kn_pool_graph *graph) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (stream->key == key && stream->graph == graph && !stream->retired) return stream;
    }
    return NULL;
}

static kn__stream *find_by_handle(const kn_pool *pool, kn_stream handle) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (stream->handle == handle && !stream->retired && !stream->graph) return stream;
    }
    return NULL;
}

/* Another stream has this handle. Where the driver told no id, of one of the two, it is the same
 * one; else the other was destroyed unannounced: what it had enqueued may still run, and no event
 * can be recorded on it. */
static kn__stream *same_stream(kn_pool *pool, kn__stream *other, uint64_t key) {
    if ((key & KEY_ID) != KEY_ID) return other;
    if ((other->key & KEY_ID) != KEY_ID) {
        other->key = key;
        kn__streams_changed(pool);
        return other;
    }
    kn__stream_retire(pool, other, true);
    return NULL;
}

static kn_status stream_first_seen(kn__stream **out, kn_pool *pool, kn_stream handle,
                                   uint64_t key) {
    bool named = (uintptr_t)handle > KN__STREAM_PER_THREAD;
    kn__stream *other = named ? find_by_handle(pool, handle) : NULL;
    if (other && (*out = same_stream(pool, other, key))) return KN_OK;
    if (pool->driver->stream_check) KN_TRY(pool->driver->stream_check(pool->impl, handle));
    if ((uintptr_t)handle == KN__STREAM_PER_THREAD && kn__self) kn__self->has_default_stream = true;
    kn__stream *stream = *out = kn__stream_make(pool, handle, key);
    if (!stream) return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a stream", pool->name);
    place(pool, stream);
    /* Now that there are two, what the first one freed may be wanted by the other. */
    if (pool->close_bytes == UINT64_MAX) kn__close_bytes_set(pool);
    for (uint32_t i = 0; pool->n_streams == 2 && i < 2; i++) {
        (void)kn__epoch_close(pool, pool->streams[i]);
    }
    return KN_OK;
}

kn_status kn__stream_find(kn__stream **out, kn_pool *pool, kn_stream handle) {
    uint64_t key = kn__stream_key(pool, handle);
    kn__stream *stream = pool->recent;
    if (KN__UNLIKELY(!stream || stream->key != key)) {
        size_t i = place_of(pool, key);
        while ((stream = pool->places[i]) && stream->key != key) i = (i + 1) & (pool->n_places - 1);
        if (!stream) KN_TRY(stream_first_seen(&stream, pool, handle, key));
        pool->recent = stream;
    }
    *out = stream;
    return KN_OK;
}

bool kn__stream_capturing(const kn_pool *pool, kn_stream handle) {
    return pool->driver->stream_capturing && pool->driver->stream_capturing(pool->impl, handle);
}

bool kn__epoch_finished(const kn_pool *pool, const kn__stream *stream, uint64_t epoch) {
    return stream == pool->idle || pool->ordered || epoch <= stream->done;
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
    void *event = full ? stream->marks[KN__MARKS - 1].event : NULL;
    if (!full) KN_TRY(event_get(pool, &event));
    kn_status status = pool->driver->event_record(pool->impl, event, stream->handle);
    if (status < 0) {
        if (!full) event_put(pool, event);
        return status;
    }
    if (!full) stream->n_marks++;
    stream->marks[stream->n_marks - 1] = (kn__mark){.epoch = stream->epoch++, .event = event};
    stream->open_bytes = 0;
    pool->n_events++;
    return KN_OK;
}

/* The stream that each thread has under one handle: only the thread itself can name it. */
static bool of_another_thread(const kn__stream *stream) {
    return (uintptr_t)stream->handle == KN__STREAM_PER_THREAD &&
           stream->key != ((uintptr_t)kn__self | KN__STREAM_PER_THREAD);
}

/* An event on the stream that has its handle now would say nothing of this one's work. */
static bool destroyed_unannounced(const kn_pool *pool, const kn__stream *stream) {
    if ((stream->key & KEY_ID) != KEY_ID) return false;
    uint64_t now = kn__stream_key(pool, stream->handle);
    return (now & KEY_ID) == KEY_ID && now != stream->key;
}

/* Something was freed in the open epoch, and only an event can say when that is finished. */
static bool epoch_is_open(const kn_pool *pool, const kn__stream *stream) {
    if (!stream->open_bytes || stream->retired || stream->graph) return false;
    return !kn__epoch_finished(pool, stream, stream->epoch); /* else it is the CPU's own */
}

kn_status kn__epoch_close(kn_pool *pool, kn__stream *stream) {
    const char *why = NULL;
    if (!epoch_is_open(pool, stream)) return KN_OK;
    if (of_another_thread(stream)) {
        why = "another thread's cudaStreamPerThread";
    } else if (destroyed_unannounced(pool, stream)) {
        why = "a stream that was destroyed";
        kn__stream_retire(pool, stream, true);
    } else if (kn__stream_capturing(pool, stream->handle)) {
        why = "a stream that is captured";
    }
    if (!why) return record(pool, stream);
    return KN_FAIL(KN_ERR_UNSUPPORTED, "pool %s: no event can be recorded on %s", pool->name, why);
}

/* After a failure it is tried again when as much was freed once more. */
void kn__epoch_close_full(kn_pool *pool, kn__stream *stream) {
    if (kn__epoch_close(pool, stream) < 0) stream->open_bytes = 1;
}

static void remember_wait(kn_pool *pool, kn__stream *by, const kn__stream *stream, uint64_t epoch) {
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
    size_t bytes = waiter_bytes(waiter);
    KN__LIST_ADD(&pool->waiters, waiter);
    pool->waiting_bytes += bytes;
    if (waiter->block) {
        kn__block *block = waiter->block;
        kn__block_set(block, KN__WAITING, kn__stream_epoch(block->stream));
        if (!block->stream->retired) block->stream->open_bytes += bytes;
    }
    for (kn__use *use = waiter->uses; use; use = use->next) {
        kn__stream *stream = use->stream;
        use->epoch = kn__stream_epoch(stream);
        if (stream->youngest_use) {
            stream->youngest_use->younger = use;
        } else {
            stream->oldest_use = use;
        }
        stream->youngest_use = use;
        waiter->n_uses++;
        if (stream->retired) continue;
        stream->open_bytes += bytes;
        kn__epoch_close_if_full(pool, stream);
    }
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
        KN__LIST_REMOVE(&pool->waiters, waiter);
        pool->waiting_bytes -= waiter_bytes(waiter);
    }
    if (waiter->block) {
        kn__block_release(pool, waiter->block, waiter->block->epoch); /* that of its free */
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
    KN__LIST_REMOVE(&pool->waiters, waiter);
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

/* All streams may use the free blocks of a retired stream whose work is finished. */
static void retired_finish(kn_pool *pool, kn__stream *stream) {
    kn__free_move(pool, stream, KN__EPOCH_NEVER, pool->idle, 0);
}

/* The first n marks happened. */
static void marks_done(kn_pool *pool, kn__stream *stream, uint32_t n) {
    pool->n_changes++;
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

/* The oldest first, until one has not happened. Returns how many were asked. */
static int marks_poll(kn_pool *pool, kn__stream *stream, int n_queries) {
    uint32_t n_done = 0;
    int n_asked = 0;
    while (n_done < stream->n_marks && n_asked < n_queries) {
        n_asked++;
        if (!mark_happened(pool, stream, n_done)) break;
        n_done++;
    }
    if (n_done) marks_done(pool, stream, n_done);
    return n_asked;
}

void kn__epochs_poll(kn_pool *pool, int n_queries) {
    uint32_t n = pool->n_streams, first = pool->poll_next;
    for (uint32_t i = 0; i < n && n_queries > 0; i++) {
        kn__stream *stream = pool->streams[(first + i) % n];
        pool->poll_next = (first + i + 1) % n;
        uses_finish(pool, stream); /* of a stream that was retired before */
        n_queries -= marks_poll(pool, stream, n_queries);
    }
}

void kn__epochs_close_used(kn_pool *pool) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        const kn__use *last = stream->youngest_use;
        /* A failure leaves the epoch open; whoever needs it next tries again. */
        if (last && last->epoch == stream->epoch) (void)kn__epoch_close(pool, stream);
    }
}

void kn__epochs_settle(kn_pool *pool) {
    if (pool->ordered) return;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        (void)marks_poll(pool, stream, KN__MARKS);
        bool lags = stream->n_marks > 0;
        (void)kn__epoch_close(pool, stream);
        if (!lags) (void)marks_poll(pool, stream, KN__MARKS);
        uses_finish(pool, stream);
    }
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__free_move(pool, pool->streams[i], pool->streams[i]->done, pool->idle, 0);
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

/* What only a wait for the device can tell to be done. */
static bool needs_device(const kn_pool *pool, const kn__stream *stream) {
    return epoch_is_open(pool, stream) || (stream->lost && stream->refs > 0);
}

bool kn__epochs_finish(kn_pool *pool) {
    if (pool->ordered) return true;
    bool all = true;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        stream->open_bytes += stream->refs > 0;
        (void)kn__epoch_close(pool, stream);
    }
    while (kn__epochs_sync_one(pool) || kn__epochs_recover(pool)) {
    }
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (needs_device(pool, stream) || stream->n_marks) {
            kn_log_write(1, "kn_pool_destroy: pool %s: stream %p can't be waited for: %s",
                         pool->name, (void *)stream->handle, kn_last_error()->message);
            all = false;
        }
        for (uint32_t m = 0; m < stream->n_marks; m++) event_put(pool, stream->marks[m].event);
        stream->n_marks = 0;
    }
    while (pool->n_events_free) {
        pool->driver->event_destroy(pool->impl, pool->events[--pool->n_events_free]);
    }
    return all;
}

/* Its work ends with an event, or else with a wait of the host. A stream that is gone already, or
 * captured, has neither: its memory is lost until the whole device is waited for. */
void kn__stream_retire(kn_pool *pool, kn__stream *stream, bool gone) {
    stream->open_bytes++; /* blocks that are live now are covered by the same event */
    kn_status status = gone ? KN_ERR_CUDA : kn__epoch_close(pool, stream);
    if (status < 0 && !gone && !kn__stream_capturing(pool, stream->handle)) {
        status = pool->driver->stream_sync(pool->impl, stream->handle);
        pool->n_syncs += status == KN_OK;
        if (status == KN_OK) stream->done = stream->epoch++;
    }
    if (status < 0) {
        stream->epoch++;
        stream->lost = true;
        kn_log_write(1,
                     "pool %s: stream %p %s: its memory is reused only after a wait for the device",
                     pool->name, (void *)stream->handle,
                     gone ? "was destroyed without kn_stream_retire" : "can't be waited for");
    }
    stream->retired = true;
    if (kn__epoch_finished(pool, stream, kn__stream_epoch(stream))) retired_finish(pool, stream);
    kn__streams_changed(pool);
}

/* A capture, which a wait for the device would spoil. */
static bool captures(const kn_pool *pool, const kn__stream *stream) {
    if (stream->graph && !stream->hidden) return true;
    return !stream->retired && !of_another_thread(stream) &&
           kn__stream_capturing(pool, stream->handle);
}

/* Behind a wait for the device. */
static void stream_done(kn_pool *pool, kn__stream *stream) {
    if (epoch_is_open(pool, stream)) {
        stream->epoch++;
        stream->open_bytes = 0;
        stream->done = stream->epoch - 1;
    }
    if (stream->lost) stream->done = kn__stream_epoch(stream);
    if (stream->n_marks) marks_done(pool, stream, stream->n_marks);
    uses_finish(pool, stream);
    if (stream->lost) retired_finish(pool, stream);
    stream->lost = false;
}

bool kn__epochs_recover(kn_pool *pool) {
    bool any = false;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        any |= needs_device(pool, pool->streams[i]);
        if (captures(pool, pool->streams[i])) return false;
    }
    if (!any || !pool->driver->device_sync || pool->driver->device_sync(pool->impl) < 0)
        return false;
    pool->n_syncs++;
    for (uint32_t i = 0; i < pool->n_streams; i++) stream_done(pool, pool->streams[i]);
    return true;
}
