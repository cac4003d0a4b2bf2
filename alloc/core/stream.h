/* A stream as one pool sees it: its free blocks, its slabs, its epochs. streams.h finds them,
 * epoch.h closes their epochs. */
#ifndef KN_ALLOC_STREAM_H
#define KN_ALLOC_STREAM_H

#include <knet/device.h>
#include <knet/pool_graph.h>

#include "core/bins.h"
#include "hash.h"

enum { KN__EPOCH_EVENTS = 16 }; /* most outstanding on a stream */

/* Handles that name no one stream. */
enum { KN__STREAM_LEGACY = 1, KN__STREAM_PER_THREAD = 2 };

#define KN__EPOCH_NEVER ((uint64_t)1 << 55) /* beyond any epoch */

/* The key for hash tables, never 0, of a stream's key. */
static inline uint64_t kn__hash_of_stream(uint64_t key) { return kn__spread(key + 1); }

typedef struct kn__use kn__use;

/* Recorded because another stream waits for this one, or somebody asks whether its work is done. */
typedef struct kn__epoch_event {
    uint64_t epoch; /* it covers the frees of this epoch and all before */
    void *event;
} kn__epoch_event;

/* Hot: the epochs, `refs` and `bins`, which each alloc and free of a block touches. */
struct kn__stream {
    kn_stream handle;
    uint64_t key; /* what tells it apart; see streams.h */
    uint32_t index;
    bool retired;
    bool lost;            /* retired, with no event that says when its work is done */
    bool hidden;          /* its handle names another record now; see graph.c */
    kn_pool_graph *graph; /* this is a graph's own part of a stream; NULL: it is the stream */
    uint64_t open_bytes;  /* freed in the open epoch; 0: nothing */
    uint64_t epoch, done; /* the open epoch; all up to `done` are finished */
    uint64_t *waited;     /* by index of another stream: its epoch that this one waits for */
    uint32_t n_waited;
    uint32_t n_events;
    uint64_t refs; /* blocks, uses and racks that name this stream */
    kn__epoch_event events[KN__EPOCH_EVENTS];
    kn__use *oldest_use, *youngest_use; /* uses whose blocks were freed */
    kn__bins bins;
    kn__slab *partial[KN__SIZE_CLASSES]; /* slabs with free slots */
    uint32_t n_slabs[KN__SIZE_CLASSES];  /* all of them */
};

static inline uint64_t kn__stream_epoch(const kn__stream *stream) { /* of a free made now */
    return stream->retired ? stream->epoch - 1 : stream->epoch;
}

#endif
