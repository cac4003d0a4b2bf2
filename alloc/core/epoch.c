#include "core/epoch.h"

#include <string.h>

#include "cancel.h"
#include "core/arena.h"
#include "core/streams.h"

/* One event more; where there is no room the youngest one is recorded again: it then covers more,
 * later. */
static kn_status epoch_record(kn_pool *pool, kn__stream *stream) {
    KN_ASSERT(!stream->retired && !stream->graph && stream->n_events <= KN__EPOCH_EVENTS);
    bool full = stream->n_events == KN__EPOCH_EVENTS;
    void *event = full ? stream->events[KN__EPOCH_EVENTS - 1].event : NULL;
    if (!full) KN_TRY(kn__event_take(pool, &event));
    kn_status status = pool->driver->event_record(pool->impl, event, stream->handle);
    if (status < 0) {
        if (!full) kn__event_put(pool, event);
        return status;
    }
    if (!full) stream->n_events++;
    stream->events[stream->n_events - 1] =
        (kn__epoch_event){.epoch = stream->epoch++, .event = event};
    stream->open_bytes = 0;
    pool->n_events++;
    return KN_OK;
}

/* An event on the stream that has its handle now would say nothing of this one's work. */
static bool destroyed_unannounced(const kn_pool *pool, const kn__stream *stream) {
    if (!kn__key_is_id(stream->key)) return false;
    uint64_t now = kn__stream_key(pool, stream->handle);
    return kn__key_is_id(now) && now != stream->key;
}

bool kn__epoch_is_open(const kn_pool *pool, const kn__stream *stream) {
    if (!stream->open_bytes || stream->retired || stream->graph) return false;
    return !kn__epoch_finished(pool, stream, stream->epoch); /* else it is the CPU's own */
}

kn_status kn__epoch_close(kn_pool *pool, kn__stream *stream) {
    const char *why = NULL;
    if (!kn__epoch_is_open(pool, stream)) return KN_OK;
    if (kn__stream_of_another_thread(stream)) {
        why = "another thread's cudaStreamPerThread";
    } else if (destroyed_unannounced(pool, stream)) {
        why = "a stream that was destroyed";
        kn__stream_retire(pool, stream, true);
    } else if (kn__stream_capturing(pool, stream->handle)) {
        why = "a stream that is captured";
    }
    if (!why) return epoch_record(pool, stream);
    return KN_FAIL(KN_ERR_UNSUPPORTED, "pool %s: no event can be recorded on %s", pool->name, why);
}

/* After a failure it is tried again when as much was freed once more. */
void kn__epoch_close_full(kn_pool *pool, kn__stream *stream) {
    KN__CANCEL_LATER();
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
    KN_ASSERT(by->waited[stream->index] < epoch);
    by->waited[stream->index] = epoch;
}

kn_status kn__epoch_wait(kn_pool *pool, kn__stream *by, kn__stream *stream, uint64_t epoch) {
    if (by == stream || kn__epoch_finished(pool, stream, epoch)) return KN_OK;
    if (epoch <= kn__epoch_waited(by, stream)) return KN_OK;
    KN_ASSERT(epoch <= stream->epoch);
    if (stream->graph) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "pool %s: memory of a graph is wanted", pool->name);
    }
    if (epoch == stream->epoch) KN_TRY(kn__epoch_close(pool, stream));
    for (uint32_t i = 0; i < stream->n_events; i++) {
        const kn__epoch_event *event = &stream->events[i];
        if (event->epoch < epoch) continue;
        KN_TRY(pool->driver->event_wait(pool->impl, event->event, by->handle));
        remember_wait(pool, by, stream, event->epoch);
        return KN_OK;
    }
    return KN_FAIL(KN_ERR_INTERNAL, "pool %s: epoch %llu of a stream has no event", pool->name,
                   (unsigned long long)epoch);
}

void kn__epoch_uses_finish(kn_pool *pool, kn__stream *stream) {
    while (stream->oldest_use && stream->oldest_use->epoch <= stream->done) {
        kn__use *use = stream->oldest_use;
        stream->oldest_use = use->younger;
        if (!stream->oldest_use) stream->youngest_use = NULL;
        kn__use_finish(pool, use);
    }
}

void kn__epoch_events_done(kn_pool *pool, kn__stream *stream, uint32_t n) {
    KN_ASSERT(n > 0 && n <= stream->n_events && stream->events[n - 1].epoch < stream->epoch);
    if (stream->events[n - 1].epoch > stream->done) stream->done = stream->events[n - 1].epoch;
    for (uint32_t i = 0; i < n; i++) kn__event_put(pool, stream->events[i].event);
    stream->n_events -= n;
    memmove(stream->events, stream->events + n, stream->n_events * sizeof stream->events[0]);
    kn__epoch_uses_finish(pool, stream);
    if (stream->retired && stream->done >= kn__stream_epoch(stream)) {
        kn__arena_move(pool, stream, KN__EPOCH_NEVER, pool->idle, 0);
    }
}
