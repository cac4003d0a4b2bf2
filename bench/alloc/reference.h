/* The reference: a minimal pool with the policy of RMM's pool_memory_resource.
 *
 * One mutex, one range of addresses with exact best fit, and a list of free blocks for each stream.
 * A request is served from its stream's list; then from another stream's list, and its stream waits
 * for all work enqueued on the other one; then by growth. It is cheaper than a real pool: it
 * allocates the whole device at once, takes streams by index, keeps no statistics, and records an
 * event only when it steals.
 *
 * Threads: any, any time; create and destroy apart.
 */
#ifndef KNET_BENCH_REFERENCE_H
#define KNET_BENCH_REFERENCE_H

#include <knet/device.h>

typedef struct reference reference;

/* streams: borrowed until destroyed. */
KN_MUST_CHECK kn_status reference_create(reference **out, kn_device *device,
                                         uint64_t capacity_bytes, const kn_stream *streams,
                                         uint32_t n_streams);
void reference_destroy(reference *r);
/* stream: an index. Errors: OOM; the driver's. */
KN_MUST_CHECK kn_status reference_alloc(void **out, reference *r, size_t size_bytes,
                                        uint32_t stream);
/* Frees in the order of `stream`, the last one that uses the block. */
void reference_free(reference *r, void *ptr, uint32_t stream);

#endif
