/* The streams of a pool, by key.
 *
 * A key tells streams apart: the driver's id of the stream, which is never used again, where
 * the driver has ids; else the handle. All under the pool's lock, but kn__stream_key. */
#ifndef KN_ALLOC_STREAMS_H
#define KN_ALLOC_STREAMS_H

#include "core/epoch.h"
#include "device/thread.h"

/* Two low bits say what kind of key it is: 0 a handle, 1 and 2 see KN__STREAM_…, 3 an id. */
enum { KN__KEY_ID = 3 };
static inline bool kn__key_is_id(uint64_t key) { return (key & KN__KEY_ID) == KN__KEY_ID; }

static inline uint64_t kn__stream_key(const kn_pool *pool, kn_stream handle) {
    uintptr_t value = (uintptr_t)handle;
    if (value == KN__STREAM_PER_THREAD) return (uintptr_t)kn__thread_get() | value;
    if (value <= KN__STREAM_LEGACY) return pool->pinned ? value : 0;
    uint64_t id = pool->has_ids ? pool->driver->stream_id(pool->impl, handle) : 0;
    return id ? id << 2 | KN__KEY_ID : value;
}

/* The same under the lock: the key that the stream's record has. It may be another one than now
 * where the driver can't tell the id of a stream that is captured, or could not when it was first
 * seen. */
uint64_t kn__stream_known_key(const kn_pool *pool, kn_stream handle);

/* stream_table.c */
kn__stream *kn__stream_create(kn_pool *pool, kn_stream handle, uint32_t index);
/* A record of a stream that the pool has none of, in its list but not to be found yet. NULL: no
 * host memory. */
kn__stream *kn__streams_add(kn_pool *pool, kn_stream handle, uint64_t key);
/* Makes the stream the one that is found by its key. */
void kn__streams_show(kn_pool *pool, kn__stream *stream);
/* Some were retired, hidden or shown: threads renew their caches. */
void kn__streams_changed(kn_pool *pool);
/* Room for one more; false: no host memory. */
bool kn__streams_room(kn_pool *pool);
/* In the pool's table. */
typedef struct kn__stream_place {
    uint64_t key; /* kn__hash_of_stream */
    kn__stream *stream;
} kn__stream_place;

/* The stream that is found by its key; NULL: none. */
static inline kn__stream *kn__streams_find(const kn_pool *pool, uint64_t key) {
    kn__stream_place *place = kn__hash_find(&pool->by_key, sizeof *place, kn__hash_of_stream(key));
    return place->stream;
}
/* The stream, or a graph's part of it, hidden or not; NULL if not found. */
kn__stream *kn__stream_lookup(const kn_pool *pool, uint64_t key, const kn_pool_graph *graph);

/* stream.c */
/* The stream's record, made at first use. Errors: OOM (no host memory), or the driver's, of a
 * stream of another context. */
kn_status kn__stream_find(kn__stream **out, kn_pool *pool, kn_stream handle, uint64_t key);
/* The same by its key, which is asked for before the lock is taken: a thread may be cancelled in
 * the driver. */
static inline kn_status kn__stream_of(kn__stream **out, kn_pool *pool, kn_stream handle,
                                      uint64_t key) {
    *out = pool->recent;
    if (KN__LIKELY(*out && (*out)->key == key)) return KN_OK;
    return kn__stream_find(out, pool, handle, key);
}
/* Where threads are not cancelled. */
static inline kn_status kn__stream_get(kn__stream **out, kn_pool *pool, kn_stream handle) {
    return kn__stream_of(out, pool, handle, kn__stream_key(pool, handle));
}
/* The stream is going to be destroyed, or `gone`: destroyed already. Its work ends with an event,
 * or else with a wait of the host. A stream that is gone, or captured, has neither: its memory is
 * lost until the whole device is waited for. */
void kn__stream_retire(kn_pool *pool, kn__stream *stream, bool gone);
bool kn__stream_capturing(const kn_pool *pool, kn_stream handle);
/* The stream that each thread has under one handle: only the thread itself can name it. */
bool kn__stream_of_another_thread(const kn__stream *stream);

#endif
