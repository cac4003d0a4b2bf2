/* Traces: every allocation and free of a process, or of one pool, in a compact binary file.
 *
 *     KN_TRY(kn_trace_begin("run.kntrace", NULL)); // all pools
 *     work();
 *     KN_TRY(kn_trace_end());                      // an error if events were lost
 *
 * `knet replay run.kntrace` plays it. Each thread writes its events into its own ring, without a
 * lock, and one thread of the library writes all rings to the file. A thread whose ring is full
 * waits for that thread, so events are lost only if a write fails, as on a full disk: the library
 * logs the failure once, counts the lost events, and kn_trace_end returns an error, which a program
 * with KNET_ALLOC=trace=FILE prints on stderr at exit; the program continues. A block that was live
 * before the trace began has only a free in it.
 *
 * The file is a kn_trace_header followed by records of 16 bytes, in the byte order of the machine.
 * A record is an event, or it sets what the following events of its thread share: the thread, the
 * time, the pool and the stream. An event takes 16 bytes, or 32 when its pool or stream differs
 * from those of the thread's event before. kn_trace_event_read, below, puts events together again.
 *
 * The events of a thread are in order. Those of several threads are ordered by time_ticks: each
 * event has its own reading of a clock that all cores share, and a block's free is never earlier
 * than its allocation, whichever threads they happen on. Readers must keep the order of the file
 * among a thread's events with the same time.
 *
 * The last record of a complete trace is KN_TRACE_END.
 */
#ifndef KNET_TRACE_H
#define KNET_TRACE_H

#include <knet/pool.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KN_TRACE_MAGIC "kntrace" /* with its zero: 8 bytes */
enum { KN_TRACE_VERSION = 2 };

/* The start of a file: 64 bytes. */
typedef struct kn_trace_header {
    char magic[8];         /* KN_TRACE_MAGIC */
    uint32_t version;      /* KN_TRACE_VERSION */
    uint32_t record_bytes; /* 16 */
    uint32_t byte_order;   /* 0x01020304 */
    uint32_t process;      /* its id */
    uint64_t begin_ns;     /* wall clock, since 1970 */
    uint64_t reserved[4];  /* zero */
} kn_trace_header;

/* One list of kinds: X(name, value, text). The comments say what ptr and size are in an event
 * (values below 128); in another record, what the upper 56 bits of a are, and what b is. */
#define KN_TRACE_KIND_LIST(X)                                                                      \
    X(ALLOC, 1, "alloc")         /* block; bytes requested */                                      \
    X(FREE, 2, "free")           /* block; its rounded bytes. It has no stream of its own */       \
    X(USE, 3, "use")             /* block; 0. On another stream than its own */                    \
    X(GROW, 4, "grow")           /* reserved bytes after the growth; bytes added */                \
    X(TRIM, 5, "trim")           /* reserved bytes after the trim; bytes released */               \
    X(OOM, 6, "oom")             /* 0; bytes requested */                                          \
    X(POOL, 7, "pool")           /* 0; 0. The NAMEs before it have its name */                     \
    X(POOL_GONE, 8, "pool gone") /* 0; 0 */                                                        \
    X(END, 128, "end")           /* events lost; events in the file */                             \
    X(THREAD, 129, "thread")     /* number of the thread of the following records; 0 */            \
    X(TIME, 130, "time")         /* 0; the thread's time in ticks */                               \
    X(STREAM, 131, "stream")     /* number of the thread's pool; the thread's stream */            \
    X(NAME, 132, "name")         /* part 0, 1 or 2; 8 bytes of a name, padded with zeros */        \
    X(CLOCK, 133, "clock")       /* 0; the monotonic clock at the thread's time, in ns */

/* The kinds of records. */
typedef enum kn_trace_kind {
#define X(name, value, text) KN_TRACE_##name = (value),
    KN_TRACE_KIND_LIST(X)
#undef X
} kn_trace_kind;

/* A record of 16 bytes. In an event, a is the kind (8 bits), ptr (a multiple of 256) and, from bit
 * 48 on, the lower half of the ticks since the thread's time; b is the size and, from bit 48 on,
 * the upper half. */
typedef struct kn_trace_record {
    uint64_t a, b; /* as above */
} kn_trace_record;
#define KN_TRACE_SIZE_MAX (((uint64_t)1 << 48) - 1) /* larger sizes are recorded as this one */

/* What a thread's events share; zeros before its first record. Threads are numbered from 1 in the
 * order of their first events; thread 0 is the trace itself. */
typedef struct kn_trace_thread {
    uint64_t time_ticks; /* the first and last CLOCK of a file give the length of a tick */
    uint64_t stream;     /* of its last event */
    uint32_t pool;       /* number, from 1; 0: not known yet */
    char name[24];       /* of the pool that the next POOL event announces */
} kn_trace_thread;

/* An event, put together from its record and its thread. */
typedef struct kn_trace_event {
    uint64_t time_ticks, ptr, size, stream; /* see KN_TRACE_KIND_LIST */
    uint32_t pool;                          /* number, from 1 */
    kn_trace_kind kind;                     /* below 128 */
} kn_trace_event;

/* The kind of a record. */
static inline kn_trace_kind kn_trace_kind_of(const kn_trace_record *record) {
    return (kn_trace_kind)(record->a & 0xff);
}

/* Reads a thread's next record. Returns true, and fills `out`, for an event; else updates `thread`.
 * Ignore events of pool 0: they belong to an earlier trace. */
static inline bool kn_trace_event_read(kn_trace_event *out, kn_trace_thread *thread,
                                       const kn_trace_record *record) {
    kn_trace_kind kind = kn_trace_kind_of(record);
    if (kind == KN_TRACE_TIME) thread->time_ticks = record->b;
    if (kind == KN_TRACE_NAME) memcpy(thread->name + (record->a >> 8) % 3 * 8, &record->b, 8);
    if (kind == KN_TRACE_STREAM) {
        thread->pool = (uint32_t)(record->a >> 8);
        thread->stream = record->b;
    }
    if (kind >= KN_TRACE_END) return false;
    thread->time_ticks += record->a >> 48 | record->b >> 48 << 16;
    out->time_ticks = thread->time_ticks;
    out->ptr = record->a & KN_TRACE_SIZE_MAX & ~(uint64_t)0xff;
    out->size = record->b & KN_TRACE_SIZE_MAX;
    out->stream = kind == KN_TRACE_FREE ? 0 : thread->stream;
    out->pool = thread->pool;
    out->kind = kind;
    return true;
}

/* Options of kn_trace_begin. */
typedef struct kn_trace_options {
    kn_pool *pool;        /* trace only this pool; NULL: all */
    uint64_t reserved[4]; /* zero */
} kn_trace_options;

/* Counters of a trace. */
typedef struct kn_trace_stats {
    uint64_t n_events; /* in the file */
    uint64_t n_lost;   /* because a write failed, or there was no memory for a thread's ring */
} kn_trace_stats;

/* Starts a trace in a new file, or replaces an existing one. Options may be NULL.
 * Errors: INVALID if a trace is running; IO, with the path; INTERNAL if no thread can be started,
 * with the system's reason: then no file is touched. */
KN_API KN_MUST_CHECK kn_status kn_trace_begin(const char *path, const kn_trace_options *options);
/* Writes the events of all threads up to this call, and a CLOCK record; the trace continues. A
 * program can then read the file up to the last whole record. Waits for the disk.
 * Errors: INVALID if no trace is running; IO, with the number of events lost since it began. */
KN_API KN_MUST_CHECK kn_status kn_trace_flush(void);
/* Writes the remaining events and closes the file. No-op when no trace is running. Called at exit
 * as well. After a fork the trace continues in the parent only; the child may start its own.
 * Errors: IO, with the number of events lost. */
KN_API KN_MUST_CHECK kn_status kn_trace_end(void);
/* Fills `out` (out_bytes = sizeof *out) for the running trace, or for the last one. */
KN_API void kn_trace_stats_read(kn_trace_stats *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
