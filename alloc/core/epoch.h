/* Epochs: batches of frees on a stream that one event covers.
 *
 * A block freed on a stream belongs to the stream's open epoch. An epoch closes with one event,
 * recorded after every free it covers: when much was freed in it and the pool has several streams,
 * when blocks that it uses are wanted or much, or when another stream takes its memory. A stream
 * that waited for an epoch of another one may use all that was freed in it and before, with no
 * further event. All under the pool's lock. progress.h asks and waits for events. */
#ifndef KN_ALLOC_EPOCH_H
#define KN_ALLOC_EPOCH_H

#include "core/pool_state.h"

static inline bool kn__epoch_finished(const kn_pool *pool, const kn__stream *stream,
                                      uint64_t epoch) {
    return stream == pool->idle || pool->ordered || epoch <= stream->done;
}

/* The last epoch of the stream that `by` waits for, on the device. */
static inline uint64_t kn__epoch_waited(const kn__stream *by, const kn__stream *stream) {
    return stream->index < by->n_waited ? by->waited[stream->index] : 0;
}

/* Whether `by` may use the free block with no further wait. */
static inline bool kn__epoch_usable(const kn_pool *pool, const kn__stream *by,
                                    const kn__block *block) {
    return block->stream == by || kn__epoch_finished(pool, block->stream, block->epoch) ||
           block->epoch <= kn__epoch_waited(by, block->stream);
}

/* Something was freed in the open epoch, and only an event can say when that is finished. */
bool kn__epoch_is_open(const kn_pool *pool, const kn__stream *stream);
/* Records the event of the open epoch, if anything was freed in it. */
kn_status kn__epoch_close(kn_pool *pool, kn__stream *stream);
void kn__epoch_close_full(kn_pool *pool, kn__stream *stream);
static inline void kn__epoch_close_if_full(kn_pool *pool, kn__stream *stream) {
    if (KN__UNLIKELY(stream->open_bytes >= pool->close_bytes)) kn__epoch_close_full(pool, stream);
}
/* `by` waits, on the device, for the epoch of another stream. */
kn_status kn__epoch_wait(kn_pool *pool, kn__stream *by, kn__stream *stream, uint64_t epoch);
/* The first n events of the stream happened. */
void kn__epoch_events_done(kn_pool *pool, kn__stream *stream, uint32_t n);
/* Ends uses whose epochs are over. */
void kn__epoch_uses_finish(kn_pool *pool, kn__stream *stream);

/* event.c: the driver's events, kept for reuse. */
kn_status kn__event_take(kn_pool *pool, void **out);
void kn__event_put(kn_pool *pool, void *event);
void kn__events_destroy(kn_pool *pool); /* those that are kept */

#endif
