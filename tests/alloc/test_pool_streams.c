/* Several streams: reuse, stealing, waiting and retirement, on the simulated device. */
#include "pool_fixture.h"

static void order_after(fixture *f, kn_stream later, kn_stream earlier) {
    kn_event *event = NULL;
    assert_ok(kn_event_create(&event, f->device));
    assert_ok(kn_event_record(event, earlier));
    assert_ok(kn_event_wait(event, later));
    kn_event_destroy(event);
}

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
        order_after(&f, t, s);
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

/* The event is recorded before the block can be found by others, not after. */
static void event_is_recorded_before_the_block_is_published(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *a = must_alloc(f.pool, 48 * MiB, s);
    order_after(&f, t, s);
    kn_sim_work(f.sim, t, a, 48 * MiB, 1);
    assert_ok(kn_block_use(f.pool, a, t));
    assert_ok(kn_free(f.pool, a));
    void *b = must_alloc(f.pool, 48 * MiB, u);
    kn_sim_work(f.sim, u, b, 48 * MiB, 2);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* One slow stream must not keep back what other streams are done with. */
static void slow_stream_blocks_nobody_else(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream home = new_stream(&f), slow = new_stream(&f), quick = new_stream(&f);
    void *a = must_alloc(f.pool, 20 * MiB, home), *b = must_alloc(f.pool, 20 * MiB, home);
    order_after(&f, slow, home);
    order_after(&f, quick, home);
    kn_sim_work(f.sim, slow, a, 20 * MiB, 1);
    assert_ok(kn_block_use(f.pool, a, slow));
    kn_sim_work(f.sim, quick, b, 20 * MiB, 2);
    assert_ok(kn_block_use(f.pool, b, quick));
    assert_ok(kn_free(f.pool, a)); /* first in the queue, and never done */
    assert_ok(kn_free(f.pool, b));
    void *c = must_alloc(f.pool, 20 * MiB, home); /* closes the epochs; the rest has room */
    assert_true(c != a || kn_sim_pending(f.sim, home) > 0);
    while (kn_sim_step(f.sim, home) || kn_sim_step(f.sim, quick)) {
    }
    assert_true(kn_sim_pending(f.sim, slow) > 0);
    void *d = must_alloc(f.pool, 20 * MiB, home);
    kn_sim_work(f.sim, home, d, 20 * MiB, 3);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, c));
    assert_ok(kn_free(f.pool, d));
    fixture_end(&f);
}

static void stream_that_is_retired_while_it_is_captured_is_not_waited_for(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 5 * MiB, s);
    kn_sim_capture(f.sim, s, true); /* the simulator minds a wait for it */
    kn_stream_retire(f.device, s);
    kn_sim_capture(f.sim, s, false);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, a)); /* nobody knows when its work is done */
    assert_ok(kn_pool_check(f.pool));
    kn_pool_destroy(f.pool);
    assert_no_violation(f.sim);
}

static void retired_stream_leaves_its_memory_to_others(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 50 * MiB, s), *small = must_alloc(f.pool, 500, s);
    kn_sim_work(f.sim, s, a, 50 * MiB, 1);
    kn_sim_work(f.sim, s, small, 500, 2);
    assert_ok(kn_free(f.pool, small));
    kn_stream_destroy(f.device, s);
    assert_ok(kn_free(f.pool, a)); /* after its stream went */
    kn_stream t = new_stream(&f);
    assert_ptr_equal(s, t); /* the same handle, another stream */
    void *again = must_alloc(f.pool, 500, t);
    assert_ptr_not_equal(again, small); /* the cache must not take it for its old stream's */
    kn_sim_work(f.sim, t, again, 500, 3);
    void *b = must_alloc(f.pool, 50 * MiB, t);
    kn_sim_work(f.sim, t, b, 50 * MiB, 4);
    assert_ok(kn_free(f.pool, again));
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

static void many_streams_come_and_go_without_growth(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    for (int i = 0; i < 300; i++) {
        kn_stream s = new_stream(&f);
        void *a = must_alloc(f.pool, 1000, s), *b = must_alloc(f.pool, 2 * MiB, s);
        kn_sim_work(f.sim, s, a, 1000, 2 * (uint64_t)i + 1);
        kn_sim_work(f.sim, s, b, 2 * MiB, 2 * (uint64_t)i + 2);
        assert_ok(kn_free(f.pool, a));
        assert_ok(kn_free(f.pool, b));
        kn_stream_destroy(f.device, s);
        if (i % 10 == 9) kn_sim_drain(f.sim);
    }
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_true(stats_of(f.pool).reserved_bytes <= 64 * MiB);
    fixture_end(&f);
}

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
        TEST(event_is_recorded_before_the_block_is_published), TEST(slow_stream_blocks_nobody_else),
        TEST(stream_that_is_retired_while_it_is_captured_is_not_waited_for),
        TEST(retired_stream_leaves_its_memory_to_others),
        TEST(many_streams_come_and_go_without_growth),
        TEST(event_that_can_not_be_recorded_costs_memory_not_safety),
        TEST(out_of_memory_is_never_spurious), TEST(same_sequence_never_runs_out_later),
        TEST(destroy_waits_for_the_streams));
}
