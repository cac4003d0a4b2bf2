/* Traces: every allocation and free of a process or of one pool, in a compact binary file.
 *
 *     KN_TRY(kn_trace_begin("run.kntrace", NULL)); // all pools
 *     work();
 *     KN_TRY(kn_trace_end());                      // says whether anything was lost
 *
 * `knet replay run.kntrace` plays it. A thread writes its events into a ring of its own, with no
 * lock; one more thread takes them to the file. A ring that is full is written out by its own
 * thread, so nothing is lost but what the file's disk has no room for: that is counted, logged once
 * and reported by kn_trace_end; the program goes on. Blocks that are live when the trace begins
 * have no event; only their frees do.
 *
 * The file: one kn_trace_header, then kn_trace_events, in the byte order of the machine. Events of
 * one thread stand in order; those of several threads are put in order by time_ticks. A trace that
 * ended well has KN_TRACE_END as its last event.
 */
#ifndef KNET_TRACE_H
#define KNET_TRACE_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KN_TRACE_MAGIC "kntrace" /* with its zero: 8 bytes */
enum { KN_TRACE_VERSION = 1 };

typedef struct kn_trace_header { /* 64 bytes */
    char magic[8];
    uint32_t version;
    uint32_t event_bytes; /* 40 */
    uint32_t byte_order;  /* 0x01020304 */
    uint32_t process;
    uint64_t begin_ns; /* wall clock, since 1970 */
    uint64_t reserved[4];
} kn_trace_header;

/* One list of kinds: X(name, value, text). What ptr, size and stream hold: */
#define KN_TRACE_KIND_LIST(X)                                                                      \
    X(ALLOC, 1, "alloc")         /* block; bytes asked for; stream */                              \
    X(FREE, 2, "free")           /* block; its rounded bytes; 0 */                                 \
    X(USE, 3, "use")             /* block; 0; the other stream */                                  \
    X(GROW, 4, "grow")           /* bytes reserved now; bytes more; 0 */                           \
    X(TRIM, 5, "trim")           /* bytes reserved now; bytes less; 0 */                           \
    X(OOM, 6, "oom")             /* 0; bytes asked for in vain; 0 */                               \
    X(POOL, 7, "pool")           /* a pool's name: up to 24 bytes in all three */                  \
    X(POOL_GONE, 8, "pool gone") /* 0; 0; 0 */                                                     \
    X(CLOCK, 9, "clock")         /* monotonic ns at time_ticks; 0; 0 */                            \
    X(END, 10, "end")            /* events before this one; events lost; 0 */

typedef enum kn_trace_kind {
#define X(name, value, text) KN_TRACE_##name = (value),
    KN_TRACE_KIND_LIST(X)
#undef X
} kn_trace_kind;

typedef struct kn_trace_event { /* 40 bytes */
    uint64_t time_ticks;        /* two KN_TRACE_CLOCK events tell what a tick is */
    uint64_t ptr, size, stream;
    uint32_t pool_kind; /* pool's number << 8 | kn_trace_kind; 0: no pool */
    uint32_t thread;    /* from 1, in the order of their first events */
} kn_trace_event;

typedef struct kn_trace_options {
    kn_pool *pool;        /* this pool only; NULL: all of them */
    uint64_t reserved[4]; /* zero */
} kn_trace_options;

typedef struct kn_trace_stats {
    uint64_t n_events; /* in the file */
    uint64_t n_lost;   /* there was no room on the disk, or no memory for a ring */
} kn_trace_stats;

/* Starts a trace in a new file, or over an old one. One at a time. Options may be NULL.
 * Errors: INVALID when one is running; IO, naming the path. */
KN_API KN_MUST_CHECK kn_status kn_trace_begin(const char *path, const kn_trace_options *options);
/* Writes what is left, and closes the file. Nothing when no trace runs; called at exit too. A fork
 * leaves the trace to the parent. Errors: IO, saying how many events were lost. */
KN_API KN_MUST_CHECK kn_status kn_trace_end(void);
/* Of the trace that runs, or of the last one; fills `out` (of out_bytes = sizeof *out). */
KN_API void kn_trace_stats_read(kn_trace_stats *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
