/* The observer: callbacks by which a profiler follows the allocator.
 *
 * A process has at most one observer, a table of functions that must stay valid for the life of the
 * process. Without one, a call of the pool costs one predictable branch. The pool calls a function
 * on the thread that allocates or frees, inside its own call and outside its locks, unless the
 * function's comment says that a lock may be held. A function must not call into any pool; where no
 * lock is held it may read the pool's name, device and statistics (kn_pool_stats_read). A NULL
 * member is skipped.
 */
#ifndef KNET_OBSERVER_H
#define KNET_OBSERVER_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The callbacks. */
typedef struct kn_observer {
    /* Called before and after each call of a device's driver, with the driver's name for it
     * ("cuMemCreate", "mmap"). May be called with a pool's lock held. */
    void (*on_call_begin)(const char *name);
    void (*on_call_end)(const char *name);

    /* The pool allocated a block of size_bytes, rounded up. The result is the block's owner: the
     * pool keeps it with the block, passes it to on_free, and names it in snapshots and
     * out-of-memory reports through owner_name. */
    uint32_t (*on_alloc)(kn_pool *pool, void *ptr, size_t size_bytes, kn_stream stream);
    /* The pool freed the block. */
    void (*on_free)(kn_pool *pool, void *ptr, size_t size_bytes, uint32_t owner);
    /* Reserved bytes changed by `delta_bytes` (grow > 0, trim < 0). */
    void (*on_reserve)(kn_pool *pool, int64_t delta_bytes, uint64_t reserved_bytes);
    /* An allocation of `wanted_bytes` failed. */
    void (*on_oom)(kn_pool *pool, size_t wanted_bytes);
    /* Called once for each pool, with the registry's lock held: when the pool is created, or at
     * attach for pools that exist already. It must not create or destroy a pool or a device. */
    void (*on_pool_create)(kn_pool *pool);
    /* The pool is about to return its memory; on_reserve follows. */
    void (*on_pool_destroy)(kn_pool *pool);
    /* Copies an owner's label into `out` (of out_bytes), for reports; returns false if the owner is
     * unknown. May be called with a pool's lock held. */
    bool (*owner_name)(uint32_t owner, char *out, size_t out_bytes);
    /* kn_block_use succeeded. */
    void (*on_use)(kn_pool *pool, void *ptr, kn_stream stream);
    /* The pool's high-water marks started again (kn_pool_peaks_reset, kn_pool_peaks_push); what the
     * mark of live bytes was until then. */
    void (*on_peaks_reset)(kn_pool *pool, uint64_t live_bytes_max);
} kn_observer;

/* Attaches the observer; NULL detaches it. Errors: INVALID if another one is attached. */
KN_API KN_MUST_CHECK kn_status kn_observer_attach(const kn_observer *observer);

#ifdef __cplusplus
}
#endif
#endif
