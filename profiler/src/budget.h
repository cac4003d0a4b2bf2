/* What the timer may take for itself: one bound for nodes, events and launches of all threads, so
 * that a run of days stays within it. */
#ifndef KN_PROFILER_BUDGET_H
#define KN_PROFILER_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

enum { KN__BUFFER_BYTES = 64 << 20, KN__BUFFER_BYTES_MIN = 1 << 20 };

/* Before the first scope. */
void kn__budget_set(uint64_t bytes);
/* Counts the bytes; false: that would be too many, and nothing is counted. */
bool kn__budget_take(size_t bytes);
/* Bytes that were taken and freed. */
void kn__budget_return(size_t bytes);
/* Memory of the timer's own, aligned to 64 bytes; no heap of the program counts it. NULL: none
 * left. The caller has taken its bytes. */
void *kn__budget_alloc(size_t bytes);
/* Makes a hash table grow, as kn__hash_grow does; false: no bytes or no memory are left. */
bool kn__budget_grow(kn__hash *hash, size_t slot_bytes, size_t n_least);
uint64_t kn__budget_used(void);
uint64_t kn__budget_limit(void);
/* Notes that memory taken earlier is used up, which counts as bytes refused. */
void kn__budget_note_full(void);
/* Whether some bytes were refused: the report says so. */
bool kn__budget_was_full(void);

#endif
