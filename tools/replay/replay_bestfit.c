/* A reference: exact best fit. Streams are not told apart: memory is taken to be reusable at
 * once. */
#include "bestfit.h"
#include "replay_policy.h"

static const uintptr_t BASE = (uintptr_t)1 << 44;

typedef struct bestfit {
    kn__bestfit range; /* with one list */
    uint32_t *run_of;  /* by block */
} bestfit;

static void bestfit_destroy(void *policy) {
    bestfit *b = policy;
    if (!b) return;
    kn__bestfit_release(&b->range);
    free(b->run_of);
    free(b);
}

static kn_status bestfit_create(void **out, const kn__trace *trace) {
    bestfit *b = calloc(1, sizeof *b);
    if (b) b->run_of = calloc(trace->n_blocks, sizeof *b->run_of);
    if (!b || !b->run_of || kn__bestfit_init(&b->range, 1) < 0) {
        bestfit_destroy(b);
        return KN_FAIL(KN_ERR_OOM, "no memory for the policy");
    }
    *out = b;
    return KN_OK;
}

static kn_status bestfit_renew(void *policy, uint64_t device_bytes) {
    kn__bestfit_reset(&((bestfit *)policy)->range, device_bytes);
    return KN_OK;
}

static inline kn_status alloc_step(void *policy, void **out, const kn__step *step) {
    bestfit *b = policy;
    uint64_t size = kn__bestfit_round(step->size);
    uint32_t run;
    KN_TRY(kn__bestfit_take(&run, &b->range, 0, 0, size));
    if (!run) {
        KN_TRY(kn__bestfit_grow(&b->range, 0, size));
        KN_TRY(kn__bestfit_take(&run, &b->range, 0, 0, size));
    }
    b->run_of[step->block] = run;
    *out = (void *)(BASE + b->range.runs[run].at);
    return KN_OK;
}

static inline kn_status free_step(void *policy, const kn__step *step, void *ptr) {
    bestfit *b = policy;
    (void)ptr;
    kn__bestfit_free(&b->range, b->run_of[step->block], 0);
    return KN_OK;
}

static inline kn_status use_step(void *policy, const kn__step *step, void *ptr) {
    (void)policy, (void)step, (void)ptr;
    return KN_OK;
}

static kn_status bestfit_run(void *policy, const kn__step *steps, size_t from, size_t to,
                             void **slots, size_t *done) {
    return kn__run_steps(policy, steps, from, to, slots, done, alloc_step, free_step, use_step);
}

static void bestfit_free_one(void *policy, uint32_t block, void *ptr) {
    bestfit *b = policy;
    (void)ptr;
    kn__bestfit_free(&b->range, b->run_of[block], 0);
}

static void bestfit_counts(void *policy, kn__counts *out) {
    const kn__bestfit *range = &((bestfit *)policy)->range;
    uint64_t n_units = range->end >> 21; /* the range grows by 2 MiB */
    *out = (kn__counts){.device_allocs = n_units,
                        .maps = n_units,
                        .reserved_bytes = range->end,
                        .reserved_bytes_max = range->end};
    kn__calls_add(&out->calls, KN__CALL_CREATE, n_units, range->end);
    kn__calls_add(&out->calls, KN__CALL_MAP, n_units, range->end);
    kn__calls_add(&out->calls, KN__CALL_ACCESS, n_units, range->end);
}

const kn__policy kn__policy_bestfit = {.name = "bestfit",
                                       .create = bestfit_create,
                                       .destroy = bestfit_destroy,
                                       .renew = bestfit_renew,
                                       .run = bestfit_run,
                                       .free_one = bestfit_free_one,
                                       .counts = bestfit_counts};
