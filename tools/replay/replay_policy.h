/* Policies of allocation as the player sees them. */
#ifndef KN_REPLAY_POLICY_H
#define KN_REPLAY_POLICY_H

#include <stdlib.h>
#include <string.h>

#include "replay.h"

typedef struct kn__policy {
    const char *name;
    /* Host memory for `trace`; nothing on the device yet. */
    kn_status (*create)(void **out, const kn__trace *trace);
    void (*destroy)(void *policy);
    /* The options of the pools to come; may be NULL. */
    void (*configure)(void *policy, const kn_pool_options *options);
    /* Replaces the pool, if there is one, by an empty one on a device of this size. */
    kn_status (*renew)(void *policy, uint64_t device_bytes);
    /* Plays the whole trace once, before anything is counted, and frees all blocks; may be NULL.
     * *done as for run. */
    kn_status (*rehearse)(void *policy, void **slots, size_t *done);
    /* Plays steps [from, to); slots[block] is its address, NULL when not live. *done says how far
     * it came. Errors: OOM of the device. */
    kn_status (*run)(void *policy, const kn__step *steps, size_t from, size_t to, void **slots,
                     size_t *done);
    void (*free_one)(void *policy, uint32_t block, void *ptr);
    void (*work_is_done)(void *policy); /* all that streams were given; may be NULL */
    void (*counts)(void *policy, kn__counts *out);
} kn__policy;

extern const kn__policy kn__policy_arena, kn__policy_classes, kn__policy_bestfit;
extern const kn__policy kn__policy_pytorch, kn__policy_expandable, kn__policy_bfc, kn__policy_naive,
    kn__policy_cuda_async, kn__policy_plan;

/* Of the policy arena: its pool, until it is renewed; a stream of the trace; the counts of driver
 * calls start again. */
kn_pool *kn__arena_pool(void *arena);
kn_stream kn__arena_stream(const void *arena, uint32_t stream);
void kn__arena_calls_reset(void);

/* Sets *out to whether the trace completes on a device of this many granules. */
typedef kn_status (*kn__completes_fn)(void *ctx, bool *out, uint64_t n_granules);

enum { KN__FITS_IN_A_ROW = 16 };
/* Finds the smallest size in [low, high] such that it and all larger sizes tried complete; 0 if
 * `high` fails. Tries the sizes of a bisection, then KN__FITS_IN_A_ROW sizes from the result up. */
kn_status kn__fits_search(uint64_t *fits, uint64_t low, uint64_t high, kn__completes_fn completes,
                          void *ctx);

typedef kn_status (*kn__alloc_fn)(void *policy, void **out, const kn__step *step);
typedef kn_status (*kn__free_fn)(void *policy, const kn__step *step, void *ptr);

/* The loop that is timed, compiled into each policy so that its calls are direct. */
static inline __attribute__((always_inline)) kn_status kn__run_steps(
    void *policy, const kn__step *steps, size_t from, size_t to, void **slots, size_t *done,
    kn__alloc_fn alloc, kn__free_fn free_fn, kn__free_fn use) {
    for (size_t i = from; i < to; i++) {
        const kn__step *step = &steps[i];
        void **slot = &slots[step->block];
        kn_status status = KN_OK;
        if (step->kind == KN__STEP_ALLOC) {
            status = alloc(policy, slot, step);
        } else if (step->kind == KN__STEP_FREE) {
            status = free_fn(policy, step, *slot);
            *slot = NULL;
        } else {
            status = use(policy, step, *slot);
        }
        if (__builtin_expect(status < 0, 0)) {
            *done = i;
            return status;
        }
    }
    *done = to;
    return KN_OK;
}

#endif
