/* Several streams: reuse, stealing, waiting and retirement, on the simulated device. */
#include <knet/device_driver.h>
#include <knet/observer.h>
#include <pthread.h>

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

/* Lets the stream's work happen as far as it can without the others. */
static bool run_alone(fixture *f, kn_stream stream) {
    while (kn_sim_step(f->sim, stream)) {
    }
    return kn_sim_pending(f->sim, stream) == 0;
}

/* One stream is slow. The pool reuses memory that others have finished with; no stream waits. */
static void slow_stream_blocks_no_other(void **state) {
    (void)state;
    for (int slow_first = 0; slow_first < 2; slow_first++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        kn_stream home = new_stream(&f), slow = new_stream(&f), quick = new_stream(&f);
        void *a = must_alloc(f.pool, 20 * MiB, home), *b = must_alloc(f.pool, 20 * MiB, home);
        order_after(&f, slow, home);
        order_after(&f, quick, home);
        kn_sim_work(f.sim, slow, a, 20 * MiB, 1);
        assert_ok(kn_block_use(f.pool, a, slow));
        kn_sim_work(f.sim, quick, b, 20 * MiB, 2);
        assert_ok(kn_block_use(f.pool, b, quick));
        assert_ok(kn_free(f.pool, slow_first ? a : b));
        assert_ok(kn_free(f.pool, slow_first ? b : a));
        void *c = must_alloc(f.pool, 20 * MiB, home); /* there is room for a third */
        kn_sim_work(f.sim, home, c, 20 * MiB, 3);
        assert_true(run_alone(&f, home) && run_alone(&f, quick));
        void *d = must_alloc(f.pool, 20 * MiB, home); /* only b is to be had with no wait */
        kn_sim_work(f.sim, home, d, 20 * MiB, 4);
        assert_ptr_equal(d, b);
        assert_true(run_alone(&f, home));
        assert_int_equal(kn_sim_pending(f.sim, slow) > 0, true);
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        assert_ok(kn_free(f.pool, c));
        assert_ok(kn_free(f.pool, d));
        fixture_end(&f);
    }
}

/* In how many of 40 steps the computing stream can't run alone: it makes a buffer of n bytes each
 * step, which the communicating stream reads one step late. `live`: bytes of other blocks. */
static int blocked_steps(uint64_t capacity, size_t live, size_t n) {
    enum { STEPS = 40, EACH = 4 }; /* things that the slow stream has to do for a step */
    fixture f = fixture_make(capacity, false, NULL);
    kn_stream compute = new_stream(&f), communicate = new_stream(&f);
    void *rest = live ? must_alloc(f.pool, live, compute) : NULL;
    int n_blocked = 0;
    for (uint64_t step = 1; step <= STEPS; step++) {
        void *x = must_alloc(f.pool, n, compute);
        kn_sim_work(f.sim, compute, x, n, step);
        n_blocked += !run_alone(&f, compute);
        order_after(&f, communicate, compute);
        kn_sim_work(f.sim, communicate, x, n, step);
        assert_ok(kn_block_use(f.pool, x, communicate));
        assert_ok(kn_free(f.pool, x));
        while (kn_sim_pending(f.sim, communicate) > EACH &&
               (kn_sim_step(f.sim, communicate) || kn_sim_step(f.sim, compute))) {
        }
    }
    assert_true(stats_of(f.pool).reserved_bytes <= live + 5 * n);
    kn_sim_drain(f.sim);
    assert_ok(kn_free(f.pool, rest));
    fixture_end(&f);
    return n_blocked;
}

static void no_stream_waits_while_the_device_has_room(void **state) {
    (void)state;
    assert_int_equal(blocked_steps(8 * GiB, 0, 64 * MiB), 0);
    assert_int_equal(blocked_steps(8 * GiB, 0, 4 * MiB), 0); /* less than closes an epoch */
    assert_int_equal(blocked_steps(8 * GiB, 8 * GiB / 100 * 85, 64 * MiB), 0);
    assert_true(blocked_steps(200 * MiB, 0, 64 * MiB) == 0); /* three buffers fit */
    assert_true(blocked_steps(68 * MiB, 0, 64 * MiB) > 0);   /* one: then it has to wait */
}

/* What a stream freed and is done with serves another one, and the pool hardly grows. */
static void finished_work_hands_its_memory_over(void **state) {
    (void)state;
    enum { N = 200 };
    for (int late = 0; late < 2; late++) { /* the pool knows of the second stream only then */
        fixture f = fixture_make(16 * GiB, false, NULL);
        const size_t n = late ? 20 : N; /* so little that handles are not moved */
        kn_stream first = new_stream(&f), second = new_stream(&f);
        void *blocks[N], *seen = must_alloc(f.pool, 1 * MiB, late ? first : second);
        uint64_t reserved = 0;
        for (int stage = 0; stage < 2; stage++) {
            for (size_t i = 0; i < n; i++) {
                blocks[i] = must_alloc(f.pool, (1 + i * 7 % 13) * MiB, stage ? second : first);
                kn_sim_drain(f.sim); /* the device keeps up */
            }
            for (size_t i = n; i-- > 0;) assert_ok(kn_free(f.pool, blocks[i]));
            kn_sim_drain(f.sim);
            if (!stage) reserved = stats_of(f.pool).reserved_bytes;
        }
        assert_true(stats_of(f.pool).reserved_bytes <= reserved + reserved / 10);
        assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_WAIT), 0);
        assert_ok(kn_free(f.pool, seen));
        fixture_end(&f);
    }
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

/* A block whose last user is gone, and was done with it before the free. */
static void use_by_a_stream_that_went_ends_with_the_free(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 20 * MiB, s);
    assert_ok(kn_block_use(f.pool, x, t));
    kn_stream_destroy(f.device, t);
    kn_sim_drain(f.sim);
    void *y = must_alloc(f.pool, 20 * MiB, s); /* asks for the event */
    assert_ok(kn_free(f.pool, x));
    assert_ptr_equal(must_alloc(f.pool, 20 * MiB, s), x);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
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

/* In a large pool an event covers 1/64 of the reserved bytes. */
static void large_pool_records_few_events(void **state) {
    (void)state;
    fixture f = fixture_make(64 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *first = must_alloc(f.pool, 1 * MiB, t), *large = must_alloc(f.pool, 32 * GiB, s);
    for (int i = 0; i < 128; i++) assert_ok(kn_free(f.pool, must_alloc(f.pool, 64 * MiB, t)));
    assert_in_range(stats_of(f.pool).n_events, 128 / 10, 128 / 8);
    assert_ok(kn_free(f.pool, first));
    assert_ok(kn_free(f.pool, large));
    fixture_end(&f);
}

/* Each takes a part of what another stream is done with, and the rest stays for large requests. */
static void small_requests_of_many_streams_leave_a_large_block_whole(void **state) {
    (void)state;
    enum { STREAMS = 64 };
    fixture f = fixture_make(72 * GiB, false, NULL);
    kn_stream s = new_stream(&f), streams[STREAMS];
    void *small[STREAMS], *large = must_alloc(f.pool, 32 * GiB, s);
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(&f);
    assert_ok(kn_block_use(f.pool, large, streams[0]));
    assert_ok(kn_free(f.pool, large));
    kn_sim_drain(f.sim);
    for (int i = 0; i < STREAMS; i++) small[i] = must_alloc(f.pool, 1 * MiB, streams[i]);
    for (int i = 0; i < STREAMS; i += 2) {
        kn_sim_work(f.sim, streams[i], small[i], 1 * MiB, (uint64_t)i + 1);
        assert_ok(kn_free(f.pool, small[i]));
    }
    large = must_alloc(f.pool, 24 * GiB, s);
    assert_true(stats_of(f.pool).reserved_bytes <= 33 * GiB);
    assert_int_equal(stats_of(f.pool).moved_bytes, 0);
    for (int i = 1; i < STREAMS; i += 2) assert_ok(kn_free(f.pool, small[i]));
    assert_ok(kn_free(f.pool, large));
    fixture_end(&f);
}

/* A small block beside it that is freed, and in use still, takes nothing of a large idle one. */
static void large_idle_block_stays_for_all_streams(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *large = must_alloc(f.pool, 600 * MiB, s);
    assert_ok(kn_free(f.pool, large));
    kn_stream_destroy(f.device, s);
    kn_sim_drain(f.sim);
    void *small = must_alloc(f.pool, 1 * MiB, t); /* asks for the event */
    kn_sim_work(f.sim, t, small, 1 * MiB, 1);
    assert_ok(kn_free(f.pool, small));
    large = must_alloc(f.pool, 590 * MiB, u);
    kn_sim_work(f.sim, u, large, 590 * MiB, 2);
    assert_true(run_alone(&f, u)); /* behind no work of t */
    assert_int_equal(stats_of(f.pool).reserved_bytes, 600 * MiB);
    assert_ok(kn_free(f.pool, large));
    fixture_end(&f);
}

/* Blocks that are freed after their streams went, and after all work, merge. */
static void blocks_of_streams_that_went_merge(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *x = must_alloc(f.pool, 20 * MiB, s), *y = must_alloc(f.pool, 20 * MiB, t);
    kn_stream_destroy(f.device, s);
    kn_stream_destroy(f.device, t);
    kn_sim_drain(f.sim);
    void *z = must_alloc(f.pool, 20 * MiB, u); /* asks for the events */
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_pool_check(f.pool));
    void *both = must_alloc(f.pool, 40 * MiB, u);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 60 * MiB);
    assert_ok(kn_free(f.pool, both));
    assert_ok(kn_free(f.pool, z));
    fixture_end(&f);
}

/* The rest of memory that a stream waited for stays in use until then, also for a third stream. */
static void rest_of_stolen_memory_is_not_finished(void **state) {
    (void)state;
    fixture f = fixture_make(1280 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *x = must_alloc(f.pool, 15 * MiB, s), *rest = must_alloc(f.pool, 1265 * MiB, s);
    kn_sim_work(f.sim, s, x, 15 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    void *y = must_alloc(f.pool, 9 * MiB, t), *z = must_alloc(f.pool, 1 * MiB, u);
    kn_sim_work(f.sim, u, z, 1 * MiB, 2); /* the simulator minds if it is beside the first */
    kn_sim_work(f.sim, t, y, 9 * MiB, 3);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    void *all[] = {y, z, rest};
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

/* The record of a stream is used again; what its last stream waited for, the new one did not. */
static void new_stream_waits_for_no_work(void **state) {
    (void)state;
    fixture f = fixture_make(60 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *x = must_alloc(f.pool, 28 * MiB, s), *y = must_alloc(f.pool, 32 * MiB, s);
    kn_sim_work(f.sim, s, x, 28 * MiB, 1);
    kn_sim_work(f.sim, s, y, 32 * MiB, 2);
    void *keep = NULL;
    assert_int_equal(kn_alloc(&keep, f.pool, 1 * MiB, s), KN_ERR_OOM);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 28 * MiB, t)));
    void *taken = must_alloc(f.pool, 28 * MiB, u); /* from t */
    kn_stream_destroy(f.device, t);
    kn_stream v = new_stream(&f);
    void *z = must_alloc(f.pool, 32 * MiB, v);
    kn_sim_work(f.sim, v, z, 32 * MiB, 3);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, taken));
    assert_ok(kn_free(f.pool, z));
    fixture_end(&f);
}

/* Each stream reuses its own memory without a call of the device, for any number of streams. */
static void many_streams_in_turn_reach_a_steady_state(void **state) {
    (void)state;
    enum { STREAMS = 300 };
    fixture f = fixture_make(16 * GiB, false, NULL);
    kn_stream streams[STREAMS];
    uint64_t steady = 0, queries = 0;
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(&f);
    for (int round = 0; round < 20; round++) {
        if (round == 2) {
            steady = kn_sim_calls(f.sim, KN_SIM_HANDLE_MAP);
            queries = kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY);
            assert_true(queries <= 16 * STREAMS); /* a few for each growth */
        }
        for (int i = 0; i < STREAMS; i++) {
            void *x = must_alloc(f.pool, 1 * MiB, streams[i]),
                 *y = must_alloc(f.pool, 500, streams[i]);
            assert_ok(kn_free(f.pool, x));
            assert_ok(kn_free(f.pool, y));
        }
    }
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_HANDLE_MAP), steady);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_EVENT_QUERY), queries);
    assert_true(kn_sim_calls(f.sim, KN_SIM_EVENT_RECORD) <= 2 * STREAMS); /* one for 64 MiB */
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

/* Keys of streams. */

static fixture fixture_without_ids(uint64_t capacity_bytes) {
    static int n_made;
    char name[16];
    fixture f = {0};
    snprintf(name, sizeof name, "sim:noid%d", n_made++);
    kn_sim_options options = {.capacity_bytes = capacity_bytes, .no_stream_ids = true};
    assert_ok(kn_sim_create(&f.sim, &options));
    assert_ok(kn_device_register(&f.device, name, kn_sim_driver(f.sim), f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    return f;
}

static void destroy_unannounced(fixture *f, kn_stream stream) {
    void *impl = NULL;
    kn_device_driver_get(f->device, &impl)->stream_destroy(impl, stream);
}

/* The driver reuses the handle of a destroyed stream, whose work still runs, for a new one. */
static void stream_with_the_handle_of_a_destroyed_one_is_another_stream(void **state) {
    (void)state;
    const size_t sizes[] = {1000, 20 * MiB};
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        kn_stream s = new_stream(&f);
        void *x = must_alloc(f.pool, sizes[i], s);
        kn_sim_work(f.sim, s, x, sizes[i], 1);
        assert_ok(kn_free(f.pool, x));
        destroy_unannounced(&f, s);
        kn_stream t = new_stream(&f);
        assert_ptr_equal(t, s);
        void *y = must_alloc(f.pool, sizes[i], t);
        assert_ptr_not_equal(y, x);
        kn_sim_work(f.sim, t, y, sizes[i], 2); /* the simulator minds if it is x's memory */
        assert_ok(kn_free(f.pool, y));
        fixture_end(&f);
    }
}

/* The pool knows the old stream, and never sees the new one: an event on it happens at once. */
static void no_event_is_recorded_on_the_successor_of_a_destroyed_stream(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *x = must_alloc(f.pool, 40 * MiB, s), *small = must_alloc(f.pool, 5 * MiB, other);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    destroy_unannounced(&f, s);
    assert_ptr_equal(new_stream(&f), s);
    assert_ok(kn_free(f.pool, x));
    void *y = must_alloc(f.pool, 50 * MiB, other);
    kn_sim_work(f.sim, other, y, 50 * MiB, 2); /* the simulator minds if s's work may still run */
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 1);
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, small));
    fixture_end(&f);
}

/* Nothing tells when the work of such a stream is done but a wait for the device: the last resort.
 */
static void memory_of_a_destroyed_stream_is_reused_before_memory_runs_out(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *x = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    destroy_unannounced(&f, s);
    kn_stream t = new_stream(&f);
    void *y = must_alloc(f.pool, 20 * MiB, t); /* there is room */
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 0);
    void *z = must_alloc(f.pool, 40 * MiB, t);
    kn_sim_work(f.sim, t, z, 40 * MiB, 2);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_DEVICE_SYNC), 1);
    assert_int_equal(stats_of(f.pool).n_syncs, 1);
    assert_ok(kn_free(f.pool, y));
    assert_ok(kn_free(f.pool, z));
    fixture_end(&f);
}

/* A driver that can't tell the id once must not make a stream look like another one. */
static void drivers_without_ids_know_streams_by_their_handles(void **state) {
    (void)state;
    fixture f = fixture_without_ids(64 * MiB);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 1000, s), *y = must_alloc(f.pool, 5 * MiB, s);
    kn_sim_work(f.sim, s, x, 1000, 1);
    kn_sim_work(f.sim, s, y, 5 * MiB, 2);
    assert_ok(kn_free(f.pool, x));
    assert_ok(kn_free(f.pool, y));
    assert_ptr_equal(must_alloc(f.pool, 1000, s), x);
    assert_ptr_equal(must_alloc(f.pool, 5 * MiB, s), y);
    void *other = must_alloc(f.pool, 1000, t);
    kn_sim_work(f.sim, t, other, 1000, 3);
    kn_stream_destroy(f.device, t);
    kn_stream again = new_stream(&f);
    assert_ptr_equal(again, t);
    void *fresh = must_alloc(f.pool, 1000, again);
    kn_sim_work(f.sim, again, fresh, 1000, 4);
    void *all[] = {x, y, other, fresh};
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

static bool id_fails;
static uint64_t (*stream_id)(void *impl, kn_stream stream);
static uint64_t id_or_0(void *impl, kn_stream stream) {
    return id_fails ? 0 : stream_id(impl, stream);
}

static void stream_whose_id_is_not_always_known_stays_the_same(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    static kn_device_driver driver;
    driver = *kn_sim_driver(f.sim);
    stream_id = driver.stream_id;
    driver.stream_id = id_or_0;
    kn_pool_destroy(f.pool);
    assert_ok(kn_device_register(&f.device, "sim:ids", &driver, f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    kn_stream s = new_stream(&f), other = new_stream(&f);
    void *first = NULL;
    for (int i = 0; i < 6; i++) {
        id_fails = i % 2 == 0;
        void *x = must_alloc(f.pool, 5 * MiB, s);
        kn_sim_work(f.sim, s, x, 5 * MiB, 1);
        if (!first) first = x;
        assert_ptr_equal(x, first);
        assert_ok(kn_free(f.pool, x));
        assert_ok(kn_free(f.pool, must_alloc(f.pool, 5 * MiB, other)));
    }
    kn_stream_destroy(f.device, s);
    fixture_end(&f);
}

static int n_ooms_told;
static void count_oom(kn_pool *pool, size_t wanted) { n_ooms_told += pool && wanted; }

static void stream_of_another_context_is_refused(void **state) {
    (void)state;
    static const kn_observer observer = {.on_oom = count_oom};
    fixture f = fixture_make(64 * MiB, false, NULL);
    assert_ok(kn_observer_attach(&observer));
    kn_stream s = new_stream(&f), ours = new_stream(&f);
    kn_sim_foreign(f.sim, s);
    const size_t sizes[] = {1000, 5 * MiB};
    for (int i = 0; i < 2; i++) {
        void *x = &x, *y = must_alloc(f.pool, sizes[i], ours);
        assert_fails(kn_alloc(&x, f.pool, sizes[i], s), KN_ERR_INVALID, "context");
        assert_null(x);
        assert_fails(kn_block_use(f.pool, y, s), KN_ERR_INVALID, "context");
        assert_ok(kn_free(f.pool, y));
    }
    assert_ok(kn_observer_attach(NULL));
    assert_int_equal(n_ooms_told, 0); /* memory did not run out */
    fixture_end(&f);
}

/* Handle 2 is another stream in each thread. */

typedef struct visitor {
    fixture *f;
    void *freed[2], *found[2];
} visitor;

static const kn_stream PER_THREAD = (kn_stream)(uintptr_t)2;
static const size_t VISITED[2] = {1000, 5 * MiB};

static void *visit(void *ctx) {
    visitor *v = ctx;
    for (int i = 0; i < 2; i++) {
        if (kn_alloc(&v->found[i], v->f->pool, VISITED[i], PER_THREAD) < 0) return v;
        kn_sim_work(v->f->sim, PER_THREAD, v->found[i], VISITED[i], 10 + (uint64_t)i);
        if (kn_free(v->f->pool, v->found[i]) < 0) return v;
    }
    return NULL;
}

static void default_stream_of_a_thread_is_its_own(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    visitor v = {.f = &f};
    for (int i = 0; i < 2; i++) {
        v.freed[i] = must_alloc(f.pool, VISITED[i], PER_THREAD);
        kn_sim_work(f.sim, PER_THREAD, v.freed[i], VISITED[i], 1 + (uint64_t)i);
        assert_ok(kn_free(f.pool, v.freed[i]));
        assert_ptr_equal(must_alloc(f.pool, VISITED[i], PER_THREAD), v.freed[i]);
        assert_ok(kn_free(f.pool, v.freed[i]));
    }
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    for (int i = 0; i < 2; i++) assert_ptr_not_equal(v.found[i], v.freed[i]);
    assert_ok(kn_pool_trim(f.pool, 0)); /* records the last events */
    kn_sim_drain(f.sim);
    assert_ok(kn_pool_trim(f.pool, 0)); /* what the ended thread's stream had comes back too */
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    fixture_end(&f);
}

typedef struct guest {
    fixture *f;
    pthread_barrier_t here;
    bool failed;
} guest;

/* Frees on its default stream, whose work is not done, and stays. */
static void *stay(void *ctx) {
    guest *g = ctx;
    void *x = NULL;
    g->failed = kn_alloc(&x, g->f->pool, 40 * MiB, PER_THREAD) < 0;
    if (x) kn_sim_work(g->f->sim, PER_THREAD, x, 40 * MiB, 1);
    if (kn_free(g->f->pool, x) < 0) g->failed = true;
    pthread_barrier_wait(&g->here);
    pthread_barrier_wait(&g->here);
    return NULL;
}

/* Only the thread itself can record an event there, and it may never come by again. */
static void memory_of_another_threads_default_stream_is_not_out_of_reach(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f = fixture_make(64 * MiB, false, NULL);
        guest g = {.f = &f};
        void *own = must_alloc(f.pool, 5 * MiB, NULL);
        pthread_t thread;
        assert_int_equal(pthread_barrier_init(&g.here, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, stay, &g), 0);
        pthread_barrier_wait(&g.here);
        if (i) {
            void *x = must_alloc(f.pool, 50 * MiB, NULL);
            kn_sim_work(f.sim, NULL, x, 50 * MiB, 2);
            assert_ok(kn_free(f.pool, x));
        }
        assert_ok(kn_free(f.pool, own));
        fixture_end(&f); /* with nothing left on the device */
        pthread_barrier_wait(&g.here);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&g.here);
        assert_false(g.failed);
    }
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
    assert_ok(kn_free(f.pool, a)); /* no event can tell when its work is done */
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

/* Blocks are freed in time, after their stream, and after a use by another one. */
static void many_streams_come_and_go_without_growth(void **state) {
    (void)state;
    for (int large = 0; large < 2; large++) {
        fixture f = fixture_make(large ? 16 * GiB : 64 * MiB, false, NULL);
        kn_stream reader = new_stream(&f);
        uint64_t metadata = 0, reserved = 0;
        void *late = NULL;
        for (int i = 0; i < 1200; i++) {
            if (i == 800) { /* by then it is steady */
                metadata = stats_of(f.pool).metadata_bytes;
                reserved = stats_of(f.pool).reserved_bytes;
            }
            kn_stream s = new_stream(&f);
            void *a = must_alloc(f.pool, 1000, s), *b = must_alloc(f.pool, 2 * MiB, s);
            kn_sim_work(f.sim, s, a, 1000, 2 * (uint64_t)i + 1);
            kn_sim_work(f.sim, s, b, 2 * MiB, 2 * (uint64_t)i + 2);
            if (i % 3 == 0) assert_ok(kn_block_use(f.pool, b, reader));
            assert_ok(kn_free(f.pool, a));
            assert_ok(kn_free(f.pool, late));
            late = b;
            kn_stream_destroy(f.device, s);
            if (i % 10 == 9) kn_sim_drain(f.sim);
        }
        assert_int_equal(stats_of(f.pool).n_syncs, 0);
        assert_true(stats_of(f.pool).reserved_bytes <= reserved);
        assert_int_equal(stats_of(f.pool).metadata_bytes, metadata);
        assert_ok(kn_free(f.pool, late));
        fixture_end(&f);
    }
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

/* The memory of a stream that is destroyed when no event can be recorded is waited for. */
static void stream_whose_last_event_fails_is_waited_for(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    void *x = must_alloc(f.pool, 40 * MiB, s);
    kn_sim_work(f.sim, s, x, 40 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 1, true);
    kn_stream_destroy(f.device, s);
    kn_sim_fail(f.sim, KN_SIM_EVENT_RECORD, 0, false);
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_STREAM_SYNC), 1);
    x = must_alloc(f.pool, 40 * MiB, t);
    assert_int_equal(stats_of(f.pool).n_syncs, 1);
    assert_ok(kn_free(f.pool, x));
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
        TEST(event_is_recorded_before_the_block_is_published), TEST(slow_stream_blocks_no_other),
        TEST(no_stream_waits_while_the_device_has_room), TEST(finished_work_hands_its_memory_over),
        TEST(stream_that_only_reads_counts_as_a_second_one), TEST(large_pool_records_few_events),
        TEST(free_of_a_large_block_records_the_events_of_its_uses),
        TEST(use_by_a_stream_that_went_ends_with_the_free),
        TEST(event_that_fails_is_not_tried_at_each_free),
        TEST(small_requests_of_many_streams_leave_a_large_block_whole),
        TEST(large_idle_block_stays_for_all_streams), TEST(blocks_of_streams_that_went_merge),
        TEST(rest_of_stolen_memory_is_not_finished), TEST(new_stream_waits_for_no_work),
        TEST(many_streams_in_turn_reach_a_steady_state), TEST(host_waits_as_the_last_resort),
        TEST(stream_with_the_handle_of_a_destroyed_one_is_another_stream),
        TEST(no_event_is_recorded_on_the_successor_of_a_destroyed_stream),
        TEST(memory_of_a_destroyed_stream_is_reused_before_memory_runs_out),
        TEST(drivers_without_ids_know_streams_by_their_handles),
        TEST(stream_whose_id_is_not_always_known_stays_the_same),
        TEST(stream_of_another_context_is_refused), TEST(default_stream_of_a_thread_is_its_own),
        TEST(memory_of_another_threads_default_stream_is_not_out_of_reach),
        TEST(stream_that_is_retired_while_it_is_captured_is_not_waited_for),
        TEST(retired_stream_leaves_its_memory_to_others),
        TEST(many_streams_come_and_go_without_growth),
        TEST(event_that_can_not_be_recorded_costs_memory_not_safety),
        TEST(out_of_memory_is_never_spurious), TEST(same_sequence_never_runs_out_later),
        TEST(stream_whose_last_event_fails_is_waited_for),
        TEST(device_is_not_waited_for_while_a_stream_is_captured),
        TEST(destroy_leaves_memory_that_may_be_in_use), TEST(destroy_waits_for_the_streams));
}
