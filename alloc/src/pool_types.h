/* The pool's data structures, shared by the files that make up the pool.
 *
 * segment  memory the device gave: a plain segment, or the pool's one range of virtual addresses
 * block    a run of addresses inside a segment: free, live, a slab, waiting or a hole (unmapped)
 * slab     a block cut into slots of one size class
 * stream   a stream as one pool sees it: its free blocks, its slabs, its epochs
 * epoch    a batch of frees on a stream that one event covers
 * waiter   a freed block that other streams may still use
 * rack     one thread's slots of one stream, by size class
 *
 * Nothing is kept in the memory that is managed: it may be on a GPU. All but racks (gate.h) and the
 * counters of caches is guarded by the pool's lock. Blocks, slabs and waiters are never returned to
 * the system before the pool goes, so a stale pointer reads an old record, not a fault.
 */
#ifndef KNET_ALLOC_POOL_TYPES_H
#define KNET_ALLOC_POOL_TYPES_H

#include <knet/device_driver.h>
#include <knet/pool.h>
#include <knet/pool_graph.h>
#include <pthread.h>
#include <stdatomic.h>

#include "checked.h"
#include "gate.h"
#include "lock.h"
#include "meta.h"
#include "thread.h"

#define KN__SIZE_LIMIT ((size_t)1 << 43) /* of a request; the bins end at twice that */
#define KN__LIKELY(x) __builtin_expect(!!(x), 1)
#define KN__UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
    KN__GRAIN = 256,       /* sizes of slots are multiples of it */
    KN__BLOCK_GRAIN = 512, /* sizes of blocks are multiples of it */
    KN__PAGE_SHIFT = 16,   /* the page map's unit; slabs are aligned to it */
    KN__PAGE = 1 << KN__PAGE_SHIFT,
    KN__UNIT = 2 << 20,     /* segments and handles are multiples of it */
    KN__SLAB_MAX = 1 << 20, /* bound of the option slab_max_bytes */
    KN__SLAB_DEFAULT = 1 << 16,
    KN__CLASSES = 80,     /* size classes up to KN__SLAB_MAX */
    KN__SLAB_SLOTS = 256, /* most slots a slab has */
    KN__RACK_DEPTH = 127, /* most slots of a class in a rack: frames of 64 blocks stay in it */
    KN__BINS = 512,       /* 16 per doubling of the block's size */
    KN__MARKS = 16,       /* most events outstanding on a stream */
    KN__OOM_CALLBACKS = 16,
    KN__NO_CLASS = KN__CLASSES,
    KN__TAGS = 256,
    KN__TAG_OTHERS = KN__TAGS - 1, /* for all names beyond those that fit */
    KN__RUNGS = 11,                /* of the ladder */
};

/* Handles that name no one stream. */
enum { KN__STREAM_LEGACY = 1, KN__STREAM_PER_THREAD = 2 };

#define KN__EPOCH_NEVER ((uint64_t)1 << 55) /* beyond any epoch */

/* Lists of what has the members `next` and `prev`. */
#define KN__LIST_ADD(head, node)                                                                   \
    do {                                                                                           \
        (node)->prev = NULL;                                                                       \
        (node)->next = *(head);                                                                    \
        if ((node)->next) (node)->next->prev = (node);                                             \
        *(head) = (node);                                                                          \
    } while (0)
#define KN__LIST_REMOVE(head, node)                                                                \
    do {                                                                                           \
        if ((node)->next) (node)->next->prev = (node)->prev;                                       \
        *((node)->prev ? &(node)->prev->next : (head)) = (node)->next;                             \
    } while (0)

typedef struct kn__stream kn__stream;
typedef struct kn__slab kn__slab;
typedef struct kn__waiter kn__waiter;
typedef struct kn__cache kn__cache;

typedef enum kn__state {
    KN__FREE = 1, /* in its stream's bins */
    KN__LIVE,
    KN__SLAB,    /* cut into slots */
    KN__WAITING, /* freed; other streams may still use it */
    KN__HOLE     /* addresses of the range without memory */
} kn__state;

/* One cache line: what moves between bins touches neighbours, and there are many blocks. */
typedef struct kn__block {
    char *ptr;
    size_t size;
    struct kn__block *left, *right; /* neighbours in address; NULL at the segment's ends */
    union {
        struct {
            struct kn__block *next, *prev; /* free: in the bin; a hole: in the range's list */
        };
        struct {
            kn__waiter *waiter; /* live or waiting: uses on other streams; NULL: none */
            union {
                kn__slab *slab; /* a slab */
                struct {
                    _Atomic uint32_t owner; /* live: the observer's */
                    uint16_t slack;         /* live: size - requested */
                    uint16_t tag;           /* live; 0: none */
                };
                uint64_t of_live; /* these three, written together */
            };
        };
    };
    kn__stream *stream; /* home when live; who may reuse it at once when free */
    union {
        struct {
            uint64_t epoch : 56; /* of its stream, when free or waiting: its frees' */
            uint64_t state : 8;  /* kn__state */
        };
        uint64_t word; /* both, written together: a read behind two narrow writes would stall */
    };
} kn__block;
_Static_assert(sizeof(kn__block) == 64, "a block record is one cache line");

static inline void kn__block_set(kn__block *block, kn__state state, uint64_t epoch) {
    block->word = (uint64_t)state << 56 | epoch;
}

typedef struct kn__bins {
    uint32_t n_used;                   /* bins that are not empty */
    uint64_t words[KN__BINS / 64 + 1]; /* a bit for each of them, and one behind all */
    kn__block *head[KN__BINS + 1];     /* the last freed first; behind all: none */
} kn__bins;

/* A stream waits for this one, or somebody asks whether its work is done: the event that says so.
 */
typedef struct kn__mark {
    uint64_t epoch; /* covers the frees of this epoch and all before */
    void *event;
} kn__mark;

typedef struct kn__use {
    kn__stream *stream;
    kn__waiter *waiter;
    uint64_t epoch;          /* set when the block is freed */
    struct kn__use *next;    /* of the same waiter */
    struct kn__use *younger; /* on the same stream, in order of the frees */
} kn__use;

struct kn__waiter {
    struct kn__waiter *next, *prev; /* in the pool's list, once freed; in the slab's before */
    kn__block *block;               /* NULL when it is a slot, or when the block was taken early */
    kn__slab *slab;
    uint32_t slot;
    uint32_t n_uses; /* not finished yet */
    kn__use *uses;
};

struct kn__stream {
    kn_stream handle;
    uint64_t key; /* what tells it apart; see epoch.c */
    uint32_t index;
    bool retired;
    bool lost;            /* retired, with no event that says when its work is done */
    bool hidden;          /* its handle names another record now; see graph.c */
    kn_pool_graph *graph; /* this is a graph's own part of a stream; NULL: it is the stream */
    uint64_t open_bytes;  /* freed in the open epoch; 0: nothing */
    uint64_t epoch, done; /* the open epoch; all up to `done` are finished */
    uint64_t *waited;     /* by index of another stream: its epoch that this one waits for */
    uint32_t n_waited;
    uint32_t n_marks;
    uint64_t refs; /* blocks, uses and racks that name this stream */
    kn__mark marks[KN__MARKS];
    kn__use *oldest_use, *youngest_use; /* uses whose blocks were freed */
    kn__bins bins;
    kn__slab *partial[KN__CLASSES]; /* slabs with free slots */
    uint32_t n_slabs[KN__CLASSES];  /* all of them */
};

/* A slot is live when `use` is not zero: the bytes requested, and above them its tag. The top bit
 * says that other streams use it. */
typedef union kn__slot {
    struct {
        _Atomic uint32_t use;
        _Atomic uint32_t owner;
    };
    _Atomic uint64_t both;
} kn__slot;
#define KN__SLOT_SHARED 0x80000000u
enum { KN__SLOT_TAG_SHIFT = 21 };
static inline uint32_t kn__slot_requested(uint32_t use) {
    return use & ((1u << KN__SLOT_TAG_SHIFT) - 1);
}
static inline unsigned kn__slot_tag(uint32_t use) { return use >> KN__SLOT_TAG_SHIFT & 0xff; }

struct kn__slab {
    char *base;
    kn__stream *stream;
    uint64_t inverse; /* ceil(2^32 / grains of a slot); see kn__slab_index */
    uint32_t slot_bytes;
    uint16_t class, n_slots, n_free, n_waiting;
    uint16_t depth_bytes; /* of entries: the most slots of the class in a rack */
    kn__block *block;
    kn__slab *next, *prev; /* in the stream's partial list */
    kn__waiter *shared;    /* live slots that other streams use */
    uint64_t free[KN__SLAB_SLOTS / 64];
    kn__slot slots[]; /* n_slots, and one that is never live behind them */
};

typedef struct kn__entry {
    char *ptr;
    kn__slot *slot;
} kn__entry;

/* A stack's entries lie in the rack at a multiple of KN__STACK_BYTES, so that where its top is says
 * how many there are. */
enum { KN__STACK_BYTES = (KN__RACK_DEPTH + 1) * sizeof(kn__entry) };
typedef struct kn__stack {
    _Atomic uint32_t top; /* offset of the first unused entry from the rack's first */
    uint32_t slot_bytes;
} kn__stack;

typedef struct kn__rack {
    uint64_t key; /* the stream's */
    kn__stream *stream;
    uint32_t generation; /* of the pool when the cache was renewed; see gate.h */
    struct kn__rack *next;
    kn__stack stacks[KN__CLASSES];
    kn__entry entries[][KN__RACK_DEPTH + 1];
} kn__rack;

static inline unsigned kn__stack_bytes(const kn__stack *stack) {
    return atomic_load_explicit(&stack->top, memory_order_relaxed) % KN__STACK_BYTES;
}
static inline unsigned kn__stack_n(const kn__stack *stack) {
    return kn__stack_bytes(stack) / (unsigned)sizeof(kn__entry);
}
static inline void kn__stack_set_n(kn__stack *stack, unsigned n) {
    uint32_t top = atomic_load_explicit(&stack->top, memory_order_relaxed);
    top += n * (uint32_t)sizeof(kn__entry) - kn__stack_bytes(stack);
    atomic_store_explicit(&stack->top, top, memory_order_relaxed);
}

/* What one tag has: a thread's part, as the counters of its cache are, and a pool's. */
typedef struct kn__tag_counts {
    _Atomic int64_t live, live_max;
    _Atomic uint64_t n_allocs;
} kn__tag_counts;
typedef struct kn__tag_total {
    int64_t live, live_max;
    uint64_t n_allocs;
} kn__tag_total;

/* One thread's part of one pool. Counters are deltas since they were last folded into the pool's;
 * only the thread writes them, others read. */
struct kn__cache {
    kn__rack *current; /* of the stream used last; never NULL */
    kn__gate gate;     /* of all racks */
    uint32_t generation, n_ticks;
    _Atomic int64_t live, live_max, requested;
    _Atomic uint64_t n_allocs;
    kn__rack *racks;
    kn__rack **places; /* the same by key: a hash table */
    size_t n_places;
    kn__tag_counts *_Atomic tags; /* KN__TAGS of them; NULL: the thread has used none here */
    uint64_t tags_used;           /* since they were folded: a bit for each tag modulo 64 */
    kn_pool *pool;
    kn__thread *thread;
    kn__cache *next;
};

typedef struct kn__segment {
    struct kn__segment *next, *prev;
    char *ptr;
    size_t size;
    kn__block *first;
} kn__segment;

/* One granule (range.unit bytes) of the range. */
typedef struct kn__granule {
    uint64_t handle;
    uint32_t span; /* granules of the handle that starts here; 0: none starts here */
} kn__granule;

typedef struct kn__range {
    char *base; /* NULL where virtual memory is missing */
    size_t size;
    kn__block *first;
    kn__block *holes; /* by address */
    kn__granule *granules;
    size_t unit; /* granularity of handles */
} kn__range;

typedef struct kn__rung {
    uint64_t n_tried, n_served, ns;
} kn__rung;

typedef struct kn__leaf {
    _Atomic uintptr_t pages[1 << 16];
} kn__leaf;

struct kn_pool {
    /* Read by every call. */
    uint32_t slot; /* in kn__thread.caches; KN__POOL_SLOTS: no thread keeps a cache of this pool */
    _Atomic uint32_t generation; /* see gate.h */
    /* Most bytes of a request on the fast path (0 also where decay is watched), of a slot, and of
     * any request; 0 in a pool that is dead. */
    size_t fast_max, slab_max, size_max;
    uintptr_t stream_mask; /* 0 where it is the same on whose behalf memory is allocated */
    bool has_ids;          /* the driver tells streams apart by id */

    /* Of every allocation from the arena. */
    _Alignas(64) kn__lock lock;
    bool on_unlock;                    /* there is something to do when the lock is opened */
    kn__block *spare;                  /* records of blocks, unused */
    kn__stream *recent;                /* asked for last */
    kn__stream *idle;                  /* blocks in its bins are free for every stream */
    int64_t live, live_max, requested; /* folded counters */
    uint64_t n_allocs;
    uint64_t n_changes;   /* of free blocks and of what streams are done with */
    uint64_t close_bytes; /* freed in an open epoch: then it closes */

    kn__meta meta;

    kn_device *device;
    const kn_device_driver *driver;
    void *impl;
    kn_pool *link; /* in the device's list */
    char name[64];
    uint32_t trace_id;        /* in traces; 0: none yet */
    size_t limit, soft_limit; /* SIZE_MAX: none */
    double pressure;          /* see kn__pool_pressed */
    uint64_t idle_check;      /* growth to less than this doesn't count idle handles again */
    uint64_t device_most;     /* reserved + free on it, at the last growth; UINT64_MAX: unknown */
    unsigned n_classes;

    kn__segment *segments;
    kn__range range;
    kn__stream **streams; /* by index */
    uint32_t n_streams;
    kn__stream **places; /* those that can be found, by key: a hash table */
    size_t n_places;
    kn_pool_graph *graphs;
    void **events; /* free list of events */
    uint32_t n_events_free, events_room;
    kn__waiter *waiters; /* freed and waiting */
    size_t waiting_bytes;
    uint32_t poll_next; /* index of the stream to be asked first */
    kn__cache *caches;
    struct {
        kn_oom_fn fn;
        void *ctx;
    } oom[KN__OOM_CALLBACKS];

    bool pinned;  /* host memory; all that is allocated is the CPU's to use at once */
    bool ordered; /* all streams are program order */
    kn_device_driver own_driver; /* of a pinned pool: the device's, with other segments */

    uint64_t decay_ns; /* 0: off; decay.c */
    uint64_t (*clock_fn)(void *ctx);
    void *clock_ctx;
    uint64_t window_start_ns, window_peak; /* the most that was live since then */
    uint64_t decay_keep, decay_tries;      /* what the last window said must stay */

    bool dead; /* in a child of fork(): the device's driver can't be used */

    uint64_t reserved, reserved_max;
    uint64_t moved;        /* bytes of handles that were moved */
    int64_t reserve_delta; /* to be told to the observer, once unlocked */
    uint64_t decayed;      /* bytes given back as they were idle */
    uint64_t n_device_allocs, n_device_frees, n_syncs, n_events, n_queries, n_misuses, n_ooms;
    kn__rung rungs[KN__RUNGS];
    struct kn__oom *last_oom;     /* census.h; what was said when memory last ran out */
    kn__tag_total tags[KN__TAGS]; /* folded counters */

    _Atomic(kn__leaf *) top[1 << 16]; /* the page map: address bits 47…32, then 31…16 */
};

/* pool.c, stats.c, snapshot.c */
static inline void kn__pool_lock(kn_pool *pool) { kn__lock_take(&pool->lock); }
void kn__pool_unlock_act(kn_pool *pool); /* decay; and the observer hears of reserved memory */
static inline void kn__pool_unlock(kn_pool *pool) {
    if (KN__UNLIKELY(pool->on_unlock)) {
        kn__pool_unlock_act(pool);
    } else {
        kn__lock_open(&pool->lock);
    }
}
void kn__pool_reserve_add(kn_pool *pool, int64_t delta_bytes);
int64_t kn__pool_live(const kn_pool *pool);             /* under the lock */
void kn__pool_stats(kn_pool_stats *out, kn_pool *pool); /* under the lock */
/* Write a file; `function` is named in errors. */
kn_status kn__pool_print(kn_pool *pool, const char *path, bool append, const char *function);
kn_status kn__pool_snapshot(kn_pool *pool, const char *path, bool append, const char *function);

/* Page map: what an address belongs to; see pagemap.c. */
#define KN__TAG_SLAB 1u
static inline uintptr_t kn__page_get(const kn_pool *pool, const void *ptr) {
    uintptr_t address = (uintptr_t)ptr, i = address >> 32;
    if (KN__UNLIKELY(i >= sizeof pool->top / sizeof pool->top[0])) return 0;
    kn__leaf *leaf = atomic_load_explicit(&pool->top[i], memory_order_acquire);
    if (KN__UNLIKELY(!leaf)) return 0;
    return atomic_load_explicit(&leaf->pages[address >> KN__PAGE_SHIFT & 0xffff],
                                memory_order_relaxed);
}
kn_status kn__pages_cover(kn_pool *pool, const void *ptr, size_t size_bytes);
void kn__pages_set(kn_pool *pool, const void *ptr, size_t n_pages, uintptr_t value);
static inline void kn__page_put(kn_pool *pool, const void *ptr, uintptr_t value) {
    uintptr_t page = (uintptr_t)ptr >> KN__PAGE_SHIFT;
    kn__leaf *leaf = atomic_load_explicit(&pool->top[page >> 16], memory_order_relaxed);
    atomic_store_explicit(&leaf->pages[page & 0xffff], value, memory_order_relaxed);
}
void kn__pages_release(kn_pool *pool);

/* Size classes: 8 per doubling, multiples of the grain. */
static inline unsigned kn__class_of(size_t bytes) {
    unsigned m = (unsigned)((bytes - 1) / KN__GRAIN);
    unsigned shift = 28u - (unsigned)__builtin_clz(m | 15); /* 0 below 16 grains */
    return (shift << 3) + (m >> shift);
}
static inline size_t kn__class_bytes(unsigned class) {
    unsigned shift = class < 16 ? 0 : (class >> 3) - 1;
    return ((size_t)(class - (shift << 3)) + 1) * KN__GRAIN << shift;
}
/* Most slots of the class that a rack keeps. */
static inline unsigned kn__class_depth(unsigned class) {
    size_t depth = ((size_t)256 << 10) / kn__class_bytes(class);
    return depth > KN__RACK_DEPTH ? KN__RACK_DEPTH : depth < 4 ? 4 : (unsigned)depth;
}

/* arena.c: blocks. All under the lock. */
static inline size_t kn__block_round(size_t bytes) {
    return (bytes + KN__BLOCK_GRAIN - 1) & ~(size_t)(KN__BLOCK_GRAIN - 1);
}
kn__block *kn__block_new(kn_pool *pool, kn__stream *stream, char *ptr, size_t size);
bool kn__block_room(kn_pool *pool); /* makes sure of a record for the next new block */
void kn__block_drop(kn_pool *pool, kn__block *block); /* forgets the record */
void kn__block_assign(kn__block *block, kn__stream *stream);
/* Splits off the right part; NULL when there is no host memory. The part has the same state. */
kn__block *kn__block_split(kn_pool *pool, kn__block *block, size_t size);
void kn__block_absorb_right(kn_pool *pool, kn__block *block); /* both out of the bins */
void kn__bins_insert(kn__bins *bins, kn__block *block);
void kn__bins_remove(kn__bins *bins, kn__block *block);
kn__block *kn__bins_find(const kn__bins *bins, size_t size, size_t align);
/* Only blocks that `by` may use with no wait. */
kn__block *kn__bins_find_usable(const kn_pool *pool, const kn__stream *by, const kn__bins *bins,
                                size_t size, size_t align);
/* Makes the block free for `stream` in its epoch `epoch`, and merges it with its neighbours. */
kn__block *kn__block_free(kn_pool *pool, kn__block *block, kn__stream *stream, uint64_t epoch);
/* Moves the stream's free blocks of epochs up to `last` to another stream's epoch. */
void kn__free_move(kn_pool *pool, kn__stream *from, uint64_t last, kn__stream *to, uint64_t epoch);
/* Makes the block free for its home stream, in its epoch `epoch`, or for all if that is over. */
void kn__block_release(kn_pool *pool, kn__block *block, uint64_t epoch);
/* Cuts what is asked for out of a free block that `stream` may use; KN_ERR_OOM: no host memory. */
kn__block *kn__block_take(kn_pool *pool, kn__block *block, kn__stream *stream, size_t size,
                          size_t align);
/* Good fit among what the stream may use with no wait. */
kn__block *kn__arena_find(kn_pool *pool, kn__stream *stream, size_t size, size_t align);
bool kn__block_fits(const kn__block *block, size_t size, size_t align);
/* Calls fn for every block in address order; fn may not change the list. */
void kn__blocks_visit(kn_pool *pool, bool (*fn)(void *ctx, kn__block *block), void *ctx);

/* grow.c: memory from the device and back to it. Under the lock. */
kn_status kn__range_create(kn_pool *pool, uint64_t total_bytes, uint64_t granularity_bytes);
kn_status kn__grow(kn_pool *pool, kn__stream *stream, size_t size, size_t align);
void kn__device_free_read(kn_pool *pool);
/* The most the pool may come to reserve: by its limit, and by what the device had free when it was
 * asked last. */
uint64_t kn__pool_capacity(const kn_pool *pool);
/* Whether memory is short for this request: with it the pool would reserve more than a share
 * (kn_pool_options.pressure) of its capacity or of its soft limit. */
bool kn__pool_pressed(const kn_pool *pool, size_t size);
/* Gives back free, finished memory until at most keep_bytes are reserved. */
void kn__shrink(kn_pool *pool, size_t keep_bytes);
/* Moves memory of free, finished handles to where `size` bytes then fit; what is missing comes from
 * the device. `waits`: the stream may wait, on the device, for a free neighbour that saves memory.
 */
bool kn__harvest(kn_pool *pool, kn__stream *stream, size_t size, size_t align, bool waits);
uint64_t kn__idle_handles(kn_pool *pool); /* bytes of the handles that could be moved */
void kn__memory_release(kn_pool *pool);   /* all of it */

/* slab.c */
size_t kn__slab_bytes(const kn__stream *stream, unsigned class);         /* of the next one */
kn__slab *kn__slab_new(kn_pool *pool, kn__block *block, unsigned class); /* takes a live block */
unsigned kn__slab_take(kn__stream *stream, unsigned class, kn__entry *out, unsigned n);
void kn__slab_put(kn_pool *pool, kn__slab *slab, uint32_t slot); /* may free the slab */
void kn__slab_move(kn__slab *slab, kn__stream *stream); /* its block is moved by the caller */
/* The slot that the address lies in. False: it is not where the slot starts; only there the
 * product's lower half is small. Slots have at most 2^12 grains and a slab 2^14, so rounding the
 * inverse up adds less than it may. */
static inline bool kn__slab_find(uint32_t *slot, const kn__slab *slab, const void *ptr) {
    uint64_t product = (uint64_t)((const char *)ptr - slab->base) / KN__GRAIN * slab->inverse;
    *slot = (uint32_t)(product >> 32);
    return (uint32_t)product < slab->inverse && (uintptr_t)ptr % KN__GRAIN == 0;
}
static inline uint32_t kn__slab_index(const kn__slab *slab, const void *ptr) {
    uint32_t slot;
    (void)kn__slab_find(&slot, slab, ptr);
    return slot;
}

/* epoch.c: streams and what waits on them. Under the lock. */
/* The stream's record, made at first use. Errors: OOM (no host memory), or the driver's, of a
 * stream of another context. */
kn_status kn__stream_find(kn__stream **out, kn_pool *pool, kn_stream handle);
static inline kn_status kn__stream_get(kn__stream **out, kn_pool *pool, kn_stream handle) {
    bool plain = !handle || (!pool->has_ids && (uintptr_t)handle > KN__STREAM_PER_THREAD);
    *out = pool->recent;
    if (KN__LIKELY(plain && *out && (*out)->key == (uintptr_t)handle)) return KN_OK;
    return kn__stream_find(out, pool, handle);
}
/* The stream, or a graph's part of it, hidden or not; NULL: there is none. */
kn__stream *kn__stream_lookup(const kn_pool *pool, uint64_t key, const kn_pool_graph *graph);
uint64_t kn__stream_key(const kn_pool *pool, kn_stream handle); /* with the lock open too */
kn__stream *kn__stream_make(kn_pool *pool, kn_stream handle, uint64_t key); /* not yet found */
bool kn__streams_room(kn_pool *pool);    /* for one more; false: no host memory */
void kn__streams_changed(kn_pool *pool); /* some were retired, hidden or shown */
kn__stream *kn__stream_new(kn_pool *pool, kn_stream handle, uint32_t index);
static inline uint64_t kn__stream_epoch(const kn__stream *stream) { /* of what is freed now */
    return stream->retired ? stream->epoch - 1 : stream->epoch;
}
bool kn__epoch_finished(const kn_pool *pool, const kn__stream *stream, uint64_t epoch);
/* Whether `by` may use the free block with no further wait. */
bool kn__epoch_usable(const kn_pool *pool, const kn__stream *by, const kn__block *block);
/* The free block, usable by `by`, becomes its own and merges with its neighbours. */
void kn__block_adopt(kn_pool *pool, kn__block *block, kn__stream *by);
/* Records the event of the open epoch, if anything was freed in it. */
kn_status kn__epoch_close(kn_pool *pool, kn__stream *stream);
void kn__epoch_close_full(kn_pool *pool, kn__stream *stream);
static inline void kn__epoch_close_if_full(kn_pool *pool, kn__stream *stream) {
    if (KN__UNLIKELY(stream->open_bytes >= pool->close_bytes)) kn__epoch_close_full(pool, stream);
}
void kn__close_bytes_set(kn_pool *pool);
/* `by` waits, on the device, for the epoch of another stream. */
kn_status kn__epoch_wait(kn_pool *pool, kn__stream *by, kn__stream *stream, uint64_t epoch);
/* Asks at most n_queries events; releases what became free. */
void kn__epochs_poll(kn_pool *pool, int n_queries);
void kn__epochs_close_used(kn_pool *pool); /* of streams that freed blocks wait for */
void kn__epochs_settle(kn_pool *pool);     /* closes and polls all; merges what is finished */
bool kn__epochs_sync_one(kn_pool *pool);   /* the host waits for one epoch; false: none is left */
/* The host waits for the device, for streams that are lost and epochs that no event can close;
 * false: there is none, or something is captured. */
bool kn__epochs_recover(kn_pool *pool);
/* The host waits for all; false: some stream can't be waited for. */
bool kn__epochs_finish(kn_pool *pool);
kn_status kn__use_add(kn_pool *pool, kn__waiter **waiter, kn__stream *stream);
void kn__waiter_enqueue(kn_pool *pool, kn__waiter *waiter);
kn_status kn__waiter_take(kn_pool *pool, kn__waiter *waiter, kn__stream *by);
void kn__stream_retire(kn_pool *pool, kn__stream *stream, bool gone); /* gone: destroyed already */
bool kn__stream_capturing(const kn_pool *pool, kn_stream handle);

/* ladder.c: a block of `size` for `stream`, by every means there is; or, for a size class, until
 * the stream has a slab with free slots. May unlock and lock again. *out is NULL for a class. */
kn_status kn__ladder(kn__block **out, kn_pool *pool, kn__stream *stream, size_t size, size_t align,
                     unsigned class, size_t requested);

static inline kn__cache *kn__cache_of_thread(const kn_pool *pool) { /* NULL: it has none */
    return kn__self ? kn__self->caches[pool->slot] : NULL;
}

const char *kn__rung_name(int rung);

/* Blocks of their own, too large for slabs or aligned to more than a slab is. */
kn_status kn__block_alloc(void **out, kn_pool *pool, size_t size, size_t align, kn_stream handle);
kn_status kn__block_dealloc(kn_pool *pool, char *ptr);
void kn__tell_oom(kn_pool *pool, size_t wanted);
const char *kn__block_misuse(const kn__block *block, const char *ptr); /* NULL: it is live */

/* tag.c. The last four under the lock. */
const char *kn__tag_name(unsigned tag);
bool kn__tags_make(kn__cache *cache);
void kn__tag_free_slow(kn__cache *cache, unsigned tag, size_t live);
void kn__tag_count_locked(kn_pool *pool, unsigned tag, int64_t live); /* freed: below zero */
void kn__tags_fold(kn_pool *pool, kn__cache *cache);
/* The n tags with most live bytes; returns how many there are. */
size_t kn__tags_read(kn_tag_stats *out, size_t n, const kn_pool *pool);

/* cache.c. The last two under the lock. */
kn__cache *kn__cache_make(kn_pool *pool); /* the calling thread's; NULL: it can't have one */
static inline kn__cache *kn__cache_get(kn_pool *pool) {
    kn__cache *cache = kn__cache_of_thread(pool);
    return KN__LIKELY(cache != NULL) ? cache : kn__cache_make(pool);
}
kn_status kn__misuse(kn_pool *pool, const char *call, const void *ptr, const char *why);
void kn__caches_lock(void); /* taken before any pool's lock */
void kn__caches_unlock(void);
void kn__caches_attach(kn_pool *pool);                /* gives the pool its slot */
void kn__caches_detach(kn_pool *pool);                /* the pool goes */
void kn__cache_fold(kn_pool *pool, kn__cache *cache); /* its counters into the pool's */
/* All its slots into the slabs: of the thread's own, or after kn__gates_call_back. */
void kn__cache_flush(kn_pool *pool, kn__cache *cache);
/* All threads'; false: some thread was at work in its cache, which was left alone. */
bool kn__caches_flush(kn_pool *pool);
uint64_t kn__caches_bytes(const kn_pool *pool);

/* decay.c: what was idle for long goes back. */
void kn__decay(kn_pool *pool);      /* under the lock */
void kn__decay_tick(kn_pool *pool); /* now and then, of calls that take no lock */

/* graph.c */
void kn__graphs_orphan(kn_pool *pool);                    /* the pool goes */
void kn__graphs_stream_gone(kn_pool *pool, uint64_t key); /* under the lock */
void kn__graph_missing(const kn_pool *pool); /* logs, once, that a capture has not begun here */

/* pool.c */
void kn__trim(kn_pool *pool, size_t keep_bytes); /* under the lock */

/* observe.c */
void kn__owner_name(uint32_t owner, char *out, size_t out_bytes);

#endif
