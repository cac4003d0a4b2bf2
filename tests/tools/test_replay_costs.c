/* The cost of driver calls: sums, figures of a card, what a file must have; the options that a
 * trace is tuned with. */
#include "files.h"
#include "replay.h"
#include "test.h"

#define MiB ((uint64_t)1 << 20)

static char dir[FILES_PATH_MAX], path[FILES_PATH_MAX + 16];

static void write_lines(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static double us_of(const kn__costs *costs, kn__driver_call call, uint64_t n, uint64_t bytes) {
    kn__driver_calls calls = {.n = {0}};
    kn__calls_add(&calls, call, n, bytes);
    return kn__costs_us(costs, &calls);
}

static void published_costs_are_added_up(void **state) {
    (void)state;
    kn__costs costs = kn__costs_published();
    kn__driver_calls calls = {.n = {0}};
    kn__calls_add(&calls, KN__CALL_ALLOC, 2, 4 * MiB);
    kn__calls_add(&calls, KN__CALL_FREE_ASYNC, 10, 0);
    kn__calls_add(&calls, KN__CALL_FREE_ASYNC, 1, 0);
    assert_close(kn__costs_us(&costs, &calls), 2 * 38 + 11 * 1.19, 1e-12, 0);
    assert_int_equal(costs.n_measured, 0);
    assert_string_equal(kn__call_name(KN__CALL_ACCESS), "cuMemSetAccess");
}

static void figures_of_a_card_replace_the_published_ones(void **state) {
    (void)state;
    kn__costs costs;
    write_lines(
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemCreate_2MiB_us\",\"value\":100,\"unit\":"
        "\"us\"}"
        "\n{\"bench\":\"gpu_driver\",\"metric\":\"cuMemCreate_20MiB_us\",\"value\":110,\"unit\":1}"
        "\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemCreate_1002MiB_us\",\"value\":1100}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemCreate_1024MiB_busy_us\",\"value\":9e9}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemUnmap_64MiB_us\",\"value\":null}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemMap_2MiB_us\",\"value\":5}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemMap_64MiB_us\",\"value\":4}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuEventQuery_pending_ns\",\"value\":1e6}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuEventRecord_ns\",\"value\":700}\n"
        "{\"bench\":\"gpu_driver\",\"metric\":\"cuMemAllocAsync_pair_1000_ns\",\"value\":3000}\n"
        "{\"bench\":\"ops\",\"metric\":\"cuMemAlloc_2MiB_us\",\"value\":1}\n");
    assert_ok(kn__costs_read(&costs, path));
    assert_int_equal(costs.n_measured, 5);
    /* through 2 MiB and 1002 MiB: 98 us, and 1 us a MiB */
    assert_close(us_of(&costs, KN__CALL_CREATE, 1, 2 * MiB), 100, 1e-9, 0);
    assert_close(us_of(&costs, KN__CALL_CREATE, 3, 30 * MiB), 3 * 98 + 30, 1e-9, 0);
    assert_close(us_of(&costs, KN__CALL_MAP, 1, 64 * MiB), 5, 1e-9, 0); /* never less for more */
    assert_close(us_of(&costs, KN__CALL_RECORD, 10, 0), 7, 1e-9, 0);
    assert_close(us_of(&costs, KN__CALL_ALLOC_ASYNC, 1, 0), 1.5, 1e-9, 0);
    assert_close(us_of(&costs, KN__CALL_FREE_ASYNC, 1, 0), 1.5, 1e-9, 0);
    assert_close(us_of(&costs, KN__CALL_UNMAP, 1, 0), 34, 1e-9, 0); /* published */
    assert_close(us_of(&costs, KN__CALL_ALLOC, 1, 0), 38, 1e-9, 0);
    assert_close(us_of(&costs, KN__CALL_QUERY, 1, 0), 0.26, 1e-9, 0);
}

static void a_file_without_figures_is_an_error(void **state) {
    (void)state;
    kn__costs costs = {.n_measured = 7};
    write_lines("{\"bench\":\"gpu_driver\",\"metric\":\"cuCtxPushPop_ns\",\"value\":5}\nmore\n");
    assert_fails(kn__costs_read(&costs, path), KN_ERR_FORMAT, "no figure of a driver call");
    assert_fails(kn__costs_read(&costs, "/none/costs"), KN_ERR_IO, "/none/costs");
    assert_int_equal(costs.n_measured, 7);
}

/* Tuning. */

static void alloc(kn__builder *b, uint64_t block, uint64_t size) {
    b->at++;
    assert_ok(kn__build_alloc(b, block, size, 0));
}

static void drop(kn__builder *b, uint64_t block) {
    b->at++;
    assert_ok(kn__build_free(b, block, 0));
}

/* Holes between blocks that stay, all over 512 MiB, and requests that fit into few of them, again
 * and again. */
static kn__trace holes(void) {
    kn__builder b;
    kn__trace trace;
    uint64_t next = 1;
    kn__builder_init(&b, "made up");
    for (uint64_t i = 0; i < 64; i++) alloc(&b, next++, i % 2 ? 15 * MiB : 1 * MiB);
    for (uint64_t i = 2; i <= 64; i += 2) drop(&b, i);
    for (uint64_t size = 16; size <= 128; size *= 2) {
        uint64_t first = next, n = 448 / size;
        for (uint64_t i = 0; i < n; i++) alloc(&b, next++, size * MiB);
        for (uint64_t i = 0; i < n; i++) drop(&b, first + i);
    }
    assert_ok(kn__build_finish(&trace, &b));
    return trace;
}

static void tuning_finds_options_that_reserve_less_and_add_no_wait(void **state) {
    (void)state;
    static kn__tuned tuned;
    static kn__played played;
    kn__trace trace = holes();
    kn__costs costs = kn__costs_published();
    assert_ok(kn__tune(&tuned, &trace, NULL, &costs));
    const kn__try *plain = &tuned.tries[0], *best = &tuned.tries[tuned.best];
    assert_string_equal(plain->words, "");
    assert_true(tuned.n > 10 && tuned.best > 0 && !best->plan);
    assert_true(best->counts.reserved_bytes_max < plain->counts.reserved_bytes_max);
    assert_int_equal(best->counts.syncs, plain->counts.syncs);
    assert_non_null(strstr(best->words, "soft_limit="));
    /* a play with these options gives the same figures */
    assert_ok(kn__play(&played, &trace, "arena",
                       &(kn__play_options){.pool = &best->pool, .untimed = true}));
    assert_int_equal(played.counts.reserved_bytes_max, best->counts.reserved_bytes_max);
    assert_close(kn__costs_us(&costs, &played.counts.calls), best->driver_us, 1e-12, 0);
    kn__trace_release(&trace);
}

static void tuning_keeps_the_defaults_where_nothing_is_better(void **state) {
    (void)state;
    static kn__tuned tuned;
    kn__builder b;
    kn__trace trace;
    kn__costs costs = kn__costs_published();
    kn__builder_init(&b, "made up");
    alloc(&b, 1, 64 * MiB);
    assert_ok(kn__build_finish(&trace, &b));
    assert_ok(kn__tune(&tuned, &trace, NULL, &costs));
    assert_int_equal(tuned.best, 0);
    for (int i = 1; i + 1 < tuned.n; i++) {
        assert_string_not_equal(tuned.tries[i].words, "");
        for (int k = 1; k < i; k++) /* also where values round to the same MiB */
            assert_string_not_equal(tuned.tries[i].words, tuned.tries[k].words);
    }
    assert_true(tuned.tries[tuned.n - 1].plan);
    kn__trace_release(&trace);
}

/* Rounds of blocks, each a little larger than the last one freed: no hole fits the next round. */
static kn__trace stairs(uint64_t n_streams) {
    kn__builder b;
    kn__trace trace;
    uint64_t next = 1;
    kn__builder_init(&b, "made up");
    for (uint64_t round = 0; round < 12; round++) {
        for (uint64_t i = 0; i < 16; i++) {
            uint64_t size = (4 + round) * MiB + i * 65536, stream = i % 8 ? n_streams - 1 : 0;
            assert_ok(kn__build_alloc(&b, next++ << 30, size, stream));
            if (i % 2 && next > 20) assert_ok(kn__build_free(&b, (next - 18) << 30, 0));
        }
    }
    assert_ok(kn__build_finish(&trace, &b));
    return trace;
}

static void tuning_proposes_plan_mode_where_it_saves_memory(void **state) {
    (void)state;
    static kn__tuned tuned;
    static kn__played played;
    kn__trace trace = stairs(1);
    kn__costs costs = kn__costs_published();
    assert_ok(kn__tune(&tuned, &trace, NULL, &costs));
    const kn__try *best = &tuned.tries[tuned.best], *plain = &tuned.tries[0];
    assert_true(best->plan);
    for (int i = 0; i < tuned.n; i++) {
        const kn__try *x = &tuned.tries[i];
        assert_true(x->plan || best->counts.reserved_bytes_max < x->counts.reserved_bytes_max);
    }
    assert_true(best->counts.reserved_bytes_max < plain->counts.reserved_bytes_max);
    assert_true((double)best->counts.reserved_bytes_max <= 1.01 * (double)trace.peak_live_bytes);
    /* a play in plan mode gives the same figures */
    assert_ok(kn__play(&played, &trace, "plan",
                       &(kn__play_options){.pool = &best->pool, .untimed = true}));
    assert_int_equal(played.counts.reserved_bytes_max, best->counts.reserved_bytes_max);
    kn__trace_release(&trace);
}

static void a_planned_step_calls_no_driver_after_the_first(void **state) {
    (void)state;
    static kn__played played;
    kn__trace trace = stairs(1);
    assert_ok(kn__play(&played, &trace, "plan", &(kn__play_options){.untimed = true}));
    for (int i = 0; i < KN__CALLS; i++) assert_int_equal(played.counts.calls.n[i], 0);
    assert_int_equal(played.counts.syncs, 0);
    assert_int_equal(played.counts.events, 0);
    assert_int_equal(played.n_steps, trace.n_steps);
    kn__trace_release(&trace);
}

static void plan_mode_plays_several_streams_and_ends_where_memory_does(void **state) {
    (void)state;
    static kn__played played;
    kn__trace trace = stairs(2);
    assert_int_equal(trace.n_streams, 2);
    assert_ok(kn__play(&played, &trace, "plan", &(kn__play_options){.untimed = true}));
    assert_false(played.oom);
    assert_int_equal(played.counts.syncs, 0);
    assert_in_range(played.counts.reserved_bytes_max, trace.peak_live_bytes,
                    trace.peak_live_bytes + trace.peak_live_bytes / 20);
    uint64_t small = trace.peak_live_bytes / 2;
    assert_ok(kn__play(&played, &trace, "plan",
                       &(kn__play_options){.untimed = true, .device_bytes = small}));
    assert_true(played.oom && played.n_steps < trace.n_steps);
    assert_non_null(strstr(played.oom_text, "out of memory"));
    assert_ok(kn__play(
        &played, &trace, "plan",
        &(kn__play_options){.untimed = true, .pool = &(kn_pool_options){.limit_bytes = small}}));
    assert_true(played.oom);
    kn__trace_release(&trace);
}

static void tuning_on_a_device_that_is_too_small_says_so(void **state) {
    (void)state;
    static kn__tuned tuned;
    kn__trace trace = holes();
    kn__costs costs = kn__costs_published();
    assert_ok(kn__tune(&tuned, &trace, &(kn__play_options){.device_bytes = 128 * MiB}, &costs));
    assert_true(tuned.tries[tuned.best].oom);
    kn__trace_release(&trace);
}

/* Slabs up to 1 MiB waste some of their memory, and a full device has none to waste. */
static void tuning_proposes_nothing_that_runs_out_of_memory(void **state) {
    (void)state;
    static kn__tuned tuned;
    kn__builder b;
    kn__trace trace;
    kn__costs costs = kn__costs_published();
    uint64_t fits = 0;
    bool any_oom = false;
    kn__builder_init(&b, "made up");
    for (uint64_t i = 1; i <= 500; i++) alloc(&b, i, 70000 + 1800 * i);
    assert_ok(kn__build_finish(&trace, &b));
    assert_ok(kn__play_fits(&fits, &trace, "arena", NULL));
    assert_ok(kn__tune(&tuned, &trace, &(kn__play_options){.device_bytes = fits}, &costs));
    for (int i = 0; i < tuned.n; i++) any_oom |= tuned.tries[i].oom;
    assert_true(any_oom);
    assert_false(tuned.tries[tuned.best].oom);
    kn__trace_release(&trace);
}

int main(void) {
    files_dir_make(dir);
    snprintf(path, sizeof path, "%s/costs.jsonl", dir);
    int failed = RUN_TESTS(TEST(published_costs_are_added_up),
                           TEST(figures_of_a_card_replace_the_published_ones),
                           TEST(a_file_without_figures_is_an_error),
                           TEST(tuning_finds_options_that_reserve_less_and_add_no_wait),
                           TEST(tuning_keeps_the_defaults_where_nothing_is_better),
                           TEST(tuning_proposes_plan_mode_where_it_saves_memory),
                           TEST(a_planned_step_calls_no_driver_after_the_first),
                           TEST(plan_mode_plays_several_streams_and_ends_where_memory_does),
                           TEST(tuning_on_a_device_that_is_too_small_says_so),
                           TEST(tuning_proposes_nothing_that_runs_out_of_memory));
    files_remove(dir);
    return failed;
}
