/* A trace of every scope and every piece of GPU work, in the JSON that chrome://tracing, Perfetto
 * and PyTorch's tools read (keys as Kineto writes them).
 *
 * Each thread collects its events and writes them when it has many; the file is complete after
 * every write but for its last line, and never grows beyond its bound: what comes after is counted.
 */
#ifndef KN_PROFILER_TRACE_H
#define KN_PROFILER_TRACE_H

#include "activity.h"

enum { KN__TRACE_BYTES_MAX = 1 << 30 };

/* Opens the file; `bytes_max` is its bound (0: KN__TRACE_BYTES_MAX). Errors: IO, naming the path.
 */
KN_MUST_CHECK kn_status kn__trace_start(const char *path, uint64_t bytes_max);
/* Whether events are wanted. */
bool kn__trace_is_on(void);

/* While paused events are neither wanted nor counted. */
void kn__trace_pause(bool paused);

/* A scope that ended, in ticks; on the thread that owns the tree. */
void kn__trace_scope(kn__tree *tree, const kn__node *node, uint64_t start, uint64_t end);
/* Live bytes changed; on the thread that owns the tree. */
void kn__trace_memory(kn__tree *tree, int64_t live);
/* A piece of GPU work. */
void kn__trace_record(const kn__record *record);

/* Writes what a thread has collected: when it ends. */
void kn__trace_flush(kn__tree *tree);
/* Writes what all threads have collected and closes the file. Errors: IO, when a write failed. */
KN_MUST_CHECK kn_status kn__trace_finish(void);
/* In a forked child: the file is the parent's. */
void kn__trace_forget(void);

#endif
