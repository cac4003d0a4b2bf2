/* Traces as files: events of threads and GPUs as the JSON that chrome://tracing reads, or as
 * Perfetto's protobuf. Text is added to the writer's, which its owner takes or writes to a file. */
#ifndef KN_REPORT_TRACE_FORMAT_H
#define KN_REPORT_TRACE_FORMAT_H

#include <string.h>

#include "hash.h"
#include "record.h"
#include "text.h"

enum { KN__TRACE_NAME_BYTES = 16, KN__TRACE_LANES = 4 };

/* A scope: its label and its place in the source, "file.c:12"; NULL: unknown. */
typedef struct kn__trace_name {
    const char *label, *where;
} kn__trace_name;

/* Times are ticks. */
typedef struct kn__trace_event {
    const kn__trace_name *name; /* NULL: live bytes at `start`, in `end` */
    /* &kn__trace_launched: GPU work launched at `start`, its id in `end`. Of a counter: sampled at
     * `start`, the bits of the value in `end`. Of a range: `end` with KN__TRACE_RANGE. */
    uint64_t start, end;
} kn__trace_event;

/* It overlaps scopes, and may have begun on another thread. */
#define KN__TRACE_RANGE (UINT64_C(1) << 63)

extern const kn__trace_name kn__trace_launched;

/* A counter's name; `where` of it tells that it is one, and whether values are int64_t or double.
 */
typedef struct kn__trace_counter {
    kn__trace_name name;
    const char *unit; /* "": none */
    uint32_t number;  /* of the counter in its trace, from 0 */
} kn__trace_counter;

extern const char kn__trace_whole[], kn__trace_real[];
enum { KN__TRACE_COUNTERS_MAX = 256 };

/* A counter in both forms. The texts are borrowed. */
typedef struct kn__trace_counters {
    kn__trace_counter whole, real;
} kn__trace_counters;

void kn__trace_counter_init(kn__trace_counters *out, const char *name, const char *unit,
                            uint32_t number);
/* A finite value; exact if it is a double or an int64_t. */
kn__trace_event kn__trace_sample(const kn__trace_counters *counter, uint64_t at, long double value);
long double kn__trace_value(const kn__trace_event *e);

/* The counter of a sample; NULL if the event is not a sample. */
static inline const kn__trace_counter *kn__trace_counter_of(const kn__trace_event *e) {
    const char *kind = e->name ? e->name->where : NULL;
    bool is_one = kind && (kind == kn__trace_whole || kind == kn__trace_real);
    return is_one ? (const kn__trace_counter *)(const void *)e->name : NULL;
}

static inline bool kn__trace_has_time(const kn__trace_event *e) {
    return e->name && e->name != &kn__trace_launched && !kn__trace_counter_of(e);
}
static inline bool kn__trace_is_scope(const kn__trace_event *e) {
    return kn__trace_has_time(e) && !(e->end & KN__TRACE_RANGE);
}
static inline bool kn__trace_is_range(const kn__trace_event *e) {
    return kn__trace_has_time(e) && e->end & KN__TRACE_RANGE;
}

/* When the trace began, and its rate. */
typedef struct kn__trace_clock {
    uint64_t start_ticks, start_realtime_ns, start_boot_ns;
    double tick_ns;
} kn__trace_clock;

/* Nanoseconds since the trace began. */
static inline uint64_t kn__trace_since(const kn__trace_clock *clock, uint64_t ticks) {
    if (ticks <= clock->start_ticks) return 0;
    return (uint64_t)((double)(ticks - clock->start_ticks) * clock->tick_ns + 0.5);
}

/* A thread, in a tree of its own for as long as it lives. */
typedef struct kn__trace_thread {
    long tid;
    char name[KN__TRACE_NAME_BYTES];
    uint32_t number;  /* from 1, in order of first sight */
    uint64_t last_ns; /* the format's */
} kn__trace_thread;

/* Where work of a GPU runs. What runs there at once (nodes of a graph) has lanes of its own. */
typedef struct kn__trace_stream {
    uint64_t key;
    uint32_t device, stream;
    uint32_t number; /* from 1, in order of first sight */
    uint64_t ends[KN__TRACE_LANES];
} kn__trace_stream;

typedef struct kn__trace_writer kn__trace_writer;

typedef struct kn__trace_format {
    void (*start)(kn__trace_writer *w);
    void (*thread)(kn__trace_writer *w, kn__trace_thread *thread); /* seen first */
    void (*device)(kn__trace_writer *w, uint32_t device); /* seen first, before its streams */
    void (*stream)(kn__trace_writer *w, const kn__trace_stream *stream);
    /* Events of a thread in the order of their ends, ranges among them. Of scopes that start
     * together the outer one is found only if they come in one call. */
    void (*events)(kn__trace_writer *w, kn__trace_thread *thread, const kn__trace_event *events,
                   size_t n);
    /* A piece of GPU work; `launch` is the id of its launch, 0: not known. */
    void (*record)(kn__trace_writer *w, kn__trace_stream *stream, const kn__record *record,
                   uint32_t launch);
    /* Adds KN__TRACE_TAIL_BYTES at most, and of notes kn__trace_notes_bytes. */
    void (*finish)(kn__trace_writer *w, uint64_t n_skipped);
} kn__trace_format;

enum { KN__TRACE_TAIL_BYTES = 256 };
static inline size_t kn__trace_notes_bytes(const char *notes) {
    return notes ? 128 + 6 * strlen(notes) : 0; /* "\u001b" is the longest escape */
}
/* How a trace in JSON begins; the number of events that it lacks ends it. */
#define KN__TRACE_JSON_HEAD                                                                        \
    "{\"schemaVersion\":1,\"deviceProperties\":[],\"displayTimeUnit\":\"ms\","                     \
    "\"baseTimeNanoseconds\":"
#define KN__TRACE_JSON_END "\n],\"knetEventsSkipped\":"

extern const kn__trace_format kn__trace_json, kn__trace_perfetto;
extern const kn__trace_format kn__trace_none; /* writes nothing */

/* Zero-initialised but for the first four. */
struct kn__trace_writer {
    const kn__trace_format *format;
    kn__trace_clock clock;
    long pid;
    kn__text out;
    kn__hash streams; /* of kn__trace_stream; its devices are streams number UINT32_MAX */
    uint32_t n_threads;
    uint64_t n_ranges;
    const char *notes; /* of the run: labels of its process, at the end; NULL: none; borrowed */

    /* Perfetto's. */
    kn__hash names; /* their numbers in each sequence */
    uint32_t last_name;
    uint64_t base_ns;                           /* of CLOCK_BOOTTIME: before the first event */
    bool counters_seen[KN__TRACE_COUNTERS_MAX]; /* their tracks are written */
    uint64_t gpu_last_ns;       /* of the packet before in the sequence of the GPUs */
    kn__text body, part, inner; /* of the packet that is made; parts of it */
    /* Which scopes begin before an event: the outermost one, and the one inside it; scopes in no
     * other so far. Each has room for `n_begins` events. */
    int *heads, *next, *roots, *firsts;
    size_t n_begins;
};

/* A thread that is seen first: gets its number and its name. */
void kn__trace_put_thread(kn__trace_writer *w, kn__trace_thread *thread, long tid,
                          const char *name);
/* A piece of GPU work, with what names its device and stream where they are new. */
void kn__trace_put_record(kn__trace_writer *w, const kn__record *record, uint32_t launch);
/* The end of the file; frees all but the text. */
void kn__trace_end(kn__trace_writer *w, uint64_t n_skipped);

#endif
