/* Replay: allocation traces of several formats, read into one list of steps, and played against a
 * policy of allocation.
 *
 * A trace is untrusted input: every reader checks each value, names file and place in its error,
 * and uses no more memory than the limits below allow. Steps name blocks by number, 0 … n_blocks -
 * 1, each allocated once, and streams by number, 0 … n_streams - 1.
 */
#ifndef KN_REPLAY_H
#define KN_REPLAY_H

#include <knet/pool.h>

#include "hash.h"
#include "replay_costs.h"

enum {
    KN__STEPS_MAX = 1 << 25,   /* 16 bytes each */
    KN__STREAMS_MAX = 1024,    /* a trace's distinct ones */
    KN__TRACE_LINE_MAX = 1024, /* bytes of a line of text */
    KN__SAMPLES = 64,          /* of a play, over its steps */
    KN__MAP_CELLS = 512        /* of the address space */
};
#define KN__PICKLE_BYTES_MAX ((size_t)3 << 30) /* held while a pickle is read */

typedef enum kn__step_kind { KN__STEP_ALLOC = 1, KN__STEP_FREE, KN__STEP_USE } kn__step_kind;

typedef struct kn__step {
    uint64_t size; /* bytes asked for, of an allocation */
    uint32_t block;
    uint16_t stream; /* of an allocation, and of a use */
    uint8_t kind;
} kn__step;

typedef struct kn__trace {
    kn__step *steps;
    size_t n_steps, room;
    uint32_t n_blocks;
    uint32_t n_streams;
    bool null_stream[KN__STREAMS_MAX]; /* the default stream's handle is 0 */
    size_t n_before;        /* steps in front: blocks that were live before the trace began */
    uint64_t n_passed_over; /* events that fit no block, where that is allowed */
    uint64_t n_ooms;        /* that the program met */
    uint64_t peak_live_bytes, total_bytes;
    size_t peak_at;     /* the step that reaches the peak */
    const char *format; /* "RMM CSV", … */
    char about[160];    /* what of it is played, when that is a part; or "" */
} kn__trace;

/* Reads a trace of any known format, gzip or not. `partial`: frees that fit no block, a missing end
 * and the like are passed over and counted; else they are errors.
 * Errors: IO; FORMAT, naming file, line or byte, and value; OOM. */
KN_MUST_CHECK kn_status kn__trace_read(kn__trace *out, const char *path, bool partial);
void kn__trace_release(kn__trace *trace);

/* Building a trace: for the readers, and for programs that make one up. */
typedef struct kn__builder {
    kn__trace trace;
    const char *path; /* for errors */
    bool lines;       /* `at` counts lines, else bytes */
    bool late_start;  /* blocks may have been live before */
    bool lenient;     /* what fits no block is passed over */
    uint64_t at;      /* where the reader is */
    kn__hash seen;    /* pointers of the trace */
    kn__step *before;
    size_t n_before, before_room;
    uint64_t stream_handle[KN__STREAMS_MAX];
    uint32_t stream_recent;
} kn__builder;

void kn__builder_init(kn__builder *b, const char *path);
void kn__builder_release(kn__builder *b);
KN_MUST_CHECK kn_status kn__build_alloc(kn__builder *b, uint64_t ptr, uint64_t size,
                                        uint64_t stream);
KN_MUST_CHECK kn_status kn__build_free(kn__builder *b, uint64_t ptr, uint64_t size);
KN_MUST_CHECK kn_status kn__build_use(kn__builder *b, uint64_t ptr, uint64_t stream);
/* A block that was live all the time, unless the trace knows its address. */
KN_MUST_CHECK kn_status kn__build_before(kn__builder *b, uint64_t ptr, uint64_t size);
/* The stream a live block was allocated on; false: not live. */
bool kn__build_stream_of(kn__builder *b, uint64_t ptr, uint64_t *stream);
/* The trace, with its peak; the builder is empty afterwards, whatever the result. */
KN_MUST_CHECK kn_status kn__build_finish(kn__trace *out, kn__builder *b);
/* An error at the place where the reader is. */
kn_status kn__build_fail(const kn__builder *b, const char *fmt, ...) KN_PRINTF(2, 3);

/* Playing. */

typedef struct kn__block_life { /* of a block: its address, and the steps [from, to) of its life */
    uint64_t at, size;
    size_t from, to;
} kn__block_life;

typedef struct kn__play_options {
    uint64_t device_bytes;       /* 0: eight times the peak, 1 GiB at least */
    int repeats;                 /* timed; 0: by the time they take */
    const kn_pool_options *pool; /* of the policy arena; NULL: the defaults */
    kn__block_life *places;      /* a record for each block of the trace, to fill; may be NULL */
    bool untimed;                /* no time is measured */
    /* Told now and then; may be NULL. `share` 0 … 1. */
    void (*progress)(void *ctx, double share);
    void *ctx;
} kn__play_options;

typedef struct kn__sample {
    size_t at; /* steps done */
    uint64_t live_bytes, reserved_bytes;
} kn__sample;

typedef struct kn__counts { /* what a policy asked of the device, and holds */
    uint64_t device_allocs, device_frees, maps, events;
    uint64_t syncs; /* waits of the host */
    uint64_t reserved_bytes, reserved_bytes_max;
    kn__driver_calls calls; /* of the driver */
} kn__counts;

typedef struct kn__played {
    const char *policy;
    size_t n_steps; /* played; less than the trace's after an out-of-memory */
    uint64_t device_bytes;
    uint64_t peak_live_bytes;
    kn__counts counts;
    /* Of the thread's own time: again and again on one pool; the first time, on a new one. NAN:
     * memory ran out. */
    double ns_per_op, ns_per_op_first;
    bool oom;
    char oom_text[1024];
    kn__sample samples[KN__SAMPLES];
    int n_samples;
    uint64_t map_base, map_cell_bytes; /* at the peak of live bytes */
    uint8_t map[KN__MAP_CELLS];        /* percent of the cell that is live */
    int n_map;
} kn__played;

/* Plays the trace on a new device. policy: one of kn__policy_names, which ends in NULL.
 * Out of memory is a result, not an error. Errors: INVALID, OOM (of the host). */
extern const char *const kn__policy_names[];
KN_MUST_CHECK kn_status kn__play(kn__played *out, const kn__trace *trace, const char *policy,
                                 const kn__play_options *options);

/* Finds the smallest device on which the policy completes the trace: a multiple of 2 MiB, by
 * bisection between the peak and options->device_bytes. A policy can fail on one device and
 * complete on a smaller one, so the result is the smallest size such that it and all larger sizes
 * tried complete; the 15 sizes above it are always tried. 0: the largest size fails. Errors: as
 * kn__play. */
KN_MUST_CHECK kn_status kn__play_fits(uint64_t *fits_bytes, const kn__trace *trace,
                                      const char *policy, const kn__play_options *options);

/* Tuning: the pool's options for a trace. */

enum { KN__TRIES_MAX = 24 };

typedef struct kn__try {
    char words[96]; /* as KNET_ALLOC has them; "": the defaults */
    kn_pool_options pool;
    kn__counts counts;
    double driver_us; /* time in driver calls */
    bool plan;        /* in plan mode, from the second step on; the trace is the step */
    bool oom;
} kn__try;

typedef struct kn__tuned {
    kn__try tries[KN__TRIES_MAX]; /* [0]: the defaults */
    int n, best;                  /* the place of the options that are proposed */
} kn__tuned;

/* Plays the trace with several values of slab_max, pressure and soft_limit, each alone, then with
 * the best of each together. Options are better if they reserve less by 1/200 of the peak, or take
 * a tenth less time in driver calls and no more memory, and make neither the host nor a stream wait
 * more often than the defaults. At last it plays the trace in plan mode, with the defaults and with
 * the best options, and proposes that if it reserves less by 1/200 of the peak. Errors: as
 * kn__play.
 */
KN_MUST_CHECK kn_status kn__tune(kn__tuned *out, const kn__trace *trace,
                                 const kn__play_options *options, const kn__costs *costs);

#endif
