/* Plan mode: a step that repeats is served from one region; any other call falls back. */
#include <knet/plan.h>

#include "pool_fixture.h"

enum { STEP_BLOCKS = 40 };

typedef struct steps {
    fixture f;
    kn_plan *plan;
    void *ptrs[STEP_BLOCKS];
} steps;

static steps begin(size_t capacity) {
    steps s = {.f = fixture_make(capacity, false, NULL)};
    assert_ok(kn_plan_create(&s.plan, s.f.pool, NULL));
    return s;
}

static void end(steps *s) {
    kn_plan_destroy(s->plan);
    fixture_end(&s->f);
}

static kn_plan_stats stats(const steps *s) {
    kn_plan_stats out;
    kn_plan_stats_read(&out, sizeof out, s->plan);
    return out;
}

static void *plan_alloc(steps *s, size_t size) {
    void *ptr = NULL;
    assert_ok(kn_plan_alloc(&ptr, s->plan, size, NULL));
    assert_non_null(ptr);
    assert_int_equal((uintptr_t)ptr % 256, 0);
    return ptr;
}

static size_t size_of(int i) { return (size_t)(1 + i * 7 % 11) * 300000 + (size_t)i; }

/* Forward: blocks are saved; backward: freed in the other order, beside temporaries. */
static void forward(steps *s, int from) {
    for (int i = from; i < STEP_BLOCKS; i++) {
        s->ptrs[i] = plan_alloc(s, size_of(i));
        void *temporary = plan_alloc(s, size_of(i) / 3);
        assert_ok(kn_plan_free(s->plan, temporary));
    }
}

static void backward(steps *s) {
    for (int i = STEP_BLOCKS; i-- > 0;) {
        void *gradient = plan_alloc(s, size_of(i));
        assert_ok(kn_plan_free(s->plan, s->ptrs[i]));
        assert_ok(kn_plan_free(s->plan, gradient));
    }
}

static void play(steps *s) {
    assert_ok(kn_plan_begin(s->plan));
    forward(s, 0);
    backward(s);
    assert_ok(kn_plan_end(s->plan));
}

static void second_step_is_served_from_the_region(void **state) {
    (void)state;
    steps s = begin(GiB);
    void *first[STEP_BLOCKS];
    play(&s);
    assert_int_equal(stats(&s).state, KN_PLAN_SERVES);
    assert_int_equal(stats(&s).n_served, 0);
    assert_int_equal(stats(&s).n_blocks, 3 * STEP_BLOCKS);
    uint64_t region = stats(&s).region_bytes, peak = stats(&s).peak_bytes;
    assert_true(region >= peak && region <= peak + peak / 20);
    assert_true(stats_of(s.f.pool).reserved_bytes <= region + 4 * MiB);
    uint64_t n_allocs = stats_of(s.f.pool).n_allocs;
    for (int step = 0; step < 3; step++) {
        play(&s);
        if (!step) memcpy(first, s.ptrs, sizeof first);
        assert_memory_equal(first, s.ptrs, sizeof first); /* the same addresses */
    }
    assert_int_equal(stats(&s).n_served, 3 * 3 * STEP_BLOCKS);
    assert_int_equal(stats(&s).n_mismatches, 0);
    assert_string_equal(stats(&s).mismatch, "");
    assert_int_equal(stats_of(s.f.pool).n_allocs, n_allocs); /* no call of the pool */
    end(&s);
}

static void assert_apart(const steps *s) {
    for (int i = 0; i < STEP_BLOCKS; i++) {
        for (int k = 0; k < i; k++) {
            const char *a = s->ptrs[i], *b = s->ptrs[k];
            assert_false(a < b + size_of(k) && b < a + size_of(i));
        }
    }
}

static void served_blocks_never_overlap(void **state) {
    (void)state;
    steps s = begin(GiB);
    play(&s);
    assert_ok(kn_plan_begin(s.plan));
    forward(&s, 0);
    assert_apart(&s);
    backward(&s);
    assert_ok(kn_plan_end(s.plan));
    end(&s);
}

/* One call that differs: of each kind. */
static void play_otherwise(steps *s, int kind) {
    assert_ok(kn_plan_begin(s->plan));
    forward(s, 0);
    void *extra = NULL;
    if (kind == 0) extra = plan_alloc(s, 12345);                 /* one more */
    if (kind == 1) assert_ok(kn_plan_free(s->plan, s->ptrs[3])); /* too early */
    assert_int_equal(stats(s).state, kind < 2 ? KN_PLAN_FALLS_BACK : KN_PLAN_SERVES);
    if (kind == 1) s->ptrs[3] = plan_alloc(s, size_of(3));
    assert_apart(s);
    if (kind == 2) { /* the end comes early */
        for (int i = 0; i < STEP_BLOCKS; i++) assert_ok(kn_plan_free(s->plan, s->ptrs[i]));
    } else {
        backward(s);
    }
    assert_ok(kn_plan_free(s->plan, extra));
    assert_ok(kn_plan_end(s->plan));
}

static void step_that_differs_falls_back_and_the_next_is_served(void **state) {
    (void)state;
    steps s = begin(GiB);
    play(&s);
    for (int kind = 0; kind < 3; kind++) {
        play_otherwise(&s, kind);
        assert_int_equal(stats(&s).n_mismatches, kind + 1);
        assert_non_null(strstr(stats(&s).mismatch, "the plan has"));
        uint64_t n = stats(&s).n_served;
        play(&s);
        assert_int_equal(stats(&s).n_served - n, 3 * STEP_BLOCKS);
        assert_int_equal(stats(&s).n_plans, 1);
    }
    end(&s);
}

static void three_steps_that_differ_make_a_new_plan(void **state) {
    (void)state;
    steps s = begin(GiB);
    play(&s);
    for (int i = 0; i < 3; i++) play_otherwise(&s, 0);
    assert_int_equal(stats(&s).state, KN_PLAN_RECORDS);
    play(&s);
    play(&s);
    assert_int_equal(stats(&s).n_plans, 2);
    end(&s);
}

/* The size, which the message names. */
static void mismatch_names_call_and_sizes(void **state) {
    (void)state;
    steps s = begin(GiB);
    play(&s);
    assert_ok(kn_plan_begin(s.plan));
    void *wrong = plan_alloc(&s, 777);
    assert_string_equal(stats(&s).mismatch,
                        "call 0 of the step is an allocation of 777 bytes; the "
                        "plan has an allocation of 300000 bytes");
    assert_ok(kn_plan_free(s.plan, wrong));
    assert_ok(kn_plan_end(s.plan));
    end(&s);
}

static void blocks_that_outlive_their_step_come_from_the_pool(void **state) {
    (void)state;
    steps s = begin(GiB);
    void *kept = NULL;
    for (int step = 0; step < 4; step++) {
        assert_ok(kn_plan_begin(s.plan));
        void *before = kept;
        kept = plan_alloc(&s, 5 * MiB);
        forward(&s, 0);
        assert_ok(kn_plan_free(s.plan, before)); /* of the step before */
        backward(&s);
        assert_ok(kn_plan_end(s.plan));
        kn_block_info info;
        assert_true(kn_block_find(&info, sizeof info, s.f.pool, kept));
        assert_ptr_equal(info.ptr, kept); /* a block of its own */
    }
    assert_int_equal(stats(&s).n_mismatches, 0);
    assert_int_equal(stats(&s).n_served, 3 * 3 * STEP_BLOCKS);
    assert_ok(kn_plan_free(s.plan, kept));
    end(&s);
}

/* A served block that outlives its step: the next step can't be served. */
static void live_block_of_the_region_keeps_its_bytes(void **state) {
    (void)state;
    steps s = begin(GiB);
    play(&s);
    assert_ok(kn_plan_begin(s.plan));
    char *kept = plan_alloc(&s, size_of(0));
    assert_ok(kn_plan_end(s.plan));
    for (int step = 0; step < 5; step++) {
        assert_ok(kn_plan_begin(s.plan));
        forward(&s, 0);
        for (int i = 0; i < STEP_BLOCKS; i++) {
            const char *other = s.ptrs[i];
            assert_false(kept < other + size_of(i) && other < kept + size_of(0));
        }
        backward(&s);
        assert_ok(kn_plan_end(s.plan));
    }
    assert_fails(kn_plan_reset(s.plan), KN_ERR_INVALID, "1 blocks");
    assert_ok(kn_plan_free(s.plan, kept));
    assert_fails(kn_plan_free(s.plan, kept), KN_ERR_INVALID, "no live block");
    play(&s);
    play(&s);
    assert_int_equal(stats(&s).state, KN_PLAN_SERVES);
    end(&s);
}

/* Freed before the next step begins: that one is served. */
static void free_between_two_steps_costs_the_next_nothing(void **state) {
    (void)state;
    steps s = begin(GiB);
    play(&s);
    assert_ok(kn_plan_begin(s.plan));
    void *kept = plan_alloc(&s, size_of(0));
    assert_ok(kn_plan_end(s.plan));
    kn_plan_stats before = stats(&s);
    assert_ok(kn_plan_free(s.plan, kept));
    play(&s);
    assert_int_equal(stats(&s).n_mismatches, before.n_mismatches);
    assert_int_equal(stats(&s).n_pooled, before.n_pooled);
    assert_int_equal(stats(&s).n_served - before.n_served, 3 * STEP_BLOCKS);
    end(&s);
}

static void other_streams_allocate_from_the_pool(void **state) {
    (void)state;
    steps s = begin(GiB);
    kn_stream other = new_stream(&s.f);
    for (int step = 0; step < 3; step++) {
        void *theirs = NULL;
        assert_ok(kn_plan_begin(s.plan));
        if (step != 1) assert_ok(kn_plan_alloc(&theirs, s.plan, 3 * MiB, other));
        forward(&s, 0);
        backward(&s);
        assert_ok(kn_plan_free(s.plan, theirs));
        assert_ok(kn_plan_end(s.plan));
    }
    assert_int_equal(stats(&s).n_mismatches, 0);
    kn_stream_destroy(s.f.device, other);
    end(&s);
}

static void block_that_another_stream_uses_is_not_planned(void **state) {
    (void)state;
    steps s = begin(GiB);
    kn_stream other = new_stream(&s.f);
    for (int step = 0; step < 3; step++) {
        assert_ok(kn_plan_begin(s.plan));
        void *shared = plan_alloc(&s, 2 * MiB);
        kn_sim_work(s.f.sim, other, shared, 2 * MiB, 1 + (uint64_t)step);
        assert_ok(kn_plan_use(s.plan, shared, other));
        assert_ok(kn_plan_free(s.plan, shared));
        forward(&s, 0);
        backward(&s);
        assert_ok(kn_plan_end(s.plan));
    }
    assert_int_equal(stats(&s).n_mismatches, 0);
    assert_no_violation(s.f.sim);
    kn_stream_destroy(s.f.device, other);
    end(&s);
}

/* What the other stream still reads has no new user before it is done. */
static void unplanned_use_elsewhere_ends_the_service(void **state) {
    (void)state;
    steps s = begin(GiB);
    kn_stream other = new_stream(&s.f);
    play(&s);
    assert_ok(kn_plan_begin(s.plan));
    void *ptr = plan_alloc(&s, size_of(0));
    kn_sim_work(s.f.sim, other, ptr, size_of(0), 1);
    assert_ok(kn_plan_use(s.plan, ptr, other));
    assert_ok(kn_plan_free(s.plan, ptr));
    assert_ok(kn_plan_end(s.plan));
    assert_int_equal(stats(&s).state, KN_PLAN_RECORDS);
    for (int step = 0; step < 3; step++) {
        assert_ok(kn_plan_begin(s.plan));
        forward(&s, 0);
        for (int i = 0; i < STEP_BLOCKS; i++) {
            kn_sim_work(s.f.sim, NULL, s.ptrs[i], size_of(i), 10 + (uint64_t)(step * 100 + i));
        }
        backward(&s);
        assert_ok(kn_plan_end(s.plan));
    }
    assert_no_violation(s.f.sim);
    kn_stream_destroy(s.f.device, other);
    end(&s);
}

static void failed_region_is_out_of_memory_and_is_tried_again(void **state) {
    (void)state;
    steps s = begin(GiB);
    assert_ok(kn_plan_begin(s.plan));
    forward(&s, 0);
    backward(&s);
    kn_sim_fail(s.f.sim, KN_SIM_HANDLE_CREATE, 1, true);
    assert_int_equal(kn_plan_end(s.plan), KN_ERR_OOM);
    kn_sim_fail(s.f.sim, KN_SIM_HANDLE_CREATE, 0, false);
    assert_int_equal(stats(&s).state, KN_PLAN_RECORDS);
    assert_int_equal(stats(&s).region_bytes, 0);
    play(&s);
    play(&s);
    assert_int_equal(stats(&s).n_served, 3 * STEP_BLOCKS);
    end(&s);
}

static void calls_out_of_place_are_errors(void **state) {
    (void)state;
    steps s = begin(GiB);
    assert_fails(kn_plan_end(s.plan), KN_ERR_INVALID, "no step has begun");
    assert_ok(kn_plan_begin(s.plan));
    assert_fails(kn_plan_begin(s.plan), KN_ERR_INVALID, "has not ended");
    assert_fails(kn_plan_reset(s.plan), KN_ERR_INVALID, "has not ended");
    assert_ok(kn_plan_end(s.plan)); /* an empty step */
    assert_ok(kn_plan_begin(s.plan));
    void *none = &s;
    assert_ok(kn_plan_alloc(&none, s.plan, 0, NULL));
    assert_null(none);
    assert_ok(kn_plan_free(s.plan, NULL));
    assert_ok(kn_plan_use(s.plan, NULL, NULL));
    assert_ok(kn_plan_end(s.plan));
    assert_int_equal(stats(&s).n_mismatches, 0);
    kn_plan_destroy(NULL);
    end(&s);
}

/* --- a model --- */

enum { MODEL_STEPS = 60, MODEL_CALLS = 200, MODEL_LIVE = 60 };
typedef struct model_block {
    char *ptr;
    size_t size;
} model_block;

static void model_alloc(steps *s, model_block *all, int *n, size_t size) {
    model_block b = {plan_alloc(s, size), size};
    for (int i = 0; i < *n; i++) {
        bool share = b.ptr < all[i].ptr + all[i].size && all[i].ptr < b.ptr + b.size;
        if (share) fail_msg("two live blocks share bytes");
    }
    all[(*n)++] = b;
}

static void model_free(steps *s, model_block *all, int *n, int i) {
    assert_ok(kn_plan_free(s->plan, all[i].ptr));
    all[i] = all[--*n];
}

/* The same script in each step; in some steps a few calls differ, and blocks outlive them. */
static void live_blocks_never_overlap_whatever_differs(void **state) {
    (void)state;
    steps s = begin(4 * GiB);
    struct {
        uint64_t what, size, which;
    } script[MODEL_CALLS];
    model_block live[MODEL_LIVE * 2];
    int n = 0;
    for (int i = 0; i < MODEL_CALLS; i++) {
        script[i].what = test_random_below(100);
        script[i].size = 1 + test_random_below(4 * MiB);
        script[i].which = test_random_below(1 << 20);
    }
    for (int step = 0; step < MODEL_STEPS; step++) {
        bool differs = test_random_below(3) == 0;
        assert_ok(kn_plan_begin(s.plan));
        for (int i = 0; i < MODEL_CALLS; i++) {
            uint64_t what = script[i].what, which = script[i].which;
            if (differs && test_random_below(50) == 0) what = test_random_below(100);
            if (differs && test_random_below(50) == 0) which++;
            if (n < MODEL_LIVE && (what < 55 || !n)) {
                model_alloc(&s, live, &n, script[i].size);
            } else {
                model_free(&s, live, &n, (int)(which % (uint64_t)n));
            }
        }
        int keep = differs ? (int)test_random_below(3) : 0;
        while (n > keep) model_free(&s, live, &n, n - 1);
        assert_ok(kn_plan_end(s.plan));
        assert_ok(kn_pool_check(s.f.pool));
    }
    while (n) model_free(&s, live, &n, n - 1);
    assert_true(stats(&s).n_served > 100);
    assert_true(stats(&s).n_mismatches > 0);
    end(&s);
}

int main(void) {
    return RUN_TESTS(
        TEST(second_step_is_served_from_the_region), TEST(served_blocks_never_overlap),
        TEST(step_that_differs_falls_back_and_the_next_is_served),
        TEST(three_steps_that_differ_make_a_new_plan), TEST(mismatch_names_call_and_sizes),
        TEST(blocks_that_outlive_their_step_come_from_the_pool),
        TEST(live_block_of_the_region_keeps_its_bytes),
        TEST(free_between_two_steps_costs_the_next_nothing),
        TEST(other_streams_allocate_from_the_pool),
        TEST(block_that_another_stream_uses_is_not_planned),
        TEST(unplanned_use_elsewhere_ends_the_service),
        TEST(failed_region_is_out_of_memory_and_is_tried_again),
        TEST(calls_out_of_place_are_errors), TEST(live_blocks_never_overlap_whatever_differs));
}
