#include "core/progress.h"

#include <limits.h>

#include "cancel.h"
#include "checked.h"
#include "core/arena.h"
#include "core/streams.h"

static bool event_happened(kn_pool *pool, const kn__stream *stream, uint32_t i) {
    bool done = false;
    KN_ASSERT(i < stream->n_events);
    pool->n_queries++;
    kn_status status = pool->driver->event_query(pool->impl, stream->events[i].event, &done);
    return status == KN_OK && done;
}

/* The oldest first, until one has not happened. Returns how many were asked. */
static int events_poll(kn_pool *pool, kn__stream *stream, int n_queries) {
    uint32_t n_done = 0;
    int n_asked = 0;
    while (n_done < stream->n_events && n_asked < n_queries) {
        n_asked++;
        if (!event_happened(pool, stream, n_done)) break;
        n_done++;
    }
    KN_ASSERT(n_done <= stream->n_events);
    if (n_done) kn__epoch_events_done(pool, stream, n_done);
    return n_asked;
}

void kn__epochs_poll(kn_pool *pool, int n_queries) {
    uint32_t n = pool->n_streams, first = pool->poll_next;
    for (uint32_t i = 0; i < n && n_queries > 0; i++) {
        kn__stream *stream = pool->streams[(first + i) % n];
        pool->poll_next = (first + i + 1) % n;
        kn__epoch_uses_finish(pool, stream); /* of a stream that was retired before */
        n_queries -= events_poll(pool, stream, n_queries);
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

void kn__epochs_ask(kn_pool *pool) {
    enum { ASKED_SHARE = 8 };
    if (pool->unasked_bytes < pool->reserved / ASKED_SHARE) return;
    KN__CANCEL_LATER();
    pool->unasked_bytes = 0;
    kn__epochs_close_used(pool);
    kn__epochs_poll(pool, INT_MAX);
}

void kn__epochs_settle(kn_pool *pool) {
    if (pool->ordered) return;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        (void)events_poll(pool, stream, KN__EPOCH_EVENTS);
        bool lags = stream->n_events > 0;
        (void)kn__epoch_close(pool, stream);
        if (!lags) (void)events_poll(pool, stream, KN__EPOCH_EVENTS);
        kn__epoch_uses_finish(pool, stream);
    }
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__arena_move(pool, pool->streams[i], pool->streams[i]->done, pool->idle, 0);
    }
}

bool kn__epochs_sync_one(kn_pool *pool) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (!stream->n_events) continue;
        if (pool->driver->event_sync(pool->impl, stream->events[0].event) < 0) continue;
        pool->n_syncs++;
        kn__epoch_events_done(pool, stream, 1);
        return true;
    }
    return false;
}

/* What only a wait for the device can tell to be done. */
static bool needs_device(const kn_pool *pool, const kn__stream *stream) {
    return kn__epoch_is_open(pool, stream) || (stream->lost && stream->refs > 0);
}

void kn__epochs_sync(kn_pool *pool) {
    if (pool->ordered) return;
    kn__epochs_settle(pool);
    while (kn__epochs_sync_one(pool) || kn__epochs_recover(pool)) {
    }
    kn__epochs_settle(pool);
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
        if (needs_device(pool, stream) || stream->n_events) {
            kn_log_write(1, "kn_pool_destroy: pool %s: stream %p can't be waited for: %s",
                         pool->name, (void *)stream->handle, kn_last_error()->message);
            all = false;
        }
        for (uint32_t m = 0; m < stream->n_events; m++) {
            kn__event_put(pool, stream->events[m].event);
        }
        stream->n_events = 0;
    }
    KN_ASSERT(!all || !kn__epochs_sync_one(pool));
    kn__events_destroy(pool);
    return all;
}

/* A capture, which a wait for the device would spoil. */
static bool captures(const kn_pool *pool, const kn__stream *stream) {
    if (stream->graph && !stream->hidden) return true;
    return !stream->retired && !kn__stream_of_another_thread(stream) &&
           kn__stream_capturing(pool, stream->handle);
}

/* Behind a wait for the device. */
static void stream_done(kn_pool *pool, kn__stream *stream) {
    if (kn__epoch_is_open(pool, stream)) {
        stream->epoch++;
        stream->open_bytes = 0;
        stream->done = stream->epoch - 1;
    }
    KN_ASSERT(!kn__epoch_is_open(pool, stream));
    if (stream->lost) stream->done = kn__stream_epoch(stream);
    if (stream->n_events) kn__epoch_events_done(pool, stream, stream->n_events);
    kn__epoch_uses_finish(pool, stream);
    if (stream->lost) kn__arena_move(pool, stream, KN__EPOCH_NEVER, pool->idle, 0);
    stream->lost = false;
    KN_ASSERT(!needs_device(pool, stream) && !stream->n_events);
}

bool kn__epochs_recover(kn_pool *pool) {
    bool any = false;
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        any |= needs_device(pool, pool->streams[i]);
        if (captures(pool, pool->streams[i])) return false;
    }
    if (!any || !pool->driver->device_sync || pool->driver->device_sync(pool->impl) < 0) {
        return false;
    }
    pool->n_syncs++;
    for (uint32_t i = 0; i < pool->n_streams; i++) stream_done(pool, pool->streams[i]);
    return true;
}
