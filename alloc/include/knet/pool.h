/* Pools: a caching, stream-ordered allocator in front of a device.
 *
 * A block belongs to the stream on which it was allocated. After kn_free that stream can reuse it
 * at once, without an event and without a wait: the order of the stream keeps earlier work safe. If
 * another stream uses the block, call kn_block_use before kn_free; the pool then reuses the block
 * only after that stream's work. In steady state no call reaches the driver.
 *
 * To serve a request the pool takes, in this order: memory that the same stream freed; memory that
 * other streams freed and have finished with; new memory. No stream waits for another while the
 * pool can grow. Before the pool reserves more than nine tenths of the memory that it can have
 * (options.pressure), it moves free memory to where it is needed. When it can't grow, it takes
 * memory of other streams after a wait on the device; the host waits last.
 *
 * Call kn_stream_retire before you destroy a stream of your own. Where the driver has stream ids
 * (CUDA 12), a reused handle is safe even if that call is missing: the pool keeps the destroyed
 * stream's memory aside until it would run out. cudaStreamPerThread is the calling thread's stream.
 *
 *     void *x = NULL;
 *     KN_TRY(kn_alloc(&x, pool, bytes, stream));
 *     kernel<<<grid, block, 0, stream>>>(x);
 *     kn_free(pool, x);                          // does not wait for the kernel
 *
 * Live bytes belong to allocated blocks, requested bytes are the same before rounding, reserved
 * bytes were taken from the device. Threads: any thread may call any function; destroy a pool after
 * every other use. A thread that pthread_cancel ends finishes calls that hold a lock first. Blocks
 * are aligned to 256 bytes. What returns a status fails with INVALID for a pool that is NULL; what
 * returns none, or another result, needs a pool unless it says otherwise.
 */
#ifndef KNET_POOL_H
#define KNET_POOL_H

#include <knet/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool. */
typedef struct kn_pool kn_pool;

/* Options of kn_pool_create; zero means the default. */
typedef struct kn_pool_options {
    /* most bytes that the pool may reserve, which it does by 2 MiB: with less than that it has
     * nothing; 0: the device's memory; of the host what the system grants, which may be more than
     * it has */
    size_t limit_bytes;
    /* above it the pool first uses free memory of all streams, waits on the device and calls the
     * callbacks, then grows; 0: no such limit */
    size_t soft_limit_bytes;
    size_t slab_max_bytes;  /* largest size served from slabs; 0: 64 KiB */
    double device_fraction; /* limit as a share of the device's memory, in (0, 1]; 0: none */
    /* in (0, 1]: a share of the memory that the pool can have (its limits, and what the device has
     * free); above it free memory moves before the pool grows; 0: 0.9 */
    double pressure;
    uint64_t decay_ns; /* return memory that has been idle this long; 0: never */
    /* nanoseconds, for decay; the pool calls it, it must not call the pool, nor fork(); NULL: the
     * system's clock */
    uint64_t (*clock_fn)(void *ctx);
    void *clock_ctx; /* passed to clock_fn */
    /* page-locked host memory, for copies to and from the device; see kn_device_pinned_pool */
    bool pinned;
    bool shareable;       /* other processes can open its blocks: see share.h */
    bool rdma;            /* network cards can use its memory (GPUDirect RDMA) */
    const char *name;     /* shown in reports; copied; NULL: the device's name */
    uint64_t reserved[4]; /* zero */
} kn_pool_options;

/* One list of counters: X(name, row, column, unit, text). It makes kn_pool_stats, the table of
 * kn_pool_print, the JSON and kn_pool_stat. NOW: at this moment; PEAK: the largest value so far;
 * TOTAL: since the pool was created. */
#define KN_POOL_STATS_LIST(X)                                                                      \
    X(live_bytes, "live", NOW, BYTES, "handed out, as rounded")                                    \
    X(live_bytes_max, "live", PEAK, BYTES, "")                                                     \
    X(requested_bytes, "requested", NOW, BYTES, "handed out, as asked for")                        \
    X(reserved_bytes, "reserved", NOW, BYTES, "taken from the device")                             \
    X(reserved_bytes_max, "reserved", PEAK, BYTES, "")                                             \
    X(cached_bytes, "cached", NOW, BYTES, "free slots in threads' caches")                         \
    X(waiting_bytes, "waiting", NOW, BYTES, "freed, used by other streams")                        \
    X(metadata_bytes, "records", NOW, BYTES, "host memory of its own records")                     \
    X(moved_bytes, "moved", TOTAL, BYTES, "unmapped here and mapped there")                        \
    X(decayed_bytes, "decayed", TOTAL, BYTES, "idle memory that was returned")                     \
    X(n_allocs, "allocations", TOTAL, COUNT, "kn_alloc calls that succeeded")                      \
    X(n_device_allocs, "device allocations", TOTAL, COUNT, "segments and handles taken")           \
    X(n_device_frees, "device frees", TOTAL, COUNT, "segments and handles given back")             \
    X(n_syncs, "syncs", TOTAL, COUNT, "waits of the host for the device")                          \
    X(n_events, "events", TOTAL, COUNT, "recorded on streams")                                     \
    X(n_queries, "queries", TOTAL, COUNT, "events asked for")                                      \
    X(n_ooms, "out of memory", TOTAL, COUNT, "allocations that failed")                            \
    X(n_misuses, "misuses", TOTAL, COUNT, "wrong frees and uses")

/* Counters of a pool. */
typedef struct kn_pool_stats {
#define X(name, row, column, unit, text) uint64_t name;
    KN_POOL_STATS_LIST(X)
#undef X
} kn_pool_stats;

/* Creates a pool. Options may be NULL. Errors: INVALID for options that contradict each other or
 * the device; UNSUPPORTED for shareable and rdma where the device lacks it; the message names
 * them. */
KN_API KN_MUST_CHECK kn_status kn_pool_create(kn_pool **out, kn_device *device,
                                              const kn_pool_options *options);
/* Logs the live blocks, waits for streams that still use blocks, and returns all memory to the
 * device. No-op on NULL. A device's own pool can't be destroyed, nor a pool twice: it logs an error
 * and does nothing. */
KN_API void kn_pool_destroy(kn_pool *pool);
/* The device's default pool, borrowed; created at first use. NULL, with the error pending, if it
 * can't be created. */
KN_API kn_pool *kn_device_pool(kn_device *device);
/* The device's pinned pool, borrowed; created at first use. NULL as for kn_device_pool.
 *
 * A pinned pool allocates page-locked host memory, so that copies to and from the device run beside
 * the CPU. The CPU may use a block as soon as kn_alloc returns; the stream that is passed has no
 * effect. After each copy that reads or writes the block, call kn_block_use with the copy's stream,
 * then kn_free: the pool reuses the block when those copies are done. No call waits for them. */
KN_API kn_pool *kn_device_pinned_pool(kn_device *device);
/* The pool's device. */
KN_API kn_device *kn_pool_device(const kn_pool *pool);
/* The pool's name in reports; borrowed until the pool is destroyed. */
KN_API const char *kn_pool_name(const kn_pool *pool);
/* Fills `out` (of out_bytes = sizeof *out) with the pool's options; the name is borrowed. */
KN_API void kn_pool_options_read(kn_pool_options *out, size_t out_bytes, kn_pool *pool);
/* Changes options of a pool at any time: read them, change some, set them. Memory
 * beyond the new limit goes back as kn_pool_limit says. Fixed when the pool is created:
 * slab_max_bytes, pinned, shareable, rdma and name; slab_max_bytes 0 and name NULL leave them as
 * they are. Errors: INVALID for another value of a fixed option or for options that contradict each
 * other, with the option's name and nothing changed; DEVICE in a child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_pool_options_set(kn_pool *pool, const kn_pool_options *options);
/* The same by words of KNET_ALLOC, such as "limit=8GiB,decay=10s"; "none" as a value sets the
 * default. Errors: as kn_pool_options_set; INVALID, with the word, for a word or value that is
 * wrong or that concerns the whole process (trace, stats, snapshot, oom). */
KN_API KN_MUST_CHECK kn_status kn_pool_configure(kn_pool *pool, const char *words);
/* Changes the limit of a pool; 0: no limit, nor a share of the device. If more is reserved, the
 * pool returns its free memory to the device. Memory in use goes back in the pool's own calls, once
 * it is freed and streams are done with it, until no more than the limit is reserved. The calls
 * look for such memory in a hundredth of their time, and after the last free; small allocations
 * take some nanoseconds longer meanwhile. Until it goes back it serves requests: a stream that
 * reuses all of it keeps it. To return free memory at once, call kn_pool_sync, then kn_pool_trim. A
 * live block keeps all of its handle; of the host and of pinned memory all of its segment, 32 MiB
 * or more, which may exceed the limit. A soft limit above the limit has no effect;
 * kn_pool_options_set rejects it. Errors: INVALID above the device's memory, which the host and
 * pinned memory may exceed; the device's. */
KN_API KN_MUST_CHECK kn_status kn_pool_limit(kn_pool *pool, size_t limit_bytes);

/* Allocates memory for work on the stream; 0 bytes: NULL and KN_OK. Errors: OOM, with the bytes
 * requested, live and unused, the limit, the largest free block and the largest owners; the pool
 * stays usable. CUDA: the driver failed for another reason. DEVICE: in a child of fork(). INVALID:
 * a stream of another context; a pool that is NULL, unless an error is pending, which it returns
 * then. On failure *out is NULL. A request that can't succeed changes
 * nothing: the pool maps, moves and returns no memory for it. */
KN_API KN_MUST_CHECK kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes,
                                        kn_stream stream);
/* The same at a multiple of `align`. Every block is aligned to 256 bytes at least. Errors: INVALID
 * if `align` is not a power of two. */
KN_API KN_MUST_CHECK kn_status kn_alloc_aligned(void **out, kn_pool *pool, size_t size_bytes,
                                                size_t align, kn_stream stream);
/* Frees a block in the order of its stream; does not wait. A pointer that is not a live block of
 * this pool is an INVALID error: it is logged and counted, and changes nothing, so the result may
 * be ignored. No-op if ptr is NULL, whatever the pool; INVALID if the pool alone is. Of two threads
 * that free a small block at the same moment builds with KNET_CHECKED find the second; in others it
 * may be missed, and the pool would hand the block out twice. */
KN_API kn_status kn_free(kn_pool *pool, void *ptr);
/* Marks a use on another stream; call it after you enqueued that use and before kn_free. The other
 * stream must first wait for the block's own stream (with an event): the memory is safe there only
 * after the work that the block's stream had enqueued when the block was allocated. Errors: INVALID
 * for a pointer that is not a live block (logged and counted) or a stream of another context; OOM:
 * no host memory. */
KN_API KN_MUST_CHECK kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream);
/* Before the stream writes into a block that others may still read: makes it wait, on the device,
 * for what the streams that kn_block_use named since the last call have enqueued. The block's own
 * stream is waited for the first time, and then if it was named. A stream on which no event can be
 * recorded (captured, or another thread's cudaStreamPerThread) is not waited for. Errors: INVALID
 * as for kn_block_use; OOM: no host memory; the driver's. */
KN_API KN_MUST_CHECK kn_status kn_block_await(kn_pool *pool, void *ptr, kn_stream stream);

/* A live block, for queries by address. */
typedef struct kn_block_info {
    void *ptr;              /* where it starts */
    size_t size_bytes;      /* as rounded */
    size_t requested_bytes; /* as asked for */
    kn_stream stream;       /* that it was allocated on */
    const char *tag;        /* "": none; valid until the process ends */
    bool graph;             /* it belongs to a graph; see pool_graph.h */
    uint64_t reserved[4];   /* zero */
} kn_block_info;
/* Fills `out` (of out_bytes = sizeof *out) for the live block that contains the address. Returns
 * false, and leaves `out` alone, if no live block of the pool does; that is no misuse. For the
 * start of a block, or a small one, it takes tens of nanoseconds; else it walks the pool. */
KN_API bool kn_block_find(kn_block_info *out, size_t out_bytes, kn_pool *pool, const void *ptr);

/* What kn_pool_visit shows. */
typedef enum kn_part_kind {
    KN_PART_SEGMENT = 1, /* memory of the device, at addresses side by side; its parts follow */
    KN_PART_LIVE,        /* a block that was handed out */
    KN_PART_FREE,        /* free, or in a thread's cache */
    KN_PART_WAITING      /* freed, and still in use on other streams */
} kn_part_kind;
/* A segment, or a part of one. */
typedef struct kn_pool_part {
    kn_part_kind kind;    /* segment, block, slot or waiting memory */
    bool graph;           /* it belongs to a graph; see pool_graph.h */
    void *ptr;            /* where it starts */
    size_t size_bytes;    /* of all of it */
    uint64_t requested;   /* of a live block: as asked for */
    kn_stream stream;     /* of a block that is not a segment: its stream; NULL also: any stream */
    const char *tag;      /* of a live block; "": none; valid until the process ends */
    uint64_t reserved[4]; /* zero */
} kn_pool_part;
/* Called for a segment or a part; true ends the walk. It must not call the pool, nor fork(), which
 * would wait for the pool for ever. */
typedef bool (*kn_pool_visit_fn)(void *ctx, const kn_pool_part *part);
/* Shows every segment and, after each, its parts in the order of their addresses, with the pool
 * locked. The few bytes of a slab that make no slot are not shown. */
KN_API void kn_pool_visit(kn_pool *pool, kn_pool_visit_fn fn, void *ctx);

/* Fills `out` (of out_bytes = sizeof *out). Exact when no other thread is in the pool.
 * live_bytes_max is exact if one thread uses the pool; with several it may be off by the size of
 * their caches (256 KiB or 4 slots a size class and stream): these are counted now and then. */
KN_API void kn_pool_stats_read(kn_pool_stats *out, size_t out_bytes, const kn_pool *pool);
/* Reads one counter by its name, such as "live_bytes". Errors: INVALID if there is no such counter.
 */
KN_API KN_MUST_CHECK kn_status kn_pool_stat(uint64_t *out, const kn_pool *pool, const char *name);
/* Starts the high-water marks again at the values of this moment: of live and reserved bytes, and
 * of the live bytes of each tag. As exact as kn_pool_stats_read. */
KN_API void kn_pool_peaks_reset(kn_pool *pool);
/* High-water marks of a part of a program: between a push and its pop they start again, tags' too;
 * the pop returns the pool's and gives the outer part its own again, which are never less. Up to 16
 * deep. Reset only the innermost. */
typedef struct kn_pool_peaks {
    uint64_t live_bytes_max;     /* most that was live since the push */
    uint64_t reserved_bytes_max; /* most that was reserved */
} kn_pool_peaks;
/* Errors: INVALID if 16 are pushed already. */
KN_API KN_MUST_CHECK kn_status kn_pool_peaks_push(kn_pool *pool);
/* `out` may be NULL. Errors: INVALID if none is pushed. */
KN_API KN_MUST_CHECK kn_status kn_pool_peaks_pop(kn_pool_peaks *out, kn_pool *pool);
/* Writes all counters, also by size class, stream and rung of the ladder, and the largest owners. A
 * path that ends in ".json" gets JSON; "-" is stderr; "%p" in a path is replaced by the process id,
 * "%r" by the rank of the process in its job, "%%" by a percent sign. Errors: INVALID for no path;
 * IO, with the path. */
KN_API KN_MUST_CHECK kn_status kn_pool_print(kn_pool *pool, const char *path);
/* Takes memory from the device now, so that one later request of size_bytes on the stream, or
 * several smaller ones, need none: before a timed part of a program. It stays until it is trimmed
 * or decays. It is no allocation: no counter of live bytes or tags has it, nor a trace. Errors: as
 * kn_alloc. */
KN_API KN_MUST_CHECK kn_status kn_pool_preallocate(kn_pool *pool, size_t size_bytes,
                                                   kn_stream stream);
/* Returns free memory to the device until at most keep_bytes are reserved or the rest is in use.
 * Empties the caches of all threads, also of blocked ones; a thread that is inside a call of the
 * pool at this moment keeps its slots. Keeps memory that streams may still use: the call does not
 * wait. Errors: DEVICE in a child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_pool_trim(kn_pool *pool, size_t keep_bytes);
/* Puts the slots that the calling thread keeps for the pool back, so that other threads can have
 * them: before a thread sleeps for long. kn_pool_trim does this for all threads. */
KN_API void kn_pool_flush_thread(kn_pool *pool);
/* Makes the host wait for the streams that may still use freed memory, so that every stream can
 * reuse it and kn_pool_trim can return it. Waits for the whole device only where a stream or a
 * graph is gone that no event can be recorded for. While a stream is captured, the memory of these
 * stays aside. Errors: DEVICE in a child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_pool_sync(kn_pool *pool);
/* Writes every segment and block as JSON: address, size, state and stream; for live blocks also the
 * bytes requested, the owner and the tag; blocks of a graph (pool_graph.h) are marked. The path is
 * as for kn_pool_print. Errors: INVALID for no path; IO, with the path. */
KN_API KN_MUST_CHECK kn_status kn_pool_snapshot(kn_pool *pool, const char *path);
/* Walks the whole pool and cross-checks its bookkeeping; for tests, while no other thread is in the
 * pool (nor was at an earlier fork()). Errors: INTERNAL, with the first broken invariant. */
KN_API KN_MUST_CHECK kn_status kn_pool_check(kn_pool *pool);

/* Writes a report of the last allocation that failed, as JSON: the request, the counters, the
 * largest owners, the rungs of the ladder that were tried. Errors: INVALID if no allocation has
 * failed, or for no path; IO, with the path. */
KN_API KN_MUST_CHECK kn_status kn_pool_oom_json(kn_pool *pool, const char *path);
/* Tags name the purpose of memory. Each thread has a stack of tags; a block counts for the tag that
 * was innermost when it was allocated, whichever thread frees it. Names are copied, compared by
 * their first 63 bytes, and kept until the process ends. Tags after the first 254 of the process
 * share the tag "(other tags)"; a push beyond a depth of 32 is ignored. NULL or "": no tag. */
KN_API void kn_tag_push(const char *name);
KN_API void kn_tag_pop(void);
/* Counters of a tag. */
typedef struct kn_tag_stats {
    const char *name;                    /* borrowed; valid until the process ends */
    uint64_t live_bytes, live_bytes_max; /* now; the most so far */
    uint64_t n_allocs;                   /* allocations under this tag */
} kn_tag_stats;
/* Fills the first n of `out` with the tags that have most live bytes; returns the number of tags of
 * the pool. As exact as kn_pool_stats_read. */
KN_API size_t kn_pool_tags(kn_tag_stats *out, size_t n, const kn_pool *pool);

static inline int kn_tag_begin_(const char *name) {
    kn_tag_push(name);
    return 0;
}
static inline void kn_tag_end_(int *begun) {
    (void)begun;
    kn_tag_pop();
}
/* Not for users: joins two words. */
#define KN_TAG_CAT_(a, b) a##b
#define KN_TAG_CAT(a, b) KN_TAG_CAT_(a, b)
/* A tag until the end of the block. It is a declaration: put it before any goto of its block. */
#define KN_TAG(name)                                                                               \
    __attribute__((unused, cleanup(kn_tag_end_))) int KN_TAG_CAT(kn_tag_, __COUNTER__) =           \
        kn_tag_begin_(name)

/* A callback that the pool calls before an allocation fails; it returns the bytes that it freed. It
 * may call kn_free. Before the request fails the pool calls them again as long as one returns more
 * than 0 and they free memory: a cache may give up one entry a call. That is so where the calling
 * thread freed more in them than it allocated, even if other threads took it, or where the pool's
 * live bytes fell. An allocation inside it may fail sooner, since it calls no callback. */
typedef size_t (*kn_oom_fn)(void *ctx, kn_pool *pool, size_t wanted_bytes);
/* Adds a callback. The pool calls it on the thread whose allocation would fail, and holds no lock.
 * Errors: INVALID for a NULL function, or if the pool has 16 callbacks already. */
KN_API KN_MUST_CHECK kn_status kn_pool_oom_attach(kn_pool *pool, kn_oom_fn fn, void *ctx);
/* Removes the callback with this function and context, if there is one. Does not wait: the callback
 * may still be running on another thread. */
KN_API void kn_pool_oom_detach(kn_pool *pool, kn_oom_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
