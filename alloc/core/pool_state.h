/* The record of a pool, which the files of all storeys from here on share.
 *
 * segment  memory the device gave: a plain segment, or the pool's one range of virtual addresses
 * block    a run of addresses inside a segment: free, live, a slab, waiting or a hole (unmapped)
 * slab     a block cut into slots of one size class
 * stream   a stream as one pool sees it: its free blocks, its slabs, its epochs
 * epoch    a batch of frees on a stream that one event covers
 * waiter   a freed block or slot that other streams may still use
 * rack     one thread's slots of one stream, by size class (pool/rack.h)
 *
 * Nothing is kept in the memory that is managed: it may be on a GPU. All but racks (gate.h) and the
 * counters of caches is guarded by the pool's lock. */
#ifndef KN_ALLOC_POOL_STATE_H
#define KN_ALLOC_POOL_STATE_H

#include <knet/device_driver.h>
#include <knet/pool.h>

#include "core/counters.h"
#include "core/lock.h"
#include "core/pagemap.h"
#include "core/range.h"
#include "core/record.h"
#include "core/segment.h"
#include "core/slab.h"
#include "core/waiter.h"
#include "hash.h"

enum { KN__OOM_CALLBACKS = 16, KN__PEAKS = 16 };

struct kn_pool {
    /* Hot: read by every call, written by none, so that all cores keep this line. */

    /* In kn__thread.caches; KN__POOL_SLOTS: no thread keeps a cache of this pool. */
    uint32_t slot;
    /* See gate.h. */
    _Atomic uint32_t generation;
    /* Most bytes of a request on the fast path (see kn__pool_fast_set), of a slot, and of any
     * request; 0 in a pool that is dead. */
    _Atomic size_t fast_max;
    size_t slab_max, size_max;
    /* 0 where it is the same on whose behalf memory is allocated. */
    uintptr_t stream_mask;
    /* The driver tells streams apart by id. */
    bool has_ids;

    /* Hot: of every allocation from the arena, under the lock. */

    _Alignas(64) kn__lock lock;
    /* There is something to do when the lock is opened. */
    bool on_unlock;
    /* Memory is to go back: blocks freed at different times are not merged, because a merged block
     * can go back only when work on its youngest part has ended. */
    bool apart;
    kn__records records;
    /* Asked for last. */
    kn__stream *recent;
    /* Blocks in its bins are free for every stream. */
    kn__stream *idle;
    /* Folded counters. */
    int64_t live, live_max, requested;
    uint64_t n_allocs;
    /* Changes of free blocks. */
    uint64_t n_changes;
    /* So many bytes freed in an open epoch close it. */
    uint64_t close_bytes;

    kn__meta meta;

    kn_device *device;
    const kn_device_driver *driver;
    void *impl;
    kn_pool *link; /* in the device's list */
    char name[64];
    uint32_t trace_id;        /* in traces; 0: none yet */
    kn_pool_options options;  /* as they were set */
    size_t limit, soft_limit; /* SIZE_MAX: none */
    double pressure;          /* see kn__pool_pressed */
    uint64_t idle_check;      /* growth to less than this doesn't count idle handles again */
    uint64_t device_most;     /* reserved + free on it, at the last growth; UINT64_MAX: unknown */
    unsigned n_size_classes;

    kn__segment *segments;
    kn__range range;
    kn__stream **streams; /* by index */
    uint32_t n_streams;
    kn__hash by_key; /* of kn__stream_place: those that can be found */
    kn_pool_graph *graphs;
    void **events; /* kept for reuse */
    uint32_t n_events_kept, events_room;
    kn__waiter *waiters; /* freed and waiting */
    size_t waiting_bytes;
    size_t unasked_bytes; /* that came to wait since frees last asked events */
    uint32_t poll_next;   /* index of the stream to be asked first */
    struct kn__cache *caches;
    struct {
        kn_oom_fn fn;
        void *ctx;
    } oom[KN__OOM_CALLBACKS];

    uint8_t poison;        /* kn__poison: how unused memory is marked */
    unsigned handle_flags; /* of new handles: kn_handle_flags */
    bool pinned;           /* host memory; all that is allocated is the CPU's to use at once */
    bool ordered;          /* all streams are program order */
    kn_device_driver own_driver; /* of a pinned pool: the device's, with other segments */

    _Atomic uint64_t decay_ns; /* 0: off; decay.c */
    uint64_t (*clock_fn)(void *ctx);
    void *clock_ctx;
    uint64_t window_start_ns, window_peak; /* the most that was live since then */
    uint64_t decay_keep, decay_tries;      /* what the last window said must stay */

    uint64_t over_live, over_next_ns; /* while more than the limit is reserved; trim.c */

    bool dead; /* in a child of fork(): the device's driver can't be used */

    struct kn__pause *pauses; /* memory that was dropped; see pool/pause.c */
    bool paused;              /* all of it */
    bool half_paused;         /* some of that has memory: an error left it so */
    uint64_t dropped;         /* bytes that have no memory with their tags */

    uint64_t reserved, reserved_max;
    uint64_t moved;        /* bytes of handles that were moved */
    int64_t reserve_delta; /* to be told to the observer, once unlocked */
    uint64_t decayed;      /* bytes given back as they were idle */
    uint64_t n_device_allocs, n_device_frees, n_syncs, n_events, n_queries, n_misuses, n_ooms;
    kn__rung rungs[KN__RUNGS];
    struct kn__oom *last_oom;     /* the report of the last out-of-memory; see pool/oom.h */
    kn__tag_total tags[KN__TAGS]; /* folded counters */

    struct {
        int64_t live, tags[KN__TAGS];
        uint64_t reserved;
    } peaks[KN__PEAKS]; /* the outer parts' high-water marks */
    uint32_t n_peaks;

    kn__pagemap pages;
};

#endif
