#include <string.h>

#include "core/streams.h"

kn__stream *kn__stream_create(kn_pool *pool, kn_stream handle, uint32_t index) {
    kn__stream *stream = kn__meta_alloc(&pool->meta, sizeof *stream);
    if (!stream) return NULL;
    stream->handle = handle;
    stream->index = index;
    stream->epoch = 1;
    kn__bins_init(&stream->bins);
    return stream;
}

/* The table has the streams that can be found: neither retired nor hidden. */
void kn__streams_show(kn_pool *pool, kn__stream *stream) {
    if (stream->retired || stream->hidden) return;
    kn__stream_place *place =
        kn__hash_put(&pool->by_key, sizeof *place, kn__hash_of_stream(stream->key));
    KN_ASSERT(!place->stream);
    place->stream = stream;
}

void kn__streams_changed(kn_pool *pool) {
    pool->recent = NULL;
    kn__hash_clear(&pool->by_key, sizeof(kn__stream_place));
    for (uint32_t i = 0; i < pool->n_streams; i++) kn__streams_show(pool, pool->streams[i]);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
}

/* In the list and in the table, both in the pool's own host memory. */
bool kn__streams_room(kn_pool *pool) {
    kn__hash *table = &pool->by_key;
    size_t n_before = table->n_slots, n = kn__hash_next_size(table, 16);
    if (pool->n_streams < n_before / 2) return true;
    void *places = kn__meta_alloc(&pool->meta, n * sizeof(kn__stream_place));
    kn__stream **streams =
        kn__meta_grow(&pool->meta, pool->streams, n_before / 2 * sizeof(kn__stream *),
                      n / 2 * sizeof(kn__stream *));
    if (streams) pool->streams = streams;
    if (!streams || !places) {
        kn__meta_free(&pool->meta, places, n * sizeof(kn__stream_place));
        return false;
    }
    void *old = kn__hash_move(table, sizeof(kn__stream_place), places, n);
    kn__meta_free(&pool->meta, old, n_before * sizeof(kn__stream_place));
    return true;
}

/* No memory of the pool waits for the old stream's work any more, so its events are not needed.
 * Recorded again, an event is of its new stream alone. */
static void stream_reuse(kn_pool *pool, kn__stream *stream, kn_stream handle) {
    KN_ASSERT(stream->retired && stream->refs == 0);
    for (uint32_t i = 0; i < stream->n_events; i++) kn__event_put(pool, stream->events[i].event);
    stream->n_events = 0;
    stream->handle = handle;
    stream->open_bytes = 0;
    stream->retired = stream->lost = stream->hidden = false;
    stream->done = stream->epoch++; /* numbers are never used twice: others remember them */
    if (stream->waited) memset(stream->waited, 0, stream->n_waited * sizeof *stream->waited);
}

kn__stream *kn__streams_add(kn_pool *pool, kn_stream handle, uint64_t key) {
    kn__stream *stream = NULL;
    for (uint32_t i = 0; i < pool->n_streams && !stream; i++) {
        if (pool->streams[i]->retired && pool->streams[i]->refs == 0) stream = pool->streams[i];
    }
    if (stream) {
        stream_reuse(pool, stream, handle);
    } else {
        if (!kn__streams_room(pool)) return NULL;
        if (!(stream = kn__stream_create(pool, handle, pool->n_streams))) return NULL;
        pool->streams[pool->n_streams++] = stream;
    }
    stream->key = key;
    return stream;
}

kn__stream *kn__stream_lookup(const kn_pool *pool, uint64_t key, const kn_pool_graph *graph) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (stream->key == key && stream->graph == graph && !stream->retired) return stream;
    }
    return NULL;
}

bool kn__stream_of_another_thread(const kn__stream *stream) {
    return (uintptr_t)stream->handle == KN__STREAM_PER_THREAD &&
           stream->key != ((uintptr_t)kn__self | KN__STREAM_PER_THREAD);
}

bool kn__stream_capturing(const kn_pool *pool, kn_stream handle) {
    return pool->driver->stream_capturing && pool->driver->stream_capturing(pool->impl, handle);
}
