/* Plan mode (<knet/plan.h>) over the pool: the trace is the step that a program repeats, and frees
 * at its end all that is live. It is played once to be recorded, and counted from then on. */
#include <knet/plan.h>

#include "replay_policy.h"

enum { CHUNK_STREAMS = 256 }; /* steps until the device has done its work, on several streams */

typedef struct planner {
    void *arena;
    kn_plan *plan;
    const kn__trace *trace;
    uint32_t stream; /* that the plan serves */
    bool inside;     /* a step: until the next one, as the blocks at its end are freed in it */
    uint64_t syncs_before, events_before;
} planner;

/* The stream that allocates most bytes. Zero where memory for the sums is missing. */
static uint32_t busiest_stream(const kn__trace *trace) {
    uint64_t *bytes = calloc(trace->n_streams + 1, sizeof *bytes);
    uint32_t best = 0;
    for (size_t i = 0; bytes && i < trace->n_steps; i++) {
        const kn__step *step = &trace->steps[i];
        if (step->kind == KN__STEP_ALLOC) bytes[step->stream] += step->size;
    }
    for (uint32_t i = 1; bytes && i < trace->n_streams; i++) {
        if (bytes[i] > bytes[best]) best = i;
    }
    free(bytes);
    return best;
}

static void planner_destroy(void *policy) {
    planner *p = policy;
    if (!p) return;
    kn_plan_destroy(p->plan);
    kn__policy_arena.destroy(p->arena);
    free(p);
}

static kn_status planner_create(void **out, const kn__trace *trace) {
    planner *p = calloc(1, sizeof *p);
    if (!p) return KN_FAIL(KN_ERR_OOM, "no memory for the policy");
    p->trace = trace;
    p->stream = busiest_stream(trace);
    kn_status status = kn__policy_arena.create(&p->arena, trace);
    if (status < 0) {
        free(p);
        return status;
    }
    *out = p;
    return KN_OK;
}

static void planner_configure(void *policy, const kn_pool_options *options) {
    kn__policy_arena.configure(((planner *)policy)->arena, options);
}

static kn_status planner_renew(void *policy, uint64_t device_bytes) {
    planner *p = policy;
    kn_plan_destroy(p->plan);
    p->plan = NULL;
    p->inside = false;
    p->syncs_before = p->events_before = 0;
    KN_TRY(kn__policy_arena.renew(p->arena, device_bytes));
    return kn_plan_create(&p->plan, kn__arena_pool(p->arena),
                          kn__arena_stream(p->arena, p->stream));
}

static inline kn_status alloc_step(void *policy, void **out, const kn__step *step) {
    const planner *p = policy;
    return kn_plan_alloc(out, p->plan, step->size, kn__arena_stream(p->arena, step->stream));
}

static inline kn_status free_step(void *policy, const kn__step *step, void *ptr) {
    (void)step;
    return kn_plan_free(((planner *)policy)->plan, ptr);
}

static inline kn_status use_step(void *policy, const kn__step *step, void *ptr) {
    const planner *p = policy;
    return kn_plan_use(p->plan, ptr, kn__arena_stream(p->arena, step->stream));
}

static kn_status step_end(planner *p) {
    bool inside = p->inside;
    p->inside = false;
    return inside ? kn_plan_end(p->plan) : KN_OK;
}

static kn_status step_begin(planner *p) {
    KN_TRY(step_end(p));
    KN_TRY(kn_plan_begin(p->plan));
    p->inside = true;
    return KN_OK;
}

static kn_status planner_run(void *policy, const kn__step *steps, size_t from, size_t to,
                             void **slots, size_t *done) {
    planner *p = policy;
    *done = from;
    if (from == 0) KN_TRY(step_begin(p));
    return kn__run_steps(policy, steps, from, to, slots, done, alloc_step, free_step, use_step);
}

static void planner_free_one(void *policy, uint32_t block, void *ptr) {
    (void)block;
    kn_plan_free(((planner *)policy)->plan, ptr);
}

static void planner_work_is_done(void *policy) {
    kn__policy_arena.work_is_done(((planner *)policy)->arena);
}

static void planner_counts(void *policy, kn__counts *out) {
    const planner *p = policy;
    kn__policy_arena.counts(p->arena, out);
    out->syncs -= p->syncs_before;
    out->events -= p->events_before;
}

static kn_status planner_rehearse(void *policy, void **slots, size_t *done) {
    planner *p = policy;
    const size_t n = p->trace->n_steps, step = p->trace->n_streams > 1 ? CHUNK_STREAMS : n;
    for (size_t at = 0; at < n; at += step) {
        size_t to = n - at < step ? n : at + step;
        KN_TRY(planner_run(p, p->trace->steps, at, to, slots, done));
        if (p->trace->n_streams > 1) planner_work_is_done(p);
    }
    for (uint32_t i = 0; i < p->trace->n_blocks; i++) {
        if (slots[i]) planner_free_one(p, i, slots[i]);
        slots[i] = NULL;
    }
    KN_TRY(step_end(p));
    planner_work_is_done(p);
    kn_pool_peaks_reset(kn__arena_pool(p->arena));
    kn__arena_calls_reset();
    kn__counts counts;
    planner_counts(p, &counts);
    p->syncs_before = counts.syncs;
    p->events_before = counts.events;
    return KN_OK;
}

const kn__policy kn__policy_plan = {.name = "plan",
                                    .create = planner_create,
                                    .destroy = planner_destroy,
                                    .configure = planner_configure,
                                    .renew = planner_renew,
                                    .rehearse = planner_rehearse,
                                    .run = planner_run,
                                    .free_one = planner_free_one,
                                    .work_is_done = planner_work_is_done,
                                    .counts = planner_counts};
