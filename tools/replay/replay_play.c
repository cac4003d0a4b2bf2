/* The player: one pass that looks, then passes that are timed. The search for the smallest device
 * repeats the pass that looks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "now.h"
#include "replay.h"
#include "replay_policy.h"

enum { REPEATS_MIN = 5, REPEATS_MAX = 51, WARM_UP = 3, CHUNK = 65536, CHUNK_STREAMS = 256 };
enum { PROBES = 32 };                              /* devices that a search tries, about */
static const uint64_t TIMED_NS = 10000000;         /* of one kind of pass, by default */
static const uint64_t GRANULE = (uint64_t)2 << 20; /* devices are multiples of it */

static const kn__policy *const policies[] = {
    &kn__policy_arena,   &kn__policy_classes,    &kn__policy_bestfit,
    &kn__policy_pytorch, &kn__policy_expandable, &kn__policy_bfc,
    &kn__policy_naive,   &kn__policy_cuda_async, &kn__policy_plan};
enum { N_POLICIES = sizeof policies / sizeof *policies };
const char *const kn__policy_names[] = {"arena", "classes", "bestfit",    "pytorch", "expandable",
                                        "bfc",   "naive",   "cuda-async", "plan",    NULL};

typedef struct play {
    kn__played *out;
    const kn__trace *trace;
    const kn__play_options *options;
    const kn__policy *policy;
    void *ctx;
    void **slots;    /* by block */
    uint64_t *sizes; /* by block, of those allocated so far */
    uint64_t live;
    double share, look_share; /* of the work: done so far; of one pass that looks */
} play;

/* The thread's own time: others on the machine don't count. */
static uint64_t now_ns(void) { return kn__now_ns(CLOCK_THREAD_CPUTIME_ID); }

static uint64_t granules(uint64_t bytes) { return (bytes + GRANULE - 1) / GRANULE; }

static void tell(const play *p, double share) {
    if (p->options->progress) p->options->progress(p->options->ctx, share);
}

/* The pass that looks. */

static void out_reset(play *p, uint64_t device_bytes) {
    memset(p->out, 0, sizeof *p->out);
    p->out->policy = p->policy->name;
    p->out->peak_live_bytes = p->trace->peak_live_bytes;
    p->out->device_bytes = device_bytes;
    p->out->ns_per_op = p->out->ns_per_op_first = (double)NAN;
    p->live = 0;
}

static void sample(play *p, size_t at) {
    kn__counts counts;
    p->policy->counts(p->ctx, &counts);
    p->out->samples[p->out->n_samples++] =
        (kn__sample){.at = at, .live_bytes = p->live, .reserved_bytes = counts.reserved_bytes};
}

static uint64_t live_end(const play *p, uint32_t block) {
    return (uint64_t)(uintptr_t)p->slots[block] + p->sizes[block];
}

/* From the lowest live address to the highest, in cells of a round size. */
static void map_make(play *p) {
    uint64_t base = UINT64_MAX, end = 0;
    for (uint32_t i = 0; i < p->trace->n_blocks; i++) {
        if (!p->slots[i]) continue;
        if ((uintptr_t)p->slots[i] < base) base = (uintptr_t)p->slots[i];
        if (live_end(p, i) > end) end = live_end(p, i);
    }
    if (end == 0) return;
    uint64_t cell = 512;
    base = base / cell * cell;
    while ((end - base + cell - 1) / cell > KN__MAP_CELLS) cell *= 2;
    p->out->map_base = base;
    p->out->map_cell_bytes = cell;
    p->out->n_map = (int)((end - base + cell - 1) / cell);
    uint64_t used[KN__MAP_CELLS] = {0};
    for (uint32_t i = 0; i < p->trace->n_blocks; i++) {
        if (!p->slots[i]) continue;
        uint64_t at = (uintptr_t)p->slots[i] - base, stop = live_end(p, i) - base;
        while (at < stop) {
            uint64_t next = (at / cell + 1) * cell;
            used[at / cell] += (next < stop ? next : stop) - at;
            at = next;
        }
    }
    for (int i = 0; i < p->out->n_map; i++) {
        uint64_t percent = used[i] * 100 / cell;
        p->out->map[i] = (uint8_t)(percent ? percent : used[i] > 0);
    }
}

/* Plays [from, to) step by step and writes down where blocks lie. */
static kn_status run_placed(play *p, size_t from, size_t to, size_t *done) {
    kn_status status = KN_OK;
    *done = from;
    for (size_t i = from; i < to && status == KN_OK; i++) {
        const kn__step *step = &p->trace->steps[i];
        kn__block_life *place = &p->options->places[step->block];
        status = p->policy->run(p->ctx, p->trace->steps, i, i + 1, p->slots, done);
        if (status < 0 || step->kind == KN__STEP_USE) continue;
        if (step->kind == KN__STEP_ALLOC) {
            *place = (kn__block_life){.at = (uintptr_t)p->slots[step->block],
                                      .size = step->size,
                                      .from = i,
                                      .to = p->trace->n_steps};
        } else {
            place->to = i;
        }
    }
    return status;
}

/* Plays [from, to) and counts live bytes. */
static kn_status advance(play *p, size_t from, size_t to, size_t *done) {
    kn_status status = p->options->places
                           ? run_placed(p, from, to, done)
                           : p->policy->run(p->ctx, p->trace->steps, from, to, p->slots, done);
    for (size_t i = from; i < *done; i++) {
        const kn__step *step = &p->trace->steps[i];
        if (step->kind == KN__STEP_ALLOC) {
            p->sizes[step->block] = step->size;
            p->live += step->size;
        } else if (step->kind == KN__STEP_FREE) {
            p->live -= p->sizes[step->block];
        }
    }
    return status;
}

static void take_oom(play *p, size_t at) {
    p->out->oom = true;
    size_t n = p->trace->n_steps, event = at < n ? at + 1 : n; /* n: where the recorded step ends */
    snprintf(p->out->oom_text, sizeof p->out->oom_text, "event %zu of %zu: %.900s", event, n,
             kn_last_error()->message);
}

/* Until the next place to stop at: the peak, a sample, or where streams' work is done. */
static size_t next_stop(const play *p, size_t from, size_t sample_every) {
    size_t to = (from / sample_every + 1) * sample_every, n = p->trace->n_steps;
    size_t peak = p->trace->peak_at + 1;
    if (p->trace->n_streams > 1 && to - from > CHUNK_STREAMS) to = from + CHUNK_STREAMS;
    if (from < peak && to > peak) to = peak;
    return to < n ? to : n;
}

static kn_status look(play *p) {
    size_t n = p->trace->n_steps, sample_every = (n + KN__SAMPLES - 1) / KN__SAMPLES;
    kn_status status = KN_OK;
    KN_TRY(p->policy->renew(p->ctx, p->out->device_bytes));
    if (p->policy->rehearse) status = p->policy->rehearse(p->ctx, p->slots, &p->out->n_steps);
    for (size_t at = 0, to; at < n && status == KN_OK; at = to) {
        to = next_stop(p, at, sample_every);
        status = advance(p, at, to, &p->out->n_steps);
        if (p->out->n_steps == p->trace->peak_at + 1) map_make(p);
        if (status == KN_OK && (to % sample_every == 0 || to == n)) sample(p, to);
        if (p->trace->n_streams > 1 && p->policy->work_is_done) p->policy->work_is_done(p->ctx);
        tell(p, p->share + p->look_share * (double)to / (double)n);
    }
    if (status == KN_ERR_OOM) {
        take_oom(p, p->out->n_steps);
        map_make(p);
        status = KN_OK;
    }
    p->policy->counts(p->ctx, &p->out->counts);
    return status;
}

/* The passes that are timed. */

static void free_all(play *p) {
    for (uint32_t i = 0; i < p->trace->n_blocks; i++) {
        if (p->slots[i]) p->policy->free_one(p->ctx, i, p->slots[i]);
        p->slots[i] = NULL;
    }
    if (p->policy->work_is_done) p->policy->work_is_done(p->ctx);
}

static kn_status timed_pass(play *p, double *ns_per_op) {
    size_t n = p->trace->n_steps, step = p->trace->n_streams > 1 ? CHUNK_STREAMS : CHUNK;
    uint64_t total = 0;
    for (size_t at = 0, done; at < n; at += step) {
        size_t to = at + step < n ? at + step : n;
        uint64_t begin = now_ns();
        KN_TRY(p->policy->run(p->ctx, p->trace->steps, at, to, p->slots, &done));
        total += now_ns() - begin;
        if (p->trace->n_streams > 1 && p->policy->work_is_done) p->policy->work_is_done(p->ctx);
    }
    *ns_per_op = (double)total / (double)n;
    return KN_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static bool enough(const play *p, int n, uint64_t begin) {
    if (p->options->repeats) return n >= p->options->repeats || n == REPEATS_MAX;
    return n == REPEATS_MAX || (n >= REPEATS_MIN && now_ns() - begin > TIMED_NS);
}

/* The first play on a pool is dear: the device maps, records are made, pages are touched. */
static kn_status time_it(play *p) {
    double first[REPEATS_MAX], steady[REPEATS_MAX];
    uint64_t begin = now_ns();
    int n = 0;
    for (; !enough(p, n, begin); n++) {
        free_all(p);
        KN_TRY(p->policy->renew(p->ctx, p->out->device_bytes));
        KN_TRY(timed_pass(p, &first[n]));
        tell(p, 0.3 + 0.3 * n / REPEATS_MAX);
    }
    p->out->ns_per_op_first = median(first, n);
    for (n = 0; n < WARM_UP; n++) {
        free_all(p);
        KN_TRY(timed_pass(p, &steady[0]));
    }
    begin = now_ns();
    for (n = 0; !enough(p, n, begin); n++) {
        free_all(p);
        KN_TRY(timed_pass(p, &steady[n]));
        tell(p, 0.6 + 0.4 * n / REPEATS_MAX);
    }
    p->out->ns_per_op = median(steady, n);
    return KN_OK;
}

/* Eight times the peak: a pool that is nearly full of live memory waits and moves to save memory,
 * and its reserved bytes say less. At least 1 GiB: each stream and each size class of small blocks
 * holds a handle of 2 MiB, however small the peak. */
static uint64_t enough_bytes(const kn__trace *trace) {
    const uint64_t least = (uint64_t)1 << 30;
    if (trace->peak_live_bytes > UINT64_MAX / 16) return UINT64_MAX / 2;
    uint64_t bytes = granules(8 * trace->peak_live_bytes) * GRANULE;
    return bytes > least ? bytes : least;
}

static kn_status play_init(play *p, const char *policy) {
    static const kn__play_options defaults = {0};
    if (!p->options) p->options = &defaults;
    for (int i = 0; i < N_POLICIES; i++) {
        if (strcmp(policies[i]->name, policy) == 0) p->policy = policies[i];
    }
    if (!p->policy) return KN_FAIL(KN_ERR_INVALID, "there is no policy '%s'", policy);
    uint64_t bytes = p->options->device_bytes;
    out_reset(p, bytes ? bytes : enough_bytes(p->trace));
    p->slots = calloc((size_t)p->trace->n_blocks + 1, sizeof *p->slots);
    p->sizes = calloc((size_t)p->trace->n_blocks + 1, sizeof *p->sizes);
    if (!p->slots || !p->sizes) return KN_FAIL(KN_ERR_OOM, "no memory to play the trace");
    KN_TRY(p->policy->create(&p->ctx, p->trace));
    if (p->options->pool && p->policy->configure) {
        p->policy->configure(p->ctx, p->options->pool);
    }
    return KN_OK;
}

static void play_release(play *p) {
    if (p->ctx) {
        free_all(p);
        p->policy->destroy(p->ctx);
    }
    free(p->slots);
    free(p->sizes);
}

kn_status kn__play(kn__played *out, const kn__trace *trace, const char *policy,
                   const kn__play_options *options) {
    play p = {.out = out, .trace = trace, .options = options, .look_share = 0.3};
    kn_status status;
    KN_TRY_GOTO(status, play_init(&p, policy));
    KN_TRY_GOTO(status, look(&p));
    if (out->oom || p.options->untimed) goto cleanup;
    /* A device that is just large enough for one play need not be for the next: then no time. */
    status = time_it(&p);
    if (status == KN_ERR_OOM) status = KN_OK;
cleanup:
    play_release(&p);
    return status;
}

/* The smallest device. */

static kn_status completes(void *ctx, bool *out, uint64_t n_granules) {
    play *p = ctx;
    out_reset(p, n_granules * GRANULE);
    p->look_share = (1 - p->share) / PROBES;
    KN_TRY(look(p));
    p->share += p->look_share;
    free_all(p);
    *out = !p->out->oom;
    return KN_OK;
}

kn_status kn__play_fits(uint64_t *fits_bytes, const kn__trace *trace, const char *policy,
                        const kn__play_options *options) {
    kn__played *scratch = calloc(1, sizeof *scratch);
    if (!scratch) return KN_FAIL(KN_ERR_OOM, "no memory to play the trace");
    play p = {.out = scratch, .trace = trace, .options = options};
    uint64_t fits = 0, least = trace->peak_live_bytes ? trace->peak_live_bytes : 1;
    kn_status status;
    KN_TRY_GOTO(status, play_init(&p, policy));
    KN_TRY_GOTO(status, kn__fits_search(&fits, granules(least), scratch->device_bytes / GRANULE,
                                        completes, &p));
    *fits_bytes = fits * GRANULE;
cleanup:
    play_release(&p);
    free(scratch);
    return status;
}
