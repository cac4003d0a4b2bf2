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
 * The file: one kn_trace_header, then records of 16 bytes, in the byte order of the machine. A
 * record is an event, or it says something that holds for the events of its thread from there on:
 * whose they are, the time, the pool and the stream. So an event takes 16 bytes, and 32 where its
 * pool or its stream is another than that of its thread's event before. kn_trace_event_read below
 * puts them together again.
 *
 * Events of one thread stand in order; those of several threads are put in order by time_ticks, and
 * then a block's free stands behind its allocation whoever freed it. The clock is read once in 32
 * events, after 10 ms, and when another thread had events: those between have the time that was
 * read last. Once threads have had events at the same time, each has its own from then on.
 *
 * A trace that ended well has KN_TRACE_END as its last record.
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

typedef struct kn_trace_header { /* 64 bytes */
    char magic[8];
    uint32_t version;
    uint32_t record_bytes; /* 16 */
    uint32_t byte_order;   /* 0x01020304 */
    uint32_t process;
    uint64_t begin_ns; /* wall clock, since 1970 */
    uint64_t reserved[4];
} kn_trace_header;

/* One list of kinds: X(name, value, text). Of an event (below 128), what ptr and size are; of
 * another record, what is in the upper 56 bits of a, and in b: */
#define KN_TRACE_KIND_LIST(X)                                                                      \
    X(ALLOC, 1, "alloc")         /* block; bytes asked for */                                      \
    X(FREE, 2, "free")           /* block; its rounded bytes. It has no stream of its own */       \
    X(USE, 3, "use")             /* block; 0. On another stream than its own */                    \
    X(GROW, 4, "grow")           /* bytes reserved now; bytes more */                              \
    X(TRIM, 5, "trim")           /* bytes reserved now; bytes less */                              \
    X(OOM, 6, "oom")             /* 0; bytes asked for in vain */                                  \
    X(POOL, 7, "pool")           /* 0; 0. Its name is in the NAMEs before it */                    \
    X(POOL_GONE, 8, "pool gone") /* 0; 0 */                                                        \
    X(END, 128, "end")           /* events that were lost; events in the file */                   \
    X(THREAD, 129, "thread")     /* whose the records are that follow: its number; 0 */            \
    X(TIME, 130, "time")         /* 0; the thread's time in ticks */                               \
    X(STREAM, 131, "stream")     /* the thread's pool: its number; the thread's stream */          \
    X(NAME, 132, "name")         /* part 0, 1 or 2; 8 bytes of a name, with zeros at its end */    \
    X(CLOCK, 133, "clock")       /* 0; the monotonic clock at the thread's time, in ns */

typedef enum kn_trace_kind {
#define X(name, value, text) KN_TRACE_##name = (value),
    KN_TRACE_KIND_LIST(X)
#undef X
} kn_trace_kind;

/* In an event a is its kind, its ptr (a multiple of 256) and, from bit 48 on, the lower half of the
 * ticks since the thread's time; b is its size and, from bit 48 on, the upper half. */
typedef struct kn_trace_record { /* 16 bytes */
    uint64_t a, b;
} kn_trace_record;

/* What holds for a thread's events; zeros before its first record. Threads have numbers from 1, in
 * the order of their first events; 0 is the trace itself. */
typedef struct kn_trace_thread {
    uint64_t time_ticks; /* two KN_TRACE_CLOCK records tell what a tick is */
    uint64_t stream;
    uint32_t pool; /* its number, from 1; 0: not known */
    char name[24];
} kn_trace_thread;

typedef struct kn_trace_event {
    uint64_t time_ticks, ptr, size, stream;
    uint32_t pool;
    kn_trace_kind kind;
} kn_trace_event;

static inline kn_trace_kind kn_trace_kind_of(const kn_trace_record *record) {
    return (kn_trace_kind)(record->a & 0xff);
}

/* Reads a thread's next record: an event is put together in `out`, what another says is kept in
 * `thread`. True: it was an event. An event of no pool was late for the trace before this one. */
static inline bool kn_trace_event_read(kn_trace_event *out, kn_trace_thread *thread,
                                       const kn_trace_record *record) {
    const uint64_t low48 = 0xffffffffffffu;
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
    out->ptr = record->a & low48 & ~(uint64_t)0xff;
    out->size = record->b & low48;
    out->stream = kind == KN_TRACE_FREE ? 0 : thread->stream;
    out->pool = thread->pool;
    out->kind = kind;
    return true;
}

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
