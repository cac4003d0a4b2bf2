/* The player: the same trace, the same addresses; the policies agree on live bytes; streams;
 * devices that are too small; the search for the smallest device. */
#include <knet/device.h>
#include <stdio.h>

#include "replay.h"
#include "replay_policy.h"
#include "test.h"

enum { STEPS = 3000 };

/* A random trace, well-formed by construction. */
static kn__trace make_trace(int n_streams) {
    kn__builder b;
    kn__trace trace;
    uint64_t live[STEPS], streams[STEPS], next = 0x1000;
    size_t n_live = 0;
    kn__builder_init(&b, "made up");
    for (int i = 0; i < STEPS; i++) {
        b.at++;
        if (n_live && test_random_below(100) < 45) {
            size_t k = test_random_below(n_live);
            uint64_t other = test_random_below((uint64_t)n_streams);
            if (other != streams[k]) assert_ok(kn__build_use(&b, live[k], other));
            assert_ok(kn__build_free(&b, live[k], 0));
            live[k] = live[--n_live];
            streams[k] = streams[n_live];
        } else {
            uint64_t size = test_random_below(2) ? 1 + test_random_below(60000)
                                                 : 1 + test_random_below(20 << 20);
            live[n_live] = next++;
            streams[n_live] = test_random_below((uint64_t)n_streams);
            assert_ok(kn__build_alloc(&b, live[n_live], size, streams[n_live]));
            n_live++;
        }
    }
    assert_ok(kn__build_finish(&trace, &b));
    return trace;
}

static const kn__policy *const POLICIES[] = {
    &kn__policy_arena,      &kn__policy_classes, &kn__policy_bestfit, &kn__policy_pytorch,
    &kn__policy_expandable, &kn__policy_bfc,     &kn__policy_naive,   &kn__policy_cuda_async};
enum { N_POLICIES = sizeof POLICIES / sizeof *POLICIES };

/* The address of every block, by a policy on a device of its own; and that live ones never
 * overlap. */
static void addresses(uintptr_t *out, const kn__policy *policy, const kn__trace *trace) {
    void *p = NULL;
    size_t done = 0;
    void **slots = calloc(trace->n_blocks, sizeof *slots);
    uint64_t *sizes = calloc(trace->n_blocks, sizeof *sizes);
    assert_ok(policy->create(&p, trace));
    assert_ok(policy->renew(p, (uint64_t)64 << 30));
    for (size_t i = 0; i < trace->n_steps; i++) {
        const kn__step *step = &trace->steps[i];
        assert_ok(policy->run(p, trace->steps, i, i + 1, slots, &done));
        if (step->kind != KN__STEP_ALLOC) continue;
        uintptr_t at = (uintptr_t)slots[step->block];
        out[step->block] = at;
        sizes[step->block] = step->size;
        for (uint32_t k = 0; k < trace->n_blocks; k++) {
            uintptr_t other = (uintptr_t)slots[k];
            if (!other || k == step->block) continue;
            assert_true(at + step->size <= other || other + sizes[k] <= at);
        }
    }
    for (uint32_t k = 0; k < trace->n_blocks; k++) {
        if (slots[k]) policy->free_one(p, k, slots[k]);
    }
    policy->destroy(p);
    free(slots);
    free(sizes);
}

static void the_same_trace_gets_the_same_addresses_and_no_block_lies_on_another(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    uintptr_t *one = calloc(trace.n_blocks, sizeof *one);
    uintptr_t *two = calloc(trace.n_blocks, sizeof *two);
    for (int i = 0; i < N_POLICIES; i++) {
        addresses(one, POLICIES[i], &trace);
        addresses(two, POLICIES[i], &trace);
        assert_memory_equal(one, two, trace.n_blocks * sizeof *one);
    }
    free(one);
    free(two);
    kn__trace_release(&trace);
}

static void policies_agree_on_live_bytes(void **state) {
    (void)state;
    for (int n_streams = 1; n_streams <= 3; n_streams += 2) {
        kn__trace trace = make_trace(n_streams);
        static kn__played played[N_POLICIES];
        for (int i = 0; i < N_POLICIES; i++) {
            assert_ok(kn__play(&played[i], &trace, kn__policy_names[i],
                               &(kn__play_options){.repeats = 1}));
            const kn__played *p = &played[i];
            assert_false(p->oom);
            assert_int_equal(p->n_steps, trace.n_steps);
            assert_int_equal(p->peak_live_bytes, trace.peak_live_bytes);
            assert_true(p->counts.reserved_bytes_max >= trace.peak_live_bytes);
            assert_true(p->counts.device_allocs > 0);
            if (strcmp(p->policy, "naive") != 0) assert_int_equal(p->counts.syncs, 0);
            assert_true(p->n_samples > KN__SAMPLES / 2);
            for (int k = 0; k < p->n_samples; k++) {
                assert_int_equal(p->samples[k].at, played[0].samples[k].at);
                assert_int_equal(p->samples[k].live_bytes, played[0].samples[k].live_bytes);
                assert_true(p->samples[k].reserved_bytes >= p->samples[k].live_bytes);
            }
        }
        kn__trace_release(&trace);
    }
}

static void the_map_shows_the_live_blocks_at_the_peak(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    for (int i = 0; i < N_POLICIES; i++) {
        static kn__played p;
        assert_ok(kn__play(&p, &trace, kn__policy_names[i], &(kn__play_options){.repeats = 1}));
        double live = 0;
        for (int k = 0; k < p.n_map; k++) {
            assert_true(p.map[k] <= 100);
            live += p.map[k] / 100.0 * (double)p.map_cell_bytes;
        }
        /* a cell's percent is rounded down */
        assert_close(live, (double)trace.peak_live_bytes, 0.02 + 0.01 * p.n_map / 10, 0);
    }
    kn__trace_release(&trace);
}

static void best_fit_and_classes_follow_their_rules(void **state) {
    (void)state;
    kn__builder b;
    kn__trace trace;
    static kn__played p;
    kn__builder_init(&b, "made up");
    const uint64_t MiB = 1 << 20;
    assert_ok(kn__build_alloc(&b, 1, 3 * MiB, 0));
    assert_ok(kn__build_alloc(&b, 2, 1 * MiB, 0));
    assert_ok(kn__build_free(&b, 1, 0));
    assert_ok(kn__build_alloc(&b, 3, 2 * MiB, 0)); /* best fit: where 1 was */
    assert_ok(kn__build_alloc(&b, 4, 1 * MiB, 0)); /* and beside it */
    assert_ok(kn__build_finish(&trace, &b));
    assert_ok(kn__play(&p, &trace, "bestfit", &(kn__play_options){.repeats = 1}));
    assert_int_equal(p.counts.reserved_bytes_max, 4 * MiB);
    assert_ok(kn__play(&p, &trace, "classes", &(kn__play_options){.repeats = 1}));
    /* 2^(65/3) = 3329021.6 holds 3 MiB; 1 and 2 MiB are classes; nothing serves another class */
    assert_int_equal(p.counts.reserved_bytes_max, 3329021 + 4 * MiB);
    assert_int_equal(p.counts.device_allocs, 4);
    kn__trace_release(&trace);
}

static void a_device_that_is_too_small_is_a_result_that_says_so(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    for (int i = 0; i < N_POLICIES; i++) {
        static kn__played p;
        uint64_t device = trace.peak_live_bytes / 2;
        assert_ok(kn__play(&p, &trace, kn__policy_names[i],
                           &(kn__play_options){.repeats = 1, .device_bytes = device}));
        assert_true(p.oom);
        assert_true(p.n_steps < trace.n_steps);
        assert_int_equal(trace.steps[p.n_steps].kind, KN__STEP_ALLOC);
        assert_true(p.counts.reserved_bytes_max <= device);
        assert_non_null(strstr(p.oom_text, "asked for"));
        assert_true(p.n_map > 0);
    }
    static kn__played none;
    assert_fails(kn__play(&none, &trace, "buddy", NULL), KN_ERR_INVALID, "no policy 'buddy'");
    kn__trace_release(&trace);
}

static void the_device_has_eight_times_the_peak_and_at_least_1_gib(void **state) {
    (void)state;
    const uint64_t MiB = 1 << 20;
    for (int large = 0; large < 2; large++) {
        kn__builder b;
        kn__trace trace;
        static kn__played p;
        kn__builder_init(&b, "made up");
        assert_ok(kn__build_alloc(&b, 1, large ? 201 * MiB + 1 : MiB, 0));
        assert_ok(kn__build_finish(&trace, &b));
        assert_ok(kn__play(&p, &trace, "arena", &(kn__play_options){.repeats = 1}));
        assert_int_equal(p.device_bytes, large ? 1610 * MiB : 1024 * MiB);
        kn__trace_release(&trace);
    }
}

/* The device that was registered last. */
static kn_device *replay_device(void) {
    kn_device *device = NULL, *last = NULL;
    char name[32];
    for (int i = 1;; i++) {
        snprintf(name, sizeof name, "replay:%d", i);
        if (kn_device_find(&device, name) < 0) break;
        last = device;
    }
    return last;
}

static void the_device_has_the_size_that_the_play_asks_for(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    kn_device_info info;
    void *p = NULL;
    assert_ok(kn__policy_arena.create(&p, &trace));
    for (uint64_t gib = 1; gib <= 3; gib++) {
        void **slots = calloc(trace.n_blocks, sizeof *slots);
        size_t done = 0;
        kn__counts counts;
        assert_ok(kn__policy_arena.renew(p, gib << 30));
        assert_ok(kn_device_info_read(&info, sizeof info, replay_device()));
        assert_int_equal(info.total_bytes, gib << 30);
        assert_int_equal(info.free_bytes, gib << 30);
        assert_ok(kn__policy_arena.run(p, trace.steps, 0, 1, slots, &done));
        kn__policy_arena.counts(p, &counts);
        assert_ok(kn_device_info_read(&info, sizeof info, replay_device()));
        assert_int_equal(info.free_bytes, (gib << 30) - counts.reserved_bytes);
        kn__policy_arena.free_one(p, trace.steps[0].block, slots[trace.steps[0].block]);
        free(slots);
    }
    kn__policy_arena.destroy(p);
    kn__trace_release(&trace);
}

/* The smallest device. */

enum { SIZES = 300 };

typedef struct pattern { /* which sizes complete; which were tried */
    bool completes[SIZES], tried[SIZES];
} pattern;

static kn_status pattern_completes(void *ctx, bool *out, uint64_t n_granules) {
    pattern *x = ctx;
    assert_true(n_granules < SIZES);
    x->tried[n_granules] = true;
    *out = x->completes[n_granules];
    return KN_OK;
}

static kn_status fails(void *ctx, bool *out, uint64_t n_granules) {
    (void)ctx, (void)out, (void)n_granules;
    return KN_FAIL(KN_ERR_INVALID, "on purpose");
}

static void the_search_finds_the_first_size_that_completes(void **state) {
    (void)state;
    for (uint64_t low = 1; low < SIZES; low += 37) {
        for (uint64_t first = low; first < SIZES; first++) {
            pattern x = {{false}, {false}};
            uint64_t fits = 0;
            for (uint64_t i = first; i < SIZES; i++) x.completes[i] = true;
            assert_ok(kn__fits_search(&fits, low, SIZES - 1, pattern_completes, &x));
            assert_int_equal(fits, first);
            for (uint64_t i = 0; i < low; i++) assert_false(x.tried[i]);
        }
    }
}

static void the_search_never_claims_a_size_below_one_that_failed(void **state) {
    (void)state;
    for (int round = 0; round < 20000; round++) {
        pattern x = {{false}, {false}};
        uint64_t fits = 0, first = test_random_below(SIZES), n_after = 0;
        uint64_t lucky = 1 + test_random_below(100), unlucky = test_random_below(40);
        for (uint64_t i = 0; i < SIZES; i++) {
            x.completes[i] = test_random_below(100) >= (i < first ? lucky : unlucky);
        }
        assert_ok(kn__fits_search(&fits, 1, SIZES - 1, pattern_completes, &x));
        if (!x.completes[SIZES - 1]) {
            assert_int_equal(fits, 0);
            continue;
        }
        assert_true(fits > 0 && x.tried[fits]);
        for (uint64_t i = fits; i < SIZES; i++) {
            if (x.tried[i]) assert_true(x.completes[i]);
        }
        for (uint64_t i = fits; i < SIZES && x.tried[i]; i++) n_after++;
        assert_true(n_after >= KN__FITS_IN_A_ROW || fits + n_after == SIZES);
    }
}

/* Completes once on each device. */
static kn_status completes_once(void *ctx, bool *out, uint64_t n_granules) {
    pattern *x = ctx;
    *out = !x->tried[n_granules];
    x->tried[n_granules] = true;
    return KN_OK;
}

static void the_search_ends_when_the_largest_size_fails_and_at_errors(void **state) {
    (void)state;
    pattern x = {{false}, {false}};
    uint64_t fits = 7;
    assert_ok(kn__fits_search(&fits, 1, SIZES - 1, pattern_completes, &x));
    assert_int_equal(fits, 0);
    x = (pattern){{false}, {false}};
    x.completes[4] = true;
    assert_ok(kn__fits_search(&fits, 5, 4, pattern_completes, &x));
    assert_int_equal(fits, 0);
    assert_false(x.tried[4]);
    x = (pattern){{false}, {false}};
    assert_ok(kn__fits_search(&fits, SIZES - 1, SIZES - 1, completes_once, &x));
    assert_int_equal(fits, 0);
    assert_fails(kn__fits_search(&fits, 1, 1, fails, NULL), KN_ERR_INVALID, "purpose");
}

static bool completes_on(const kn__trace *trace, const char *policy, uint64_t device_bytes) {
    static kn__played p;
    kn__play_options options = {.repeats = 1, .device_bytes = device_bytes};
    assert_ok(kn__play(&p, trace, policy, &options));
    return !p.oom;
}

static void a_policy_completes_on_the_smallest_device_found(void **state) {
    (void)state;
    const uint64_t granule = 2 << 20;
    for (int n_streams = 1; n_streams <= 3; n_streams += 2) {
        kn__trace trace = make_trace(n_streams);
        for (int i = 0; i < N_POLICIES; i++) {
            uint64_t fits = 0;
            const char *policy = kn__policy_names[i];
            assert_ok(kn__play_fits(&fits, &trace, policy, NULL));
            assert_true(fits >= trace.peak_live_bytes && fits % granule == 0);
            assert_true(completes_on(&trace, policy, fits));
            assert_true(completes_on(&trace, policy, fits + granule));
            if (fits - granule >= trace.peak_live_bytes) {
                assert_false(completes_on(&trace, policy, fits - granule));
            }
            assert_ok(kn__play_fits(&fits, &trace, policy,
                                    &(kn__play_options){.device_bytes = fits - granule}));
            assert_int_equal(fits, 0);
        }
        kn__trace_release(&trace);
    }
}

/* Best fit reserves the same memory on a device of any size. */
static void best_fit_completes_on_a_device_of_the_size_it_reserves(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    static kn__played p;
    uint64_t fits = 0;
    assert_ok(kn__play(&p, &trace, "bestfit", &(kn__play_options){.repeats = 1}));
    assert_ok(kn__play_fits(&fits, &trace, "bestfit", NULL));
    assert_int_equal(fits, p.counts.reserved_bytes_max);
    assert_fails(kn__play_fits(&fits, &trace, "buddy", NULL), KN_ERR_INVALID, "no policy 'buddy'");
    kn__trace_release(&trace);
}

/* Where blocks lie is written down, and is where a play puts them. */
static void places_are_those_of_the_play(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    uintptr_t *at = calloc(trace.n_blocks, sizeof *at);
    kn__block_life *places = calloc(trace.n_blocks, sizeof *places);
    for (int i = 0; i < N_POLICIES; i++) {
        static kn__played p;
        uint64_t live = 0;
        memset(places, 0, trace.n_blocks * sizeof *places);
        assert_ok(
            kn__play(&p, &trace, POLICIES[i]->name,
                     &(kn__play_options){
                         .places = places, .untimed = true, .device_bytes = (uint64_t)64 << 30}));
        addresses(at, POLICIES[i], &trace);
        for (uint32_t k = 0; k < trace.n_blocks; k++) {
            assert_int_equal(places[k].at, at[k]);
            assert_int_equal(trace.steps[places[k].from].block, k);
            assert_int_equal(trace.steps[places[k].from].kind, KN__STEP_ALLOC);
            assert_true(places[k].to > places[k].from);
            if (places[k].to < trace.n_steps) assert_int_equal(trace.steps[places[k].to].block, k);
            if (places[k].from <= trace.peak_at && trace.peak_at < places[k].to) {
                live += places[k].size;
            }
        }
        assert_int_equal(live, trace.peak_live_bytes);
    }
    free(at);
    free(places);
    kn__trace_release(&trace);
}

static void the_pools_options_reach_the_pool(void **state) {
    (void)state;
    kn__trace trace = make_trace(1);
    static kn__played p;
    kn_pool_options options = {.limit_bytes = trace.peak_live_bytes / 2};
    assert_ok(
        kn__play(&p, &trace, "arena", &(kn__play_options){.pool = &options, .untimed = true}));
    assert_true(p.oom);
    assert_true(p.counts.reserved_bytes_max <= options.limit_bytes);
    options.pressure = 2;
    assert_fails(
        kn__play(&p, &trace, "arena", &(kn__play_options){.pool = &options, .untimed = true}),
        KN_ERR_INVALID, "pressure is 2");
    kn__trace_release(&trace);
}

/* The driver's calls are those that the counters of the pool know. */
static void calls_of_the_arena_agree_with_its_counters(void **state) {
    (void)state;
    for (int n_streams = 1; n_streams <= 3; n_streams += 2) {
        kn__trace trace = make_trace(n_streams);
        static kn__played p;
        uint64_t fits = 0;
        assert_ok(kn__play_fits(&fits, &trace, "arena", NULL));
        assert_ok(kn__play(&p, &trace, "arena",
                           &(kn__play_options){.device_bytes = fits, .untimed = true}));
        const kn__driver_calls *calls = &p.counts.calls;
        assert_true(calls->n[KN__CALL_CREATE] > 0 && calls->n[KN__CALL_ACCESS] > 0);
        assert_int_equal(calls->n[KN__CALL_MAP], p.counts.maps);
        assert_int_equal(calls->n[KN__CALL_RECORD], p.counts.events);
        assert_int_equal(calls->bytes[KN__CALL_CREATE] - calls->bytes[KN__CALL_RELEASE],
                         p.counts.reserved_bytes);
        if (n_streams == 1) assert_int_equal(calls->n[KN__CALL_WAIT], 0);
        if (n_streams > 1) assert_true(calls->n[KN__CALL_WAIT] + calls->n[KN__CALL_QUERY] > 0);
        kn__trace_release(&trace);
    }
}

int main(void) {
    return RUN_TESTS(TEST(the_same_trace_gets_the_same_addresses_and_no_block_lies_on_another),
                     TEST(policies_agree_on_live_bytes),
                     TEST(the_map_shows_the_live_blocks_at_the_peak),
                     TEST(best_fit_and_classes_follow_their_rules),
                     TEST(a_device_that_is_too_small_is_a_result_that_says_so),
                     TEST(the_device_has_eight_times_the_peak_and_at_least_1_gib),
                     TEST(the_device_has_the_size_that_the_play_asks_for),
                     TEST(the_search_finds_the_first_size_that_completes),
                     TEST(the_search_never_claims_a_size_below_one_that_failed),
                     TEST(the_search_ends_when_the_largest_size_fails_and_at_errors),
                     TEST(a_policy_completes_on_the_smallest_device_found),
                     TEST(best_fit_completes_on_a_device_of_the_size_it_reserves),
                     TEST(places_are_those_of_the_play), TEST(the_pools_options_reach_the_pool),
                     TEST(calls_of_the_arena_agree_with_its_counters));
}
