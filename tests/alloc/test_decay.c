/* Memory that is idle for long goes back, by a clock of the test's. */
#include "pool_fixture.h"

enum { SECOND = 1000000000 };

static uint64_t sim_clock(void *ctx) { return kn_sim_now_ns(ctx); }

/* A pool that gives back after ten seconds of the simulated device. */
static fixture make(bool plain) {
    fixture f = fixture_make(1 * GiB, plain, NULL);
    kn_pool_options options = {
        .decay_ns = (uint64_t)10 * SECOND, .clock_fn = sim_clock, .clock_ctx = f.sim};
    kn_pool_destroy(f.pool);
    assert_ok(kn_pool_create(&f.pool, f.device, &options));
    return f;
}

static void pass(fixture *f, uint64_t seconds) { kn_sim_advance_ns(f->sim, seconds * SECOND); }

/* A call that changes nothing. */
static void touch(fixture *f) { (void)stats_of(f->pool); }

static void idle_memory_is_returned_after_its_time(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = make(plain);
        void *kept = must_alloc(f.pool, 1000, NULL), *big = must_alloc(f.pool, 400 * MiB, NULL);
        assert_ok(kn_free(f.pool, big));
        pass(&f, 9);
        touch(&f);
        assert_true(stats_of(f.pool).reserved_bytes >= 400 * MiB);
        pass(&f, 2); /* the first window ends; the block was live in it */
        touch(&f);
        assert_true(stats_of(f.pool).reserved_bytes >= 400 * MiB);
        pass(&f, 11);
        touch(&f);
        kn_sim_drain(f.sim); /* the event after its last use */
        pass(&f, 11);
        touch(&f);
        kn_pool_stats s = stats_of(f.pool);
        assert_true(s.reserved_bytes <= 32 * MiB);
        assert_true(s.decayed_bytes >= 390 * MiB);
        assert_int_equal(s.n_syncs, 0);
        assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_SYNC), 0);
        assert_int_equal(kn_sim_calls(f.sim, KN_SIM_STREAM_SYNC), 0);
        assert_ok(kn_free(f.pool, kept));
        fixture_end(&f);
    }
}

static uint64_t count_seconds(void *ctx) { return *(uint64_t *)ctx += SECOND; }

/* Blocks that are not as old as the rest of their segments. */
static void idle_memory_of_the_host_is_returned_whole(void **state) {
    (void)state;
    enum { N = 20 };
    uint64_t now = 0;
    kn_pool *pool = NULL;
    void *live[N];
    kn_pool_options options = {
        .decay_ns = (uint64_t)10 * SECOND, .clock_fn = count_seconds, .clock_ctx = &now};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    for (int i = 0; i < N; i++) live[i] = must_alloc(pool, 20 * MiB, NULL);
    for (int i = 0; i < 12; i++) (void)stats_of(pool); /* the window ends: memory beyond must go */
    for (int i = 0; i < N; i++) assert_ok(kn_free(pool, live[i]));
    for (int i = 0; i < 24; i++) (void)stats_of(pool);
    assert_true(stats_of(pool).reserved_bytes <= 32 * MiB);
    assert_ok(kn_pool_trim(pool, 0));
    assert_int_equal(stats_of(pool).reserved_bytes, 0);
    kn_pool_destroy(pool);
}

/* It is in use by turns, a few calls behind. */
static void a_stream_that_never_rests_keeps_what_it_uses_alone(void **state) {
    (void)state;
    fixture f = make(false);
    kn_stream stream = new_stream(&f);
    void *big = must_alloc(f.pool, 400 * MiB, stream);
    kn_sim_work(f.sim, stream, big, 400 * MiB, 1);
    assert_ok(kn_free(f.pool, big));
    for (int i = 0; i < 100; i++) {
        void *ptr = must_alloc(f.pool, 100000, stream);
        kn_sim_work(f.sim, stream, ptr, 100000, (uint64_t)i);
        assert_ok(kn_free(f.pool, ptr));
        while (kn_sim_pending(f.sim, stream) > 4) (void)kn_sim_step(f.sim, stream);
        pass(&f, 1);
    }
    assert_true(stats_of(f.pool).reserved_bytes <= 32 * MiB);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    fixture_end(&f);
}

/* It was never allocated, but it is newer than the decay time: it is kept that long. */
static void preallocated_memory_stays_for_its_time(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = make(plain);
        touch(&f);
        pass(&f, 11); /* the window is over */
        assert_ok(kn_pool_preallocate(f.pool, 400 * MiB, NULL));
        kn_sim_drain(f.sim);
        pass(&f, 9);
        touch(&f);
        assert_true(stats_of(f.pool).reserved_bytes >= 400 * MiB);
        for (int i = 0; i < 3; i++) {
            pass(&f, 11);
            touch(&f);
            kn_sim_drain(f.sim);
        }
        assert_true(stats_of(f.pool).reserved_bytes <= 32 * MiB);
        fixture_end(&f);
    }
}

/* Memory that is used once in a window stays: no churn. */
static void memory_in_occasional_use_is_kept(void **state) {
    (void)state;
    fixture f = make(false);
    void *slots[60]; /* of many slabs, whose other slots are idle and stay */
    for (size_t i = 0; i < 60; i++) slots[i] = must_alloc(f.pool, (i + 4) * KiB, NULL);
    for (int i = 0; i < 50; i++) {
        void *a = must_alloc(f.pool, 100 * MiB, NULL), *b = must_alloc(f.pool, 50000, NULL);
        assert_ok(kn_free(f.pool, a));
        assert_ok(kn_free(f.pool, b));
        pass(&f, 6);
        touch(&f);
        kn_sim_drain(f.sim);
        touch(&f); /* the event is known to have happened */
    }
    kn_pool_stats s = stats_of(f.pool);
    assert_int_equal(s.decayed_bytes, 0);
    assert_int_equal(s.n_device_frees, 0);
    for (int i = 0; i < 60; i++) assert_ok(kn_free(f.pool, slots[i]));
    fixture_end(&f);
}

/* The pool returns only memory above the window's peak, and grows again if it returned too much. */
static void the_peak_of_the_window_stays(void **state) {
    (void)state;
    fixture f = make(false);
    void *big = must_alloc(f.pool, 512 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    for (int i = 0; i < 8; i++) {
        void *half = must_alloc(f.pool, 200 * MiB, NULL);
        assert_ok(kn_free(f.pool, half));
        pass(&f, 6);
        touch(&f);
        kn_sim_drain(f.sim);
    }
    kn_pool_stats s = stats_of(f.pool);
    assert_in_range(s.reserved_bytes, 200 * MiB, 264 * MiB);
    assert_true(s.decayed_bytes >= 240 * MiB);
    big = must_alloc(f.pool, 512 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    fixture_end(&f);
}

/* Memory that streams still use is left alone, however late it is. */
static void memory_in_use_on_streams_is_never_taken(void **state) {
    (void)state;
    fixture f = make(false);
    kn_stream s = new_stream(&f);
    char *big = must_alloc(f.pool, 300 * MiB, s);
    kn_sim_work(f.sim, s, big, 300 * MiB, 1);
    assert_ok(kn_free(f.pool, big));
    for (int i = 0; i < 5; i++) {
        pass(&f, 20);
        touch(&f);
    }
    assert_true(stats_of(f.pool).reserved_bytes >= 300 * MiB);
    assert_no_violation(f.sim);
    kn_sim_drain(f.sim);
    pass(&f, 20);
    touch(&f);
    assert_true(stats_of(f.pool).reserved_bytes <= 32 * MiB);
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

/* What streams still use is asked about at the 1st, 2nd, 4th, 8th … call: rarely, and for ever. */
static void busy_memory_is_asked_about_ever_less_often(void **state) {
    (void)state;
    fixture f = make(false);
    kn_stream s = new_stream(&f);
    char *big = must_alloc(f.pool, 300 * MiB, s);
    kn_sim_work(f.sim, s, big, 300 * MiB, 1);
    assert_ok(kn_free(f.pool, big));
    for (int i = 0; i < 3; i++) {
        pass(&f, 20);
        touch(&f);
    }
    uint64_t queries = kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY);
    for (int i = 0; i < 1000; i++) touch(&f);
    queries = kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY) - queries;
    assert_in_range(queries, 8, 30);
    kn_sim_drain(f.sim);
    for (int i = 0; i < 1100; i++) touch(&f); /* in the same window */
    assert_true(stats_of(f.pool).reserved_bytes <= 32 * MiB);
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

static void no_query_happens_while_a_stream_is_captured(void **state) {
    (void)state;
    fixture f = make(false);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *big = must_alloc(f.pool, 300 * MiB, s), *done = must_alloc(f.pool, 100 * MiB, other);
    assert_ok(kn_free(f.pool, big));
    assert_ok(kn_free(f.pool, done)); /* could go: its event is there, and it has happened */
    kn_sim_drain(f.sim);
    assert_true(kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD) > 0);
    kn_sim_capture(f.sim, s, true);
    uint64_t events = kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD);
    uint64_t queries = kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY);
    for (int i = 0; i < 5; i++) {
        pass(&f, 20);
        touch(&f);
    }
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD), events);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY), queries);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_HANDLE_UNMAP), 0);
    kn_sim_capture(f.sim, s, false);
    for (int i = 0; i < 2; i++) {
        pass(&f, 20);
        touch(&f);
    }
    assert_true(kn_sim_calls(f.sim, KN_SIM_HANDLE_UNMAP) > 0); /* and goes now */
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

/* Small allocations take no lock, and look at the clock all the same. */
static void idle_memory_is_returned_in_a_program_of_small_allocations(void **state) {
    (void)state;
    fixture f = make(false);
    void *big = must_alloc(f.pool, 400 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    for (int i = 0; i < 5; i++) {
        pass(&f, 11);
        for (int k = 0; k < 200; k++) {
            void *small = must_alloc(f.pool, 1000, NULL);
            assert_ok(kn_free(f.pool, small));
        }
        kn_sim_drain(f.sim);
    }
    assert_true(kn_sim_bytes(f.sim) <= 8 * MiB); /* asked of the device: the pool is not called */
    fixture_end(&f);
}

static void it_is_off_unless_asked_for(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, &(kn_pool_options){.clock_fn = sim_clock});
    void *big = must_alloc(f.pool, 300 * MiB, NULL); /* the clock would crash without its context */
    assert_ok(kn_free(f.pool, big));
    assert_true(stats_of(f.pool).reserved_bytes >= 300 * MiB);
    fixture_end(&f);
}

/* An unmap that fails leaves all as it was. */
static void a_failing_device_leaves_the_pool_intact(void **state) {
    (void)state;
    fixture f = make(false);
    void *big = must_alloc(f.pool, 300 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    kn_sim_fail(f.sim, KN_SIM_ANY, 1, true);
    for (int i = 0; i < 5; i++) {
        pass(&f, 20);
        touch(&f);
        assert_ok(kn_pool_check(f.pool));
    }
    kn_sim_fail(f.sim, KN_SIM_ANY, 0, false);
    big = must_alloc(f.pool, 300 * MiB, NULL);
    assert_ok(kn_free(f.pool, big));
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(idle_memory_is_returned_after_its_time),
        TEST(idle_memory_of_the_host_is_returned_whole),
        TEST(a_stream_that_never_rests_keeps_what_it_uses_alone),
        TEST(preallocated_memory_stays_for_its_time), TEST(memory_in_occasional_use_is_kept),
        TEST(the_peak_of_the_window_stays), TEST(memory_in_use_on_streams_is_never_taken),
        TEST(busy_memory_is_asked_about_ever_less_often),
        TEST(no_query_happens_while_a_stream_is_captured),
        TEST(idle_memory_is_returned_in_a_program_of_small_allocations),
        TEST(it_is_off_unless_asked_for), TEST(a_failing_device_leaves_the_pool_intact));
}
