/* A trace of every scope and every piece of GPU work: in the JSON that chrome://tracing, Perfetto
 * and PyTorch's tools read, or in Perfetto's own format, where the file's name ends in ".pftrace".
 *
 * Each thread collects its events; a thread of the timer's own writes them, so that no scope waits
 * for a file. The file is complete after every write but for the last line of JSON, and never grows
 * beyond its bound: what comes after is counted.
 */
#ifndef KN_PROFILER_TRACE_H
#define KN_PROFILER_TRACE_H

#include <string.h>

#include "activity.h"
#include "report.h"
#include "text.h"

enum { KN__TRACE_BYTES_MAX = 1 << 30, KN__TRACE_EVENTS_BYTES_MAX = 64 << 20 };

/* Before the start: only the last `n` steps are written, at the end (n up to KN__TRACE_STEPS_MAX,
 * 0: all). With slow_ns: whenever a step takes longer, it and the n - 1 steps before it are. */
enum { KN__TRACE_STEPS_MAX = 1000 };
void kn__trace_keep(uint64_t n, uint64_t slow_ns);
/* A measured step ended, and took spent_ns; 0: not known. */
void kn__trace_step(uint64_t spent_ns);

/* Before the start: the last events are kept for the timeline of a page too (trace_shown.h);
 * `only`: for it alone, and no file is written. */
void kn__trace_show(bool shown, bool only);

/* Whether it is the name of a trace in Perfetto's format. */
static inline bool kn__trace_is_perfetto(const char *path) {
    static const char end[] = ".pftrace";
    size_t n = strlen(path);
    return n >= sizeof end - 1 && strcmp(path + n - (sizeof end - 1), end) == 0;
}

/* Opens the file, or, where the path is NULL, memory of the system's that has the JSON of
 * kn__trace_take at the end; `bytes_max` is its bound (0: KN__TRACE_BYTES_MAX,
 * KN__TRACE_EVENTS_BYTES_MAX). Errors: IO, naming the path.
 */
KN_MUST_CHECK kn_status kn__trace_start(const char *path, uint64_t bytes_max);
/* Whether events are wanted. */
bool kn__trace_is_on(void);

/* While paused events are neither wanted nor counted. */
void kn__trace_pause(bool paused);

/* A scope that ended, or a range, in ticks; on the thread that owns the tree. */
void kn__trace_scope(kn__tree *tree, const kn__tree_node *node, uint64_t start, uint64_t end);
/* Live bytes changed; on the thread that owns the tree. */
void kn__trace_memory(kn__tree *tree, int64_t live);
/* A sample of a counter; on the thread that owns the tree, NULL: it has none. */
void kn__trace_counter_sample(kn__tree *tree, kn__trace_event sample);
/* GPU work was launched; on the thread that owns the tree. */
void kn__trace_launch(kn__tree *tree, uint32_t id);
/* A piece of GPU work, and the id of its launch; 0: not known. */
void kn__trace_record(const kn__record *record, uint32_t launch);

/* Hands over what a thread has collected: when it ends. */
void kn__trace_flush(kn__tree *tree);
/* Writes what all threads have collected and closes the file. Errors: IO, when a write failed. */
KN_MUST_CHECK kn_status kn__trace_finish(void);
/* At exit: true: this thread was interrupted while it wrote, and nothing more is written. */
bool kn__trace_leave(void);
/* Events so far that the trace lacks; `unbuffered`: those of them that the timer had no memory for,
 * the others are beyond the file's bound. 0 without a file; after a write that failed, which is
 * reported, none is beyond the bound. */
void kn__trace_skipped(uint64_t *all, uint64_t *unbuffered);
/* Adds the events that were kept in memory, after kn__trace_finish, and frees them; no-op
 * without events. */
void kn__trace_take(kn__text *text);
/* Gives the report a timeline of the events that were kept for a page; nothing where none are.
 * While the trace of the last steps is on, it has none of these yet. Errors: OOM. */
KN_MUST_CHECK kn_status kn__trace_shown(kn__report *report);
/* In a forked child: the file is the parent's. */
void kn__trace_forget(void);

#endif
