/* Memory of an allocator that is not Knet's, in the timer's table.
 *
 *     static kn_prof_heap *heap;                     // one for each allocator
 *     heap = kn_prof_heap_get("arena");
 *     block->owner = kn_prof_heap_alloc(heap, block, size);
 *     ...
 *     kn_prof_heap_free(heap, block, size, block->owner);
 *
 * A block belongs to the scope that is open on the thread that allocates it, as the blocks of
 * Knet's pools do; the table has a line for each heap. `knet run --malloc` does this for malloc.
 *
 * Errors: none; what can't be counted isn't. Threads: any. No-op in a child of fork().
 */
#ifndef KNET_PROF_HEAP_H
#define KNET_PROF_HEAP_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts of the blocks of one allocator. */
typedef struct kn_prof_heap kn_prof_heap;

/* The owner of a block that was not counted. */
#define KN_PROF_NO_OWNER UINT32_MAX

/* The heap of this name, of at most 31 bytes, made at first sight; it lives as long as the process.
 * NULL if KNET_TIMER doesn't record memory, or if there are too many heaps and live pools (32):
 * then each call counts as a pool that has no line in the report. */
KN_API kn_prof_heap *kn_prof_heap_get(const char *name);

/* Counts a block, and returns its owner, which kn_prof_heap_free wants. No-op on a heap that is
 * NULL and for more than 2^56 - 1 bytes: returns KN_PROF_NO_OWNER. Takes a lock; safe inside an
 * allocator, also one that the timer uses. */
KN_API uint32_t kn_prof_heap_alloc(kn_prof_heap *heap, const void *ptr, size_t size_bytes);

/* Counts the end of a block: with the size and the owner that it began with. No-op for an owner
 * KN_PROF_NO_OWNER. With `ptr` NULL the block is not called temporary. */
KN_API void kn_prof_heap_free(kn_prof_heap *heap, const void *ptr, size_t size_bytes,
                              uint32_t owner);

#ifdef __cplusplus
}
#endif
#endif
