/* Pools: a caching, stream-ordered allocator in front of a device.
 *
 * A block belongs to the stream it was allocated on. Freed, it is reusable on that stream at once,
 * with no event and no wait: the stream's order keeps it safe. Mark a use on another stream with
 * kn_block_use before you free the block; it is then reused only after that stream's work. In
 * steady state no call reaches the driver.
 *
 * A request is served by what its stream freed, then by what other streams freed and are known to
 * be done with, then by new memory. No stream waits for another while the pool can grow. When the
 * pool would reserve more than nine tenths of the memory that it can have (options.pressure), free
 * memory first moves to where it is wanted; when it can't grow, it takes memory of other streams
 * after a wait on the device; only then the host waits.
 *
 * Call kn_stream_retire before you destroy a stream of your own. Where the driver has stream ids
 * (CUDA 12), a handle that is reused after a missing call is safe: memory of the destroyed stream
 * stays out of use until the pool would run out. cudaStreamPerThread is the calling thread's
 * stream.
 *
 *     void *x = NULL;
 *     KN_TRY(kn_alloc(&x, pool, bytes, stream));
 *     kernel<<<grid, block, 0, stream>>>(x);
 *     kn_free(pool, x);                          // at once
 *
 * live = handed out; requested = asked for, before rounding; reserved = taken from the device.
 * Threads: any thread, any time; destroy after every other use. Blocks are aligned to 256 bytes.
 */
#ifndef KNET_POOL_H
#define KNET_POOL_H

#include <knet/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_pool kn_pool;

typedef struct kn_pool_options {
    size_t limit_bytes;      /* most the pool may reserve; 0: what the device has */
    size_t soft_limit_bytes; /* above it the pool uses all that is free, waits on the device and
                                calls back before it grows; 0: none */
    size_t slab_max_bytes;   /* largest size served from slabs; 0: 64 KiB */
    double device_fraction;  /* limit as a share of the device's memory, in (0, 1]; 0: none */
    double pressure;   /* in (0, 1]: when the pool would reserve more than this share of the memory
                          that it can have (limits, and what the device has free), free memory moves
                          before the pool grows; 0: 0.9 */
    uint64_t decay_ns; /* return memory that has been idle this long; 0: never */
    uint64_t (*clock_fn)(void *ctx); /* nanoseconds, for decay; NULL: the system's. Called inside
                                        the pool's calls, whose functions it must not call */
    void *clock_ctx;
    bool pinned;          /* page-locked host memory, for copies to and from the device; see
                             kn_device_pinned_pool */
    const char *name;     /* in reports; copied; NULL: the device's name */
    uint64_t reserved[4]; /* zero */
} kn_pool_options;

/* One list of counters: X(name, row, column, unit, text). It makes kn_pool_stats, the table of
 * kn_pool_print, the JSON and kn_pool_stat. NOW: at this moment; PEAK: the most there was; TOTAL:
 * since the pool was made. */
#define KN_POOL_STATS_LIST(X)                                                                      \
    X(live_bytes, "live", NOW, BYTES, "handed out, as rounded")                                    \
    X(live_bytes_max, "live", PEAK, BYTES, "")                                                     \
    X(requested_bytes, "requested", NOW, BYTES, "handed out, as asked for")                        \
    X(reserved_bytes, "reserved", NOW, BYTES, "taken from the device")                             \
    X(reserved_bytes_max, "reserved", PEAK, BYTES, "")                                             \
    X(cached_bytes, "cached", NOW, BYTES, "free slots in threads' caches")                         \
    X(waiting_bytes, "waiting", NOW, BYTES, "freed, and still in use on other streams")            \
    X(metadata_bytes, "records", NOW, BYTES, "host memory for the pool's own records")             \
    X(moved_bytes, "moved", TOTAL, BYTES, "unmapped here and mapped there")                        \
    X(decayed_bytes, "decayed", TOTAL, BYTES, "returned to the device after it was idle")          \
    X(n_allocs, "allocations", TOTAL, COUNT, "kn_alloc calls that succeeded")                      \
    X(n_device_allocs, "device allocations", TOTAL, COUNT, "segments and handles taken")           \
    X(n_device_frees, "device frees", TOTAL, COUNT, "segments and handles given back")             \
    X(n_syncs, "syncs", TOTAL, COUNT, "waits of the host for the device")                          \
    X(n_events, "events", TOTAL, COUNT, "recorded on streams")                                     \
    X(n_queries, "queries", TOTAL, COUNT, "events asked whether they happened")                    \
    X(n_ooms, "out of memory", TOTAL, COUNT, "allocations that failed")                            \
    X(n_misuses, "misuses", TOTAL, COUNT, "wrong frees and uses")

typedef struct kn_pool_stats {
#define X(name, row, column, unit, text) uint64_t name;
    KN_POOL_STATS_LIST(X)
#undef X
} kn_pool_stats;

/* Errors: INVALID for options that contradict each other or the device, naming them. */
KN_API KN_MUST_CHECK kn_status kn_pool_create(kn_pool **out, kn_device *device,
                                              const kn_pool_options *options);
/* Logs the live blocks, waits for streams that still use blocks, and returns all memory to the
 * device. Ignores NULL; logs and keeps a device's own pool, and one that is destroyed already. */
KN_API void kn_pool_destroy(kn_pool *pool);
/* The device's default pool, borrowed; made at first use. NULL, with the error pending, only when
 * it can't be made. */
KN_API kn_pool *kn_device_pool(kn_device *device);
/* The device's pinned pool, borrowed; made at first use. NULL as for kn_device_pool.
 *
 * The memory of a pinned pool is the host's, page-locked so that copies to and from the device run
 * beside the CPU. It is the CPU's as soon as kn_alloc returns, whatever stream is passed; a copy
 * that reads or writes it is a use: kn_block_use with the copy's stream, before kn_free. What is
 * freed is handed out again when those copies are done, asked for with no wait. */
KN_API kn_pool *kn_device_pinned_pool(kn_device *device);
/* The device the pool was made on. */
KN_API kn_device *kn_pool_device(const kn_pool *pool);
/* Its name in reports; borrowed, as long as the pool lives. */
KN_API const char *kn_pool_name(const kn_pool *pool);
/* Changes the limit of a pool; 0: no limit. If more is reserved, the pool returns its free memory
 * to the device and keeps the rest. */
KN_API KN_MUST_CHECK kn_status kn_pool_limit(kn_pool *pool, size_t limit_bytes);

/* 0 bytes: NULL and KN_OK. Errors: OOM, whose message says requested, live, unused, limit, the
 * largest free block and who owns most; the pool stays usable. CUDA: the driver refused for another
 * reason. DEVICE: in a child of fork(). INVALID: a stream of another context. On failure *out is
 * NULL, and a request that can't succeed changes nothing: no memory is mapped, moved or returned
 * for it. */
KN_API KN_MUST_CHECK kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes,
                                        kn_stream stream);
/* The same at a multiple of `align`. Every block is aligned to 256 bytes at least. Errors: INVALID
 * if `align` is not a power of two. */
KN_API KN_MUST_CHECK kn_status kn_alloc_aligned(void **out, kn_pool *pool, size_t size_bytes,
                                                size_t align, kn_stream stream);
/* Frees at once, in the order of the block's stream. The result may be ignored: misuse (not a block
 * of this pool, freed already) is an INVALID error, logged and counted, and changes nothing. No-op
 * on NULL. */
KN_API kn_status kn_free(kn_pool *pool, void *ptr);
/* Marks a use on another stream; call it after that use was enqueued and before kn_free. The other
 * stream must have waited for the block's own (an event): the memory is safe to use there only
 * after what that stream had enqueued when the block was allocated. Errors: INVALID for a pointer
 * that is no live block (logged and counted) or a stream of another context; OOM: no host memory.
 */
KN_API KN_MUST_CHECK kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream);

/* Fills `out` (of out_bytes = sizeof *out). Exact when no other thread is in the pool.
 * live_bytes_max is exact where one thread uses the pool; with several it may be off by what fits
 * their caches (a few MiB each), as their counters are put together only now and then. */
KN_API void kn_pool_stats_read(kn_pool_stats *out, size_t out_bytes, const kn_pool *pool);
/* One counter by its name, such as "live_bytes". Errors: INVALID if there is no such counter. */
KN_API KN_MUST_CHECK kn_status kn_pool_stat(uint64_t *out, const kn_pool *pool, const char *name);
/* Writes all counters, also by size class, stream and rung of the ladder, and the largest owners;
 * as JSON where the path ends in ".json". "-" is stderr, "%p" in a path the process id. Errors: IO,
 * naming the path. */
KN_API KN_MUST_CHECK kn_status kn_pool_print(kn_pool *pool, const char *path);
/* Returns free memory to the device until at most keep_bytes are reserved, or all that is left is
 * in use. Empties the caches of all threads, also of threads that are blocked; only a thread that
 * is inside a call of the pool at this moment keeps its slots. Memory that streams may still use
 * stays: nothing waits. Errors: DEVICE in a child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_pool_trim(kn_pool *pool, size_t keep_bytes);
/* Writes every segment and block as JSON: address, size, state and stream; of live blocks also the
 * bytes requested, the owner and the tag; blocks of a graph (pool_graph.h) are marked. Errors: IO,
 * naming the path. */
KN_API KN_MUST_CHECK kn_status kn_pool_snapshot(kn_pool *pool, const char *path);
/* Walks the whole pool and cross-checks its bookkeeping; for tests, while no other thread is in it
 * (nor was at a fork() before). Errors: INTERNAL, naming the first broken invariant. */
KN_API KN_MUST_CHECK kn_status kn_pool_check(kn_pool *pool);

/* Writes a report of the last allocation that failed, as JSON: the request, the counters, who held
 * most, how far the ladder was climbed. Errors: INVALID if none failed; IO, naming the path. */
KN_API KN_MUST_CHECK kn_status kn_pool_oom_json(kn_pool *pool, const char *path);
/* Tags: names for what memory is for. Each thread has a stack of them; a block counts for the tag
 * that was innermost where it was allocated, whoever frees it. Names are copied, told apart by
 * their first 63 bytes, and kept for good; those beyond the first 254 in the process share the tag
 * "(other tags)", and a push beyond a depth of 32 changes nothing. NULL or "": no tag. */
KN_API void kn_tag_push(const char *name);
KN_API void kn_tag_pop(void);
typedef struct kn_tag_stats {
    const char *name; /* borrowed, for good */
    uint64_t live_bytes, live_bytes_max;
    uint64_t n_allocs;
} kn_tag_stats;
/* Fills the first n of `out` with the tags that have most live bytes; returns how many the pool has
 * seen. As exact as kn_pool_stats_read. */
KN_API size_t kn_pool_tags(kn_tag_stats *out, size_t n, const kn_pool *pool);

static inline int kn_tag_begin_(const char *name) {
    kn_tag_push(name);
    return 0;
}
static inline void kn_tag_end_(int *begun) {
    (void)begun;
    kn_tag_pop();
}
#define KN_TAG_CAT_(a, b) a##b
#define KN_TAG_CAT(a, b) KN_TAG_CAT_(a, b)
/* A tag until the end of the block; a declaration: put it before any goto of its block. */
#define KN_TAG(name)                                                                               \
    __attribute__((unused, cleanup(kn_tag_end_))) int KN_TAG_CAT(kn_tag_, __COUNTER__) =           \
        kn_tag_begin_(name)

/* Called before an allocation fails; returns bytes freed. May call kn_free; an
 * allocation inside it may fail sooner, since it calls no callback. */
typedef size_t (*kn_oom_fn)(void *ctx, kn_pool *pool, size_t wanted_bytes);
/* Adds a callback; it is called on the thread whose allocation would fail, with no lock of the pool
 * held. Errors: INVALID for a NULL function, or when the pool has 16 already. */
KN_API KN_MUST_CHECK kn_status kn_pool_oom_attach(kn_pool *pool, kn_oom_fn fn, void *ctx);
/* Removes the callback with the same function and context, if there is one. Does not wait: on
 * another thread the callback may still be running, once. */
KN_API void kn_pool_oom_detach(kn_pool *pool, kn_oom_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
