/* The observer: how a profiler sees the allocator without the allocator knowing a profiler.
 *
 * One process-wide pointer to a table of functions; NULL = off = one predictable branch. The table
 * must stay valid for the life of the process. Functions are called on the thread that acts, inside
 * the pool's call but outside its locks, except where said; they must not call into any pool, but
 * that where no pool's lock is held they may read its name, its device and its statistics
 * (kn_pool_stats_read). A NULL member is not called.
 */
#ifndef KNET_OBSERVER_H
#define KNET_OBSERVER_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_observer {
    /* Before and after each call to a device's driver: name as the driver's own ("cuMemCreate",
     * "mmap"). May be called with a pool's lock held. */
    void (*on_call_begin)(const char *name);
    void (*on_call_end)(const char *name);

    /* A block was handed out; the number returned is its owner: kept with the block, given back to
     * on_free, shown in snapshots and out-of-memory reports through owner_name. size_bytes is the
     * rounded (live) size. */
    uint32_t (*on_alloc)(kn_pool *pool, void *ptr, size_t size_bytes, kn_stream stream);
    void (*on_free)(kn_pool *pool, void *ptr, size_t size_bytes, uint32_t owner);
    /* Reserved bytes changed by `delta_bytes` (grow > 0, trim < 0). */
    void (*on_reserve)(kn_pool *pool, int64_t delta_bytes, uint64_t reserved_bytes);
    void (*on_oom)(kn_pool *pool, size_t wanted_bytes);
    /* Once for each pool, with the registry's lock held: when it is made, or at attach for those
     * that exist already. It must make or destroy no pool and no device. */
    void (*on_pool_create)(kn_pool *pool);
    /* Before its memory is given back; the on_reserve of that follows. */
    void (*on_pool_destroy)(kn_pool *pool);
    /* The label of an owner, for reports; copied into `out` (of out_bytes); returns false when
     * unknown. May be called with a pool's lock held. */
    bool (*owner_name)(uint32_t owner, char *out, size_t out_bytes);
    /* kn_block_use succeeded. */
    void (*on_use)(kn_pool *pool, void *ptr, kn_stream stream);
} kn_observer;

/* Attaches the observer, or detaches it with NULL. Errors: INVALID when another one is attached. */
KN_API KN_MUST_CHECK kn_status kn_observer_attach(const kn_observer *observer);

#ifdef __cplusplus
}
#endif
#endif
