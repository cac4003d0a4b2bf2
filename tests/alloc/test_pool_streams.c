/* Several streams: reuse, events, waits and out of memory, on the simulated device. */
#include <knet/device_driver.h>

#include "pool_fixture.h"

static void streams_do_not_share_fresh_frees(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 1000, s);
    kn_sim_work(f.sim, s, a, 1000, 1);
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 1000, t);
    assert_ptr_not_equal(a, b);
    kn_sim_work(f.sim, t, b, 1000, 2);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static void memory_of_another_stream_is_taken_with_a_wait_on_the_device(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, a, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 40 * MiB, t);
    kn_sim_work(f.sim, t, b, 40 * MiB, 2); /* after the wait, so no violation */
    assert_int_equal(stats_of(f.pool).n_events, 1);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), 1);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static void one_event_covers_all_frees_before_it(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *live[100];
    for (int i = 0; i < 100; i++) {
        live[i] = must_alloc(f.pool, 200 * KiB, s);
        kn_sim_work(f.sim, s, live[i], 200 * KiB, (uint64_t)i);
    }
    for (int i = 0; i < 100; i++) assert_ok(kn_free(f.pool, live[i]));
    assert_int_equal(stats_of(f.pool).n_events, 0);
    for (int i = 0; i < 100; i++) {
        live[i] = must_alloc(f.pool, 200 * KiB, t);
        kn_sim_work(f.sim, t, live[i], 200 * KiB, 1000 + (uint64_t)i);
    }
    assert_int_equal(stats_of(f.pool).n_events, 1);
    assert_true(kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY) <= 200);
    for (int i = 0; i < 100; i++) assert_ok(kn_free(f.pool, live[i]));
    fixture_end(&f);
}

static void foreign_use_delays_reuse_until_it_is_done(void **state) {
    (void)state;
    size_t sizes[] = {1000, 4 * MiB};
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(1 * GiB, false, NULL);
        kn_stream s = new_stream(&f), t = new_stream(&f);
        void *a = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, a, sizes[i], 1);
        order_after(f.device, t, s);
        kn_sim_work(f.sim, t, a, sizes[i], 1);
        assert_ok(kn_block_use(f.pool, a, t));
        assert_ok(kn_block_use(f.pool, a, t));
        assert_ok(kn_block_use(f.pool, a, s)); /* its own: nothing */
        assert_ok(kn_free(f.pool, a));
        assert_int_equal(stats_of(f.pool).live_bytes, 0);
        void *b = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, b, sizes[i], 2);
        assert_ok(kn_pool_check(f.pool));
        assert_ok(kn_free(f.pool, b));
        kn_sim_drain(f.sim);
        assert_ok(kn_pool_trim(f.pool, 0));
        fixture_end(&f);
    }
}

/* Of a slot and of a block; on the device, and once for each use that is marked. */
static void writers_wait_for_marked_uses(void **state) {
    (void)state;
    size_t sizes[] = {1000, 4 * MiB};
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(1 * GiB, false, NULL);
        kn_stream s = new_stream(&f), t = new_stream(&f);
        char *a = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, a, sizes[i], 1);
        order_after(f.device, t, s);
        kn_sim_work(f.sim, t, a, sizes[i], 1);
        assert_ok(kn_block_use(f.pool, a, t));
        uint64_t waits = kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT);
        assert_ok(kn_block_await(f.pool, a, s));
        assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), waits + 1);
        kn_sim_work(f.sim, s, a, sizes[i], 2);
        assert_ok(kn_block_await(f.pool, a, s));
        assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), waits + 1);
        assert_ok(kn_block_use(f.pool, a, t));
        kn_stream_destroy(f.device, t); /* the event that this records stands for its work */
        assert_ok(kn_block_await(f.pool, a, s));
        assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), waits + 2);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        assert_fails(kn_block_await(f.pool, a + 256, s), KN_ERR_INVALID, "points into a block");
        assert_ok(kn_free(f.pool, a));
        assert_fails(kn_block_await(f.pool, a, s), KN_ERR_INVALID, "kn_block_await");
        assert_ok(kn_block_await(f.pool, NULL, s));
        assert_ok(kn_pool_check(f.pool));
        fixture_end(&f);
    }
}

/* The event is recorded before the block can be found by others, not after. */
static void event_is_recorded_before_the_block_is_published(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *a = must_alloc(f.pool, 48 * MiB, s);
    order_after(f.device, t, s);
    kn_sim_work(f.sim, t, a, 48 * MiB, 1);
    assert_ok(kn_block_use(f.pool, a, t));
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 48 * MiB, u);
    kn_sim_work(f.sim, u, b, 48 * MiB, 2);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* From the second stream on an event is recorded when much was freed, whether the pool grows or
 * not. */
static void stream_that_only_reads_counts_as_a_second_one(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), reader = new_stream(&f);
    void *x = must_alloc(f.pool, 200 * MiB, s), *y = must_alloc(f.pool, 1 * MiB, s);
    assert_ok(kn_block_use(f.pool, y, reader));
    assert_ok(kn_free(f.pool, x));
    assert_int_equal(stats_of(f.pool).n_events, 1);
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

/* A large block that was used elsewhere: both streams record their events when it is freed. */
static void free_of_a_large_block_records_the_events_of_its_uses(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 100 * MiB, s);
    for (int i = 0; i < 1000; i++) assert_ok(kn_block_use(f.pool, x, t));
    assert_true(stats_of(f.pool).metadata_bytes <= 128 * KiB); /* many uses are one */
    assert_ok(kn_free(f.pool, x));
    assert_int_equal(stats_of(f.pool).n_events, 2);
    fixture_end(&f);
}

/* An event that can't be recorded is tried again after as much work, not at each free. */
static void event_that_fails_is_not_tried_at_each_free(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *blocks[40], *x = must_alloc(f.pool, 100 * MiB, s), *y = must_alloc(f.pool, 1 * MiB, t);
    for (int i = 0; i < 40; i++) blocks[i] = must_alloc(f.pool, 1 * MiB, s);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 1, true);
    assert_ok(kn_free(f.pool, x));
    for (int i = 0; i < 40; i++) assert_ok(kn_free(f.pool, blocks[i]));
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD), 1);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 0, false);
    assert_ok(kn_free(f.pool, y));
    fixture_end(&f);
}

/* Where only the host can tell that enough work is done, it waits for just that. */
static void host_waits_as_the_last_resort(void **state) {
    (void)state;
    fixture f = fixture_make(16 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = must_alloc(f.pool, 2 * MiB, s);
    for (int i = 0; i < 8; i++) kn_sim_work(f.sim, s, blocks[i], 2 * MiB, (uint64_t)i + 1);
    for (int i = 0; i < 8; i += 2) assert_ok(kn_free(f.pool, blocks[i])); /* nowhere side by side */
    void *big = must_alloc(f.pool, 6 * MiB, s);
    kn_sim_work(f.sim, s, big, 6 * MiB, 9);
    assert_int_equal(stats_of(f.pool).n_syncs, 1);
    assert_ok(kn_free(f.pool, big));
    for (int i = 1; i < 8; i += 2) assert_ok(kn_free(f.pool, blocks[i]));
    fixture_end(&f);
}

/* Handle 2 is another stream in each thread. */

static void event_that_can_not_be_recorded_costs_memory_not_safety(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *a = must_alloc(f.pool, 8 * MiB, s);
    kn_sim_work(f.sim, s, a, 8 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 1, true);
    void *b = must_alloc(f.pool, 8 * MiB, t);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 0, false);
    assert_ptr_not_equal(a, b);
    kn_sim_work(f.sim, t, b, 8 * MiB, 2);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* An identical retry must not succeed where the first call failed. */
static void out_of_memory_is_never_spurious(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        fixture f = fixture_make(32 * MiB, false, NULL);
        kn_stream streams[3] = {NULL, new_stream(&f), new_stream(&f)};
        void *live[64];
        size_t n = 0, sizes[64];
        uint64_t user = 0;
        for (int i = 0; i < 60; i++) {
            kn_stream s = streams[test_random_below(3)];
            if (n && test_random_below(3) == 0) {
                assert_ok(kn_free(f.pool, live[--n]));
                continue;
            }
            sizes[n] = (size_t)1 << (10 + test_random_below(14));
            if (kn_alloc(&live[n], f.pool, sizes[n], s) == KN_OK) {
                kn_sim_work(f.sim, s, live[n], sizes[n], ++user);
                n++;
            } else {
                void *again = NULL;
                assert_int_equal(kn_alloc(&again, f.pool, sizes[n], s), KN_ERR_OOM);
            }
        }
        while (n) assert_ok(kn_free(f.pool, live[--n]));
        void *all = must_alloc(f.pool, 16 * MiB, streams[1]);
        assert_ok(kn_free(f.pool, all));
        fixture_end(&f);
    }
}

/* The same work again and again needs no more memory than the first time. */
static void same_sequence_never_runs_out_later(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream streams[2] = {new_stream(&f), new_stream(&f)};
    for (int round = 0; round < 50; round++) {
        void *live[12];
        for (int i = 0; i < 12; i++) {
            live[i] = must_alloc(f.pool, (size_t)(1 + (i * 5 + round) % 7) * MiB, streams[i % 2]);
        }
        for (int i = 0; i < 12; i++) assert_ok(kn_free(f.pool, live[(i * 5) % 12]));
    }
    fixture_end(&f);
}

/* A wait for the whole device would break the capture. */
static void device_is_not_waited_for_while_a_stream_is_captured(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), caught = new_stream(&f);
    void *y = must_alloc(f.pool, 1 * MiB, caught), *x = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    destroy_unannounced(&f, s);
    kn_stream t = new_stream(&f);
    void *small = must_alloc(f.pool, 1 * MiB, t);
    kn_sim_capture(f.sim, caught, true);
    assert_int_equal(kn_alloc(&x, f.pool, 40 * MiB, t), KN_ERR_OOM);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 0);
    kn_sim_capture(f.sim, caught, false);
    x = must_alloc(f.pool, 40 * MiB, t);
    void *all[] = {x, y, small};
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

/* Memory whose streams can't be waited for stays with the device when the pool goes. */
static void destroy_leaves_memory_that_may_be_in_use(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        static kn_device_driver driver;
        driver = *kn_sim_driver(f.sim);
        driver.device_sync = NULL;
        kn_pool_destroy(f.pool);
        assert_ok(kn_device_register(&f.device, lost ? "sim:lost" : "sim:sync", &driver, f.sim));
        assert_ok(kn_pool_create(&f.pool, f.device, NULL));
        kn_stream s = new_stream(&f);
        void *x = must_alloc(f.pool, 8 * MiB, s);
        kn_sim_work(f.sim, s, x, 8 * MiB, 1);
        assert_ok(kn_free(f.pool, x));
        if (lost) {
            destroy_unannounced(&f, s);
            assert_ok(kn_free(f.pool, must_alloc(f.pool, 8 * MiB, new_stream(&f))));
        } else {
            kn_sim_fail(f.sim, KN_SIM_EVENT_SYNC, 1, true);
        }
        kn_pool_destroy(f.pool);
        assert_no_violation(f.sim);
        assert_true(kn_sim_bytes(f.sim) >= 8 * MiB);
    }
}

static void destroy_waits_for_the_streams(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 8 * MiB, s);
    kn_sim_work(f.sim, s, a, 8 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    void *leaked = must_alloc(f.pool, 1000, s);
    kn_sim_work(f.sim, s, leaked, 1000, 2);
    fixture_end(&f); /* the device would see memory taken away under work */
}

int main(void) {
    return RUN_TESTS(
        TEST(streams_do_not_share_fresh_frees),
        TEST(memory_of_another_stream_is_taken_with_a_wait_on_the_device),
        TEST(one_event_covers_all_frees_before_it), TEST(foreign_use_delays_reuse_until_it_is_done),
        TEST(writers_wait_for_marked_uses), TEST(event_is_recorded_before_the_block_is_published),
        TEST(stream_that_only_reads_counts_as_a_second_one),
        TEST(free_of_a_large_block_records_the_events_of_its_uses),
        TEST(event_that_fails_is_not_tried_at_each_free), TEST(host_waits_as_the_last_resort),
        TEST(event_that_can_not_be_recorded_costs_memory_not_safety),
        TEST(out_of_memory_is_never_spurious), TEST(same_sequence_never_runs_out_later),
        TEST(device_is_not_waited_for_while_a_stream_is_captured),
        TEST(destroy_leaves_memory_that_may_be_in_use), TEST(destroy_waits_for_the_streams));
}
