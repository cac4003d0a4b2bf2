/* Memory that one stream frees and another uses: events, waits and large blocks, on the simulated
 * device. */
#include "pool_fixture.h"

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
        order_after(f.device, slow, home);
        order_after(f.device, quick, home);
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
        order_after(f.device, communicate, compute);
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

/* Blocks in a row that another stream still uses, right of a free block of the one that asks, which
 * would merge with the first of them. More pieces than the search looks at: another rung serves. */
static void a_row_of_too_many_pieces_is_left_alone(void **state) {
    (void)state;
    enum { PIECES = 129 };
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    char *live = must_alloc(f.pool, 256 * KiB, s), *before = must_alloc(f.pool, 256 * KiB, u);
    char *row[PIECES];
    for (int i = 0; i < PIECES; i++) {
        row[i] = must_alloc(f.pool, 256 * KiB, s);
        assert_ptr_equal(row[i], (i ? row[i - 1] : before) + 256 * KiB);
        kn_sim_work(f.sim, t, row[i], 256 * KiB, (uint64_t)i + 1);
        assert_ok(kn_block_use(f.pool, row[i], t));
    }
    void *last = must_alloc(f.pool, 256 * KiB, s), *rest[64];
    int n_rest = 0;
    assert_ok(kn_pool_limit(f.pool, stats_of(f.pool).reserved_bytes));
    while (kn_alloc(&rest[n_rest], f.pool, 256 * KiB, s) == KN_OK) n_rest++;
    for (int i = 0; i < PIECES; i++) {
        if (i != PIECES / 2) assert_ok(kn_free(f.pool, row[i]));
    }
    assert_ok(kn_free(f.pool, row[PIECES / 2])); /* the youngest: the search starts there */
    assert_ok(kn_free(f.pool, before));
    char *all = must_alloc(f.pool, PIECES * 256 * KiB, u);
    kn_sim_work(f.sim, u, all, PIECES * 256 * KiB, PIECES + 1);
    assert_no_violation(f.sim);
    void *kept[] = {live, last, all};
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, kept[i]));
    while (n_rest) assert_ok(kn_free(f.pool, rest[--n_rest]));
    fixture_end(&f);
}

/* A run starts at its largest block, and may have many pieces of other streams right of it. */
static void a_run_of_many_small_pieces_is_taken_without_a_wait_of_the_host(void **state) {
    (void)state;
    enum { PIECES = 12 };
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f), u = new_stream(&f);
    void *live = must_alloc(f.pool, 1 * MiB, u), *rest[64];
    char *first = must_alloc(f.pool, 4 * MiB, s), *piece[PIECES];
    for (int i = 0; i < PIECES; i++) piece[i] = must_alloc(f.pool, 1 * MiB, i % 2 ? s : t);
    assert_ptr_equal(piece[PIECES - 1], first + (4 + PIECES - 1) * MiB);
    void *last = must_alloc(f.pool, 1 * MiB, u);
    int n_rest = 0;
    assert_ok(kn_pool_limit(f.pool, stats_of(f.pool).reserved_bytes));
    while (kn_alloc(&rest[n_rest], f.pool, 1 * MiB, u) == KN_OK) n_rest++;
    kn_sim_work(f.sim, s, first, 4 * MiB, 1);
    assert_ok(kn_free(f.pool, first));
    for (int i = 0; i < PIECES; i++) {
        kn_sim_work(f.sim, i % 2 ? s : t, piece[i], 1 * MiB, (uint64_t)i + 2);
        assert_ok(kn_free(f.pool, piece[i]));
    }
    uint64_t n_syncs = stats_of(f.pool).n_syncs;
    char *all = must_alloc(f.pool, (4 + PIECES) * MiB, u);
    assert_ptr_equal(all, first);
    assert_int_equal(stats_of(f.pool).n_syncs, n_syncs);
    kn_sim_work(f.sim, u, all, (4 + PIECES) * MiB, PIECES + 2);
    assert_no_violation(f.sim);
    void *kept[] = {live, last, all};
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, kept[i]));
    while (n_rest) assert_ok(kn_free(f.pool, rest[--n_rest]));
    fixture_end(&f);
}

/* What a stream's growth leaves of its own free block, before an aligned request, is in use still.
 */
static void the_rest_before_an_aligned_block_is_not_finished(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream s = new_stream(&f), t = new_stream(&f);
    char *seen = must_alloc(f.pool, 1 * MiB, t), *x = must_alloc(f.pool, 2 * MiB, s);
    kn_sim_work(f.sim, s, x, 2 * MiB, 1);
    assert_ok(kn_free(f.pool, x));
    void *aligned = NULL;
    assert_ok(kn_alloc_aligned(&aligned, f.pool, 64 * MiB, 64 * MiB, s));
    char *y = must_alloc(f.pool, 1 * MiB, t);
    kn_sim_work(f.sim, t, y, 1 * MiB, 2);
    assert_no_violation(f.sim);
    void *all[] = {seen, aligned, y};
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

int main(void) {
    return RUN_TESTS(
        TEST(slow_stream_blocks_no_other), TEST(no_stream_waits_while_the_device_has_room),
        TEST(finished_work_hands_its_memory_over), TEST(large_pool_records_few_events),
        TEST(small_requests_of_many_streams_leave_a_large_block_whole),
        TEST(large_idle_block_stays_for_all_streams), TEST(blocks_of_streams_that_went_merge),
        TEST(rest_of_stolen_memory_is_not_finished), TEST(new_stream_waits_for_no_work),
        TEST(a_row_of_too_many_pieces_is_left_alone),
        TEST(the_rest_before_an_aligned_block_is_not_finished),
        TEST(a_run_of_many_small_pieces_is_taken_without_a_wait_of_the_host),
        TEST(many_streams_in_turn_reach_a_steady_state));
}
