/* What the pool storey asks of the one above: inspect/ implements these functions, and nothing
 * below knows more of it. All other news it gets as an observer does. */
#ifndef KN_ALLOC_INSPECTOR_H
#define KN_ALLOC_INSPECTOR_H

#include <knet/pool.h>

/* An allocation that failed. */
typedef struct kn__oom_request {
    kn_status status;
    /* Asked for, and needed with all rounding: a block's or a slab's. */
    uint64_t requested_bytes, needed_bytes, align;
    bool slab, capturing;
    kn_stream stream;
    /* Why the device gave no memory; empty: it was not asked. */
    char device_said[200];
} kn__oom_request;

/* A pool is created: reserves host memory for the out-of-memory report. Errors: OOM. */
kn_status kn__inspect_create(kn_pool *pool);
/* Records the error of a failed allocation, with the memory's holders; returns its status. Under
 * the pool's lock. */
kn_status kn__inspect_oom(kn_pool *pool, const kn__oom_request *request);
/* Writes what KNET_ALLOC asks for of it, with the lock open. The thread's last error stays. */
void kn__inspect_oom_report(kn_pool *pool);
/* The pool is being destroyed, its caches are gone: logs live blocks, writes KNET_ALLOC's files. */
void kn__inspect_destroy(kn_pool *pool);
/* The number of a tag; 0: no memory of the process ever had it. */
unsigned kn__inspect_tag(const char *name);
/* KNET_ALLOC's options for the devices' default pools; where they don't fit the device, says on
 * stderr why, and what the pool has `lost`. */
const kn_pool_options *kn__inspect_options(void);
void kn__inspect_options_misfit(const kn_device *device, const kn_error *why, const char *lost);

#endif
