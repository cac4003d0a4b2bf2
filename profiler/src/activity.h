/* Records of GPU work, and how the time in them finds its scope.
 *
 * Whoever launches work (a callback of the driver) calls kn__activity_launch with the id that the
 * record will carry: the thread's ring keeps (id, innermost scope). A source hands out records some
 * time later, in any order and from any thread; the drain joins both by id and adds the time to the
 * scope. Nothing waits for the GPU, and a launch takes no lock.
 *
 *     thread:  launch(id) -> ring of the thread -.
 *                                                 +-> drain: id -> scope, scope.gpu_ns += time
 *     source:  record {id, start, end} ----------'
 *
 * Every launch ends in one place: timed, untimed (its record has no time stamps), dropped (the
 * source lost the record), or pending (no record yet); so launched = timed + pending + dropped +
 * untimed.
 */
#ifndef KN_PROFILER_ACTIVITY_H
#define KN_PROFILER_ACTIVITY_H

#include "record.h"
#include "report.h"
#include "tree.h"

/* Takes `n` records; only during the drain call that it was given to. */
typedef void (*kn__record_fn)(void *sink, const kn__record *records, size_t n);

/* Where records come from. */
typedef struct kn__source {
    const char *name; /* in the report: "cupti" */
    /* Begins recording. Errors: UNSUPPORTED, saying why and what to do. */
    kn_status (*start)(void *ctx);
    /* Ends it; may still wait for records that are under way. */
    void (*stop)(void *ctx);
    /* After it, when others can drain again: ends the source's threads. NULL: it has none. */
    void (*end)(void *ctx);
    /* Hands over all records that have arrived since the last call. */
    void (*drain)(void *ctx, kn__record_fn fn, void *sink);
    /* Records lost so far, because there was no room for them. */
    uint64_t (*dropped)(void *ctx);
    /* Nothing is wanted for a while (true), or again. NULL: records of that while are ignored. */
    void (*pause)(void *ctx, bool paused);
    /* What the reader of the report should know of this source, a literal, or NULL: nothing. */
    const char *(*notice)(void *ctx);
    void *ctx;
} kn__source;

/* Starts a source, the one of this process. Errors: INVALID when there is one already, and its own.
 */
KN_MUST_CHECK kn_status kn__activity_start(const kn__source *source);
/* Stops it and drains the remaining records. Recorded times stay. */
void kn__activity_stop(void);

/* Work was launched on this thread, in its innermost scope. Ids may be used again after 2^18
 * others. While no scopes are recorded the launch is not counted and its records are ignored. */
void kn__activity_launch(uint32_t id);
/* A call on this thread that launches nothing, but whose id records may carry: an allocation. One
 * of a pool of ours is `ours`, and its records are ignored. */
void kn__activity_note(uint32_t id, bool ours);
/* A call that was made inside the launch, and whose id the record may carry instead. */
void kn__activity_alias(uint32_t id, uint32_t launch_id);
/* The launch failed: there will be no record. */
void kn__activity_cancel(uint32_t launch_id);

/* Time that the calls above and their callers took on the program's threads, in ticks. */
void kn__activity_spent(uint64_t ticks);
/* Scopes are not recorded for a while (true), or again: the source may rest. */
void kn__activity_pause(bool paused);

typedef enum kn__told { KN__TOLD_LAUNCH, KN__TOLD_FAILURE, KN__TOLD_NOTE, KN__TOLD_OURS } kn__told;
/* Hears of every launch and alias, failed launch and note as the drain takes it; NULL: off. */
typedef void (*kn__launch_fn)(kn__told what, uint32_t id, uint32_t launch_id,
                              const kn__tree_node *node);
void kn__activity_listen(kn__launch_fn fn);

/* Joins what has arrived. Any thread; one at a time. */
void kn__activity_drain(void);

/* The balance so far; source NULL when there was never one. */
void kn__activity_balance(kn__balance *out);

/* When the GPUs worked, so far. */
void kn__activity_gpu_use(kn__gpu_use *out);

#endif
