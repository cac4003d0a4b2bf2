/* Plan mode: programs that repeat a step, such as a training loop, get each block of the step at an
 * address that was chosen offline, in one region that is hardly larger than the step's peak.
 *
 *     kn_plan *plan = NULL;
 *     KN_TRY(kn_plan_create(&plan, pool, stream));
 *     for (;;) {
 *         KN_TRY(kn_plan_begin(plan));
 *         KN_TRY(kn_plan_alloc(&x, plan, bytes, stream));   // the step allocates and frees
 *         …
 *         KN_TRY(kn_plan_free(plan, x));
 *         KN_TRY(kn_plan_end(plan));
 *     }
 *     kn_plan_destroy(plan);
 *
 * The first step is recorded; its blocks come from the pool. Then the plan places them (several
 * greedy orders and a short search), takes a region of the pool for all of them, and returns the
 * rest of the free memory to the device. Later steps are served from the region, in a few ns, as
 * long as they allocate the same sizes and free the same blocks in the same order. The first call
 * that differs is a *mismatch*: from there on the step's blocks come from the pool. The next step
 * is served again. After three steps in a row with a mismatch the plan records anew.
 *
 * Not planned, but allocated from the pool: blocks that live longer than their step, blocks of
 * other streams than the plan's, blocks that other streams use, and all but the 16384 largest.
 *
 * Threads: one at a time for one plan. Stream: blocks of the region share bytes in the order of the
 * plan's stream, so only this stream may use them; see kn_plan_use.
 */
#ifndef KNET_PLAN_H
#define KNET_PLAN_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A plan. */
typedef struct kn_plan kn_plan;

/* What a plan does in its current step. */
typedef enum kn_plan_state {
    KN_PLAN_RECORDS = 1, /* or will, in the next step */
    KN_PLAN_SERVES = 2,
    KN_PLAN_FALLS_BACK = 3 /* after a mismatch, until the step ends */
} kn_plan_state;

/* Counters of a plan. */
typedef struct kn_plan_stats {
    kn_plan_state state;   /* of the current step, or of the next one */
    uint64_t n_steps;      /* ended */
    uint64_t n_served;     /* allocations from the region */
    uint64_t n_pooled;     /* allocations from the pool */
    uint64_t n_mismatches; /* steps that fell back */
    uint64_t n_plans;      /* recorded steps that were placed */
    uint64_t n_blocks;     /* of the current plan; 0: none */
    uint64_t region_bytes; /* of the current plan */
    uint64_t peak_bytes;   /* most that lives at once in it: no region can be smaller */
    const char *order;     /* "size", "lifetime", "start" …: what gave the region; "": none */
    const char *mismatch;  /* the last one, in words; "": none. Valid until the next call */
    uint64_t reserved[4];  /* zero */
} kn_plan_stats;

/* Creates a plan for the steps of a stream. Errors: OOM: no host memory. */
KN_API KN_MUST_CHECK kn_status kn_plan_create(kn_plan **out, kn_pool *pool, kn_stream stream);
/* Frees the region. Blocks of it that are live are lost: it logs them. Blocks from the pool stay
 * live; free them by kn_free. Call it before kn_pool_destroy. No-op on NULL. */
KN_API void kn_plan_destroy(kn_plan *plan);

/* Begins a step. Errors: INVALID inside a step. */
KN_API KN_MUST_CHECK kn_status kn_plan_begin(kn_plan *plan);
/* Ends a step. After a recorded step it places the blocks, waits until freed memory is out of use
 * (kn_pool_sync) and takes the region. Errors: INVALID
 * outside of a step; OOM: no room for the region, or no host memory: the next step is recorded
 * again. */
KN_API KN_MUST_CHECK kn_status kn_plan_end(kn_plan *plan);

/* Allocates, inside a step or outside (then from the pool). Errors: as kn_alloc. */
KN_API KN_MUST_CHECK kn_status kn_plan_alloc(void **out, kn_plan *plan, size_t size_bytes,
                                             kn_stream stream);
/* Frees a block of kn_plan_alloc. Errors: as kn_free; the result may be ignored. No-op on NULL. */
KN_API kn_status kn_plan_free(kn_plan *plan, void *ptr);
/* As kn_block_use. A block of the region can't wait for another stream, so the plan ends its
 * service: the region stays in use until that stream is done, and the next step is recorded. */
KN_API KN_MUST_CHECK kn_status kn_plan_use(kn_plan *plan, void *ptr, kn_stream stream);

/* Discards the plan: the next step is recorded. Errors: INVALID inside a step, and while blocks of
 * the region are live. */
KN_API KN_MUST_CHECK kn_status kn_plan_reset(kn_plan *plan);
/* Fills `out` (of out_bytes = sizeof *out). */
KN_API void kn_plan_stats_read(kn_plan_stats *out, size_t out_bytes, const kn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
