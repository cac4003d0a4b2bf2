#include "cancel.h"
#include "core/arena.h"
#include "core/reserve.h"
#include "core/streams.h"
#include "device/thread.h"

/* The stream with this handle: its own record, or the one that is shown, which may be a graph's. */
static kn__stream *find_by_handle(const kn_pool *pool, kn_stream handle, bool shown) {
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        kn__stream *stream = pool->streams[i];
        if (stream->handle == handle && !stream->retired &&
            (shown ? !stream->hidden : !stream->graph))
            return stream;
    }
    return NULL;
}

uint64_t kn__stream_known_key(const kn_pool *pool, kn_stream handle) {
    uint64_t key = kn__stream_key(pool, handle);
    if ((uintptr_t)handle <= KN__STREAM_PER_THREAD) return key;
    if (kn__key_is_id(key) && kn__stream_lookup(pool, key, NULL)) return key;
    kn__stream *known = find_by_handle(pool, handle, false);
    /* Where one of the two has no id, it is the same stream. */
    return known && !(kn__key_is_id(key) && kn__key_is_id(known->key)) ? known->key : key;
}

/* Another stream has this handle. Where the driver gave no id for one of the two, it is the same
 * one; else the other was destroyed unannounced: its work may still run, and no event can be
 * recorded on it. */
static kn__stream *same_stream(kn_pool *pool, kn__stream *other, uint64_t key) {
    if (!kn__key_is_id(key)) return other;
    if (!kn__key_is_id(other->key)) {
        uint64_t before = other->key;
        for (uint32_t i = 0; i < pool->n_streams; i++) /* its parts in graphs too */
            if (pool->streams[i]->key == before && !pool->streams[i]->retired)
                pool->streams[i]->key = key;
        kn__streams_changed(pool);
        return kn__streams_find(pool, key); /* the one that is shown: its own, or a graph's */
    }
    kn__stream_retire(pool, other, true);
    return NULL;
}

static kn_status stream_first_seen(kn__stream **out, kn_pool *pool, kn_stream handle,
                                   uint64_t key) {
    KN__CANCEL_LATER();
    bool named = (uintptr_t)handle > KN__STREAM_PER_THREAD;
    kn__stream *other = named ? find_by_handle(pool, handle, !kn__key_is_id(key)) : NULL;
    if (other && (*out = same_stream(pool, other, key))) return KN_OK;
    if (pool->driver->stream_check) KN_TRY(pool->driver->stream_check(pool->impl, handle));
    if ((uintptr_t)handle == KN__STREAM_PER_THREAD && kn__self) kn__self->has_default_stream = true;
    kn__stream *stream = *out = kn__streams_add(pool, handle, key);
    if (!stream) return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory for a stream", pool->name);
    kn__streams_show(pool, stream);
    /* Now that there are two, what the first one freed may be wanted by the other. */
    if (pool->close_bytes == UINT64_MAX) kn__close_bytes_set(pool);
    for (uint32_t i = 0; pool->n_streams == 2 && i < 2; i++) {
        (void)kn__epoch_close(pool, pool->streams[i]);
    }
    return KN_OK;
}

kn_status kn__stream_find(kn__stream **out, kn_pool *pool, kn_stream handle, uint64_t key) {
    kn__stream *stream = kn__streams_find(pool, key);
    if (!stream) KN_TRY(stream_first_seen(&stream, pool, handle, key));
    *out = pool->recent = stream;
    return KN_OK;
}

void kn__stream_retire(kn_pool *pool, kn__stream *stream, bool gone) {
    KN_ASSERT(!stream->retired);
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
    if (kn__epoch_finished(pool, stream, kn__stream_epoch(stream))) {
        kn__arena_move(pool, stream, KN__EPOCH_NEVER, pool->idle, 0);
    }
    kn__streams_changed(pool);
}
